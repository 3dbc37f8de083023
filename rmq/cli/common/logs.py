"""Logging of the command line: to standard error, one line per event, times in UTC.

    2025-01-31T08:15:00.042Z WARNING rmq.remoting.server: connection closed peer=10.0.0.7:51034

Modules log with the standard library and pass facts through `extra`; they appear as key=value
behind the message, in the order given. A line stays a line: control characters, which may come from
a peer, are escaped. Only a traceback adds lines of its own.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = ("debug", "info", "warning", "error")

# Whatever a record carries beyond these came in through `extra`.
_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NEEDS_QUOTES = re.compile(r"[\s=\"\x00-\x1f\x7f-\x9f]|^$")


@contextmanager
def logging_to_stderr(level: str) -> Iterator[None]:
    """Send records of at least `level` (one of `LEVELS`) to standard error while the block runs.

    The logging state of before is restored at the end, so that a program or a test that calls
    `rmq.cli.main` keeps its own.
    """
    root = logging.getLogger()
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    level_before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.setLevel(level_before)
        root.removeHandler(handler)


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
