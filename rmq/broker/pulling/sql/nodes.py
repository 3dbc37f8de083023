"""What an SQL92 expression says, as a tree.

A `Value` is what a comparison is made between, a `Condition` is true, false or unknown. Conditions
are values too. The parser builds only trees that RocketMQ 4.9.8 accepts.
"""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable


class NumberType(enum.Enum):
    """The Java type of a number, which decides how a property is read that is compared with it."""

    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"


class Ordering(enum.Enum):
    """The comparisons by size."""

    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="

    @property
    def holds(self) -> Callable[[Any, Any], bool]:
        """The function that compares two values of one type."""
        return _FUNCTIONS[self]

    @property
    def mirrored(self) -> Ordering:
        """The ordering that says the same with the sides exchanged."""
        return _MIRRORED[self]


_FUNCTIONS = {
    Ordering.LESS: operator.lt,
    Ordering.LESS_OR_EQUAL: operator.le,
    Ordering.GREATER: operator.gt,
    Ordering.GREATER_OR_EQUAL: operator.ge,
}
_MIRRORED = {
    Ordering.LESS: Ordering.GREATER,
    Ordering.LESS_OR_EQUAL: Ordering.GREATER_OR_EQUAL,
    Ordering.GREATER: Ordering.LESS,
    Ordering.GREATER_OR_EQUAL: Ordering.LESS_OR_EQUAL,
}


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property: a text, or nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number literal. There are no negative ones: the sign is a `Negative` around it."""

    value: int | float
    type: NumberType


@dataclass(frozen=True, slots=True)
class Literal:
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Negative:
    """A minus sign. Of anything but a number it makes nothing."""

    operand: Value


@dataclass(frozen=True, slots=True)
class Truth:
    """A property in the place of a condition: unknown without the property, and never true."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    operand: Condition


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Value


@dataclass(frozen=True, slots=True)
class Equal:
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Ordered:
    """A comparison by size, of properties, numbers and what has a minus sign."""

    ordering: Ordering
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class In:
    """Whether a property is one of some strings."""

    operand: Property
    elements: frozenset[str]


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Condition, ...]


def as_one_type(left: Number, right: Number) -> tuple[int | float, int | float]:
    """Return two numbers as they are compared with each other: as doubles when one of them is."""
    if NumberType.DOUBLE in (left.type, right.type):
        return float(left.value), float(right.value)
    return left.value, right.value


Condition: TypeAlias = "Literal | Truth | Not | IsNull | Equal | Ordered | In | And | Or"
Value: TypeAlias = "Property | Text | Number | Negative | Condition"

CONDITIONS = (Literal, Truth, Not, IsNull, Equal, Ordered, In, And, Or)
CONSTANTS = (Text, Number, Literal)
