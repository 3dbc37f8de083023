"""Offsets: where a group is in a queue, and where queues begin and end. Pure.

A group that has no offset in a queue starts where `start_offset` says. That a broker does not know
of one is an answer; that a broker cannot be asked is not, and never taken for one: a consumer that
started at a wrong place would repeat or skip what others wrote.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from rmq.client.core.flows import Ask, Flow, Tell, ask, expect
from rmq.client.core.routes import broker_of, master_of, read_first, readers_of
from rmq.model.names import RETRY_PREFIX
from rmq.remoting.bodies import ConsumeFromWhere
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)

if TYPE_CHECKING:
    from rmq.client.core.flows import Answer
    from rmq.client.core.routes import Address, RouteTable
    from rmq.model.queues import MessageQueue
    from rmq.remoting.header import Header

GROUP_OFFSET_TIMEOUT_S: Final = 5.0
"""How long brokers are waited for that are asked where a group is."""


class ConsumeFrom(enum.Enum):
    """Where a group starts that has no offset in a queue yet."""

    FIRST = "first"
    """With the first message."""
    LAST = "last"
    """Behind the last one: with what comes from now on."""
    TIMESTAMP = "timestamp"
    """With what was stored at a time."""

    @property
    def wire(self) -> ConsumeFromWhere:
        """What heartbeats call it."""
        return _WIRE[self]


_WIRE: Final = {
    ConsumeFrom.FIRST: ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ConsumeFrom.LAST: ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ConsumeFrom.TIMESTAMP: ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
}


# --- where a group is ------------------------------------------------------------------------


def fetch_offset(
    routes: RouteTable,
    group: str,
    queue: MessageQueue,
    *,
    timeout_s: float = GROUP_OFFSET_TIMEOUT_S,
    broker: Address | None = None,
) -> Flow[int | None]:
    """Return where a group goes on in a queue; None if the broker knows of no such place.

    That is the master, or a slave if no master is known, unless a `broker` is named.
    """
    broker = broker or broker_of(routes, queue)
    header = QueryConsumerOffsetRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        broker_name=queue.broker_name,
    )
    answer = yield Ask(
        broker.address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_s=timeout_s
    )
    answer = expect(answer, ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    offset = answer.header(QueryConsumerOffsetResponse).offset
    return offset if offset >= 0 else None


def commit_offset(
    routes: RouteTable,
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    is_oneway: bool = True,
) -> Flow[None]:
    """Store where a group goes on in a queue: at the master, or at a slave if there is none.

    The broker stores whatever it is told, be it less than before.
    """
    assert offset >= 0, f"offset {offset} of {queue} is below 0"
    broker = broker_of(routes, queue)
    header = UpdateConsumerOffsetRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        broker_name=queue.broker_name,
        commit_offset=offset,
    )
    if is_oneway:
        yield Tell(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        return
    yield from ask(
        broker.address,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        header,
        timeout_s=GROUP_OFFSET_TIMEOUT_S,
    )


# --- where queues begin and end --------------------------------------------------------------


def min_offset(
    routes: RouteTable, queue: MessageQueue, *, broker: Address | None = None
) -> Flow[int]:
    """Return the first offset of a queue that can still be read.

    The master is asked, or a slave if there is no master that can be reached, unless a `broker` is
    named. This goes for all questions about queues.
    """
    header = GetMinOffsetRequest(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    answer = yield from _ask_reader(routes, queue, RequestCode.GET_MIN_OFFSET, header, broker)
    return answer.header(GetMinOffsetResponse).offset


def max_offset(
    routes: RouteTable, queue: MessageQueue, *, broker: Address | None = None
) -> Flow[int]:
    """Return the offset that the next message of a queue will have."""
    header = GetMaxOffsetRequest(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    answer = yield from _ask_reader(routes, queue, RequestCode.GET_MAX_OFFSET, header, broker)
    return answer.header(GetMaxOffsetResponse).offset


def offset_at(
    routes: RouteTable, queue: MessageQueue, time_ms: int, *, broker: Address | None = None
) -> Flow[int]:
    """Return the offset of the message of a queue that was stored nearest to a time."""
    header = SearchOffsetRequest(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp=time_ms,
        broker_name=queue.broker_name,
    )
    answer = yield from _ask_reader(
        routes, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, broker
    )
    return answer.header(SearchOffsetResponse).offset


def first_stored_at_ms(routes: RouteTable, queue: MessageQueue) -> Flow[int | None]:
    """Return when the first readable message of a queue was stored; None if it has none."""
    header = GetEarliestMsgStoretimeRequest(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    answer = yield from _ask_reader(routes, queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    time_ms = answer.header(GetEarliestMsgStoretimeResponse).timestamp
    return time_ms if time_ms >= 0 else None


def _ask_reader(
    routes: RouteTable,
    queue: MessageQueue,
    code: RequestCode,
    header: Header,
    broker: Address | None = None,
) -> Flow[Answer]:
    if broker is not None:
        return (yield from ask(broker.address, code, header))
    return (
        yield from read_first(
            readers_of(routes, queue),
            lambda reader: ask(reader.address, code, header),
            routes.slave_reads,
        )
    )


# --- where to start --------------------------------------------------------------------------


def start_offset(
    routes: RouteTable,
    group: str,
    queue: MessageQueue,
    consume_from: ConsumeFrom,
    time_ms: int | None = None,
) -> Flow[int]:
    """Return where a group goes on in a queue, or starts if it was never there.

    Whatever keeps this from being known is raised: leave the queue alone for now.
    """
    stored = yield from fetch_offset(routes, group, queue)
    if stored is not None:
        return stored
    return (yield from first_start(routes, queue, consume_from, time_ms))


def first_start(
    routes: RouteTable, queue: MessageQueue, consume_from: ConsumeFrom, time_ms: int | None = None
) -> Flow[int]:
    """Return where a group starts in a queue where it never was.

    `time_ms` is for `ConsumeFrom.TIMESTAMP`. A retry queue is read from its first message when
    others are from their last, and from its end when others are by time, as in 4.9.8.

    Only a master is asked: a slave may not have heard yet that the group has been there, and
    everything before the end would be skipped.
    """
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if consume_from is ConsumeFrom.FIRST or (consume_from is ConsumeFrom.LAST and is_retry):
        return 0
    if consume_from is ConsumeFrom.LAST or is_retry:
        return (yield from max_offset(routes, queue, broker=master_of(routes, queue)))
    assert time_ms is not None, "a start by time needs the time"
    return (yield from offset_at(routes, queue, time_ms, broker=master_of(routes, queue)))
