"""From the tree of an SQL92 expression to a function of a message's properties.

The function gives True, False or None for unknown, and raises `EvaluationError` where RocketMQ
4.9.8 fails: a property that is not a number of the type it is compared with, or an outcome on the
left of an equality with a property on the right. Terms are evaluated in the order they are written
and as far as the outcome needs them, so whether a failure or an outcome comes first is the same.

Values other than properties are known now, and so are their types. What remains for each message is
to look up a property, to read it as a number where the other side is one, and to compare. The forms
that subscriptions are made of, a property on the left and a literal on the right, have functions of
their own; anything else goes through the general ones.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from rmq.broker.pulling.sql.errors import EvaluationError
from rmq.broker.pulling.sql.nodes import (
    CONDITIONS,
    And,
    Equal,
    In,
    IsNull,
    Literal,
    Negative,
    Not,
    Number,
    NumberType,
    Or,
    Ordered,
    Property,
    Text,
    Truth,
    as_one_type,
)
from rmq.broker.pulling.sql.numbers import read_double, read_i32, read_i64, total_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.broker.pulling.sql.nodes import Condition, Ordering, Value

    Properties: TypeAlias = Mapping[str, str]
    Decision: TypeAlias = Callable[[Properties], bool | None]
    Evaluation: TypeAlias = Callable[[Properties], str | int | float | bool | None]
    Comparison: TypeAlias = Callable[[Any, Any], bool]
    Reader: TypeAlias = Callable[[str], int | float]

_READERS: Final[dict[NumberType, Reader]] = {
    NumberType.INTEGER: read_i32,
    NumberType.LONG: read_i64,
    NumberType.DOUBLE: read_double,
}


def compile_condition(condition: Condition) -> Decision:
    """Return the function that decides `condition` for the properties of a message."""
    match condition:
        case Literal(value):
            return lambda _: value
        case Truth(Property(name)):
            # Properties are texts, and no text is true.
            return lambda properties: False if name in properties else None
        case Not(operand):
            return _not(operand)
        case IsNull(operand):
            return _is_null(operand)
        case Equal(left, right):
            return _equal(left, right)
        case Ordered(ordering, left, right):
            return _ordered(ordering, left, right)
        case In(Property(name), elements):
            return _in(name, elements)
        case And(terms):
            return _and(tuple(map(compile_condition, terms)))
        case Or(terms):
            return _or(tuple(map(compile_condition, terms)))
        case _:
            assert_never(condition)


# --- logic ---------------------------------------------------------------------------------


def _and(terms: tuple[Decision, ...]) -> Decision:
    def decide(properties: Properties) -> bool | None:
        outcome: bool | None = True
        for term in terms:
            decided = term(properties)
            if decided is None:
                outcome = None
            elif not decided:
                return False
        return outcome

    return decide


def _or(terms: tuple[Decision, ...]) -> Decision:
    def decide(properties: Properties) -> bool | None:
        outcome: bool | None = False
        for term in terms:
            decided = term(properties)
            if decided is None:
                outcome = None
            elif decided:
                return True
        return outcome

    return decide


def _not(operand: Condition) -> Decision:
    decide_operand = compile_condition(operand)

    def decide(properties: Properties) -> bool | None:
        decided = decide_operand(properties)
        return None if decided is None else not decided

    return decide


def _is_null(operand: Value) -> Decision:
    if isinstance(operand, Property):
        name = operand.name
        return lambda properties: name not in properties
    evaluate = _evaluation(operand)
    return lambda properties: evaluate(properties) is None


def _in(name: str, elements: frozenset[str]) -> Decision:
    def decide(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else text in elements

    return decide


# --- equality ------------------------------------------------------------------------------


def _equal(left: Value, right: Value) -> Decision:
    left, right = _with_signs(left), _with_signs(right)
    if isinstance(left, Property):
        if isinstance(right, Text):
            return _property_equals_text(left.name, right.value)
        if isinstance(right, Number):
            return _property_equals_number(left.name, right)
    evaluate_left, evaluate_right = _evaluation(left), _evaluation(right)
    are_equal = _equality(left, right)

    def decide(properties: Properties) -> bool | None:
        left_value = evaluate_left(properties)
        right_value = evaluate_right(properties)
        if right_value is None:
            # Two missing values are equal, a value and a missing one are not; unknown is only a
            # missing one on the left.
            return left_value is None
        return None if left_value is None else are_equal(left_value, right_value)

    return decide


def _property_equals_text(name: str, wanted: str) -> Decision:
    def decide(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else text == wanted

    return decide


def _property_equals_number(name: str, number: Number) -> Decision:
    wanted, read = number.value, _READERS[number.type]

    def decide(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else read(text) == wanted

    return decide


def _equality(left: Value, right: Value) -> Comparison:
    """Return how two values that are there are compared."""
    if isinstance(left, Number) and isinstance(right, Number):
        outcome = operator.eq(*as_one_type(left, right))
        return lambda _left, _right: outcome
    if isinstance(right, Number) and _is_textual(left):
        read = _READERS[right.type]
        return lambda text, number: read(text) == number
    if isinstance(left, Number) and _is_textual(right):
        read = _READERS[left.type]
        return lambda number, text: read(text) == number
    if isinstance(right, CONDITIONS) and _is_textual(left):
        return lambda text, outcome: (text.lower() == "true") is outcome
    if isinstance(left, CONDITIONS) and _is_textual(right):
        return _fail
    if isinstance(left, Number) or isinstance(right, Number):
        # An outcome is on the other side. Python takes True for 1, Java does not.
        return lambda _left, _right: False
    return operator.eq


def _fail(_left: object, _right: object) -> bool:
    # RocketMQ 4.9.8 ComparisonExpression casts the wrong side here.
    raise EvaluationError("an outcome on the left of a property")


def _is_textual(value: Value) -> bool:
    return isinstance(value, Property | Text)


# --- comparison by size --------------------------------------------------------------------


def _ordered(ordering: Ordering, left: Value, right: Value) -> Decision:
    left, right = _with_signs(left), _with_signs(right)
    match left, right:
        case Property(name), Number():
            return _property_and_number(ordering, name, right)
        case Number(), Property(name):
            return _property_and_number(ordering.mirrored, name, left)
        case Property(left_name), Property(right_name):
            return _two_properties(ordering, left_name, right_name)
        case Number(), Number():
            outcome = ordering.holds(*as_one_type(left, right))
            return lambda _: outcome
    return _never_known(left, right)


def _property_and_number(ordering: Ordering, name: str, number: Number) -> Decision:
    holds, limit = ordering.holds, number.value
    read = _read_sortable if number.type is NumberType.DOUBLE else _READERS[number.type]

    def decide(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else holds(read(text), limit)

    return decide


def _read_sortable(text: str) -> float:
    """Return a double that compares with any finite one as Java would have it."""
    value = read_double(text)
    return math.inf if math.isnan(value) else value


def _two_properties(ordering: Ordering, left_name: str, right_name: str) -> Decision:
    holds = ordering.holds

    def decide(properties: Properties) -> bool | None:
        left, right = properties.get(left_name), properties.get(right_name)
        if left is None or right is None:
            return None
        return holds(total_order(read_double(left)), total_order(read_double(right)))

    return decide


def _never_known(left: Value, right: Value) -> Decision:
    """Return the comparison with a side that is always missing: all it can do is to fail."""
    evaluate_left, evaluate_right = _evaluation(left), _evaluation(right)

    def decide(properties: Properties) -> None:
        if evaluate_left(properties) is not None:
            evaluate_right(properties)

    return decide


# --- values --------------------------------------------------------------------------------


def _with_signs(value: Value) -> Value:
    """Return a number with the signs before it made part of it, and any other value as it is."""
    if isinstance(value, Negative):
        operand = _with_signs(value.operand)
        if isinstance(operand, Number):
            return Number(-operand.value, operand.type)
    return value


def _evaluation(value: Value) -> Evaluation:
    """Return the function that gives a value, None if it is missing."""
    match _with_signs(value):
        case Property(name):
            return lambda properties: properties.get(name)
        case Text(constant) | Number(constant):
            return lambda _: constant
        case Negative(operand):
            return _nothing_of(_evaluation(operand))
        case condition:
            return compile_condition(condition)


def _nothing_of(evaluate: Evaluation) -> Evaluation:
    def evaluate_to_nothing(properties: Properties) -> None:
        evaluate(properties)

    return evaluate_to_nothing
