"""A pool of listener tasks with queues that are filled by hand, for tests without a broker."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from rmq.client.core.consuming.config import PushConsumerConfig
from rmq.client.core.consuming.offset_store import OffsetTable
from rmq.client.core.received import ReceivedMessage, decode_messages
from rmq.client.tasks.assignment import AssignedQueue
from rmq.client.tasks.listener_pool import CallLimits, ListenerPool
from rmq.client.tasks.services import ConcurrentService, OrderlyService
from rmq.client.tasks.status import ConsumeStatistics
from rmq.client.trio.loop import TRIO
from rmq.errors import ConnectFailedError
from rmq.model.queues import MessageQueue
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from rmq.client.core.trace import ConsumeCode
    from rmq.client.tasks.listener_pool import ConsumeService, Listener


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="Orders", broker_name="broker-a", queue_id=number)


class Bench:
    """A pool with queues that are filled by hand."""

    def __init__(self, *, orderly: bool, batch_max: int, retries_max: int | None) -> None:
        self.offsets = OffsetTable()
        self.statistics = ConsumeStatistics()
        self.tracer = Notes()
        self.sent_back: list[tuple[int, int]] = []
        """Offset and level of what was sent back."""
        self.given_up: list[int] = []
        self.failures_left = 0
        """How many times sending back fails first."""
        self.pool: ListenerPool
        self.nursery: trio.Nursery
        self.orderly = orderly
        self.relocked: list[AssignedQueue] = []
        self.service: ConsumeService
        config = PushConsumerConfig(
            group="g",
            is_orderly=orderly,
            batch_messages_max=batch_max,
            reconsume_times_max=retries_max,
            suspend_queue_s=1.0,
        )
        if orderly:
            self.service = OrderlyService(
                config,
                self.offsets,
                give_up=self._give_up,
                relock=self.relocked.append,
                offer=lambda turn: self.pool.offer(turn),
                after=self._after,
            )
        else:
            self.service = ConcurrentService(
                config,
                self.offsets,
                send_back=self._send_back,
                offer=lambda turn: self.pool.offer(turn),
                after=self._after,
            )

    def add(self, number: int = 0) -> AssignedQueue:
        now = trio.current_time()
        it = AssignedQueue(
            queue(number),
            0,
            now,
            messages_max=1000,
            bytes_max=1 << 30,
            span_max=None,
            calls_max=1 if self.orderly else None,
        )
        it.lock(now)
        self.pool.add(it.turn)
        return it

    def fill(self, it: AssignedQueue, count: int) -> None:
        first = it.process.next_offset
        data = b"".join(
            build_record(topic=b"Orders", queue_offset=offset, body=b"m%d" % offset)
            for offset in range(first, first + count)
        )
        it.process.put(decode_messages(data, it.queue), first + count)
        self.pool.offer(it.turn)

    async def _send_back(self, message: ReceivedMessage, level: int) -> None:
        await trio.sleep(0.01)
        self._maybe_fail()
        self.sent_back.append((message.queue_offset, level))

    async def _give_up(self, message: ReceivedMessage) -> None:
        self._maybe_fail()
        self.given_up.append(message.queue_offset)

    def _maybe_fail(self) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise ConnectFailedError("a:1", "refused")

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await trio.sleep(seconds)
            act()

        self.nursery.start_soon(wait)


class Notes:
    """A tracer that remembers."""

    def __init__(self) -> None:
        self.codes: list[ConsumeCode] = []
        self.open: set[str] = set()

    def sent(self, event: Any) -> None:  # noqa: ANN401 - not for consumers
        raise AssertionError(event)

    def transaction_ended(self, event: Any) -> None:  # noqa: ANN401 - not for consumers
        raise AssertionError(event)

    def consuming(
        self, group: str, messages: Sequence[ReceivedMessage], *, started_at_ms: int
    ) -> str:
        request_id = f"{messages[0].queue.queue_id}/{messages[0].queue_offset}"
        self.open.add(request_id)
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
        self.open.remove(request_id)
        self.codes.append(code)


@asynccontextmanager
async def bench(
    listener: Listener,
    *,
    calls_max: int = 20,
    timeout_s: float | None = 900.0,
    orderly: bool = False,
    batch_max: int = 1,
    retries_max: int | None = None,
) -> AsyncIterator[Bench]:
    it = Bench(orderly=orderly, batch_max=batch_max, retries_max=retries_max)
    it.statistics.watch("Orders", trio.current_time())
    it.pool = ListenerPool(
        listener,
        it.service,
        group="g",
        limits=CallLimits(calls_max, timeout_s),
        statistics=it.statistics,
        loop=TRIO,
        tracer=it.tracer,
    )
    async with trio.open_nursery() as nursery:
        it.nursery = nursery
        await nursery.start(it.pool.run)
        try:
            yield it
        finally:
            nursery.cancel_scope.cancel()
