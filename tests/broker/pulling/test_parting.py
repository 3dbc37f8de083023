"""Consumers that had read on at the former master, when other messages have taken those places.

A queue has five messages when this broker becomes master and ten afterwards; positions from six on
may be of the log of the former master.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from rmq.broker.config import BrokerRole
from rmq.broker.pulling.parting import YOUNG_S
from rmq.ha.identity import with_epoch
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import UpdateConsumerOffsetRequest
from tests.broker.broker_frames import (
    GROUP,
    START_MS,
    TOPIC,
    bodies_of,
    consumer,
    ext,
    frame,
    pull,
    subscription,
)
from tests.broker.broker_kit import part_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame, Peer

MASTER: Final = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
BEGIN: Final = 5
END: Final = 10


@asynccontextmanager
async def new_master(root: Path) -> AsyncIterator[PartBroker]:
    """Run a broker that began epoch 2 behind its first five messages."""
    async with part_broker(root, MASTER) as broker:
        broker.put_many(BEGIN)
        replication = broker.broker.replication
        replication.saved.identity = with_epoch(replication.identity, 2, broker.core.log.written)
        broker.broker.master_tasks.take_over()
        broker.put_many(END - BEGIN)
        yield broker


@asynccontextmanager
async def new_slave(root: Path) -> AsyncIterator[PartBroker]:
    """Run a slave of a master that began epoch 2 behind its first five messages."""
    async with part_broker(root, MASTER) as broker:
        broker.put_many(BEGIN)
        begin = broker.core.log.written
        broker.put_many(END - BEGIN)
        replication = broker.broker.replication
        replication.saved.identity = with_epoch(replication.identity, 2, begin)
        broker.live.assume_role(BrokerRole.SLAVE, 1, now_ms=START_MS)
        yield broker


def stored(broker: PartBroker) -> int:
    return broker.offsets.query(GROUP, TOPIC, 0)


def goes_on_at(answer: Frame) -> int:
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED, answer
    return int(ext(answer)["nextBeginOffset"])


async def commit(peer: Peer, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset
    )
    answer = await peer.request(frame(RequestCode.UPDATE_CONSUMER_OFFSET, header))
    assert answer.code == ResponseCode.SUCCESS


async def test_a_position_that_was_read_elsewhere_goes_back_to_the_begin_of_the_epoch(
    tmp_path: Path,
) -> None:
    async with new_master(tmp_path) as broker:
        peer = broker.attach()
        assert goes_on_at(await peer.request(pull(0, 8, commit=7))) == BEGIN
        assert stored(broker) == -1, "nor is it stored"
        assert len(bodies_of(await peer.request(pull(0, BEGIN, commit=BEGIN)))) == END - BEGIN
        assert stored(broker) == BEGIN


async def test_a_position_before_the_epoch_is_believed(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        answer = await broker.ask(pull(0, BEGIN, commit=BEGIN))
        assert len(bodies_of(answer)) == END - BEGIN


async def test_nobody_is_sent_behind_the_offset_of_the_group(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        broker.offsets.commit("consumer", GROUP, TOPIC, 0, ConsumerOffset(3))
        assert goes_on_at(await broker.ask(pull(0, 8, commit=8))) == 3


async def test_what_the_group_has_got_here_is_believed_after_a_reconnection(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        await broker.attach("10.0.0.9:1").request(pull(0, 4, commit=4))
        again = broker.attach("10.0.0.9:2")
        answer = await again.request(pull(0, END, commit=8))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert stored(broker) == 8


async def test_the_stored_offset_is_believed(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        broker.offsets.commit("an operator", GROUP, TOPIC, 0, ConsumerOffset(9))
        assert len(bodies_of(await broker.ask(pull(0, 9, commit=9)))) == 1


async def test_who_was_served_may_skip_messages(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        peer = broker.attach("10.0.0.9:1")
        await peer.request(pull(0, 4, commit=4, count=1))
        assert len(bodies_of(await peer.request(pull(0, 8, commit=8)))) == 2
        await commit(peer, 9)
        assert stored(broker) == 9


async def test_who_stores_no_offsets_may_read_anywhere(tmp_path: Path) -> None:
    """Raw pulls and Spark name the ranges that they read."""
    async with new_master(tmp_path) as broker:
        assert len(bodies_of(await broker.ask(pull(0, 8)))) == 2


async def test_a_new_group_is_served_from_its_first_pull_on(tmp_path: Path) -> None:
    """A stock consumer that has consumed nothing yet stores no offset with its pulls."""
    async with new_master(tmp_path) as broker:
        peer = broker.attach()
        assert len(bodies_of(await peer.request(pull(0, 0)))) == END
        answer = await peer.request(pull(0, END, commit=3))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert stored(broker) == 3
        await commit(peer, END)
        assert stored(broker) == END


async def test_who_has_consumed_nothing_of_what_it_read_elsewhere_goes_back_later(
    tmp_path: Path,
) -> None:
    async with new_master(tmp_path) as broker:
        peer = broker.attach()
        assert len(bodies_of(await peer.request(pull(0, 8)))) == 2
        assert goes_on_at(await peer.request(pull(0, END, commit=1))) == 1
        assert stored(broker) == 1


@pytest.mark.parametrize("is_known", [False, True], ids=["unheard", "consumer"])
async def test_commits_before_the_first_pull_are_not_stored(is_known: bool, tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        reader = consumer(subscription(TOPIC))
        peer = await broker.join("reader", reader) if is_known else broker.attach()
        await commit(peer, 8)
        assert stored(broker) == -1
        await commit(peer, BEGIN)
        assert stored(broker) == BEGIN


async def test_later_an_operator_may_store_any_offset(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        broker.clock.ms += int(YOUNG_S * 1000)
        await commit(broker.attach(), 8)
        assert stored(broker) == 8


async def test_who_is_sent_to_a_slave_may_come_back_from_anywhere(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        broker.broker._parting.served("10.0.0.9:1", GROUP, TOPIC, 0, 1, is_sent=True)
        assert len(bodies_of(await broker.attach("10.0.0.9:2").request(pull(0, 8, commit=8)))) == 2
        assert stored(broker) == 8


async def test_a_former_master_believes_all(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        broker.broker.master_tasks.give_up()
        assert len(bodies_of(await broker.ask(pull(0, 8, commit=8)))) == 2
        assert stored(broker) == 8


@pytest.mark.parametrize("is_young", [True, False])
async def test_a_master_that_was_restarted_believes_all_unless_its_epoch_is_young(
    is_young: bool, tmp_path: Path
) -> None:
    async with new_master(tmp_path) as broker:
        broker.broker.master_tasks.give_up()
        if not is_young:
            broker.clock.ms += int(YOUNG_S * 1000)
        broker.broker._parting.go_on()
        answer = await broker.ask(pull(0, 8, commit=8))
        assert (answer.code == ResponseCode.PULL_OFFSET_MOVED) == is_young


async def test_a_pull_that_waited_is_served(tmp_path: Path) -> None:
    async with new_master(tmp_path) as broker:
        peer = broker.attach()
        await peer.request(pull(0, BEGIN, commit=BEGIN))
        await broker.hold(peer, pull(0, END, commit=END, wait_ms=15_000, opaque=2))
        broker.put_many(1)
        assert len(bodies_of(await peer.read())) == 1
        assert stored(broker) == END


# --- a slave --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commit", "wait_ms"), [(8, None), (None, 15_000)], ids=["commit", "suspend"]
)
async def test_a_slave_of_a_new_master_leaves_doubtful_positions_to_it(
    commit: int | None, wait_ms: int | None, tmp_path: Path
) -> None:
    flagged = partial(pull, commit=commit, wait_ms=wait_ms)
    async with new_slave(tmp_path) as broker:
        answer = await broker.ask(flagged(0, 8))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "may have been read from a former master" in str(answer.remark)
        assert len(bodies_of(await broker.ask(flagged(0, BEGIN)))) == END - BEGIN
        assert len(bodies_of(await broker.ask(pull(0, 8)))) == 2, "a raw pull"
        broker.clock.ms += int(YOUNG_S * 1000)
        assert len(bodies_of(await broker.ask(flagged(0, 8)))) == 2


async def test_a_slave_stores_no_doubtful_offsets(tmp_path: Path) -> None:
    async with new_slave(tmp_path) as broker:
        await commit(broker.attach(), 8)
        assert stored(broker) == -1
        await commit(broker.attach(), BEGIN)
        assert stored(broker) == BEGIN
        broker.clock.ms += int(YOUNG_S * 1000)
        await commit(broker.attach(), 8)
        assert stored(broker) == 8


async def test_a_slave_serves_what_the_group_has_stored(tmp_path: Path) -> None:
    async with new_slave(tmp_path) as broker:
        broker.offsets.commit("consumer", GROUP, TOPIC, 0, ConsumerOffset(8))
        assert len(bodies_of(await broker.ask(pull(0, 8, wait_ms=15_000)))) == 2


# --- several changes of masters ------------------------------------------------------------------


@pytest.mark.parametrize("is_young", [True, False])
async def test_a_consumer_that_missed_two_changes_goes_back_behind_both_while_they_are_young(
    is_young: bool, tmp_path: Path
) -> None:
    async with new_master(tmp_path) as broker:
        if not is_young:
            broker.clock.ms += int(YOUNG_S * 1000)
        replication = broker.broker.replication
        replication.saved.identity = with_epoch(replication.identity, 3, broker.core.log.written)
        broker.broker.master_tasks.take_over()
        broker.put_many(3)
        assert goes_on_at(await broker.ask(pull(0, 12, commit=12))) == (BEGIN if is_young else END)
        answer = await broker.ask(pull(0, 8, commit=8))
        if is_young:
            assert goes_on_at(answer) == BEGIN
        else:
            assert len(bodies_of(answer)) == END + 3 - 8
