"""When members of a group are told that it changed: at once, but not over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from trio.testing import wait_all_tasks_blocked

from rmq.broker.clients.calls import CLIENTS_PER_STEP, MemberNotifier
from rmq.broker.clients.registry import ClientInfo, ConsumerGroupInfo
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode
from tests.broker.client_broker import client_broker, heartbeat
from tests.broker.clients.registry_kit import consumer, identity, open_channel, subscription

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock

    from rmq.remoting.channel import Channel
    from tests.remoting.server_kit import Peer

ON_T: Final = consumer("group", [subscription("T")])
NOTIFY: Final = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


async def count_notices(peer: Peer) -> int:
    """Return how many notices have come; nothing else must have."""
    frames = await peer.ping()
    assert {frame.code for frame in frames} <= {NOTIFY}
    return len(frames)


async def test_members_that_come_together_are_told_of_once_at_first_and_once_after(
    autojump_clock: MockClock,
) -> None:
    async with client_broker(paced=True) as broker:
        first = await broker.join("first", ON_T)
        await trio.sleep(1)
        for number in range(5):
            await broker.join(f"another {number}", ON_T)
        assert await count_notices(first) == 1
        await trio.sleep(1)
        assert await count_notices(first) == 1
        await trio.sleep(10)
        assert await count_notices(first) == 0


async def test_members_that_go_together_are_told_of_once_at_first_and_once_after(
    autojump_clock: MockClock,
) -> None:
    async with client_broker(paced=True) as broker:
        first = await broker.join("first", ON_T)
        others = [await broker.join(f"another {number}", ON_T) for number in range(5)]
        await trio.sleep(1)
        await first.ping()
        for other in others:
            await other.aclose()
        await wait_all_tasks_blocked()
        assert await count_notices(first) == 1
        await trio.sleep(1)
        assert await count_notices(first) == 1


async def test_a_newcomer_is_told_at_once_also_of_a_group_that_was_just_told(
    autojump_clock: MockClock,
) -> None:
    async with client_broker(paced=True) as broker:
        await broker.join("a", ON_T)
        await broker.join("b", ON_T)
        newcomer = broker.attach("c")
        await newcomer.send(heartbeat("c", ON_T, opaque=3))
        notice, reply = await newcomer.read_many(2)
        assert (notice.code, notice.flag) == (NOTIFY, FLAG_ONEWAY)
        assert reply.opaque == 3


async def test_groups_do_not_wait_for_each_other(autojump_clock: MockClock) -> None:
    async with client_broker(paced=True) as broker:
        peer = await broker.join("a", ON_T, consumer("other", [subscription("T")]))
        await trio.sleep(1)
        await peer.ping()
        await broker.join("b", ON_T)
        await broker.join("c", consumer("other", [subscription("T")]))
        frames = await peer.ping()
        assert [frame.fields for frame in frames] == [
            {"consumerGroup": "group"},
            {"consumerGroup": "other"},
        ]


async def test_a_group_that_ended_meanwhile_is_not_told(autojump_clock: MockClock) -> None:
    async with client_broker(paced=True) as broker:
        peers = [await broker.join(name, ON_T) for name in ("a", "b")]
        for peer in peers:
            await peer.aclose()
        await trio.sleep(10)
        assert broker.clients.consumer_group("group") is None


async def test_without_the_pacing_task_every_change_is_told_at_once() -> None:
    async with client_broker() as broker:
        first = await broker.join("first", ON_T)
        for number in range(5):
            await broker.join(f"another {number}", ON_T)
        assert await count_notices(first) == 5


async def test_a_connection_that_cannot_be_told_does_not_keep_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client_broker() as broker:
        gone = open_channel("gone")
        gone.close("closed by the peer")
        peer = broker.attach("here")
        group = ConsumerGroupInfo("group")
        for channel in (gone, peer.channel):
            group.add(ClientInfo(group, channel, identity(channel.peer)))
        broker.notifier.notify_members(group, None)
        assert await count_notices(peer) == 1
    assert "group group: gone not told to rebalance" in caplog.text


async def test_a_change_of_the_setting_counts_at_once() -> None:
    async with client_broker() as broker:
        first = await broker.join("a", ON_T)
        broker.config.update({"notifyConsumerIdsChangedEnable": "false"}, now_ms=2)
        second = await broker.join("b", ON_T)
        assert await count_notices(first) == await count_notices(second) == 0


async def test_the_members_of_a_large_group_are_told_some_in_each_pass(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def note(notifier: MemberNotifier, group: ConsumerGroupInfo, channels: list[Channel]) -> None:
        told.append(len(channels))

    async with client_broker(paced=True) as broker:
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(MemberNotifier, "_tell", note)
        for number in range(1_000):
            channel = open_channel(f"client-{number}")
            broker.clients.register_consumer("many", channel, identity(f"id-{number}"), ON_T, 0.0)
        # Each newcomer at once, and nothing in proportion to the group.
        assert told == [1] * 1_000
        told.clear()
        await trio.sleep(1)
        # All but the last one, which was told of the last change.
        assert sum(told) == 999
        assert max(told) == CLIENTS_PER_STEP
        broker.notifier.notify_members(broker.group("many"), None)
        told.clear()
        await trio.sleep(1)
        assert sum(told) == 1_000
        assert max(told) == CLIENTS_PER_STEP


async def test_members_that_come_in_one_step_are_told_of_each_other(
    autojump_clock: MockClock,
) -> None:
    async with client_broker(paced=True) as broker:
        await trio.testing.wait_all_tasks_blocked()
        peers = [broker.attach(name) for name in "abc"]
        for peer in peers:
            client = identity(peer.channel.peer)
            broker.clients.register_consumer("group", peer.channel, client, ON_T, 0.0)
        await trio.sleep(1)
        # Each when it came, and those before the last once more.
        assert [await count_notices(peer) for peer in peers] == [2, 2, 1]
