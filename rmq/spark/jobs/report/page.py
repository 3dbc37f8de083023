"""The page of a report. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rmq.model.words import seconds_text, size_text
from rmq.spark.pages.cells import Bar, bar_plot, heat_map, histogram
from rmq.spark.pages.page import Cell, Tile, findings_list, page, section, table, tiles
from rmq.spark.pages.plots import Series, band_plot, line_plot, stacked_plot
from rmq.spark.pages.scales import Unit, duration_text, moment_text

if TYPE_CHECKING:
    from rmq.spark.jobs.report.data import Report
    from rmq.spark.jobs.report.lag import GroupLag
    from rmq.spark.pages.markup import Markup
    from rmq.spark.pipelines.verdict import Verdict

_BARS_MAX: Final = 15
_LINES_MAX: Final = 7


def page_of(report: Report, verdict: Verdict) -> str:
    """Return the page."""
    body = [tiles(_tiles(report))]
    if verdict.findings:
        body.append(findings_list(verdict))
    body += [_traffic(report), _groups(report), _delays(report), _queues(report)]
    body.append(_producers(report))
    return page("Traffic and lag", report.target, report.made_s, verdict, body)


def _tiles(report: Report) -> list[Tile]:
    whole, limits = report.whole, report.limits
    largest = report.lags[0] if report.lags else None
    oldest = max(report.lags, key=lambda lag: lag.lag_s or 0.0, default=None)
    found = [
        Tile("Messages", Unit.COUNT.text(whole.messages), _span_text(report)),
        Tile("Stored", size_text(whole.size_bytes), f"{len(report.topics):,} topics"),
        Tile(
            "Delay, 99 of 100",
            "-" if whole.delays.p99 is None else duration_text(whole.delays.p99 / 1000),
            "from the producer to the store",
        ),
    ]
    if largest is not None:
        is_bad = limits.lag is not None and largest.lag > limits.lag
        where = (
            f"{largest.group} on {largest.topic}" if largest.lag else "all groups are up to date"
        )
        found.append(Tile("Largest lag", Unit.COUNT.text(largest.lag), where, is_bad))
    if oldest is not None and oldest.lag_s:
        is_bad = limits.lag_s is not None and oldest.lag_s > limits.lag_s
        where = f"{oldest.group} on {oldest.topic}"
        found.append(Tile("Oldest unread", seconds_text(oldest.lag_s), where, is_bad))
    return found


def _span_text(report: Report) -> str:
    first, last = report.span_s
    if first is None or last is None:
        return "none were stored"
    return f"{moment_text(first)} to {moment_text(last + 60)}"


# --- traffic ------------------------------------------------------------------------------------


def _traffic(report: Report) -> Markup:
    plots = report.plots
    per = f"per {_step_text(plots.step_s)}, by topic"
    messages = [Series(topic, values) for topic, values in plots.messages.items()]
    sizes = [Series(topic, values) for topic, values in plots.sizes.items()]
    rows: list[list[str | Cell]] = []
    ordered = sorted(report.topics.items(), key=lambda item: (-item[1].messages, item[0]))
    for topic, traffic in ordered:
        share = 100 * traffic.messages / max(1, report.whole.messages)
        mean = traffic.size_bytes / max(1, traffic.messages)
        rows.append(
            [
                topic,
                f"{traffic.messages:,}",
                f"{share:.1f} %",
                size_text(traffic.size_bytes),
                size_text(round(mean)),
                *(_ms_text(value) for value in traffic.delays),
            ]
        )
    head = ["topic", "messages", "share", "stored", "mean", "delay p50", "p95", "p99"]
    return section(
        "Traffic",
        "Messages as they were stored; times are those of the brokers.",
        stacked_plot("Messages", per, plots.times_s, messages, Unit.COUNT),
        stacked_plot("Stored bytes", per, plots.times_s, sizes, Unit.BYTES),
        table(head, rows, "<>>>>>>>"),
    )


def _step_text(step_s: int) -> str:
    return seconds_text(step_s).replace(" 0 s", "").replace(" 0 min", "").replace(" 0 h", "")


def _ms_text(value_ms: float | None) -> str:
    return "-" if value_ms is None else duration_text(value_ms / 1000)


# --- groups -------------------------------------------------------------------------------------


def _groups(report: Report) -> Markup:
    if not report.has_groups:
        told = "The store has no file of consumer offsets: how far groups are is not known."
        return section("Groups", told)
    limits = report.limits
    behind = [lag for lag in report.lags if lag.lag]
    bars = [
        Bar(
            f"{lag.group} on {lag.topic}",
            lag.lag,
            "" if lag.lag_s is None else f"{seconds_text(lag.lag_s)} old",
            limits.lag is not None and lag.lag > limits.lag,
        )
        for lag in behind[:_BARS_MAX]
    ]
    rows = [_group_row(report, lag) for lag in report.lags]
    head = ["group", "topic", "lag", "oldest", "queues behind", "skew", "trend"]
    parts = [bar_plot("Messages not read", "by group and topic", bars, Unit.COUNT)]
    if report.history:
        parts.append(_history(report))
    parts.append(table([*head, "empty in", "lost"], rows, "<<>>>>>>>"))
    return section(
        "Groups",
        "What each group has not read yet, and how old the first of it is. Skew is the largest lag"
        " of a queue in times of the mean; the trend is that of the last runs of this report; lost"
        " is what was deleted before the group read it.",
        *parts,
    )


def _group_row(report: Report, lag: GroupLag) -> list[str | Cell]:
    limits, trend = report.limits, lag.trend
    eta = None if trend is None else trend.eta_s(lag.lag)
    is_over = limits.lag is not None and lag.lag > limits.lag
    is_old = limits.lag_s is not None and lag.lag_s is not None and lag.lag_s > limits.lag_s
    growth = "-" if trend is None else f"{trend.per_second * 60:+,.1f} / min"
    age = "-"
    if lag.lag:
        age = "not known" if lag.lag_s is None else seconds_text(lag.lag_s)
    when = "never" if trend is not None and lag.lag and eta is None else "-"
    return [
        lag.group,
        lag.topic,
        Cell(f"{lag.lag:,}", is_bad=is_over),
        Cell(age, is_bad=is_old),
        f"{lag.queues_behind} of {lag.queues}",
        f"{lag.skew:.1f} x" if lag.lag else "-",
        Cell(growth, is_bad=trend is not None and trend.per_second > 0, is_good=bool(eta)),
        seconds_text(eta) if eta else when,
        Cell(f"{lag.expired:,}", is_bad=True) if lag.expired else "0",
    ]


def _history(report: Report) -> Markup:
    keys = [(lag.group, lag.topic) for lag in report.lags if lag.lag][:_LINES_MAX]
    times = [run.time_s for run in report.history] + [report.made_s]
    now = {(lag.group, lag.topic): float(lag.lag) for lag in report.lags}
    series = [
        Series(
            f"{group} on {topic}",
            [
                *(float(run.lags.get((group, topic), math.nan)) for run in report.history),
                now[group, topic],
            ],
        )
        for group, topic in keys
    ]
    limit = report.limits.lag
    return line_plot(
        "Lag over the last runs",
        f"{len(times)} runs of this report",
        times,
        series,
        Unit.COUNT,
        limit=None if limit is None else float(limit),
    )


# --- delays, queues, producers ------------------------------------------------------------------


def _delays(report: Report) -> Markup:
    plots = report.plots
    parts: list[Markup] = []
    if plots.delays:
        low, middle, high = (
            Series(
                name, [math.nan if value is None else max(value, 0.5) / 1000 for value in column]
            )
            for name, column in zip(
                ("p50", "p95", "p99"), zip(*plots.delays, strict=True), strict=True
            )
        )
        per = f"all topics, per {_step_text(plots.step_s)}"
        parts.append(band_plot("Delay", per, plots.times_s, low, middle, high, Unit.SECONDS))
    parts.append(
        histogram(
            "How long messages took",
            "from being made by the producer to being stored; a bar is for this long and longer",
            plots.histogram,
            Unit.COUNT,
            axis_name="delay",
        )
    )
    negative = report.whole.negative
    note = (
        f" {negative:,} messages were stored before they were made, as the clocks have it: the"
        " clock of their producer is ahead of the broker's. They are not counted here."
        if negative
        else ""
    )
    return section("Delay", f"From the producer's clock to the broker's.{note}", *parts)


def _queues(report: Report) -> Markup:
    limit = report.limits.skew
    maps = [
        heat_map(
            topic,
            f"messages per queue and {_step_text(report.plots.step_s)}",
            report.plots.times_s,
            [
                (f"{broker} {queue_id}".strip(), values)
                for (broker, queue_id), values in sorted(queues.items())
            ],
            Unit.COUNT,
        )
        for topic, queues in report.plots.queues.items()
    ]
    rows: list[list[str | Cell]] = [
        [
            skew.topic,
            Cell(f"{skew.ratio:.2f} x", is_bad=limit is not None and skew.ratio > limit),
            f"{skew.largest[0]} {skew.largest[1]}".strip(),
            f"{skew.queues:,}",
            f"{skew.messages:,}",
        ]
        for skew in report.skews
    ]
    head = ["topic", "largest queue, in times of the mean", "which", "queues", "messages"]
    return section(
        "Queues",
        "A queue that gets much more than the others is read by one consumer alone.",
        *maps,
        table(head, rows, "<><>>"),
    )


def _producers(report: Report) -> Markup:
    total = max(1, report.whole.messages)
    shown = [
        Bar(each.address, each.messages, f"{100 * each.messages / total:.1f} %")
        for each in report.producers[:_BARS_MAX]
    ]
    return section(
        "Producers",
        "Addresses that messages were sent from.",
        bar_plot("Messages", "by address", shown, Unit.COUNT),
    )
