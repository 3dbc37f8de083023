"""Logging of the command line: to standard error, one line per event, times in UTC.

    2025-01-31T08:15:00.042Z WARNING rmq.remoting.server: connection closed peer=10.0.0.7:51034

Modules log with the standard library and pass facts through `extra`; they appear as key=value
behind the message, in the order given. A line stays a line: control characters, which may come from
a peer, are escaped. Only a traceback adds lines of its own.

A service (a broker, a nameserver) never waits for standard error: see `line_writer`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rmq.cli.common.line_writer import LineWriter
from rmq.log_limits import LineLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLUSH_S: Final = 2.0
"""How long the last lines may take to be written, when a service ends."""
LEVELS = ("debug", "info", "warning", "error")

# Whatever a record carries beyond these came in through `extra`.
_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NEEDS_QUOTES = re.compile(r"[\s=\"\x00-\x1f\x7f-\x9f]|^$")


@contextmanager
def logging_to_stderr(
    level: str, *, in_background: bool = False
) -> Iterator[Callable[[str], None]]:
    """Send records of at least `level` (one of `LEVELS`) to standard error while the block runs.

    Give a function that writes other lines there, behind those that were logged. With
    `in_background` neither waits for standard error to take them, and on leaving that is waited for
    `FLUSH_S` at most: whatever the block ended with, the last lines say why.

    The logging state of before is restored at the end, so that a program or a test that calls
    `rmq.cli.main` keeps its own.
    """
    root = logging.getLogger()
    writer = _start_writer() if in_background else None
    handler = logging.StreamHandler() if writer is None else _BackgroundHandler(writer)
    handler.setFormatter(LineFormatter())
    handler.addFilter(_ForeignLimit())
    level_before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        yield _print_line if writer is None else lambda line: writer.put(f"{line}\n")
    finally:
        root.setLevel(level_before)
        root.removeHandler(handler)
        if writer is not None:
            writer.close(FLUSH_S)


class _ForeignLimit(logging.Filter):
    """Limits the lines of libraries: trio says ten times a second that no file can be opened."""

    def __init__(self) -> None:
        super().__init__()
        self._limits = LineLimits()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == "rmq":
            return True
        return self._limits.take(record.name, "", record.created) is not None


def _print_line(line: str) -> None:
    print(line, file=sys.stderr)


def _start_writer() -> LineWriter | None:
    """Return a running writer, None where standard error is closed or no thread can be started."""
    if sys.stderr is None:
        return None
    writer = LineWriter(sys.stderr, _dropped_line)
    try:
        writer.start()
    except RuntimeError:
        return None
    return writer


def _dropped_line(count: int) -> str:
    record = logging.LogRecord(
        __name__,
        logging.WARNING,
        __file__,
        0,
        "%d lines dropped: standard error does not take them fast enough",
        (count,),
        None,
    )
    return f"{LineFormatter().format(record)}\n"


class _BackgroundHandler(logging.Handler):
    """Hands lines to a writer. They are made here: what a record refers to may change."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = f"{self.format(record)}\n"
        except Exception:  # noqa: BLE001 - a line that cannot be made must not end what logs it
            self._writer.drop()
        else:
            self._writer.put(text)


class LineFormatter(logging.Formatter):
    """`TIME LEVEL logger: message key=value ...`."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        facts = "".join(
            f" {key}={_fact(value)}"
            for key, value in vars(record).items()
            if key not in _RECORD_ATTRIBUTES
        )
        return f"{time} {record.levelname} {record.name}: {_one_line(record.message)}{facts}"


def _fact(value: object) -> str:
    text = str(value)
    return _one_line(json.dumps(text, ensure_ascii=False)) if _NEEDS_QUOTES.search(text) else text


def _one_line(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
