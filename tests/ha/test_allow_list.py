"""How many lines a host gets in the log."""

from __future__ import annotations

from rmq.ha.allow_list import (
    HOSTS_MAX,
    LINES_MAX,
    WINDOW_S,
    LineLimiter,
)


def test_a_host_gets_so_many_lines_and_then_none() -> None:
    lines = LineLimiter()
    assert [lines.take("a", 0.0) for _ in range(LINES_MAX + 2)] == [0] * LINES_MAX + [None] * 2


def test_the_next_line_says_how_many_were_left_out() -> None:
    lines = LineLimiter()
    for _ in range(LINES_MAX + 7):
        lines.take("a", 0.0)
    assert lines.take("a", WINDOW_S - 0.1) is None
    assert lines.take("a", WINDOW_S) == 8
    assert lines.take("a", WINDOW_S) == 0


def test_one_host_takes_no_lines_from_another() -> None:
    lines = LineLimiter()
    for _ in range(1000):
        lines.take("a", 0.0)
    assert lines.take("b", 0.0) == 0


def test_only_so_many_hosts_are_remembered_and_those_heard_of_last() -> None:
    lines = LineLimiter()
    for _ in range(LINES_MAX + 1):
        lines.take("flood", 0.0)
    for number in range(2 * HOSTS_MAX):
        lines.take(f"host {number}", 0.0)
        assert lines.take("flood", 0.0) is None
    assert len(lines) == HOSTS_MAX
