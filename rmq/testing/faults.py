"""Injected faults: which calls of a storage fail, and how.

A `Faults` is asked before every call of the seam in `rmq.store.storage`. It counts the call, passes
it to the watcher, and raises if a fault was ordered for it. What it raises is what the real storage
makes of the same error code, so code under test cannot tell the two apart.

It knows nothing of files: what a failed call leaves behind is up to the storage.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rmq.errors import StorageError
from rmq.files import LOCK_IN_MEMORY, storage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

Operation: TypeAlias = Literal[
    "exists",
    "names",
    "is_directory",
    "size_of",
    "modified_ms",
    "make_directory",
    "add_directory",
    "create",
    "open",
    "resize",
    "read",
    "write",
    "replace",
    "delete",
    "move",
    "sync_directory",
    "lock",
    "sync",
    "reserve",
    "clear_from",
    "is_clear_from",
    "lock_memory",
    "advise_random",
    "used_ratio",
    "touch",
    "unlock_memory",
    "close",
]
"""A method of `Storage` or `MappedFile`."""

PHRASES: Final[Mapping[Operation, str]] = {
    "exists": "read the attributes of",
    "names": "list",
    "is_directory": "read the attributes of",
    "size_of": "read the size of",
    "modified_ms": "read the time of",
    "make_directory": "create the directory",
    "add_directory": "create the directory",
    "create": "create",
    "open": "open",
    "resize": "resize",
    "read": "read",
    "write": "write",
    "replace": "write",
    "delete": "delete",
    "move": "move",
    "sync_directory": "sync the directory",
    "lock": "lock",
    "sync": "sync",
    "reserve": "reserve room for",
    "clear_from": "clear the end of",
    "is_clear_from": "read the end of",
    "lock_memory": LOCK_IN_MEMORY,
}
"""What `StorageError.operation` says for each operation that can fail; the others never do."""


@dataclass(slots=True, eq=False)
class Fault:
    """One ordered fault, and how often it has happened."""

    operation: Operation
    code: int
    call: int
    times: int | None
    on: Callable[[Path], bool] | None
    fired: int = 0
    """How many calls failed because of it; a test that depends on it checks this."""
    _seen: int = 0

    def strikes(self, operation: Operation, path: Path) -> bool:
        """Count the call if this fault is for it, and tell whether it fails."""
        if operation != self.operation or not (self.on is None or self.on(path)):
            return False
        self._seen += 1
        if self._seen < self.call or (self.times is not None and self.fired >= self.times):
            return False
        self.fired += 1
        return True


class Faults:
    """The faults of one storage."""

    def __init__(self) -> None:
        self.calls: Counter[Operation] = Counter()
        """How often each operation was called, failed calls included."""
        self._orders: list[Fault] = []
        self._watchers: list[Callable[[Operation, Path], None]] = []
        # Syncs come from threads.
        self._guard = threading.Lock()

    def fail(
        self,
        operation: Operation,
        code: int = errno.EIO,
        *,
        call: int = 1,
        times: int | None = 1,
        on: Callable[[Path], bool] | None = None,
    ) -> Fault:
        """Order a fault with an error code of the system.

        The `call`-th call from now (1 is the next one) fails, and `times` calls in all from there
        on; None means every one. With `on`, only calls on paths for which it returns True count.
        """
        if operation not in PHRASES:
            raise ValueError(f"{operation} never fails")
        if call < 1:
            raise ValueError(f"calls are counted from 1, not {call}")
        fault = Fault(operation, code, call, times, on)
        with self._guard:
            self._orders.append(fault)
        return fault

    @contextlib.contextmanager
    def failing(
        self,
        operation: Operation,
        code: int = errno.EIO,
        *,
        on: Callable[[Path], bool] | None = None,
    ) -> Iterator[Fault]:
        """Make every such call inside the block fail."""
        fault = self.fail(operation, code, times=None, on=on)
        try:
            yield fault
        finally:
            with self._guard:
                self._orders.remove(fault)

    def watch(self, watcher: Callable[[Operation, Path], None]) -> None:
        """Show every call to `watcher` before it happens, failing ones too.

        It may raise, or take a crash of the storage as it is between two calls.
        """
        self._watchers.append(watcher)

    def clear(self) -> None:
        """Remove all faults; what they did is not undone."""
        with self._guard:
            self._orders.clear()

    def call(self, operation: Operation, path: Path) -> Translation:
        """The two hooks of a call: `before` it, and `translated` while it runs."""
        self.before(operation, path)
        return Translation(operation, path)

    def before(self, operation: Operation, path: Path) -> None:
        """Run before a call; raise `StorageError` if it is to fail."""
        for watcher in self._watchers:
            watcher(operation, path)
        with self._guard:
            self.calls[operation] += 1
            if not self._orders:
                return
            # Every fault counts the call, also when an earlier one makes it fail.
            struck = [fault for fault in self._orders if fault.strikes(operation, path)]
        if struck:
            with self.translated(operation, path):
                raise OSError(struck[0].code, os.strerror(struck[0].code))

    @staticmethod
    def translated(operation: Operation, path: Path) -> Translation:
        """Raise errors as the real storage does."""
        return Translation(operation, path)


class Translation:
    """Translates errors of the system as the real storage does.

    A class and not a generator: tests of the store enter it a million times.
    """

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: Operation, path: Path) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(exc, OSError):
            raise storage_error(PHRASES[self._operation], self._path, exc) from exc
        if isinstance(exc, ValueError):
            raise StorageError(PHRASES[self._operation], str(self._path), str(exc)) from exc
