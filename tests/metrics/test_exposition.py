"""Sheets as text: the text of prometheus_client, but in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder

from rmq.counting.histogram import Histogram
from rmq.metrics.exposition import SAMPLES_PER_STEP, Text
from rmq.metrics.families import Catalogue, Sheet
from tests.broker.metrics.metrics_kit import scraped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

CATALOGUE: Final = Catalogue()
LAG: Final = CATALOGUE.gauge("rocketmq_lag_seconds", 'A\n\\gauge "of" lags.', "topic", "group")
IN: Final = CATALOGUE.counter("rocketmq_in_total", "A counter.", "topic")
ALONE: Final = CATALOGUE.gauge("rocketmq_alone", "Has no labels of its own.")
WAITS: Final = CATALOGUE.histogram("rocketmq_wait_seconds", "Waits.", "n")
ACCEPTED: Final = (
    "",
    "*/*",
    "application/openmetrics-text;version=1.0.0",
    "text/plain;version=1.0.0",
)
TOPICS: Final = 1000


@final
class Only:
    """A registry of what a sheet has."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet

    def collect(self) -> Iterable[Metric]:
        return self._sheet.metrics()


def crowded(constant: dict[str, str]) -> Sheet:
    sheet = Sheet(constant)
    for number in range(TOPICS):
        sheet.put(LAG, number / 3, f"# topic {number}\n", 'a "group"\\')
        sheet.put(IN, float(number), f"topic-{number}")
    sheet.put(ALONE, 0.5)
    for number in range(3):
        waits = Histogram((0.1, 1.0, 5.0))
        waits.note(number, 2)
        sheet.put_histogram(WAITS, waits, str(number))
    return sheet


def headings(text: bytes) -> list[str]:
    return sorted(line for line in text.decode().split("\n") if line.startswith("#"))


def assert_same(found: bytes, expected: bytes, content_type: str) -> None:
    """The library puts labels in the order of their names, and makes all numbers fractions."""
    assert headings(found) == headings(expected)
    assert scraped(content_type, found) == scraped(content_type, expected)


def text_of(sheet: Sheet, accept: str) -> tuple[str, bytes]:
    text = Text(accept)
    for _ in text.add_sheet(sheet):
        pass
    return text.content_type, b"".join(text.finish())


@pytest.mark.parametrize("accept", ACCEPTED)
@pytest.mark.parametrize("constant", [{}, {"cluster": "shop", "node_id": 'a "\n\\b'}])
def test_the_text_is_the_one_of_prometheus_client(accept: str, constant: dict[str, str]) -> None:
    sheet = crowded(constant)
    encode, content_type = choose_encoder(accept)
    found_type, text = text_of(sheet, accept)
    assert found_type == content_type
    assert_same(text, encode(Only(sheet)), content_type)


@given(st.text(st.characters(codec="utf-8")))
def test_any_name_can_be_a_label(name: str) -> None:
    sheet = Sheet({"cluster": name})
    sheet.put(LAG, 1.0, name, name)
    for accept in ACCEPTED[::2]:
        encode, content_type = choose_encoder(accept)
        assert_same(text_of(sheet, accept)[1], encode(Only(sheet)), content_type)


def test_half_a_character_is_replaced() -> None:
    sheet = Sheet({})
    sheet.put(IN, 1, "a\ud800b")
    assert b'rocketmq_in_total{topic="a?b"} 1\n' in text_of(sheet, "")[1]


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=abc",
        "application/openmetrics-text; version=1.x.0",
        "text/plain;version=",
        "text/plain;version=" + "9" * 5_000,
        ";;;=,=;",
        "\xff" * 50,
    ],
)
def test_types_that_mean_nothing_get_some_text(accept: str) -> None:
    content_type, text = text_of(crowded({}), accept)
    assert content_type.startswith(("text/plain", "application/openmetrics-text"))
    assert b"rocketmq_alone 0.5\n" in text


def test_the_text_is_made_in_steps() -> None:
    steps = sum(1 for _ in Text("").add_sheet(crowded({})))
    assert steps >= 2 * TOPICS / SAMPLES_PER_STEP
