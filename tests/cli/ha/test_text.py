"""Sizes, times and tables as people read them."""

from __future__ import annotations

import math

import pytest

from rmq.cli.ha.text import count_text, facts, ms_text, seconds_text, size_text, table


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (1024**2 - 100, "1023.9 KiB"),
        (5 * 1024**3, "5.0 GiB"),
        (2**62, "4.0 EiB"),
        (2**63, "8.0 EiB"),
    ],
)
def test_a_size_has_the_unit_that_keeps_it_short(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (-0.1, "0.0 s"),
        (0.25, "0.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (185, "3 min 5 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (7_830, "2 h 10 min"),
        (86_399, "1 d 0 h"),
        (4 * 86_400 + 3 * 3_600, "4 d 3 h"),
        (math.inf, "never"),
    ],
)
def test_a_length_of_time_is_said_as_people_say_it(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_milliseconds_below_zero_are_never() -> None:
    assert (ms_text(-1), ms_text(1500)) == ("never", "1.5 s")


def test_things_are_counted_in_words() -> None:
    counted = [count_text(count, "slave") for count in (0, 1, 2, 12_000)]
    assert counted == ["no slave", "1 slave", "2 slaves", "12,000 slaves"]


def test_columns_of_a_table_stand_below_each_other() -> None:
    assert table(("NAME", "SIZE", "X"), [("a", "1 B", "y"), ("long name", "10 B", "")], "<><") == [
        "NAME       SIZE  X",
        "a           1 B  y",
        "long name  10 B",
    ]


def test_values_of_facts_stand_below_each_other() -> None:
    assert facts([("a", "one"), ("long", "two"), ("b", "")]) == ["a     one", "long  two", "b"]
    assert facts([]) == []
