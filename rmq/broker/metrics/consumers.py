"""Metrics of consumer groups: how far they are behind, in messages and in seconds.

Per topic and group, over the queues of this broker, as RocketMQ 5 counts it:

    lag        stored, but not committed
    in flight  handed out, but not committed
    ready      not handed out yet

What a group was handed is known since this broker started; before its first pull nothing is in
flight. A queue that a group never committed counts from its first message. The ages are those of
the first messages not committed and not handed out (`rmq.broker.metrics.ages`).

Only a present master shows them: a slave has offsets, too, and every backlog would count twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.broker.metrics.ages import Place
from rmq.broker.metrics.names import PAIRS_MAX, put_unlisted
from rmq.broker.metrics.traffic import UNLISTED
from rmq.metrics.families import Catalogue
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.broker.metrics.ages import StoreTimes
    from rmq.broker.metrics.names import Names
    from rmq.broker.stats.broker import BrokerStats
    from rmq.broker.tables.consumer_offsets import ConsumerOffsets
    from rmq.broker.tables.topics import TopicTable
    from rmq.metrics.families import Sheet
    from rmq.store.queue_table import QueueTable

CATALOGUE: Final = Catalogue()
_LABELS: Final = ("topic", "consumer_group", "is_retry", "is_system")

LAG: Final = CATALOGUE.gauge(
    "rocketmq_consumer_lag_messages", "Messages stored, but not committed by the group.", *_LABELS
)
LAG_SECONDS: Final = CATALOGUE.gauge(
    "rocketmq_consumer_lag_seconds",
    "Age of the first message not committed; absent while it is not known.",
    *_LABELS,
)
COMMITTED: Final = CATALOGUE.gauge(
    "rocketmq_consumer_committed_messages",
    "Where the group is: the sum of its offsets over the queues of the topic.",
    *_LABELS,
)
IN_FLIGHT: Final = CATALOGUE.gauge(
    "rocketmq_consumer_inflight_messages",
    "Messages handed to the group, but not committed.",
    *_LABELS,
)
READY: Final = CATALOGUE.gauge(
    "rocketmq_consumer_ready_messages", "Messages not handed to the group yet.", *_LABELS
)
QUEUEING: Final = CATALOGUE.gauge(
    "rocketmq_consumer_queueing_latency_seconds",
    "Age of the first message not handed out yet; absent while it is not known.",
    *_LABELS,
)
QUEUE_LAG: Final = CATALOGUE.gauge(
    "rocketmq_consumer_queue_lag_messages",
    "Messages of a queue not committed by the group; for groups that are asked for.",
    "topic",
    "consumer_group",
    "queue_id",
)
DLQ_MESSAGES: Final = CATALOGUE.gauge(
    "rocketmq_dlq_messages", "Messages in the dead-letter topic of a group.", "consumer_group"
)

QUEUES_MAX: Final = 5000
"""How many series of single queues are shown."""
_QUEUES_PER_STEP: Final = 300
"""About half a millisecond."""


class Progress(NamedTuple):
    """Where it is known how far groups are."""

    offsets: ConsumerOffsets
    topics: TopicTable
    queues: QueueTable
    stats: BrokerStats
    """What they were handed."""


class _Row(NamedTuple):
    """What one group has of one topic."""

    labels: tuple[str, str, str, str]
    lag: int
    committed: int
    in_flight: int
    ready: int
    unread: tuple[Place, ...]
    """The first message not committed, of each queue that has one."""
    waiting: tuple[Place, ...]
    """The first message not handed out, of each queue that has one."""
    queues: tuple[tuple[int, int], ...]
    """Each queue and its lag, where that is asked for."""


@final
class ConsumerMetrics:
    """Shows how far the groups of a master are."""

    catalogue: Final = CATALOGUE

    def __init__(
        self,
        progress: Progress,
        names: Names,
        times: StoreTimes,
        *,
        is_master: Callable[[], bool],
        now_ms: Callable[[], int],
        queue_groups: Callable[[], tuple[str, ...]],
    ) -> None:
        self._offsets = progress.offsets
        self._topics = progress.topics
        self._queues = progress.queues
        self._stats = progress.stats
        self._names = names
        self._times = times
        self._is_master = is_master
        self._now_ms = now_ms
        self._queue_groups = queue_groups
        self._rows: list[_Row] = []
        self._left_out = 0

    def prepare(self, sheet: Sheet) -> Iterator[None]:
        """Look where all groups are, and which messages must be looked up for that."""
        self._rows = []
        self._left_out = 0
        if not self._is_master():
            return
        detailed = {*self._queue_groups(), *filter(None, sheet.query.get("queues", "").split(","))}
        times = self._times
        times.begin()
        looked_at = 0
        for pairs in self._offsets.pairs_in_steps():
            for topic, group in pairs:
                if not self._names.has_pair(topic, group):
                    continue
                if len(self._rows) >= PAIRS_MAX:
                    self._left_out += 1
                    continue
                row = self._row(topic, group, group in detailed)
                self._rows.append(row)
                times.want(row.unread)
                times.want(row.waiting)
                looked_at += self._topics_queues(topic)
                if looked_at >= _QUEUES_PER_STEP:
                    looked_at = 0
                    yield
            yield
        times.end()
        yield

    def refresh(self) -> None:
        """Look up when messages were stored. Blocks."""
        self._times.read()

    def _topics_queues(self, topic: str) -> int:
        config = self._topics.get(topic)
        return 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)

    def _row(self, topic: str, group: str, is_detailed: bool) -> _Row:
        offsets = self._offsets.offsets(group, topic)
        pulled = self._stats.pulled(group, topic)
        lag = committed = in_flight = ready = 0
        unread: list[Place] = []
        waiting: list[Place] = []
        queues: list[tuple[int, int]] = []
        for queue_id in range(self._topics_queues(topic)):
            queue = self._queues.get(topic, queue_id)
            if queue is None:
                continue
            end = int(queue.next_offset)
            offset = offsets.get(queue_id, 0)
            done = min(end, max(int(queue.min_offset), offset))
            given = min(end, max(done, pulled.get(queue_id, 0)))
            if done < end:
                lag += end - done
                unread.append(Place(topic, queue_id, done))
            if given < end:
                ready += end - given
                waiting.append(Place(topic, queue_id, given))
            committed += offset
            in_flight += given - done
            if is_detailed:
                queues.append((queue_id, end - done))
        labels = (
            topic,
            group,
            "true" if topic.startswith(RETRY_PREFIX) else "false",
            self._names.is_system(topic, group),
        )
        return _Row(
            labels, lag, committed, in_flight, ready, tuple(unread), tuple(waiting), tuple(queues)
        )

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        now_ms, ages = self._now_ms(), self._times
        lags, seconds = sheet.table(LAG), sheet.table(LAG_SECONDS)
        committed = sheet.table(COMMITTED)
        in_flight, ready = sheet.table(IN_FLIGHT), sheet.table(READY)
        queueing = sheet.table(QUEUEING)
        queues_shown = 0
        for number, row in enumerate(self._rows, start=1):
            labels = row.labels
            lags.append((labels, row.lag))
            committed.append((labels, row.committed))
            in_flight.append((labels, row.in_flight))
            ready.append((labels, row.ready))
            for family, places in ((seconds, row.unread), (queueing, row.waiting)):
                age_s = ages.oldest_s(places, now_ms)
                if age_s is not None:
                    family.append((labels, age_s))
            for queue_id, lag in row.queues:
                if queues_shown < QUEUES_MAX:
                    queues_shown += 1
                    sheet.put(QUEUE_LAG, lag, labels[0], labels[1], str(queue_id))
            if number % 100 == 0:
                yield
        put_unlisted(sheet, UNLISTED, LAG, len(self._rows) + self._left_out, len(self._rows))
        self._rows = []
        if self._is_master():
            yield from self._put_dead_letters(sheet)

    def _put_dead_letters(self, sheet: Sheet) -> Iterator[None]:
        shown = 0
        for number, topic in enumerate(list(self._topics.names()), start=1):
            if number % 500 == 0:
                yield
            if not topic.startswith(DLQ_PREFIX) or shown >= PAIRS_MAX:
                continue
            group = topic.removeprefix(DLQ_PREFIX)
            count = 0
            for queue_id in range(self._topics_queues(topic)):
                queue = self._queues.get(topic, queue_id)
                if queue is not None:
                    count += queue.next_offset - queue.min_offset
            sheet.put(DLQ_MESSAGES, count, group)
            shown += 1
        yield
