"""The page of a forecast. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rmq.model.words import seconds_text, size_text
from rmq.spark.jobs.forecast.model import DAY_S, FULL_RATIO, HOUR_S
from rmq.spark.pages.cells import Bar, bar_plot
from rmq.spark.pages.page import Cell, Tile, findings_list, page, section, table, tiles
from rmq.spark.pages.plots import Series, line_plot
from rmq.spark.pages.scales import Unit, moment_text

if TYPE_CHECKING:
    from rmq.spark.jobs.forecast.data import Forecast
    from rmq.spark.jobs.forecast.model import DiskForecast, GroupForecast
    from rmq.spark.pages.markup import Markup
    from rmq.spark.pipelines.verdict import Verdict

_BARS_MAX: Final = 15
_DISKS_MAX: Final = 6
_LINES_MAX: Final = 7
_POINTS: Final = 30
"""Moments of the future that are drawn."""
_FAR_S: Final = 90 * DAY_S
"""How much of the future plots show."""


def page_of(forecast: Forecast, verdict: Verdict, made_s: float) -> str:
    """Return the page."""
    body = [tiles(_tiles(forecast))]
    if verdict.findings:
        body.append(findings_list(verdict))
    body += [_disks(forecast), _groups(forecast), _topics(forecast), _hot(forecast)]
    return page("Forecast of capacity and retention", forecast.seen.target, made_s, verdict, body)


def _tiles(forecast: Forecast) -> list[Tile]:
    found: list[Tile] = []
    if forecast.disks:
        first = forecast.disks[0]
        growth = first.growth
        found.append(
            Tile(
                "Disk full",
                _left_text(forecast, first.full_in_s),
                _when_text(forecast, first.full_in_s),
                forecast.is_soon(first.full_in_s),
            )
        )
        if growth is not None:
            total = sum(
                each.growth.disk_bytes for each in forecast.disks if each.growth is not None
            )
            per_s = sum(each.growth.messages for each in forecast.disks if each.growth is not None)
            per_day = f"{Unit.COUNT.text(per_s * DAY_S)} messages a day"
            found.append(Tile("Growth a day", size_text(round(total * DAY_S)), per_day))
        found.append(
            Tile("Retention", seconds_text(first.disk.reserved_s), "age at which messages expire")
        )
    losing = [each for each in forecast.groups if not each.is_fresh]
    if losing:
        state = losing[0].state
        found.append(
            Tile(
                "First loss of unread messages",
                _left_text(forecast, losing[0].loss_in_s),
                f"{state.group} on {state.topic}",
                forecast.loses_soon(losing[0]),
            )
        )
    elif forecast.seen.has_groups:
        found.append(Tile("First loss of unread messages", "never", "all groups keep up"))
    return found


def _left_text(forecast: Forecast, in_s: float | None) -> str:
    if in_s is None:
        return "not known"
    left_s = forecast.left_s(in_s)
    return "now" if left_s == 0 else seconds_text(left_s)


def _when_text(forecast: Forecast, in_s: float | None) -> str:
    if in_s is None or not math.isfinite(in_s):
        return "" if in_s is None else "the retention fits"
    at_s = forecast.seen.made_s + forecast.left_s(in_s)
    return f"{moment_text(at_s - at_s % 60)} UTC"


# --- disks --------------------------------------------------------------------------------------


def _disks(forecast: Forecast) -> Markup:
    parts = [_disk_plot(forecast, each) for each in forecast.disks[:_DISKS_MAX]]
    rows: list[list[str | Cell]] = []
    for each in forecast.disks:
        disk, growth = each.disk, each.growth
        total = disk.total_bytes
        rows.append(
            [
                disk.name,
                "-" if total is None else size_text(round(total)),
                size_text(round(disk.used_bytes)),
                size_text(round(disk.log_bytes)),
                "-" if growth is None else size_text(round(growth.disk_bytes * DAY_S)),
                "-" if growth is None else size_text(round(growth.mean_disk_bytes * DAY_S)),
                "-" if growth is None else size_text(round(growth.disk_bytes * disk.reserved_s)),
                _left_text(forecast, each.clean_in_s),
                Cell(
                    _left_text(forecast, each.full_in_s),
                    is_bad=forecast.is_soon(each.full_in_s),
                ),
            ]
        )
    head = ["disk", "size", "used", "log", "a day", "mean a day", "retention needs"]
    return section(
        "Disks",
        f"Growth is the median over {forecast.seen.basis}. The log grows until it is as old as the"
        " retention; a disk that has room for that is never full. From 85 % on brokers delete"
        " segments before their time, from 90 % on they refuse messages.",
        *parts,
        table([*head, "deletes early", "full"], rows, "<>>>>>>>>"),
    )


def _disk_plot(forecast: Forecast, each: DiskForecast) -> Markup:
    seen_s, disk = forecast.seen.seen_s, each.disk
    far_s = forecast.within_s
    if each.full_in_s is not None and math.isfinite(each.full_in_s):
        far_s = max(far_s, each.full_in_s * 1.15)
    far_s = min(far_s, _FAR_S)
    used = disk.used_bytes
    past: list[tuple[float, float]] = [(seen_s, used)]
    # Back from now: what came in between is taken off. Samples of history overlap.
    for sample in reversed(disk.samples):
        at_s = min(sample.start_s, past[-1][0])
        used -= sample.disk_bytes / sample.span_s * (past[-1][0] - at_s)
        if used < 0:
            break
        if at_s < past[-1][0]:
            past.append((at_s, used))
    past.reverse()
    ahead = [seen_s + far_s * step / _POINTS for step in range(1, _POINTS + 1)]
    nothing_yet = [math.nan] * (len(past) - 1)
    series = [Series("used", [*(value for _, value in past), *([math.nan] * _POINTS)])]
    if each.growth is not None:
        coming = [each.used_at(at_s - seen_s) for at_s in ahead]
        series.append(Series("forecast", [*nothing_yet, disk.used_bytes, *coming]))
    total = disk.total_bytes
    limit = None if total is None else FULL_RATIO * total
    return line_plot(
        disk.name,
        "bytes used; the past is what came, without what was deleted",
        [*(at_s for at_s, _ in past), *ahead],
        series,
        Unit.BYTES,
        limit=limit,
        limit_name=f"full: {FULL_RATIO:.0%} is",
    )


# --- groups -------------------------------------------------------------------------------------


def _groups(forecast: Forecast) -> Markup:
    if not forecast.seen.has_groups:
        told = "The store has no file of consumer offsets: how far groups are is not known."
        return section("Groups", told)
    behind = [each for each in forecast.groups if each.state.now.lag]
    bars = [
        Bar(
            f"{each.state.group} on {each.state.topic}",
            forecast.left_s(each.loss_in_s),
            "" if forecast.left_s(each.loss_in_s) else "now",
            forecast.loses_soon(each),
        )
        for each in behind
        if each.loss_in_s is not None and math.isfinite(each.loss_in_s) and not each.is_fresh
    ]
    rows = [_group_row(forecast, each) for each in forecast.groups]
    head = ["group", "topic", "lag", "first unread", "ages by", "loses messages", "when"]
    return section(
        "Groups",
        "A group loses what it has not read when that gets as old as the retention. A message that"
        " is not read ages by a second each second; a group that catches up makes its first unread"
        " message younger. If it stops is the earliest moment there can be.",
        bar_plot("Time until unread messages are lost", "by group", bars[:_BARS_MAX], Unit.SECONDS),
        table([*head, "if it stops", "all read in"], rows, "<<>>>><>>"),
    )


def _group_row(forecast: Forecast, each: GroupForecast) -> list[str | Cell]:
    state, now = each.state, each.state.now
    is_bad = forecast.loses_soon(each)
    loss = "-" if now.lag == 0 or each.is_fresh else _left_text(forecast, each.loss_in_s)
    when = "" if each.loss_in_s is None or each.is_fresh else _loss_when(forecast, each.loss_in_s)
    if state.expired:
        when = f"{state.expired:,} lost already"
    read = "-"
    if now.lag and each.read_in_s is not None:
        read = _left_text(forecast, each.read_in_s)
    return [
        state.group,
        state.topic,
        f"{now.lag:,}",
        "-" if not now.lag or now.age_s is None else seconds_text(now.age_s),
        "-" if not now.lag or each.age_slope is None else f"{each.age_slope:+.2f} s/s",
        Cell(loss, is_bad=is_bad, is_good=loss == "never"),
        Cell(when, is_bad=is_bad),
        "-" if not now.lag else _left_text(forecast, each.earliest_s),
        read,
    ]


def _loss_when(forecast: Forecast, in_s: float) -> str:
    return _when_text(forecast, in_s) if math.isfinite(in_s) else ""


# --- topics, queues, keys -----------------------------------------------------------------------


def _topics(forecast: Forecast) -> Markup:
    room = min(
        (
            max(0.0, FULL_RATIO * each.disk.total_bytes - each.disk.used_bytes)
            for each in forecast.disks
            if each.disk.total_bytes is not None
        ),
        default=None,
    )
    known = {topic: growth for topic, growth in forecast.growth.items() if growth is not None}
    total = math.fsum(growth.disk_bytes for growth in known.values())
    bars = []
    rows: list[list[str | Cell]] = []
    for topic, growth in forecast.growth.items():
        if growth is None:
            rows.append([topic, *(["-"] * 5), "too new to tell", "-"])
            continue
        left = None
        if room is not None and growth.disk_bytes > 0:
            left = room / growth.disk_bytes
            bars.append(Bar(topic, left, is_bad=left <= forecast.within_s))
        rows.append(
            [
                topic,
                size_text(round(growth.size_bytes * HOUR_S)),
                size_text(round(growth.size_bytes * DAY_S)),
                Unit.COUNT.text(growth.messages * HOUR_S),
                Unit.COUNT.text(growth.messages * DAY_S),
                f"{100 * growth.disk_bytes / total:.1f} %" if total else "-",
                f"{moment_text(growth.from_s)} to {moment_text(growth.to_s)}",
                "-" if left is None else seconds_text(left),
            ]
        )
    parts = [_growth_plot(forecast)]
    if room is not None:
        parts.append(
            bar_plot(
                "Time left",
                f"until a topic alone would fill the {size_text(round(room))} that are left",
                bars[:_BARS_MAX],
                Unit.SECONDS,
            )
        )
    head = ["topic", "an hour", "a day", "messages an hour", "a day", "share", "measured"]
    return section(
        "Topics",
        f"How fast each topic grows, in the median over {forecast.seen.basis}.",
        *parts,
        table([*head, "alone lasts"], rows, "<>>>>><>"),
    )


def _growth_plot(forecast: Forecast) -> Markup:
    shown = list(forecast.growth)[:_LINES_MAX]
    seen = forecast.seen
    ends = [[sample.start_s + sample.span_s for sample in seen.topics[topic]] for topic in shown]
    series = [
        Series(
            topic,
            [sample.size_bytes / sample.span_s * HOUR_S for sample in seen.topics[topic]],
        )
        for topic in shown
    ]
    return line_plot(
        "Growth", "bytes an hour, by topic", ends[0] if ends else [], series, Unit.BYTES
    )


def _hot(forecast: Forecast) -> Markup:
    seen = forecast.seen
    queues: list[list[str | Cell]] = [
        [
            each.topic,
            f"{each.largest[0]} {each.largest[1]}".strip(),
            f"{100 * each.ratio / each.queues:.1f} %",
            f"{each.ratio:.2f} x",
            f"{each.queues:,}",
            f"{each.messages:,}",
        ]
        for each in seen.hot_queues
    ]
    head = ["topic", "queue", "share of the topic", "in times of the mean", "queues", "messages"]
    parts = [table(head, queues, "<<>>>>")]
    if seen.hot_keys:
        bars = [
            Bar(f"{each.key} in {each.topic}", 100 * each.share, f"{each.messages:,} messages")
            for each in seen.hot_keys[:_BARS_MAX]
        ]
        parts.append(bar_plot("Keys", "share of the topic's messages", bars, Unit.PERCENT))
    return section(
        "Hot queues and keys",
        "A queue or a key that gets much more than others is the first to be too much for one"
        " consumer.",
        *parts,
    )
