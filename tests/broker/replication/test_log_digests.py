"""Digests of ranges of a log: comparable between two logs, bounded, and of what is really there."""

from __future__ import annotations

import hashlib
from typing import Final

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.broker.replication import log_digests as module
from rmq.broker.replication.log_digests import RANGES_MAX, log_digests
from rmq.errors import StoreUnavailableError
from rmq.model.offsets import PhysicalOffset

CONTENT: Final = bytes(number * 7 % 253 for number in range(4000))


class PartOfLog:
    """What one broker holds of a log that is everywhere the same."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = PhysicalOffset(begin), PhysicalOffset(end)
        self.gone_from: int | None = None
        """The log turns out to be cut here when it is read."""

    def digest(self, start: int, stop: int) -> bytes:
        assert self.begin <= start < stop <= self.end
        if self.gone_from is not None and stop > self.gone_from:
            raise StoreUnavailableError("cut")
        return hashlib.sha256(CONTENT[start:stop]).digest()


def digests(log: PartOfLog, start: int, stop: int, step: int) -> list[tuple[int, int, str]]:
    body = trio.run(log_digests, log, start, stop, step)
    assert (body.begin, body.end) == (log.begin, log.end)
    return [(each.start, each.stop, each.sha256) for each in body.digests]


def sha(start: int, stop: int) -> tuple[int, int, str]:
    return start, stop, hashlib.sha256(CONTENT[start:stop]).hexdigest()


def test_ranges_follow_each_other_up_to_the_end_of_what_is_asked() -> None:
    log = PartOfLog(0, 4000)
    assert digests(log, 100, 1000, 400) == [sha(100, 500), sha(500, 900), sha(900, 1000)]


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 0), (500, 500), (5000, 9000), (3900, 4100)], ids=str
)
def test_what_is_not_there_has_no_digest(start: int, stop: int) -> None:
    assert digests(PartOfLog(0, 4000), start, stop, 400) == []


def test_logs_that_begin_and_end_elsewhere_are_cut_into_the_same_ranges() -> None:
    longer, shorter = PartOfLog(0, 4000), PartOfLog(700, 2500)
    all_of_it = digests(longer, 0, 4000, 400)
    assert digests(shorter, 0, 4000, 400) == all_of_it[2:6]


def test_an_empty_log_has_no_digests() -> None:
    assert digests(PartOfLog(0, 0), 0, 4000, 400) == []


def test_a_log_that_was_cut_meanwhile_has_those_of_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 400)
    log = PartOfLog(0, 4000)
    log.gone_from = 1000
    assert digests(log, 0, 4000, 400) == [sha(0, 400), sha(400, 800)]


def test_an_answer_has_a_limited_number_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RANGES_MAX == 4096
    monkeypatch.setattr(module, "RANGES_MAX", 3)
    assert digests(PartOfLog(0, 4000), 0, 4000, 10) == [sha(0, 10), sha(10, 20), sha(20, 30)]


def test_an_answer_covers_a_limited_part_of_the_log_but_always_one_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 1000)
    assert digests(PartOfLog(0, 4000), 0, 4000, 400) == [sha(0, 400), sha(400, 800)]
    assert digests(PartOfLog(0, 4000), 0, 4000, 3000) == [sha(0, 3000)]


@settings(max_examples=60)
@given(
    begin=st.integers(0, 2000),
    end=st.integers(2000, 4000),
    start=st.integers(0, 4000),
    size=st.integers(0, 4000),
    step=st.integers(1, 900),
)
def test_any_ranges_are_those_that_the_log_holds_as_a_whole(
    begin: int, end: int, start: int, size: int, step: int
) -> None:
    stop = start + size
    wanted = [(at, min(at + step, stop)) for at in range(start, stop, step)]
    assert digests(PartOfLog(begin, end), start, stop, step) == [
        sha(first, last) for first, last in wanted if begin <= first and last <= end
    ]
