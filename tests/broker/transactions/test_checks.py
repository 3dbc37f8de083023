"""The rounds as a broker runs them: when they begin, who is asked, what is saved and when."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio
from trio.testing import wait_all_tasks_blocked

from rmq.broker.transactions.checks import STOP_SAVE_S
from rmq.broker.transactions.half import GROUP
from rmq.errors import StorageError
from rmq.files import ConfigFile
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.model.names import TRANSACTION_CHECK_MAX_TOPIC as GIVEN_UP
from rmq.model.offsets import ConsumerOffset
from rmq.model.record import decode_record
from rmq.remoting.bodies import HeartbeatData, ProducerData
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import EndTransactionRequest
from tests.broker.send_kit import (
    TOPIC,
    WallClock,
    ext,
    frame,
    send_broker,
    send_frame,
    text,
)
from tests.store.running import Gate

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rmq.broker.transactions.checks import TransactionChecks
    from tests.broker.send_kit import SendBroker
    from tests.remoting.server_kit import Frame, Peer

PRODUCERS: Final = "order-service"
INTERVAL_S: Final = 60.0


async def join(broker: SendBroker, client_id: str, *groups: str) -> Peer:
    """Connect a producer."""
    peer = broker.attach(client_id)
    data = HeartbeatData(
        client_id=client_id,
        producer_data_set=tuple(ProducerData(group_name=group) for group in groups),
    )
    beat = encode_frame(code=RequestCode.HEART_BEAT, opaque=1, body_length=len(data.encode()))
    assert (await peer.request(beat + data.encode())).code == 0
    return peer


async def send_half(broker: SendBroker, body: bytes = b"order", group: str = PRODUCERS) -> None:
    properties = text(TRAN_MSG="true", PGROUP=group, UNIQ_KEY=body.hex())
    await broker.send(send_frame(body=body, queue_id=1, properties=properties))


def checks_of(broker: SendBroker) -> TransactionChecks:
    return broker.broker.transaction_checks


async def check_later(broker: SendBroker, ms: int = 60_000) -> None:
    broker.clock.ms += ms
    await checks_of(broker).check()


def saved(broker: SendBroker) -> tuple[int, int]:
    """Return where the next round begins, in the half and in the op queue."""
    offsets = broker.broker.offsets
    return offsets.query(GROUP, HALF_TOPIC, 0), offsets.query(GROUP, OP_HALF_TOPIC, 0)


async def answer(peer: Peer, asked: Frame, decision: int) -> None:
    fields = ext(asked)
    header = EndTransactionRequest(
        producer_group=PRODUCERS,
        tran_state_table_offset=int(fields["tranStateTableOffset"]),
        commit_log_offset=int(fields["commitLogOffset"]),
        commit_or_rollback=decision,
        from_transaction_check=True,
    )
    await peer.send(frame(RequestCode.END_TRANSACTION, header, oneway=True))
    assert await peer.ping() == []


# --- who is asked ----------------------------------------------------------------------------


async def test_a_producer_is_asked_and_its_answer_counts(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = await join(broker, "producer", PRODUCERS)
        await send_half(broker)
        await check_later(broker)
        asked = await peer.read()
        assert (asked.code, asked.flag) == (RequestCode.CHECK_TRANSACTION_STATE, FLAG_ONEWAY)
        assert ext(asked)["msgId"] == b"order".hex()
        record = decode_record(asked.body)
        assert (record.topic, record.queue_id, record.body) == (TOPIC, 1, b"order")
        await answer(peer, asked, 8)
        assert broker.bodies(queue_id=1) == [b"order"]
        await check_later(broker)
        assert await peer.ping() == []
        assert saved(broker) == (2, 1)


async def test_producers_of_a_group_are_asked_in_turn(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peers = [await join(broker, f"producer-{number}", PRODUCERS) for number in range(3)]
        other = await join(broker, "other", "other-service")
        for number in range(6):
            await send_half(broker, b"%d" % number)
        await check_later(broker)
        for peer in peers:
            first, second = await peer.read_many(2)
            assert ext(first)["msgId"] != ext(second)["msgId"]
            assert await peer.ping() == []
        assert await other.ping() == []


async def test_nobody_to_ask_is_told_once_per_group_and_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path) as broker:
        for group in ("first", "second", "first"):
            await send_half(broker, group=group)
        for _ in range(2):
            caplog.clear()
            await check_later(broker)
            warnings = [each.getMessage() for each in caplog.records if each.levelno >= 30]
            assert warnings == [
                "no producer of group first is connected that could be asked about 2 transactions",
                "no producer of group second is connected that could be asked about 1 transactions",
            ]
        # They count as asked about all the same.
        times = [
            each.properties["TRANSACTION_CHECK_TIMES"] for each in broker.records(HALF_TOPIC)[3:]
        ]
        assert times == ["1", "1", "1", "2", "2", "2"]


async def test_a_producer_whose_connection_ends_is_no_reason_to_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path) as broker:
        gone = await join(broker, "gone", PRODUCERS)
        await send_half(broker, b"a")
        # The registry hears of it a moment later.
        gone.channel.close("gone")
        await check_later(broker)
        peer = await join(broker, "new", PRODUCERS)
        await check_later(broker)
        assert ext(await peer.read())["msgId"] == b"a".hex()


async def test_a_producer_that_cannot_take_more_is_asked_in_the_next_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path) as broker:
        peer = await join(broker, "producer", PRODUCERS)
        peer.channel.config = replace(peer.channel.config, oneways_max=1)
        await send_half(broker, b"a")
        await send_half(broker, b"b")
        await check_later(broker)
        assert "producer producer of group order-service not asked" in caplog.text
        assert [ext(each)["msgId"] for each in await peer.ping()] == [b"a".hex()]
        peer.channel.config = replace(peer.channel.config, oneways_max=2)
        await check_later(broker)
        asked = [ext(each)["msgId"] for each in await peer.ping()]
        assert asked == [b"a".hex(), b"b".hex()]


async def test_settings_count_as_they_are_when_a_round_begins(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await send_half(broker)
        broker.update(transactionTimeOut="3600000")
        await check_later(broker)
        assert len(broker.records(HALF_TOPIC)) == 1
        broker.update(transactionTimeOut="1000", transactionCheckMax="1")
        await check_later(broker)
        assert len(broker.records(HALF_TOPIC)) == 2
        await check_later(broker)
        assert broker.bodies(GIVEN_UP) == [b"order"]


async def test_what_is_given_up_has_a_topic_before(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"transactionCheckMax": "1"}, creates_topics=False) as broker:
        await send_half(broker)
        await check_later(broker)
        broker.clock.ms += 60_000
        assert broker.topics.get(GIVEN_UP) is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checks_of(broker).check)
            await broker.settle()
            assert broker.records(GIVEN_UP) == []
            broker.start_creation()
        topic = broker.topic(GIVEN_UP)
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        assert GIVEN_UP in (tmp_path / "config" / "topics.json").read_text()
        assert broker.bodies(GIVEN_UP) == [b"order"]
        assert saved(broker)[0] == 2


async def test_nothing_is_given_up_as_long_as_there_is_no_topic_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(file: ConfigFile, _text: str) -> None:
        raise StorageError("write", file.path.name, "No space left on device")

    async with send_broker(tmp_path, {"transactionCheckMax": "1"}) as broker:
        await send_half(broker)
        await check_later(broker)
        with monkeypatch.context() as patched:
            patched.setattr(ConfigFile, "write", refuse)
            for _ in range(2):
                caplog.clear()
                await check_later(broker)
                assert broker.records(GIVEN_UP) == []
                assert "transactions cannot be given up yet: cannot write" in caplog.text
        await check_later(broker)
        assert broker.bodies(GIVEN_UP) == [b"order"]


async def test_what_cannot_be_stored_is_counted_as_such(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await send_half(broker)
        broker.core.set_disk_full(True)
        await check_later(broker)
        assert broker.broker.stats.store.put_failures == 1
        assert saved(broker) == (-1, -1)


async def test_what_a_round_reads_and_stores_is_counted(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await send_half(broker)
        stored = broker.broker.stats.store.put_count
        await check_later(broker)
        stats = broker.broker.stats
        assert stats.view("GROUP_GET_NUMS", f"{HALF_TOPIC}@{GROUP}") is not None
        assert broker.broker.stats.store.put_count == stored + 1


# --- progress --------------------------------------------------------------------------------


async def test_a_round_without_anything_to_do_saves_nothing(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await check_later(broker)
        await send_half(broker)
        await check_later(broker, 0)
        assert saved(broker) == (-1, -1)


async def test_a_round_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        broker.broker.offsets.commit("test", GROUP, HALF_TOPIC, 0, ConsumerOffset(1))
        await send_half(broker, b"done with")
        await send_half(broker, b"order")
        await check_later(broker)
        assert saved(broker)[0] == 2
        assert broker.bodies(HALF_TOPIC) == [b"done with", b"order", b"order"]


async def test_progress_waits_for_the_disk(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = await join(broker, "producer", PRODUCERS)
        await send_half(broker)
        await broker.store.flush()
        gate = Gate(broker.storage)
        gate.shut()
        broker.clock.ms += 60_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checks_of(broker).check)
            # It is asked at once; should the copy be lost, so is the answer, and it is asked again.
            assert (await peer.read()).code == RequestCode.CHECK_TRANSACTION_STATE
            await gate.wait_arrival()
            assert saved(broker) == (-1, -1)
            gate.open()
        assert saved(broker) == (1, 0)
        assert broker.core.log.flushed == broker.core.log.written


async def test_no_progress_is_saved_once_the_disk_has_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path) as broker:
        await send_half(broker)
        broker.storage.faults.fail("sync", on=lambda path: path.parent.name == "commitlog")
        await check_later(broker)
        assert saved(broker) == (-1, -1)
        assert "how far transactions were checked is not kept" in caplog.text


async def test_an_open_transaction_outlives_a_power_cut_after_a_round(tmp_path: Path) -> None:
    clock = WallClock()
    async with send_broker(tmp_path / "a", clock=clock) as broker:
        await send_half(broker, b"a")
        await check_later(broker)
        position = saved(broker)
        after = broker.storage.crash(random.Random(1))
    async with send_broker(tmp_path / "a", clock=clock, storage=after) as broker:
        peer = await join(broker, "producer", PRODUCERS)
        broker.broker.offsets.commit("test", GROUP, HALF_TOPIC, 0, ConsumerOffset(position[0]))
        await check_later(broker)
        assert ext(await peer.read())["msgId"] == b"a".hex()


# --- when rounds begin and end ---------------------------------------------------------------


async def test_the_topic_of_half_messages_is_there_from_the_start(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker, trio.open_nursery() as nursery:
        assert broker.topics.get(HALF_TOPIC) is None
        nursery.start_soon(checks_of(broker).run)
        await wait_all_tasks_blocked()
        topic = broker.topic(HALF_TOPIC)
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        assert broker.topics.get(OP_HALF_TOPIC) is None
        nursery.cancel_scope.cancel()


async def test_rounds_begin_at_the_interval(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with send_broker(tmp_path) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(checks_of(broker).run)
        await broker.settle()
        await send_half(broker)
        broker.clock.ms += 60_000
        for expected in (1, 2):
            mock_clock.jump(INTERVAL_S - 1)
            await broker.settle()
            assert len(broker.records(HALF_TOPIC)) == expected
            mock_clock.jump(1)
            await broker.settle()
            assert len(broker.records(HALF_TOPIC)) == expected + 1
            broker.clock.ms += 60_000
        nursery.cancel_scope.cancel()


async def test_a_change_of_the_interval_counts_for_the_wait_under_way(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with send_broker(tmp_path) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(checks_of(broker).run)
        await broker.settle()
        await send_half(broker)
        broker.clock.ms += 60_000
        mock_clock.jump(10)
        broker.update(transactionCheckInterval="20000")
        await broker.settle()
        assert len(broker.records(HALF_TOPIC)) == 1
        mock_clock.jump(10)
        await broker.settle()
        assert len(broker.records(HALF_TOPIC)) == 2
        broker.update(transactionCheckInterval=str(2**63 - 1))
        mock_clock.jump(600)
        await broker.settle()
        broker.update(transactionCheckInterval="1")
        broker.clock.ms += 60_000
        await broker.settle()
        assert len(broker.records(HALF_TOPIC)) == 3
        nursery.cancel_scope.cancel()


async def test_a_round_lets_others_work(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = await join(broker, "producer", PRODUCERS)
        for number in range(50):
            await send_half(broker, b"%d" % number)
        broker.clock.ms += 60_000
        turns = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checks_of(broker).check)
            while len(broker.records(HALF_TOPIC)) < 100:
                turns += 1
                await trio.lowlevel.checkpoint()
        assert turns > 5
        assert len(await peer.read_many(50)) == 50


async def test_a_round_that_is_cut_off_keeps_what_it_did(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        for number in range(50):
            await send_half(broker, b"%d" % number)
        broker.clock.ms += 60_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checks_of(broker).check)
            while len(broker.records(HALF_TOPIC)) == 50:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        asked = len(broker.records(HALF_TOPIC)) - 50
        assert 0 < asked < 50
        assert saved(broker)[0] == asked


async def test_a_stopping_broker_does_not_wait_long_for_the_disk(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with send_broker(tmp_path) as broker:
        await send_half(broker)
        await broker.settle()
        gate = Gate(broker.storage)
        gate.shut()
        broker.clock.ms += 60_000
        scope = trio.CancelScope()

        async def check() -> None:
            with scope:
                await checks_of(broker).check()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(check)
            await gate.wait_arrival()
            scope.cancel()
            await broker.settle(held=1)
            mock_clock.jump(STOP_SAVE_S)
        assert saved(broker) == (-1, -1)
        gate.open()


async def test_what_was_decided_before_the_last_round_is_forgotten(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = await join(broker, "producer", PRODUCERS)
        await send_half(broker)
        await check_later(broker)
        await answer(peer, await peer.read(), 12)
        known = [len(broker.broker.half_copies)]
        for _ in range(3):
            await check_later(broker)
            known.append(len(broker.broker.half_copies))
        assert known == [2, 2, 2, 0]


async def test_a_round_says_what_it_did(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rmq.broker.transactions")
    async with send_broker(tmp_path) as broker:
        await check_later(broker)
        assert caplog.messages == []
        await join(broker, "producer", PRODUCERS)
        await send_half(broker)
        await check_later(broker)
        assert (
            "transactions checked: 0 decided, 1 asked about, 0 put off, 0 given up"
            in caplog.messages
        )
