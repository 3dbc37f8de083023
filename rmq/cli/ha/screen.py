"""`rmq ha status` on a terminal: with colour, and no wider than the window."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmq.cli.common.shown import shown
from rmq.cli.common.tables import BAD, GOOD, ODD
from rmq.cli.ha.health import WRITABLE
from rmq.cli.ha.status import HEAD, Parts, parts_of
from rmq.ha.slave_status import SlaveState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.cli.ha.members import Group

_NUMBERS: Final = ("LOG END", "LAG", "LAG TIME", "HEARD FROM")
_LEFT_OUT_FIRST: Final = ("HEARD FROM", "LAG TIME", "LOG END")
"""Columns that narrow windows do without; --json has all of them."""
_STYLES: Final = {
    WRITABLE: GOOD,
    "NOT WRITABLE": BAD,
    "does not answer": BAD,
    "gone": BAD,
    "NO": BAD,
    "yes": GOOD,
    "connected": GOOD,
    SlaveState.STREAMING.value: GOOD,
    SlaveState.CATCHING_UP.value: ODD,
    SlaveState.CONNECTING.value: ODD,
    SlaveState.IDLE.value: ODD,
    SlaveState.RESEEDING.value: ODD,
    SlaveState.DIVERGED.value: BAD,
    SlaveState.STALE.value: BAD,
    SlaveState.OUTRUN.value: BAD,
    SlaveState.REFUSED.value: BAD,
    SlaveState.FAILED.value: BAD,
}


def show_status(groups: Sequence[Group], console: Console | None = None) -> None:
    """Draw the state of all groups; by default on standard output."""
    console = console or Console(file=sys.stdout, highlight=False)
    for number, group in enumerate(groups):
        if number:
            console.print()
        _show(parts_of(group), console)


def _show(parts: Parts, console: Console) -> None:
    style = GOOD if parts.is_healthy else BAD
    console.print(Text.assemble((f"{shown(parts.title)}: ", "bold"), (parts.verdict, style)))
    console.print()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in parts.facts:
        facts.add_row(name, Text(shown(value)))
    console.print(facts)
    console.print()
    console.print(_table(parts, console.width))
    for finding in parts.findings:
        sign, style = ("problem", BAD) if finding.is_problem else ("note", ODD)
        console.print()
        text = shown(f"{finding.where} {finding.what}")
        console.print(Text.assemble((f"{sign}: ", style), text))
        if finding.todo:
            console.print(Text(f"  -> {shown(finding.todo)}"))


def _table(parts: Parts, width: int) -> Table:
    """Return the table of brokers, with as many columns as there is room for."""
    cells = [[shown(cell) for cell in row] for row in parts.rows]
    needed = {
        title: max(len(title), *(len(row[index]) for row in cells), 0)
        for index, title in enumerate(HEAD)
    }
    kept = list(HEAD)
    for title in _LEFT_OUT_FIRST:
        if sum(needed[each] for each in kept) + 2 * (len(kept) - 1) > width:
            kept.remove(title)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in kept:
        is_number = title in _NUMBERS
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        named = dict(zip(HEAD, row, strict=True))
        table.add_row(*(Text(named[title], style=_STYLES.get(named[title], "")) for title in kept))
    return table
