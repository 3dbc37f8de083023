"""Limits for log lines: what is logged, what is counted, and that little is remembered."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from rmq.log_limits import LimitedLog, LineLimits, Suppressed, host_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def limits(**bounds: int) -> LineLimits:
    return LineLimits(
        lines_per_source=bounds.get("source", 3),
        lines_per_kind=bounds.get("kind", 10),
        window_s=60.0,
        sources_max=bounds.get("sources", 5),
    )


def take_many(lines: LineLimits, times: Iterable[float], source: str = "a") -> list[int | None]:
    return [lines.take("bad frame", source, now) for now in times]


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.7:51034", "10.0.0.7"),
        ("[fd00::1]:9876", "[fd00::1]"),
        ("(gone)", "(gone)"),
        ("peer", "peer"),
        ("", ""),
    ],
)
def test_lines_are_counted_by_the_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_a_source_gets_so_many_lines_in_a_window_and_then_none() -> None:
    lines = limits()
    assert take_many(lines, [0, 1, 2, 3, 59]) == [0, 0, 0, None, None]


def test_the_next_line_says_how_many_were_suppressed() -> None:
    lines = limits()
    take_many(lines, [0, 1, 2, 3, 4])
    assert take_many(lines, [60, 61]) == [2, 0]


def test_sources_and_kinds_take_no_lines_from_each_other() -> None:
    lines = limits()
    take_many(lines, [0] * 9)
    assert take_many(lines, [0], "b") == [0]
    assert lines.take("refused", "a", 0) == 0


def test_a_kind_has_a_limit_of_its_own_whatever_the_sources() -> None:
    lines = limits(source=3, kind=4)
    assert [lines.take("k", f"host {number}", 0) for number in range(6)] == [0] * 4 + [None] * 2
    assert lines.take("k", "host 5", 60) == 1


def test_what_was_suppressed_is_told_once_when_the_window_has_ended() -> None:
    lines = limits()
    take_many(lines, [0, 0, 0, 0, 0])
    assert lines.take_suppressed(59) == []
    assert lines.take_suppressed(60) == [Suppressed("bad frame", "a", 2)]
    assert lines.take_suppressed(61) == []
    assert take_many(lines, [62]) == [0]


def test_only_so_many_sources_are_remembered_and_no_suppressed_line_is_forgotten() -> None:
    lines = limits(source=1, kind=1000, sources=5)
    for number in range(100):
        take_many(lines, [0, 0], f"host {number}")
    assert len(lines) == 5
    told = lines.take_suppressed(60)
    assert sum(each.lines for each in told) == 100
    assert Suppressed("bad frame", None, 95) in told


def test_a_limited_log_writes_the_lines_and_sums_up(caplog: pytest.LogCaptureFixture) -> None:
    log = LimitedLog(logging.getLogger("rmq.test"), limits(source=2))
    for number in range(5):
        log.warning("bad frame", "10.0.0.7", 0, "closing %s: %d", "10.0.0.7:1", number)
    log.warning("bad frame", "10.0.0.7", 60, "closing %s", "10.0.0.7:9")
    log.warning("bad frame", "10.0.0.7", 60, "closing %s", "10.0.0.7:9")
    log.warning("bad frame", "10.0.0.7", 60, "closing %s", "10.0.0.7:9")
    log.summarize(100)
    log.summarize(120)
    assert [record.getMessage() for record in caplog.records] == [
        "closing 10.0.0.7:1: 0",
        "closing 10.0.0.7:1: 1",
        "closing 10.0.0.7:9 (3 similar lines were suppressed)",
        "closing 10.0.0.7:9",
        "suppressed 1 lines about 10.0.0.7, of the kind: bad frame",
    ]


def test_lines_below_the_level_of_the_logger_count_for_nothing() -> None:
    logger = logging.getLogger("rmq.test.quiet")
    logger.setLevel(logging.ERROR)
    log = LimitedLog(logger, limits(source=1))
    log.warning("k", "a", 0, "not written")
    assert len(log.limits) == 0
