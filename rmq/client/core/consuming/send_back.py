"""Giving messages back to be consumed again later. Pure.

A consumer that could not deal with a message asks the broker that stored it to deliver it again
after a while, from the retry topic of its group. If that broker cannot be asked, the consumer sends
the message to the retry topic itself, through any broker. After `reconsume_max` rounds brokers put
the message among the group's dead letters (`%DLQ%group`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.client.core.flows import Ask, Flow, ask, expect
from rmq.client.core.messages import DELAY_LEVEL_MAX
from rmq.errors import ClientError, NoRouteError
from rmq.model import flags
from rmq.model.compression import COMPRESSION_MASK
from rmq.model.names import AUTO_CREATE_TOPIC, INNER_PRODUCER_GROUP, MASTER_ID, retry_topic
from rmq.model.properties import DELAY, encode_properties
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import ConsumerSendMsgBackRequest, SendMessageRequestV2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import RouteTable
    from rmq.model.queues import MessageQueue

SEND_BACK_TIMEOUT_S: Final = 5.0
RESEND_TIMEOUT_S: Final = 3.0
RESEND_BROKERS_MAX: Final = 3
"""How many brokers are tried before a message stays with the consumer for now."""


TO_DEAD_LETTERS: Final = -1
"""A delay level: not again, but among the dead letters at once."""
BROKER_DECIDES: Final = 0
"""A delay level: longer from round to round."""
FIRST_LEVEL: Final = 3
"""The level of the first round, 10 s, where brokers decide."""

_STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


def send_back(
    routes: RouteTable,
    message: ReceivedMessage,
    *,
    group: str,
    delay_level: int,
    reconsume_max: int,
    now_ms: int,
    unit_mode: bool = False,
) -> Flow[None]:
    """Have a message delivered again; raise what the last attempt failed with."""
    queue = message.queue
    master = routes.address_of(queue.broker_name)
    if master is not None and master.broker_id == MASTER_ID:
        header = ConsumerSendMsgBackRequest(
            offset=message.physical_offset,
            group=group,
            broker_name=queue.broker_name,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=unit_mode,
            max_reconsume_times=reconsume_max,
        )
        try:
            yield from ask(
                master.address,
                RequestCode.CONSUMER_SEND_MSG_BACK,
                header,
                timeout_s=SEND_BACK_TIMEOUT_S,
            )
        except ClientError:
            pass
        else:
            return
    times = message.reconsume_times + 1
    if delay_level == TO_DEAD_LETTERS:
        # A send has no level for that, but what has had all its rounds goes there.
        times = max(times, reconsume_max)
    yield from resend(
        routes,
        message,
        group=group,
        delay_level=delay_level,
        reconsume_times=times,
        reconsume_max=reconsume_max,
        now_ms=now_ms,
        unit_mode=unit_mode,
    )


def resend(
    routes: RouteTable,
    message: ReceivedMessage,
    *,
    group: str,
    delay_level: int,
    reconsume_times: int,
    reconsume_max: int,
    now_ms: int,
    unit_mode: bool = False,
) -> Flow[None]:
    """Send a message to the group's retry topic; with `reconsume_max` rounds it is a dead letter.

    Raises what the last broker failed with.
    """
    topic = retry_topic(group)
    level = delay_level if delay_level > 0 else FIRST_LEVEL + message.reconsume_times
    properties = encode_properties(_properties(message, min(level, DELAY_LEVEL_MAX))).decode()
    error: ClientError | None = None
    for tried, (address, broker_name, queue_id) in enumerate(
        _targets(routes, topic, message.queue)
    ):
        if tried == RESEND_BROKERS_MAX:
            break
        header = SendMessageRequestV2(
            producer_group=INNER_PRODUCER_GROUP,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=queue_id,
            # The body goes out as it came: how it is compressed stays as it was.
            sys_flag=message.sys_flag & (flags.COMPRESSED | COMPRESSION_MASK),
            born_timestamp=now_ms,
            flag=message.flag,
            properties=properties,
            reconsume_times=reconsume_times,
            unit_mode=unit_mode,
            max_reconsume_times=reconsume_max,
            broker_name=broker_name,
        )
        try:
            answer = yield Ask(
                address, RequestCode.SEND_MESSAGE_V2, header, message.raw_body, RESEND_TIMEOUT_S
            )
            expect(answer, *_STORED)
        except ClientError as exc:
            error = exc
        else:
            return
    raise error or NoRouteError("", topic, "no master is known that could take it")


def _properties(message: ReceivedMessage, level: int) -> dict[str, str]:
    properties = dict(message.properties)
    # A message of a transaction would be taken for a half message again.
    properties.pop("TRAN_MSG", None)
    properties["RETRY_TOPIC"] = message.topic
    properties.setdefault("ORIGIN_MESSAGE_ID", message.offset_message_id)
    properties[DELAY] = str(level)
    return properties


def _targets(
    routes: RouteTable, topic: str, failed: MessageQueue
) -> Iterator[tuple[str, str, int]]:
    """Return where a retry topic can be sent to: address, broker name and queue.

    Every master takes it, whether it has the topic by now or not; the one that the message came
    from is tried last: it could not be asked just before.
    """
    route = routes.get(topic)
    known = {} if route is None else {queue.broker_name: queue for queue in route.writable}
    masters = [broker for broker in routes.brokers() if broker.broker_id == MASTER_ID]
    masters.sort(
        key=lambda broker: (
            broker.broker_name == failed.broker_name,
            broker.broker_name not in known,
        )
    )
    for master in masters:
        queue = known.get(master.broker_name)
        yield master.address, master.broker_name, 0 if queue is None else queue.queue_id
