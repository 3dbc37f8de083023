"""From an exception that ended a run to a sentence for the user. Pure.

An error of a task reaches the driver as text: the traceback of the Python worker, wrapped in one or
more stack traces of Java. What the user needs is the last line of that traceback; the rest is shown
with `--debug`.
"""

from __future__ import annotations

import errno
import re
import sys
from typing import Final, NamedTuple

from rmq.errors import RmqError

TEXT_MAX: Final = 2_000
"""Characters of an error that are shown; what hangs on it is in the traceback."""

_TRACEBACK: Final = "Traceback (most recent call last):"
_ERROR_LINE: Final = re.compile(r"^((?:\w+\.)*\w+): (.*)$|^((?:\w+\.)+\w+)$")
_JAVA_CAUSE: Final = re.compile(r"^(?:Caused by: )?((?:[\w$]+\.)+[\w$]+)(?:: (.*))?$")
_JAVA_FRAME: Final = re.compile(r"^\s+at [\w.$/<>]+\(|^\s+\.\.\. \d+ more|^\tSuppressed:")
_SPARK_CLASS: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQL_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}$")
_NO_SPACE: Final = ("No space left on device", "Disk quota exceeded")
_DISK_HINT: Final = (
    "make room in --out or spark.local.dir, then run it again; replay and redrive carry on with the"
    " same --out"
)
_NO_MODULE: Final = re.compile(r"No module named '(\w+)")
_LOST_TASK: Final = re.compile(
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \((\S+) executor (\w+)\)"
)
_TASK_FRAME: Final = "org.apache.spark.executor.Executor$TaskRunner"
_NO_PROGRAM: Final = re.compile(r'Cannot run program "([^"]*)"')
_OTHER_PYTHON: Final = "PYTHON_VERSION_MISMATCH"
_OURS: Final = ("rmq", "pyspark_rmq", "pyspark_rmq_store")
_NEEDED: Final = ("numpy", "pyarrow", "msgspec", "construct", "prometheus_client")
"""Packages that rmq needs where tasks run, and that are not in its bundle."""


class Failure(NamedTuple):
    """Why a run could not tell."""

    text: str
    hint: str | None


def describe(error: BaseException) -> Failure:
    """Return what went wrong."""
    if isinstance(error, RmqError):
        text = error.text
        return Failure(text or type(error).__name__, error.hint or _disk_hint(text))
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if error.filename else ""
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return Failure(f"{where}{error.strerror}", _DISK_HINT if is_full else None)
    if _is_of_spark(error):
        text = _whole_text(error)
        return Failure(spark_reason(text), _disk_hint(text) or _python_hint(text))
    kind = type(error).__name__
    return Failure(
        f"unexpected {kind}: {error}" if str(error) else f"unexpected {kind}",
        "this is a bug in rmq; --debug shows the traceback",
    )


def _disk_hint(text: str) -> str | None:
    return _DISK_HINT if any(sign in text for sign in _NO_SPACE) else None


def _python_hint(text: str) -> str | None:
    """Return what to do about a Python that lacks a package, or is not there itself."""
    not_started = _NO_PROGRAM.search(text)
    if not_started or _OTHER_PYTHON in text:
        place = _place(text)
        fault = (
            f"{not_started[1]} does not run on {place}"
            if not_started
            else f"the Python on {place} is of another version"
        )
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"{fault}: PYSPARK_PYTHON must lead to a Python of the driver's version there"
            f" ({version})"
        )
    missing = _NO_MODULE.findall(text)
    package = missing[-1] if missing else ""
    if package in _OURS:
        return (
            f"rmq is not on {_place(text)}: send it with spark-submit --py-files or --conf"
            " spark.submit.pyFiles (rmq pipeline bundle FILE writes it), or install rmq[spark]"
            " there"
        )
    if package in _NEEDED:
        return (
            f"{package} is not on {_place(text)}: the bundle has rmq only, because packages with"
            " compiled parts do not travel in a zip file; install rmq[spark] on every node, or send"
            " an environment with spark.archives"
        )
    return None


def _place(text: str) -> str:
    """Return where it happened: the host of the task that was lost, if Spark tells it."""
    lost = _LOST_TASK.findall(text)
    if not lost:
        return "a worker" if _TASK_FRAME in text else "this machine"
    host, executor = lost[-1]
    return "this machine" if executor == "driver" else str(host)


def spark_reason(text: str) -> str:
    """Return the line that tells why, of everything that Spark says about an error."""
    reason = _python_reason(text) or _java_reason(text) or _first_line(text)
    return _cut(_SQL_STATE.sub("", reason))


def _python_reason(text: str) -> str | None:
    """Return what the last traceback of Python in the text ends with, without the class."""
    at = text.rfind(_TRACEBACK)
    if at < 0:
        return None
    said: list[str] = []
    for line in text[at + len(_TRACEBACK) :].splitlines():
        if said:
            # A message may have several lines; an empty one or Java's frames end it.
            if not line.strip() or _JAVA_FRAME.match(line):
                break
            said.append(line.strip())
        elif line[:1] not in ("", " ", "\t") and (found := _ERROR_LINE.match(line)):
            name, message, bare = found.groups()
            said.append(_without_class(bare or name, message))
    return " ".join(said) if said else None


def _without_class(name: str, message: str | None) -> str:
    """Leave out the name of a class that rmq raises on purpose: its message says it all."""
    kind = name.rpartition(".")[2]
    if message and name.startswith("rmq."):
        return message
    return f"{kind}: {message}" if message else kind


def _java_reason(text: str) -> str | None:
    """Return the innermost cause that a stack trace of Java names."""
    reason = None
    for line in text.splitlines():
        found = _JAVA_CAUSE.match(line)
        if found and found[2]:
            # What Spark itself says needs no name of a class.
            message = _SPARK_CLASS.sub("", found[2])
            is_named = message == found[2]
            reason = f"{found[1].rpartition('.')[2]}: {message}" if is_named else message
    return reason


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _SPARK_CLASS.sub("", lines[0]) if lines else "Spark failed and did not say why"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def _is_of_spark(error: BaseException) -> bool:
    """Tell by name, so that nothing of Spark is imported where it never ran."""
    return any(
        ancestor.__module__.partition(".")[0] in ("pyspark", "py4j")
        for ancestor in type(error).__mro__
    )


def _whole_text(error: BaseException) -> str:
    """Return the text with that of Java behind it, where the exception keeps it apart."""
    text = str(error)
    trace = getattr(error, "_stackTrace", None)
    return f"{text}\n{trace}" if isinstance(trace, str) and trace not in text else text
