"""Message traces: ours read by stock tools, those of stock clients read by ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from inbox import Inbox
from our_messages import ours

from interop.support.cases import MismatchError, expect, expect_true
from interop.support.expectations import expect_once, expect_sent
from interop.support.java_messages import Outgoing
from interop.support.printed import table
from interop.support.waiting import wait_until
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.trace import ConsumeEndTrace, ConsumeStartTrace, SendTrace
from rmq.client.tasks.tracing import TraceRole
from rmq.client.trio.opening import open_admin, open_producer, open_push_consumer, open_tracing
from rmq.model.names import TRACE_TOPIC

if TYPE_CHECKING:
    from python_session import PythonSession

    from rmq.client.tasks.admin import AdminClient

PART: Final = "trace"
# Traces are written half a second late, and indexed soon after.
WRITTEN_WITHIN_S: Final = 10


async def run_trace_cases(session: PythonSession) -> None:
    await _ours(session)
    await _theirs(session)


async def _ours(session: PythonSession) -> None:
    with session.operation(PART, "queryMsgTraceById shows who of ours sent and consumed it"):
        await session.create_topic("PyTraced")
        message = Outgoing("PyTraced", b"traced", "TagA", "traced-1")
        inbox = Inbox()
        async with (
            open_tracing(session.config(), "py-traced", TraceRole.PRODUCE) as sending,
            open_tracing(session.config(), "py-traced-readers", TraceRole.CONSUME) as consuming,
            open_producer(session.config(), "py-traced", tracer=sending) as producer,
            open_push_consumer(
                session.config(),
                "py-traced-readers",
                "PyTraced",
                inbox,
                tracer=consuming,
                consume_from=ConsumeFrom.FIRST,
            ),
        ):
            result = await producer.send(ours(message))
            expect_once(await inbox.wait(1), [message])

            async def is_shown() -> bool:
                rows = await _shown(session, result.message_id)
                return {row[0] for row in rows} >= {"Pub", "Sub"}

            await wait_until("both traces", is_shown, timeout_s=WRITTEN_WITHIN_S)
            rows = {row[0]: row for row in await _shown(session, result.message_id)}
            expect("producer", (rows["Pub"][1], rows["Pub"][-1]), ("py-traced", "success"))
            consumed = rows["Sub"]
            expect("consumer", (consumed[1], consumed[-1]), ("py-traced-readers", "success"))

    with session.operation(PART, "the config alone turns traces on"):
        config = session.config(trace_topic=TRACE_TOPIC)
        async with open_producer(config, "py-traced-too") as producer:
            result = await producer.send(ours(message))
        output = ""
        with trio.move_on_after(WRITTEN_WITHIN_S):
            while "py-traced-too" not in output:
                shown = await _shown(session, result.message_id)
                output = " ".join(cell for row in shown for cell in row)
                await trio.sleep(0.2)
        expect_true("a trace", "py-traced-too" in output)


async def _shown(session: PythonSession, message_id: str) -> list[list[str]]:
    try:
        output = await session.mqadmin.run("queryMsgTraceById", "-i", message_id)
    except MismatchError as exc:
        # It has a code for "nothing yet".
        if "CODE: 208" not in str(exc):
            raise
        return []
    return [row for row in table(output, columns=7) if row[0] in ("Pub", "Sub")]


async def _theirs(session: PythonSession) -> None:
    with session.operation(PART, "our admin client reads the traces of stock clients"):
        await session.create_topic("PyTracedThere")
        message = Outgoing("PyTracedThere", b"traced", "TagA", "traced-2")
        async with (
            session.driver.producer("traced", group="stock-traced", trace=True) as stock,
            session.driver.push_consumer(
                "traced", group="stock-traced-readers", topic="PyTracedThere", trace=True
            ) as consumer,
            open_admin(session.nameserver) as admin,
        ):
            (sent,) = await stock.send(message)
            expect_sent([sent])
            expect_once(await consumer.wait_received(1), [message])

            async def is_there() -> bool:
                kinds = {type(trace) for trace in await _traces(admin, sent.message_id)}
                return kinds == {SendTrace, ConsumeStartTrace, ConsumeEndTrace}

            await wait_until("three traces", is_there, timeout_s=WRITTEN_WITHIN_S)
            traces = {type(trace): trace for trace in await _traces(admin, sent.message_id)}
            published = traces[SendTrace]
            assert isinstance(published, SendTrace)
            expect(
                "published",
                (published.group, published.topic, published.tag, published.keys, published.is_ok),
                ("stock-traced", "PyTracedThere", "TagA", ("traced-2",), True),
            )
            expect("place", published.offset_message_id, sent.offset_message_id)
            expect("broker", published.store_host, session.broker.address)
            consumed = traces[ConsumeEndTrace]
            assert isinstance(consumed, ConsumeEndTrace)
            expect("consumed", (consumed.group, consumed.is_ok), ("stock-traced-readers", True))


async def _traces(admin: AdminClient, message_id: str) -> list[object]:
    found = await admin.message_traces(message_id)
    return [trace for trace, _ in found.traces]
