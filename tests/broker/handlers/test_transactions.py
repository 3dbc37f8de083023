"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: what is stored of a decision, and what is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.log_limits import LINES_PER_SOURCE
from rmq.model import flags
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from rmq.model.record import NewMessage, message_id, unpack_host
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import EndTransactionRequest, ResumeCheckHalfMessageRequest
from tests.broker.send_kit import (
    BORN_MS,
    STORE_HOST,
    TOPIC,
    ext,
    frame,
    pairs,
    send_broker,
    send_frame,
    text,
)
from tests.store.running import Gate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.model.record import StoredRecord
    from rmq.store.append import AppendResult
    from tests.broker.send_kit import SendBroker
    from tests.remoting.server_kit import Frame

GROUP: Final = "order-service"
COMMIT: Final = flags.TRANSACTION_COMMIT
ROLLBACK: Final = flags.TRANSACTION_ROLLBACK
UNKNOWN: Final = flags.TRANSACTION_NONE
NOT_PUT: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
NOT_FOUND: Final = "Find prepared transaction message failed"


async def send_half(
    broker: SendBroker, body: bytes = b"order", *, times: int = 1, **properties: str
) -> StoredRecord:
    """Send the first half of a transaction; return what is stored of it."""
    properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "WAIT": "true", **properties}
    await broker.send(
        send_frame(
            body=body,
            queue_id=2,
            flag=9,
            sys_flag=0x301 | flags.TRANSACTION_PREPARED,
            reconsume_times=times,
            properties=text(**properties),
        )
    )
    return broker.records(HALF_TOPIC)[-1]


def end_header(
    record: StoredRecord,
    decision: int,
    *,
    group: str = GROUP,
    queue_offset: int | None = None,
    physical_offset: int | None = None,
    from_check: bool = False,
) -> EndTransactionRequest:
    return EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=record.queue_offset if queue_offset is None else queue_offset,
        commit_log_offset=record.physical_offset if physical_offset is None else physical_offset,
        commit_or_rollback=decision,
        from_transaction_check=from_check,
        msg_id="unused",
    )


async def end(broker: SendBroker, header: EndTransactionRequest) -> Frame:
    """End a transaction with a request that is answered, which producers do not wait for."""
    return await broker.send(frame(RequestCode.END_TRANSACTION, header))


async def resume(broker: SendBroker, msg_id: str | None) -> Frame:
    header = ResumeCheckHalfMessageRequest(msg_id=msg_id)
    return await broker.send(frame(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))


def ops(broker: SendBroker) -> list[bytes]:
    return broker.bodies(OP_HALF_TOPIC)


# --- decisions -------------------------------------------------------------------------------


@pytest.mark.parametrize("from_check", [False, True], ids=["by itself", "when asked"])
async def test_a_committed_message_is_stored_for_consumers(
    tmp_path: Path, from_check: bool
) -> None:
    async with send_broker(tmp_path) as broker:
        await send_half(broker, b"other")
        half = await send_half(broker, KEYS="k", TAGS="TagA")
        assert broker.records(queue_id=2) == []
        answer = await end(broker, end_header(half, COMMIT, from_check=from_check))
        assert (answer.code, answer.remark, answer.fields, answer.body) == (0, None, None, b"")
        record = broker.record(queue_id=2)
        assert (record.topic, record.queue_offset) == (TOPIC, 0)
        assert (record.body, record.flag, record.reconsume_times) == (b"order", 9, 1)
        assert record.sys_flag == 0x301 | COMMIT
        assert record.prepared_offset == half.physical_offset
        assert (record.born_ms, unpack_host(record.born_host)) == (BORN_MS, ("10.0.0.9", 40000))
        # Consumers see what it was, in all its properties.
        assert record.properties_bytes == half.properties_bytes
        assert pairs(record)["TRAN_MSG"] == "true"
        assert record.tags_code == half.tags_code != 0


async def test_a_commit_is_noted_behind_the_message(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await send_half(broker, b"other")
        half = await send_half(broker)
        await end(broker, end_header(half, COMMIT))
        op = broker.record(OP_HALF_TOPIC)
        assert op.body == b"1"
        assert op.born_host == STORE_HOST
        assert pairs(op) == {"WAIT": "true", "TAGS": "d"}
        committed = broker.record(queue_id=2)
        assert op.physical_offset == committed.physical_offset + committed.size


async def test_a_message_that_is_rolled_back_is_only_noted(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        answer = await end(broker, end_header(half, ROLLBACK))
        assert (answer.code, answer.remark, answer.fields) == (0, None, None)
        assert broker.records(queue_id=2) == []
        assert ops(broker) == [b"0"]


@pytest.mark.parametrize("decision", [UNKNOWN, flags.TRANSACTION_PREPARED, 77, -1])
@pytest.mark.parametrize("from_check", [False, True])
async def test_who_does_not_know_yet_gets_no_answer(
    tmp_path: Path, decision: int, from_check: bool
) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        peer = broker.attach()
        header = end_header(half, decision, from_check=from_check)
        await peer.send(frame(RequestCode.END_TRANSACTION, header))
        assert await peer.ping() == []
        assert (broker.records(queue_id=2), ops(broker)) == ([], [])


async def test_a_one_way_decision_counts_and_is_not_answered(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        peer = broker.attach()
        header = end_header(half, COMMIT)
        await peer.send(frame(RequestCode.END_TRANSACTION, header, oneway=True))
        assert await peer.ping() == []
        assert broker.bodies(queue_id=2) == [b"order"]


async def test_a_delay_begins_with_the_commit(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker, times=0, DELAY="3")
        answer = await end(broker, end_header(half, COMMIT))
        assert answer.code == 0
        assert broker.records(queue_id=2) == []
        parked = broker.record(SCHEDULE_TOPIC, 2)
        assert parked.sys_flag == 0x301 | COMMIT
        assert parked.prepared_offset == half.physical_offset
        expected = pairs(half)
        del expected["TRAN_MSG"]
        assert pairs(parked) == expected
        assert (expected["REAL_TOPIC"], expected["REAL_QID"]) == (TOPIC, "2")
        assert ops(broker) == [b"0"]


async def test_a_delay_that_is_no_number_does_not_keep_a_message_from_consumers(
    tmp_path: Path,
) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker, times=0, DELAY="soon")
        assert (await end(broker, end_header(half, COMMIT))).code == 0
        assert broker.bodies(queue_id=2) == [b"order"]


async def test_committed_messages_are_counted_for_their_topic(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        stats, store_stats = broker.broker.stats, broker.broker.stats.store
        assert stats.view("TOPIC_PUT_NUMS", TOPIC) is None
        before = store_stats.put_count
        await end(broker, end_header(half, COMMIT))
        assert stats.view("TOPIC_PUT_NUMS", TOPIC) is not None
        # The message and the note that it is decided.
        assert store_stats.put_count == before + 2


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK], ids=["commit", "rollback"])
@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        pytest.param({"group": "other"}, "The producer group wrong", id="another group"),
        pytest.param(
            {"queue_offset": 5}, "The transaction state table offset wrong", id="another offset"
        ),
        pytest.param({"physical_offset": 7}, NOT_FOUND, id="inside a record"),
        pytest.param({"physical_offset": 1 << 40}, NOT_FOUND, id="beyond the log"),
        pytest.param({"physical_offset": -1}, NOT_FOUND, id="below zero"),
        pytest.param({"physical_offset": -(1 << 63)}, NOT_FOUND, id="far below zero"),
    ],
)
async def test_a_decision_must_name_its_message_rightly(
    tmp_path: Path,
    decision: int,
    changes: dict[str, object],
    remark: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        header = end_header(half, decision, **changes)  # type: ignore[arg-type]
        answer = await end(broker, header)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert answer.fields is None
        assert (broker.records(queue_id=2), ops(broker)) == ([], [])
        # Producers do not wait for the answer, so it is for whoever reads the log.
        assert remark in caplog.text


async def test_decisions_that_are_refused_are_logged_a_few_times_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path) as broker:
        header = end_header(await send_half(broker), COMMIT, group="another")
        for _ in range(50):
            assert (await end(broker, header)).code == ResponseCode.SYSTEM_ERROR
        assert caplog.text.count("cannot end half message") == LINES_PER_SOURCE


async def test_a_message_without_a_producer_group_belongs_to_nobody(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker, PGROUP="")
        answer = await end(broker, end_header(half, COMMIT, group=""))
        assert (answer.code, answer.remark) == (1, "The producer group wrong")


async def test_only_half_messages_can_be_ended(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        await end(broker, end_header(half, COMMIT))
        committed = broker.record(queue_id=2)
        answer = await end(broker, end_header(committed, COMMIT))
        assert (answer.code, answer.remark) == (1, NOT_FOUND)
        assert broker.bodies(queue_id=2) == [b"order"]


async def test_a_half_message_that_does_not_say_where_it_belongs_cannot_be_committed(
    tmp_path: Path,
) -> None:
    async with send_broker(tmp_path) as broker:
        broker.store.append([NewMessage(HALF_TOPIC, 0, b"lost", text(PGROUP=GROUP).encode())])
        half = broker.record(HALF_TOPIC)
        answer = await end(broker, end_header(half, COMMIT))
        assert (answer.code, answer.remark) == (
            1,
            "The prepared message does not say where it belongs",
        )
        assert (await end(broker, end_header(half, ROLLBACK))).code == 0


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK, UNKNOWN])
async def test_a_slave_ends_no_transactions(tmp_path: Path, decision: int) -> None:
    async with send_broker(tmp_path, {"brokerRole": "SLAVE", "brokerId": "1"}) as broker:
        half = broker.store.append([NewMessage(HALF_TOPIC, 0, b"x", text(PGROUP=GROUP).encode())])
        header = EndTransactionRequest(
            producer_group=GROUP,
            tran_state_table_offset=0,
            commit_log_offset=half[0].physical_offset,
            commit_or_rollback=decision,
        )
        answer = await end(broker, header)
        assert (answer.code, answer.remark) == (ResponseCode.SLAVE_NOT_AVAILABLE, None)
        assert ops(broker) == []


async def test_a_commit_that_cannot_be_stored_is_not_noted(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        broker.core.set_disk_full(True)
        answer = await end(broker, end_header(half, COMMIT))
        assert (answer.code, answer.remark) == (
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "Service not available now.",
        )
        broker.core.set_disk_full(False)
        assert ops(broker) == []
        assert (await end(broker, end_header(half, COMMIT))).code == 0
        assert broker.bodies(queue_id=2) == [b"order"]


async def test_a_committed_message_must_not_be_larger_than_any_other(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker, b"x" * 3000)
        broker.update(maxMessageSize="2048")
        answer = await end(broker, end_header(half, COMMIT))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark == (
            "The message is illegal, maybe msg body or properties length not matched."
            " msg body length limit 2048B, msg properties length limit 32KB."
        )
        assert ops(broker) == []


async def test_a_commit_whose_note_cannot_be_stored_is_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        append = broker.store.append

        def append_until_full(messages: Sequence[NewMessage]) -> list[AppendResult]:
            results = append(messages)
            broker.core.set_disk_full(True)
            return results

        monkeypatch.setattr(broker.store, "append", append_until_full)
        assert (await end(broker, end_header(half, COMMIT))).code == 0
        assert broker.bodies(queue_id=2) == [b"order"]
        assert ops(broker) == []
        assert "its producer will be asked again" in caplog.text


# --- asking again ----------------------------------------------------------------------------


async def test_a_message_is_asked_about_again_as_if_for_the_first_time(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker, TRANSACTION_CHECK_TIMES="15", KEYS="k")
        given_up = NewMessage(
            "TRANS_CHECK_MAX_TIME_TOPIC",
            0,
            half.body,
            half.properties_bytes,
            half.flag,
            half.sys_flag,
            half.born_ms,
            half.born_host,
            half.reconsume_times,
        )
        broker.store.append([given_up])
        kept = broker.record("TRANS_CHECK_MAX_TIME_TOPIC")
        for source in (kept, half):
            answer = await resume(broker, source.message_id)
            assert (answer.code, answer.remark, answer.fields) == (0, None, None)
        _, *copies = broker.records(HALF_TOPIC)
        for copy in copies:
            assert pairs(copy) == pairs(half) | {"TRANSACTION_CHECK_TIMES": "0"}
            assert (copy.queue_id, copy.body, copy.flag) == (0, b"order", 9)
            assert (copy.born_ms, copy.born_host) == (half.born_ms, half.born_host)
        assert [copy.queue_offset for copy in copies] == [1, 2]


@pytest.mark.parametrize(
    "text_sent",
    [
        None,
        "",
        "xyz",
        "0" * 31,
        "0" * 32,
        "F" * 32,
        "0" * 56,
    ],
)
async def test_there_is_nothing_to_resume_without_a_message(
    tmp_path: Path, text_sent: str | None
) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await resume(broker, text_sent)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.",
        )


async def test_only_half_messages_are_resumed(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame())
        refused = await resume(broker, ext(answer)["msgId"])
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert broker.records(HALF_TOPIC) == []


async def test_a_message_that_cannot_be_put_back_is_told_of(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        half = await send_half(broker)
        broker.core.set_disk_full(True)
        answer = await resume(broker, half.message_id)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            NOT_PUT,
        )


async def test_a_slave_resumes_nothing(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"brokerRole": "SLAVE", "brokerId": "1"}) as broker:
        (half,) = broker.store.append([NewMessage(HALF_TOPIC, 0, b"x")])
        answer = await resume(broker, message_id(STORE_HOST, half.physical_offset))
        assert (answer.code, answer.remark) == (1, NOT_PUT)
        assert len(broker.records(HALF_TOPIC)) == 1


async def test_resuming_fails_with_the_disk(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as broker:
        half = await send_half(broker)
        broker.storage.faults.fail("sync", on=lambda path: path.parent.name == "commitlog")
        answer = await resume(broker, half.message_id)
        assert (answer.code, answer.remark) == (1, NOT_PUT)


async def test_resuming_waits_for_the_disk_where_sends_do(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as broker:
        half = await send_half(broker)
        gate = Gate(broker.storage)
        gate.shut()
        peer = broker.attach()
        header = ResumeCheckHalfMessageRequest(msg_id=half.message_id)
        await peer.send(frame(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))
        await gate.wait_arrival()
        assert await peer.ping() == []
        gate.open()
        assert (await peer.read()).code == 0
