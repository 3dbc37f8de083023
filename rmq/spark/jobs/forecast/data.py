"""Everything that a forecast knows, and its verdict. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq.model.words import count_text, seconds_text, size_text
from rmq.spark.jobs.forecast.facts import facts_of, gauges_of
from rmq.spark.jobs.forecast.model import (
    DAY_S,
    FULL_RATIO,
    SAMPLES_MIN,
    disk_forecast,
    group_forecast,
    growth_of,
)
from rmq.spark.pages.scales import moment_text
from rmq.spark.pipelines.verdict import Finding, Outcome, Verdict, bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmq.spark.jobs.forecast.model import (
        Disk,
        DiskForecast,
        GroupForecast,
        GroupState,
        Growth,
        HotKey,
        Sample,
    )
    from rmq.spark.jobs.report.lag import Skew
    from rmq.spark.pipelines.verdict import Json

STALE_S: Final = DAY_S
"""An observation that is older is worth a remark."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What a forecast is made from."""

    target: str
    made_s: float
    """Now: times of the result count from here."""
    seen_s: float
    """When the last of it was seen; before `made_s` in history."""
    basis: str
    """What growth was measured over, as text: `24 buckets of 60 min`."""
    topics: Mapping[str, Sequence[Sample]]
    """All over the same stretches of time."""
    disks: Sequence[Disk]
    groups: Sequence[GroupState]
    hot_queues: Sequence[Skew] = ()
    hot_keys: Sequence[HotKey] = ()
    failures: Sequence[str] = ()
    age_failures: Sequence[str] = ()
    """Why it is not known how old unread messages are; the groups have no age then."""
    has_groups: bool = True
    """Whether consumer offsets are known."""
    records: int = 0
    size_bytes: int = 0
    more_hint: str = ""
    """How to get more history where there is too little."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What will be."""

    seen: Observed
    within_s: float
    growth: Mapping[str, Growth | None]
    """By topic, the fastest first; None for a topic that is too new to tell."""
    disks: Sequence[DiskForecast]
    groups: Sequence[GroupForecast]
    """The first to lose messages first."""
    outputs: Mapping[str, str] = field(default_factory=dict)

    def left_s(self, in_s: float) -> float:
        """Return how long it is from now until a time that counts from the observation."""
        return max(0.0, in_s - (self.seen.made_s - self.seen.seen_s))

    def is_soon(self, in_s: float | None) -> bool:
        return in_s is not None and self.left_s(in_s) <= self.within_s

    def loses_soon(self, group: GroupForecast) -> bool:
        return not group.is_fresh and self.is_soon(group.loss_in_s)

    def is_open(self, group: GroupForecast) -> bool:
        """Tell whether it is unknown if a group loses messages in the time asked for."""
        return not group.is_fresh and group.loss_in_s is None and self.is_soon(group.earliest_s)

    def moment_text(self, in_s: float) -> str:
        """Return a time from now as text."""
        left_s = self.left_s(in_s)
        if not left_s:
            return "now"
        return f"in {seconds_text(left_s)} ({moment_text(_whole(self.seen.made_s + left_s))} UTC)"


def _whole(time_s: float) -> float:
    """Return the minute of a moment: forecasts are not exact to the second."""
    return time_s - time_s % 60


def make_forecast(seen: Observed, within_s: float) -> Forecast:
    """Return the forecast."""
    growth = {topic: growth_of(samples) for topic, samples in seen.topics.items()}
    ordered = sorted(growth, key=lambda topic: (-_rate(growth[topic]), topic))
    disks = [disk_forecast(disk) for disk in seen.disks]
    groups = [group_forecast(state, disks) for state in seen.groups]
    return Forecast(
        seen=seen,
        within_s=within_s,
        growth={topic: growth[topic] for topic in ordered},
        disks=sorted(disks, key=lambda each: (_or_never(each.full_in_s), each.disk.name)),
        groups=sorted(
            groups,
            key=lambda each: (
                _or_never(each.loss_in_s),
                each.earliest_s,
                each.state.group,
                each.state.topic,
            ),
        ),
    )


def _rate(growth: Growth | None) -> float:
    return 0.0 if growth is None else growth.disk_bytes


def _or_never(value: float | None) -> float:
    return math.inf if value is None else value


def verdict_of(forecast: Forecast) -> Verdict:
    """Decide: it holds unless a disk is full or unread messages are lost in the time asked for."""
    wrong = [*_full(forecast), *_lost(forecast)]
    unknown = list(_unknown(forecast))
    if wrong:
        outcome, sentence = Outcome.FAILS, wrong[0].text
        more = f" (and {len(wrong) - 1} more, see findings)" if len(wrong) > 1 else ""
        sentence = f"{sentence}{more}"
    elif unknown:
        outcome = Outcome.UNKNOWN
        more = f" (and {len(unknown) - 1} more, see findings)" if len(unknown) > 1 else ""
        sentence = f"{unknown[0].text}{more}"
    else:
        outcome, sentence = Outcome.HOLDS, _all_well(forecast)
    findings, left_out = bounded([*wrong, *unknown, *_remarks(forecast)])
    return Verdict(
        outcome=outcome,
        sentence=sentence,
        facts=facts_of(forecast),
        findings=findings,
        findings_left_out=left_out,
        outputs=forecast.outputs,
        records=forecast.seen.records,
        size_bytes=forecast.seen.size_bytes,
        gauges=tuple(gauges_of(forecast)),
    )


# --- findings -----------------------------------------------------------------------------------


def _full(forecast: Forecast) -> Iterator[Finding]:
    for each in forecast.disks:
        if each.full_in_s is None or not forecast.is_soon(each.full_in_s):
            continue
        text = (
            f"{each.disk.name} is full {forecast.moment_text(each.full_in_s)}: {FULL_RATIO:.0%} of"
            f" {_size(each.disk.total_bytes)} are used, and messages are refused"
        )
        facts: dict[str, Json] = {
            "kind": "disk_full",
            "disk": each.disk.name,
            "in_seconds": forecast.left_s(each.full_in_s),
        }
        yield Finding(text, facts)


def _lost(forecast: Forecast) -> Iterator[Finding]:
    for each in forecast.groups:
        if each.loss_in_s is None or not forecast.loses_soon(each):
            continue
        state = each.state
        facts: dict[str, Json] = {
            "kind": "loss",
            "group": state.group,
            "topic": state.topic,
            "in_seconds": forecast.left_s(each.loss_in_s),
            "lag": state.now.lag,
            "lag_seconds": state.now.age_s,
            "expired": state.expired,
        }
        where = f"group {state.group} on {state.topic}"
        if state.expired:
            lost = count_text(state.expired, "message")
            yield Finding(f"{where} loses unread messages now: {lost} deleted already", facts)
            continue
        why = "the disk is too small for the retention" if each.by_disk else "they expire"
        behind = count_text(state.now.lag, "message")
        age = "" if state.now.age_s is None else f", the first {seconds_text(state.now.age_s)} old"
        yield Finding(
            f"{where} loses unread messages {forecast.moment_text(each.loss_in_s)}, when {why}:"
            f" {behind} behind{age}",
            facts,
        )


def _unknown(forecast: Forecast) -> Iterator[Finding]:
    seen = forecast.seen
    hint = f"; {seen.more_hint}" if seen.more_hint else ""
    if not seen.disks:
        yield Finding("growth: there is no disk to check", {"kind": "no_disk"})
    for each in forecast.disks:
        disk, facts = each.disk, {"kind": "growth", "disk": each.disk.name}
        if each.full_in_s is not None:
            continue
        if each.growth is None:
            had = count_text(len(disk.samples), "measurement")
            yield Finding(
                f"{disk.name}: too little history to tell growth: {had}, and it takes"
                f" {SAMPLES_MIN}{hint}",
                facts,
            )
        if disk.total_bytes is None:
            text = f"{disk.name}: the size of its disk is not known: give --capacity BYTES"
            yield Finding(text, {"kind": "capacity", "disk": disk.name})
    if not seen.has_groups:
        text = "how far groups are is not known: the store has no file of consumer offsets"
        yield Finding(text, {"kind": "no_groups"})
    for group in forecast.groups:
        if not forecast.is_open(group):
            continue
        state = group.state
        where = f"group {state.group} on {state.topic}"
        facts = {"kind": "trend", "group": state.group, "topic": state.topic}
        if state.now.age_s is None:
            text = f"{where}: how old its first unread message is, could not be found out"
        else:
            text = (
                f"{where}: too little history to tell whether it catches up; if it does not, it"
                f" loses unread messages {forecast.moment_text(group.earliest_s)}{hint}"
            )
        yield Finding(text, facts)
    for failure in seen.failures:
        yield Finding(f"not known: {failure}", {"kind": "failure"})


def _remarks(forecast: Forecast) -> Iterator[Finding]:
    """Yield what does not decide but should be known."""
    seen = forecast.seen
    if seen.made_s - seen.seen_s > STALE_S:
        text = f"the last run of the history is {seconds_text(seen.made_s - seen.seen_s)} old"
        yield Finding(text, {"kind": "stale"})
    for failure in seen.age_failures:
        yield Finding(f"not known: {failure}", {"kind": "failure"})
    for each in forecast.disks:
        if each.growth is not None and each.growth.is_bursty:
            when = each.mean_full_in_s
            told = "" if when is None else f"; by the mean the disk is full {_when(forecast, when)}"
            yield Finding(
                f"{each.disk.name} grows in bursts: the mean, {_per_day(each.growth, mean=True)},"
                f" is far above the median, {_per_day(each.growth)}, which counts here{told}",
                {"kind": "bursts", "disk": each.disk.name},
            )
        if math.isfinite(each.clean_in_s) and each.retention_s < each.disk.reserved_s:
            yield Finding(
                f"{each.disk.name}: brokers begin {forecast.moment_text(each.clean_in_s)} to delete"
                f" segments before their time, after {seconds_text(each.retention_s)} instead of"
                f" {seconds_text(each.disk.reserved_s)}",
                {"kind": "early_deletion", "disk": each.disk.name},
            )


def _when(forecast: Forecast, in_s: float) -> str:
    return forecast.moment_text(in_s) if math.isfinite(in_s) else "never"


def _per_day(growth: Growth, *, mean: bool = False) -> str:
    rate = growth.mean_disk_bytes if mean else growth.disk_bytes
    return f"{size_text(round(rate * DAY_S))} a day"


def _size(size: float | None) -> str:
    return "-" if size is None else size_text(round(size))


def _all_well(forecast: Forecast) -> str:
    first = forecast.disks[0]
    full = _or_never(first.full_in_s)
    grows = "" if first.growth is None else f"grows by {_per_day(first.growth)}, "
    if math.isfinite(full):
        told = f"{grows}full {forecast.moment_text(full)}"
    else:
        told = f"{grows}is never full at a retention of {seconds_text(first.disk.reserved_s)}"
    name = first.disk.name if len(forecast.disks) == 1 else f"{first.disk.name}, the first of all,"
    losing = [each for each in forecast.groups if math.isfinite(_or_never(each.loss_in_s))]
    losing = [each for each in losing if not each.is_fresh]
    within = seconds_text(forecast.within_s)
    lost = f"no group loses unread messages within {within}"
    if losing and losing[0].loss_in_s is not None:
        state = losing[0].state
        when = forecast.moment_text(losing[0].loss_in_s)
        lost = f"{lost}, the first is {state.group} on {state.topic} {when}"
    return f"{name} {told}; {lost}"
