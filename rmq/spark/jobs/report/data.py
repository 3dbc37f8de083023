"""Everything that a report knows, and its verdict. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.model.words import count_text, seconds_text, size_text
from rmq.spark.pipelines.verdict import Finding, Gauge, Outcome, Verdict, bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmq.spark.jobs.report.history import PastRun
    from rmq.spark.jobs.report.lag import GroupLag, Skew
    from rmq.spark.pipelines.verdict import Json

GAUGES_MAX: Final = 1_000
"""Pairs of group and topic that have metrics of their own: those with the largest lags."""
SKEW_MESSAGES_MIN: Final = 100
"""Fewer messages of a topic are never spread evenly."""


class Delays(NamedTuple):
    """How long messages took from the producer to the store, in ms; None if there are none."""

    p50: float | None
    p95: float | None
    p99: float | None


class Traffic(NamedTuple):
    """Messages of a topic, or of all."""

    messages: int
    size_bytes: int
    delays: Delays
    negative: int
    """Messages that were stored before they were born, as the clocks have it."""


NO_TRAFFIC: Final = Traffic(0, 0, Delays(None, None, None), 0)


class Limits(NamedTuple):
    """What the verdict depends on; None is no limit."""

    lag: int | None = None
    lag_s: float | None = None
    skew: float | None = None

    @property
    def is_set(self) -> bool:
        return self != Limits()


class Producer(NamedTuple):
    """Messages and bytes by producer."""

    address: str
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Plots:
    """What is drawn: values for equal stretches of time."""

    times_s: Sequence[float]
    step_s: int
    messages: Mapping[str, Sequence[float]]
    """By topic."""
    sizes: Mapping[str, Sequence[float]]
    delays: Sequence[Delays]
    """Of all topics together."""
    queues: Mapping[str, Mapping[tuple[str, int], Sequence[float]]]
    """Messages by topic, broker and queue, of the most uneven topics."""
    histogram: Sequence[tuple[str, int]]
    """How many messages had which delay."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report."""

    target: str
    made_s: float
    whole: Traffic
    topics: Mapping[str, Traffic]
    lags: Sequence[GroupLag]
    groups: int
    skews: Sequence[Skew]
    producers: Sequence[Producer]
    plots: Plots
    history: Sequence[PastRun]
    failures: Sequence[str]
    """What could not be found out, and why; it may concern all limits."""
    limits: Limits
    span_s: tuple[float | None, float | None]
    """The first and the last minute that has messages."""
    has_groups: bool = True
    """Whether consumer offsets are known."""
    age_failures: Sequence[str] = ()
    """Why it is not known how old unread messages are."""
    queue_failures: Sequence[str] = ()
    """Why there may be queues without messages that are not known."""
    outputs: Mapping[str, str] = field(default_factory=dict)


def verdict_of(report: Report) -> Verdict:
    """Decide: a report holds unless a limit that was asked for is exceeded."""
    exceeded = list(_exceeded(report))
    if exceeded:
        outcome = Outcome.FAILS
    elif _is_open(report):
        outcome = Outcome.UNKNOWN
    else:
        outcome = Outcome.HOLDS
    notes = [Finding(f"not known: {text}", {"kind": "failure"}) for text in _failures(report)]
    findings, left_out = bounded([*exceeded, *_expired(report), *notes])
    return Verdict(
        outcome=outcome,
        sentence=_sentence(report, len(exceeded)),
        facts=_facts(report),
        findings=findings,
        findings_left_out=left_out,
        outputs=report.outputs,
        records=report.whole.messages,
        size_bytes=report.whole.size_bytes,
        gauges=tuple(_gauges(report)),
    )


def _is_open(report: Report) -> bool:
    """Tell whether a limit was asked for and it is not known whether it is exceeded."""
    limits = report.limits
    if limits.is_set and report.failures:
        return True
    if limits.skew is not None and report.queue_failures:
        return True
    if limits.lag_s is not None and _ageless(report):
        return True
    return not report.has_groups and (limits.lag is not None or limits.lag_s is not None)


def _ageless(report: Report) -> int:
    """Return of how many groups it is not known how old their first unread message is."""
    return len({lag.group for lag in report.lags if lag.lag_s is None})


def _failures(report: Report) -> list[str]:
    return [*report.failures, *report.age_failures, *report.queue_failures]


def _exceeded(report: Report) -> Iterator[Finding]:
    limits = report.limits
    for lag in report.lags:
        where = f"group {lag.group} on {lag.topic}"
        facts: dict[str, Json] = {"group": lag.group, "topic": lag.topic}
        if limits.lag is not None and lag.lag > limits.lag:
            text = f"{where} is {count_text(lag.lag, 'message')} behind, more than {limits.lag:,}"
            yield Finding(text, {"kind": "lag", **facts, "lag": lag.lag, "limit": limits.lag})
        age_s = lag.known_lag_s if lag.lag_s is None else lag.lag_s
        if limits.lag_s is not None and age_s > limits.lag_s:
            text = f"{where} has not read what was stored {seconds_text(age_s)} ago"
            text = f"{text}; the limit is {seconds_text(limits.lag_s)}"
            facts |= {"kind": "lag_seconds", "lag_seconds": age_s, "limit": limits.lag_s}
            yield Finding(text, facts)
    for skew in report.skews:
        if limits.skew is not None and skew.ratio > limits.skew:
            if skew.messages < SKEW_MESSAGES_MIN:
                continue
            broker, queue_id = skew.largest
            queue = f"queue {queue_id}" + (f" of {broker}" if broker else "")
            yield Finding(
                f"topic {skew.topic}: {queue} has {skew.ratio:.1f} times as many messages as the"
                f" mean of its queues, more than {limits.skew:g}",
                {
                    "kind": "skew",
                    "topic": skew.topic,
                    "broker_name": broker,
                    "queue_id": queue_id,
                    "skew": skew.ratio,
                    "limit": limits.skew,
                },
            )


def _expired(report: Report) -> Iterator[Finding]:
    """Yield what was deleted before a group read it: no limit is needed to mention that."""
    for lag in report.lags:
        if lag.expired:
            yield Finding(
                f"group {lag.group} on {lag.topic}: {count_text(lag.expired, 'message')} deleted"
                " before it read them",
                {
                    "kind": "expired",
                    "group": lag.group,
                    "topic": lag.topic,
                    "messages": lag.expired,
                },
            )


def _sentence(report: Report, exceeded: int) -> str:
    whole = report.whole
    text = (
        f"{count_text(whole.messages, 'message')} ({size_text(whole.size_bytes)}) in"
        f" {count_text(len(report.topics), 'topic')}"
    )
    largest = report.lags[0] if report.lags else None
    if not report.has_groups:
        text = f"{text}; how far groups are is not known"
    elif largest is None or not largest.lag:
        text = f"{text}; no group is behind"
    else:
        behind = len({lag.group for lag in report.lags if lag.lag})
        text = (
            f"{text}; {count_text(behind, 'group')} behind, most {largest.group} on"
            f" {largest.topic} with {count_text(largest.lag, 'message')}"
        )
        if largest.lag_s is not None:
            text = f"{text}, the oldest {seconds_text(largest.lag_s)} old"
    if ageless := _ageless(report):
        unknown = "the age of unread messages is not known for"
        text = f"{text}; {unknown} {count_text(ageless, 'group')}"
    return f"{count_text(exceeded, 'limit')} exceeded: {text}" if exceeded else text


def _facts(report: Report) -> dict[str, Json]:
    whole = report.whole
    topics: list[Json] = [
        {
            "topic": topic,
            "messages": traffic.messages,
            "bytes": traffic.size_bytes,
            "delay_p50_ms": traffic.delays.p50,
            "delay_p95_ms": traffic.delays.p95,
            "delay_p99_ms": traffic.delays.p99,
            "negative_delays": traffic.negative,
        }
        for topic, traffic in sorted(report.topics.items(), key=_most_first)[:GAUGES_MAX]
    ]
    groups: list[Json] = [
        {
            "group": lag.group,
            "topic": lag.topic,
            "lag": lag.lag,
            "lag_seconds": lag.lag_s,
            "expired": lag.expired,
            "skew": lag.skew,
            "growth_per_second": None if lag.trend is None else lag.trend.per_second,
            "eta_seconds": None if lag.trend is None else lag.trend.eta_s(lag.lag),
        }
        for lag in report.lags[:GAUGES_MAX]
    ]
    skew: list[Json] = [
        {
            "topic": each.topic,
            "skew": each.ratio,
            "broker_name": each.largest[0],
            "queue_id": each.largest[1],
            "messages": each.messages,
            "queues": each.queues,
        }
        for each in report.skews[:GAUGES_MAX]
    ]
    return {
        "messages": whole.messages,
        "bytes": whole.size_bytes,
        "topic_count": len(report.topics),
        "group_count": report.groups,
        "from_s": report.span_s[0],
        "to_s": report.span_s[1],
        "delay_p50_ms": whole.delays.p50,
        "delay_p95_ms": whole.delays.p95,
        "delay_p99_ms": whole.delays.p99,
        "negative_delays": whole.negative,
        "max_lag": max((lag.lag for lag in report.lags), default=0) if report.has_groups else None,
        "max_lag_seconds": _max_lag_s(report),
        "max_skew": report.skews[0].ratio if report.skews else 1.0,
        "topics": topics,
        "groups": groups,
        "skews": skew,
        "failures": list(_failures(report)[:GAUGES_MAX]),
        "earlier_runs": len(report.history),
    }


def _max_lag_s(report: Report) -> float | None:
    """Return how old the first message is that a group has not read; None if it is not known."""
    if not report.has_groups or _ageless(report):
        return None
    return max((lag.lag_s or 0.0 for lag in report.lags), default=0.0)


def _most_first(item: tuple[str, Traffic]) -> tuple[int, str]:
    return -item[1].messages, item[0]


def _gauges(report: Report) -> Iterator[Gauge]:
    for lag in report.lags[:GAUGES_MAX]:
        labels = {"group": lag.group, "topic": lag.topic}
        yield Gauge("lag_messages", "Messages that a group has not read.", lag.lag, labels)
        if lag.lag_s is not None and math.isfinite(lag.lag_s):
            text = "Age of the first message that a group has not read."
            yield Gauge("lag_seconds", text, lag.lag_s, labels)
    for skew in report.skews[:GAUGES_MAX]:
        text = "Messages of the largest queue in times of the mean."
        yield Gauge("queue_skew", text, skew.ratio, {"topic": skew.topic})
