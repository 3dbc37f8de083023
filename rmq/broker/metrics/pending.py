"""Metrics of what waits in the broker: delayed messages and transactions.

What waits is shown by a present master only: a slave has it, too, and it would count twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.broker.transactions import half
from rmq.metrics.families import Catalogue
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rmq.broker.metrics.names import Names
    from rmq.broker.stats.transactions import TransactionStats
    from rmq.broker.tables.consumer_offsets import ConsumerOffsets
    from rmq.metrics.families import Sheet
    from rmq.store.queue_table import QueueTable

CATALOGUE: Final = Catalogue()

DELAYED: Final = CATALOGUE.gauge(
    "rocketmq_schedule_pending_messages", "Delayed messages that are not delivered yet.", "level"
)
HALF: Final = CATALOGUE.gauge(
    "rocketmq_half_messages", "Messages of transactions that are not decided yet."
)
COMMITS: Final = CATALOGUE.counter(
    "rocketmq_commit_messages_total", "Transactions that were committed.", "topic"
)
ROLLBACKS: Final = CATALOGUE.counter(
    "rocketmq_rollback_messages_total", "Transactions that were rolled back.", "topic"
)
FINISH: Final = CATALOGUE.histogram(
    "rocketmq_finish_message_latency_seconds", "From the half message to its commit."
)


@final
class PendingMetrics:
    """Shows what waits."""

    catalogue: Final = CATALOGUE

    def __init__(
        self,
        queues: QueueTable,
        offsets: ConsumerOffsets,
        delays: Callable[[], Mapping[int, tuple[int, int]]],
        levels: Callable[[], int],
        transactions: TransactionStats,
        names: Names,
        *,
        is_master: Callable[[], bool],
    ) -> None:
        """`delays` returns by delay level the delivered and the last offset; `levels` is how many
        there are.
        """
        self._queues = queues
        self._offsets = offsets
        self._delays = delays
        self._levels = levels
        self._transactions = transactions
        self._names = names
        self._is_master = is_master

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        stats = self._transactions
        for family, counts in ((COMMITS, stats.commits), (ROLLBACKS, stats.rollbacks)):
            for topic, count in counts.items():
                if self._names.has_topic(topic):
                    sheet.put(family, count, topic)
        sheet.put_histogram(FINISH, stats.finish)
        yield
        if not self._is_master():
            return
        delays = self._delays()
        for level in range(1, self._levels() + 1):
            delivered, last = delays.get(level) or (0, self._stored(level))
            sheet.put(DELAYED, max(0, last - delivered), str(level))
        # Each decision is a message of its own, until the next check has gone over both.
        sheet.put(HALF, max(0, self._unchecked(HALF_TOPIC) - self._unchecked(OP_HALF_TOPIC)))
        yield

    def _stored(self, level: int) -> int:
        """Return how many messages a level has, of which none was delivered yet."""
        queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
        return 0 if queue is None else int(queue.next_offset)

    def _unchecked(self, topic: str) -> int:
        """Return how many messages the check of transactions has not come to."""
        queue = self._queues.get(topic, half.QUEUE_ID)
        if queue is None:
            return 0
        checked = self._offsets.query(half.GROUP, topic, half.QUEUE_ID)
        return int(queue.next_offset - max(queue.min_offset, checked))
