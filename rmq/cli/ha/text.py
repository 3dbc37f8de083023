"""Tables as `rmq ha` prints them. Text for numbers is in `rmq.model.words`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model.words import count_text, ms_text, offset_text, seconds_text, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "count_text",
    "facts",
    "ms_text",
    "offset_text",
    "seconds_text",
    "size_text",
    "table",
]

_RIGHT: Final = ">"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Return rows as lines with aligned columns; `align` has `<` or `>` for each column."""
    lines = [head, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if side == _RIGHT else cell.ljust(width)
            for cell, width, side in zip(line, widths, align, strict=True)
        ).rstrip()
        for line in lines
    ]


def facts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return names and values, the values below each other."""
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{name.ljust(width)}  {value}".rstrip() for name, value in pairs]
