"""Drawn expressions, evaluated by rmq and by a plain reading of RocketMQ 4.9.8's classes.

The naive evaluator knows nothing in advance: it computes the value of every node as Java would, an
object with a class, and compares objects by the conversions of ComparisonExpression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from rmq.broker.pulling.sql.errors import EvaluationError
from rmq.broker.pulling.sql.evaluator import compile_condition
from rmq.broker.pulling.sql.parser import parse_expression

INTEGER, LONG, DOUBLE, STRING, BOOLEAN = "Integer", "Long", "Double", "String", "Boolean"

READINGS: Final[dict[str, tuple[int | None, int | None, float | None]]] = {
    # text: as an Integer, as a Long, as a Double; None where Java throws
    "0": (0, 0, 0.0),
    "1": (1, 1, 1.0),
    "-7": (-7, -7, -7.0),
    "+3": (3, 3, 3.0),
    "1.0": (None, None, 1.0),
    "2.5": (None, None, 2.5),
    "-0.0": (None, None, -0.0),
    "2147483647": (2147483647, 2147483647, 2147483647.0),
    "2147483648": (None, 2147483648, 2147483648.0),
    "9007199254740993": (None, 9007199254740993, 9007199254740992.0),
    "9223372036854775808": (None, None, 9223372036854775808.0),
    " 1": (None, None, 1.0),
    "1d": (None, None, 1.0),
    "NaN": (None, None, math.nan),
    "Infinity": (None, None, math.inf),
    "true": (None, None, None),
    "TRUE": (None, None, None),
    "x": (None, None, None),
    "it's": (None, None, None),
}

NAMES: Final = ("a", "b", "c")

JavaObject: TypeAlias = "tuple[str, object] | None"
Node: TypeAlias = "tuple[object, ...]"


class JavaError(Exception):
    """What Java throws."""


# --- the naive evaluator -------------------------------------------------------------------


def evaluate(node: Node, properties: dict[str, str]) -> JavaObject:
    match node:
        case ("property", str(name)):
            return (STRING, properties[name]) if name in properties else None
        case ("text", str(text)):
            return (STRING, text)
        case ("number", str(literal)):
            return number_object(literal)
        case ("literal", None):
            return None
        case ("literal", bool(constant)):
            return (BOOLEAN, constant)
        case ("minus", tuple(operand)):
            value = evaluate(operand, properties)
            if value is None or value[0] not in (INTEGER, LONG, DOUBLE):
                return None
            assert isinstance(value[1], int | float)
            return (value[0], -value[1])
        case ("is null", tuple(operand)):
            return (BOOLEAN, evaluate(operand, properties) is None)
        case ("=" as sign, tuple(left), tuple(right)):
            return evaluate_equal(evaluate(left, properties), evaluate(right, properties), sign)
        case (("<" | "<=" | ">" | ">=") as sign, tuple(left), tuple(right)):
            left_object = evaluate(left, properties)
            if left_object is None:
                return None
            right_object = evaluate(right, properties)
            if right_object is None:
                return None
            if left_object[0] == right_object[0] == STRING:
                left_object = convert(left_object, DOUBLE)
                right_object = convert(right_object, DOUBLE)
            return (BOOLEAN, as_boolean(sign, compare(left_object, right_object)))
        case ("in", tuple(operand), tuple(elements)):
            value = evaluate(operand, properties)
            return None if value is None else (BOOLEAN, value[1] in elements)
        case ("cast", tuple(operand)):
            return None if evaluate(operand, properties) is None else (BOOLEAN, False)
        case ("not", tuple(operand)):
            value = evaluate(operand, properties)
            return None if value is None else (BOOLEAN, not value[1])
        case (("and" | "or") as word, tuple(left), tuple(right)):
            return evaluate_logic(word, left, right, properties)
    raise AssertionError(node)


def evaluate_equal(left: JavaObject, right: JavaObject, sign: str) -> JavaObject:
    if (left is None) != (right is None):
        return None if left is None else (BOOLEAN, False)
    if left is None or right is None or left == right:
        return (BOOLEAN, True)
    return (BOOLEAN, as_boolean(sign, compare(left, right)))


def evaluate_logic(word: str, left: Node, right: Node, properties: dict[str, str]) -> JavaObject:
    deciding = (BOOLEAN, word == "or")
    left_object = evaluate(left, properties)
    if left_object == deciding:
        return deciding
    right_object = evaluate(right, properties)
    if right_object == deciding:
        return deciding
    if left_object is None or right_object is None:
        return None
    return (BOOLEAN, word == "and")


def number_object(literal: str) -> tuple[str, object]:
    if not literal.isdigit():
        return (DOUBLE, float(literal))
    value = int(literal)
    return (INTEGER if value < 1 << 31 else LONG, value)


def as_boolean(sign: str, answer: int) -> bool:
    return {"=": answer == 0, "<": answer < 0, "<=": answer <= 0, ">": answer > 0}.get(
        sign, answer >= 0
    )


def compare(left: tuple[str, object], right: tuple[str, object]) -> int:
    """Return the sign of `lv.compareTo(rv)` after the conversions, or what replaces it."""
    numbers = (INTEGER, LONG, DOUBLE)
    if left[0] != right[0]:
        if left[0] == BOOLEAN:
            if right[0] == STRING:
                raise JavaError("ClassCastException")
            return -1
        if left[0] in numbers and right[0] in numbers:
            wider = max(left[0], right[0], key=numbers.index)
            left, right = convert(left, wider), convert(right, wider)
        elif left[0] in numbers and right[0] == STRING:
            right = convert(right, left[0])
        elif left[0] == STRING:
            left = convert(left, right[0])
        else:
            return -1
    return java_compare(left[1], right[1])


def convert(value: tuple[str, object], to_class: str) -> tuple[str, object]:
    if value[0] == STRING:
        text = str(value[1])
        if to_class == BOOLEAN:
            return (BOOLEAN, text.upper() == "TRUE")
        read = READINGS[text][(INTEGER, LONG, DOUBLE).index(to_class)]
        if read is None:
            raise JavaError("NumberFormatException")
        return (to_class, read)
    number = value[1]
    assert isinstance(number, int | float)
    return (to_class, float(number) if to_class == DOUBLE else number)


def java_compare(left: object, right: object) -> int:
    if isinstance(left, float):
        assert isinstance(right, float)
        left, right = double_key(left), double_key(right)
    assert isinstance(left, type(right))
    if left == right:
        return 0
    return -1 if left < right else 1  # type: ignore[operator]  # equal types, all ordered


def double_key(value: float) -> tuple[int, float, float]:
    if math.isnan(value):
        return (1, 0.0, 0.0)
    return (0, value, math.copysign(1, value))


# --- drawing expressions -------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A node and a text that stands for it."""

    node: Node
    text: str


def drawn(text: str, *node: object) -> Drawn:
    return Drawn(node, text)


properties_of_nodes = st.sampled_from(NAMES).map(lambda name: drawn(name, "property", name))
texts = st.sampled_from(sorted(READINGS)).map(
    lambda text: drawn("'" + text.replace("'", "''") + "'", "text", text)
)
numbers = st.sampled_from(
    ("0", "1", "3", "7", "2147483647", "2147483648", "9007199254740993", "1.0", "2.5", "7.0")
).map(lambda literal: drawn(literal, "number", literal))
literals = st.sampled_from(
    (
        drawn("TRUE", "literal", True),
        drawn("false", "literal", False),
        drawn("Null", "literal", None),
    )
)


def minus(operand: Drawn) -> Drawn:
    return drawn(f"- {operand.text}", "minus", operand.node)


def in_parentheses(operand: Drawn) -> Drawn:
    return Drawn(operand.node, f"({operand.text})")


@st.composite
def equalities(draw: st.DrawFn, values: st.SearchStrategy[Drawn]) -> Drawn:
    left, right = draw(values), draw(values)
    is_equal = drawn(f"{left.text} = {right.text}", "=", left.node, right.node)
    if draw(st.booleans()):
        return is_equal
    return drawn(f"{left.text}<>{right.text}", "not", is_equal.node)


@st.composite
def orderings(draw: st.DrawFn, values: st.SearchStrategy[Drawn]) -> Drawn:
    left, right = draw(values), draw(values)
    sign = draw(st.sampled_from(("<", "<=", ">", ">=")))
    return drawn(f"{left.text} {sign} {right.text}", sign, left.node, right.node)


@st.composite
def betweens(draw: st.DrawFn, values: st.SearchStrategy[Drawn]) -> Drawn:
    value = draw(values)
    # A sign keeps the bounds from being checked against each other.
    low, high = minus(draw(numbers)), draw(values)
    if draw(st.booleans()):
        return drawn(
            f"{value.text} BETWEEN {low.text} AND {high.text}",
            "and",
            (">=", value.node, low.node),
            ("<=", value.node, high.node),
        )
    return drawn(
        f"{value.text} NOT BETWEEN {low.text} AND {high.text}",
        "or",
        ("<", value.node, low.node),
        (">", value.node, high.node),
    )


@st.composite
def memberships(draw: st.DrawFn) -> Drawn:
    operand = draw(properties_of_nodes)
    elements = draw(st.lists(texts, min_size=1, max_size=6))
    list_text = ", ".join(element.text for element in elements)
    node = ("in", operand.node, tuple(element.node[1] for element in elements))
    if draw(st.booleans()):
        return Drawn(node, f"{operand.text} IN ({list_text})")
    return drawn(f"{operand.text} NOT IN ({list_text})", "not", node)


@st.composite
def null_tests(draw: st.DrawFn, values: st.SearchStrategy[Drawn]) -> Drawn:
    operand = draw(values)
    node = ("is null", operand.node)
    if draw(st.booleans()):
        return Drawn(node, f"{operand.text} IS NULL")
    return drawn(f"{operand.text} is not null", "not", node)


def as_operand(value: Drawn) -> Drawn:
    """Return what stands beside a comparison: there a name in parentheses is just its value."""
    match value.node:
        case ("cast", tuple(name)):
            return Drawn(name, value.text)
    return value


def larger(conditions: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    """Return conditions made of conditions."""
    inner = conditions.map(in_parentheses)
    operand = inner.map(as_operand)
    numeric = st.one_of(properties_of_nodes, numbers, numbers.map(minus), operand.map(minus))
    # TRUE and FALSE stand on the right, beside a constant they are refused on the left.
    comparable = st.one_of(numeric, texts, operand.filter(lambda value: value.node[0] != "literal"))
    return st.one_of(
        equalities(comparable),
        orderings(numeric),
        betweens(numeric),
        null_tests(st.one_of(comparable, literals)),
        inner.map(lambda operand: drawn(f"NOT {operand.text}", "not", operand.node)),
        st.tuples(st.sampled_from(("and", "or")), inner, inner).map(
            lambda parts: drawn(
                f"{parts[1].text} {parts[0]} {parts[2].text}",
                parts[0],
                parts[1].node,
                parts[2].node,
            )
        ),
        st.lists(inner, min_size=2, max_size=5).map(flat_or),
    )


def flat_or(terms: list[Drawn]) -> Drawn:
    node = terms[0].node
    for term in terms[1:]:
        node = ("or", node, term.node)
    return Drawn(node, " OR ".join(term.text for term in terms))


conditions = st.recursive(
    st.one_of(
        literals,
        properties_of_nodes.map(lambda name: drawn(name.text, "cast", name.node)),
        memberships(),
        equalities(st.one_of(properties_of_nodes, texts, numbers, numbers.map(minus))),
        orderings(st.one_of(properties_of_nodes, numbers, numbers.map(minus))),
    ),
    larger,
    max_leaves=8,
)
messages = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(sorted(READINGS)))


@given(conditions, st.lists(messages, min_size=1, max_size=5))
@example(drawn("a = TRUE", "=", ("property", "a"), ("literal", True)), [{"a": "TRUE"}, {"a": "x"}])
@example(drawn("TRUE = a", "=", ("literal", True), ("property", "a")), [{"a": "TRUE"}, {}])
def test_an_expression_gives_what_a_plain_reading_of_it_gives(
    condition: Drawn, drawn_messages: list[dict[str, str]]
) -> None:
    decide = compile_condition(parse_expression(condition.text).condition)
    for properties in drawn_messages:
        try:
            value = evaluate(condition.node, properties)
        except JavaError:
            wanted = "error"
        else:
            wanted = "unknown" if value is None else str(value[1])
        try:
            outcome = decide(properties)
        except EvaluationError:
            found = "error"
        else:
            found = "unknown" if outcome is None else str(outcome)
        assert found == wanted, (condition.text, properties)
