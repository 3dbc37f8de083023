"""The signature of a body: what messages have in common that fail for the same reason.

Bodies that differ only in numbers, ids and texts have equal signatures. Of JSON the names and the
kinds of values remain, of other text everything but numbers and ids, of other bytes how they begin:

    {"id": 4711, "lines": [{"sku": "A-1"}, {"sku": "B-2"}]}   {"id":0,"lines":[{"sku":"s"}]}
    Order 4711 of 2024-05-31 failed                           Order 0 of 0-0-0 failed
    \x1f\x8b\x08 ...                                          binary 1f8b0800, 2^9 bytes

It is an expression of Spark SQL, which runs in Java without a Python process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

LOOKED_AT_CHARS: Final = 4096
"""What comes behind is ignored: long texts make regular expressions slow."""
SIGNATURE_CHARS: Final = 200

_NAME: Final = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*:'
_NAME_BEGIN: Final = "\x01"
_NAME_END: Final = "\x02"
"""Replaces the quotes of names while those of texts are searched."""
_TEXT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?$)'
"""The last one may end behind what is read."""
_UUID: Final = r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
_LONG_HEX: Final = r"\b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{16,}\b"
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_FLAT: Final = r'(\{[^\[\]{}]*\}|"s"|0|b|null)'


def body_signature(body: Column) -> Column:
    """Return the signature of a body (BINARY); that of a missing or empty one is `empty`."""
    text = F.substring(body.cast("STRING"), 1, LOOKED_AT_CHARS)
    is_json = text.rlike(r"^\s*[\[{]")
    shape = F.when(is_json, _json_shape(text)).otherwise(_text_shape(text))
    cut = F.when(
        F.length(shape) > SIGNATURE_CHARS,
        F.concat(F.substring(shape, 1, SIGNATURE_CHARS), F.lit("…")),
    ).otherwise(shape)
    return (
        F.when(body.isNull() | (F.length(body) == 0), F.lit("empty"))
        .when(F.is_valid_utf8(body.cast("STRING")) & ~_has_controls(text), cut)
        .otherwise(_binary_shape(body))
    )


def _json_shape(text: Column) -> Column:
    shape = F.regexp_replace(text, _NAME, f"{_NAME_BEGIN}$1{_NAME_END}")
    shape = F.regexp_replace(shape, _TEXT, '"s"')
    shape = F.regexp_replace(shape, r"\s+", "")
    shape = F.replace(shape, F.lit(_NAME_BEGIN), F.lit('"'))
    shape = F.replace(shape, F.lit(_NAME_END), F.lit('":'))
    shape = F.regexp_replace(shape, r"(?<![A-Za-z_])(?:true|false)(?![A-Za-z_])", "b")
    shape = F.regexp_replace(shape, _NUMBER, "0")
    # Lists of equal items count as one item; twice, because items contain lists.
    for _ in range(2):
        shape = F.regexp_replace(shape, rf"{_FLAT}(?:,\1)+(?=\])", "$1")
    return shape


def _text_shape(text: Column) -> Column:
    shape = F.regexp_replace(text, _UUID, "<uuid>")
    shape = F.regexp_replace(shape, _LONG_HEX, "<hex>")
    shape = F.regexp_replace(shape, r"[0-9]+", "0")
    return F.trim(F.regexp_replace(shape, r"\s+", " "))


def _has_controls(text: Column) -> Column:
    return text.rlike(r"[\x00-\x08\x0e-\x1f]")


def _binary_shape(body: Column) -> Column:
    begin = F.lower(F.hex(F.substring(body, 1, 4)))
    power = F.floor(F.log2(F.length(body))).cast("STRING")
    return F.concat(F.lit("binary "), begin, F.lit(", 2^"), power, F.lit(" bytes"))
