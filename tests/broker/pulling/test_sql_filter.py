"""What SQL92 expressions mean: outcomes that the filter of RocketMQ 4.9.7 gives for the same input.

(Its filter is the one of 4.9.8.) The tables list the case where an outcome is not obvious.
"""

from __future__ import annotations

from typing import Final

import pytest

from rmq.broker.pulling.sql_filter import SqlFilter, compile_sql
from rmq.model.offsets import QueueOffset
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage, decode_records
from rmq.store.reads import GetStatus
from rmq.testing.storage import MemoryStorage
from tests.store.built_records import HOST_VARIANTS, build_record
from tests.store.store_kit import HEAD_BYTES, TOPIC, open_core, put

Properties = dict[str, str]

ORDER: Final = {"price": "42", "region": "hangzhou", "vip": "true", "weight": "1.5"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("price = 42", True),
        ("price <> 42", False),
        ("price = 42.0", True),
        ("price = '42'", True),
        ("price = '42.0'", False),
        ("price > 41 and price >= 42 AND price < 43 And price <= 42", True),
        ("price > 42 OR price < 42", False),
        ("42 = price", True),
        ("41 < price", True),
        ("43 <= price", False),
        ("price between 40 and 42", True),
        ("price BETWEEN 43 AND 50", False),
        ("price not between 43 and 50", True),
        ("price NOT BETWEEN 40 AND 42", False),
        ("region in ('beijing', 'hangzhou')", True),
        ("region IN ('beijing')", False),
        ("region not in ('beijing')", True),
        ("region NOT IN ('beijing', 'hangzhou', 'a', 'b', 'c')", False),
        ("price in ('42')", True),
        ("price in ('042')", False),
        ("region = 'hangzhou'", True),
        ("region = 'Hangzhou'", False),
        ("Region = 'hangzhou'", False),
        ("vip = TRUE", True),
        ("vip = false", False),
        ("region = FALSE", True),
        ("region is null", False),
        ("region is not null", True),
        ("other IS NULL", True),
        ("other IS NOT NULL", False),
        ("weight > 1.4 and weight < 1.6", True),
        ("weight > -2 or price > 0", False),
        ("weight > -2.0", True),
        ("price > -1", True),
        ("price = +42", True),
        ("price = - -42", True),
        ("price > weight", True),
        ("price < weight", False),
        ("price = 1 or region = 'hangzhou' and vip = true", True),
        ("(price = 1 or region = 'hangzhou') and vip = false", False),
        ("not (price = 1)", True),
        ("TRUE", True),
        ("FALSE or TRUE", True),
        ("5 > 3.5 and '5' = 5", True),
    ],
)
def test_expressions_over_an_order(text: str, matches: bool) -> None:
    assert compile_sql(text).evaluate(ORDER) is matches


UNKNOWN: Final = [
    pytest.param("a = 1", id="equal to a number"),
    pytest.param("a = 'x'", id="equal to a string"),
    pytest.param("a = TRUE", id="equal to an outcome"),
    pytest.param("a = b", id="missing on the left"),
    pytest.param("a <> 1", id="not equal"),
    pytest.param("a > 1", id="greater"),
    pytest.param("a > c", id="greater than another missing one"),
    pytest.param("b > a", id="missing on the right"),
    pytest.param("a between 1 and 2", id="between"),
    pytest.param("a not between 1 and 2", id="not between"),
    pytest.param("a in ('x')", id="in"),
    pytest.param("a not in ('x')", id="not in"),
    pytest.param("a", id="a bare property"),
    pytest.param("NULL", id="null"),
    pytest.param("b > -a", id="minus of a property"),
    pytest.param("-b > 1", id="minus of a number in a property"),
    pytest.param("b > -'1'", id="minus of a string"),
    pytest.param("b > -(b = 1)", id="minus of an outcome"),
]


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_unknown_is_neither_true_nor_false(unknown: str) -> None:
    present: Properties = {"b": "1"}
    assert compile_sql(f"({unknown}) IS NULL").evaluate(present)
    for text, matches in (
        (unknown, False),
        (f"NOT ({unknown})", False),
        (f"({unknown}) OR b = 1", True),
        (f"b = 1 OR ({unknown})", True),
        (f"({unknown}) OR b = 2", False),
        (f"NOT (({unknown}) OR b = 2)", False),
        (f"({unknown}) AND b = 1", False),
        (f"NOT (({unknown}) AND b = 1)", False),
        (f"({unknown}) AND b = 2", False),
        (f"NOT (({unknown}) AND b = 2)", True),
        (f"NOT (b = 2 AND ({unknown}))", True),
    ):
        assert compile_sql(text).evaluate(present) is matches, text


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        pytest.param("a = 1 or b = 1", {"a": "x", "b": "1"}, id="not a number"),
        pytest.param("a > 1 or b = 1", {"a": "2.5", "b": "1"}, id="not a whole number"),
        pytest.param("a > 1 or b = 1", {"a": "3000000000", "b": "1"}, id="over 32 bits"),
        pytest.param("a > 1.0 or b = 1", {"a": "two", "b": "1"}, id="not a double"),
        pytest.param("a > c or b = 1", {"a": "1", "b": "1", "c": "x"}, id="two properties"),
        pytest.param("TRUE = b or b = 1", {"b": "1"}, id="an outcome and a property"),
        pytest.param("(b = 1) <> b or b = 1", {"b": "1"}, id="a comparison and a property"),
        pytest.param("'x' = 5 or b = 1", {"b": "1"}, id="two literals"),
        pytest.param("1 > -(a > 1) or b = 1", {"a": "x", "b": "1"}, id="inside of a minus"),
    ],
)
def test_what_cannot_be_told_does_not_match_and_neither_does_its_opposite(
    text: str, properties: Properties
) -> None:
    assert not compile_sql(text).evaluate(properties)
    assert not compile_sql(f"NOT ({text})").evaluate(properties)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        pytest.param("b = 1 or a = 1", {"a": "x", "b": "1"}, id="or"),
        pytest.param("not (b = 2 and a = 1)", {"a": "x", "b": "1"}, id="and"),
        pytest.param("not (b between 5 and a)", {"a": "x", "b": "1"}, id="between"),
        pytest.param("(a > -(b > 5)) is null", {"b": "x"}, id="a missing left side"),
    ],
)
def test_what_the_outcome_does_not_need_is_not_evaluated(text: str, properties: Properties) -> None:
    assert compile_sql(text).evaluate(properties)


@pytest.mark.parametrize(
    ("text", "properties", "matches"),
    [
        pytest.param("a = b", {}, True, id="two missing properties are equal"),
        pytest.param("a <> b", {}, False, id="and not different"),
        pytest.param("a = b", {"a": "x"}, False, id="missing on the right is false"),
        pytest.param("a <> b", {"a": "x"}, True, id="and different"),
        pytest.param("a = -5", {"a": "-5"}, True, id="a negative number"),
        pytest.param("a = -2147483648", {"a": "-3000000000"}, False, id="its literal has 64 bits"),
        pytest.param("NOT (a = -2147483648)", {"a": "-3000000000"}, True, id="and so no error"),
        pytest.param("NOT (a = -2147483647)", {"a": "-3000000000"}, False, id="with 32 bits one"),
        pytest.param("NOT a = FALSE", {"a": "x"}, False, id="NOT binds tighter than a comparison"),
        pytest.param("NOT a = TRUE", {"a": "x"}, True, id="and a bare property is false"),
        pytest.param("NOT a = 5", {"a": "5"}, False, id="an outcome equals no number"),
        pytest.param("NOT a = 1", {"a": "1"}, False, id="not even 1"),
        pytest.param("1 = (a = 1)", {"a": "1"}, False, id="on neither side"),
        pytest.param("b = (a = 1)", {"a": "1", "b": "True"}, True, id="a text and an outcome"),
        pytest.param("a = TRUE = TRUE", {"a": "true"}, True, id="equality is left associative"),
        pytest.param("TRUE = b", {}, False, id="an outcome and a missing property"),
        pytest.param("NOT (TRUE = b)", {}, True, id="are different"),
        pytest.param("a between -1 and -5", {"a": "-3"}, False, id="signed bounds the wrong way"),
        pytest.param("a not between 9 and 1", {"a": "5"}, True, id="not between, the wrong way"),
        pytest.param("a = 0L", {"a": "0"}, True, id="a zero, and a name that is ignored"),
        pytest.param("a = 007", {"a": "0"}, True, id="a zero, and two numbers that are ignored"),
        pytest.param("a = 5L", {"a": "5"}, True, id="a number with a suffix"),
        pytest.param("a > .5", {"a": "0.6"}, True, id="no digit before the point"),
        pytest.param("a = 5.", {"a": "5"}, True, id="no digit after the point"),
        pytest.param("a > 3.1E10", {"a": "3.1415e10"}, True, id="an exponent"),
        pytest.param("a = '''''tag'''''", {"a": "''tag''"}, True, id="quotes in a string"),
        pytest.param("a = ''", {"a": "x"}, False, id="an empty string"),
        pytest.param("a = 'x'  b = 'y' #", {"a": "x"}, True, id="whatever follows is ignored"),
        pytest.param("a = 1 -- 2", {"a": "1"}, True, id="dashes at the end"),
        pytest.param("a = -- 1\n 2", {"a": "2"}, True, id="a comment to the end of the line"),
        pytest.param("a = -- 1", {"a": "1"}, True, id="no comment without a line end"),
        pytest.param("a /* = 1 ***/ = 2", {"a": "2"}, True, id="a comment between marks"),
        pytest.param("a > b", {"a": "0.0", "b": "-0.0"}, True, id="two zeros"),
        pytest.param("a > b", {"a": "NaN", "b": "Infinity"}, True, id="NaN is the greatest"),
        pytest.param("a >= b", {"a": "NaN", "b": "-NaN"}, True, id="and equal to itself"),
        pytest.param("a > 5.5", {"a": "NaN"}, True, id="also beside a literal"),
        pytest.param("a < 5.5 or a = 5.5", {"a": "NaN"}, False, id="and neither less nor equal"),
        pytest.param("a = b", {"a": "1", "b": "1.0"}, False, id="two properties are texts"),
        pytest.param("a >= b and a <= b", {"a": "1", "b": "1.0"}, True, id="except by size"),
        pytest.param(
            "9223372036854775807 = 9223372036854775808.0", {}, True, id="compared as doubles"
        ),
        pytest.param("a = '\U0001f600'", {"a": "\U0001f600"}, True, id="beyond the first plane"),
        pytest.param("$a_1 = 1", {"$a_1": "1"}, True, id="signs in a name"),
        pytest.param("now = 1", {"now": "1"}, True, id="now is a name like others"),
    ],
)
def test_surprises_of_the_stock_filter(text: str, properties: Properties, matches: bool) -> None:
    assert compile_sql(text).evaluate(properties) is matches


def test_an_expression_knows_its_properties_and_its_text() -> None:
    text = "a = 1 and (b > c or -d is null) and e in ('f')"
    expression = compile_sql(text)
    assert expression.names == {"a", "b", "c", "d", "e"}
    assert expression.text == text
    assert text in repr(expression)


# --- the filter ----------------------------------------------------------------------------

MANY_NAMES: Final = "a = 1 and b = 2 and c = 3 and d = 4 and e = 5"


def record_with(properties: Properties, *, hosts: int = 0, body: bytes = b"hello") -> memoryview:
    return memoryview(
        build_record(hosts=hosts, body=body, properties=encode_properties(properties))
    )


@pytest.mark.parametrize("hosts", HOST_VARIANTS, ids=HOST_VARIANTS.values())
@pytest.mark.parametrize("body", [b"", b"hello", bytes(300)], ids=["no body", "small", "larger"])
def test_the_filter_reads_the_properties_of_a_record(hosts: int, body: bytes) -> None:
    one = SqlFilter(compile_sql("a = 1"))
    many = SqlFilter(compile_sql(MANY_NAMES))
    all_five = {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}
    assert one.matches_record(record_with(all_five, hosts=hosts, body=body))
    assert many.matches_record(record_with(all_five, hosts=hosts, body=body))
    assert not one.matches_record(record_with({"a": "2"}, hosts=hosts, body=body))
    assert not many.matches_record(record_with({**all_five, "e": "6"}, hosts=hosts, body=body))
    assert not one.matches_record(record_with({}, hosts=hosts, body=body))


@pytest.mark.parametrize("names", ["a = 'x'", f"a = 'x' and (TRUE or {MANY_NAMES})"])
@pytest.mark.parametrize(
    ("properties", "matches"),
    [
        pytest.param(b"a\x01x", True, id="the only one"),
        pytest.param(b"a\x01x\x02", True, id="a separator after the last"),
        pytest.param(b"aa\x01y\x02a\x01x\x02b\x01y", True, id="between others"),
        pytest.param(b"a\x01y\x02a\x01x", True, id="the last of two"),
        pytest.param(b"a\x01x\x02a\x01", True, id="one without a value does not count"),
        pytest.param(b"b\x01a\x01x", False, id="inside of another value"),
        pytest.param(b"a\x01x\xff", False, id="not quite UTF-8"),
        pytest.param(b"a", False, id="no value"),
    ],
)
def test_the_filter_takes_properties_as_they_are_stored(
    names: str, properties: bytes, matches: bool
) -> None:
    record = memoryview(build_record(properties=properties))
    assert SqlFilter(compile_sql(names)).matches_record(record) is matches


def test_the_tags_code_says_nothing() -> None:
    assert SqlFilter(compile_sql("FALSE")).matches_tags_code(0)


def patched(position: int, data: bytes) -> memoryview:
    """Return a record without properties, other bytes at a position of it."""
    record = bytearray(build_record(properties=b""))
    start = position % len(record)
    record[start : start + len(data)] = data
    return memoryview(bytes(record))


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(memoryview(b""), id="empty"),
        pytest.param(memoryview(build_record())[:60], id="cut in the head"),
        pytest.param(memoryview(build_record(body=bytes(200)))[:150], id="cut in the body"),
        pytest.param(memoryview(build_record(body=bytes(200)))[:-26], id="cut in the topic"),
        pytest.param(patched(HEAD_BYTES - 4, (-80).to_bytes(4, signed=True)), id="a body below 0"),
        pytest.param(patched(HEAD_BYTES - 4, (1 << 30).to_bytes(4)), id="a body beyond the end"),
        pytest.param(patched(-2, (-1).to_bytes(2, signed=True)), id="properties below 0"),
    ],
)
def test_a_record_that_is_not_sound_does_not_match(damaged: memoryview) -> None:
    assert not SqlFilter(compile_sql("a IS NULL")).matches_record(damaged)


def test_a_store_gives_the_messages_that_match() -> None:
    core = open_core(MemoryStorage())
    try:
        for number in range(6):
            properties = encode_properties({"number": str(number), "parity": "eo"[number % 2]})
            put(core, [NewMessage(TOPIC, 0, b"%d" % number, properties)])
        found = core.reads.get(
            TOPIC,
            0,
            QueueOffset(0),
            32,
            SqlFilter(compile_sql("number between 1 and 4 and parity = 'e'")),
        )
        assert found.status is GetStatus.FOUND
        assert found.next_offset == 6
        bodies = [record.body for view in found.records for record in decode_records(view)]
        assert bodies == [b"2", b"4"]
        none = core.reads.get(TOPIC, 0, QueueOffset(0), 32, SqlFilter(compile_sql("number > 9")))
        assert none.status is GetStatus.NO_MATCHED_MESSAGE
        assert none.next_offset == 6
    finally:
        core.close()
