"""Handler groups: each has its own bounds, a full one refuses or slows down whoever filled it, and
no group or connection holds up another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.dispatch import reply_all
from rmq.remoting.groups import GroupStatistics, HandlerGroup
from rmq.remoting.protocol import RequestType
from rmq.remoting.request import defer_all
from tests.remoting.server_kit import (
    PULL,
    QUERY,
    SEND,
    Ask,
    Gate,
    Holder,
    Told,
    ask,
    echo,
    serving,
    table_with_ping,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request

SEARCH = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"


def group(
    *,
    concurrency: int = 100,
    capacity: int = 1_000,
    per_connection: int = 1_000,
    slows_down: bool = True,
) -> HandlerGroup:
    return HandlerGroup(
        name="tested",
        concurrency=concurrency,
        capacity=capacity,
        per_connection=per_connection,
        slows_down=slows_down,
    )


def gate_table(bounds: HandlerGroup) -> tuple[HandlerTable, Gate]:
    gate = Gate()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate, group=bounds)
    return table, gate


def holder_table(bounds: HandlerGroup) -> tuple[HandlerTable, Holder]:
    holder = Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder, group=bounds)
    return table, holder


# ---- concurrency ---------------------------------------------------------------------------------


async def test_no_more_coroutines_run_than_the_group_allows() -> None:
    table, gate = gate_table(group(concurrency=3))
    async with serving(table) as served:
        peers = [served.attach(f"peer-{n}") for n in range(2)]
        await peers[0].send(*(ask(QUERY, n) for n in range(6)))
        await peers[1].send(*(ask(QUERY, n) for n in range(6, 12)))
        for number in range(12):
            await wait_all_tasks_blocked()
            assert gate.inside == min(3, 12 - number)
            gate.let(gate.entered[number])
        for peer in peers:
            await peer.read_many(6)
    assert gate.inside_max == 3
    assert sorted(gate.entered) == list(range(12))


async def test_a_failing_coroutine_gives_its_place_to_the_next() -> None:
    async def fail(request: Request[Ask]) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("boom")

    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), fail, group=group(concurrency=1))
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(*(ask(QUERY, n) for n in range(5)))
        assert {frame.code for frame in await peer.read_many(5)} == {ResponseCode.SYSTEM_ERROR}
        await wait_all_tasks_blocked()
        assert served.group("tested").running == 0


async def test_waiting_requests_are_served_in_turn_by_connection() -> None:
    table, gate = gate_table(group(concurrency=1))
    async with serving(table) as served:
        busy, second, third = (served.attach(name) for name in ("busy", "second", "third"))
        await busy.send(*(ask(QUERY, n) for n in (10, 11, 12, 13)))
        await wait_all_tasks_blocked()
        await second.send(ask(QUERY, 20), ask(QUERY, 21))
        await wait_all_tasks_blocked()
        await third.send(ask(QUERY, 30))
        await wait_all_tasks_blocked()
        gate.let(10, 11, 12, 13, 20, 21, 30)
        await busy.read_many(4)
        await second.read_many(2)
        await third.read()
    assert gate.entered == [10, 11, 20, 30, 12, 21, 13]


async def test_requests_deferred_and_answered_together_count_one_by_one() -> None:
    held: list[Request[Ask]] = []

    def hold(requests: Sequence[Request[Ask]]) -> None:
        defer_all(requests)
        defer_all(requests)
        held.extend(requests)

    table = table_with_ping()
    table.add_batch(RequestType(Ask, code=SEND), hold, group=group(per_connection=3))
    async with serving(table) as served:
        peers = [served.attach(f"peer-{n}") for n in range(2)]
        for peer in peers:
            await peer.send(*(ask(SEND, n) for n in range(4)))
        await wait_all_tasks_blocked()
        assert served.group("tested").unanswered == 8
        # It has as many as it may have: it is read no further.
        await peers[0].send(ask(SEND, 4))
        await wait_all_tasks_blocked()
        assert len(held) == 8
        held[0].reply(Told(number=0))
        answered = held[1:8]
        reply_all(answered, [Told(number=request.header.number) for request in answered])
        for peer in peers:
            assert await peer.read_numbers(4) == list(range(4))
        await wait_all_tasks_blocked()
        assert len(held) == 9
        assert served.group("tested").unanswered == 1
        held[8].drop()
        assert served.group("tested").unanswered == 0


# ---- capacity ------------------------------------------------------------------------------------


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_a_full_group_answers_busy_in_json_until_a_place_is_free(
    serialization: Serialization,
) -> None:
    table, gate = gate_table(group(concurrency=1, capacity=3))
    async with serving(table) as served:
        peer, other = served.attach(), served.attach("other")
        await peer.send(*(ask(QUERY, n, serialization=serialization) for n in range(5)))
        told = await peer.read_many(2)
        assert [(frame.opaque, frame.code) for frame in told] == [(3, 2), (4, 2)]
        assert {frame.remark for frame in told} == {OVERLOAD}
        assert {frame.serialization for frame in told} == {Serialization.JSON}
        # The bound is the group's, whoever asks.
        refused = await other.request(ask(QUERY, 50, serialization=serialization))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert served.group("tested") == GroupStatistics("tested", 3, 2, 1, 3)

        gate.let(0)
        assert (await peer.read()).opaque == 0
        await other.send(ask(QUERY, 51, serialization=serialization))
        assert await other.ping() == []
        gate.let(1, 2, 51)
        assert [frame.opaque for frame in await peer.read_many(2)] == [1, 2]
        assert (await other.read()).opaque == 51
    assert gate.entered == [0, 1, 2, 51]


async def test_a_one_way_request_to_a_full_group_is_dropped_in_silence() -> None:
    table, gate = gate_table(group(concurrency=1, capacity=1))
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(QUERY, 1), ask(QUERY, 2, oneway=True))
        assert await peer.ping() == []
        gate.let(1, 2)
        assert (await peer.read()).opaque == 1
        assert await peer.ping() == []
    assert gate.entered == [1]


async def test_deferred_requests_hold_their_places_until_they_are_answered_or_dropped() -> None:
    table, holder = holder_table(group(capacity=2))
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(PULL, 1), ask(PULL, 2))
        assert (await peer.request(ask(PULL, 3))).code == ResponseCode.SYSTEM_BUSY
        holder.requests[0].reply(Told(number=1))
        assert (await peer.read()).opaque == 1
        holder.requests[1].drop()
        await peer.send(ask(PULL, 4), ask(PULL, 5))
        assert await peer.ping() == []
        assert holder.numbers == [1, 2, 4, 5]
        assert served.group("tested") == GroupStatistics("tested", 2, 0, 0, 1)


async def test_codes_of_one_group_share_its_places_and_other_groups_have_their_own() -> None:
    shared = group(capacity=2)
    holder, other_holder = Holder(), Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder, group=shared)
    table.add(RequestType(Ask, code=QUERY), holder, group=shared)
    table.add(RequestType(Ask, code=SEND), other_holder)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(PULL, 1), ask(QUERY, 2), ask(PULL, 3), ask(SEND, 4), ask(QUERY, 5))
        assert {frame.opaque: frame.code for frame in await peer.ping()} == {3: 2, 5: 2}
        assert other_holder.numbers == [4]


# ---- one connection's share ----------------------------------------------------------------------


@pytest.mark.parametrize("over", ["memory", "socket"])
async def test_a_connection_at_its_share_is_read_no_further_until_an_answer_is_out(
    over: str,
) -> None:
    table, holder = holder_table(group(per_connection=2))
    # A batch is taken as a whole, so with one frame each the bound is exact.
    async with serving(table, channel=ChannelConfig(batch_frames=1)) as served:
        peer = served.attach("busy") if over == "memory" else served.attach_recorded("busy")[0]
        other = served.attach("other") if over == "memory" else served.attach_recorded("other")[0]
        await peer.send(*(ask(PULL, n) for n in range(5)))
        await peer.send(ask(PULL, 5))
        await wait_all_tasks_blocked()
        assert holder.numbers == [0, 1]
        await other.send(ask(PULL, 100))
        assert await other.ping() == []
        assert holder.numbers == [0, 1, 100]

        holder.requests[1].reply(Told(number=1))
        assert (await peer.read()).opaque == 1
        await wait_all_tasks_blocked()
        assert holder.numbers == [0, 1, 100, 2]
        for request in list(holder.requests):
            if not request.answered:
                request.drop()
        await wait_all_tasks_blocked()
        assert holder.numbers == [0, 1, 100, 2, 3, 4]
        holder.requests[-1].drop()
        await wait_all_tasks_blocked()
        assert holder.numbers[-1] == 5
        assert served.group("tested").refused == 0


async def test_a_whole_batch_is_the_most_that_a_connection_exceeds_its_share_by() -> None:
    table, holder = holder_table(group(per_connection=2))
    async with serving(table, channel=ChannelConfig(batch_frames=4)) as served:
        peer = served.attach()
        await peer.send(*(ask(PULL, n) for n in range(20)))
        await wait_all_tasks_blocked()
        assert holder.numbers == [0, 1, 2, 3]
        for _ in range(3):
            holder.requests.pop().reply(Told(number=0))
            await wait_all_tasks_blocked()
        # Below the share again: the next batch is taken.
        assert holder.numbers == [0, 4, 5, 6, 7]


async def test_a_group_that_does_not_slow_down_refuses_and_the_connection_is_read_on() -> None:
    table, holder = holder_table(group(per_connection=2, slows_down=False))
    async with serving(table) as served:
        peer, other = served.attach(), served.attach("other")
        await peer.send(*(ask(PULL, n) for n in range(4)))
        refused = await peer.ping()
        assert [(frame.opaque, frame.code) for frame in refused] == [(2, 2), (3, 2)]
        assert {frame.remark for frame in refused} == {OVERLOAD}
        await other.send(ask(PULL, 100))
        assert await other.ping() == []
        holder.requests[0].reply(Told(number=0))
        assert (await peer.read()).opaque == 0
        await peer.send(ask(PULL, 5))
        assert await peer.ping() == []
        assert holder.numbers == [0, 1, 100, 5]
        assert served.group("tested") == GroupStatistics("tested", 3, 0, 0, 2)


async def test_a_connection_paused_by_two_groups_waits_for_both() -> None:
    table, holder = holder_table(group(per_connection=1))
    gate = Gate()
    table.add_async(
        RequestType(Ask, code=QUERY),
        gate,
        group=HandlerGroup(name="second", concurrency=1, capacity=10, per_connection=1),
    )
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(PULL, 1), ask(QUERY, 2))
        await wait_all_tasks_blocked()
        await peer.send(ask(PULL, 3))
        await wait_all_tasks_blocked()
        gate.let(2)
        assert (await peer.read()).opaque == 2
        await wait_all_tasks_blocked()
        assert holder.numbers == [1]
        holder.requests[0].reply(Told(number=1))
        await wait_all_tasks_blocked()
        assert holder.numbers == [1, 3]


# ---- groups do not hold up each other ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_blocked_queries_never_hold_up_sends(kind: str) -> None:
    async def send(request: Request[Ask]) -> None:
        await trio.lowlevel.checkpoint()
        echo(request)

    table, gate = gate_table(group(concurrency=1, capacity=50))
    if kind == "plain":
        table.add(RequestType(Ask, code=SEND), echo)
    else:
        table.add_async(RequestType(Ask, code=SEND), send)
    async with serving(table) as served:
        peer, other = served.attach(), served.attach("other")
        await peer.send(*(ask(QUERY, 1_000 + n) for n in range(40)))
        await other.send(*(ask(QUERY, 2_000 + n) for n in range(20)))
        for number in range(20):
            for each in (peer, other):
                await each.send(ask(SEND, number))
                while (told := await each.read()).code == ResponseCode.SYSTEM_BUSY:
                    assert told.opaque >= 1_000
                assert told.opaque == number
        assert gate.entered == [1_000]
        assert served.group("tested").waiting == 49


# ---- the end of a connection, and of all work ----------------------------------------------------


async def test_a_connection_that_dies_frees_the_places_of_its_waiting_requests() -> None:
    table, gate = gate_table(group(concurrency=1, capacity=4))
    async with serving(table) as served:
        dying, other = served.attach("dying"), served.attach("other")
        await dying.send(*(ask(QUERY, n) for n in range(3)))
        await wait_all_tasks_blocked()
        await other.send(ask(QUERY, 10))
        assert await other.ping() == []
        assert served.group("tested") == GroupStatistics("tested", 4, 3, 1, 0)

        await dying.aclose()
        await wait_all_tasks_blocked()
        # What runs is not interrupted, but what waited is gone.
        assert served.group("tested") == GroupStatistics("tested", 2, 1, 1, 0)
        gate.let(0, 10)
        assert (await other.read()).opaque == 10
        await wait_all_tasks_blocked()
        assert served.group("tested") == GroupStatistics("tested", 0, 0, 0, 0)
    assert gate.entered == [0, 10]


async def test_a_connection_that_dies_while_paused_is_noticed_and_frees_its_places() -> None:
    table, gate = gate_table(group(concurrency=1, per_connection=3))
    async with serving(table) as served:
        dying, other = served.attach("dying"), served.attach("other")
        await dying.send(*(ask(QUERY, n) for n in range(3)))
        await wait_all_tasks_blocked()
        await dying.aclose()
        await other.send(ask(QUERY, 10))
        await wait_all_tasks_blocked()
        gate.let(0, 10)
        assert (await other.read()).opaque == 10
        await wait_all_tasks_blocked()
        assert served.group("tested") == GroupStatistics("tested", 0, 0, 0, 0)
        assert {channel.peer for channel in served.server.channels} == {"other"}
    assert gate.entered == [0, 10]


async def test_statistics_tell_what_is_unanswered_waiting_running_and_refused() -> None:
    bounds = group(concurrency=2, capacity=6)
    table, gate = gate_table(bounds)
    holder = Holder()
    table.add(RequestType(Ask, code=PULL), holder, group=bounds)
    async with serving(table) as served:
        peer = served.attach()
        assert served.group("tested") == GroupStatistics("tested", 0, 0, 0, 0)
        await peer.send(ask(PULL, 100), *(ask(QUERY, n) for n in range(4)))
        await wait_all_tasks_blocked()
        assert served.group("tested") == GroupStatistics("tested", 5, 2, 2, 0)
        await peer.send(ask(QUERY, 4), ask(QUERY, 5))
        await peer.read()
        assert served.group("tested") == GroupStatistics("tested", 6, 3, 2, 1)
        holder.requests[0].reply()
        gate.let(0, 1, 2, 3)
        await peer.read_many(5)
        await wait_all_tasks_blocked()
        assert served.group("tested") == GroupStatistics("tested", 1, 0, 1, 1)
        gate.let(4)
        await peer.read()
        await wait_all_tasks_blocked()
        assert served.group("tested") == GroupStatistics("tested", 0, 0, 0, 1)
