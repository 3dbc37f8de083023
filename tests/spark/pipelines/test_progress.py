"""Progress is shown where somebody looks, and leaves no thread behind."""

from __future__ import annotations

import io
import threading

import pytest

from rmq.spark.pipelines.progress import Progress, task_counter


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is() -> None:
    stream = _Terminal()
    asked = threading.Event()

    def tasks() -> str:
        asked.set()
        return ": 3 of 7 tasks"

    before = threading.active_count()
    with Progress(stream).step("counting", tasks):
        assert asked.wait(10)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert "counting: 3 of 7 tasks  0 s" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_nothing_is_shown_where_nobody_looks() -> None:
    stream = io.StringIO()
    before = threading.active_count()
    with Progress(stream).step("counting", lambda: pytest.fail("asked")):
        assert threading.active_count() == before
    assert stream.getvalue() == ""


def test_an_error_of_the_step_is_what_comes_out() -> None:
    def broken() -> str:
        raise RuntimeError("Spark has gone away")

    before = threading.active_count()
    with pytest.raises(ValueError, match="the step"), Progress(_Terminal()).step("x", broken):
        raise ValueError("the step")
    assert threading.active_count() == before
    assert task_counter(None)() == ""
