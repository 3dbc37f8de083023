"""Small text files that must be whole: written at once or not at all.

A file is written beside its place, brought to disk and then moved there, and what was there before
stays as `NAME.bak`. Whenever the process or the machine stops, either the old or the new text is
there. Everything here blocks; call it from a thread.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final, TypeVar

from rmq.errors import ConfigError, ProtocolError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

BACKUP_SUFFIX: Final = ".bak"
_TEMPORARY_SUFFIX: Final = ".tmp"


def write_text(path: Path, text: str) -> None:
    """Replace a file, making its folder if need be; raise `StorageError`, the old file unharmed."""
    temporary = path.with_name(path.name + _TEMPORARY_SUFFIX)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copyfile(path, _backup_of(path))
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as exc:
        raise StorageError("write", str(path), exc.strerror or str(exc)) from exc


def read_with_backup(path: Path, parse: Callable[[str], T]) -> tuple[T | None, str | None]:
    """Return what a file holds, None when there is none, and a warning if its backup was used.

    The backup counts where the file is missing, empty or unreadable: a stock nameserver that is
    killed while it writes may leave that behind. Raise `ConfigError` when nothing is readable.
    """
    problems: list[str] = []
    for candidate in (path, _backup_of(path)):
        try:
            text = candidate.read_bytes().decode()
            if text.strip():
                value = parse(text)
                break
            problems.append(f"{candidate} is empty")
        except FileNotFoundError:
            continue
        except OSError as exc:
            problems.append(f"{candidate} cannot be read: {exc.strerror}")
        except UnicodeDecodeError as exc:
            problems.append(f"{candidate} is not UTF-8 at byte {exc.start}")
        except ProtocolError as exc:
            problems.append(f"{candidate}: {exc}")
    else:
        if all(problem.endswith(" is empty") for problem in problems):
            return None, None
        raise ConfigError(
            path.name,
            "; ".join(problems),
            hint="repair the file, or move it and its .bak away to start without what it holds",
        )
    if candidate == path:
        return value, None
    why = problems[0] if problems else f"{path} is missing"
    return value, f"{why}; used {candidate}"


def _backup_of(path: Path) -> Path:
    return path.with_name(path.name + BACKUP_SUFFIX)


def _sync_folder(folder: Path) -> None:
    """Make sure that the move itself is on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
