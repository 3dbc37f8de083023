"""Messages that listeners could not deal with: sent back, sent again, given up. And listeners that
raise, hang or return nonsense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.consuming.results import ConsumeResult, Later
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import numbered, put, queue, until
from tests.client.push_kit import GROUP, ONE, QUICK_DELAYS, Collector, committed, consumer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage


@pytest.mark.parametrize(
    "returned",
    [
        ConsumeResult.LATER,
        Later(1),
        ValueError("not now"),
        17,
        ConsumeResult,
        ExceptionGroup("several", [OSError("one"), ValueError("two")]),
    ],
    ids=["later", "level", "raises", "nonsense", "class", "group"],
)
async def test_a_message_that_failed_comes_again(tmp_path: Path, returned: object) -> None:
    async with cluster(tmp_path, ONE, **QUICK_DELAYS) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), ["again"], tag="x", properties={"own": "v"})
        seen = Collector(returned)
        async with consumer(it, seen, {"Orders": "x"}):
            await until(lambda: len(seen.messages) == 2)
            await put(it, queue(), ["next"], tag="x")
            await seen.wait("next")
        first, second, _ = seen.messages
        assert (first.reconsume_times, second.reconsume_times) == (0, 1)
        assert first.topic == second.topic == "Orders"
        assert second.queue.topic == f"%RETRY%{GROUP}"
        assert (second.tag, second.properties["own"]) == ("x", "v")
        assert second.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id
        # The offset goes on: the broker has it.
        assert committed(it) == {0: 2}
        assert committed(it, f"%RETRY%{GROUP}") == {0: 1}


async def test_one_of_a_batch_that_fails_sends_all_of_it_back(tmp_path: Path) -> None:
    async with cluster(tmp_path, ONE, **QUICK_DELAYS) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(5))
        seen = Collector(ConsumeResult.LATER)
        async with consumer(it, seen, batch_messages_max=32):
            await until(lambda: len(seen.messages) == 10)
        assert sorted(seen.bodies) == sorted(numbered(5) * 2)


@pytest.mark.parametrize(
    ("returned", "rounds"), [(Later(-1), 1), (ConsumeResult.LATER, 3)], ids=["at once", "rounds"]
)
async def test_what_is_given_up_is_a_dead_letter(
    tmp_path: Path, returned: object, rounds: int
) -> None:
    async with cluster(tmp_path, ONE, **QUICK_DELAYS) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), ["hopeless"])
        seen, dead = Collector(*[returned] * 10), Collector()
        async with (
            consumer(it, seen, reconsume_times_max=2),
            consumer(it, dead, f"%DLQ%{GROUP}", group="undertaker"),
        ):
            await dead.wait("hopeless")
        assert seen.bodies == ["hopeless"] * rounds
        assert dead.messages[0].properties["RETRY_TOPIC"] == "Orders"


async def test_a_message_can_be_sent_back_by_hand(tmp_path: Path) -> None:
    async with cluster(tmp_path, ONE, **QUICK_DELAYS) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), ["twice"])
        seen = Collector()
        async with consumer(it, seen) as running:
            await seen.wait("twice")
            await running.send_back(seen.messages[0], 1)
            await until(lambda: len(seen.messages) == 2)


async def test_if_its_broker_is_gone_a_message_goes_to_the_retry_topic_of_another(
    tmp_path: Path,
) -> None:
    gone = trio.Event()

    class Stubborn(Collector):
        async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
            await super().__call__(messages)
            if len(self.messages) == 1:
                await gone.wait()
                return ConsumeResult.LATER
            return None

    async with cluster(tmp_path, ("broker-a", "broker-b"), **QUICK_DELAYS) as it:
        await it.create_topic("Orders", queues=1, broker="broker-a")
        await it.create_topic("Other", queues=1, broker="broker-b")
        await put(it, queue(broker="broker-a"), ["moved"])
        seen = Stubborn()
        async with consumer(it, seen, ["Orders", "Other"]):
            await seen.wait("moved")
            await it.kill("broker-a")
            gone.set()
            await until(lambda: len(seen.messages) == 2)
        second = seen.messages[1]
        assert (second.topic, second.reconsume_times) == ("Orders", 1)
        assert second.queue.broker_name == "broker-b"


async def test_if_no_broker_takes_it_a_message_is_consumed_again_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmq.client.tasks.services.AGAIN_S", 0.3)
    gone = trio.Event()

    class Stubborn(Collector):
        async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
            await super().__call__(messages)
            await gone.wait()
            return ConsumeResult.LATER if len(self.messages) < 3 else None

    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), ["kept"])
        seen = Stubborn()
        async with consumer(it, seen, pull_pause_s=0.1, offset_commit_s=0.05):
            await seen.wait("kept")
            await it.kill()
            gone.set()
            await until(lambda: len(seen.messages) == 3)
            assert [each.reconsume_times for each in seen.messages] == [2, 2, 2]
            # It is finished now, and the broker that comes back hears of it.
            await it.start()
            await until(lambda: committed(it) == {0: 1})


async def test_a_listener_that_hangs_is_cancelled_and_its_message_comes_again(
    tmp_path: Path,
) -> None:
    ended: list[str] = []

    class Hanging(Collector):
        async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
            await super().__call__(messages)
            if messages[0].body == b"m0" and messages[0].reconsume_times == 0:
                try:
                    await trio.sleep_forever()
                finally:
                    ended.append("cancelled")

    async with cluster(tmp_path, ONE, **QUICK_DELAYS) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(3))
        seen = Hanging()
        async with consumer(it, seen, listeners_max=1, consume_timeout_s=0.5):
            await until(lambda: len(seen.messages) == 4)
        # The only place was free again for the others.
        assert seen.bodies[:3] == ["m0", "m1", "m2"]
        assert (seen.bodies[3], seen.messages[3].reconsume_times) == ("m0", 1)
        assert ended == ["cancelled"]
        assert committed(it) == {0: 3}
