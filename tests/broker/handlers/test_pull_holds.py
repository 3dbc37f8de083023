"""PULL_MESSAGE: pulls that wait for messages (long polling), through the wire.

Both clocks stand still until a test moves them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.broker.handlers.pull import ANSWERS_PER_STEP
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.headers import DeleteTopicRequest, EmptyHeader
from tests.broker.broker_frames import (
    TOPIC,
    bodies_of,
    consumer,
    ext,
    frame,
    pull,
    send,
    subscription,
)
from tests.broker.broker_kit import part_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Peer

WAIT_MS: Final = 15_000


async def no_answer(peer: Peer) -> None:
    """Make sure that nothing has been answered yet."""
    assert await peer.ping() == []


def at_rest(broker: PartBroker) -> bool:
    """Tell whether nothing is left of any hold."""
    return (
        len(broker.pulls.holds) == broker.pulls.holds.queues == broker.unanswered == 0
        and broker.watched() == set()
    )


# --- woken by messages ---------------------------------------------------------------------------


async def test_a_pull_that_finds_nothing_waits_for_the_next_message(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS, opaque=77))
        assert broker.unanswered == 1
        assert broker.watched() == {(TOPIC, 0)}
        await no_answer(peer)
        sent = await broker.ask(send(b"news"))
        assert sent.code == ResponseCode.SUCCESS
        answer = await peer.read()
        assert (answer.opaque, answer.code, answer.remark) == (77, ResponseCode.SUCCESS, "FOUND")
        assert ext(answer)["nextBeginOffset"] == "1"
        assert bodies_of(answer) == [b"news"]
        assert at_rest(broker)


async def test_a_binary_pull_that_waited_is_answered_in_binary(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS, serialization=Serialization.ROCKETMQ))
        broker.put(b"news")
        answer = await peer.read()
        assert answer.serialization == Serialization.ROCKETMQ
        assert bodies_of(answer) == [b"news"]


async def test_a_pull_that_may_not_wait_is_answered_at_once(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.ask(pull())
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert at_rest(broker)


@pytest.mark.parametrize("offset", [1, 99], ids=["found", "moved"])
async def test_a_pull_with_an_answer_does_not_wait(offset: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        await broker.ask(pull(0, offset, wait_ms=WAIT_MS))
        assert at_rest(broker)


async def test_messages_of_other_queues_and_topics_wake_nobody(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.create_topic("other")
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        broker.put(b"x", queue_id=1)
        broker.put(b"x", topic="other")
        await no_answer(peer)


async def test_a_batch_wakes_a_consumer_once_with_all_of_it(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        broker.put_many(10)
        answer = await peer.read()
        assert len(bodies_of(answer)) == 10
        await no_answer(peer)


async def test_sends_that_come_together_wake_a_consumer_once(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        producer = broker.attach("10.0.0.8:50000")
        await producer.send(*(send(b"%d" % n, opaque=n) for n in range(20)))
        await producer.read_many(20)
        assert bodies_of(await peer.read()) == [b"%d" % n for n in range(20)]
        await no_answer(peer)


async def test_all_who_wait_for_a_queue_get_the_message(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peers = [broker.attach(f"10.0.0.9:{port}") for port in range(5)]
        for number, peer in enumerate(peers):
            await broker.hold(peer, pull(wait_ms=WAIT_MS, group=f"group{number}"))
        broker.put(b"news")
        for peer in peers:
            assert bodies_of(await peer.read()) == [b"news"]
        assert at_rest(broker)


async def test_a_crowd_that_one_message_wakes_is_answered_in_turns(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        crowd = 2 * ANSWERS_PER_STEP + 10
        peer = broker.attach()
        await peer.send(*(pull(wait_ms=WAIT_MS, opaque=n) for n in range(crowd)))
        await wait_all_tasks_blocked()
        assert broker.unanswered == crowd
        broker.put(b"news")
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert 0 < broker.unanswered < crowd, "others did not get their turn"
        answers = await peer.read_many(crowd)
        assert {answer.opaque for answer in answers} == set(range(crowd))
        assert all(bodies_of(answer) == [b"news"] for answer in answers)
        assert at_rest(broker)


async def test_a_small_queue_for_pulls_does_not_bound_those_who_wait(tmp_path: Path) -> None:
    async with part_broker(tmp_path, {"pullThreadPoolQueueCapacity": "10"}) as broker:
        peer = broker.attach()
        for opaque in range(50):
            await broker.hold(peer, pull(wait_ms=WAIT_MS, opaque=opaque))
        assert broker.unanswered == 50


async def test_what_the_transient_pool_holds_wakes_when_it_can_be_read(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with part_broker(tmp_path, {"transientStorePoolEnable": "true"}) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        assert (await broker.ask(send(b"news"))).code == ResponseCode.SUCCESS
        await no_answer(peer)
        await broker.pass_time(0.3, step=0.1)
        assert bodies_of(await peer.read()) == [b"news"]


async def test_one_connection_may_wait_for_many_queues(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        for queue_id in range(4):
            await broker.hold(peer, pull(queue_id, wait_ms=WAIT_MS, opaque=queue_id))
        broker.put(b"news", queue_id=2)
        assert (await peer.read()).opaque == 2
        assert broker.watched() == {(TOPIC, 0), (TOPIC, 1), (TOPIC, 3)}
        assert broker.unanswered == 3


# --- tags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_heartbeat", [False, True], ids=["in the request", "by heartbeat"])
async def test_a_message_with_another_tag_wakes_nobody(by_heartbeat: bool, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        expression = None if by_heartbeat else "TagA || TagB"
        peer = await broker.join("a", consumer(subscription("TagA || TagB")))
        await broker.hold(peer, pull(wait_ms=WAIT_MS, expression=expression, opaque=9))
        broker.put(b"other", tags="TagC")
        broker.put(b"none")
        await no_answer(peer)
        broker.put(b"mine", tags="TagB")
        answer = await peer.read()
        assert bodies_of(answer) == [b"mine"]
        assert ext(answer)["nextBeginOffset"] == "3"


async def test_messages_that_do_not_match_are_stepped_over_by_the_next_sweep(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS, expression="TagA"))
        broker.put(b"other", tags="TagC")
        await no_answer(peer)
        await broker.pass_time(5)
        answer = await peer.read()
        assert (answer.code, answer.remark) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "NO_MATCHED_MESSAGE",
        )
        assert ext(answer)["nextBeginOffset"] == "1"
        assert at_rest(broker)


async def test_what_is_subscribed_to_may_change_while_a_pull_waits(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await broker.join("a", consumer(subscription("TagA", version=1)))
        await broker.hold(peer, pull(wait_ms=WAIT_MS, expression=None, version=1, opaque=9))
        await broker.join("b", consumer(subscription("TagB", version=2)))
        broker.put(b"message", tags="TagA")
        answer = await peer.read()
        while answer.opaque != 9 or answer.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            answer = await peer.read()
        # Woken by what it wanted, it is answered by what its group wants now.
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY


# --- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait_ms", "answered_at"),
    [(15_000, 15), (15_001, 20), (20_000, 20), (1, 5), (0, 5), (-5, 5), (4_999, 5), (5_001, 10)],
)
async def test_a_pull_without_news_is_answered_at_the_first_round_after_its_time(
    wait_ms: int, answered_at: int, tmp_path: Path, mock_clock: MockClock
) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=wait_ms))
        await broker.pass_time(answered_at - 1)
        assert len(broker.pulls.holds) == 1
        await broker.pass_time(1)
        answer = await peer.read()
        assert (answer.code, answer.remark) == (
            ResponseCode.PULL_NOT_FOUND,
            "NO_MESSAGE_IN_QUEUE",
        )
        assert at_rest(broker)


async def test_a_pull_that_waited_is_not_held_again(tmp_path: Path, mock_clock: MockClock) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(2)
        peer = broker.attach()
        await broker.hold(peer, pull(0, 2, wait_ms=5_000))
        await broker.pass_time(5)
        answer = await peer.read()
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")


async def test_without_long_polling_a_pull_waits_for_a_short_time(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    settings = {"longPollingEnable": "false", "shortPollingTimeMills": "2000"}
    async with part_broker(tmp_path, settings) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        await broker.pass_time(1)
        assert len(broker.pulls.holds) == 1
        await broker.pass_time(1)
        assert (await peer.read()).code == ResponseCode.PULL_NOT_FOUND


async def test_without_long_polling_messages_still_wake(tmp_path: Path) -> None:
    async with part_broker(tmp_path, {"longPollingEnable": "false"}) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        broker.put(b"news")
        assert bodies_of(await peer.read()) == [b"news"]


async def test_polling_may_be_made_short_while_the_broker_runs(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with part_broker(tmp_path) as broker:
        broker.update(longPollingEnable="false")
        await broker.pass_time(5)
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        await broker.pass_time(1)
        assert (await peer.read()).code == ResponseCode.PULL_NOT_FOUND


async def test_a_wall_clock_that_goes_back_lets_nobody_wait_longer(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=5_000))
        broker.clock.ms -= 24 * 3_600_000
        await broker.pass_time(5)
        assert (await peer.read()).code == ResponseCode.PULL_NOT_FOUND


# --- topics, groups and connections that go ------------------------------------------------------


async def test_who_waits_for_a_topic_that_is_deleted_is_told(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        peer = broker.attach()
        for queue_id in range(2):
            offset = 3 if queue_id == 0 else 0
            await broker.hold(peer, pull(queue_id, offset, wait_ms=WAIT_MS, opaque=queue_id))
        deleted = await broker.ask(
            frame(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=TOPIC))
        )
        assert deleted.code == ResponseCode.SUCCESS
        answers = await peer.read_many(2)
        assert {answer.code for answer in answers} == {ResponseCode.TOPIC_NOT_EXIST}
        assert at_rest(broker)


async def test_a_hold_outlives_queues_that_are_cleaned_away(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"old")
        for _ in range(300):
            broker.put(bytes(1024), queue_id=1)
        broker.expire_log()
        peer = broker.attach()
        await broker.hold(peer, pull(0, 1, wait_ms=WAIT_MS))
        cleaned = await broker.ask(frame(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, EmptyHeader()))
        assert cleaned.code == ResponseCode.SUCCESS
        assert broker.core.queues.get(TOPIC, 0) is None
        answer = await peer.read()
        # The queue begins anew, so its consumer has to.
        assert (answer.code, ext(answer)["nextBeginOffset"]) == (
            ResponseCode.PULL_OFFSET_MOVED,
            "0",
        )
        assert at_rest(broker)


@pytest.mark.parametrize("what", ["group", "topic", "broker"])
async def test_who_loses_the_right_to_read_while_waiting_is_told_when_woken(
    what: str, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        if what == "group":
            broker.change_group(consume_enable=False)
        elif what == "topic":
            broker.change_topic(perm=2)
        else:
            broker.update(brokerPermission="2")
        broker.put(b"news")
        assert (await peer.read()).code == ResponseCode.NO_PERMISSION
        assert at_rest(broker)


async def test_nothing_is_left_of_a_consumer_that_vanishes_while_it_waits(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer, other = broker.attach(), broker.attach("10.0.0.8:1")
        for queue_id in range(4):
            await broker.hold(peer, pull(queue_id, wait_ms=WAIT_MS, opaque=queue_id))
        await broker.hold(other, pull(3, wait_ms=WAIT_MS, group="others"))
        await peer.aclose()
        await wait_all_tasks_blocked()
        assert broker.unanswered == len(broker.pulls.holds) == 1
        assert broker.watched() == {(TOPIC, 3)}
        broker.put(b"news", queue_id=3)
        assert bodies_of(await other.read()) == [b"news"]
        assert at_rest(broker)


async def test_a_consumer_may_vanish_between_its_message_and_the_answer(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=WAIT_MS))
        broker.put(b"news")
        peer.channel.close("gone")
        await wait_all_tasks_blocked()
        assert at_rest(broker)


# --- topics that are special ---------------------------------------------------------------------


async def test_delayed_messages_stay_watched_when_the_last_reader_goes(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.broker.delay.start()
        watched = broker.watched()
        peer = broker.attach()
        await broker.hold(peer, pull(topic="SCHEDULE_TOPIC_XXXX", wait_ms=WAIT_MS))
        await peer.aclose()
        await wait_all_tasks_blocked()
        assert len(broker.pulls.holds) == 0
        assert broker.watched() == watched
        assert ("SCHEDULE_TOPIC_XXXX", 0) in watched


async def test_a_retry_topic_that_cannot_be_stored_may_be_waited_for(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    # Stock clients take groups of up to 255 characters, and wait for the retry topic of each.
    group = "g" * 255
    async with part_broker(tmp_path) as broker:
        peer = await broker.join("a", consumer(subscription(), group=group))
        topic = f"%RETRY%{group}"
        await broker.hold(peer, pull(topic=topic, group=group, wait_ms=5_000, opaque=9))
        assert broker.core.queues.get(topic, 0) is None
        await broker.pass_time(5)
        assert (await peer.read()).code == ResponseCode.PULL_NOT_FOUND
        assert at_rest(broker)


async def test_waiting_makes_no_directory(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(3, wait_ms=WAIT_MS))
        assert broker.storage.names(broker.live.current.store.queues_path) == []


# --- the end -------------------------------------------------------------------------------------


async def test_a_broker_that_stops_answers_all_who_wait_and_holds_nobody(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peers = [broker.attach(f"10.0.0.9:{port}") for port in range(10)]
        for number, peer in enumerate(peers):
            await broker.hold(peer, pull(number % 4, wait_ms=WAIT_MS, group=f"g{number}"))
        broker.pulls.stop_holding()
        for peer in peers:
            assert (await peer.read()).code == ResponseCode.PULL_NOT_FOUND
        assert at_rest(broker)
        late = await peers[0].request(pull(wait_ms=WAIT_MS))
        assert late.code == ResponseCode.PULL_NOT_FOUND
        assert at_rest(broker)
