"""The properties of many records at once, against reading them one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.model.properties import decode_properties, encode_properties
from rmq.spark.decoding.heads import Heads
from rmq.spark.decoding.properties import Properties
from tests.spark.decoding.oracle import as_dict, starts_of
from tests.store.built_records import build_record

HARD = [
    b"",
    b"A\x01B",
    b"A\x01B\x02",
    b"\x02A\x01B",
    b"A\x01B\x02\x02C\x01D",
    b"A",
    b"A\x01",
    b"\x01B",
    b"\x01",
    b"\x02",
    b"\x02\x02\x02",
    b"\x01\x01\x01",
    b"A\x01B\x01C",
    b"A\x01\x01",
    b"A\x01B\x02A\x01C",
    b"A\x01B\x02A\x01",
    b"A\x01\x02A\x01B",
    b"A\x01B\x02C\x01D\x02A\x01E\x02C\x01F",
    b"\x00\x01\x00\x02\x00\x00\x01\x00",
    b"TAGS\x01one\x02TAGS\x01two",
    b"TAGS\x01one\x02TAGS\x01",
    b"TAGS\x00\x01no\x02XTAGS\x01no\x02TAGSX\x01no",
    b"KEYS\x01a b c\x02UNIQ_KEY\x01U\x02TAGS\x01t",
    b"property-1\x01a\x02property-2\x01b\x02property-1\x01c",
    b"TAGS\x01\xff\xfe",
    b"\xff\x01a\x02\xfe\x01b",
    b"\xed\xa0\x80\x01\xed\xa0",
    b"A\x01\xe2\x82\x02B\x01\xac",
    "Größe\x01😀\x02名\x01値".encode(),
    b"\x02".join(b"%d\x01v" % number for number in range(50)),
]
"""Properties that take every turn of the rules."""


def check(texts: list[bytes]) -> None:
    records = [build_record(properties=text) for text in texts]
    properties = Properties(Heads(b"".join(records), starts_of(records)))
    expected = [decode_properties(text) for text in texts]
    maps = properties.maps()
    maps.validate(full=True)
    assert [as_dict(pairs) for pairs in maps.to_pylist()] == expected
    for name in ("TAGS", "KEYS", "UNIQ_KEY"):
        values = properties.values_of(name)
        values.validate(full=True)
        assert values.to_pylist() == [pairs.get(name) for pairs in expected]


@pytest.mark.parametrize("text", HARD)
def test_hard_properties_alone_and_between_others(text: bytes) -> None:
    check([text])
    check([b"A\x01B", text, b"", text, b"TAGS\x01x\x02KEYS\x01y"])


def test_all_hard_properties_together() -> None:
    check(HARD)
    check(HARD[::-1])


@given(
    st.lists(
        st.dictionaries(
            st.text(st.characters(exclude_characters="\1\2", codec="utf-8"), min_size=1),
            st.text(st.characters(exclude_characters="\1\2", codec="utf-8"), min_size=1),
            max_size=6,
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=50)
def test_drawn_properties_come_back(pairs: list[dict[str, str]]) -> None:
    check([encode_properties(each) for each in pairs])


PIECES = [b"\x01", b"\x02", b"\x00", b"A", b"TAGS", b"UNIQ_KEY", b"property-1", b"\xff", b"\xc3"]


@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), min_size=1, max_size=6)
)
@settings(max_examples=100)
def test_any_bytes_mean_what_they_mean_alone(texts: list[bytes]) -> None:
    check(texts)


def test_a_name_of_more_than_a_word_cannot_be_looked_up() -> None:
    properties = Properties(Heads(build_record(), starts_of([b""])))
    with pytest.raises(ValueError, match="more than 8 bytes"):
        properties.values_of("NINECHARS")
