"""Writing message traces: notes are taken at once and sent in batches, by a producer of its own.

    async with (
        open_tracing(config, "orders", TraceRole.PRODUCE) as tracer,
        open_producer(config, "orders", tracer=tracer) as producer,
    ):
        ...

Traces must not get in the way of messages. Notes wait in a buffer; when it is full they are dropped
and counted. They are sent when half a second has passed since the first one, or the buffer is half
full, in messages of up to 118,000 bytes as 4.9.8 has it, a few at a time. What cannot be sent is
logged and forgotten. Leaving the block sends what is left, for a few seconds at most.
"""

from __future__ import annotations

import enum
import itertools
import logging
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, final

import anyio

from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message, SendResult
from rmq.client.core.producing.unique_keys import new_unique_keys
from rmq.client.core.trace import (
    DEFAULT_REGION,
    ConsumeCode,
    ConsumeEndTrace,
    ConsumeStartTrace,
    SendTrace,
    Sent,
    TransactionEnded,
    TransactionTrace,
    trace_batches,
)
from rmq.errors import RmqError
from rmq.model.name_rules import GROUP_CHARS_MAX
from rmq.model.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from rmq.client.core.producing.unique_keys import UniqueKeys
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.trace import Trace, TraceBatch, Tracer
    from rmq.client.tasks.loop import Loop

logger = logging.getLogger(__name__)

NOTES_MAX: Final = 1024
"""Notes that wait: of a send, or of all messages that one call of a listener gets."""
BATCH_S: Final = 0.5
"""How long notes wait for others."""
SEND_TIMEOUT_S: Final = 5.0
MESSAGE_BYTES_MAX: Final = 128_000
SENDS_MAX: Final = 10
"""Trace messages under way; more have to wait."""
CLOSE_S: Final = 3.0
"""How long leaving may take."""

INSTANCE_NAME: Final = "PID_CLIENT_INNER_TRACE_PRODUCER"
GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_numbers: Final = itertools.count(1)


class TraceSender(Protocol):
    """Sends trace messages: a producer."""

    async def send(self, message: Message) -> SendResult: ...


class TraceRole(enum.Enum):
    """Whose traces they are, as the name of the group that writes them says it."""

    PRODUCE = "PRODUCE"
    CONSUME = "CONSUME"


@final
class MessageTracer:
    """Records events of messages and sends them as traces. Use `open_tracing` to get one."""

    def __init__(
        self, *, topic: str = TRACE_TOPIC, unique_keys: UniqueKeys, notes_max: int = NOTES_MAX
    ) -> None:
        self.topic = topic
        self.dropped = 0
        """Notes for which there was no room, and traces that could not be sent."""
        self._unique_keys = unique_keys
        self._notes_max = notes_max
        self._notes: deque[Sent | TransactionEnded | tuple[Trace, ...]] = deque()
        self._has_notes = anyio.Event()
        self._is_due = anyio.Event()
        self._is_closing = False
        self._unreported = 0

    # --- taking notes ------------------------------------------------------------------------

    def sent(self, event: Sent) -> None:
        """Note a send. As in 4.9.8 only what was stored is traced, and no trace is."""
        outcome = event.outcome
        if isinstance(outcome, SendResult) and outcome.is_trace_on and not self._is_own(event):
            self._note(event)

    def transaction_ended(self, event: TransactionEnded) -> None:
        """Note what a producer said of a transaction."""
        if not self._is_own(event):
            self._note(event)

    def consuming(
        self, group: str, messages: Sequence[ReceivedMessage], *, started_at_ms: int
    ) -> str:
        """Note that a listener gets messages; return the id that connects this with the outcome."""
        request_id = self._unique_keys.next(started_at_ms)
        traces = tuple(
            ConsumeStartTrace(
                time_ms=started_at_ms,
                region=message.properties.get("MSG_REGION"),
                group=group,
                request_id=request_id,
                message_id=message.message_id,
                retries=message.reconsume_times,
                keys=message.keys,
            )
            for message in messages
            if _is_traced(message)
        )
        if traces:
            self._note(traces)
        return request_id

    def consumed(
        self,
        group: str,
        messages: Sequence[ReceivedMessage],
        *,
        request_id: str,
        ended_at_ms: int,
        took_ms: int,
        code: ConsumeCode,
    ) -> None:
        """Note the outcome. The time is shared by the messages, as in 4.9.8."""
        traces = tuple(
            ConsumeEndTrace(
                request_id=request_id,
                message_id=message.message_id,
                took_ms=took_ms // len(messages),
                is_ok=code is ConsumeCode.SUCCESS,
                keys=message.keys,
                code=code,
                time_ms=ended_at_ms,
                group=group,
            )
            for message in messages
            if _is_traced(message)
        )
        if traces:
            self._note(traces)

    def _is_own(self, event: Sent | TransactionEnded) -> bool:
        return event.topic.startswith(self.topic)

    def _note(self, note: Sent | TransactionEnded | tuple[Trace, ...]) -> None:
        waiting = len(self._notes)
        if waiting >= self._notes_max or self._is_closing:
            self._lost(1)
            return
        self._notes.append(note)
        if not waiting:
            self._has_notes.set()
        if 2 * waiting >= self._notes_max:
            self._is_due.set()

    def _lost(self, count: int) -> None:
        self.dropped += count
        self._unreported += count

    # --- sending them ------------------------------------------------------------------------

    async def run(self, producer: TraceSender) -> None:
        """Send notes until `close` was called and none is left."""
        limiter = anyio.CapacityLimiter(SENDS_MAX)
        async with anyio.create_task_group() as nursery:
            while self._notes or not self._is_closing:
                await self._has_notes.wait()
                with anyio.move_on_after(BATCH_S):
                    await self._is_due.wait()
                notes = self._take()
                for batch in trace_batches(trace for note in notes for trace in _traces(note)):
                    # Waiting here is what makes notes wait, and be dropped when they are many.
                    token = object()
                    await limiter.acquire_on_behalf_of(token)
                    nursery.start_soon(self._send, producer, batch, limiter, token)
                if self._unreported:
                    logger.warning(
                        "%d traces to %s were dropped: the buffer was full, or no broker took them",
                        self._unreported,
                        self.topic,
                    )
                    self._unreported = 0

    def close(self) -> None:
        """Take no more notes, and send what there is at once."""
        self._is_closing = True
        self._has_notes.set()
        self._is_due.set()

    def _take(self) -> deque[Sent | TransactionEnded | tuple[Trace, ...]]:
        notes, self._notes = self._notes, deque()
        if not self._is_closing:
            self._has_notes, self._is_due = anyio.Event(), anyio.Event()
        return notes

    async def _send(
        self,
        producer: TraceSender,
        batch: TraceBatch,
        limiter: anyio.CapacityLimiter,
        token: object,
    ) -> None:
        try:
            await producer.send(Message(self.topic, batch.body, keys=batch.keys))
        except RmqError as exc:
            self._lost(batch.records)
            logger.warning("%d traces were not stored: %s", batch.records, exc)
        finally:
            limiter.release_on_behalf_of(token)


def _traces(note: Sent | TransactionEnded | tuple[Trace, ...]) -> Iterator[Trace]:
    """Return what is written of a note."""
    if isinstance(note, tuple):
        yield from note
    elif isinstance(note, Sent):
        result = note.outcome
        assert isinstance(result, SendResult), "failed sends are not noted"
        yield SendTrace(
            time_ms=note.started_at_ms,
            region=result.region,
            group=note.group,
            topic=note.topic,
            message_id=note.message_id,
            tag=note.tag,
            keys=note.keys,
            store_host=note.address,
            body_bytes=note.body_bytes,
            took_ms=note.took_ms,
            kind=note.kind,
            offset_message_id=result.offset_message_id,
            is_ok=result.is_ok,
        )
    else:
        yield TransactionTrace(
            time_ms=note.ended_at_ms,
            region=DEFAULT_REGION,
            group=note.group,
            topic=note.topic,
            message_id=note.message_id,
            tag=note.tag,
            keys=note.keys,
            store_host=note.address,
            transaction_id=note.transaction_id,
            state=note.state,
            is_from_check=note.is_from_check,
        )


def _is_traced(message: ReceivedMessage) -> bool:
    return message.properties.get("TRACE_ON") != "false"


# --- running ----------------------------------------------------------------------------------


@asynccontextmanager
async def open_tracing(
    loop: Loop, config: ClientConfig | str, group: str, role: TraceRole, *, topic: str | None = None
) -> AsyncIterator[MessageTracer]:
    """Run a tracer for a producer or consumer of a group, for the length of a block.

    It has a client of its own. Traces go to `topic`, or else to that of the config, or else to the
    one that all stock clients write to.
    """
    # They import this module to trace themselves.
    from rmq.client.tasks.producer import open_producer

    if isinstance(config, str):
        config = ClientConfig(nameservers=config)
    own = replace(
        config,
        instance_name=f"{INSTANCE_NAME}_{';'.join(config.addresses)}",
        # Traces are not traced.
        trace_topic=None,
    )
    error: Exception | None = None
    async with (
        open_producer(
            loop,
            own,
            trace_group(group, role),
            send_timeout_s=SEND_TIMEOUT_S,
            message_bytes_max=MESSAGE_BYTES_MAX,
        ) as producer,
        anyio.create_task_group() as nursery,
    ):
        tracer = MessageTracer(
            topic=topic or config.trace_topic or TRACE_TOPIC,
            unique_keys=new_unique_keys(producer.client.client_id.partition("@")[0]),
        )
        done = anyio.Event()

        async def run() -> None:
            # At the end of a cancelled block there is nothing left to wait for.
            try:
                await tracer.run(producer)
            finally:
                done.set()

        nursery.start_soon(run)
        try:
            yield tracer
        except Exception as exc:  # noqa: BLE001 - raised again below, outside the nursery
            error = exc
        finally:
            tracer.close()
            with anyio.move_on_after(CLOSE_S) as scope:
                scope.shield = True
                await done.wait()
            nursery.cancel_scope.cancel()
    if error is not None:
        raise error


@asynccontextmanager
async def traced(
    loop: Loop, config: ClientConfig | str, group: str, role: TraceRole, tracer: Tracer | None
) -> AsyncIterator[Tracer | None]:
    """Give the tracer that a producer or consumer is to have, for the length of a block.

    That is the one it was given; else one of its own if the config names a topic for traces.
    """
    if tracer is not None or isinstance(config, str) or config.trace_topic is None:
        yield tracer
        return
    async with open_tracing(loop, config, group, role) as opened:
        yield opened


def trace_group(group: str, role: TraceRole) -> str:
    """Return the group of the producer that writes traces."""
    ending = f"-{role.value}-{next(_numbers)}"
    room = GROUP_CHARS_MAX - len(GROUP_PREFIX) - 1 - len(ending)
    return f"{GROUP_PREFIX}-{group[:room]}{ending}"
