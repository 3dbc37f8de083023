"""Headers of the send path: messages from producers, replies, and messages a consumer sends back.

The same data has two spellings: version 1 with full names and version 2 with single letters, which
is what stock clients use. Batches are told apart by `batch`, not by their own class.
"""

from typing import ClassVar

from msgspec import field

from rmq.remoting.header import Header, Int32, Int64


class SendMessageRequest(Header, frozen=True, kw_only=True):
    """10 SEND_MESSAGE and 324 SEND_REPLY_MESSAGE."""

    # `properties` and `max_reconsume_times` come before the fields they share a hash bucket with
    # (`default_topic`, `flag`), as Java's reflection puts them; otherwise as the Java class has it.
    producer_group: str
    topic: str
    properties: str | None = None
    # The topic whose settings a topic created by this send gets, and how many queues it gets.
    default_topic: str
    default_topic_queue_nums: Int32
    # Below zero: the broker picks one.
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    max_reconsume_times: Int32 | None = None
    flag: Int32
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    batch: bool = False
    broker_name: str | None = field(default=None, name="bname")


class SendMessageRequestV2(Header, frozen=True, kw_only=True):
    """310 SEND_MESSAGE_V2, 320 SEND_BATCH_MESSAGE and 325 SEND_REPLY_MESSAGE_V2."""

    declared_order: ClassVar[bool] = True

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: Int32 | None = field(default=None, name="j")
    unit_mode: bool = field(default=False, name="k")
    max_reconsume_times: Int32 | None = field(default=None, name="l")
    batch: bool = field(default=False, name="m")
    broker_name: str | None = field(default=None, name="n")

    def to_v1(self) -> SendMessageRequest:
        """Return the same request under its full names."""
        return SendMessageRequest(
            producer_group=self.producer_group,
            topic=self.topic,
            default_topic=self.default_topic,
            default_topic_queue_nums=self.default_topic_queue_nums,
            queue_id=self.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=self.unit_mode,
            max_reconsume_times=self.max_reconsume_times,
            batch=self.batch,
            broker_name=self.broker_name,
        )


class SendMessageResponse(Header, frozen=True, kw_only=True):
    """Answer to every kind of send, for success and for FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE and
    FLUSH_SLAVE_TIMEOUT: in all of these the message was stored.
    """

    declared_order: ClassVar[bool] = True

    # Offset message ids in hexadecimal; comma-separated for a batch.
    msg_id: str
    queue_id: Int32
    # That of the first message of a batch.
    queue_offset: Int64
    transaction_id: str | None = None
    # Not in the Java class: brokers add these two to extFields by hand, so in the binary
    # serialization they follow the declared ones, in hash order.
    trace_on: bool | None = field(default=None, name="TRACE_ON")
    msg_region: str | None = field(default=None, name="MSG_REGION")


class SendMessageErrorResponse(Header, frozen=True, kw_only=True):
    """Answer to a send that was refused: only what a broker adds before it looks at the message."""

    trace_on: bool | None = field(default=None, name="TRACE_ON")
    msg_region: str | None = field(default=None, name="MSG_REGION")


class ConsumerSendMsgBackRequest(Header, frozen=True, kw_only=True):
    """36 CONSUMER_SEND_MSG_BACK: deliver this message to the group again later."""

    # Physical offset in the CommitLog.
    offset: Int64
    group: str
    # Before `delay_level`, with which it shares a hash bucket: Java's reflection has it first.
    broker_name: str | None = field(default=None, name="bname")
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
