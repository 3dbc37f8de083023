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

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from rmq.broker.metrics.names import PAIRS_MAX, put_unlisted
from rmq.broker.metrics.traffic import UNLISTED
from rmq.metrics.families import Catalogue
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.broker.metrics.ages import Place, StoreTimes
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


_Queue: TypeAlias = tuple[int, int, int]
"""The number of a queue, its first offset, and the one behind its last."""


class _Row(NamedTuple):
    """What one group has of one topic."""

    labels: tuple[str, str, str, str]
    lag: int
    committed: int
    in_flight: int
    ready: int
    unread: tuple[Place, ...]
    """The first message not committed, of each queue that has one."""
    waiting: tuple[Place, ...] | None
    """The first message not handed out, of each queue that has one; None: the same ones."""
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
        self._by_topic: dict[str, list[_Queue]] = {}
        """The queues of the topics that this scrape has come to; many groups read one."""
        self._looked_at = 0

    def prepare(self, sheet: Sheet) -> Iterator[None]:
        """Look where all groups are, and which messages must be looked up for that."""
        # A scrape that took too long has left some.
        self._rows, self._by_topic = [], {}
        self._left_out = 0
        if not self._is_master():
            return
        detailed = {*self._queue_groups(), *filter(None, sheet.query.get("queues", "").split(","))}
        times, rows, has_pair = self._times, self._rows, self._names.has_pair
        times.begin()
        for pairs in self._offsets.pairs_in_steps():
            for number, (topic, group) in enumerate(pairs):
                if not has_pair(topic, group):
                    continue
                if len(rows) >= PAIRS_MAX:
                    self._left_out += sum(1 for pair in pairs[number:] if has_pair(*pair))
                    break
                if topic not in self._by_topic:
                    yield from self._looking_at(topic)
                row = self._row(topic, group, group in detailed)
                rows.append(row)
                times.want(row.unread)
                if row.waiting is not None:
                    times.want(row.waiting)
                if self._is_enough(1 + len(self._by_topic[topic])):
                    yield
            yield
        times.end()
        self._by_topic = {}
        yield

    def refresh(self) -> None:
        """Look up when messages were stored. Blocks."""
        self._times.read()

    def _is_enough(self, count: int) -> bool:
        """Note that this many queues were looked at, and tell whether a step is over by that."""
        self._looked_at += count
        if self._looked_at < _QUEUES_PER_STEP:
            return False
        self._looked_at = 0
        return True

    def _looking_at(self, topic: str) -> Iterator[None]:
        """Note which queues of a topic have messages, and where they begin and end."""
        found = self._by_topic[topic] = []
        for queue_id in range(self._queue_count(topic)):
            queue = self._queues.get(topic, queue_id)
            if queue is not None:
                found.append((queue_id, int(queue.min_offset), int(queue.next_offset)))
            if self._is_enough(1):
                yield

    def _queue_count(self, topic: str) -> int:
        config = self._topics.get(topic)
        return 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)

    def _row(self, topic: str, group: str, is_detailed: bool) -> _Row:
        offsets = self._offsets.offsets(group, topic)
        pulled = self._stats.pulled(group, topic)
        lag = committed = in_flight = 0
        unread: list[Place] = []
        waiting: list[Place] = []
        queues: list[tuple[int, int]] = []
        for queue_id, begin, end in self._by_topic[topic]:
            offset = offsets.get(queue_id, 0)
            done = min(end, max(begin, offset))
            given = min(end, max(done, pulled.get(queue_id, 0)))
            if done < end:
                lag += end - done
                unread.append((topic, queue_id, done))
            if given < end:
                waiting.append((topic, queue_id, given))
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
        # Mostly nothing is in flight: then both have the same places, looked up once.
        return _Row(
            labels,
            lag,
            committed,
            in_flight,
            lag - in_flight,
            tuple(unread),
            tuple(waiting) if in_flight else None,
            tuple(queues),
        )

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        now_ms, ages = self._now_ms(), self._times
        lags, seconds = sheet.table(LAG), sheet.table(LAG_SECONDS)
        committed = sheet.table(COMMITTED)
        in_flight, ready = sheet.table(IN_FLIGHT), sheet.table(READY)
        queueing = sheet.table(QUEUEING)
        queues_shown = queues_left_out = 0
        for number, row in enumerate(self._rows, start=1):
            labels = row.labels
            lags.append((labels, row.lag))
            committed.append((labels, row.committed))
            in_flight.append((labels, row.in_flight))
            ready.append((labels, row.ready))
            age_s = waits_s = ages.oldest_s(row.unread, now_ms)
            if row.waiting is not None:
                waits_s = ages.oldest_s(row.waiting, now_ms)
            if age_s is not None:
                seconds.append((labels, age_s))
            if waits_s is not None:
                queueing.append((labels, waits_s))
            for queue_id, lag in row.queues:
                if queues_shown >= QUEUES_MAX:
                    queues_left_out += 1
                    continue
                queues_shown += 1
                sheet.put(QUEUE_LAG, lag, labels[0], labels[1], str(queue_id))
            if number % 100 == 0:
                yield
        put_unlisted(sheet, UNLISTED, LAG, self._left_out)
        put_unlisted(sheet, UNLISTED, QUEUE_LAG, queues_left_out)
        self._rows = []
        if self._is_master():
            yield from self._put_dead_letters(sheet)

    def _put_dead_letters(self, sheet: Sheet) -> Iterator[None]:
        shown = left_out = 0
        for number, topic in enumerate(list(self._topics.names()), start=1):
            if number % 500 == 0:
                yield
            if not topic.startswith(DLQ_PREFIX):
                continue
            if shown >= PAIRS_MAX:
                left_out += 1
                continue
            group = topic.removeprefix(DLQ_PREFIX)
            count = 0
            for queue_id in range(self._queue_count(topic)):
                queue = self._queues.get(topic, queue_id)
                if queue is not None:
                    count += queue.next_offset - queue.min_offset
            sheet.put(DLQ_MESSAGES, count, group)
            shown += 1
        put_unlisted(sheet, UNLISTED, DLQ_MESSAGES, left_out)
        yield
