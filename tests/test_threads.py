"""Calls that block run in a thread, and without one if the system allows no more."""

from __future__ import annotations

import threading
from typing import NoReturn

import pytest

from rmq.threads import run_in_thread


async def test_a_call_runs_in_another_thread_and_its_result_comes_back() -> None:
    assert await run_in_thread(lambda: threading.get_ident()) != threading.get_ident()
    assert await run_in_thread(divmod, 7, 2) == (3, 1)


async def test_a_call_runs_here_when_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    # Threads that are idle would be used again.
    monkeypatch.setattr("trio._core._thread_cache.THREAD_CACHE._idle_workers", {})
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(5):
        assert await run_in_thread(threading.get_ident) == threading.get_ident()
    assert all("no thread can be started" in record.message for record in caplog.records)
    assert 1 <= len(caplog.records) <= 4


async def test_an_error_of_the_call_itself_is_raised_and_the_call_not_repeated() -> None:
    calls = []

    def fail() -> NoReturn:
        calls.append(threading.get_ident())
        raise RuntimeError("the call's own")

    with pytest.raises(RuntimeError, match="the call's own"):
        await run_in_thread(fail)
    assert len(calls) == 1
