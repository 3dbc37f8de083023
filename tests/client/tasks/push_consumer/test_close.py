"""Ending in good order, under a bound, by an error or cancelled anywhere. Nothing is left."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.tasks.push_consumer import consuming
from rmq.client.trio.opening import open_client
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import numbered, put, queue, until
from tests.client.push_kit import (
    GROUP,
    Collector,
    committed,
    consumer,
    members,
    quick,
    quick_client,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage
    from tests.client.cluster_kit import Cluster


def connections(it: Cluster) -> int:
    return it.brokers["broker-a"].server.statistics().endpoint.connections


class Slow(Collector):
    """A listener that takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.begun = 0
        self.cancelled = 0
        self._seconds = seconds

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.begun += 1
        try:
            await trio.sleep(self._seconds)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        await super().__call__(messages)


@pytest.mark.parametrize("is_orderly", [False, True], ids=["concurrent", "orderly"])
async def test_calls_under_way_may_finish_and_are_stored(tmp_path: Path, is_orderly: bool) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(50))
        slow = Slow(0.3)
        async with consumer(it, slow, listeners_max=4, is_orderly=is_orderly):
            await until(lambda: slow.begun)
        assert (slow.begun, slow.cancelled) == (len(slow.messages), 0)
        # One of four places is kept for the retry queue.
        assert 1 <= len(slow.messages) <= (1 if is_orderly else 3)
        assert committed(it) == {0: len(slow.messages)}
        # The rest is for the next one.
        rest = Collector()
        async with consumer(it, rest, is_orderly=is_orderly):
            await until(lambda: len(rest.messages) + len(slow.messages) == 50)
        assert set(rest.bodies) | set(slow.bodies) == set(numbered(50))


async def test_calls_that_take_too_long_are_cancelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(2))
        slow = Slow(60)
        async with consumer(it, slow, close_wait_s=0.2):
            await until(lambda: slow.begun == 2)
            began = trio.current_time()
        assert 0.2 <= trio.current_time() - began < 2
        assert (slow.cancelled, slow.messages) == (2, [])
        assert committed(it).get(0, 0) == 0
        assert members(it) == ()
        assert "2 calls of the listener are cancelled" in caplog.text


async def test_an_error_of_the_block_comes_out_as_itself(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), ["one"])
        seen = Collector()

        async def application() -> None:
            async with consumer(it, seen):
                await seen.wait("one")
                raise LookupError("of the application")

        with pytest.raises(LookupError, match="of the application"):
            await application()
        assert committed(it) == {0: 1}
        assert members(it) == ()


async def test_a_cancelled_block_stores_and_leaves(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=2)
        await put(it, queue(0), ["done"])
        slow = Slow(0.0)
        with trio.CancelScope() as scope:
            async with consumer(it, slow):
                await slow.wait("done")
                slow._seconds = 60
                await put(it, queue(1), ["under way"])
                await until(lambda: slow.begun == 2)
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert slow.cancelled == 1
        assert committed(it).get(0) == 1
        assert committed(it).get(1, 0) == 0
        assert members(it) == ()


async def test_cancelled_anywhere_it_leaves_no_task_and_no_socket(tmp_path: Path) -> None:
    """From before the first request to after the last."""
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=3)
        quiet = connections(it)
        seen = Collector()
        for number in range(40):
            await put(it, queue(number % 3), [f"m{number}"])
            is_orderly = bool(number % 2)
            with trio.move_on_after(0.002 * number):
                async with consumer(it, seen, is_orderly=is_orderly, group=f"g{is_orderly}"):
                    await trio.sleep_forever()
            assert members(it, "gTrue") == members(it, "gFalse") == ()
            await until(lambda: connections(it) == quiet)
        assert len(it.brokers["broker-a"].locks) == 0
        for group in ("gTrue", "gFalse"):
            async with consumer(it, seen, group=group, is_orderly=group == "gTrue"):
                await until(lambda: len(set(seen.bodies)) == 40)
        assert set(seen.bodies) == set(numbered(40))
        gc.collect()


async def test_closing_while_it_is_taking_over_queues(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=8)
        for _ in range(5):
            async with consumer(it, Collector(), is_orderly=True):
                pass
            assert members(it) == ()
        assert len(it.brokers["broker-a"].locks) == 0


async def test_closing_when_the_broker_is_gone_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=4)
        seen = Collector()
        async with consumer(it, seen, is_orderly=True):
            await put(it, queue(), ["one"])
            await seen.wait("one")
            await it.kill()
            began = trio.current_time()
        assert trio.current_time() - began < 8


async def test_a_shared_client_outlives_its_consumers(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(quick_client(it)) as client:
        await it.create_topic("Orders", queues=1)
        for number in range(3):
            seen = Collector()
            async with consuming(client, quick(), "Orders", seen):
                await put(it, queue(), [f"m{number}"])
                await seen.wait(f"m{number}")
            assert seen.bodies == [f"m{number}"]
            assert members(it) == ()
        assert connections(it) >= 1


async def test_a_closed_consumer_does_nothing_any_longer(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(quick_client(it)) as client:
        await it.create_topic("Orders", queues=1)
        seen = Collector()
        async with consuming(client, quick(), "Orders", seen) as running:
            await until(lambda: running.queues)
        running.resume()
        running.members_changed()
        running.reset_offsets("Orders", {queue(): 0})
        await put(it, queue(), ["late"])
        await trio.sleep(0.2)
        assert (seen.messages, running.queues, running.calls) == ([], (), 0)
        assert GROUP in repr(running)
