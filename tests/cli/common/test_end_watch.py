"""A service that has failed ends within bounded time, even if it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from rmq.cli.common.end_watch import EndWatch
from rmq.cli.common.exit_codes import ExitCode

if TYPE_CHECKING:
    import pytest

_HANGS = """
import sys, trio
from rmq.cli.common import stopping
from rmq.cli.common.end_watch import EndWatch

stopping.EndWatch = lambda: EndWatch(0.1)

async def hang():
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            print("cannot end", flush=True)
            await trio.sleep_forever()

async def fail():
    await trio.sleep(0.01)
    {failure}

async def main():
    async with stopping.serving() as (nursery, stop):
        nursery.start_soon(hang)
        nursery.start_soon(fail)
        await stop.wait()

trio.run(main)
"""


def run(failure: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _HANGS.format(failure=failure)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_failed_service_that_cannot_end_is_ended_and_says_so() -> None:
    done = run("raise MemoryError")
    assert (done.returncode, done.stdout) == (ExitCode.OUT_OF_RESOURCES, "cannot end\n")
    assert "rmq: error: failed, and not ended 0.1 s later; ended now" in done.stderr


def test_it_is_ended_also_when_the_event_loop_itself_has_failed() -> None:
    done = run("trio.lowlevel.spawn_system_task(trio.sleep, 'not a number')")
    assert done.returncode == ExitCode.OUT_OF_RESOURCES


def test_a_watch_that_is_stopped_ends_nothing() -> None:
    ended: list[int] = []
    threads = threading.active_count()
    watch = EndWatch(0.01, ended.append)
    watch.start()
    watch.stop()
    watch.stop()
    assert threading.active_count() == threads
    armed = EndWatch(30.0, ended.append)
    armed.start()
    armed.arm()
    armed.stop()
    assert ended == []


def test_a_pipe_that_is_not_read_does_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    written: list[bytes] = []
    monkeypatch.setattr("select.select", lambda *_: ((), (), ()))
    monkeypatch.setattr(os, "write", lambda _, data: written.append(data))
    watch = EndWatch(0.01, lambda _: ended.set())
    watch.start()
    watch.arm()
    assert ended.wait(10)
    watch.stop()
    assert written == []
