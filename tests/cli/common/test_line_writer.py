"""Lines for standard error: nobody waits for its reader, and what is lost is counted."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from rmq.cli.app import main
from rmq.cli.common.command import Command
from rmq.cli.common.line_writer import LineWriter
from rmq.cli.common.logs import logging_to_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPE_BYTES: Final = 4096
JOIN_S: Final = 5.0


def dropped_line(count: int) -> str:
    return f"{count} dropped\n"


@contextmanager
def full_pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """A small pipe that holds all it can: the descriptor to read, and the stream that writes."""
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.write(write_fd, b"x" * (PIPE_BYTES - 1) + b"\n")
    with os.fdopen(write_fd, "w") as stream:
        try:
            yield read_fd, stream
        finally:
            os.close(read_fd)


def read_all(read_fd: int, found: list[str]) -> None:
    data = b""
    while piece := os.read(read_fd, 65536):
        data += piece
        if data.endswith(b"end\n"):
            break
    found += data.decode().splitlines()[1:]


def test_lines_come_in_order() -> None:
    stream = io.StringIO()
    writer = LineWriter(NoFile(stream), dropped_line)
    writer.start()
    lines = [f"line {number}\n" for number in range(5_000)]
    for line in lines:
        writer.put(line)
    assert writer.close(JOIN_S)
    assert stream.getvalue() == "".join(lines)


class NoFile:
    """A stream without a descriptor, as tests and notebooks have."""

    def __init__(self, stream: io.StringIO) -> None:
        self.stream = stream

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")

    def write(self, text: str) -> object:
        return self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()


def test_a_pipe_that_is_not_read_holds_nothing_up_and_what_is_dropped_is_counted() -> None:
    with full_pipe() as (read_fd, stream):
        writer = LineWriter(stream, dropped_line, lines_max=100)
        writer.start()
        for number in range(1_000):
            writer.put(f"line {number}\n")
        found: list[str] = []
        reader = threading.Thread(target=read_all, args=(read_fd, found))
        reader.start()
        # Once there is room again, what was lost is said before what comes next.
        while not found:
            writer.put("end\n")
            reader.join(0.01)
        assert writer.close(JOIN_S)
    kept = [line for line in found if line.startswith("line ")]
    assert kept == [f"line {number}" for number in range(len(kept))]
    dropped = [int(line.split()[0]) for line in found if line.endswith(" dropped")]
    assert 100 <= len(kept) < 1_000
    assert len(kept) + sum(dropped) >= 1_000
    assert found.index(f"{dropped[0]} dropped") == len(kept)


def test_the_queue_is_bounded_by_characters_too() -> None:
    with full_pipe() as (_, stream):
        writer = LineWriter(stream, dropped_line, chars_max=1_000)
        for _ in range(100):
            writer.put("x" * 99 + "\n")
        assert len(writer._lines) == 10


def test_closing_takes_bounded_time_whatever_the_reader_does() -> None:
    with full_pipe() as (read_fd, stream):
        writer = LineWriter(stream, dropped_line)
        writer.start()
        writer.put("never read\n")
        assert not writer.close(0.01)
        # Let the thread go, so that the descriptors can be closed.
        os.read(read_fd, PIPE_BYTES)
        assert writer.close(JOIN_S)


def test_a_reader_that_is_gone_ends_nothing() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with os.fdopen(write_fd, "w") as stream:
        writer = LineWriter(stream, dropped_line)
        writer.start()
        for number in range(100):
            writer.put(f"line {number}\n")
        assert writer.close(JOIN_S)


def test_a_service_logs_in_the_background_and_its_end_is_told_behind_its_last_lines(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def run(_: object) -> int:
        for number in range(100):
            logging.getLogger("rmq.test").warning("line %d", number)
        raise ValueError("odd")

    command = Command(name="serve", help="serves", run=run, is_service=True)
    assert main(["serve"], commands=[command]) == 70
    lines = capfd.readouterr().err.splitlines()
    assert [line.rpartition(": ")[2] for line in lines[:100]] == [
        f"line {number}" for number in range(100)
    ]
    assert lines[100].startswith("rmq: error: unexpected ValueError: odd")


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("odd")


def test_a_line_that_cannot_be_made_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr("info", in_background=True):
        logging.getLogger("rmq.test").warning("a line", extra={"fact": Unprintable()})
        logging.getLogger("rmq.test").warning("the next")
    lines = capfd.readouterr().err.splitlines()
    assert [re.sub(r".*: ", "", line) for line in lines] == [
        "they are not taken fast enough",
        "the next",
    ]
    assert ": 1 lines dropped: " in lines[0]


def test_without_a_thread_lines_are_written_at_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with logging_to_stderr("info", in_background=True) as logs:
        logging.getLogger("rmq.test").warning("first")
        logs.say("second")
    first, second = capfd.readouterr().err.splitlines()
    assert first.endswith(": first")
    assert second == "second"


@pytest.mark.parametrize("in_background", [True, False])
def test_the_logging_state_of_before_is_restored(in_background: bool) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with logging_to_stderr("debug", in_background=in_background):
        assert root.level == logging.DEBUG
    assert (root.level, list(root.handlers)) == before
