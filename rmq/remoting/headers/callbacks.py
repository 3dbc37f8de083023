"""Headers of requests a broker makes to a client, some of them handed on from mqadmin.

The question about a half message is in `transactions`, the reset of offsets in `offsets`.
"""

from rmq.remoting.header import Header, Int32, Int64


class NotifyConsumerIdsChangedRequest(Header, frozen=True, kw_only=True):
    """40 NOTIFY_CONSUMER_IDS_CHANGED (one-way): consumers of a group came or went."""

    consumer_group: str


class GetConsumerStatusRequest(Header, frozen=True, kw_only=True):
    """223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS, and 221 GET_CONSUMER_STATUS_FROM_CLIENT to each."""

    topic: str
    group: str
    # A client id, in spite of its name; all consumers of the group when absent or blank.
    client_addr: str | None = None


class GetConsumerRunningInfoRequest(Header, frozen=True, kw_only=True):
    """307 GET_CONSUMER_RUNNING_INFO: to a broker, which hands it on to the consumer."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequest(Header, frozen=True, kw_only=True):
    """309 CONSUME_MESSAGE_DIRECTLY: to a broker, which hands it on with the message as body."""

    consumer_group: str
    client_id: str | None = None
    # An offset message id.
    msg_id: str | None = None
    # Added by the broker.
    broker_name: str | None = None


class PushReplyMessageRequest(Header, frozen=True, kw_only=True):
    """326 PUSH_REPLY_MESSAGE_TO_CLIENT: a reply for the producer that asked; the body is its body.

    Of the fields that Java marks as mandatory, no client reads `producer_group`, `default_topic`
    and `default_topic_queue_nums`, and clients do without the two hosts.
    """

    producer_group: str | None = None
    topic: str
    # Before `default_topic`, with which it shares a hash bucket: Java's reflection has it first.
    properties: str | None = None
    default_topic: str | None = None
    default_topic_queue_nums: Int32 | None = None
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    # `host:port`.
    born_host: str | None = None
    store_host: str | None = None
    store_timestamp: Int64 = 0
