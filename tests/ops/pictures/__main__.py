"""Draws the dashboards from a pair under load: `make pictures`.

A nameserver, a master and its slave run with sample traffic; the mode is switched and the slave
promoted meanwhile, and pipelines run. A real Prometheus scrapes all of it and answers the queries
of the dashboards; what it answers is drawn in the places of the panels. Takes some twelve minutes
and needs `prometheus` (Debian's package of that name). These are no screenshots of Grafana.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from tests.ops.pictures.drawing import FAINT, TEXT, document, text
from tests.ops.pictures.panels import Box, Span, drawn
from tests.ops.pictures.prometheus import SCRAPE_S
from tests.ops.pictures.stage import running
from tests.ops.pictures.traffic import BOOKINGS, ORDERS, trade
from tests.ops.queries import dashboards, label_values, replaced
from tests.paths import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ops.pictures.prometheus import Prometheus, Series
    from tests.ops.pictures.stage import Stage

FOLDER: Final = DOCS / "pictures"
WIDTH: Final = 1200
_UNIT_PX: Final = 30
_HEAD_PX: Final = 34
_GAP_PX: Final = 4
_POINTS: Final = 60


async def act(stage: Stage, seconds: float) -> float:
    """Have a pair under load, with what an operator does to it; return when that was over."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trade, stage.nameserver)
        started = trio.current_time()

        async def until(part: float) -> None:
            await trio.sleep_until(started + part * seconds)

        first, second = stage.brokers
        await until(0.05)
        nursery.start_soon(_run_pipelines, stage, 0)
        await until(0.35)
        await stage.rmq("ha", "switch", "async", "-b", first)
        await until(0.5)
        await stage.rmq("ha", "switch", "sync", "-b", first)
        await until(0.65)
        await stage.rmq("ha", "promote", "-b", second, "--yes")
        await until(0.7)
        await _run_pipelines(stage, 1)
        await until(1)
        # What ended just now is scraped, too.
        await trio.sleep(2 * SCRAPE_S)
        end_s = time.time()
        nursery.cancel_scope.cancel()
    return end_s


async def _run_pipelines(stage: Stage, number: int) -> None:
    """Run pipelines and put what they found where it is scraped; 1: the slave is the master now."""
    master, slave = (stage.stores[place] for place in (number, 1 - number))
    cluster = ("-n", stage.nameserver)
    stores = ("--master-store", master, "--slave-store", slave)
    sizes = ("--index-slots", "500000", "--index-entries", "2000000")
    for name, arguments in (
        ("report", (*cluster, "--out", "report")),
        ("archive", (*cluster, "--topic", f"{ORDERS},{BOOKINGS}", "--out", "archive")),
        ("audit", (*stores, "--out", "audit")),
        ("verify", ("--store", slave, *sizes)),
        ("dlq", (*cluster, "--out", "dlq")),
        ("duplicates", (*cluster, "--topic", ORDERS)),
        ("forecast", (*cluster, "--out", "forecast")),
    ):
        run = ("pipeline", name, *arguments, "--metrics-file", f"{name}.prom")
        await stage.rmq(*run, codes=(0, 1))
        parts = [path.read_text() for path in sorted(stage.folder.glob("*.prom"))]
        stage.reports.write_text("".join(parts))


def pictures(prometheus: Prometheus, begin_s: float, end_s: float) -> Iterator[tuple[str, str]]:
    """Yield the name and the drawing of each dashboard."""
    for dashboard in dashboards():
        values = chosen(prometheus, dashboard, begin_s, end_s)
        yield dashboard["uid"], picture(prometheus, dashboard, values, begin_s, end_s)


def chosen(
    prometheus: Prometheus, dashboard: dict[str, Any], begin_s: float, end_s: float
) -> dict[str, str]:
    """Return what "All" stands for, of every variable, and the interval of rates."""
    step_s = (end_s - begin_s) / _POINTS
    values = {"__rate_interval": f"{max(step_s + SCRAPE_S, 4 * SCRAPE_S):.0f}s"}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query" and variable["allValue"] is None:
            selector, label = label_values(variable["definition"])
            found = prometheus.course(replaced(selector, values), begin_s, end_s, step_s)
            values[variable["name"]] = "|".join(sorted({each.labels[label] for each in found}))
    return values


def picture(
    prometheus: Prometheus,
    dashboard: dict[str, Any],
    values: dict[str, str],
    begin_s: float,
    end_s: float,
) -> str:
    """Return the drawing of a dashboard."""
    step_s = (end_s - begin_s) / _POINTS

    def ask(target: dict[str, Any]) -> list[Series]:
        expression = replaced(target["expr"], values)
        if target["instant"]:
            return prometheus.now(expression, end_s)
        return prometheus.course(expression, begin_s, end_s, step_s)

    marks = [
        (series.points[0][0], note["iconColor"])
        for note in dashboard["annotations"]["list"]
        for series in prometheus.course(replaced(note["expr"], values), begin_s, end_s, step_s)
    ]
    span = Span(begin_s, end_s, tuple(marks))
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(begin_s))
    until = time.strftime("%H:%M", time.gmtime(end_s))
    parts = [
        text(10, 22, dashboard["title"], 15, TEXT),
        text(WIDTH - 10, 22, f"{date} to {until} UTC, drawn from its queries", 10, FAINT, "end"),
    ]
    bottom = 0.0
    for panel in dashboard["panels"]:
        box = placed(panel["gridPos"])
        bottom = max(bottom, box.y + box.height)
        if panel["type"] == "row":
            parts.append(text(box.x + 4, box.y + 18, panel["title"], 12, TEXT))
        else:
            parts += drawn(panel, box, [ask(target) for target in panel["targets"]], span)
    return document(WIDTH, bottom + _GAP_PX, parts)


def placed(place: dict[str, int]) -> Box:
    """Return where a panel is drawn."""
    column = (WIDTH - _GAP_PX) / 24
    return Box(
        _GAP_PX + place["x"] * column,
        _HEAD_PX + place["y"] * _UNIT_PX,
        place["w"] * column - _GAP_PX,
        place["h"] * _UNIT_PX - _GAP_PX,
    )


async def main(seconds: float, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="rmq-pictures-") as data:
        async with running(Path(data)) as stage:
            begin_s = time.time()
            end_s = await act(stage, seconds)
            await trio.to_thread.run_sync(write, stage.prometheus, begin_s, end_s, folder)


def write(prometheus: Prometheus, begin_s: float, end_s: float, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in pictures(prometheus, begin_s, end_s):
        target = folder / f"{name.replace('rocketmq', 'dashboard')}.svg"
        target.write_text(drawing, encoding="utf-8")
        print(target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of traffic (%(default)g)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (%(default)s)")
    given = parser.parse_args()
    logging.getLogger("rmq.client").setLevel(logging.ERROR)
    trio.run(main, given.seconds, given.out)
