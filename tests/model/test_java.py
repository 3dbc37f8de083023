"""Hashes, orders and number texts against values that Java 17 gave."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rmq.model.java import (
    double_text,
    hash_map_order,
    hash_map_order_in_steps,
    string_hash,
    utf16_units,
)
from tests.stepping import count_steps, finish


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param("TagA", 2598919, id="tag"),
        pytest.param("golden_pull", -1800785989, id="negative"),
        pytest.param("polygenelubricants", -(1 << 31), id="smallest"),
        pytest.param("GoldenTopic#key1", 1064868495, id="index key"),
        pytest.param("é", 233, id="latin"),
        pytest.param("测试", 903146, id="BMP"),
        pytest.param("😀", 1772899, id="two units"),
    ],
)
def test_string_hash_is_that_of_java(text: str, expected: int) -> None:
    assert string_hash(text) == expected


@given(st.text(max_size=40), st.integers(0, 30))
def test_string_hash_follows_its_definition_at_any_length(text: str, repeats: int) -> None:
    text *= repeats
    expected = 0
    for unit in utf16_units(text):
        expected = (31 * expected + unit) % (1 << 32)
    assert string_hash(text) % (1 << 32) == expected
    assert -(1 << 31) <= string_hash(text) < 1 << 31


def test_utf16_units_of_a_character_beyond_the_first_plane_are_a_pair() -> None:
    assert list(utf16_units("a😀")) == [0x61, 0xD83D, 0xDE00]
    assert list(utf16_units("\ud800")) == [0xD800]


# From RocketMQ 4.9.8: the order in which stored messages have their properties, by bucket.
PROPERTIES_BY_BUCKET = [
    "REAL_TOPIC",
    "RETRY_TOPIC",
    "KEYS",
    "UNIQ_KEY",
    "CLUSTER",
    "WAIT",
    "DELAY",
    "TAGS",
    "REAL_QID",
]

# Ext fields of frames written by a stock client and broker, in the order they have on the wire.
CAPTURED_EXT_FIELDS = [
    "producerGroup clientID",
    "queueId count topic index",
    "commitLogOffset msgId tranStateTableOffset offsetMsgId transactionId",
    "brokerId bodyCrc32 clusterName brokerAddr haServerAddr compressed brokerName",
    "readQueueNums perm writeQueueNums topicFilterType topic defaultTopic topicSysFlag order",
    (
        "queueId maxMsgNums sysFlag suspendTimeoutMillis commitOffset bname topic queueOffset "
        "expressionType subVersion consumerGroup"
    ),
    (
        "queueId maxMsgNums sysFlag commitOffset subscription ReqT suspendTimeoutMillis bname "
        "topic queueOffset expressionType subVersion consumerGroup"
    ),
]


def test_hash_map_order_is_by_bucket_and_insertion_inside_one() -> None:
    # UNIQ_KEY and CLUSTER share bucket 12, WAIT and DELAY bucket 13; the rest may come anyhow.
    shuffled = ["TAGS", "UNIQ_KEY", "WAIT", "KEYS", "REAL_QID", "CLUSTER", "DELAY"]
    shuffled += ["RETRY_TOPIC", "REAL_TOPIC"]
    assert hash_map_order(shuffled) == PROPERTIES_BY_BUCKET
    assert hash_map_order(["BB", "Aa", "x"]) == ["BB", "Aa", "x"]
    assert hash_map_order(["Aa", "BB", "x"]) == ["Aa", "BB", "x"]


@pytest.mark.parametrize("names", CAPTURED_EXT_FIELDS, ids=lambda names: f"{names.count(' ') + 1}")
def test_hash_map_order_is_that_of_captured_frames(names: str) -> None:
    # Inside a bucket the order of the frame is that of insertion, so it is given as such.
    assert hash_map_order(names.split()) == names.split()


def test_hash_map_order_of_a_repeated_key_is_its_first_place() -> None:
    assert hash_map_order(["BB", "Aa", "BB"]) == ["BB", "Aa"]


def test_hash_map_order_changes_when_the_thirteenth_key_doubles_the_table() -> None:
    names = [f"name{number}" for number in range(13)]
    order = [6, 5, 4, 3, 12, 11, 9, 10, 8, 7, 2, 1, 0]
    assert hash_map_order(names) == [f"name{number}" for number in order]


def test_hash_map_order_changes_when_a_ninth_key_in_one_bucket_doubles_the_table() -> None:
    names = ["k18", "k29", "k90", "k140", "k151", "k162", "k173", "k184", "k195", "k250"]
    java = ["k90", "k18", "k140", "k162", "k184", "k29", "k151", "k173", "k195", "k250"]
    assert hash_map_order(names) == java


@given(st.lists(st.text(max_size=3), unique=True, max_size=60))
def test_the_order_in_steps_is_the_same(keys: list[str]) -> None:
    assert finish(hash_map_order_in_steps(keys)) == hash_map_order(keys)
    assert finish(hash_map_order_in_steps(keys, is_set=True)) == hash_map_order(sorted(keys))


@pytest.mark.parametrize("name", ["t{}", "topic-{}-of-many"])
def test_the_order_of_many_keys_takes_many_small_steps(name: str) -> None:
    keys = [name.format(number) for number in range(20_000)]
    order, steps = count_steps(hash_map_order_in_steps(keys))
    assert order == hash_map_order(keys)
    assert steps > len(keys) / 512


def test_keys_that_collide_are_ordered_in_as_many_steps_as_others() -> None:
    # "Aa" and "BB" have one hash code, and so has every text made of as many of them.
    colliding = [
        "".join("Aa" if number >> bit & 1 else "BB" for bit in range(12)) for number in range(4096)
    ]
    others = [f"{number:024}" for number in range(4096)]
    order, steps = count_steps(hash_map_order_in_steps(colliding, is_set=True))
    assert order == colliding
    assert steps == count_steps(hash_map_order_in_steps(others, is_set=True))[1]


def test_hash_map_order_of_numbers_is_that_of_integer_and_long_keys() -> None:
    assert hash_map_order([12, 3, 1, 0, -1, 100]) == [0, -1, 1, 3, 100, 12]
    assert hash_map_order([5, 1 << 33, 1 << 32]) == [1 << 32, 1 << 33, 5]


class HashMapModel:
    """`java.util.HashMap` with its buckets as lists, as long as none becomes a tree."""

    def __init__(self) -> None:
        self.buckets: list[list[str]] = [[] for _ in range(16)]
        self.size = 0

    def bucket(self, key: str) -> list[str]:
        code = string_hash(key) % (1 << 32)
        return self.buckets[(code ^ code >> 16) % len(self.buckets)]

    def put(self, key: str) -> None:
        bucket = self.bucket(key)
        if key in bucket:
            return
        bucket.append(key)
        if len(bucket) > 8:
            assume(len(self.buckets) < 64)
            self.double()
        self.size += 1
        if self.size > len(self.buckets) * 0.75:
            self.double()

    def double(self) -> None:
        keys = self.order()
        self.buckets = [[] for _ in range(len(self.buckets) * 2)]
        for key in keys:
            self.bucket(key).append(key)

    def order(self) -> list[str]:
        return [key for bucket in self.buckets for key in bucket]


@given(
    st.lists(
        st.one_of(
            st.integers(0, 500).map("k{}".format),
            # All texts of n such pairs have the same hash.
            st.lists(st.sampled_from(["Aa", "BB"]), min_size=3, max_size=4).map("".join),
        ),
        max_size=70,
    )
)
@example([f"k{number}" for number in range(70)])
def test_hash_map_order_agrees_with_a_map_that_grows_key_by_key(keys: list[str]) -> None:
    model = HashMapModel()
    for key in keys:
        model.put(key)
    assert hash_map_order(keys) == model.order()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (-12.25, "-12.25"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.5e10, "-1.5E10"),
        (1e23, "1.0E23"),
        (123456789012345.6, "1.234567890123456E14"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2e-323, "2.0E-323"),
    ],
)
def test_double_text_is_that_of_java(value: float, expected: str) -> None:
    assert double_text(value) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_reads_back_as_the_same_number(value: float) -> None:
    assert repr(float(double_text(value))) == repr(value)
