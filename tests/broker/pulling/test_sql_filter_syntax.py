"""Which texts are SQL92 expressions: those that RocketMQ 4.9.7 takes, within limits of our own."""

from __future__ import annotations

import time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.pulling.sql.parser import CHARS_MAX, NESTING_MAX, OPERANDS_MAX
from rmq.broker.pulling.sql_filter import SqlSyntaxError, compile_sql
from rmq.errors import RmqError


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "the end of the expression"),
        (" \t\n\r\f", 5, "the end of the expression"),
        ("a and between 2 and 10", 6, "'BETWEEN'"),
        ("a =", 3, "the end of the expression"),
        ("a = 1 or", 8, "the end of the expression"),
        ("a == 1", 3, "'='"),
        ("a != 1", 2, "'!' has no meaning"),
        ("a = 1 #", 6, "'#' has no meaning"),
        ("a = 1\x0b", 5, "has no meaning"),
        ("a = 1\u00a0", 5, "has no meaning"),
        ("\u00e9 = 1", 0, "has no meaning"),
        ("a = .", 4, "'.' has no meaning"),
        ("a = 'x", 4, "a string is not closed"),
        ("a = 'x''y", 7, "a string is not closed"),
        ("a /* = 1", 2, "a comment is not closed"),
        ("a /*/ = 1", 2, "a comment is not closed"),
        ("(a = 1", 6, "expected ')'"),
        ("a = 1)(", None, ""),
        ("()", 1, "')'"),
        ("a = 1 not", 9, "BETWEEN or IN"),
        ("a = 1 not b", 10, "BETWEEN or IN"),
        ("a is b", 5, "expected NULL"),
        ("a is not b", 9, "expected NULL"),
        ("a between 1", 11, "expected AND"),
        ("a between 1 or 2", 12, "expected AND"),
        ("a in 'x'", 5, "expected '('"),
        ("a in ()", 6, "expected a string"),
        ("a in (1)", 6, "expected a string"),
        ("a in (b)", 6, "expected a string"),
        ("a in ('x' 'y')", 10, "expected ')'"),
        ("a in ('x',)", 10, "expected a string"),
        ("a like 'x%'", None, ""),
        ("a + 1 = 2", None, ""),
        ("(a + 1) = 2", 3, "expected ')'"),
    ],
)
def test_the_place_and_the_reason_of_a_mistake(
    text: str, position: int | None, reason: str
) -> None:
    if position is None:
        # A complete expression, and what follows it is not looked at.
        compile_sql(text)
        return
    with pytest.raises(SqlSyntaxError) as caught:
        compile_sql(text)
    assert caught.value.position == position
    assert reason in caught.value.reason
    assert isinstance(caught.value, RmqError)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("5", id="a number is no condition"),
        pytest.param("'x'", id="a string is no condition"),
        pytest.param("-a", id="a sign makes no condition"),
        pytest.param("a = 1 and 5", id="after AND"),
        pytest.param("5 or a = 1", id="before OR"),
        pytest.param("not 5", id="after NOT"),
        pytest.param("not -a", id="after NOT, with a sign"),
        pytest.param("a = null", id="equal to NULL"),
        pytest.param("null = a", id="NULL on the left"),
        pytest.param("a <> null", id="not equal to NULL"),
        pytest.param("a = (null)", id="NULL in parentheses"),
        pytest.param("true = 5", id="an outcome and a number"),
        pytest.param("false = 'x'", id="an outcome and a string"),
        pytest.param("a > 'x'", id="a string by size"),
        pytest.param("'x' < a", id="a string by size on the left"),
        pytest.param("a > true", id="an outcome by size"),
        pytest.param("a > null", id="NULL by size"),
        pytest.param("a > (b = 1)", id="a comparison by size"),
        pytest.param("a > 1 > 2", id="a comparison on the left"),
        pytest.param("a between 'a' and 'b'", id="strings as bounds"),
        pytest.param("a between 1 and null", id="NULL as a bound"),
        pytest.param("a not between 1 and null", id="NULL as a bound of NOT BETWEEN"),
        pytest.param("a between 10 and 1", id="bounds the wrong way"),
        pytest.param("a between 1.5 and 1", id="bounds of two types"),
        pytest.param("(a = 1) between 1 and 2", id="a comparison between bounds"),
        pytest.param("'a' in ('a')", id="IN with a string on the left"),
        pytest.param("5 in ('5')", id="IN with a number on the left"),
        pytest.param("-a in ('5')", id="IN with a sign"),
        pytest.param("a in ('5') in ('5')", id="IN twice"),
        pytest.param("a > 9223372036854775808", id="over 64 bits"),
        pytest.param("a = -9223372036854775808", id="over 64 bits before its sign"),
        pytest.param(f"a > {'1' * 5000}", id="more digits than Python converts"),
        pytest.param("a > 1e400", id="over a double"),
        pytest.param("a > 1e-400", id="under a double"),
        pytest.param("a > 0.0", id="zero with a fraction"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str) -> None:
    with pytest.raises(SqlSyntaxError, match="malformed SQL expression at character"):
        compile_sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "a=3 or b<>4 Or c>5 OR d<=4",
        "(a not in ('6', '4', '5')) or (b in ('3', '4', '5'))",
        "(a between 2 and 10) AND (b not between 6 and 9)",
        "a <= now",
        "a between x and y",
        "5 between a and b",
        "a between -5 and -10",
        "a not between 10 and 1",
        "a between 9223372036854775808.0 and 9223372036854775807",
        "5 = true",
        "5 = '5'",
        "'x' is null",
        "5 is not null",
        "null is null",
        "null and a = 1",
        "not null",
        "not not a",
        "+a in ('x')",
        "(((a))) in ('x')",
        "a = 1 = b = 2",
        "a > 9223372036854775807",
        "a > 4.9e-324",
        "a > 1.7976931348623157e308",
        "a='x'and b='y'",
        "a=1--\r\n and b=2",
    ],
)
def test_what_has_a_meaning_is_taken(text: str) -> None:
    compile_sql(text)


# --- limits --------------------------------------------------------------------------------

DEEPEST: Final = [
    pytest.param("(", "a = 1", ")", id="parentheses"),
    pytest.param("NOT ", "TRUE", "", id="NOT"),
    pytest.param("+", "TRUE", "", id="plus"),
    pytest.param("- ", "a", "", id="minus"),
    pytest.param("", "a", " IS NULL", id="IS NULL"),
    pytest.param("", "a", " = b", id="equality"),
]


@pytest.mark.parametrize(("before", "inner", "after"), DEEPEST)
def test_nesting_is_limited(before: str, inner: str, after: str) -> None:
    def nested(depth: int) -> str:
        return f"({before * depth}{inner}{after * depth}) IS NOT NULL"

    # The outer parentheses count, and so does the second comparison of a chain.
    compile_sql(nested(NESTING_MAX - 1)).evaluate({"a": "1", "b": "x"})
    with pytest.raises(SqlSyntaxError, match=f"more than {NESTING_MAX}"):
        compile_sql(nested(NESTING_MAX + 2))


def test_the_deepest_mixture_can_be_evaluated() -> None:
    chained = " IS NULL" * NESTING_MAX
    text = f"a{chained}"
    for _ in range(NESTING_MAX):
        text = f"(FALSE OR TRUE AND {text} IS NULL)"
    assert compile_sql(text).evaluate({"a": "1"}) in (True, False)


def test_the_number_of_operands_is_limited() -> None:
    def terms(count: int) -> str:
        return " or ".join(["a"] * count)

    compile_sql(terms(OPERANDS_MAX))
    with pytest.raises(SqlSyntaxError, match=f"more than {OPERANDS_MAX} operands"):
        compile_sql(terms(OPERANDS_MAX + 1))


def test_elements_of_a_list_are_limited_by_the_length_only() -> None:
    elements = ",".join(f"'{number}'" for number in range(2000))
    assert compile_sql(f"a in ({elements})").evaluate({"a": "1999"})


@pytest.mark.parametrize("line_end", ["", "\n"])
def test_dashes_that_are_no_comments_take_no_longer_than_other_signs(line_end: str) -> None:
    text = line_end + " or ".join(["-" * 50 + "1 is null"] * 500)
    began = time.process_time()
    compile_sql(text)
    # It took 7 s when each dash was tried as the begin of a comment, up to the end of the text.
    assert time.process_time() - began < 1.5


def test_the_length_is_limited() -> None:
    def padded(length: int) -> str:
        return "a = 1".ljust(length)

    compile_sql(padded(CHARS_MAX))
    with pytest.raises(SqlSyntaxError) as caught:
        compile_sql(padded(CHARS_MAX + 1))
    assert caught.value.position == CHARS_MAX


PIECES: Final = st.sampled_from(
    [
        *("a", "b", "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
        *("1", "2.5", "0.0", "'x'", "'", "=", "<>", "<", "<=", ">", ">=", "(", ")", ",", "+", "-"),
        *("--", "/*", "*/", "!", "\n", "\x00", "\u00e9"),
    ]
)


def position_of_mistake(text: str) -> int | None:
    try:
        compile_sql(text).evaluate({"a": "1"})
    except SqlSyntaxError as error:
        return error.position
    return None


@given(st.one_of(st.text(), st.lists(PIECES).map(" ".join), st.lists(PIECES).map("".join)))
def test_any_text_is_an_expression_or_has_a_mistake_in_it(text: str) -> None:
    position = position_of_mistake(text)
    assert position is None or 0 <= position <= len(text)
