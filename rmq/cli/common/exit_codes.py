"""What the exit code of `rmq` means, and which error leads to which code.

Scripts may rely on these numbers. Codes of 128 and above follow the shell's rule of 128 plus the
number of the signal.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from rmq.errors import (
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    ListenError,
    NoNameserverError,
    RequestTimeoutError,
    RmqError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class ExitCode(IntEnum):
    """Every code that `rmq` ends with on purpose; `meaning` is the text `rmq --help` shows."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    OK = 0, "done"
    FAILURE = 1, "the operation ran and failed, or a check did not hold"
    USAGE = 2, "the command line is wrong"
    CONFIG = 3, "the configuration is wrong"
    UNAVAILABLE = 4, "a port is in use, or a peer cannot be reached or does not answer"
    SOFTWARE = 70, "a bug in rmq: run again with --debug and report the traceback"
    OUT_OF_RESOURCES = 71, "memory or threads ran out"
    INTERRUPTED = 130, "stopped by Ctrl-C"
    PIPE_CLOSED = 141, "the reader of standard output went away"


# The closest ancestor counts, so an error that is not listed has the code of its base.
_CODES: Mapping[type[BaseException], ExitCode] = {
    RmqError: ExitCode.FAILURE,
    ConfigError: ExitCode.CONFIG,
    ListenError: ExitCode.UNAVAILABLE,
    ConnectFailedError: ExitCode.UNAVAILABLE,
    ConnectionLostError: ExitCode.UNAVAILABLE,
    RequestTimeoutError: ExitCode.UNAVAILABLE,
    NoNameserverError: ExitCode.UNAVAILABLE,
    MemoryError: ExitCode.OUT_OF_RESOURCES,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    BrokenPipeError: ExitCode.PIPE_CLOSED,
    BaseException: ExitCode.SOFTWARE,
}


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error that ended a command."""
    return next(_CODES[ancestor] for ancestor in type(error).__mro__ if ancestor in _CODES)
