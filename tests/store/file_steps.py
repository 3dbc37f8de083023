"""Watches what is done to files, ends it at any step, and tells what a power cut may leave.

`Steps` stands in for the functions of `os` that change files. It lets them work, notes each call,
and can raise an error in the place of one of them: `Killed` for the end of the process, or an
`OSError`. A write that is ended has written half.

`power_cuts` goes through what a disk may hold if the machine ends before the next step: a file that
was not synced has any content, and a name that was given or taken since the directory was synced
has been or has not. That is less than file systems promise; what holds here holds on all of them.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Steps:
    """The calls that were made, by what they did."""

    fail_at: int | None = None
    failure: BaseException = field(default_factory=Killed)
    done: list[tuple[str, str, str]] = field(default_factory=list)
    """The name of the call, the file, and the other file of a rename."""
    data: dict[int, bytes] = field(default_factory=dict)
    """What was written by each step that is a write."""
    _open_files: dict[int, str] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[Steps]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("open", "write", "fsync", "replace"):
                patch.setattr(os, name, self._watched(name, getattr(os, name)))
            # Files are written from their beginning on by either.
            patch.setattr(os, "pwrite", self._watched("write", os.pwrite))
            yield self

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(subject: Any, *rest: Any) -> Any:  # noqa: ANN401 - any function of `os`
            is_failing = len(self.done) == self.fail_at
            if is_failing and name == "write":
                call(subject, rest[0][: len(rest[0]) // 2], *rest[1:])
            if is_failing:
                raise self.failure
            result = call(subject, *rest)
            self._note(name, subject, rest, result)
            return result

        return watched

    def _note(self, name: str, subject: Any, rest: tuple[Any, ...], result: Any) -> None:  # noqa: ANN401
        if name == "open":
            self._open_files[result] = Path(subject).name
        if name == "write":
            self.data[len(self.done)] = bytes(rest[0][:result])
        if name == "fsync" and stat.S_ISDIR(os.fstat(subject).st_mode):
            name = "sync directory"
        file = self._open_files[subject] if isinstance(subject, int) else Path(subject).name
        self.done.append((name, file, Path(rest[0]).name if name == "replace" else ""))


def power_cuts(before: dict[str, bytes], steps: Steps) -> Iterator[dict[str, bytes]]:
    """Yield every content a directory may have after a power cut during or after these steps."""
    for end in range(len(steps.done) + 1):
        yield from _power_cuts_at(before, steps, end)


def _power_cuts_at(before: dict[str, bytes], steps: Steps, end: int) -> Iterator[dict[str, bytes]]:
    done = steps.done[:end]
    synced_to = max((at for at, step in enumerate(done) if step[0] == "sync directory"), default=-1)
    renames = [at for at, step in enumerate(done) if step[0] == "replace" and at > synced_to]
    for is_kept in product([True, False], repeat=len(renames)):
        lost = {at for at, kept in zip(renames, is_kept, strict=True) if not kept}
        for torn in (lambda data: data, lambda data: data[: len(data) // 2], lambda _data: b""):
            yield _content_after(before, steps, end, lost, torn)


def _content_after(
    before: dict[str, bytes],
    steps: Steps,
    end: int,
    lost: set[int],
    torn: Callable[[bytes], bytes],
) -> dict[str, bytes]:
    content = dict(before)
    unsynced: set[str] = set()
    for at, (name, file, other) in enumerate(steps.done[:end]):
        if name == "open" and file.endswith(".tmp"):
            content[file] = b""
            unsynced.add(file)
        elif name == "write":
            content[file] += steps.data[at]
        elif name == "fsync":
            unsynced.discard(file)
        elif name == "replace" and at not in lost and file in content:
            content[other] = content.pop(file)
            unsynced.discard(other)
            if file in unsynced:
                unsynced.remove(file)
                unsynced.add(other)
    return {file: torn(data) if file in unsynced else data for file, data in content.items()}
