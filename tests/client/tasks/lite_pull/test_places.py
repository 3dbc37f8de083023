"""Lite pull: assigned queues, seeks, pauses, and calls that make no sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.consuming.config import ConsumeFrom
from rmq.client.trio.opening import open_lite_pull_consumer
from rmq.errors import (
    BrokersFailedError,
    ConfigError,
    IllegalMessageError,
    NoRouteError,
    NotAssignedError,
)
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import TOPIC, bodies, numbered, poll_all, put, queue, until

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.client.tasks.lite_reader import Change

FIRST = ConsumeFrom.FIRST


async def test_assigned_queues_are_read_and_no_others(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=3)
        for number in range(3):
            await put(it, queue(number), [f"q{number}-{tag}" for tag in "ab"], tag=f"t{number}")
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            assert await consumer.queues(TOPIC) == (queue(0), queue(1), queue(2))
            await consumer.assign([queue(0), queue(2)])
            assert consumer.assignment == (queue(0), queue(2))
            assert sorted(bodies(await poll_all(consumer, 4))) == ["q0-a", "q0-b", "q2-a", "q2-b"]
            await consumer.assign([queue(1), queue(2)], {TOPIC: "t1"})
            assert bodies(await poll_all(consumer, 2)) == ["q1-a", "q1-b"]
            assert await consumer.position(queue(2)) == 2, "it goes on where it was"
            await consumer.commit()
            assert await consumer.committed(queue(0)) == 2, "committed when it was given up"
            await consumer.assign([])
            assert not consumer.assignment


async def test_subscribing_and_assigning_do_not_go_together(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.assign([queue()])
            with pytest.raises(ConfigError, match="was assigned queues"):
                await consumer.subscribe(TOPIC)
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.subscribe(TOPIC)
            with pytest.raises(ConfigError, match="subscribes"):
                await consumer.assign([queue()])
            await consumer.unsubscribe(TOPIC)
            assert consumer.assignment == ()


async def test_a_seek_goes_back_and_forth(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(5))
        await trio.sleep(0.02)
        await put(it, queue(), numbered(5, first=5))
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.assign([queue()])
            messages = await poll_all(consumer, 10)
            # Of the two beside a time, brokers choose the nearer one.
            between_ms = messages[5].stored_at_ms - 1
            await consumer.seek(queue(), 3)
            assert await consumer.position(queue()) == 3
            await consumer.commit()
            assert await consumer.committed(queue()) == 3
            assert bodies(await poll_all(consumer, 7)) == numbered(7, first=3)
            await consumer.seek_to_begin(queue())
            assert bodies(await poll_all(consumer, 10)) == numbered(10)
            await consumer.seek_to_time(queue(), between_ms)
            assert bodies(await poll_all(consumer, 5)) == numbered(5, first=5)
            await consumer.seek(queue(), 0)
            await consumer.seek_to_end(queue())
            await put(it, queue(), ["new"])
            assert bodies(await poll_all(consumer, 1)) == ["new"]
            for wrong in (-1, 12):
                with pytest.raises(ConfigError, match=rf"{wrong} is not 0 to 11"):
                    await consumer.seek(queue(), wrong)


async def test_a_seek_ends_a_pull_that_waits_at_the_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(3))
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.assign([queue()])
            await consumer.seek_to_end(queue())
            pulls = it.brokers["broker-a"].pulls
            await until(lambda: len(pulls.holds))
            with trio.fail_after(5):
                await consumer.seek(queue(), 1)
                assert bodies(await poll_all(consumer, 2)) == ["m1", "m2"]


async def test_a_paused_queue_hands_out_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=2)
        await put(it, queue(0), numbered(3))
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.assign([queue(0), queue(1)])
            consumer.pause([queue(0)])
            await put(it, queue(1), ["other"])
            assert bodies(await poll_all(consumer, 1)) == ["other"]
            assert await consumer.poll(0.05) == []
            consumer.resume([queue(0)])
            assert bodies(await poll_all(consumer, 3)) == numbered(3)


async def test_a_poll_that_waits_sees_what_a_resumed_queue_has(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, trio.open_nursery() as nursery:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(3))
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.assign([queue()])
            await until(lambda: consumer.statistics().buffered_messages == 3)
            consumer.pause([queue()])

            async def resume() -> None:
                await trio.sleep(0.02)
                consumer.resume([queue()])

            nursery.start_soon(resume)
            assert bodies(await consumer.poll(10)) == numbered(3)


async def test_topics_can_be_watched(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        changes: list[Change] = []

        def listen(change: Change) -> None:
            changes.append(change)
            raise ZeroDivisionError("a listener that fails harms nobody")

        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            assert await consumer.watch_topic(TOPIC, listen) == (queue(0),)
            await it.create_topic(TOPIC, queues=2)

            async def has_changed() -> bool:
                await consumer.queues(TOPIC)
                return bool(changes)

            with trio.fail_after(20):
                while not await has_changed():
                    pass
            (change,) = changes
            assert change == (TOPIC, (queue(0), queue(1)), (queue(1),), ())


async def test_calls_that_make_no_sense_say_so(tmp_path: Path) -> None:
    with pytest.raises(IllegalMessageError, match="group"):
        async with open_lite_pull_consumer("127.0.0.1:1", "no group"):
            pass
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            with pytest.raises(ConfigError, match="timeout_s: -1 is below 0"):
                await consumer.poll(-1)
            with pytest.raises(ConfigError, match="max_messages: 0 is below 1"):
                await consumer.poll(1, 0)
            with pytest.raises(ConfigError, match="has no MessageQueue"):
                await consumer.assign([queue(7)])
            with pytest.raises(ConfigError, match="says nothing"):
                await consumer.subscribe(TOPIC, "||")
            with pytest.raises(NoRouteError, match="topic None: no broker has it"):
                await consumer.assign([queue(topic="None")])
            assert consumer.assignment == ()
            for call in (consumer.seek_to_begin, consumer.seek_to_end, consumer.position):
                with pytest.raises(NotAssignedError):
                    await call(queue())
            with pytest.raises(NotAssignedError):
                await consumer.seek(queue(), 0)
            with pytest.raises(NotAssignedError):
                await consumer.seek_to_time(queue(), 0)
            with pytest.raises(NotAssignedError):
                consumer.pause([queue()])
            with pytest.raises(NotAssignedError):
                consumer.resume([queue()])
            with pytest.raises(NotAssignedError):
                await consumer.commit({queue(): 1})


async def test_a_commit_that_fails_says_where(tmp_path: Path) -> None:
    async with cluster(tmp_path, ("broker-a", "broker-b")) as it:
        for name in it.brokers:
            await it.create_topic(TOPIC, queues=1, broker=name)
        both = [queue(), queue(broker="broker-b")]
        for to in both:
            await put(it, to, ["one"])
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.assign(both)
            await poll_all(consumer, 2)
            await it.kill("broker-b")
            with pytest.raises(BrokersFailedError, match="commit of group g") as caught:
                await consumer.commit()
            assert [name for name, _ in caught.value.failures] == ["broker-b"]
            assert caught.value.done == ("broker-a",)
            assert await consumer.committed(queue()) == 1
