"""How much a broker takes and gives, by topic, group and queue. Pure but for `run`.

This is RocketMQ 4.9.8 BrokerStatsManager: figures by statistic and key, as VIEW_BROKER_STATS_DATA
asks for them, and `mqadmin statsAll` and rocketmq-exporter show them. Statistics and their keys:

    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE      topic
    GROUP_GET_NUMS, GROUP_GET_SIZE      topic@group
    GROUP_GET_LATENCY                   queue@topic@group, or topic@group without detail
    SNDBCK_PUT_NUMS                     topic@group
    BROKER_PUT_NUMS, BROKER_GET_NUMS    cluster
    QUEUE_PUT_NUMS, QUEUE_PUT_SIZE      topic@queue         (delayed messages only, as in 4.9.8)
    QUEUE_GET_NUMS, QUEUE_GET_SIZE      topic@queue@group   (delayed messages only, as in 4.9.8)

A key comes into being when it is first counted; before, nothing is known of it. 4.9.8 keeps keys
for good; here one that was idle for a day goes, because all it could say is 0. There are at most
`METERS_MAX` keys: what is counted for more than those is lost, and `lost` says how often.

Counting is for the hot path: callers add up what one batch of sends or one pull brought and call
once. That costs a lookup and a few additions; objects are made on the first call of a key only.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from rmq.broker.stats.sends import SendStats
from rmq.broker.stats.store import StoreStats
from rmq.broker.stats.transactions import TransactionStats
from rmq.broker.stats.window import DAY, HOUR, MINUTE, SPANS, Column, Figures, Meter, Span
from rmq.model.names import SCHEDULE_TOPIC
from rmq.remoting.bodies.stats import BrokerStatsData, BrokerStatsItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

METERS_MAX: Final = 50_000
"""How many keys are kept; each takes up to 2 KiB."""

_SAMPLED_AT_ONCE: Final = 500
"""Keys per step: about half a millisecond, in which no other task runs."""


class Totals(enum.Enum):
    """What is counted since the start by topic and group."""

    GETS = enum.auto()
    SEND_BACKS = enum.auto()
    DEAD_LETTERS = enum.auto()


class Fall(NamedTuple):
    """How far behind the end of the log a group reads a queue."""

    group: str
    topic: str
    queue_id: int
    time_behind_ms: int
    size_behind: int


@final
class BrokerStats:
    """The meters of one broker, and what its store has taken and given (`store`)."""

    def __init__(
        self,
        cluster_name: str,
        *,
        boot_ms: int = 0,
        detailed: bool = True,
        meters_max: int = METERS_MAX,
    ) -> None:
        self.store = StoreStats(boot_ms)
        self.sends = SendStats()
        self.transactions = TransactionStats()
        self.lost = 0
        """How often a key found no place."""
        self._cluster_name = cluster_name
        self._detailed = detailed  # enableDetailStat
        self._meters_max = meters_max
        self._nowhere = Meter()
        self._broker_puts = Meter()
        self._broker_gets = Meter()
        self._topic_puts: dict[str, Meter] = {}
        self._queue_puts: dict[str, Meter] = {}
        self._queue_gets: dict[str, Meter] = {}
        self._group_gets: dict[str, Meter] = {}
        self._latencies: dict[str, Meter] = {}
        self._send_backs: dict[str, Meter] = {}
        self._dead_letters: dict[str, Meter] = {}
        self._tables = (
            self._topic_puts,
            self._queue_puts,
            self._queue_gets,
            self._group_gets,
            self._latencies,
            self._send_backs,
            self._dead_letters,
        )
        self._named: dict[str, tuple[dict[str, Meter], Column]] = {
            "TOPIC_PUT_NUMS": (self._topic_puts, Column.VALUE),
            "TOPIC_PUT_SIZE": (self._topic_puts, Column.SIZE),
            "GROUP_GET_NUMS": (self._group_gets, Column.VALUE),
            "GROUP_GET_SIZE": (self._group_gets, Column.SIZE),
            "GROUP_GET_LATENCY": (self._latencies, Column.VALUE),
            "SNDBCK_PUT_NUMS": (self._send_backs, Column.VALUE),
            "QUEUE_PUT_NUMS": (self._queue_puts, Column.VALUE),
            "QUEUE_PUT_SIZE": (self._queue_puts, Column.SIZE),
            "QUEUE_GET_NUMS": (self._queue_gets, Column.VALUE),
            "QUEUE_GET_SIZE": (self._queue_gets, Column.SIZE),
        }
        # What pulls count into, by group and topic, so that they need not build the keys above.
        self._readers: dict[str, dict[str, _Reader]] = {}
        self._due_ms: dict[Span, int] = {}

    # --- counting --------------------------------------------------------------------------

    def put(self, topic: str, queue_id: int, count: int, size: int, times: int = 1) -> None:
        """Count stored messages of a topic; `times` is how many sends brought them.

        `queue_id` matters for delayed messages only: others may be of several queues.
        """
        meter = self._topic_puts.get(topic)
        if meter is None:
            meter = self._keep(self._topic_puts, topic)
        meter.value += count
        meter.size += size
        meter.times += times
        if topic == SCHEDULE_TOPIC and self._detailed:
            meter = self._find(self._queue_puts, f"{topic}@{queue_id}")
            meter.value += count
            meter.size += size
            meter.times += times

    def get(
        self,
        group: str,
        topic: str,
        queue_id: int,
        count: int,
        size: int,
        latency_ms: int | None = None,
        times: int = 1,
        next_offset: int | None = None,
    ) -> None:
        """Count messages that a pull of a group brought, and how long that took.

        `next_offset` is where the group goes on.
        """
        try:
            reader = self._readers[group][topic]
        except KeyError:
            reader = self._make_reader(group, topic)
        if next_offset is not None:
            reader.pulled[queue_id] = next_offset
        meter = reader.gets
        meter.value += count
        meter.size += size
        meter.times += times
        if latency_ms is not None:
            try:
                meter = reader.latencies[queue_id]
            except KeyError:
                meter = self._make_latency(reader, group, topic, queue_id)
            meter.value += latency_ms
            meter.times += 1

    def get_delayed(self, group: str, queue_id: int, count: int, size: int) -> None:
        """Count messages of a delay level that came due, each one by itself.

        `group` is the name under which the broker reads them.
        """
        self.get(group, SCHEDULE_TOPIC, queue_id, count, size, times=count)
        if self._detailed:
            meter = self._find(self._queue_gets, f"{SCHEDULE_TOPIC}@{queue_id}@{group}")
            meter.value += count
            meter.size += size
            meter.times += count

    def send_back(self, group: str, topic: str, count: int = 1) -> None:
        """Count messages of a topic that consumers of a group sent back."""
        meter = self._find(self._send_backs, f"{topic}@{group}")
        meter.value += count
        meter.times += count

    def dead_letter(self, group: str, topic: str, count: int = 1) -> None:
        """Count messages of a topic that are dead letters of a group now."""
        self._find(self._dead_letters, f"{topic}@{group}").times += count

    def broker_put(self, count: int) -> None:
        """Count messages that clients stored, of whatever topic."""
        self._broker_puts.value += count

    def broker_get(self, count: int) -> None:
        """Count messages that clients were given, of whatever topic."""
        self._broker_gets.value += count

    def record_fall(
        self, group: str, topic: str, queue_id: int, time_behind_ms: int, size_behind: int
    ) -> None:
        """Note how far behind the end of the log a group reads a queue."""
        try:
            reader = self._readers[group][topic]
        except KeyError:
            reader = self._make_reader(group, topic)
        reader.ms_behind[queue_id] = time_behind_ms
        reader.bytes_behind[queue_id] = size_behind

    # --- figures ---------------------------------------------------------------------------

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """Return the figures of a statistic, None if nothing was counted under that key."""
        found = self._lookup(name, key)
        if found is None:
            return None
        meter, column = found
        return BrokerStatsData(
            stats_minute=_item(meter.figures(MINUTE, column)),
            stats_hour=_item(meter.figures(HOUR, column)),
            stats_day=_item(meter.figures(DAY, column)),
        )

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return how many messages of a topic a group was given per second in the last minute."""
        meter = self._group_gets.get(f"{topic}@{group}")
        return 0.0 if meter is None else meter.figures(MINUTE).per_second

    def groups_behind(self, size_behind: int) -> dict[str, int]:
        """Return the groups that read some queue more bytes behind than that, and how many."""
        furthest: dict[str, int] = {}
        for fall in self.falls():
            if fall.size_behind > max(size_behind, furthest.get(fall.group, 0)):
                furthest[fall.group] = fall.size_behind
        return furthest

    def falls(self) -> Iterator[Fall]:
        """Return how far behind groups read, as last noted."""
        for group, topics in self._readers.items():
            for topic, reader in topics.items():
                for queue_id, size_behind in reader.bytes_behind.items():
                    yield Fall(group, topic, queue_id, reader.ms_behind[queue_id], size_behind)

    def pulled(self, group: str, topic: str) -> Mapping[int, int]:
        """Where a group goes on after its last pulls, by queue; not a copy."""
        reader = self._readers.get(group, {}).get(topic)
        return {} if reader is None else reader.pulled

    def totals_by_topic(self) -> Mapping[str, Meter]:
        """What was put, by topic; not a copy."""
        return self._topic_puts

    def totals_by_pair(self, of: Totals) -> Mapping[str, Meter]:
        """What was counted by topic and group, under `topic@group`; not a copy."""
        tables = {
            Totals.GETS: self._group_gets,
            Totals.SEND_BACKS: self._send_backs,
            Totals.DEAD_LETTERS: self._dead_letters,
        }
        return tables[of]

    @property
    def kept(self) -> int:
        """How many keys there are."""
        return sum(map(len, self._tables))

    def _lookup(self, name: str, key: str) -> tuple[Meter, Column] | None:
        if name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            meter = self._broker_puts if name == "BROKER_PUT_NUMS" else self._broker_gets
            return (meter, Column.VALUE) if key == self._cluster_name and meter.value else None
        if name not in self._named:
            return None
        table, column = self._named[name]
        kept = table.get(key)
        # Some are made before there is something to count.
        return (kept, column) if kept is not None and kept.times else None

    # --- keys that go ----------------------------------------------------------------------

    def remove_topic(self, topic: str) -> None:
        """Forget what was counted for a topic."""
        self._topic_puts.pop(topic, None)
        self.transactions.remove_topic(topic)
        start = f"{topic}@"
        for table in (
            self._queue_puts,
            self._queue_gets,
            self._group_gets,
            self._send_backs,
            self._dead_letters,
        ):
            _remove(table, lambda key: key.startswith(start))
        _remove(self._latencies, lambda key: key.split("@")[-2] == topic)
        for topics in self._readers.values():
            topics.pop(topic, None)

    def remove_group(self, group: str) -> None:
        """Forget what was counted for a group."""
        end = f"@{group}"
        for table in (
            self._queue_gets,
            self._group_gets,
            self._send_backs,
            self._dead_letters,
            self._latencies,
        ):
            _remove(table, lambda key: key.endswith(end))
        self._readers.pop(group, None)

    def _remove_idle(self) -> None:
        has_gone = False
        for table in self._tables:
            for key in [key for key, meter in table.items() if meter.is_idle]:
                del table[key]
                has_gone = True
        if has_gone:
            # They come back with their next pull, and find the meters that are still there.
            self._readers.clear()

    # --- sampling --------------------------------------------------------------------------

    def sample(self, now_ms: int) -> None:
        """Sample all meters for the spans whose interval is over. Only differences of `now_ms`
        matter.
        """
        for _ in self.sampling(now_ms):
            pass

    def sampling(self, now_ms: int) -> Iterator[None]:
        """Do the same in steps, for callers with something to do in between."""
        spans = [span for span in SPANS if now_ms >= self._due_ms.get(span, now_ms)]
        for span in spans:
            following = self._due_ms.get(span, now_ms) + span.interval_ms
            # After a pause of the whole process the samples missed are not made up for.
            self._due_ms[span] = following if following > now_ms else now_ms + span.interval_ms
        if not spans:
            return
        meters = [self._broker_puts, self._broker_gets]
        for table in self._tables:
            meters.extend(table.values())
        for done, meter in enumerate(meters, 1):
            for span in spans:
                meter.sample(span, now_ms)
            if done % _SAMPLED_AT_ONCE == 0:
                yield
        if DAY in spans:
            self._remove_idle()

    @property
    def next_sample_ms(self) -> int:
        """When `sample` has something to do again."""
        return min(self._due_ms.values(), default=0)

    async def run(self) -> None:
        """Sample for as long as the broker runs."""
        while True:
            # The clock is not the wall's: a correction of that one would bend all figures.
            for _ in self.sampling(round(trio.current_time() * 1000)):
                await trio.lowlevel.checkpoint()
            await trio.sleep_until(self.next_sample_ms / 1000)

    # --- meters ----------------------------------------------------------------------------

    def _find(self, table: dict[str, Meter], key: str) -> Meter:
        meter = table.get(key)
        return self._keep(table, key) if meter is None else meter

    def _keep(self, table: dict[str, Meter], key: str) -> Meter:
        if self.kept >= self._meters_max:
            self.lost += 1
            return self._nowhere
        meter = table[key] = Meter()
        return meter

    def _make_reader(self, group: str, topic: str) -> _Reader:
        reader = _Reader(self._find(self._group_gets, f"{topic}@{group}"))
        if reader.gets is not self._nowhere:
            self._readers.setdefault(group, {})[topic] = reader
        return reader

    def _make_latency(self, reader: _Reader, group: str, topic: str, queue_id: int) -> Meter:
        key = f"{queue_id}@{topic}@{group}" if self._detailed else f"{topic}@{group}"
        meter = self._find(self._latencies, key)
        if meter is not self._nowhere:
            reader.latencies[queue_id] = meter
        return meter


@final
class _Reader:
    """What is known of one group that reads one topic."""

    __slots__ = ("bytes_behind", "gets", "latencies", "ms_behind", "pulled")

    def __init__(self, gets: Meter) -> None:
        self.gets = gets
        self.latencies: dict[int, Meter] = {}
        self.ms_behind: dict[int, int] = {}
        self.bytes_behind: dict[int, int] = {}
        self.pulled: dict[int, int] = {}
        """By queue, where the group goes on after its last pull."""


def _item(figures: Figures) -> BrokerStatsItem:
    return BrokerStatsItem(sum=figures.sum, tps=figures.per_second, avgpt=figures.per_time)


def _remove(table: dict[str, Meter], is_gone: Callable[[str], bool]) -> None:
    for key in [key for key in table if is_gone(key)]:
        del table[key]
