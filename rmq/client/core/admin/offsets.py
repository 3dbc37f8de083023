"""Offsets for admin tools: what queues hold, where groups go on, and moving groups. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.groups import brokers_of_group, consume_stats
from rmq.client.core.admin.targets import TIMEOUT_S, change_each, groups_of
from rmq.client.core.consuming import offsets as queue_offsets
from rmq.client.core.flows import Ask, ask, expect
from rmq.client.core.routes import RouteTable, read_first, readers_of
from rmq.errors import NoBrokerError
from rmq.remoting.bodies import ResetOffsetBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    GetConsumerConnectionListRequest,
    ResetOffsetRequest,
    UpdateConsumerOffsetRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.routes import Address
    from rmq.model.queues import MessageQueue

QUEUE_ENDS_MS: Final = -1
"""The time to reset a group to that is to skip everything there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """Where a group goes on after it was moved."""

    offsets: dict[MessageQueue, int]
    offline: frozenset[str]
    """Names of brokers that no consumer of the group was connected to: the offset was written
    there, and no consumer had to be notified.
    """


# --- queues -----------------------------------------------------------------------------------


def min_offset(nameservers: Nameservers, queue: MessageQueue) -> Flow[int]:
    """Return the offset of the first message of a queue that can be read."""
    return (yield from queue_offsets.min_offset((yield from _routes(nameservers, queue)), queue))


def max_offset(nameservers: Nameservers, queue: MessageQueue) -> Flow[int]:
    """Return the offset that the next message of a queue will get."""
    return (yield from queue_offsets.max_offset((yield from _routes(nameservers, queue)), queue))


def offset_at(nameservers: Nameservers, queue: MessageQueue, time_ms: int) -> Flow[int]:
    """Return the offset of the message that was stored nearest to a time."""
    routes = yield from _routes(nameservers, queue)
    return (yield from queue_offsets.offset_at(routes, queue, time_ms))


def first_stored_at_ms(nameservers: Nameservers, queue: MessageQueue) -> Flow[int | None]:
    """Return when the first message of a queue that can be read was stored; None if none can."""
    return (
        yield from queue_offsets.first_stored_at_ms((yield from _routes(nameservers, queue)), queue)
    )


def _routes(nameservers: Nameservers, queue: MessageQueue) -> Flow[RouteTable]:
    """Return what there is to know of where a queue is, asked for now."""
    table = RouteTable(nameservers.slave_reads)
    table.put((yield from nameservers.route(queue.topic)))
    return table


# --- groups -----------------------------------------------------------------------------------


def consumer_offset(nameservers: Nameservers, group: str, queue: MessageQueue) -> Flow[int | None]:
    """Return where a group goes on in a queue; None if it has not begun.

    Brokers say 0 of a group that they do not know while the queue is young.
    """
    routes = yield from _routes(nameservers, queue)
    return (
        yield from read_first(
            readers_of(routes, queue),
            lambda broker: queue_offsets.fetch_offset(routes, group, queue, broker=broker),
            routes.slave_reads,
        )
    )


def set_consumer_offsets(
    nameservers: Nameservers, group: str, offsets: Mapping[MessageQueue, int]
) -> Flow[None]:
    """Say where a group goes on. Consumers that run do not hear of it, and overwrite it."""
    for topic in sorted({queue.topic for queue in offsets}):
        route = yield from nameservers.route(topic)
        wanted = {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        names = {queue.broker_name for queue in wanted}
        groups = groups_of(one for one in route.brokers if one.broker_name in names)
        known = {broker.broker_name for brokers in groups for broker in brokers}
        if missing := sorted(names - known):
            raise NoBrokerError(f"broker {missing[0]}", f"it has no queue of {topic}")
        yield from change_each(
            f"offsets of group {group} in {topic}",
            groups,
            partial(_write_own_offsets, group=group, offsets=wanted),
        )


def clone_offsets(
    nameservers: Nameservers, source: str, target_group: str, *, topic: str | None = None
) -> Flow[dict[MessageQueue, int]]:
    """Let one group go on where another is, in one topic or in all; return where that is."""
    groups = yield from brokers_of_group(nameservers, source, topic)

    def call(target: Address) -> Flow[dict[MessageQueue, int]]:
        # Asked for one topic, brokers say 0 of queues that a group has no offset for.
        stats = yield from consume_stats(target.address, source, None)
        offsets = {
            queue: progress.consumer_offset
            for queue, progress in stats.offset_table.items()
            if topic is None or queue.topic == topic
        }
        yield from _write_offsets(target, target_group, offsets)
        return offsets

    done = yield from change_each(f"offsets of {source} for {target_group}", groups, call)
    cloned = {queue: offset for _, offsets in done for queue, offset in offsets.items()}
    return dict(sorted(cloned.items()))


def reset_offsets(
    nameservers: Nameservers, group: str, topic: str, time_ms: int, *, is_forced: bool = True
) -> Flow[OffsetReset]:
    """Let a group go on in a topic where it was at a time; `QUEUE_ENDS_MS` skips everything.

    Brokers tell the consumers that are connected. Where none is, the offset is written. Unless it
    is forced, a group only goes back.
    """
    route = yield from nameservers.route(topic)
    routes = RouteTable(nameservers.slave_reads)
    routes.put(route)
    queues: dict[str, list[MessageQueue]] = {}
    for queue in route.readable:
        queues.setdefault(queue.broker_name, []).append(queue)
    offline: set[str] = set()

    def call(target: Address) -> Flow[dict[MessageQueue, int]]:
        told = yield from _reset_online(target, group, topic, time_ms, is_forced=is_forced)
        if told is not None:
            return told
        offline.add(target.broker_name)
        return (
            yield from _reset_offline(
                target,
                routes,
                group,
                queues.get(target.broker_name, []),
                time_ms,
                is_forced=is_forced,
            )
        )

    done = yield from change_each(
        f"reset of group {group} in {topic}", groups_of(route.brokers), call
    )
    reset = {queue: offset for _, told in done for queue, offset in told.items()}
    return OffsetReset(offsets=dict(sorted(reset.items())), offline=frozenset(offline))


def _reset_online(
    target: Address, group: str, topic: str, time_ms: int, *, is_forced: bool
) -> Flow[dict[MessageQueue, int] | None]:
    """Let a broker move the consumers of a group; None if it has none of them."""
    header = ResetOffsetRequest(topic=topic, group=group, timestamp=time_ms, is_force=is_forced)
    answer = expect(
        (
            yield Ask(
                target.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, None, TIMEOUT_S
            )
        ),
        ResponseCode.SUCCESS,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.SYSTEM_ERROR,
    )
    if answer.code == ResponseCode.SUCCESS:
        return answer.body(ResetOffsetBody).offset_table
    if answer.code == ResponseCode.SYSTEM_ERROR:
        # Brokers say this of a group without offsets before they look whether it has consumers.
        asked = yield Ask(
            target.address,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GetConsumerConnectionListRequest(consumer_group=group),
            None,
            TIMEOUT_S,
        )
        if asked is None or asked.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise answer.failure()
    return None


def _reset_offline(
    target: Address,
    routes: RouteTable,
    group: str,
    queues: Iterable[MessageQueue],
    time_ms: int,
    *,
    is_forced: bool,
) -> Flow[dict[MessageQueue, int]]:
    """Write where a group without consumers goes on; return where that is."""
    stats = yield from consume_stats(target.address, group, None)
    reset: dict[MessageQueue, int] = {}
    for queue in queues:
        wanted = yield from _offset_for(routes, queue, time_ms)
        known = stats.offset_table.get(queue)
        if is_forced or known is None or wanted <= known.consumer_offset:
            yield from _write_offsets(target, group, {queue: wanted})
            reset[queue] = wanted
        else:
            reset[queue] = known.consumer_offset
    return reset


def _offset_for(routes: RouteTable, queue: MessageQueue, time_ms: int) -> Flow[int]:
    """Return the offset of a queue that belongs to a time."""
    if time_ms == QUEUE_ENDS_MS:
        return (yield from queue_offsets.max_offset(routes, queue))
    return max(0, (yield from queue_offsets.offset_at(routes, queue, time_ms)))


def _write_own_offsets(
    target: Address, *, group: str, offsets: Mapping[MessageQueue, int]
) -> Flow[None]:
    """Write those that a broker has the queues of."""
    own = {
        queue: offset
        for queue, offset in offsets.items()
        if queue.broker_name == target.broker_name
    }
    return _write_offsets(target, group, own)


def _write_offsets(target: Address, group: str, offsets: Mapping[MessageQueue, int]) -> Flow[None]:
    for queue, offset in sorted(offsets.items()):
        header = UpdateConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            commit_offset=offset,
        )
        yield from ask(
            target.address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s=TIMEOUT_S
        )


class OffsetCalls:
    """The flows of this module that admin clients offer."""

    min_offset = AdminCall(min_offset)
    max_offset = AdminCall(max_offset)
    offset_at = AdminCall(offset_at)
    first_stored_at_ms = AdminCall(first_stored_at_ms)
    consumer_offset = AdminCall(consumer_offset)
    set_consumer_offsets = AdminCall(set_consumer_offsets)
    clone_offsets = AdminCall(clone_offsets)
    reset_offsets = AdminCall(reset_offsets)
