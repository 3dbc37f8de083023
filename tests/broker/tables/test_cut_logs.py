"""Masters whose logs have parted, on real sockets: what rests on the part that is cut off goes back
with it, and nobody reads what a hiding master has hidden.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

from rmq.broker.sending import properties as inbound
from rmq.broker.transactions.half import GROUP as CHECKER
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.model.offsets import ConsumerOffset
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    HaDemoteRequest,
    HaPromoteRequest,
    HaResyncRequest,
    PullMessageRequest,
    PullMessageResponse,
    UpdateConsumerOffsetRequest,
)
from rmq.store.append import AppendStatus
from rmq.store.truncation import Truncation, request_truncation
from tests.broker.transactions.transactions_kit import half_message
from tests.ha.pair_kit import TOPIC, pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from rmq.broker.broker import Broker
    from tests.ha.pair_kit import Pair

OK: Final = ResponseCode.SUCCESS
GROUP: Final = "readers"
SETTINGS: Final = {"transactionCheckInterval": "3600000", "transactionTimeOut": "1000"}
"""Rounds of checks are begun by the tests."""


def _put(broker: Broker, *messages: NewMessage) -> None:
    results = broker.store.append(messages)
    assert {result.status for result in results} == {AppendStatus.PUT_OK}


def _put_half(broker: Broker, *bodies: bytes) -> None:
    born_ms = time.time_ns() // 1_000_000 - 60_000
    _put(broker, *(half_message(body, topic=TOPIC, queue_id=0, born_ms=born_ms) for body in bodies))


def _put_delayed(broker: Broker, *bodies: bytes) -> None:
    """Store messages of level 1, which is a second."""
    levels = len(broker.live.current.store.delay_levels_ms)
    properties = encode_properties({"DELAY": "1"})
    _put(
        broker,
        *(inbound.parked(NewMessage(TOPIC, 0, body), 1, levels, properties) for body in bodies),
    )


def _checked(broker: Broker) -> tuple[int, int]:
    """Return how far half and op messages have had their turn."""
    offsets = broker.offsets
    return offsets.query(CHECKER, HALF_TOPIC, 0), offsets.query(CHECKER, OP_HALF_TOPIC, 0)


def _end(broker: Broker, queue_id: int = 0, topic: str = TOPIC) -> int:
    return broker.store.queues.end_of(topic, queue_id)


async def _order(
    it: Pair,
    broker: Broker,
    code: RequestCode,
    header: HaPromoteRequest | HaDemoteRequest | HaResyncRequest,
) -> None:
    answer = await it.ask(broker, code, header)
    assert answer.code == OK, answer.remark


async def _promote(it: Pair, broker: Broker, *, accept_loss: bool = False) -> None:
    await _order(it, broker, RequestCode.HA_PROMOTE, HaPromoteRequest(accept_loss=accept_loss))


async def _follows(it: Pair, broker: Broker, state: str) -> None:
    await it.until(
        lambda: (
            broker.replication.slave is not None
            and broker.replication.slave.status.state.value == state
        ),
        f"the slave is {state}",
    )


class Parted:
    """A master and its slave, and then two masters."""

    def __init__(self, it: Pair, old: Broker, new: Broker) -> None:
        self.it = it
        self.old = old
        self.new = new

    async def part(self) -> None:
        """Make the slave, which has not got what the master has done since, another master."""
        it = self.it
        await it.stop("one")
        self.new = await it.restart("two")
        await _promote(it, self.new, accept_loss=True)

    async def diverge(self) -> None:
        """Let the old master come back as a slave of the new one, which it cannot follow."""
        it = self.it
        self.old = await it.restart("one")
        await _order(it, self.old, RequestCode.HA_DEMOTE, HaDemoteRequest(force=False))
        await _follows(it, self.old, "diverged")

    async def cut(self) -> None:
        """Cut what only the old master has, and let it follow."""
        it, old = self.it, self.old
        await _order(it, old, RequestCode.HA_RESYNC, HaResyncRequest(dry_run=False))
        await it.until(lambda: old.successor is not None, "the store was opened again")
        assert old.successor is not None
        self.old = old.successor
        await it.in_sync(self.new)
        await it.equal(self.new, self.old)


@asynccontextmanager
async def parting(
    tmp_path: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Pair, Broker]]:
    """Run a master, without a slave yet."""
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER", {**SETTINGS, **(settings or {})})
        await it.create_topic(master)
        yield it, master


async def _slave(it: Pair, master: Broker, settings: Mapping[str, str] | None = None) -> Broker:
    slave = await it.start("two", "SLAVE", {**SETTINGS, **(settings or {})})
    await it.in_sync(master)
    await it.equal(master, slave)
    await it.until(lambda: slave.topics.get(TOPIC) is not None, "the topic is known")
    return slave


# --- transactions --------------------------------------------------------------------------------


@pytest.mark.parametrize("knows", [False, True], ids=["no progress before", "some before"])
async def test_a_half_message_whose_copy_was_cut_off_is_asked_about_again(
    knows: bool, tmp_path: Path
) -> None:
    async with parting(tmp_path) as (it, old):
        _put_half(old, b"first")
        if knows:
            await old.transaction_checks.check()
            assert _checked(old) == (1, 0)
        expected = _checked(old)
        _put_half(old, b"second")
        new = await _slave(it, old)
        await it.until(lambda: _checked(new) == expected, "the progress is copied")
        await it.stop("two")
        parted = Parted(it, old, new)
        await old.transaction_checks.check()
        progress = _checked(old)
        assert progress > expected
        await parted.part()
        await parted.diverge()
        assert _checked(parted.old) == progress
        await parted.cut()
        assert _checked(parted.old) == expected
        # And it is so without the other one, and after the next start.
        await it.stop("two")
        await it.stop("one")
        again = await it.restart("one")
        assert _checked(again) == expected
        await _promote(it, again, accept_loss=True)
        before = _end(again, topic=HALF_TOPIC)
        await again.transaction_checks.check()
        assert _end(again, topic=HALF_TOPIC) == before + 2, "both have been asked about"


# --- delayed messages ----------------------------------------------------------------------------


async def test_a_delayed_message_whose_delivery_was_cut_off_is_delivered_again(
    tmp_path: Path,
) -> None:
    """Without a word of the master: there is none when the slave is started."""
    async with parting(tmp_path) as (it, broker):
        _put_delayed(broker, b"first")
        await it.until(lambda: _end(broker) == 1, "the first one is delivered")
        _put_delayed(broker, b"second")
        end = broker.store.log.written
        await broker.store.flush()
        await broker.delay_writer.save_now()
        await it.until(lambda: _end(broker) == 2, "the second one is delivered")
        await it.stop("one")
        request_truncation(tmp_path / "one", Truncation(end, "a test wants it", 0))
        broker = await it.start("one", "SLAVE")
        assert broker.store.log.written == end
        assert broker.delay.progress()[1] == (1, 2)
        await it.stop("one")
        broker = await it.start("one", "ASYNC_MASTER")
        await it.until(lambda: _end(broker) == 2, "the second one is delivered again")
        assert await it.bodies(broker) == {b"first", b"second"}
        assert broker.delay.progress()[1] == (2, 2)


# --- consumer offsets ----------------------------------------------------------------------------


async def test_offsets_behind_the_cut_go_back_to_those_of_the_new_master(tmp_path: Path) -> None:
    async with parting(tmp_path) as (it, old):
        await it.send(old, 20)
        new = await _slave(it, old)
        await it.stop("two")
        await it.send(old, 10)
        old.offsets.commit("consumer", GROUP, TOPIC, 0, ConsumerOffset(15))
        old.offsets.commit("consumer", GROUP, TOPIC, 1, ConsumerOffset(4))
        old.offsets.commit("consumer", "only here", TOPIC, 0, ConsumerOffset(12))
        parted = Parted(it, old, new)
        await parted.part()
        assert parted.new.offsets.query(GROUP, TOPIC, 0) == -1
        await parted.diverge()
        await it.send(parted.new, 20)
        parted.new.offsets.commit("consumer", GROUP, TOPIC, 0, ConsumerOffset(13))
        await parted.cut()
        offsets = parted.old.offsets
        await it.until(lambda: offsets.query(GROUP, TOPIC, 0) == 13, "the offset is copied")
        assert offsets.query(GROUP, TOPIC, 1) == 4
        assert offsets.query("only here", TOPIC, 0) == 10
        await _promote(it, parted.old)
        assert offsets.query("only here", TOPIC, 0) == 10
        assert offsets.query(GROUP, TOPIC, 0) == 13


async def test_a_slave_that_need_not_be_cut_has_no_offsets_of_the_other_log(tmp_path: Path) -> None:
    """It has the tables of the old master, and of its log no more than the new one."""
    async with parting(tmp_path) as (it, old):
        await it.send(old, 20)
        await _slave(it, old)
        third = await it.start("three", "SLAVE", SETTINGS)
        await it.in_sync(old, 2)
        await it.stop("two")
        # As a copy from the old master leaves it that comes before the bytes of its log.
        third.offsets.commit("old master", GROUP, TOPIC, 0, ConsumerOffset(15))
        await it.stop("one")
        new = await it.restart("two")
        await _promote(it, new, accept_loss=True)
        new.offsets.commit("consumer", GROUP, TOPIC, 0, ConsumerOffset(3))
        await it.send(new, 20)
        await it.in_sync(new)
        await it.until(lambda: third.offsets.query(GROUP, TOPIC, 0) == 10, "it goes back")
        await it.equal(new, third)
        await _promote(it, third)
        assert third.offsets.query(GROUP, TOPIC, 0) == 10


# --- a running consumer --------------------------------------------------------------------------


async def _pull(
    it: Pair, broker: Broker, offset: int, commit: int | None = None
) -> tuple[int, int]:
    """Return the code of the answer and where the consumer is to go on."""
    header = PullMessageRequest(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=4 if commit is None else 5,
        commit_offset=commit or 0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    answer = await it.ask(broker, RequestCode.PULL_MESSAGE, header)
    return answer.code, answer.header(PullMessageResponse).next_begin_offset


async def test_a_consumer_that_read_on_at_the_old_master_goes_back_to_where_they_parted(
    tmp_path: Path,
) -> None:
    moved = ResponseCode.PULL_OFFSET_MOVED
    async with parting(tmp_path) as (it, old):
        await it.send(old, 20)
        assert await _pull(it, old, 99) == (moved, 10), "the end, as long as nothing has parted"
        new = await _slave(it, old)
        await it.stop("two")
        await it.send(old, 80)
        parted = Parted(it, old, new)
        await parted.part()
        await it.send(parted.new, 20)
        assert _end(parted.new) == 20
        assert await _pull(it, parted.new, 50, commit=48) == (moved, 10)
        assert parted.new.offsets.query(GROUP, TOPIC, 0) == -1, "48 is of the other log"
        assert await _pull(it, parted.new, 50, commit=7) == (moved, 7), "the rest it will drop"
        await parted.diverge()
        await parted.cut()
        await it.send(parted.new, 20)
        await it.equal(parted.new, parted.old)
        parted.new.offsets.commit("consumer", GROUP, TOPIC, 0, ConsumerOffset(10))
        await it.until(lambda: parted.old.offsets.query(GROUP, TOPIC, 0) == 10, "it is copied")
        # The consumer has not heard that it is no master, and goes on committing what it read.
        header = UpdateConsumerOffsetRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=48
        )
        await it.ask(parted.old, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        await _promote(it, parted.old)
        assert _end(parted.old) == 30
        # It has not been at the master between: what that one got it has not seen either.
        assert await _pull(it, parted.old, 50) == (moved, 10)


# --- hidden messages -----------------------------------------------------------------------------


async def test_what_a_master_has_hidden_stays_hidden_until_it_is_known_what_becomes_of_it(
    tmp_path: Path,
) -> None:
    hides = {"brokerRole": "SYNC_MASTER", "hideUnreplicated": "true"}
    async with parting(tmp_path, hides) as (it, old):
        new = await _slave(it, old, {"hideUnreplicated": "true"})
        assert await it.send(old, 4) == [OK] * 4
        await it.equal(old, new)
        await it.until(lambda: old.store.statistics().dispatch_lag_bytes == 0, "all is to be seen")
        await it.stop("two")
        assert await it.send(old, 6) == [ResponseCode.SLAVE_NOT_AVAILABLE] * 6
        assert len(await it.bodies(old)) == 4
        await _order(it, old, RequestCode.HA_DEMOTE, HaDemoteRequest(force=True))
        assert not old.replication.is_master
        assert len(await it.bodies(old)) == 4
        new = await it.restart("two")
        await _promote(it, new, accept_loss=True)
        await it.send(new, 2)
        await _follows(it, old, "diverged")
        assert len(await it.bodies(old)) == 4
        parted = Parted(it, old, new)
        await parted.cut()
        await it.until(
            lambda: parted.old.store.statistics().dispatch_lag_bytes == 0, "all is to be seen"
        )
        assert await it.bodies(parted.old) == await it.bodies(new)


async def test_what_a_master_has_hidden_is_seen_when_the_next_one_has_it(tmp_path: Path) -> None:
    hides = {"brokerRole": "SYNC_MASTER", "hideUnreplicated": "true", "inSyncReplicas": "2"}
    async with parting(tmp_path, hides) as (it, old):
        new = await _slave(it, old)
        assert await it.send(old, 6) == [ResponseCode.SLAVE_NOT_AVAILABLE] * 6
        await it.equal(old, new)
        await _order(it, old, RequestCode.HA_DEMOTE, HaDemoteRequest(force=True))
        assert await it.bodies(old) == set()
        await _promote(it, new, accept_loss=True)
        await _follows(it, old, "streaming")
        await it.until(lambda: old.store.statistics().dispatch_lag_bytes == 0, "all is to be seen")
        assert len(await it.bodies(old)) == 6
