"""Settings of the log of a service, the same for brokers and nameservers.

A level given on the command line counts before that of the file. `logLevel` can be changed while
the service runs; where the log goes and what a line looks like, with a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmq.settings.declaration import NOW, RESTART, setting
from rmq.settings.log_levels import LEVELS
from rmq.settings.schema import LONG_MAX

FORMATS: Final = ("text", "json")
_SECTION: Final = "rmq"


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Where log lines go, which ones, and in what form."""

    log_level: str = setting(
        "logLevel",
        "info",
        "Lowest level that is logged, unless the command line says another one.",
        NOW,
        section=_SECTION,
        choices=LEVELS,
    )
    log_format: str = setting(
        "logFormat",
        "text",
        "Form of a log line: text with key=value, or one JSON object.",
        RESTART,
        section=_SECTION,
        choices=FORMATS,
    )
    log_file: Path | None = setting(
        "logFile",
        None,
        "File that log lines go to instead of standard error; empty for standard error.",
        RESTART,
        read=_path,
        unread="",
        section=_SECTION,
        guarded=True,
    )
    log_file_bytes_max: int = setting(
        "logFileSize",
        100 * 1024 * 1024,
        "Bytes after which logFile is renamed to logFile.1, and a new one begun.",
        RESTART,
        section=_SECTION,
        minimum=64 * 1024,
        maximum=LONG_MAX,
    )
    log_files_kept: int = setting(
        "logFilesKept",
        10,
        "Renamed log files that are kept: logFile.1 is the latest of them.",
        RESTART,
        section=_SECTION,
        minimum=0,
        maximum=1000,
    )
