"""Consumers between master and slave, by the rules of RocketMQ 4.9.8, with real pulls.

Who is to serve the next pull, and what a slave answers that may be behind its master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from rmq.broker.config import BrokerRole
from rmq.ha.identity import with_epoch
from rmq.model.offsets import ConsumerOffset, QueueOffset
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from tests.broker.broker_frames import (
    GROUP,
    START_MS,
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
from tests.broker.replication.sync_kit import SLAVE, pair

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame

KIB: Final = 1024
MASTER: Final = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
ROLES: Final = {
    "async master": MASTER,
    "sync master": {"brokerRole": "SYNC_MASTER"},
    "slave": SLAVE,
}

FOUND: Final = ResponseCode.SUCCESS
NOTHING: Final = ResponseCode.PULL_NOT_FOUND
AGAIN: Final = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED: Final = ResponseCode.PULL_OFFSET_MOVED


def begin_epoch(broker: PartBroker, epoch: int) -> None:
    """Let an epoch begin where the log ends, as a promotion does."""
    replication = broker.broker.replication
    replication.saved.identity = with_epoch(replication.identity, epoch, broker.core.log.written)


def outcome(answer: Frame) -> tuple[int, str | None, int, int]:
    """Return code, status, where to go on, and where to ask."""
    fields = ext(answer)
    return (
        answer.code,
        answer.remark,
        int(fields["nextBeginOffset"]),
        int(fields["suggestWhichBrokerId"]),
    )


# --- who serves the next pull --------------------------------------------------------------------

FAR, NEAR, END = 0, 99, 100
"""The first of a hundred messages is likely on disk, the last in memory, and then there is none."""


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("slave_read", "offset", "group", "suggested"),
    [
        pytest.param("false", FAR, {}, 0, id="off, far behind"),
        pytest.param("false", NEAR, {}, 0, id="off, near"),
        pytest.param("false", FAR, {"which_broker_when_consume_slowly": 3}, 0, id="off, group 3"),
        pytest.param("false", NEAR, {"broker_id": 2}, 0, id="off, group at 2"),
        pytest.param("true", FAR, {}, 1, id="on, far behind"),
        pytest.param("true", NEAR, {}, 0, id="on, near"),
        pytest.param("true", END, {}, 0, id="on, nothing new"),
        pytest.param("true", FAR, {"which_broker_when_consume_slowly": 3}, 3, id="on, group 3"),
        pytest.param("true", NEAR, {"which_broker_when_consume_slowly": 3}, 0, id="on, near, 3"),
        pytest.param("true", NEAR, {"broker_id": 2}, 2, id="on, group at 2"),
        pytest.param("true", END, {"broker_id": 2}, 2, id="on, nothing new, group at 2"),
        pytest.param("true", FAR, {"broker_id": 2}, 1, id="on, far behind, group at 2"),
    ],
)
async def test_which_broker_is_suggested(
    role: str,
    slave_read: str,
    offset: int,
    group: dict[str, int],
    suggested: int,
    tmp_path: Path,
) -> None:
    # The messages are written by a master; what the role of their reader is comes then.
    settings = {"slaveReadEnable": slave_read}
    async with part_broker(tmp_path, settings, memory_bytes=100 * KIB) as broker:
        for _ in range(100):
            broker.put(bytes(KIB))
        wanted = ROLES[role]
        broker.live.assume_role(
            BrokerRole(wanted["brokerRole"]), int(wanted.get("brokerId", "0")), now_ms=START_MS
        )
        broker.change_group(GROUP, **group)
        answer = await broker.ask(pull(0, offset))
        assert answer.code == (NOTHING if offset == END else FOUND)
        assert outcome(answer)[3] == suggested


# --- what a slave answers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "queue_id", "offset", "expected"),
    [
        # By default a slave leaves offsets alone: what it does not have its master may.
        pytest.param("false", 0, 0, (FOUND, "FOUND", 3, 0), id="found"),
        pytest.param("false", 0, 3, (NOTHING, "OFFSET_OVERFLOW_ONE", 3, 0), id="end"),
        pytest.param("false", 0, 7, (AGAIN, "OFFSET_OVERFLOW_BADLY", 7, 2), id="beyond"),
        pytest.param("false", 1, 0, (NOTHING, "NO_MESSAGE_IN_QUEUE", 0, 0), id="empty"),
        pytest.param("false", 1, 7, (AGAIN, "NO_MESSAGE_IN_QUEUE", 7, 2), id="beyond empty"),
        # With offsetCheckInSlave it corrects them as a master does.
        pytest.param("true", 0, 0, (FOUND, "FOUND", 3, 0), id="checked, found"),
        pytest.param("true", 0, 7, (MOVED, "OFFSET_OVERFLOW_BADLY", 3, 0), id="checked, beyond"),
        pytest.param("true", 1, 7, (MOVED, "NO_MESSAGE_IN_QUEUE", 0, 0), id="checked, empty"),
    ],
)
async def test_a_slave_reads_its_copy(
    check: str,
    queue_id: int,
    offset: int,
    expected: tuple[int, str, int, int],
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, {"offsetCheckInSlave": check}) as linked:
        linked.master.put_many(3)
        linked.master.change_group(broker_id=2)
        await linked.replicate()
        await linked.copy()
        end = linked.slave.core.log.written
        answer = await linked.slave.ask(pull(queue_id, offset, commit=1))
        assert outcome(answer) == expected
        # Nothing of its own gets into its log, and offsets that come with pulls are the master's.
        assert linked.slave.core.log.written == end
        assert linked.slave.offsets.query(GROUP, TOPIC, queue_id) == -1


async def test_an_offset_below_what_a_slave_has_is_left_to_the_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        for _ in range(600):
            linked.master.put(bytes(KIB))
        await linked.replicate()
        await linked.copy()
        linked.slave.expire_log()
        first = linked.slave.pulls._store.queues.get(TOPIC, 0)
        assert first is not None
        assert first.min_offset > 0
        answer = await linked.slave.ask(pull(0, 0))
        assert outcome(answer) == (AGAIN, "OFFSET_TOO_SMALL", 0, 0)
        answer = await linked.master.ask(pull(0, 0))
        assert answer.code == FOUND


async def test_a_master_and_its_slave_give_the_same_bytes(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        for number in range(50):
            linked.master.put(b"%d" % number, tags="ab"[number % 2])
        await linked.replicate()
        await linked.copy()
        for offset, expression in ((0, "*"), (7, "a"), (49, "b"), (50, "*")):
            answers = [
                await broker.ask(pull(0, offset, expression=expression))
                for broker in (linked.master, linked.slave)
            ]
            assert answers[0] == answers[1]


async def test_a_topic_that_is_not_copied_yet_is_not_known(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        linked.master.put_many(3)
        await linked.replicate()
        answer = await linked.slave.ask(pull())
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        await linked.copy()
        assert len(bodies_of(await linked.slave.ask(pull()))) == 3


async def test_pulls_that_wait_at_a_slave_are_woken_by_what_is_replicated(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    # In 4.9.8 they wait for the next look at all of them, which is every 5 s.
    async with pair(tmp_path) as linked:
        await linked.copy()
        peer = linked.slave.attach()
        await linked.slave.hold(peer, pull(0, 0, wait_ms=15_000))
        linked.master.put(b"new")
        await linked.replicate()
        await wait_all_tasks_blocked()
        assert bodies_of(await peer.read()) == [b"new"]


async def test_a_pull_that_waits_over_a_promotion_gets_the_first_new_message(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as linked:
        linked.master.put_many(2)
        await linked.replicate()
        await linked.copy()
        slave = linked.slave
        peer = slave.attach()
        await slave.hold(peer, pull(0, 2, wait_ms=15_000))
        await slave.store.trim_tail()
        slave.live.assume_role(BrokerRole.ASYNC_MASTER, 0, now_ms=START_MS)
        sent = await slave.ask(send(b"first"))
        assert (sent.code, ext(sent)["queueOffset"]) == (ResponseCode.SUCCESS, "2")
        assert bodies_of(await peer.read()) == [b"first"]


async def test_a_promoted_slave_corrects_offsets_and_takes_them_from_pulls(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        linked.master.put_many(3)
        await linked.replicate()
        await linked.copy()
        slave = linked.slave
        assert outcome(await slave.ask(pull(0, 9)))[:3] == (AGAIN, "OFFSET_OVERFLOW_BADLY", 9)
        await slave.store.trim_tail()
        slave.live.assume_role(BrokerRole.ASYNC_MASTER, 0, now_ms=START_MS)
        answer = await slave.ask(pull(0, 9, commit=2))
        assert outcome(answer)[:3] == (MOVED, "OFFSET_OVERFLOW_BADLY", 3)
        assert slave.offsets.query(GROUP, TOPIC, 0) == 2
        slave.live.assume_role(BrokerRole.SLAVE, 1, now_ms=START_MS)
        assert outcome(await slave.ask(pull(0, 9)))[:3] == (AGAIN, "OFFSET_OVERFLOW_BADLY", 9)


async def test_a_slave_takes_offsets_of_consumers_that_find_no_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        await linked.copy()
        header = UpdateConsumerOffsetRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=3
        )
        answer = await linked.slave.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        assert answer.code == ResponseCode.SUCCESS
        asked = QueryConsumerOffsetRequest(consumer_group=GROUP, topic=TOPIC, queue_id=0)
        answer = await linked.slave.call(RequestCode.QUERY_CONSUMER_OFFSET, asked)
        assert ext(answer)["offset"] == "3"


# --- another log ---------------------------------------------------------------------------------


async def test_in_a_later_epoch_a_consumer_behind_the_end_goes_to_its_beginning(
    tmp_path: Path,
) -> None:
    async with part_broker(tmp_path, MASTER) as broker:
        broker.put_many(5)
        assert outcome(await broker.ask(pull(0, 9)))[:3] == (MOVED, "OFFSET_OVERFLOW_BADLY", 5)
        begin_epoch(broker, 2)
        broker.put_many(3)
        answer = await broker.ask(pull(0, 20))
        assert outcome(answer)[:3] == (MOVED, "OFFSET_OVERFLOW_BADLY", 5)
        (_, event) = broker.records("OFFSET_MOVED_EVENT")
        assert b'"offsetNew":5,"offsetRequest":20' in event.body
        # Where it can be, it is believed.
        assert outcome(await broker.ask(pull(0, 8)))[:2] == (NOTHING, "OFFSET_OVERFLOW_ONE")
        assert len(bodies_of(await broker.ask(pull(0, 6)))) == 2
        begin_epoch(broker, 3)
        broker.put_many(1)
        assert outcome(await broker.ask(pull(0, 20)))[2] == 5, "it may have missed epoch 2"
        broker.offsets.commit("consumer", GROUP, TOPIC, 0, ConsumerOffset(6))
        assert outcome(await broker.ask(pull(0, 20)))[2] == 6
        assert outcome(await broker.ask(pull(0, 20, commit=4)))[2] == 4, "the rest it drops"
        assert outcome(await broker.ask(pull(1, 20)))[2] == 0


async def test_an_epoch_that_began_before_the_queue_does_leads_to_its_begin(tmp_path: Path) -> None:
    async with part_broker(tmp_path, MASTER) as broker:
        begin_epoch(broker, 2)
        broker.put_many(40)
        queue = broker.core.queues.get(TOPIC, 0)
        assert queue is not None
        queue.min_offset = QueueOffset(10)
        assert outcome(await broker.ask(pull(0, 99)))[:3] == (MOVED, "OFFSET_OVERFLOW_BADLY", 10)


async def test_what_is_only_hidden_is_not_of_another_log(tmp_path: Path) -> None:
    """A slave may have shown it."""
    async with part_broker(tmp_path, MASTER) as broker:
        broker.put_many(2)
        begin_epoch(broker, 2)
        broker.put_many(1)
        visible = broker.core.log.written
        broker.core.dispatcher.bound = lambda: visible
        broker.put_many(5)
        assert broker.core.queues.end_of(TOPIC, 0) == 3
        answer = await broker.ask(pull(0, 8, commit=8))
        assert outcome(answer)[:3] == (MOVED, "OFFSET_OVERFLOW_BADLY", 3)
        assert broker.offsets.query(GROUP, TOPIC, 0) == 8
        assert outcome(await broker.ask(pull(0, 9)))[:3] == (MOVED, "OFFSET_OVERFLOW_BADLY", 3)


@pytest.mark.parametrize("by_pull", [False, True], ids=["commit", "pull"])
@pytest.mark.parametrize("is_known", [False, True], ids=["stranger", "consumer"])
async def test_in_a_later_epoch_offsets_behind_the_end_are_not_stored(
    by_pull: bool, is_known: bool, tmp_path: Path
) -> None:
    """A broker whose store was opened again has heard of no consumer yet."""
    async with part_broker(tmp_path, MASTER) as broker:
        reader = consumer(subscription(TOPIC))
        peer = await broker.join("reader", reader) if is_known else broker.attach()

        async def commit(offset: int) -> int:
            if by_pull:
                await broker.ask(pull(0, 0, commit=offset))
            else:
                header = UpdateConsumerOffsetRequest(
                    consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset
                )
                answer = await peer.request(frame(RequestCode.UPDATE_CONSUMER_OFFSET, header))
                assert answer.code == ResponseCode.SUCCESS
            return broker.offsets.query(GROUP, TOPIC, 0)

        broker.put_many(5)
        assert await commit(9) == 9, "as in 4.9.8"
        broker.offsets.commit("consumer", GROUP, TOPIC, 0, ConsumerOffset(3))
        begin_epoch(broker, 2)
        assert await commit(9) == 3
        assert await commit(5) == 5
        # Nor by a slave, which may be the broker at which the consumer has read them.
        broker.live.assume_role(BrokerRole.SLAVE, 1, now_ms=START_MS)
        assert await commit(9) == 5
