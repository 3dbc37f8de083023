"""Derives fast `struct` packers from construct declarations.

Formats are declared once, with construct. Parsing with construct costs tens of microseconds, so hot
paths use what this module reads out of a declaration: a `struct.Struct` for a run of fixed-size
big-endian fields, and shift and mask for the bit fields of a `BitStruct`. Nothing is typed twice,
so the two cannot drift apart; tests prove them equal on drawn values.

The supported subset is what the formats need: big-endian integers of 1, 2, 4 and 8 bytes (`Int32sb`
and its kin) and raw `Bytes(n)`. Anything else is refused at import time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import construct

if TYPE_CHECKING:
    from collections.abc import Iterator

    _AnyConstruct = construct.Construct[Any, Any]

_FIELD_FORMATS = frozenset("bBhHiIlLqQ")


class BitField(NamedTuple):
    """Where one field sits inside an unsigned integer."""

    shift: int
    mask: int


def struct_of(declaration: construct.Struct) -> struct.Struct:
    """Return the `struct.Struct` of a declaration made of fixed-size fields only."""
    return struct.Struct(">" + "".join(_format_of(field) for field in declaration.subcons))


def fixed_prefix_of(declaration: construct.Struct) -> struct.Struct:
    """Return the `struct.Struct` of the leading fixed-size fields, up to the first that varies."""
    formats: list[str] = []
    for field in declaration.subcons:
        try:
            formats.append(_format_of(field))
        except TypeError:
            break
    if not formats:
        raise TypeError(f"{declaration!r} does not begin with a fixed-size field")
    return struct.Struct(">" + "".join(formats))


def bit_fields_of(declaration: _AnyConstruct) -> dict[str, BitField]:
    """Return shift and mask of every field of a `BitStruct` of unsigned integers."""
    # BitStruct(...) is a Transformed or Restreamed wrapper around a Struct of BitsInteger fields.
    fields = list(_bit_widths(declaration))
    total = sum(width for _, width in fields)
    placed: dict[str, BitField] = {}
    position = total
    for name, width in fields:
        position -= width
        placed[name] = BitField(shift=position, mask=(1 << width) - 1)
    return placed


def _bit_widths(declaration: _AnyConstruct) -> Iterator[tuple[str, int]]:
    inner = getattr(declaration, "subcon", None)
    if not isinstance(inner, construct.Struct):
        raise TypeError(f"{declaration!r} is not a BitStruct")
    for field in inner.subcons:
        base = _unwrap(field)
        if not isinstance(base, construct.BitsInteger) or base.signed or base.swapped:
            raise TypeError(f"{field!r} is not an unsigned big-endian bit field")
        width = base.length
        if not isinstance(width, int) or field.name is None:
            raise TypeError(f"{field!r} needs a name and a constant width")
        yield field.name, width


def _format_of(field: _AnyConstruct) -> str:
    base = _unwrap(field)
    if isinstance(base, construct.FormatField):
        order, code = base.fmtstr[0], base.fmtstr[1:]
        if code not in _FIELD_FORMATS or (order != ">" and struct.calcsize(code) > 1):
            raise TypeError(f"{field!r} is not a big-endian integer")
        # construct spells 32-bit integers "L"; in standard (">") mode "i"/"I" and "l"/"L" are the
        # same.
        return code
    if isinstance(base, construct.Bytes) and isinstance(base.length, int):
        return f"{base.length}s"
    raise TypeError(f"{field!r} has no fixed struct format")


def _unwrap(field: _AnyConstruct) -> _AnyConstruct:
    # A name, a computed value or a default does not change the bytes of what it wraps.
    while isinstance(field, construct.Renamed | construct.Rebuild | construct.Default):
        field = field.subcon
    return field
