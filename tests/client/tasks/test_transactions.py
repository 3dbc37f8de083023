"""Transactions: half messages, all ways to end them, and questions of brokers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from rmq.client.core.messages import (
    Message,
    SendResult,
    SendStatus,
    TransactionState,
    end_of_checked,
    end_of_own,
)
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.tasks.transactions import TransactionProducer, transacting
from rmq.client.trio.opening import open_client, open_transaction_producer
from rmq.errors import BadAnswerError, SendFailedError
from rmq.model.queues import MessageQueue
from rmq.model.record import decode_record
from rmq.remoting.codes import FLAG_ONEWAY, LanguageCode, RequestCode, ResponseCode
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    SendMessageRequestV2,
)
from tests.client.cluster_kit import cluster
from tests.client.producer_kit import (
    TOPIC,
    Notes,
    answer_stored,
    bodies,
    odd_brokers,
    stored,
    until,
)
from tests.remoting.frames import captured, receive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage
    from rmq.model.record import StoredRecord
    from rmq.remoting.request import Request
    from tests.client.cluster_kit import Cluster

COMMIT: Final = TransactionState.COMMIT
ROLLBACK: Final = TransactionState.ROLLBACK
UNKNOWN: Final = TransactionState.UNKNOWN
ASKED_SOON: Final = {"transactionCheckInterval": "100", "transactionTimeOut": "50"}
"""A broker that asks about half messages almost at once."""


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError("no broker should ask yet")


# --- what is said to brokers -----------------------------------------------------------------


def test_decisions_are_told_byte_for_byte_as_by_a_stock_producer() -> None:
    ends = [frame for frame in captured("transaction") if frame.code == 37]
    halves = [
        frame
        for frame in captured("transaction")
        if frame.kind == "response" and frame.answers == "SEND_MESSAGE_V2"
    ]
    assert len(ends) == 4
    for end, half, state in zip(ends[:3], halves, (COMMIT, ROLLBACK, UNKNOWN), strict=True):
        assert half.ext is not None
        assert end.ext is not None
        result = SendResult(
            SendStatus.OK,
            end.ext["msgId"],
            half.ext["msgId"],
            MessageQueue(topic="GoldenTopic", broker_name="broker-golden", queue_id=1),
            int(half.ext["queueOffset"]),
        )
        assert _frame(end_of_own("golden_tx", result, state), end.opaque) == end.frame


def test_questions_are_answered_byte_for_byte_as_by_a_stock_producer() -> None:
    (question,) = [frame for frame in captured("transaction") if frame.code == 39]
    answer = [frame for frame in captured("transaction") if frame.code == 37][-1]
    (command,) = receive(question.frame).commands
    assert answer.ext is not None
    header = end_of_checked(
        "golden_tx",
        command.header(CheckTransactionStateRequest),
        answer.ext["msgId"],
        COMMIT,
    )
    assert _frame(header, answer.opaque) == answer.frame


def _frame(header: EndTransactionRequest, opaque: int) -> bytes:
    return encode_frame(
        code=RequestCode.END_TRANSACTION,
        flag=FLAG_ONEWAY,
        opaque=opaque,
        header=header,
        language=LanguageCode.JAVA,
    )


def test_a_half_message_that_is_nowhere_cannot_be_ended() -> None:
    queue = MessageQueue(topic="T", broker_name="a", queue_id=1)
    result = SendResult(SendStatus.OK, "ID", "no place", queue, 1)
    with pytest.raises(BadAnswerError, match="32 or 56"):
        end_of_own("g", result, COMMIT)


# --- with a broker ---------------------------------------------------------------------------


async def test_a_committed_message_is_seen_and_others_are_not(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        open_transaction_producer(it.nameserver, "orders", never) as producer,
    ):
        await it.create_topic(TOPIC)

        async def commit(message: Message, result: SendResult) -> TransactionState:
            # Nobody sees it while the local transaction runs.
            assert result.is_ok
            assert not await stored(it)
            return COMMIT

        result = await producer.send(Message(TOPIC, b"yes", "tag", ("k",), 5), commit)
        assert (result.state, result.error) == (COMMIT, None)
        rolled_back = await producer.send(Message(TOPIC, b"no"), lambda *_: ROLLBACK)
        assert rolled_back.state is ROLLBACK
        unknown = await producer.send(Message(TOPIC, b"who knows"), lambda *_: UNKNOWN)
        assert unknown.state is UNKNOWN
        found = await _wait_stored(it, 1)
        assert bodies(found) == ["yes"]
        assert (found[0].message_id, found[0].tag, found[0].keys) == (
            result.message_id,
            "tag",
            ("k",),
        )
        assert found[0].transaction_id == result.message_id


async def test_the_caller_may_decide(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        open_transaction_producer(it.nameserver, "orders", never) as producer,
    ):
        await it.create_topic(TOPIC)
        half = await producer.begin(Message(TOPIC, b"yes"))
        other = await producer.begin(Message(TOPIC, b"no"))
        await other.rollback()
        # The first decision counts.
        await other.commit()
        assert not await stored(it)
        await half.commit()
        # It is an ordinary producer as well.
        await producer.producer.send(Message(TOPIC, b"plain"))
        assert sorted(bodies(await _wait_stored(it, 2))) == ["plain", "yes"]


@pytest.mark.parametrize(
    ("execute", "logged"),
    [
        pytest.param(lambda *_: 1 / 0, "ZeroDivisionError", id="raises"),
        pytest.param(lambda *_: "COMMIT", "returned 'COMMIT', which is no state", id="nonsense"),
        pytest.param(lambda *_: None, "returned None, which is no state", id="nothing"),
    ],
)
async def test_a_local_transaction_that_fails_is_unknown_and_asked_about(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    execute: Callable[[Message, SendResult], Any],
    logged: str,
) -> None:
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return COMMIT

    async with (
        cluster(tmp_path, ("broker-a",), **ASKED_SOON) as it,
        open_transaction_producer(it.nameserver, "orders", check) as producer,
    ):
        await it.create_topic(TOPIC)
        with caplog.at_level(logging.ERROR):
            result = await producer.send(Message(TOPIC, b"x", "tag"), execute)
        assert result.state is UNKNOWN
        assert (result.error is not None) == (logged == "ZeroDivisionError")
        assert logged in caplog.text
        # The broker asks, and gets a yes.
        assert bodies(await _wait_stored(it, 1)) == ["x"]
        assert (asked[0].topic, asked[0].body, asked[0].tag) == (TOPIC, b"x", "tag")
        assert asked[0].message_id == result.message_id
        assert asked[0].queue.broker_name == "broker-a"


async def test_a_check_that_fails_is_unknown_and_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Callable[[], Any]] = [
        lambda: 1 / 0,
        lambda: "nonsense",
        lambda: UNKNOWN,
        lambda: COMMIT,
    ]
    asked = 0

    def check(message: ReceivedMessage) -> TransactionState:
        nonlocal asked
        asked += 1
        state: TransactionState = answers.pop(0)()
        return state

    async with (
        cluster(tmp_path, ("broker-a",), **ASKED_SOON) as it,
        open_transaction_producer(it.nameserver, "orders", check) as producer,
    ):
        await it.create_topic(TOPIC)
        await producer.send(Message(TOPIC, b"x"), lambda *_: UNKNOWN)
        assert bodies(await _wait_stored(it, 1)) == ["x"]
    assert asked == 4
    assert "ZeroDivisionError" in caplog.text
    assert "returned 'nonsense', which is no state" in caplog.text


async def test_a_rolled_back_check_drops_the_message(tmp_path: Path) -> None:
    asked = trio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.set()
        return ROLLBACK if message.body == b"no" else COMMIT

    async with (
        cluster(tmp_path, ("broker-a",), **ASKED_SOON) as it,
        open_transaction_producer(it.nameserver, "orders", check) as producer,
    ):
        await it.create_topic(TOPIC)
        await producer.send(Message(TOPIC, b"no"), lambda *_: UNKNOWN)
        await producer.send(Message(TOPIC, b"yes"), lambda *_: UNKNOWN)
        assert bodies(await _wait_stored(it, 1)) == ["yes"]
        assert asked.is_set()


async def test_another_member_of_the_group_may_be_asked(tmp_path: Path) -> None:
    async with cluster(tmp_path, ("broker-a",), **ASKED_SOON) as it:
        await it.create_topic(TOPIC)
        async with open_transaction_producer(it.nameserver, "orders", never) as producer:
            half = await producer.begin(Message(TOPIC, b"x"))
        # That one is gone without a word about it.
        assert half.result.is_ok
        async with open_transaction_producer(it.nameserver, "orders", lambda _: COMMIT) as other:
            await other.producer.prepare(TOPIC)
            other._client.beat_soon()
            assert bodies(await _wait_stored(it, 1)) == ["x"]


async def test_a_half_message_that_is_not_stored_is_an_error(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        open_transaction_producer(it.nameserver, "orders", never) as producer,
    ):
        await producer.producer.send(Message(TOPIC, b"plain"))
        await it.kill()
        with pytest.raises(SendFailedError):
            await producer.send(Message(TOPIC, b"x"), never_run)


async def test_an_error_of_the_block_comes_out_as_itself() -> None:
    async def fail() -> None:
        async with odd_brokers() as it, open_transaction_producer(it.nameserver, "g", never):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await _bare(fail)


async def _bare(function: Callable[[], Awaitable[None]]) -> None:
    """Run something that has a nursery of its own, whose groups do not matter here."""
    try:
        await function()
    except ExceptionGroup as group:
        (error,) = group.exceptions
        raise error from None


def never_run(message: Message, result: SendResult) -> TransactionState:
    raise AssertionError("the half message is not stored")


# --- with a broker that answers as it is told ------------------------------------------------


class Ends:
    """Takes END_TRANSACTION, and asks questions."""

    def __init__(self) -> None:
        self.headers: list[EndTransactionRequest] = []
        self.remarks: list[str | None] = []

    def take(self, request: Request[EndTransactionRequest]) -> None:
        self.headers.append(request.header)
        self.remarks.append(request.command.remark)


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
async def test_a_half_message_that_is_stored_badly_is_rolled_back(code: ResponseCode) -> None:
    ends = Ends()
    async with (
        odd_brokers(
            handlers={RequestCode.END_TRANSACTION: (ends.take, EndTransactionRequest)}
        ) as it,
        open_transaction_producer(it.nameserver, "orders", never) as producer,
    ):
        it.on_send = lambda name, request: answer_stored(request, code)
        result = await producer.send(Message(TOPIC, b"x"), never_run)
        assert result.state is ROLLBACK
        assert not result.send.is_ok
        await until(lambda: ends.headers)
        (header,) = ends.headers
        assert header.commit_or_rollback == 12
        assert (header.commit_log_offset, header.producer_group) == (0x400, "orders")
        assert header.tran_state_table_offset == result.send.queue_offset
        assert header.msg_id == result.message_id


async def test_all_states_are_told_with_what_went_wrong() -> None:
    ends = Ends()
    async with (
        odd_brokers(
            handlers={RequestCode.END_TRANSACTION: (ends.take, EndTransactionRequest)}
        ) as it,
        open_transaction_producer(it.nameserver, "orders", never) as producer,
    ):
        kinds: list[int] = []

        def keep(name: str, request: Request[SendMessageRequestV2]) -> None:
            kinds.append(request.header.sys_flag)
            answer_stored(request, ResponseCode.SUCCESS)

        it.on_send = keep
        for state in (COMMIT, ROLLBACK, UNKNOWN):
            await producer.send(Message(TOPIC, b"x"), lambda *_, state=state: state)
        await producer.send(Message(TOPIC, b"x"), lambda *_: 1 / 0)  # type: ignore[arg-type]
        await until(lambda: len(ends.headers) == 4)
        assert [header.commit_or_rollback for header in ends.headers] == [8, 12, 0, 0]
        assert kinds == [4] * 4
        assert ends.remarks[:3] == [None] * 3
        assert "ZeroDivisionError" in str(ends.remarks[3])


async def test_a_decision_that_cannot_be_told_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        odd_brokers() as it,
        open_transaction_producer(it.nameserver, "orders", never) as producer,
    ):
        half = await producer.begin(Message(TOPIC, b"x"))
        it.addresses["broker-a"] = "127.0.0.1:1"
        await producer._client.refresh_route(TOPIC)
        await half.commit()
        assert "was not told" in caplog.text
        assert "cannot connect to 127.0.0.1:1" in caplog.text


# --- questions -------------------------------------------------------------------------------


def _half(number: int = 0) -> StoredRecord:
    """The half message that the golden broker asked about, with another id."""
    (question,) = [frame for frame in captured("transaction") if frame.code == 39]
    (command,) = receive(question.frame).commands
    assert command.body is not None
    key = b"FD0000000000000000000000000000022C4B5FFD2B274DDAA0310002"
    return decode_record(command.body.replace(key, b"%056d" % number))


def _question(offset: int = 7) -> CheckTransactionStateRequest:
    return CheckTransactionStateRequest(
        tran_state_table_offset=offset, commit_log_offset=offset, transaction_id="T1"
    )


async def test_the_last_of_several_questions_about_a_message_is_answered() -> None:
    ends = Ends()
    begun, may_end = trio.Event(), trio.Event()
    checks = 0

    async def check(message: ReceivedMessage) -> TransactionState:
        nonlocal checks
        checks += 1
        begun.set()
        await may_end.wait()
        return COMMIT

    async with (
        odd_brokers(
            handlers={RequestCode.END_TRANSACTION: (ends.take, EndTransactionRequest)}
        ) as it,
        open_transaction_producer(it.nameserver, "orders", check) as producer,
    ):
        producer.check_transaction(it.nameserver, _question(7), _half())
        await begun.wait()
        # The half message was moved when it was asked about again.
        producer.check_transaction(it.nameserver, _question(9), _half())
        may_end.set()
        await until(lambda: ends.headers)
        (header,) = ends.headers
        assert (header.commit_log_offset, header.from_transaction_check) == (9, True)
        assert (header.transaction_id, header.broker_name) == ("T1", None)
        assert checks == 1


async def test_checks_that_hang_do_not_hold_up_others_for_ever() -> None:
    ends = Ends()

    async def check(message: ReceivedMessage) -> TransactionState:
        if message.message_id.endswith("1"):
            await trio.sleep_forever()
        return COMMIT

    async with (
        odd_brokers(
            handlers={RequestCode.END_TRANSACTION: (ends.take, EndTransactionRequest)}
        ) as it,
        open_client(it.nameserver) as client,
    ):
        producer = TransactionProducer(
            client, ProducerConfig(group="orders"), check, check_timeout_s=0.1
        )
        async with producer.running():
            for number in range(40):
                producer.check_transaction(it.nameserver, _question(number), _half(number))
            await until(lambda: len(ends.headers) == 40)
            states = {
                header.commit_log_offset: header.commit_or_rollback for header in ends.headers
            }
            assert {number for number, state in states.items() if state == 0} == {1, 11, 21, 31}


async def test_questions_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmq.client.tasks.transactions.CHECKS_MAX", 20)
    checks = 0

    async def check(message: ReceivedMessage) -> TransactionState:
        nonlocal checks
        checks += 1
        await trio.sleep_forever()
        return COMMIT

    async with (
        odd_brokers() as it,
        open_transaction_producer(it.nameserver, "orders", check) as producer,
    ):
        for number in range(30):
            producer.check_transaction(it.nameserver, _question(), _half(number))
        assert caplog.text.count("it will ask again") == 10
        await until(lambda: checks == 16)
    # They end with the producer; a question that comes later is not answered.
    producer.check_transaction(it.nameserver, _question(), _half())


async def test_a_tracer_is_told_how_transactions_end(tmp_path: Path) -> None:
    notes = Notes()
    async with (
        cluster(tmp_path, ("broker-a",), **ASKED_SOON) as it,
        open_client(it.nameserver) as client,
    ):
        await it.create_topic(TOPIC)
        config = ProducerConfig(group="orders")
        async with transacting(client, config, lambda _: COMMIT, tracer=notes) as producer:
            result = await producer.send(Message(TOPIC, b"x", "tag", ("k",)), lambda *_: UNKNOWN)
            await until(lambda: len(notes.ends) == 2)
        own, asked = notes.ends
        assert (own.state, own.is_from_check) == (UNKNOWN, False)
        assert (asked.state, asked.is_from_check) == (COMMIT, True)
        for end in notes.ends:
            assert (end.group, end.topic, end.tag, end.keys) == ("orders", TOPIC, "tag", ("k",))
            assert end.message_id == end.transaction_id == result.message_id
            assert end.address == it.address()
        assert notes.sends[0].kind == 1


async def _wait_stored(it: Cluster, count: int) -> list[ReceivedMessage]:
    with trio.fail_after(20):
        while len(found := await stored(it)) < count:
            pass
    return found
