"""What bench_broker.py measures: the rows of its tables, in groups, and the goals. No I/O here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PRODUCE_QUEUES: Final = 4
CONSUME_QUEUES: Final = 16
CONSUME_EACH: Final = 16_384
HOLD_QUEUES: Final = 100
HOLD_CONNECTIONS: Final = 100
PACE_PER_S: Final = 10_000

TOPICS: Final = {
    "BenchProduce": PRODUCE_QUEUES,
    "BenchConsume": CONSUME_QUEUES,
    "BenchConsumeKib": CONSUME_QUEUES,
    "BenchPaced": PRODUCE_QUEUES,
    "BenchHolds": HOLD_QUEUES,
}
"""Topics and their queues."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on one figure of ours, or on our rate as a share of the Java broker's."""

    what: str
    figure: str
    bound: float
    form: str
    at_most: bool = False
    ratio: bool = False

    def is_met(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a load for the generator."""

    group: str
    name: str
    command: str
    options: tuple[str, ...]
    goals: tuple[Goal, ...] = ()
    seconds_times: float = 1.0
    """How much longer than most rows it takes."""

    @property
    def ratio_goal(self) -> float | None:
        return next((goal.bound for goal in self.goals if goal.ratio), None)


@dataclass(frozen=True, slots=True)
class Column:
    """A figure in a table."""

    title: str
    figure: str
    form: str


@dataclass(frozen=True, slots=True)
class Group:
    """Rows measured on the same running brokers, and shown in one table."""

    name: str
    title: str
    columns: tuple[Column, ...]
    settings: dict[str, str] = field(default_factory=dict)
    fill: tuple[tuple[str, ...], ...] = ()
    """What topics are filled with before the first row."""
    run_in: bool = True
    """Whether the rows are loads that a broker gets faster at."""
    has_ratio: bool = False
    """Whether the rate is the broker's own, so that two can be compared by it."""


def _rate_goal(bound: float) -> Goal:
    return Goal(
        f"at least {bound:g} of the Java broker", "messages_per_s", bound, "{:.2f}", ratio=True
    )


def _produce_row(
    group: str, inflight: int, goal: float, *, connections: int = 1, body: int = 128, batch: int = 1
) -> Row:
    name = f"{inflight:,}"
    if inflight > 1:
        name += " on one connection" if connections == 1 else f" on {connections} connections"
    if batch > 1:
        name += f", batches of {batch}"
    if body != 128:
        name += f", {body // 1024} KiB"
    options = {
        "--topic": "BenchProduce",
        "--queues": str(PRODUCE_QUEUES),
        "--inflight": str(inflight),
        "--connections": str(connections),
        "--body": str(body),
        "--batch": str(batch),
    }
    flat = tuple(text for option in options.items() for text in option)
    return Row(group, name, "produce", flat, (_rate_goal(goal),))


def _consume_row(consumers: int, topic: str, name: str, goals: tuple[Goal, ...]) -> Row:
    options = ("--topic", topic, "--queues", str(CONSUME_QUEUES), "--each", str(CONSUME_EACH))
    return Row("consume", name, "consume", (*options, "--consumers", str(consumers)), goals)


_FROM_MEMORY: Final = Goal(
    "consume from memory: at least 300,000 messages/s", "messages_per_s", 300_000, "{:,.0f}/s"
)

ROWS: Final = (
    _produce_row("produce", 1, 1.0),
    _produce_row("produce", 16, 1.0),
    _produce_row("produce", 64, 1.0),
    _produce_row("produce", 64, 1.3, connections=16),
    _produce_row("produce", 1_000, 1.0),
    _produce_row("produce", 1_000, 1.3, connections=16),
    _produce_row("produce", 64, 0.6, batch=32),
    _produce_row("produce", 64, 1.0, body=1024),
    _produce_row("sync", 1, 1.0),
    _produce_row("sync", 64, 1.0),
    _produce_row("sync", 1_000, 1.0),
    _consume_row(1, "BenchConsume", "1 consumer", (_FROM_MEMORY,)),
    _consume_row(8, "BenchConsume", "8 consumers", (_FROM_MEMORY,)),
    _consume_row(1, "BenchConsumeKib", "1 consumer, 1 KiB", ()),
    _consume_row(8, "BenchConsumeKib", "8 consumers, 1 KiB", ()),
    Row(
        "end-to-end",
        f"{PACE_PER_S:,} messages/s",
        "paced",
        ("--topic", "BenchPaced", "--queues", str(PRODUCE_QUEUES), "--rate", str(PACE_PER_S)),
        (
            Goal("end to end: p99 below 5 ms", "p99_ms", 5.0, "{:.2f} ms", at_most=True),
            Goal("end to end: nothing missing", "missing", 0, "{:.0f}", at_most=True),
        ),
        seconds_times=2.0,
    ),
    Row(
        "holds",
        f"{HOLD_QUEUES * HOLD_CONNECTIONS:,} long polls",
        "hold",
        (
            *("--topic", "BenchHolds", "--queues", str(HOLD_QUEUES)),
            *("--connections", str(HOLD_CONNECTIONS)),
        ),
        (
            Goal("idle CPU below 2 %", "broker_cpu_share", 0.02, "{:.1%}", at_most=True),
            Goal("a message wakes the holders of its queue only", "exact", 1.0, "{:.0f}"),
        ),
        seconds_times=10.0,
    ),
    Row(
        "start",
        "start and idle",
        "start",
        (),
        (
            Goal("port open within 1 s, empty store", "start_s", 1.0, "{:.2f} s", at_most=True),
            Goal(
                "port open within 1 s, after a clean stop",
                "restart_s",
                1.0,
                "{:.2f} s",
                at_most=True,
            ),
            Goal("idle: at most 60 MB resident", "resident_mb", 60.0, "{:.0f} MB", at_most=True),
        ),
    ),
)

_LATENCIES: Final = (Column("p50 ms", "p50_ms", "{:.2f}"), Column("p99 ms", "p99_ms", "{:.2f}"))
_RATES: Final = (
    Column("/s", "messages_per_s", "{:,.0f}"),
    Column("µs CPU", "cpu_us", "{:.2f}"),
    *_LATENCIES,
)


def _fill(topic: str, body: int) -> tuple[str, ...]:
    return (
        *("--topic", topic, "--queues", str(CONSUME_QUEUES), "--each", str(CONSUME_EACH)),
        *("--body", str(body)),
    )


GROUPS: Final = (
    Group(
        "produce",
        "sent under way, ASYNC_FLUSH, 128 B unless said otherwise",
        _RATES,
        has_ratio=True,
    ),
    Group(
        "sync",
        "sent under way, SYNC_FLUSH",
        _RATES,
        {"flushDiskType": "SYNC_FLUSH"},
        has_ratio=True,
    ),
    Group(
        "consume",
        "pulled, 32 at a time",
        _RATES,
        fill=(_fill("BenchConsume", 128), _fill("BenchConsumeKib", 1024)),
        has_ratio=True,
    ),
    Group(
        "end-to-end",
        "end to end",
        (*_RATES, Column("max ms", "max_ms", "{:.1f}"), Column("pulls", "requests", "{:,.0f}")),
    ),
    Group(
        "holds",
        "held",
        (
            Column("CPU", "broker_cpu_share", "{:.2%}"),
            Column("MB resident", "resident_mb", "{:.0f}"),
            Column("KB each", "kb_each", "{:.2f}"),
            Column("woken by one message", "woken", "{:.0f}"),
            Column("after ms", "last_ms", "{:.1f}"),
        ),
        run_in=False,
    ),
    Group(
        "start",
        "start",
        (
            Column("s until the port is open", "start_s", "{:.2f}"),
            Column("s to stop", "stop_s", "{:.2f}"),
            Column("s after a clean stop", "restart_s", "{:.2f}"),
            Column("MB resident", "resident_mb", "{:.0f}"),
            Column("MB private", "private_mb", "{:.0f}"),
            Column("idle CPU", "idle_cpu_share", "{:.1%}"),
        ),
    ),
)


def rows_matching(texts: Sequence[str]) -> list[Row]:
    """Return the rows that have any of the texts in their group or name; all if there is none."""
    return [
        row for row in ROWS if not texts or any(text in f"{row.group} {row.name}" for text in texts)
    ]
