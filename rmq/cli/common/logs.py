"""Logging of the command line: one line per event, times in UTC.

    2025-01-31T08:15:00.042Z WARNING rmq.remoting.server: connection closed peer=10.0.0.7:51034

Modules log with the standard library and pass facts through `extra`; they appear as key=value
behind the message, in the order given. A line stays a line: control characters, which may come from
a peer, are escaped. Only a traceback adds lines of its own.

No event fills a disk: of lines with the same text but for their facts `LINES_PER_KIND` are written
a minute, of the lines of a library `LINES_PER_SOURCE`, and the rest is counted.

A service (a broker, a nameserver) never waits for standard error: see `line_writer`. Its settings
(`rmq.settings.log_settings`) choose the level, JSON instead of text, and a file instead of standard
error; and its lines say which process they are of:

    2025-01-31T08:15:00.042Z WARNING broker-a@10911 rmq.remoting.server: connection closed ...
    {"time":"2025-01-31T08:15:00.042Z","level":"WARNING","process":"broker-a@10911",
     "logger":"rmq.remoting.server","message":"connection closed","facts":{"peer":"..."}}
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from rmq.cli.common.line_writer import LineWriter
from rmq.cli.common.log_file import LogFile
from rmq.log_limits import LINES_PER_KIND, WINDOW_S, LineLimits
from rmq.settings.log_levels import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.log_limits import Suppressed
    from rmq.settings.log_settings import LogSettings

__all__ = ["FLUSH_S", "LEVELS", "JsonFormatter", "LineFormatter", "Logs", "logging_to_stderr"]

FLUSH_S: Final = 2.0
"""How long the last lines may take to be written, when a service ends."""

logger = logging.getLogger(__name__)

# Whatever a record carries beyond these came in through `extra`.
_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NEEDS_QUOTES = re.compile(r"[\s=\"\x00-\x1f\x7f-\x9f]|^$")


@contextmanager
def logging_to_stderr(level: str | None, *, in_background: bool = False) -> Iterator[Logs]:
    """Send records of at least `level` (one of `LEVELS`) to standard error while the block runs.

    Without a level it is "info", or what the settings of a service say. With `in_background`
    nothing waits for standard error to take lines, and on leaving that is waited for `FLUSH_S` at
    most: whatever the block ended with, the last lines say why.

    The logging state of before is restored at the end, so that a program or a test that calls
    `rmq.cli.main` keeps its own.
    """
    root = logging.getLogger()
    level_before = root.level
    logs = Logs(root, level, in_background=in_background)
    try:
        yield logs
    finally:
        root.setLevel(level_before)
        logs.close()


@final
class Logs:
    """The log of this process: where its lines go, and in what form."""

    def __init__(self, root: logging.Logger, level: str | None, *, in_background: bool) -> None:
        self._root = root
        self._level = level
        self._formatter: logging.Formatter = LineFormatter()
        self._limit = _Limit()
        self._stderr = self._start_writer() if in_background else None
        self._file: LogFile | None = None
        self._file_writer: LineWriter | None = None
        self._handler = self._add_handler(self._stderr)
        root.setLevel((level or "info").upper())

    def say(self, line: str) -> None:
        """Write a line that is no record, behind those that were logged."""
        if self._stderr is None:
            print(line, file=sys.stderr)
        else:
            self._stderr.put(f"{line}\n")
        if self._file_writer is not None:
            self._file_writer.put(f"{line}\n")

    def configure(self, config: LogSettings, process: str) -> None:
        """Apply the settings of a service; raise `ConfigError` if its file cannot be opened.

        `process` is how its lines name it.
        """
        is_json = config.log_format == "json"
        self._formatter = JsonFormatter(process) if is_json else LineFormatter(process)
        if config.log_file is None:
            self._handler.setFormatter(self._formatter)
        else:
            self._file = LogFile(
                config.log_file,
                bytes_max=config.log_file_bytes_max,
                kept=config.log_files_kept,
            )
            self._file_writer = LineWriter(self._file, self._dropped_line)
            self._file_writer.start()
            self._root.removeHandler(self._handler)
            self._handler = self._add_handler(self._file_writer)
        self.set_level(config.log_level)

    def set_level(self, level: str) -> None:
        """Change the level, unless the command line has chosen it."""
        self._root.setLevel((self._level or level).upper())

    def reopen(self) -> None:
        """Open the log file again, which another program has moved away."""
        if self._file is not None:
            self._file.reopen()

    def close(self) -> None:
        """Write what is left, within `FLUSH_S`, and leave the logging of the process alone."""
        self._root.removeHandler(self._handler)
        for writer in (self._file_writer, self._stderr):
            if writer is not None:
                writer.close(FLUSH_S)
        if self._file is not None:
            self._file.close()

    def _add_handler(self, writer: LineWriter | None) -> logging.Handler:
        handler = logging.StreamHandler() if writer is None else _BackgroundHandler(writer)
        handler.setFormatter(self._formatter)
        handler.addFilter(self._limit)
        self._root.addHandler(handler)
        return handler

    def _start_writer(self) -> LineWriter | None:
        """Return a running writer, None where standard error is closed or no thread can be
        started.
        """
        if sys.stderr is None:
            return None
        writer = LineWriter(sys.stderr, self._dropped_line)
        try:
            writer.start()
        except RuntimeError:
            return None
        return writer

    def _dropped_line(self, count: int) -> str:
        record = logging.LogRecord(
            __name__,
            logging.WARNING,
            __file__,
            0,
            "%d lines dropped: they are not taken fast enough",
            (count,),
            None,
        )
        return f"{self._formatter.format(record)}\n"


class _Limit(logging.Filter):
    """Limits lines of a kind, whatever causes them: those of a statement of ours, which have the
    same text but for their facts, and those of a library. trio, for example, says ten times a
    second that no file can be opened.

    What peers can cause has narrower limits where it is logged (`rmq.log_limits`). Lines below
    INFO are not limited: an operator has asked for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own = LineLimits(lines_per_source=LINES_PER_KIND)
        self._foreign = LineLimits()
        self._summarized_at = time.monotonic()
        # Threads log, too, and so may a finalizer in the middle of this.
        self._lock = threading.RLock()
        self._is_counting = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        with self._lock:
            if self._is_counting:
                return True
            self._is_counting = True
            try:
                # Not the record's time: the wall clock may be set back.
                now = time.monotonic()
                suppressed = self._take(record, now)
                others = self._take_others(now)
            finally:
                self._is_counting = False
        for each in others:
            logger.warning("suppressed %d lines of the kind: %s", each.lines, each.kind)
        if suppressed:
            vars(record)["similar_lines_suppressed"] = suppressed
        return suppressed is not None

    def _take(self, record: logging.LogRecord, now: float) -> int | None:
        if record.name.partition(".")[0] == "rmq":
            return self._own.take(f"{record.name}: {record.msg}", "", now)
        return self._foreign.take(record.name, "", now)

    def _take_others(self, now: float) -> list[Suppressed]:
        """Return, now and then, lines that were suppressed and that no other one has followed."""
        if now - self._summarized_at < WINDOW_S:
            return []
        self._summarized_at = now
        return [*self._own.take_suppressed(now), *self._foreign.take_suppressed(now)]


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
    """`TIME LEVEL logger: message key=value ...`, with the process before the logger."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = f"{_one_line(process)} " if process else ""

    def formatMessage(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {key}={_fact(value)}" for key, value in _facts(record).items())
        return (
            f"{_time(record)} {record.levelname} {self._process}{record.name}:"
            f" {_one_line(record.message)}{facts}"
        )


class JsonFormatter(logging.Formatter):
    """One JSON object a line; the facts are texts, numbers, booleans or null."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = _facts(record)
        if facts:
            line["facts"] = {
                key: value if _is_json(value) else str(value) for key, value in facts.items()
            }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, separators=(",", ":"))


def _is_json(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, int)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _RECORD_ATTRIBUTES}


def _fact(value: object) -> str:
    text = str(value)
    return _one_line(json.dumps(text, ensure_ascii=False)) if _NEEDS_QUOTES.search(text) else text


def _one_line(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
