"""Message properties: against the rules of RocketMQ 4.9.8 written down plainly, and golden logs."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq.model.properties import (
    DELAY,
    KEYS,
    TAGS,
    UNIQ_KEY,
    PropertyFinder,
    decode_properties,
    decode_text,
    encode_properties,
    find_delay,
    find_keys,
    find_tags,
    find_unique_key,
)
from rmq.model.record_layout import Record
from tests.store.golden import stores as golden

FINDERS: Final = {
    KEYS: find_keys,
    TAGS: find_tags,
    DELAY: find_delay,
    UNIQ_KEY: find_unique_key,
    "A": PropertyFinder("A"),
    "AA": PropertyFinder("AA"),
}

# Well-formed UTF-8, one character.
WELL_FORMED: Final = (
    rb"[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]"
    rb"|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
# What Java replaces by one U+FFFD: the longest beginning of a character, where half a surrogate
# pair counts as one; else a byte.
MALFORMED: Final = (
    rb"\xe0[\xa0-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]|\xed[\x80-\x9f]|\xed[\xa0-\xbf][\x80-\xbf]?"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]?|[\xf1-\xf3][\x80-\xbf]{1,2}|\xf4[\x80-\x8f][\x80-\xbf]?|."
)
CHARACTERS: Final = re.compile(b"(" + WELL_FORMED + b")|" + MALFORMED, re.DOTALL)


def java_text(data: bytes) -> str:
    """Decode UTF-8 as `new String(bytes, UTF_8)`, character by character."""
    return "".join(
        match[1].decode() if match[1] is not None else "\ufffd"
        for match in CHARACTERS.finditer(data)
    )


def java_properties(data: bytes) -> dict[str, str]:
    """Read properties as RocketMQ 4.9.8 MessageDecoder does, position by position."""
    text = java_text(data)
    properties: dict[str, str] = {}
    start = 0
    while start < len(text):
        stop = text.find("\x02", start)
        if stop < 0:
            stop = len(text)
        middle = text.find("\x01", start)
        if stop - start >= 3 and start < middle < stop - 1:
            properties[text[start:middle]] = text[middle + 1 : stop]
        start = stop + 1
    return properties


# Pieces of property strings, chosen so that separators, names, beginnings and ends of names, and
# bytes that are not UTF-8 meet in all ways.
PIECES: Final = [
    *(b"\x01", b"\x02", b"\x01\x02", b"\x02\x01", b"\x01\x01", b"\x02\x02"),
    *(b"TAGS", b"KEYS", b"DELAY", b"UNIQ_KEY", b"A", b"AA", b"X", b"TAG", b"AGS", b" "),
    *(b"TAGS\x01", b"\x02TAGS\x01", b"\x02KEYS\x01v", b"XTAGS\x01v", b"TAGSX\x01v", b"\x02A\x01"),
    *("é".encode(), "😀".encode(), b"\xc3", b"\xff", b"\x80", b"\xed\xa0", b"\xe4\xbd", b"\0"),
]
nasty = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
examples = settings(max_examples=100)

names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)

# --- decoding -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", {}, id="empty"),
        pytest.param(b"a\x01b\x02c\x01\x02d\x01e\x02", {"a": "b", "d": "e"}, id="known"),
        pytest.param(b"a\x01b", {"a": "b"}, id="shortest pair"),
        pytest.param(b"a\x01b\x02", {"a": "b"}, id="0x02 at the end"),
        pytest.param(b"\x02a\x01b", {"a": "b"}, id="0x02 at the beginning"),
        pytest.param(b"a\x01b\x02\x02\x02c\x01d", {"a": "b", "c": "d"}, id="empty pairs"),
        pytest.param(b"a\x01b\x02a\x01c", {"a": "c"}, id="the last value counts"),
        pytest.param(b"a\x01b\x02a\x01", {"a": "b"}, id="but not an empty one"),
        pytest.param(b"a\x01", {}, id="no value"),
        pytest.param(b"\x01b", {}, id="no name"),
        pytest.param(b"\x01bc\x02d\x01e", {"d": "e"}, id="no name, then a pair"),
        pytest.param(b"abc", {}, id="no separator"),
        pytest.param(b"abc\x02d\x01e", {"d": "e"}, id="a separator only in the next pair"),
        pytest.param(b"a\x01b\x01c", {"a": "b\x01c"}, id="0x01 in a value"),
        pytest.param(b"a\x01\x01", {"a": "\x01"}, id="0x01 as a value"),
        pytest.param("ключ\x01测试😀".encode(), {"ключ": "测试😀"}, id="UTF-8"),
        pytest.param(b"a\x01\xff", {"a": "\ufffd"}, id="not UTF-8"),
        pytest.param(b"\xc3\x01\xa9\x02\xe4\xbd\x01x", {"\ufffd": "x"}, id="cut characters"),
        pytest.param(b"a\x01\xed\xa0\x80", {"a": "\ufffd"}, id="half a surrogate pair"),
    ],
)
def test_properties_are_read_by_the_rules_of_the_original(
    data: bytes, expected: dict[str, str]
) -> None:
    assert decode_properties(data) == java_properties(data) == expected


@examples
@given(nasty | st.binary(max_size=40))
def test_any_bytes_are_read_as_the_original_reads_them(data: bytes) -> None:
    assert decode_properties(data) == java_properties(data)


@pytest.mark.parametrize(
    ("data", "replacements"),
    [
        pytest.param("EDA080", 1, id="half a surrogate pair"),
        pytest.param("EDBFBF", 1, id="the last one"),
        pytest.param("EDA080EDB080", 2, id="both halves"),
        pytest.param("EDA0", 1, id="cut half"),
        pytest.param("EDA0C4", 2, id="cut half, then a cut character"),
        pytest.param("EDA1", 1, id="GBK"),
        pytest.param("E4BD", 1, id="cut after two of three"),
        pytest.param("E4", 1, id="cut after one of three"),
        pytest.param("F09080", 1, id="cut after three of four"),
        pytest.param("F090", 1, id="cut after two of four"),
        pytest.param("C080", 2, id="overlong, two bytes"),
        pytest.param("E08080", 3, id="overlong, three bytes"),
        pytest.param("F0808080", 4, id="overlong, four bytes"),
        pytest.param("F4908080", 4, id="beyond Unicode"),
        pytest.param("F5808080", 4, id="far beyond Unicode"),
        pytest.param("FF80", 2, id="never in UTF-8"),
    ],
)
def test_malformed_text_has_as_many_replacements_as_in_java_17(
    data: str, replacements: int
) -> None:
    malformed = bytes.fromhex(data)
    assert decode_text(malformed) == java_text(malformed) == "\ufffd" * replacements
    assert decode_text(b"a" + malformed + b"b") == "a" + "\ufffd" * replacements + "b"


@examples
@given(st.binary(max_size=12) | st.lists(st.integers(0x80, 0xFF), max_size=8).map(bytes))
def test_any_bytes_are_decoded_as_java_decodes_them(data: bytes) -> None:
    assert decode_text(data) == java_text(data)


# --- encoding -------------------------------------------------------------------------------


@examples
@given(st.dictionaries(names, names, max_size=6))
def test_properties_read_back_as_written_and_in_the_same_order(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)
    assert list(decode_properties(encoded).items()) == list(properties.items())
    assert decode_properties(encoded + b"\x02") == properties


def test_pairs_are_joined_without_a_separator_at_the_end() -> None:
    assert encode_properties({"KEYS": "K1", "TAGS": "TagA"}) == b"KEYS\x01K1\x02TAGS\x01TagA"
    assert encode_properties({}) == b""


def test_empty_names_and_values_are_not_written() -> None:
    assert encode_properties({"": "a", "b": "", "c": "d"}) == b"c\x01d"


def test_what_utf8_cannot_say_is_written_as_java_does() -> None:
    assert encode_properties({"a": "x\ud800y"}) == b"a\x01x?y"


# --- finding --------------------------------------------------------------------------------


@examples
@given(nasty)
@example(b"TAGS\x01\x02TAGS\x01")
@example(b"TAGS\x01a\x02TAGS\x01")
@example(b"XTAGS\x01a\x02TAGSX\x01b")
@example(b"\x01TAGS\x01a")
@example(b"A\x01v\x02AA\x01w\x02A\x01\x02")
@example(b"TAGS\x01\xed\xa0\x80\x02TAGS\x01")
def test_a_property_is_found_exactly_when_it_is_decoded(data: bytes) -> None:
    expected = java_properties(data)
    for name, find in FINDERS.items():
        assert decode_text(find(data)) == expected.get(name, ""), name


@examples
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["TAGS", "XTAGS", "TAGSX", "TAG", "KEYS", "A", "AA", ""]),
            st.sampled_from(["", "v", "TAGS", "TAGS\x01w", "\x01"]),
        ),
        max_size=6,
    )
)
def test_a_property_is_found_among_its_like_and_the_last_one_counts(
    pairs: list[tuple[str, str]],
) -> None:
    data = "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    for name in ("TAGS", "KEYS", "A", "AA"):
        values = [value for pair_name, value in pairs if pair_name == name and value]
        assert FINDERS[name](data).decode() == (values[-1] if values else "")


# --- golden logs ----------------------------------------------------------------------------


@pytest.mark.parametrize("store", [golden.CLEAN_MASTER, golden.CRASHED])
def test_golden_properties_are_read_as_the_original_reads_them(store: str) -> None:
    for record in golden.records(store):
        data = Record.parse(record.data).properties
        properties = decode_properties(data)
        assert properties == java_properties(data)
        assert properties
        for name, find in FINDERS.items():
            assert decode_text(find(data)) == properties.get(name, "")
        # A message of a batch has its WAIT twice: its own and that of the batch.
        if data.count(b"\x02WAIT\x01") <= 1:
            assert encode_properties(properties) == data
