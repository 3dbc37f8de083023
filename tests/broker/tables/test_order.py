"""The order of tables, against what `java.util.concurrent.ConcurrentHashMap` of Java 17 gives."""

from __future__ import annotations

from zlib import crc32

import pytest

from rmq.broker.tables.order import (
    OFFSETS_TABLE_SIZE,
    SETTINGS_TABLE_SIZE,
    spread_hash,
    table_order,
)


def names(count: int) -> list[str]:
    return [f"topic-{number * 7919 % 100003}@group_{number % 13}" for number in range(count)]


def ordered(count: int, table_size: int) -> list[str]:
    return table_order({name: spread_hash(name) for name in names(count)}, table_size)


@pytest.mark.parametrize(
    ("count", "table_size", "crc_of_lines"),
    [
        (10, SETTINGS_TABLE_SIZE, 2899025521),
        (1535, SETTINGS_TABLE_SIZE, 66058611),
        (767, OFFSETS_TABLE_SIZE, 2456585262),
    ],
)
def test_a_table_that_has_not_grown_has_the_order_of_java(
    count: int, table_size: int, crc_of_lines: int
) -> None:
    lines = "".join(f"{name}\n" for name in ordered(count, table_size))
    assert crc32(lines.encode()) == crc_of_lines


@pytest.mark.parametrize(
    ("count", "grown_to"),
    [(1535, 2048), (1536, 4096), (3071, 4096), (3072, 8192)],
)
def test_a_table_doubles_when_three_quarters_of_it_are_taken(count: int, grown_to: int) -> None:
    buckets = [spread_hash(name) & (grown_to - 1) for name in ordered(count, SETTINGS_TABLE_SIZE)]
    assert buckets == sorted(buckets)


def test_names_of_one_bucket_stay_in_the_order_they_were_put() -> None:
    assert spread_hash("Aa") == spread_hash("BB")
    for pair in (["Aa", "BB"], ["BB", "Aa"]):
        assert table_order({name: spread_hash(name) for name in pair}, 2048) == pair


def test_an_empty_table_has_no_order() -> None:
    assert table_order({}, OFFSETS_TABLE_SIZE) == []
