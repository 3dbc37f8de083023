"""One self-contained HTML page for one run: verdict, figures, plots, tables.

A page needs no network and no script: its policy forbids everything but its own style and the one
script that makes tooltips quicker. Light or dark is what the reader's screen is.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import rmq
from rmq.errors import StorageError
from rmq.spark.pages.markup import NOTHING, Markup, element, joined, text
from rmq.spark.pages.style import SCRIPT, STYLE
from rmq.spark.pipelines.printing import time_text
from rmq.spark.pipelines.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rmq.spark.pipelines.verdict import Verdict

ROWS_MAX: Final = 200
"""Rows of a table on a page; Parquet beside the page has them all."""

_SHORT_CHARS: Final = 30
_SIGNS: Final = {
    Outcome.HOLDS: "✓ Holds",
    Outcome.FAILS: "✗ Does not hold",
    Outcome.UNKNOWN: "? Could not tell",
}


@dataclass(frozen=True, slots=True)
class Tile:
    """One number that matters."""

    label: str
    value: str
    note: str = ""
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table that is more than text."""

    text: str
    is_bad: bool = False
    is_good: bool = False
    is_code: bool = False


def tiles(values: Iterable[Tile]) -> Markup:
    """Return numbers side by side."""
    parts = [
        element(
            "div",
            element("div", text(tile.label), class_="label"),
            element("div", text(tile.value), class_="number"),
            element("div", text(tile.note), class_="note") if tile.note else NOTHING,
            class_="tile bad" if tile.is_bad else "tile",
        )
        for tile in values
    ]
    return element("div", *parts, class_="tiles")


def section(title: str, explanation: str, *parts: Markup) -> Markup:
    """Return a part of the page with a title and a sentence that tells how to read it."""
    told = element("p", text(explanation)) if explanation else NOTHING
    return element("section", element("h2", text(title)), told, *parts)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    align: str,
    *,
    total: int | None = None,
) -> Markup:
    """Return a table; `align` has `<` or `>` for each column, `>` being for numbers.

    `total` is how many rows there are, where `rows` does not hold all of them.
    """
    kinds = ["num" if side == ">" else None for side in align]
    shown = rows[:ROWS_MAX]
    lines = [
        element("tr", *(_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in shown
    ]
    heads = [
        element("th", text(name), class_=kind, scope="col")
        for name, kind in zip(head, kinds, strict=True)
    ]
    left_out = max(len(rows), total or 0) - len(shown)
    more = element("p", text(f"… and {left_out:,} more"), class_="more") if left_out else NOTHING
    body = joined(
        (element("thead", element("tr", *heads)), element("tbody", *(lines or [NOTHING])))
    )
    return joined((element("div", element("table", body), class_="scroll"), more))


def _cell(cell: str | Cell, kind: str | None) -> Markup:
    if isinstance(cell, str):
        cell = Cell(cell)
    # What is short stays on one line; what is long is broken wherever it must be.
    is_short = len(cell.text) <= _SHORT_CHARS
    shades = [
        kind or ("short" if is_short else None),
        "bad" if cell.is_bad else None,
        "good" if cell.is_good else None,
    ]
    content = element("code", text(cell.text)) if cell.is_code else text(cell.text)
    return element("td", content, class_=" ".join(shade for shade in shades if shade) or None)


def findings_list(verdict: Verdict) -> Markup:
    """Return the findings of a verdict; nothing if there are none."""
    if not verdict.findings:
        return NOTHING
    items = [element("li", text(finding.text)) for finding in verdict.findings]
    left_out = verdict.findings_left_out
    more = element("p", text(f"… and {left_out:,} more"), class_="more") if left_out else NOTHING
    return section("Findings", "", joined((element("ul", *items, class_="findings"), more)))


def page(title: str, target: str, made_s: float, verdict: Verdict, body: Iterable[Markup]) -> str:
    """Return a whole page."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    banner = element(
        "div",
        element("b", text(_SIGNS[verdict.outcome])),
        element("span", text(verdict.sentence)),
        class_=f"verdict {verdict.outcome.value}",
        role="status",
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", text(f"{title}: {target}")),
        element("style", Markup(STYLE)),
    )
    made = f"Made by rmq {rmq.__version__} at {time_text(made_s)}. Times are UTC."
    main = element(
        "main",
        element("header", element("h1", text(title)), element("p", text(target))),
        banner,
        *body,
        element("footer", text(made)),
    )
    whole = element(
        "html",
        head,
        element("body", main, element("div", id="tip"), element("script", Markup(SCRIPT))),
        lang="en",
    )
    return f"<!doctype html>\n{whole}\n"


def write_text(path: Path, content: str) -> None:
    """Write a file so that readers see the old one or the new one; raise `StorageError`."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise StorageError("write", str(path), exc.strerror or str(exc)) from exc
