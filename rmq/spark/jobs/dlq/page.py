"""The page of the pipeline dlq: groups, kinds and ages of dead letters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmq.model.words import size_text
from rmq.spark.pages.cells import Bar, bar_plot, histogram
from rmq.spark.pages.page import Cell, Tile, findings_list, page, section, table, tiles
from rmq.spark.pages.scales import Unit
from rmq.spark.pipelines.printing import time_text

if TYPE_CHECKING:
    from rmq.spark.jobs.dlq.run import Triage
    from rmq.spark.pages.markup import Markup
    from rmq.spark.pipelines.verdict import Verdict

_HOUR_BINS = ((1, "0 h"), (3, "1 h"), (6, "3 h"), (12, "6 h"), (24, "12 h"), (48, "1 d"))
_LAST_BIN = "2 d"


def dlq_page(target: str, made_s: float, verdict: Verdict, result: Triage) -> str:
    """Return the whole page."""
    parts: list[Markup] = [
        tiles(
            (
                Tile("Dead letters", f"{result.dead:,}", size_text(result.size_bytes)),
                Tile("Not redriven", f"{result.open:,}", is_bad=result.open > 0),
                Tile("To be tried again", f"{result.retrying:,}"),
                Tile("Groups", f"{len(result.groups):,}", "with dead letters or retries"),
            )
        ),
        findings_list(verdict),
        section("Groups", "Whose messages died, redriven ones included.", _groups(result)),
        section(
            "Alike",
            "Messages of one group, topic and tag whose bodies have the same shape probably died"
            " for the same reason. Numbers, ids and texts of bodies are left out of the shape.",
            _alike(result),
        ),
        section("Age", "How long ago messages became dead letters.", _ages(result)),
    ]
    return page("Dead letters", target, made_s, verdict, parts)


def _groups(result: Triage) -> Markup:
    letters: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for kind in result.summary:
        if kind["kind"] == "dead":
            letters[kind["group"]] += kind["letters"]
            left[kind["group"]] += kind["open"]
    bars = [
        Bar(group, count, f"{left[group]:,} open", is_bad=left[group] > 0)
        for group, count in letters.most_common()
    ]
    return bar_plot("Dead letters", "by consumer group", bars, Unit.COUNT)


def _alike(result: Triage) -> Markup:
    rows = [
        (
            kind["group"],
            kind["kind"],
            kind["originTopic"] or Cell("not known", is_bad=True),
            kind["tags"] or "",
            Cell(kind["signature"], is_code=True),
            f"{kind['letters']:,}",
            Cell(f"{kind['open']:,}", is_bad=kind["open"] > 0),
            str(kind["reconsumeTimes"]),
            time_text(kind["lastStored"] / 1000),
            Cell(str(kind["exampleMsgId"]), is_code=True),
        )
        for kind in result.summary
    ]
    head = (
        "group",
        "state",
        "sent to",
        "tag",
        "body",
        "messages",
        "open",
        "tried",
        "last",
        "an example",
    )
    return table(head, rows, "<<<<<>>><<")


def _ages(result: Triage) -> Markup:
    counts: Counter[str] = Counter()
    for row in result.ages:
        name = next((name for hours, name in _HOUR_BINS if row["hours"] < hours), _LAST_BIN)
        counts[name] += row["count"]
    bins = [(name, float(counts[name])) for _, name in _HOUR_BINS] + [
        (_LAST_BIN, float(counts[_LAST_BIN]))
    ]
    return histogram(
        "Age", "a bar is for this long and longer", bins, Unit.COUNT, axis_name="dead for"
    )
