"""The fast hashes of keys and tags against the plain one, for any text and any bytes."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq.model.java import string_hash
from rmq.model.properties import decode_text
from rmq.store.key_hash import TagCodes, TopicKeys

topics = st.text("abcXYZ019_-%|", min_size=1, max_size=127)
# Lone surrogates cannot be written as UTF-8, but UTF-16 in a broken client can be: as bytes.
texts = st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
ascii_keys = st.text(st.characters(max_codepoint=127), max_size=60).map(str.encode)
any_bytes = st.binary(max_size=60)
keys = st.one_of(ascii_keys, texts, any_bytes)


def plain_index_hash(topic: str, key: bytes) -> int:
    """RocketMQ 4.9.8 IndexFile.indexKeyHashMethod, step by step."""
    positive = abs(string_hash(f"{topic}#{decode_text(key)}"))
    return 0 if positive == 1 << 31 else positive


@given(topic=topics, key=keys)
@example(topic="T", key=b"")
@example(topic="T", key=b"12345678")
@example(topic="T", key=b"123456789")
@example(topic="T", key="\U0001f600".encode() * 3)
@example(topic="T", key=b"\xed\xa0\xbd\xed\xb8\x80")
@example(topic="T", key=b"\xed\xa0\xbd")
@example(topic="T", key=b"\xff" * 20)
@example(topic="T", key=b"1234567\xc3")
def test_the_hash_of_a_key_is_that_of_topic_and_key_together(topic: str, key: bytes) -> None:
    hashes = TopicKeys(topic)
    assert hashes.index_hash(key) == plain_index_hash(topic, key)
    # Once more, now that its beginning is remembered.
    assert hashes.index_hash(key) == plain_index_hash(topic, key)


@given(tag=keys)
def test_the_code_of_a_tag_is_its_java_hash(tag: bytes) -> None:
    codes = TagCodes({b"": 0})
    assert codes[tag] == string_hash(decode_text(tag))
    assert codes[tag] == string_hash(decode_text(tag))


@pytest.mark.parametrize(
    ("topic", "key", "code"),
    [
        pytest.param("T", b"K1", 2538453, id="short"),
        pytest.param("GoldenTopic", b"key1", 1064868495, id="golden"),
    ],
)
def test_recorded_hashes(topic: str, key: bytes, code: int) -> None:
    assert TopicKeys(topic).index_hash(key) == code


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 12, 1023, 1024, 32_767])
def test_keys_of_every_length_are_hashed_alike(length: int) -> None:
    key = b"0123456789ABCDEF" * 2048
    hashes = TopicKeys("TopicA")
    assert hashes.index_hash(key[:length]) == plain_index_hash("TopicA", key[:length])


def key_with_hash(topic: str, wanted: int) -> bytes:
    """Return an ASCII key of nine characters so that `topic#key` has this unsigned hash.

    The last characters are digits of the hash in base 31, moved into what can be printed.
    """
    length = 9
    base = string_hash(f"{topic}#" + "A" * length) & 0xFFFFFFFF
    missing = (wanted - base) & 0xFFFFFFFF
    digits = []
    for _ in range(length):
        missing, digit = divmod(missing, 31)
        digits.append(chr(ord("A") + digit))
    return "".join(reversed(digits)).encode()


@pytest.mark.parametrize(
    ("unsigned", "code"),
    [
        pytest.param(0x80000000, 0, id="-2**31 has no positive counterpart"),
        pytest.param(0x80000001, 0x7FFFFFFF, id="-2**31+1"),
        pytest.param(0xFFFFFFFF, 1, id="-1"),
        pytest.param(0x7FFFFFFF, 0x7FFFFFFF, id="2**31-1"),
        pytest.param(0, 0, id="0"),
    ],
)
def test_a_hash_is_never_negative(unsigned: int, code: int) -> None:
    key = key_with_hash("TopicA", unsigned)
    assert string_hash(f"TopicA#{key.decode()}") & 0xFFFFFFFF == unsigned
    assert TopicKeys("TopicA").index_hash(key) == code


def test_what_is_remembered_is_bounded_in_number() -> None:
    hashes, codes = TopicKeys("T"), TagCodes()
    numbers = range(5000)
    for number in numbers:
        hashes.index_hash(b"%d-and-eight" % number)
    for number in range(140_000):
        codes[b"%d" % number]
    assert len(hashes) < len(numbers)
    assert len(codes) <= 1 << 17


def test_long_ones_are_not_remembered() -> None:
    hashes, codes = TopicKeys("T"), TagCodes()
    long = b"x" * 30_000
    assert hashes.index_hash(long) == plain_index_hash("T", long)
    assert codes[long] == string_hash("x" * 30_000)
    assert sum(map(sys.getsizeof, (*hashes, *codes))) < 1000
