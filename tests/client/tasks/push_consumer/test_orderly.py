"""Messages of a queue in their order, one call at a time, by one member at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import trio

from rmq.client.core.consuming.results import ConsumeResult
from rmq.client.tasks import assignment
from rmq.model.offsets import ConsumerOffset
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import numbered, put, queue, until
from tests.client.push_kit import (
    GROUP,
    ONE,
    QUICK_DELAYS,
    Collector,
    committed,
    consumer,
    die,
    wait_shared,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from rmq.client.core.received import ReceivedMessage
    from rmq.model.queues import MessageQueue
    from tests.client.cluster_kit import Cluster


class InOrder:
    """A listener of several members that fails the test if order is not kept."""

    def __init__(self, pause_s: float = 0.001) -> None:
        self.seen: dict[MessageQueue, list[int]] = defaultdict(list)
        self.problems: list[str] = []
        self._under_way: set[MessageQueue] = set()
        self._pause_s = pause_s

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        where = messages[0].queue
        if where in self._under_way:
            self.problems.append(f"two calls of {where} at a time")
        self._under_way.add(where)
        try:
            await trio.sleep(self._pause_s)
        finally:
            self._under_way.discard(where)
        for message in messages:
            offset = message.queue_offset
            if self.seen[where] and offset > self.seen[where][-1] + 1:
                self.problems.append(f"{where}: {offset} follows {self.seen[where][-1]}")
            self.seen[where].append(offset)

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))


def owner(it: Cluster, number: int = 0) -> str | None:
    return it.brokers["broker-a"].locks.owner(GROUP, queue(number), trio.current_time())


async def test_each_queue_in_its_order(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=3)
        for number in range(3):
            await put(it, queue(number), numbered(100))
        seen = InOrder()
        async with consumer(it, seen, is_orderly=True, batch_messages_max=7) as running:
            await until(lambda: seen.count == 300)
            assert owner(it) == running.client.client_id
        assert seen.seen == {queue(number): list(range(100)) for number in range(3)}
        assert seen.problems == []
        assert committed(it) == dict.fromkeys(range(3), 100)
        # The next one need not wait for locks to lapse.
        assert owner(it) is None


async def test_a_failure_suspends_its_queue_only(tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
        (message,) = messages
        seen.append((message.queue.queue_id, message.queue_offset, message.reconsume_times))
        if message.queue.queue_id == 0 and message.queue_offset == 1:
            if message.reconsume_times == 0:
                raise ValueError("not yet")
            if message.reconsume_times == 1:
                return ConsumeResult.LATER
        return None

    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=2)
        await put(it, queue(0), numbered(3))
        await put(it, queue(1), numbered(3))
        async with consumer(it, listener, is_orderly=True, suspend_queue_s=0.2):
            await until(lambda: len(seen) == 8)
        assert [each for each in seen if each[0] == 0] == [
            (0, 0, 0),
            (0, 1, 0),
            (0, 1, 1),
            (0, 1, 2),
            (0, 2, 0),
        ]
        assert seen.index((1, 2, 0)) < seen.index((0, 1, 1))


async def test_after_its_rounds_a_message_is_a_dead_letter(tmp_path: Path) -> None:
    class Picky(Collector):
        async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
            await super().__call__(messages)
            return ConsumeResult.LATER if messages[0].body == b"m1" else None

    async with cluster(tmp_path, ONE, **QUICK_DELAYS) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(3))
        seen, dead = Picky(), Collector()
        async with consumer(it, seen, is_orderly=True, reconsume_times_max=2, suspend_queue_s=0.05):
            await seen.wait("m2")
            async with consumer(it, dead, f"%DLQ%{GROUP}", group="undertaker"):
                await dead.wait("m1")
        assert seen.bodies == ["m0", "m1", "m1", "m1", "m2"]
        assert committed(it) == {0: 3}
        assert dead.messages[0].properties["RETRY_TOPIC"] == "Orders"


async def test_order_is_kept_while_members_come_and_go(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=4)
        for number in range(4):
            await put(it, queue(number), numbered(300))
        seen = InOrder(pause_s=0.003)
        async with consumer(it, seen, is_orderly=True, batch_messages_max=3) as first:
            await until(lambda: seen.count > 20)
            async with consumer(it, seen, is_orderly=True) as second:
                await wait_shared(5, first, second)
                before = seen.count
                await until(lambda: seen.count > before + 50)
            await until(lambda: seen.count >= 1200)
        assert seen.problems == []
        # What was under way is finished before its queue is given up: nothing comes twice.
        assert seen.seen == {queue(number): list(range(300)) for number in range(4)}


async def test_a_busy_queue_is_given_up_when_its_call_is_over(tmp_path: Path) -> None:
    release = trio.Event()
    began: list[int] = []

    async def slow(messages: Sequence[ReceivedMessage]) -> None:
        began.append(messages[0].queue.queue_id)
        await release.wait()

    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=2)
        await put(it, queue(0), ["a0", "a1"])
        await put(it, queue(1), ["b0", "b1"])
        after = Collector()
        async with consumer(it, slow, is_orderly=True) as first:
            await until(lambda: sorted(began) == [0, 1])
            async with consumer(it, after, is_orderly=True, rebalance_s=0.1) as second:
                await trio.sleep(0.5)
                # One of the queues is to change its owner, and cannot yet.
                assert after.messages == []
                release.set()
                await wait_shared(3, first, second)
                await until(lambda: len(began) + len(after.messages) == 4)
                (message,) = after.messages
                assert message.queue_offset == 1


async def test_a_queue_whose_lock_is_lost_is_left_alone_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "RELOCK_S", 0.05)
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        locks = it.brokers["broker-a"].locks
        seen = InOrder()
        async with consumer(
            it, seen, is_orderly=True, lock_renewal_s=0.05, pull_pause_s=0.05, offset_commit_s=0.05
        ) as running:
            await put(it, queue(), numbered(10))
            await until(lambda: committed(it).get(0) == 10)
            me = running.client.client_id
            # Somebody else has it, and consumes five of the next.
            locks.unlock_batch(GROUP, me, [queue()])
            locks.lock_batch(GROUP, "thief", [queue()], trio.current_time())
            assert owner(it) == "thief"
            await until(lambda: not running.running_info().mq_table[queue()].locked)
            await put(it, queue(), numbered(10, first=10))
            await trio.sleep(0.3)
            assert seen.count == 10
            it.brokers["broker-a"].offsets.commit("thief", GROUP, "Orders", 0, ConsumerOffset(15))
            locks.unlock_batch(GROUP, "thief", [queue()])
            await until(lambda: seen.count == 15)
            assert owner(it) == me
        assert seen.seen[queue()] == [*range(10), *range(15, 20)]
        assert committed(it) == {0: 20}


async def test_a_member_that_dies_is_followed_when_its_locks_lapse(tmp_path: Path) -> None:
    settings = {"rocketmq.broker.rebalance.lockMaxLiveTime": "300"}
    async with cluster(tmp_path, ONE, **settings) as it:
        await it.create_topic("Orders", queues=2)
        seen = InOrder()
        async with consumer(it, seen, is_orderly=True, rebalance_s=0.2, lock_renewal_s=0.1) as one:
            async with consumer(it, seen, is_orderly=True, lock_renewal_s=0.1) as two:
                await wait_shared(3, one, two)
                await die(two)
            for number in range(2):
                await put(it, queue(number), numbered(20))
            await until(lambda: seen.count == 40)
            assert len(one.queues) == 3
        assert seen.problems == []


async def test_a_broker_that_starts_anew_knows_no_locks(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        seen = InOrder()
        async with consumer(
            it,
            seen,
            is_orderly=True,
            lock_renewal_s=0.1,
            pull_pause_s=0.05,
            rebalance_s=0.3,
            offset_commit_s=0.05,
        ):
            await put(it, queue(), numbered(10))
            await until(lambda: committed(it).get(0) == 10)
            await it.kill()
            await it.start()
            await put(it, queue(), numbered(10, first=10))
            await until(lambda: 19 in seen.seen[queue()])
        assert seen.problems == []
