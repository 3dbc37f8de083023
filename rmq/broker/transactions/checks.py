"""The rounds of transaction checks: when they begin, and how their progress is saved.

Every `transactionCheckInterval` a `CheckRound` goes over the half messages. How far it came is kept
as the consumer offsets of a group of the broker's own, as RocketMQ 4.9.8 does; but they are moved
only when everything the round has read and stored is on disk. Otherwise a power cut could leave
them ahead of the log, and transactions whose producers are never asked again.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.tables.consumer_offsets import NO_OFFSET
from rmq.broker.transactions import half
from rmq.broker.transactions.check_round import CheckRound, CheckRules, Progress, RoundStart
from rmq.errors import ClientError, ProtocolError
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from rmq.model.offsets import ConsumerOffset, QueueOffset
from rmq.remoting.codes import RequestCode
from rmq.store.append import AppendStatus
from rmq.store.flusher import FlushOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.serving_parts import ServingParts
    from rmq.broker.stats.store import StoreStats
    from rmq.broker.transactions.copies import HalfCopies
    from rmq.broker.transactions.question import Question
    from rmq.model.record import NewMessage
    from rmq.store.append import AppendResult
    from rmq.store.reads import MessageReads
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

STOP_SAVE_S: Final = 2.0
"""How long a round that is cut off by the end of the broker waits for the disk."""


@final
class TransactionChecks:
    """Asks producers about transactions they have not decided."""

    def __init__(
        self,
        parts: ServingParts,
        clients: ClientRegistry,
        copies: HalfCopies,
    ) -> None:
        self._live = parts.live
        self._store = parts.store
        self._topics = parts.tables.topics
        self._creation = parts.tables.creation
        self._clients = clients
        self._offsets = parts.tables.offsets
        self._copies = copies
        self._stats = parts.stats
        self._store_stats = parts.stats.store
        self._store_host = parts.origin.store_host
        self._now_ms = parts.origin.now_ms
        self._last_start = 0
        """Where the last round began in the half queue."""
        self._unasked: Counter[str] = Counter()
        """By group, questions of this round for which there was no producer."""
        self._reconfigured = trio.Event()
        parts.live.subscribe(lambda _old, _new: self._reconfigured.set())

    async def run(self) -> None:
        """Begin a round every `transactionCheckInterval`, until cancelled.

        May be run again, when the broker has been a slave meanwhile. Then another master has gone
        on, whose progress is in the consumer offsets, and the log may have been cut and grown
        again: what was known of copies would lead to other messages.
        """
        self._copies.clear()
        self._last_start = 0
        self._topics.create_on_send_back(HALF_TOPIC, queues=1)
        while True:
            await self._wait_interval()
            await self.check()

    async def check(self) -> None:
        """Go over the half messages once."""
        start = self._start()
        # Decisions about what was closed in the last round may still come in, so that is kept.
        self._copies.forget_below(self._last_start)
        self._last_start = start.half_offset
        self._unasked.clear()
        config = self._live.current
        checking = CheckRound(
            _CountedStore(self._store, self._store_stats),
            self._copies,
            CheckRules(
                timeout_ms=config.transaction_timeout_ms,
                times_max=config.transaction_check_max,
                reserved_hours=config.store.reserved_hours,
            ),
            RoundStart(
                start,
                at_ms=self._now_ms(),
                can_give_up=self._topics.get(TRANSACTION_CHECK_MAX_TOPIC) is not None
                and not self._creation.is_under_way(TRANSACTION_CHECK_MAX_TOPIC),
            ),
            store_host=self._store_host,
            ask=self._ask,
            counted=self._count_read,
        )
        try:
            while checking.step(self._now_ms()) or await self._make_room(checking):
                await trio.lowlevel.checkpoint()
            if checking.progress != start:
                await self._store.wait_flushed(self._store.log.written)
        finally:
            # Also when the broker stops: a producer should not be asked again at the next start.
            with trio.move_on_after(STOP_SAVE_S, shield=True):
                await self._save(start, checking.progress)
            self._report(checking)

    async def _make_room(self, checking: CheckRound) -> bool:
        """Have a topic for what a round gives up, in its file before its first message."""
        if not checking.wants_to_give_up or checking.can_give_up:
            return False
        done = trio.Event()
        errors: list[Exception] = []

        def then(error: Exception | None) -> None:
            if error is not None:
                errors.append(error)
            done.set()

        self._creation.submit(
            TRANSACTION_CHECK_MAX_TOPIC, self._topics.create_transaction_check_max, then
        )
        await done.wait()
        for error in errors:
            logger.error("transactions cannot be given up yet: %s", error)
        checking.can_give_up = not errors
        return checking.can_give_up

    async def _wait_interval(self) -> None:
        """Wait until the next round is due, by the setting as it is meanwhile."""
        begun = trio.current_time()
        while True:
            self._reconfigured = trio.Event()
            interval_s = self._live.current.transaction_check_interval_ms / 1000
            with trio.move_on_at(begun + interval_s):
                await self._reconfigured.wait()
                continue
            return

    # --- progress ----------------------------------------------------------------------------

    def _start(self) -> Progress:
        return Progress(self._offset_in(HALF_TOPIC), self._offset_in(OP_HALF_TOPIC))

    def _offset_in(self, topic: str) -> QueueOffset:
        offset = self._offsets.query(half.GROUP, topic, half.QUEUE_ID)
        if offset != NO_OFFSET:
            return offset
        queue = self._store.queues.get(topic, half.QUEUE_ID)
        return QueueOffset(0) if queue is None else queue.min_offset

    async def _save(self, start: Progress, reached: Progress) -> None:
        """Move the consumer offsets once the disk has what they rest on."""
        if reached == start:
            return
        log_end = self._store.log.written
        outcome = await self._store.wait_flushed(log_end)
        if outcome is not FlushOutcome.FLUSHED:
            logger.error("how far transactions were checked is not kept: the disk has failed")
            return
        for topic, offset in (
            (HALF_TOPIC, reached.half_offset),
            (OP_HALF_TOPIC, reached.op_offset),
        ):
            self._offsets.commit(
                self._live.current.address, half.GROUP, topic, half.QUEUE_ID, ConsumerOffset(offset)
            )
        self._offsets.progress_rests_on(log_end)

    def _report(self, checking: CheckRound) -> None:
        counts = checking.counts
        if any(counts):
            logger.info(
                "transactions checked: %d decided, %d asked about, %d put off, %d given up",
                *counts,
            )
        for group, count in self._unasked.items():
            logger.warning(
                "no producer of group %s is connected that could be asked about %d transactions",
                group,
                count,
            )

    # --- what a round needs ------------------------------------------------------------------

    def _count_read(self, topic: str, count: int, size: int) -> None:
        self._stats.get(half.GROUP, topic, half.QUEUE_ID, count, size)
        self._stats.broker_get(count)
        self._store_stats.get(count)

    def _ask(self, asked: Question) -> None:
        group = asked.producer_group or ""
        channel = self._clients.pick_producer(group)
        if channel is None:
            self._unasked[group] += 1
            return
        try:
            channel.oneway(RequestCode.CHECK_TRANSACTION_STATE, asked.header, body=asked.body)
        except (ClientError, ProtocolError) as exc:
            # The copy is there, so that it is asked about again in the next round.
            logger.warning("producer %s of group %s not asked: %s", channel.peer, group, exc)


@final
class _CountedStore:
    """The store as a round uses it; what it stores is counted."""

    def __init__(self, store: MessageStore, store_stats: StoreStats) -> None:
        self._store = store
        self._store_stats = store_stats

    @property
    def reads(self) -> MessageReads:
        return self._store.reads

    def append(self, messages: Sequence[NewMessage]) -> list[AppendResult]:
        results = self._store.append(messages)
        for result in results:
            if result.status is AppendStatus.PUT_OK:
                self._store_stats.put(1, result.size)
            else:
                self._store_stats.put_failed()
        return results
