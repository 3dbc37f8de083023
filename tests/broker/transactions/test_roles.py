"""Transaction checks over changes of the role: stopped, begun again, and taken up by a slave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.transactions.half import GROUP as CHECKER
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import EndTransactionRequest
from tests.broker.broker_frames import TOPIC, ext, frame, heartbeat, send
from tests.broker.replication.sync_kit import pair, running

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rmq.model.record import StoredRecord
    from tests.broker.broker_kit import PartBroker
    from tests.broker.replication.sync_kit import Pair
    from tests.remoting.server_kit import Frame, Peer

PRODUCERS: Final = "order-service"
COMMIT: Final = 8
ROLL_BACK: Final = 12


async def send_half(broker: PartBroker, body: bytes) -> None:
    properties = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": body.hex()}
    answer = await broker.ask(send(body, properties=properties))
    assert answer.code == ResponseCode.SUCCESS, answer


async def join(broker: PartBroker) -> Peer:
    peer = broker.attach("producer")
    await peer.request(heartbeat("producer", producers=(PRODUCERS,)))
    return peer


async def end(broker: PartBroker, record: StoredRecord, decision: int) -> None:
    """Decide about a half message as the producer that sent it."""
    header = EndTransactionRequest(
        producer_group=PRODUCERS,
        tran_state_table_offset=record.queue_offset,
        commit_log_offset=record.physical_offset,
        commit_or_rollback=decision,
    )
    answer = await broker.ask(frame(RequestCode.END_TRANSACTION, header))
    assert answer.code == ResponseCode.SUCCESS, answer


async def check_later(broker: PartBroker) -> None:
    broker.clock.ms += 60_000
    await broker.broker.transaction_checks.check()


def asked_about(questions: list[Frame]) -> list[bytes]:
    return [bytes.fromhex(ext(question)["msgId"]) for question in questions]


def bodies(broker: PartBroker) -> list[bytes]:
    return [record.body for record in broker.records(TOPIC)]


async def promote(linked: Pair) -> PartBroker:
    """Make the slave the master, as far as transactions care."""
    slave = linked.slave
    await slave.store.trim_tail()
    linked.sync.take_reached()
    slave.offsets.clamp(slave.pulls._max_offset)
    slave.clock.ms = linked.master.clock.ms
    slave.live.assume_role(BrokerRole.ASYNC_MASTER, 0, now_ms=slave.clock.ms)
    return slave


async def test_rounds_may_be_stopped_and_begun_again(tmp_path: Path, mock_clock: MockClock) -> None:
    async with pair(tmp_path) as linked:
        broker = linked.master
        checks = broker.broker.transaction_checks
        peer = await join(broker)
        await send_half(broker, b"a")
        broker.clock.ms += 60_000
        for times in range(1, 4):
            async with running(checks.run):
                await broker.settle()
                mock_clock.jump(59)
                await broker.settle()
                assert len(broker.records(HALF_TOPIC)) == times
                mock_clock.jump(1)
                await broker.settle()
                assert len(broker.records(HALF_TOPIC)) == times + 1
                broker.clock.ms += 60_000
            assert asked_about(await peer.ping()) == [b"a"]
            # Meanwhile it is a slave, and nobody is asked.
            mock_clock.jump(61)
            await broker.settle()
            assert len(broker.records(HALF_TOPIC)) == times + 1
            assert broker.offsets.query(CHECKER, HALF_TOPIC, 0) == times
            assert await peer.ping() == []


async def test_copies_of_an_earlier_turn_are_forgotten(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        broker = linked.master
        await send_half(broker, b"a")
        await check_later(broker)
        copies = broker.broker.half_copies
        assert len(copies) == 2
        async with running(broker.broker.transaction_checks.run):
            assert len(copies) == 0
        # The producer decides about what it sent: that is noted for this one and for no other.
        await end(broker, broker.records(HALF_TOPIC)[0], ROLL_BACK)
        assert [record.body for record in broker.records(OP_HALF_TOPIC)] == [b"0"]


async def test_a_promoted_slave_asks_about_what_is_open_and_not_about_what_is_decided(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as linked:
        old = linked.master
        for body in (b"rolled-back", b"committed", b"open", b"asked"):
            await send_half(old, body)
        halves = old.records(HALF_TOPIC)
        await end(old, halves[0], ROLL_BACK)
        await end(old, halves[1], COMMIT)
        await check_later(old)
        await linked.replicate()
        await linked.copy()
        progress = [old.offsets.query(CHECKER, topic, 0) for topic in (HALF_TOPIC, OP_HALF_TOPIC)]
        assert progress == [4, 2]
        new = await promote(linked)
        assert [
            new.offsets.query(CHECKER, topic, 0) for topic in (HALF_TOPIC, OP_HALF_TOPIC)
        ] == progress
        peer = await join(new)
        await check_later(new)
        questions = await peer.ping()
        assert asked_about(questions) == [b"open", b"asked"]
        for question in questions:
            fields = ext(question)
            header = EndTransactionRequest(
                producer_group=PRODUCERS,
                tran_state_table_offset=int(fields["tranStateTableOffset"]),
                commit_log_offset=int(fields["commitLogOffset"]),
                commit_or_rollback=COMMIT,
            )
            await peer.request(frame(RequestCode.END_TRANSACTION, header))
        assert bodies(new) == [b"committed", b"open", b"asked"]
        await check_later(new)
        assert await peer.ping() == []


async def test_a_round_whose_outcome_the_slave_has_not_is_made_again(tmp_path: Path) -> None:
    """Its master had asked and moved on, but what stands for the question died with it."""
    async with pair(tmp_path) as linked:
        old = linked.master
        await send_half(old, b"open")
        await linked.replicate()
        await check_later(old)
        assert old.offsets.query(CHECKER, HALF_TOPIC, 0) == 1
        await linked.copy()
        new = await promote(linked)
        peer = await join(new)
        await check_later(new)
        assert asked_about(await peer.ping()) == [b"open"]


async def test_a_slave_that_never_heard_of_progress_begins_at_the_beginning(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as linked:
        old = linked.master
        for body in (b"decided", b"open"):
            await send_half(old, body)
        await end(old, old.records(HALF_TOPIC)[0], COMMIT)
        await linked.replicate()
        await linked.copy()
        new = await promote(linked)
        peer = await join(new)
        await check_later(new)
        assert asked_about(await peer.ping()) == [b"open"]
        assert bodies(new) == [b"decided"]
        assert new.offsets.query(CHECKER, HALF_TOPIC, 0) == 2


async def test_a_round_that_is_cut_off_by_a_demotion_keeps_what_it_did(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        broker = linked.master
        for number in range(40):
            await send_half(broker, b"%d" % number)
        broker.clock.ms += 60_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.broker.transaction_checks.check)
            while len(broker.records(HALF_TOPIC)) == 40:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        asked = len(broker.records(HALF_TOPIC)) - 40
        assert 0 < asked < 40
        assert broker.offsets.query(CHECKER, HALF_TOPIC, 0) == asked
        # Both go together, so a slave takes the one with the other.
        assert broker.offsets.query(CHECKER, OP_HALF_TOPIC, 0) == 0
