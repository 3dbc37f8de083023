"""Metrics of what comes in and goes out: messages by topic and group, sends and how they ended.

The counts are those that `mqadmin statsAll` shows rates of. A topic or group that is deleted, or
was idle for a day, has no samples; in a Prometheus its series ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.broker.metrics.names import PAIRS_MAX, TOPICS_MAX, Names, put_unlisted
from rmq.broker.stats.broker import Totals
from rmq.broker.stats.sends import NOT_MASTER
from rmq.metrics.families import Catalogue
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmq.broker.stats.broker import BrokerStats
    from rmq.metrics.families import Family, Sheet
    from rmq.remoting.server import ServerStatistics

CATALOGUE: Final = Catalogue()
_counter: Final = CATALOGUE.counter
_histogram: Final = CATALOGUE.histogram

MESSAGES_IN: Final = _counter(
    "rocketmq_messages_in_total",
    "Messages stored; those of retry and dead-letter topics are left out.",
    "topic",
    "is_system",
)
BYTES_IN: Final = _counter(
    "rocketmq_throughput_in_total", "The same in bytes.", "topic", "is_system"
)
MESSAGES_OUT: Final = _counter(
    "rocketmq_messages_out_total",
    "Messages handed to consumers; those of retry and dead-letter topics are left out.",
    "topic",
    "consumer_group",
    "is_system",
)
BYTES_OUT: Final = _counter(
    "rocketmq_throughput_out_total",
    "The same in bytes.",
    "topic",
    "consumer_group",
    "is_system",
)
SEND_BACKS: Final = _counter(
    "rocketmq_send_back_messages_total",
    "Messages that consumers sent back, by the topic they were sent to first.",
    "topic",
    "consumer_group",
)
DEAD_LETTERS: Final = _counter(
    "rocketmq_send_to_dlq_messages_total",
    "Messages given up and put to the dead-letter topic, by the topic they were sent to first.",
    "topic",
    "consumer_group",
)
MESSAGE_SIZE: Final = _histogram(
    "rocketmq_message_size_bytes", "Sizes of the messages that clients sent, as they are stored."
)
PUT_RESULTS: Final = _counter(
    "rocketmq_put_results_total",
    "Sends by what the store, the disk and the slaves said in the end.",
    "status",
)
PUT_LATENCY: Final = _histogram(
    "rocketmq_put_latency_seconds",
    "From the first look at a send to the moment when it may be acknowledged.",
)
PUT_STAGE: Final = _histogram(
    "rocketmq_put_stage_seconds",
    "The parts of a send: to be in the log, to be on disk, to be held by slaves.",
    "stage",
)
REJECTED: Final = _counter(
    "rocketmq_requests_rejected_total", "Requests that were refused, by the reason.", "reason"
)
UNLISTED: Final = CATALOGUE.gauge(
    "rocketmq_unlisted_series", "Series left out, because there are too many.", "family"
)

STAGES: Final = ("append", "flush", "replicate")
REFUSALS: Final = tuple(refusal.name.lower() for refusal in Refusal)
REASONS: Final = ("queue_full", "queue_timeout", "pagecache_busy", "acl", NOT_MASTER, *REFUSALS)

_PER_STEP: Final = 200


@final
class TrafficMetrics:
    """Shows what a broker has counted."""

    catalogue: Final = CATALOGUE

    def __init__(
        self,
        stats: BrokerStats,
        names: Names,
        servers: Callable[[], Sequence[ServerStatistics]],
    ) -> None:
        self._stats = stats
        self._names = names
        self._servers = servers

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        yield from self._put_topics(sheet)
        yield from self._put_pairs(sheet)
        self._put_sends(sheet)
        self._put_rejected(sheet)
        yield

    def _put_topics(self, sheet: Sheet) -> Iterator[None]:
        names = self._names
        messages, sizes = sheet.table(MESSAGES_IN), sheet.table(BYTES_IN)
        shown = left_out = 0
        meters = list(self._stats.totals_by_topic().items())
        for number, (topic, meter) in enumerate(meters, start=1):
            if number % _PER_STEP == 0:
                yield
            if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or not names.has_topic(topic):
                continue
            if shown >= TOPICS_MAX:
                left_out += 1
                continue
            shown += 1
            labels = (topic, names.is_system(topic))
            messages.append((labels, meter.value))
            sizes.append((labels, meter.size))
        put_unlisted(sheet, UNLISTED, MESSAGES_IN, left_out)

    def _put_pairs(self, sheet: Sheet) -> Iterator[None]:
        names = self._names
        messages, sizes = sheet.table(MESSAGES_OUT), sheet.table(BYTES_OUT)
        shown = left_out = 0
        meters = list(self._stats.totals_by_pair(Totals.GETS).items())
        for number, (key, meter) in enumerate(meters, start=1):
            if number % _PER_STEP == 0:
                yield
            topic, _, group = key.partition("@")
            if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or not names.has_pair(topic, group):
                continue
            if shown >= PAIRS_MAX:
                left_out += 1
                continue
            shown += 1
            labels = (topic, group, names.is_system(topic, group))
            messages.append((labels, meter.value))
            sizes.append((labels, meter.size))
        put_unlisted(sheet, UNLISTED, MESSAGES_OUT, left_out)
        for family, of in ((SEND_BACKS, Totals.SEND_BACKS), (DEAD_LETTERS, Totals.DEAD_LETTERS)):
            yield
            yield from self._put_returned(sheet, family, of)

    def _put_returned(self, sheet: Sheet, family: Family, of: Totals) -> Iterator[None]:
        shown = left_out = 0
        meters = list(self._stats.totals_by_pair(of).items())
        for number, (key, meter) in enumerate(meters, start=1):
            if number % _PER_STEP == 0:
                yield
            topic, _, group = key.partition("@")
            if not self._names.has_group(group):
                continue
            if shown >= PAIRS_MAX:
                left_out += 1
                continue
            shown += 1
            sheet.put(family, meter.times, topic, group)
        put_unlisted(sheet, UNLISTED, family, left_out)

    def _put_sends(self, sheet: Sheet) -> None:
        sends = self._stats.sends
        for status, count in sends.results.items():
            sheet.put(PUT_RESULTS, count, status.value)
        sheet.put_histogram(PUT_LATENCY, sends.latency)
        stages = (sends.append, sends.flush, sends.replicate)
        for stage, histogram in zip(STAGES, stages, strict=True):
            sheet.put_histogram(PUT_STAGE, histogram, stage)
        sheet.put_histogram(MESSAGE_SIZE, sends.sizes)

    def _put_rejected(self, sheet: Sheet) -> None:
        servers, sends = self._servers(), self._stats.sends
        groups = [group for server in servers for group in server.groups]
        late = sum(server.refused_old for server in servers)
        counts = {
            "queue_full": sum(group.refused for group in groups) - late,
            "queue_timeout": late,
            "pagecache_busy": sends.busy,
            "acl": sum(server.not_admitted for server in servers),
            **sends.refusals,
        }
        for reason in REASONS:
            sheet.put(REJECTED, counts.get(reason, 0), reason)
