"""Settings as text: read as java.util.Properties does, written as RocketMQ does."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import LocalProtocolError
from rmq.remoting.bodies import BodyError, format_properties, parse_properties
from rmq.remoting.bodies.properties_text import BYTES_MAX, LINES_MAX

PLAIN_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\\ \t\f=:#!"), max_size=8
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a=1\nb=2\n", {"a": "1", "b": "2"}, id="as brokers write it"),
        pytest.param("a=1", {"a": "1"}, id="no line end at the end"),
        pytest.param("a=1\rb=2\r\nc=3\n", {"a": "1", "b": "2", "c": "3"}, id="all line ends"),
        pytest.param("", {}, id="nothing"),
        pytest.param("\n \t\n\f\n", {}, id="blank lines"),
        pytest.param("# a=1\n ! b=2\nc=#3\n", {"c": "#3"}, id="comments"),
        pytest.param("# a \\\nb=2\n", {"b": "2"}, id="a comment does not go on"),
        pytest.param("a:1\nb 2\nc\t3\n", {"a": "1", "b": "2", "c": "3"}, id="other separators"),
        pytest.param("a = 1\nb : 2 \n  c=3", {"a": "1", "b": "2 ", "c": "3"}, id="blanks"),
        pytest.param("a==1\nb=:2\nc :=3", {"a": "=1", "b": ":2", "c": "=3"}, id="two separators"),
        pytest.param("a\nb=\n=c\n", {"a": "", "b": "", "": "c"}, id="no value, no key"),
        pytest.param("a=1\na=2\n", {"a": "2"}, id="the last one counts"),
        pytest.param("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}, id="escaped separators"),
        pytest.param(
            "a=\\t\\n\\r\\f\\b\\\\\\q", {"a": "\t\n\r\fb\\q"}, id="escapes with and without meaning"
        ),
        pytest.param("a=\\u00fcx\\u4E2D", {"a": "üx中"}, id="characters by number"),
        pytest.param(
            "a=\\uD83D\\uDE00\\uD83D", {"a": "\N{GRINNING FACE}?"}, id="halves of surrogate pairs"
        ),
        pytest.param("a=\\\\u00zz", {"a": "\\u00zz"}, id="an escaped backslash before u"),
        pytest.param("a=1,\\\n   2,\\\r\n\t3\n", {"a": "1,2,3"}, id="continued lines"),
        pytest.param("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}, id="two backslashes end a line"),
        pytest.param("a=1\\", {"a": "1"}, id="a backslash at the very end"),
        pytest.param("a=1\\\n\nb=2", {"a": "1", "b": "2"}, id="a blank line ends a continued one"),
        pytest.param("a=1\\\n#2\n", {"a": "1#2"}, id="no comment inside a continued line"),
        pytest.param("\\\n#a=1\n", {"#a": "1"}, id="no comment after an empty continued line"),
        pytest.param("a=\u2028b\x85c\x0bd", {"a": "\u2028b\x85c\x0bd"}, id="no other line ends"),
        pytest.param("ключ=знач", {"ключ": "знач"}, id="UTF-8"),
    ],
)
def test_settings_are_read_by_the_rules_of_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text.encode()) == expected


def test_no_body_holds_no_settings() -> None:
    assert parse_properties(None) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            b"a=1\nb=\\u12",
            r"properties: line 2: \u without four hexadecimal digits",
            id="short escape",
        ),
        pytest.param(
            b"#\na=1\\\n\\\\\\u12g4",
            r"properties: line 2: \u without four hexadecimal digits",
            id="escape with a wrong digit, in a continued line",
        ),
        pytest.param(b"a=\xff", "properties: byte 2: is not UTF-8", id="not UTF-8"),
    ],
)
def test_text_that_java_cannot_read_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BodyError) as caught:
        parse_properties(data)

    assert str(caught.value) == message


def test_settings_are_written_one_by_line_without_escapes() -> None:
    settings = {"b": "C:\\data", "a": "", "order": "x = y"}

    assert format_properties(settings) == b"b=C:\\data\na=\norder=x = y\n"


@given(settings=st.dictionaries(PLAIN_TEXT, PLAIN_TEXT))
def test_settings_of_plain_text_are_read_back_as_they_were_written(
    settings: dict[str, str],
) -> None:
    assert parse_properties(format_properties(settings)) == settings


@given(text=st.text(st.sampled_from("a\\u0= :\t\f\r\n#!")))
def test_any_text_is_read_or_refused(text: str) -> None:
    if re.search(r"\\u(?!0000)", text.replace("\n", "").replace("\r", "")):
        # Refused, unless in a comment or behind an escaped backslash.
        with contextlib.suppress(BodyError):
            parse_properties(text.encode())
    else:
        lines = text.count("\n") + text.count("\r") + 1
        assert len(parse_properties(text.encode())) <= lines


@pytest.mark.parametrize("settings", [{"a": "1\nb=2"}, {"a\rb": "1"}], ids=["value", "key"])
def test_a_line_break_cannot_smuggle_in_another_setting(settings: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError, match="contains a line break"):
        format_properties(settings)


def test_a_text_that_is_too_long_is_refused_unread() -> None:
    text = b"a=" + b"b" * (BYTES_MAX - 2)
    assert parse_properties(text) == {"a": "b" * (BYTES_MAX - 2)}
    with pytest.raises(BodyError, match=f"above {BYTES_MAX}"):
        parse_properties(text + b"c")


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_a_text_of_too_many_lines_is_refused_unread(end: bytes) -> None:
    assert parse_properties((b"a=b" + end) * LINES_MAX) == {"a": "b"}
    with pytest.raises(BodyError, match=f"{LINES_MAX + 1} lines, above {LINES_MAX}"):
        parse_properties((b"a=b" + end) * LINES_MAX + end)
