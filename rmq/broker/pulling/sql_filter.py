"""SQL92 subscriptions: `compile_sql` reads an expression, `SqlFilter` chooses messages by it.

The language and what it means are those of RocketMQ 4.9.8; see `rmq.broker.pulling.sql`. All
properties are texts and are read as numbers where a number is on the other side. A message whose
property is not such a number does not match, whatever the rest of the expression says.

Whether property filters are enabled, and which expression a consumer has, is decided by the
callers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, final

from rmq.broker.pulling.sql.errors import EvaluationError, SqlSyntaxError
from rmq.broker.pulling.sql.evaluator import compile_condition
from rmq.broker.pulling.sql.parser import parse_expression
from rmq.model.properties import PropertyFinder, decode_properties, decode_text
from rmq.model.record import HEAD_SIZES, SYS_FLAG_AT
from rmq.model.record_layout import HOST_FLAGS, PROPERTIES_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.broker.pulling.sql.parser import ParsedExpression

__all__ = ["SqlExpression", "SqlFilter", "SqlSyntaxError", "compile_sql"]

# Finding one property in a record is five times as fast as reading all of a usual one.
_NAMES_LOOKED_FOR_MAX: Final = 4

_I32: Final = struct.Struct(">i")
_read_i32 = _I32.unpack_from
_read_properties_length = PROPERTIES_LENGTH.unpack_from


def compile_sql(text: str) -> SqlExpression:
    """Return the expression that `text` stands for; raise `SqlSyntaxError` if it makes no sense."""
    return SqlExpression(text, parse_expression(text))


@final
class SqlExpression:
    """A condition on the properties of a message."""

    __slots__ = ("_decide", "names", "text")

    def __init__(self, text: str, parsed: ParsedExpression) -> None:
        self.text = text
        self.names = parsed.names
        """The properties the condition is about; others make no difference."""
        self._decide = compile_condition(parsed.condition)

    def evaluate(self, properties: Mapping[str, str]) -> bool:
        """Return whether the condition holds; it does not when it is unknown or cannot be told."""
        try:
            return self._decide(properties) is True
        except EvaluationError:
            return False

    def __repr__(self) -> str:
        return f"SqlExpression({self.text!r})"


@final
class SqlFilter:
    """Lets through the messages for which an expression holds (a `rmq.store.reads.MessageFilter`).

    The tags code says nothing about it, so every record is read.
    """

    __slots__ = ("_expression", "_finders")

    def __init__(self, expression: SqlExpression) -> None:
        self._expression = expression
        self._finders: tuple[tuple[str, PropertyFinder], ...] | None = None
        if len(expression.names) <= _NAMES_LOOKED_FOR_MAX:
            self._finders = tuple((name, PropertyFinder(name)) for name in sorted(expression.names))

    def matches_tags_code(self, tags_code: int) -> bool:
        return True

    def matches_record(self, record: memoryview) -> bool:
        encoded = _encoded_properties(record)
        return encoded is not None and self._expression.evaluate(self._properties(encoded))

    def _properties(self, encoded: bytes) -> dict[str, str]:
        if self._finders is None:
            return decode_properties(encoded)
        return {
            name: decode_text(value) for name, find in self._finders if (value := find(encoded))
        }


def _encoded_properties(record: memoryview) -> bytes | None:
    """Return the properties in a record, without checking its body; None if it is not sound."""
    try:
        (sys_flag,) = _read_i32(record, SYS_FLAG_AT)
        body_start = HEAD_SIZES[sys_flag & HOST_FLAGS]
        (body_length,) = _read_i32(record, body_start - _I32.size)
        topic_at = body_start + body_length
        if body_length < 0:
            return None
        lengths_at = topic_at + 1 + record[topic_at]
        (length,) = _read_properties_length(record, lengths_at)
    except (struct.error, IndexError):
        return None
    start = lengths_at + PROPERTIES_LENGTH.size
    return bytes(record[start : start + length]) if length >= 0 else None
