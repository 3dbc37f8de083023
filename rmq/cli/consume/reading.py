"""What `rmq consume` reads, and when it stops."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.cli.consume.places import (
    Place,
    Span,
    Start,
    move_to_start,
    not_begun,
    topic_spans,
)
from rmq.client.core.consuming.group import check_filter
from rmq.client.core.consuming.pull_subscriptions import subscription
from rmq.client.core.consuming.subscription_set import Sql
from rmq.errors import NotAssignedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from rmq.client.core.consuming.subscription_set import Expression
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.lite_pull import LitePullConsumer
    from rmq.client.tasks.lite_reader import Change
    from rmq.model.queues import MessageQueue

BATCH_MESSAGES: Final = 256
"""How many messages are written at once."""
POLL_S: Final = 0.1
"""How long to wait for messages before checking whether all is read."""
SHARE_WAIT_S: Final = 5.0
"""How long a group may take to assign queues here, before all count as assigned elsewhere."""
FAILING_S: Final = 15.0
"""How long reads of a queue may fail before the command fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line says."""

    topic: str
    expression: Expression
    group: str | None
    start: Start | None
    """None: not said."""
    count: int | None
    follows: bool
    is_json: bool

    @property
    def stops_at_end(self) -> bool:
        """Whether to stop at the end of what was there."""
        return self.count is None and not self.follows

    @property
    def is_endless(self) -> bool:
        """Whether only a signal ends it."""
        return self.count is None and self.follows


@final
class Stop:
    """Ends the reading: on a signal, or when the reader of standard output is gone."""

    def __init__(self) -> None:
        self.signals = 0
        self.is_reader_gone = False
        self.forced = trio.CancelScope()
        """Is cancelled by a second signal: then nothing is waited for."""
        self._scope: trio.CancelScope | None = None

    @property
    def is_set(self) -> bool:
        return self.signals > 0 or self.is_reader_gone

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Stop what is done in a block as soon as it is time."""
        with trio.CancelScope() as scope:
            self._scope = scope
            if self.is_set:
                scope.cancel()
            try:
                yield
            finally:
                self._scope = None

    async def watch_signals(self, signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            self.signals += 1
            self._cancel()
            if self.signals > 1:
                self.forced.cancel()

    async def watch_reader(self, wait_gone: Callable[[], Awaitable[None]]) -> None:
        await wait_gone()
        self.is_reader_gone = True
        self._cancel()

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()


@final
class Reading:
    """Polls messages, and gives out those that are wanted until there are no more."""

    def __init__(self, consumer: LitePullConsumer, wanted: Wanted) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._spans: Mapping[MessageQueue, Span] = {}
        """What was there; empty if it does not matter."""
        self._left = math.inf if wanted.count is None else wanted.count
        self._by_time: set[MessageQueue] = set()
        """Queues that were begun at a time, or a little before it."""
        self._new: set[MessageQueue] = set()
        self._ended: set[MessageQueue] = set()
        self._failing_since: float | None = None
        self._share_deadline = math.inf

    # --- which queues ------------------------------------------------------------------------

    async def begin(self) -> None:
        """Take part in the group, or take all queues."""
        wanted, consumer = self._wanted, self._consumer
        client = consumer.client
        if wanted.stops_at_end:
            self._spans = await client.run(topic_spans(client.nameservers, wanted.topic))
        if wanted.group is not None:
            self._share_deadline = trio.current_time() + SHARE_WAIT_S
            await consumer.subscribe(wanted.topic, wanted.expression, on_change=self._changed)
            return
        queues = await consumer.queues(wanted.topic)
        if isinstance(wanted.expression, Sql):
            await client.run(
                check_filter(
                    await client.route(wanted.topic),
                    consumer.group,
                    client.client_id,
                    subscription(wanted.topic, wanted.expression),
                )
            )
        if self._spans:
            # One that has come meanwhile holds nothing that was there.
            queues = tuple(queue for queue in queues if queue in self._spans)
        start = wanted.start or Start(Place.EARLIEST)
        await consumer.assign(queues, {wanted.topic: wanted.expression})
        await move_to_start(consumer, queues, start)
        if start.place is Place.TIME:
            self._by_time.update(queues)

    def _changed(self, change: Change) -> None:
        self._new.update(change.added)
        self._new.difference_update(change.removed)
        self._ended.difference_update(change.removed)

    async def _place_new(self) -> None:
        """Begin newly assigned queues where `--from` says, if the group has not begun them."""
        new, self._new = sorted(self._new), set()
        start, group = self._wanted.start, self._wanted.group
        if group is None or start is None or not new:
            return
        for queue in await not_begun(self._consumer.client, group, new):
            try:
                await move_to_start(self._consumer, [queue], start)
            except NotAssignedError:
                continue
            if start.place is Place.TIME:
                self._by_time.add(queue)

    # --- messages ----------------------------------------------------------------------------

    async def next(self, stop: Stop) -> list[ReceivedMessage] | None:
        """Return the next messages, maybe none now; None: that was all."""
        if self._left <= 0:
            return None
        room = int(min(BATCH_MESSAGES, self._left))
        messages: list[ReceivedMessage] = []
        with stop.stoppable():
            if self._new:
                await self._place_new()
            messages = await self._consumer.poll(POLL_S, room)
        # From here on nothing is stopped: what was polled must come out.
        kept = [message for message in messages if self._is_wanted(message)]
        await self._end_queues(messages)
        self._left -= len(kept)
        if not messages and not stop.is_set:
            self._check_failures()
            if self._wanted.stops_at_end and await self._is_all_read():
                return None
        return kept

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        queue = message.queue
        if queue in self._by_time:
            start = self._wanted.start
            assert start is not None
            # Brokers return the message nearest to a time, before or after it.
            if message.stored_at_ms < start.time_ms:
                return False
        span = self._spans.get(queue)
        return span is None or message.queue_offset < span.end

    async def _end_queues(self, messages: Sequence[ReceivedMessage]) -> None:
        """Stop reading queues whose messages were all read."""
        if not self._spans:
            return
        beyond: dict[MessageQueue, int] = {}
        for message in messages:
            span = self._spans.get(message.queue)
            if span is not None and message.queue_offset >= span.end:
                beyond.setdefault(message.queue, message.queue_offset)
        for queue, offset in beyond.items():
            try:
                # Not to be counted as consumed: it was not there when we began.
                await self._consumer.seek(queue, offset)
                self._consumer.pause([queue])
            except NotAssignedError:
                continue
            self._ended.add(queue)

    async def _is_all_read(self) -> bool:
        assignment = self._consumer.assignment
        if not assignment and self._wanted.group is not None:
            return trio.current_time() > self._share_deadline
        for queue in assignment:
            span = self._spans.get(queue, Span(0, 0))
            if queue not in self._ended and await self._consumer.position(queue) < span.end:
                return False
        return not self._new

    def _check_failures(self) -> None:
        """Raise the error of a queue that must be read to its end, if it has lasted too long.

        With `--follow` there is no limit; the consumer logs what is wrong.
        """
        failures = self._consumer.statistics().failures
        now = trio.current_time()
        if not failures or self._wanted.follows:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > FAILING_S:
            raise next(iter(failures.values()))
