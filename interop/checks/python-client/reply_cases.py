"""Requests that are answered: ours by a stock consumer, a stock producer's by ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from our_messages import ours

from interop.support.cases import MismatchError, expect, expect_true
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing
from interop.support.java_requests import asker, replier
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.trio.opening import open_producer, open_push_consumer
from rmq.errors import RequestTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from python_session import PythonSession

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.producer import Producer

PART: Final = "request"
TIMEOUT_S: Final = 15.0
BIG: Final = b"0123456789abcdef" * 4096
"""Compressed on its way, there and back."""


async def run_reply_cases(session: PythonSession) -> None:
    await _asks(session)
    await _answers(session)
    await _nobody(session)


async def _asks(session: PythonSession) -> None:
    await session.create_topic("PyAsk")
    async with replier(session.driver, "replier", group="repliers", topic="PyAsk"):
        with session.operation(PART, "ours asks, a stock consumer replies"):
            reply = await session.producer.request(ours(Outgoing("PyAsk", b"hello")), TIMEOUT_S)
            expect("reply", reply.body, b"re: hello")
            expect("kind", reply.properties.get("MSG_TYPE"), "reply")

        with session.operation(PART, "64 KiB there and back"):
            reply = await session.producer.request(ours(Outgoing("PyAsk", BIG)), TIMEOUT_S)
            expect_true("the same bytes", reply.body == b"re: " + BIG)

        with session.operation(PART, "ten of ours at once, each gets its own reply"):
            replies: dict[int, bytes] = {}

            async def ask_one(number: int) -> None:
                message = Outgoing("PyAsk", f"question {number}".encode())
                reply = await session.producer.request(ours(message), TIMEOUT_S)
                replies[number] = reply.body

            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(ask_one, number)
            expect("replies", replies, {n: f"re: question {n}".encode() for n in range(10)})


async def _answers(session: PythonSession) -> None:
    await session.create_topic("PyAnswer")
    # What it answers with belongs to nobody else: replies need a producer.
    async with open_producer(session.nameserver, "py-repliers") as producer:

        async def answer(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                await producer.reply(message, b"re: " + message.body)

        answering = open_push_consumer(
            session.config(), "py-repliers", "PyAnswer", answer, consume_from=ConsumeFrom.FIRST
        )
        async with answering, asker(session.driver, "asker", group="askers") as stock:
            with session.operation(PART, "a stock producer asks, ours replies"):
                questions = [Outgoing("PyAnswer", f"question {n}".encode()) for n in range(5)]
                replies = await stock.ask(*questions, timeout_s=TIMEOUT_S)
                expect("replies", [r.body for r in replies], [b"re: " + q.body for q in questions])

            with session.operation(PART, "64 KiB from a stock producer, and back"):
                (reply,) = await stock.ask(Outgoing("PyAnswer", BIG), timeout_s=TIMEOUT_S)
                expect_true("the same bytes", reply.body == b"re: " + BIG)

            with session.operation(PART, "ours asks, ours replies"):
                answered = await _ask(session.producer, b"ours")
                expect("reply", answered.body, b"re: ours")


async def _ask(producer: Producer, body: bytes) -> ReceivedMessage:
    return await producer.request(ours(Outgoing("PyAnswer", body)), TIMEOUT_S)


async def _nobody(session: PythonSession) -> None:
    with session.operation(PART, "nobody replies: an error in time, for both clients"):
        await session.create_topic("PyNobody")
        message = Outgoing("PyNobody", b"anybody?")
        started = trio.current_time()
        try:
            await session.producer.request(ours(message), 1.0)
        except RequestTimeoutError:
            took_s = trio.current_time() - started
            expect_true(f"1 s, not {took_s:.2f} s", 0.9 < took_s < 2)
        else:
            raise MismatchError("a reply from nobody")
        async with asker(session.driver, "lonely", group="askers") as stock:
            try:
                await stock.ask(message, timeout_s=1)
            except StockClientError as exc:
                expect("error", exc.kind, "RequestTimeoutException")
            else:
                raise MismatchError("a reply from nobody")
