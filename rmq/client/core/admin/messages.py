"""Single messages for admin tools: by id, by key, by unique key, by offset. Pure.

Brokers find messages by hashes, and an address in an id may have another owner by now. So whatever
is found is compared with what was asked for. A message counts as missing only
when every broker that may have it has answered; one that did not is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.targets import (
    SLOW_S,
    TIMEOUT_S,
    Failure,
    cluster_groups,
    failed,
    groups_of,
    read_each,
)
from rmq.client.core.admin.topics import brokers_of_topic
from rmq.client.core.flows import Ask, ask, expect
from rmq.client.core.received import received
from rmq.client.core.routes import Address
from rmq.errors import BadAnswerError, ClientError, IllegalMessageError, NoBrokerError
from rmq.model.names import MASTER_ID
from rmq.model.properties import KEY_SEPARATOR, decode_text, find_keys, find_unique_key
from rmq.model.record import BadRecordError, decode_records, parse_message_id, unpack_host
from rmq.remoting.addresses import format_address
from rmq.remoting.bodies import SUBSCRIBE_ALL
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    PullMessageRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ResumeCheckHalfMessageRequest,
    ViewMessageRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmq.client.core.flows import Answer, Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.received import ReceivedMessage
    from rmq.model.queues import MessageQueue
    from rmq.model.record import StoredRecord

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group that every broker has for tools that read."""
MESSAGES_MAX: Final = 64
"""More than this brokers do not give to one query, unless they are configured to."""
TIME_MAX_MS: Final = 2**63 - 1
_SUBSCRIPTION_FLAG: Final = 4
"""The filter is in the request, and nothing waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessages:
    """Messages with a key."""

    messages: tuple[ReceivedMessage, ...]
    """In the order in which they were stored."""
    indexed_until_ms: int
    """When the last message was stored that the indexes know of."""
    failures: tuple[Failure, ...]
    """Brokers that may have more."""


# --- by key -----------------------------------------------------------------------------------


def messages_by_key(
    nameservers: Nameservers,
    topic: str,
    key: str,
    *,
    max_messages: int = MESSAGES_MAX,
    from_ms: int = 0,
    to_ms: int = TIME_MAX_MS,
) -> Flow[FoundMessages]:
    """Return messages of a topic that have a key, and were stored in a range of time."""

    def matches(record: StoredRecord) -> bool:
        keys = decode_text(find_keys(record.properties_bytes)).split(KEY_SEPARATOR)
        return record.topic == topic and key in keys

    header = QueryMessageRequest(
        topic=topic,
        key=key,
        max_num=max_messages,
        begin_timestamp=from_ms,
        end_timestamp=to_ms,
    )
    return (yield from _query(nameservers, header, matches))


def message_by_unique_key(
    nameservers: Nameservers, topic: str, unique_key: str
) -> Flow[ReceivedMessage | None]:
    """Return the message that a producer gave this id; None if there is none.

    A message that was sent again, because the first answer was lost, is stored twice: the first one
    counts. Stock tools guess the time from the id and find messages of two months at most; here
    nothing is guessed.
    """

    def matches(record: StoredRecord) -> bool:
        return (
            record.topic == topic
            and decode_text(find_unique_key(record.properties_bytes)) == unique_key
        )

    header = QueryMessageRequest(
        topic=topic,
        key=unique_key,
        max_num=MESSAGES_MAX,
        begin_timestamp=0,
        end_timestamp=TIME_MAX_MS,
        unique_key_query=True,
    )
    found = yield from _query(nameservers, header, matches)
    if found.messages:
        return found.messages[0]
    if found.failures:
        raise failed(f"message {unique_key} is not at the others", found.failures)
    return None


def _query(
    nameservers: Nameservers, header: QueryMessageRequest, matches: Callable[[StoredRecord], bool]
) -> Flow[FoundMessages]:
    def call(target: Address) -> Flow[tuple[int, list[ReceivedMessage]]]:
        answer = yield Ask(target.address, RequestCode.QUERY_MESSAGE, header, None, SLOW_S)
        answer = expect(answer, ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0, []
        messages = [
            received(record, target.broker_name) for record in _records(answer) if matches(record)
        ]
        return answer.header(QueryMessageResponse).index_last_update_timestamp, messages

    groups = yield from brokers_of_topic(nameservers, header.topic)
    tried = yield from read_each(
        f"key {header.key} in {header.topic}", groups, call, nameservers.slave_reads
    )
    found = [message for _, (_, messages) in tried.answers for message in messages]
    return FoundMessages(
        messages=tuple(sorted(found, key=lambda message: message.stored_at_ms)),
        indexed_until_ms=max((until for _, (until, _) in tried.answers), default=0),
        failures=tried.failures,
    )


# --- by place ---------------------------------------------------------------------------------


def message_by_id(
    nameservers: Nameservers, message_id: str, *, topic: str | None = None
) -> Flow[ReceivedMessage | None]:
    """Return the message with an offset message id; None if there is none.

    The address in the id is asked first. If it does not answer, or has another message there, those
    brokers are asked that may hold a copy: the ones of `topic`, or all there are.
    """
    address, offset = _parse(message_id)
    first = Address("", MASTER_ID, address)
    failures: list[Failure] = []
    try:
        record = yield from _view(first, message_id, offset)
    except ClientError as exc:
        failures.append(Failure(first, exc))
    else:
        if record is not None:
            return received(record, (yield from _name_of(nameservers, address)))
    try:
        if topic is not None:
            groups = yield from brokers_of_topic(nameservers, topic)
        else:
            groups = cluster_groups((yield from nameservers.cluster()), None)
    except ClientError as exc:
        failures.append(Failure(Address("nameservers", MASTER_ID, ""), exc))
        groups = []
    others = [broker for group in groups for broker in group if broker.address != address]
    return (yield from _first_copy(others, message_id, offset, failures))


def find_message(
    nameservers: Nameservers, topic: str, message_id: str
) -> Flow[ReceivedMessage | None]:
    """Return the message with an id of either kind: of its producer, or of the place it is at.

    Both kinds look the same, so only brokers of the topic are asked: the address in an id that a
    producer made is anything but a broker's.
    """
    found = yield from message_by_unique_key(nameservers, topic, message_id)
    if found is not None:
        return found
    try:
        _, offset = _parse(message_id)
    except IllegalMessageError:
        return None
    groups = yield from brokers_of_topic(nameservers, topic)
    brokers = [broker for group in groups for broker in group]
    return (yield from _first_copy(brokers, message_id, offset, []))


def _first_copy(
    brokers: Iterable[Address], message_id: str, offset: int, failures: list[Failure]
) -> Flow[ReceivedMessage | None]:
    """Return the message that one of these has; None if all say that they do not."""
    for broker in brokers:
        try:
            record = yield from _view(broker, message_id, offset)
        except ClientError as exc:
            failures.append(Failure(broker, exc))
            continue
        if record is not None:
            return received(record, broker.broker_name)
    if failures:
        raise failed(f"message {message_id} is not at the others", failures)
    return None


def message_at(
    nameservers: Nameservers, queue: MessageQueue, offset: int
) -> Flow[ReceivedMessage | None]:
    """Return the message at an offset of a queue; None if there is none."""
    route = yield from nameservers.route(queue.topic)
    brokers = [one for one in route.brokers if one.broker_name == queue.broker_name]
    if not brokers:
        raise NoBrokerError(f"broker {queue.broker_name}", f"it has no queue of {queue.topic}")
    header = PullMessageRequest(
        consumer_group=TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=_SUBSCRIPTION_FLAG,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=SUBSCRIBE_ALL,
        sub_version=0,
    )

    def call(target: Address) -> Flow[ReceivedMessage | None]:
        answer = expect(
            (yield Ask(target.address, RequestCode.PULL_MESSAGE, header, None, TIMEOUT_S)),
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        for record in _records(answer):
            if record.queue_offset == offset:
                return received(record, target.broker_name)
        return None

    tried = yield from read_each(
        f"{queue} at {offset}", groups_of(brokers), call, nameservers.slave_reads
    )
    return tried.answers[0][1]


def resume_check(nameservers: Nameservers, message_id: str) -> Flow[None]:
    """Let a broker ask about a half message again that it has given up on.

    `message_id` is an offset message id.
    """
    address, _ = _parse(message_id)
    header = ResumeCheckHalfMessageRequest(msg_id=message_id)
    yield from ask(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header, timeout_s=TIMEOUT_S)


def _view(broker: Address, message_id: str, offset: int) -> Flow[StoredRecord | None]:
    """Ask one broker for the record at an offset of its log; None if it is another one."""
    answer = yield Ask(
        broker.address,
        RequestCode.VIEW_MESSAGE_BY_ID,
        ViewMessageRequest(offset=offset),
        None,
        TIMEOUT_S,
    )
    # There is no code of its own for "nothing is there".
    answer = expect(answer, ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        return None
    for record in _records(answer):
        if record.message_id == message_id.upper():
            return record
    return None


def _name_of(nameservers: Nameservers, address: str) -> Flow[str]:
    """Return the name of the broker at an address, empty if it is in no route."""
    try:
        info = yield from nameservers.cluster()
    except ClientError:
        return ""
    for name, data in info.broker_addr_table.items():
        if address in data.broker_addrs.values():
            return name
    return ""


def _parse(message_id: str) -> tuple[str, int]:
    """Return the address and the physical offset in an offset message id."""
    try:
        host, offset = parse_message_id(message_id)
    except ValueError as exc:
        raise IllegalMessageError(f"message id {message_id!r}: {exc}") from None
    name, port = unpack_host(host)
    if not 0 < port < 65_536:
        raise IllegalMessageError(
            f"message id {message_id!r} names port {port}: it says nothing of a place",
            hint="query it as the unique key of a message of its topic",
        )
    return format_address((name, port)), offset


def _records(answer: Answer) -> list[StoredRecord]:
    try:
        return list(decode_records(answer.command.body or b""))
    except BadRecordError as exc:
        raise BadAnswerError(answer.ask.address, answer.ask.code.name, str(exc)) from exc


class MessageCalls:
    """The flows of this module that admin clients offer."""

    message_by_id = AdminCall(message_by_id)
    message_by_unique_key = AdminCall(message_by_unique_key)
    messages_by_key = AdminCall(messages_by_key)
    find_message = AdminCall(find_message)
    message_at = AdminCall(message_at)
    resume_check = AdminCall(resume_check)
