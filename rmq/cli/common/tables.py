"""Tables and lists of facts on standard output, drawn by rich.

A terminal gets colour, unless `NO_COLOR` is set, and columns that fit its width: what is too long
is folded. Elsewhere lines are as long as they need to be, one for each row, for other programs.
rich is loaded when a table is drawn: `--json` does without.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from rmq.cli.common.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table
    from rich.text import Text

_UNLIMITED: Final = 100_000
"""Columns of a console that is no terminal."""

GOOD: Final = "green"
ODD: Final = "yellow"
BAD: Final = "bold red"
DIM: Final = "dim"


class Styled(NamedTuple):
    """Text that stands out on terminals."""

    text: str
    style: str


Cell: TypeAlias = "str | int | float | Styled | None"
"""Numbers stand to the right; None is a dash."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    is_number: bool = False


def print_table(columns: Sequence[Column | str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print rows below their titles; without rows, the titles alone."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        title, is_number = (column, False) if isinstance(column, str) else column
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(cell_text, row))
    _print(table)


def print_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """Print names, and what they are, below each other."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, cell_text(value))
    _print(table)


def print_json(value: object) -> None:
    """Print what a command has found for scripts."""
    print(json.dumps(value, indent=2, ensure_ascii=not _takes_unicode()))


def _print(table: Table) -> None:
    from rich.console import Console

    if sys.stdout is None:
        return
    is_terminal = sys.stdout.isatty()
    console = Console(
        file=sys.stdout,
        highlight=False,
        width=None if is_terminal else _UNLIMITED,
        legacy_windows=False,
    )
    if is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    # Columns are filled up with blanks, the last one, too.
    for line in captured.get().splitlines():
        print(line.rstrip())


def cell_text(cell: Cell) -> Text:
    """Return a cell as rich draws it."""
    from rich.text import Text

    if cell is None:
        return Text("-", style=DIM)
    if isinstance(cell, Styled):
        return Text(shown(cell.text), style=cell.style)
    if isinstance(cell, int):
        return Text(f"{cell:,}")
    return Text(f"{cell:,.1f}" if isinstance(cell, float) else shown(cell))


def _takes_unicode() -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "") == "utf8"
