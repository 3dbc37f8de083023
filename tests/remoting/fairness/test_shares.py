"""What one host may have of what is limited, whatever the others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from rmq.errors import ConfigError
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import ResponseCode
from rmq.remoting.fairness.shares import HostShares
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.protocol import RequestType
from rmq.remoting.server import ServerConfig
from tests.remoting.server_kit import QUERY, SEND, Ask, Gate, ask, serving, table_with_ping

if TYPE_CHECKING:
    from tests.remoting.server_kit import Peer

LIMIT: Final = 1_000


def fill(shares: HostShares, host: str) -> int:
    """Have a host take all that it may have; return how much that is."""
    taken = 0
    while shares.room_for(host) > 0:
        shares.change(host, 1)
        taken += 1
    return taken


def test_one_host_alone_may_have_its_share_and_leaves_the_rest_to_others() -> None:
    shares = HostShares(LIMIT, floor=10)
    assert shares.room_for("a") == fill(shares, "a") == shares.comfortable == 750
    assert [fill(shares, host) for host in ("b", "c", "d")] == [187, 47, 12]
    # What is free for others stays free however often a host asks.
    assert fill(shares, "a") == 0
    assert shares.room_for("e") > 0


def test_hosts_that_come_at_the_same_time_have_the_same() -> None:
    shares = HostShares(LIMIT, floor=10)
    for _ in range(LIMIT):
        for host in "abc":
            if shares.room_for(host):
                shares.change(host, 1)
    assert [shares._by_host[host] for host in "abc"] == [300, 300, 300]


def test_every_host_may_have_the_floor_as_long_as_there_is_some() -> None:
    shares = HostShares(100, floor=40)
    assert [fill(shares, host) for host in ("a", "b", "c")] == [75, 25, 0]
    assert HostShares(100, floor=1_000).room_for("a") == 100


def test_hosts_are_not_told_apart_at_100() -> None:
    shares = HostShares(LIMIT, floor=1, share_max=100)
    assert fill(shares, "a") == shares.comfortable == LIMIT


@given(
    st.integers(1, 500),
    st.integers(0, 100),
    st.integers(1, 100),
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-5, 40)), max_size=60),
)
def test_no_more_is_given_than_there_is_and_all_comes_back(
    limit: int, floor: int, share_max: int, asked: list[tuple[str, int]]
) -> None:
    shares = HostShares(limit, floor=floor, share_max=share_max)
    held = dict.fromkeys("abcd", 0)
    for host, count in asked:
        change = max(-held[host], min(count, shares.room_for(host)))
        is_below = shares.used + change <= shares.comfortable
        assert change == max(-held[host], count) or not is_below or count > shares.room_for(host)
        shares.change(host, change)
        held[host] += change
        assert shares.used == sum(held.values()) <= limit
        assert all(shares.room_for(each) <= limit - shares.used for each in held)
    for host, count in held.items():
        shares.change(host, -count)
    assert (shares.used, shares._by_host) == (0, {})


@given(st.lists(st.sampled_from("abcd"), max_size=300), st.integers(1, 100), st.integers(0, 30))
def test_below_what_is_comfortable_everybody_has_room(
    hosts: list[str], share_max: int, floor: int
) -> None:
    shares = HostShares(200, floor=floor, share_max=share_max)
    for host in hosts:
        if shares.used < shares.comfortable:
            assert shares.room_for(host) > 0
            shares.change(host, 1)


# --- at a server ---------------------------------------------------------------------------------


async def test_a_host_with_many_connections_leaves_places_to_others() -> None:
    async with serving(connections_max=200) as served:
        peers = [await served.dial() for _ in range(150)]
        for peer in peers:
            assert await peer.ping() == []
        refused = await served.dial()
        assert await refused.read_to_end() == []
        assert served.server.statistics().refused_connections == 1
        other = await served.dial("127.0.0.2")
        assert await other.ping() == []
        # Places that are given back can be taken again, but for the part of the other host.
        for peer in peers[:5]:
            await peer.stream.aclose()
        while len(served.server.channels) > 146:
            await wait_all_tasks_blocked()
        again = await served.dial()
        assert await again.ping() == []


async def fill_group(peers: list[Peer], each: int) -> None:
    for number, peer in enumerate(peers):
        await peer.send(*(ask(QUERY, number * each + opaque) for opaque in range(each)))
    await wait_all_tasks_blocked()


async def test_requests_of_one_host_leave_room_for_those_of_others() -> None:
    gate = Gate()
    table = table_with_ping()
    bounds = HandlerGroup(name="g", concurrency=1, capacity=400, per_connection=400)
    table.add_async(RequestType(Ask, code=QUERY), gate, group=bounds)
    async with serving(table) as served:
        crowd = [served.attach(f"10.0.0.1:{number}") for number in range(10)]
        await fill_group(crowd, 50)
        assert served.group("g").unanswered == 300
        other = served.attach("10.0.0.2:1")
        await other.send(*(ask(QUERY, 1_000 + number) for number in range(70)))
        await wait_all_tasks_blocked()
        assert served.group("g").unanswered == 300 + 70
        refusals = await crowd[-1].read_many(50)
        assert {frame.code for frame in refusals} == {ResponseCode.SYSTEM_BUSY}


async def test_large_frames_of_one_host_leave_memory_to_others() -> None:
    mib = 1 << 20
    async with serving(channel=ChannelConfig(), held_bytes_max=64 * mib) as served:
        frame = ask(SEND, 1, body=bytes(15 * mib))
        crowd = [served.attach(f"10.0.0.1:{number}") for number in range(4)]
        for peer in crowd:
            await peer.send(frame[: 14 * mib])
        await wait_all_tasks_blocked()
        open_ones = [peer for peer in crowd if peer.channel.is_open]
        assert len(open_ones) == 3, "75 of 100"
        other = served.attach("10.0.0.2:1")
        await other.send(frame[: 14 * mib])
        await wait_all_tasks_blocked()
        assert other.channel.is_open


@pytest.mark.parametrize("share", [0, 101])
def test_a_share_is_a_percentage(share: int) -> None:
    with pytest.raises(ConfigError, match="is not between 1 and 100"):
        ServerConfig(host_share_max=share)
