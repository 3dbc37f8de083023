"""SQL92 filters: texts made by the grammar and damaged ones, and messages they are evaluated for.

An expression is read or refused with a `SqlSyntaxError` that names a place in it, within its bounds
of length, operands and depth. One that is read decides for any properties without an exception, by
nothing but the properties it names. One that was not damaged decides as the plain evaluator of the
tests does, which shares no code with the one of the broker.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmq.broker.pulling.sql.errors import EvaluationError
from rmq.broker.pulling.sql.evaluator import compile_condition
from rmq.broker.pulling.sql.parser import CHARS_MAX, OPERANDS_MAX, parse_expression
from rmq.broker.pulling.sql_filter import SqlFilter, SqlSyntaxError, compile_sql
from rmq.model.properties import encode_properties
from tests.broker.pulling.test_sql_filter_naive import (
    NAMES,
    READINGS,
    Drawn,
    JavaError,
    as_operand,
    drawn,
    evaluate,
    flat_or,
    in_parentheses,
    minus,
)
from tests.fuzz.mutations import NUMBER_TEXTS, mutated_bytes
from tests.store.built_records import build_record

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

_TEXTS: Final = tuple(sorted(READINGS))
_NUMBERS: Final = ("0", "1", "3", "7", "2147483647", "2147483648", "9007199254740993", "2.5", "7.0")
_LITERALS: Final = (
    drawn("TRUE", "literal", True),
    drawn("false", "literal", False),
    drawn("Null", "literal", None),
)
_ORDERINGS: Final = ("<", "<=", ">", ">=")
_DEPTH_MAX: Final = 5
_PIECES: Final = (
    *("(", ")", ",", "=", "<>", "<", "<=", ">", ">=", "+", "-", "--", "--\n", "/*", "*/", "'"),
    *(" AND ", " or ", " NOT ", " BETWEEN ", " IN ", " IS NULL ", " IS NOT NULL ", "TRUE", "NULL"),
    *("a", "b", "$c_1", "'x'", "''", "'it''s'", "0", "007", "1L", "1.", ".5", "1e400", "1e-400"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "\x00",
        "\ufeff",
        "é",
        "\U0001d7d9",
        "#",
        ";",
        "\u2028",
    ),
    *("(" * 3, "-" * 3, "NOT " * 3, "a=" * 2, "a=1 OR " * 2, "'y'," * 3, "9" * 40),
)
_LONG_PIECES: Final = (
    *("(" * 63, "-" * 63, "NOT " * 63, "a=" * 60, "a=1 OR " * 600, "'y'," * 300, "9" * 5000),
)
_LONG_SHARE: Final = 0.05
"""How many damaged texts come near the bounds of an expression: each takes as long as twenty."""
_TOKEN: Final = re.compile(r"'[^']*'|[A-Za-z_$][\w$]*|[0-9.]+|<>|<=|>=|\s+|.", re.DOTALL)
_RARE_VALUES: Final = (
    *(
        "",
        "0x1p3",
        "0x1p99999",
        "1e999",
        "-Infinity",
        "+NaN",
        "1_0",
        "\U0001d7d9",
        "٣",
        "١٢",
        "\ud800",
    ),
    *("0" * 5000 + "1", "9" * 5000, "-" + "9" * 19, "1e" + "9" * 400, "." * 300, " " * 300 + "x"),
    *(text.decode() for text in NUMBER_TEXTS),
)


def examine(chance: random.Random) -> str:
    """Read and evaluate one expression."""
    if chance.random() < 0.4:
        condition = _condition(chance, _DEPTH_MAX)
        _compare_with_plain(condition, chance)
        return "evaluated as plainly"
    text = _damaged(_condition(chance, chance.randint(0, _DEPTH_MAX)).text, chance)
    return _examine_text(text, chance)


def _compare_with_plain(condition: Drawn, chance: random.Random) -> None:
    decide = compile_condition(parse_expression(condition.text).condition)
    for _ in range(3):
        properties = {name: chance.choice(_TEXTS) for name in NAMES if chance.random() < 0.7}
        try:
            value = evaluate(condition.node, properties)
        except JavaError:
            wanted: object = "error"
        else:
            wanted = None if value is None else value[1]
        try:
            found: object = decide(properties)
        except EvaluationError:
            found = "error"
        assert found == wanted, f"{found}, not {wanted}: {condition.text!r} of {properties}"


def _examine_text(text: str, chance: random.Random) -> str:
    try:
        expression = compile_sql(text)
    except SqlSyntaxError as exc:
        _check_refusal(exc, text)
        return "refused"
    assert len(text) <= CHARS_MAX, "longer than allowed"
    assert len(expression.names) <= OPERANDS_MAX, "more names than operands"
    for _ in range(3):
        properties = _properties(expression.names, chance)
        outcome = expression.evaluate(properties)
        assert isinstance(outcome, bool), f"{outcome!r}: {text!r} of {properties}"
        beside = {f"{name}x": value for name, value in properties.items()} | properties
        needless = {name: value for name, value in beside.items() if name in expression.names}
        assert expression.evaluate(needless) is outcome, f"other properties: {text!r}"
        _examine_record(text, properties, outcome, chance)
    return "read"


def _check_refusal(error: SqlSyntaxError, text: str) -> None:
    assert 0 <= error.position <= len(text), f"a place outside of the text: {text[:1000]!r}"
    assert len(str(error)) < 300, f"a message that repeats the text: {text[:1000]!r}"


def _examine_record(
    text: str, properties: Mapping[str, str], outcome: bool, chance: random.Random
) -> None:
    """Let the filter look into a record with these properties, and into a damaged one."""
    sound = {
        name: value
        for name, value in properties.items()
        if value and value.isprintable() and len(value) < 1000
    }
    record = build_record(properties=encode_properties(sound))
    chosen = SqlFilter(compile_sql(text))
    found = chosen.matches_record(memoryview(record))
    if len(sound) == len(properties):
        assert found is outcome, f"a record is not chosen as its properties are: {text!r}"
    assert chosen.matches_record(memoryview(mutated_bytes(record, chance))) in (True, False)


def _properties(names: frozenset[str], chance: random.Random) -> dict[str, str]:
    known = [*sorted(names)[:20], *NAMES]
    return {
        name: chance.choice(_RARE_VALUES if chance.random() < 0.5 else _TEXTS)
        for name in known
        if chance.random() < 0.7
    }


# --- damage ----------------------------------------------------------------------------------


def _damaged(text: str, chance: random.Random) -> str:
    is_long = chance.random() < _LONG_SHARE
    for _ in range(chance.choice((1, 1, 2, 4))):
        text = _damaged_once(text, chance, is_long=is_long)
    return text


def _damaged_once(text: str, chance: random.Random, *, is_long: bool) -> str:
    tokens = _TOKEN.findall(text)
    place = chance.randrange(len(tokens) + 1)
    pieces = _LONG_PIECES if is_long else _PIECES
    match chance.randrange(7):
        case 0:
            tokens[place : place + 1] = [chance.choice(pieces)]
        case 1:
            tokens.insert(place, chance.choice(pieces))
        case 2:
            del tokens[place : place + chance.choice((1, 1, 3))]
        case 3:
            end = place + chance.choice((1, 2, 5, 20))
            tokens[place:end] = tokens[place:end] * chance.choice((40, 400) if is_long else (2, 3))
        case 4:
            depth = chance.choice((30, 62, 63, 64, 65, 1000) if is_long else (1, 2))
            return _nested(text, depth, chance)
        case 5:
            most = CHARS_MAX // (len(text) + 5)
            count = chance.choice((10, 64, 65, 200, 511, 512, 513, most) if is_long else (2, 2, 3))
            return _repeated(text, count, chance)
        case _:
            return mutated_bytes(text.encode(errors="replace"), chance).decode(errors="replace")
    return "".join(tokens)[: 2 * CHARS_MAX]


def _nested(text: str, depth: int, chance: random.Random) -> str:
    before, after = chance.choice(
        (("(", ")"), ("NOT (", ")"), ("-(", ")"), ("NOT ", ""), ("-", ""))
    )
    return (before * depth + text + after * depth)[: 2 * CHARS_MAX]


def _repeated(text: str, count: int, chance: random.Random) -> str:
    between = chance.choice((" AND ", " OR ", " = ", " <> ", "\n", "--", " /* */ "))
    return between.join([text] * count)[: 2 * CHARS_MAX]


# --- the grammar -----------------------------------------------------------------------------


def _condition(chance: random.Random, depth: int) -> Drawn:
    """Return a condition that makes sense, and what it means."""
    if not depth or chance.random() < 0.2:
        return _leaf(chance)
    inner = [in_parentheses(_condition(chance, depth - 1)) for _ in range(2)]
    match chance.randrange(7):
        case 0:
            return drawn(f"NOT {inner[0].text}", "not", inner[0].node)
        case 1 | 2:
            word = chance.choice(("and", "or"))
            text = f"{inner[0].text} {word} {inner[1].text}"
            return drawn(text, word, inner[0].node, inner[1].node)
        case 3:
            return flat_or([*inner, in_parentheses(_leaf(chance))])
        case 4:
            return _equality(_comparable(chance, inner[0]), _comparable(chance, inner[1]), chance)
        case 5:
            return _ordering(_numeric(chance, inner[0]), _numeric(chance, inner[1]), chance)
        case _:
            return _null_test(_comparable(chance, inner[0]), chance)


def _leaf(chance: random.Random) -> Drawn:
    match chance.randrange(6):
        case 0:
            return chance.choice(_LITERALS)
        case 1:
            name = chance.choice(NAMES)
            return drawn(name, "cast", ("property", name))
        case 2:
            return _membership(chance)
        case 3 | 4:
            return _equality(_plain(chance), _plain(chance), chance)
        case _:
            return _ordering(_number(chance), _number(chance), chance)


def _property(chance: random.Random) -> Drawn:
    name = chance.choice(NAMES)
    return drawn(name, "property", name)


def _text(chance: random.Random) -> Drawn:
    text = chance.choice(_TEXTS)
    return drawn("'" + text.replace("'", "''") + "'", "text", text)


def _number(chance: random.Random) -> Drawn:
    if chance.random() < 0.5:
        return _property(chance)
    literal = chance.choice(_NUMBERS)
    number = drawn(literal, "number", literal)
    return minus(number) if chance.random() < 0.3 else number


def _plain(chance: random.Random) -> Drawn:
    return _text(chance) if chance.random() < 0.4 else _number(chance)


def _numeric(chance: random.Random, inner: Drawn) -> Drawn:
    return minus(as_operand(inner)) if chance.random() < 0.3 else _number(chance)


def _comparable(chance: random.Random, inner: Drawn) -> Drawn:
    operand = as_operand(inner)
    # TRUE and FALSE beside a constant are refused on the left.
    if chance.random() < 0.4 and operand.node[0] != "literal":
        return operand
    return _plain(chance)


def _equality(left: Drawn, right: Drawn, chance: random.Random) -> Drawn:
    equal = drawn(f"{left.text} = {right.text}", "=", left.node, right.node)
    if chance.random() < 0.6:
        return equal
    return drawn(f"{left.text}<>{right.text}", "not", equal.node)


def _ordering(left: Drawn, right: Drawn, chance: random.Random) -> Drawn:
    sign = chance.choice(_ORDERINGS)
    return drawn(f"{left.text} {sign} {right.text}", sign, left.node, right.node)


def _null_test(operand: Drawn, chance: random.Random) -> Drawn:
    node = ("is null", operand.node)
    if chance.random() < 0.5:
        return Drawn(node, f"{operand.text} IS NULL")
    return drawn(f"{operand.text} is not null", "not", node)


def _membership(chance: random.Random) -> Drawn:
    operand = _property(chance)
    elements = [_text(chance) for _ in range(chance.randint(1, 5))]
    node = ("in", operand.node, tuple(element.node[1] for element in elements))
    listed = ", ".join(element.text for element in elements)
    if chance.random() < 0.6:
        return Drawn(node, f"{operand.text} IN ({listed})")
    return drawn(f"{operand.text} NOT IN ({listed})", "not", node)
