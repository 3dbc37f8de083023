"""The byte tables of docs/formats/, and what the declarations say of the same fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import construct

from rmq.model import record_layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from construct import Construct


def unwrapped(field: Construct[Any, Any]) -> Construct[Any, Any]:
    """Return a field without its name."""
    return unwrapped(field.subcon) if isinstance(field, construct.Renamed) else field


def declared_rows(declared: construct.Struct) -> Iterator[tuple[str, str, str]]:
    """Give place, size and name of each field; what varies is left open.

    Places behind the hosts of a record are those with IPv4.
    """
    place = 0
    varies = False
    for field in declared.subcons:
        base = unwrapped(field)
        base = unwrapped(base.subcon) if isinstance(base, construct.Const) else base
        length = record_layout.HOST_V4_BYTES
        size = ""
        is_text = False
        if isinstance(base, construct.FormatField):
            length = base.sizeof()
            size = f"{'i' if base.fmtstr[-1].islower() else 'u'}{8 * length}"
        elif isinstance(base, construct.Bytes) and isinstance(base.length, int):
            length = base.length
            size = str(length)
        elif isinstance(base, construct.StringEncoded):
            is_text = True
            size = f"u{8 * vars(base)['subcon'].lengthfield.sizeof()} + n"
        yield "" if varies else str(place), size, str(field.name)
        place += length
        varies = varies or is_text or field.name == "body"


def check_byte_table(page: Path, title: str, declared: construct.Struct) -> None:
    """Check that the table below a title says what the declaration does."""
    row = re.compile(r"^\| ?([^|]*?) ?\| ([^|]*?) \| `(\w+)` \|", re.MULTILINE)
    table = row.findall(section(page, title))
    expected = list(declared_rows(declared))
    assert [name for _, _, name in table] == [name for _, _, name in expected]
    for found, (place, size, name) in zip(table, expected, strict=True):
        assert found == (place, size or found[1], name)


def section(page: Path, title: str) -> str:
    """Return the text below a title of the second level."""
    _, _, text = page.read_text().partition(f"## {title}\n")
    assert text, f"{page.name} has no section {title}"
    return text.partition("\n## ")[0]
