"""Lets threads share a client: one at a time is inside, and is out of the way while it waits.

    with monitor:               # may be nested
        ...                     # no other thread is inside

One of the threads that wait polls the sockets for all of them (it *drives*); it is not inside
meanwhile. The others sleep until what they wait for has happened, or until they have to drive: a
thread that leaves for good while none drives wakes one of them.

A fork waits until no thread is inside, so that the child finds nothing half done.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Final, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import TracebackType

T = TypeVar("T")

_LONGEST_S: Final = threading.TIMEOUT_MAX


@final
class Sleeper:
    """A thread that sleeps until it is called."""

    __slots__ = ("_is_woken", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_woken = False

    def __call__(self, outcome: object = None) -> None:
        """Wake it. To be called inside the monitor."""
        if not self._is_woken:
            self._is_woken = True
            self._lock.release()

    def sleep(self, seconds: float) -> None:
        self._lock.acquire(timeout=min(seconds, _LONGEST_S))


@final
class Monitor:
    """Keeps the state of one client whole while threads share it."""

    __slots__ = ("__weakref__", "_depth", "_lock", "_sleepers", "is_driven")

    def __init__(self) -> None:
        # Reentrant, so that an interrupt at a bad moment cannot lock out the thread that it hit.
        self._lock = threading.RLock()
        self._depth = 0
        """How often the thread that is inside has entered."""
        self._sleepers: dict[Sleeper, bool] = {}
        """Threads that wait, and whether each waits for any event."""
        self.is_driven = False
        """Whether a thread polls now. Seen by threads that are inside, so never by itself."""
        _living.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._sleepers and not self._depth and not self.is_driven:
            next(iter(self._sleepers))()
        self._lock.release()

    def leave(self) -> int:
        """Be outside for a while; return what `come_back` has to be given."""
        depth, self._depth = self._depth, 0
        for _ in range(depth):
            self._lock.release()
        return depth

    def come_back(self, depth: int) -> None:
        for _ in range(depth):
            self._lock.acquire()
        self._depth = depth

    @property
    def is_shared(self) -> bool:
        """Whether other threads wait."""
        return bool(self._sleepers)

    def sleep(self, sleeper: Sleeper, seconds: float, *, for_any: bool) -> None:
        """Sleep until the sleeper is called; `for_any`: also when anything has happened."""
        self._sleepers[sleeper] = for_any
        depth = self.leave()
        try:
            sleeper.sleep(seconds)
        finally:
            self.come_back(depth)
            self._sleepers.pop(sleeper, None)

    def happened(self) -> None:
        """Wake the threads that wait for any event."""
        for sleeper, for_any in self._sleepers.items():
            if for_any:
                sleeper()

    def after_fork(self) -> None:
        """Forget the threads of the parent: the one that forked is alone."""
        self._sleepers.clear()
        self.is_driven = False


def steps_inside(monitor: Monitor, steps: Generator[T, None, None]) -> Iterator[T]:
    """Iterate over a generator, and be inside whenever it runs."""
    try:
        while True:
            with monitor:
                try:
                    item = next(steps)
                except StopIteration:
                    return
            yield item
    finally:
        with monitor:
            steps.close()


_living: Final[weakref.WeakSet[Monitor]] = weakref.WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    # In one order, in case two threads fork.
    _forking.held = sorted(_living, key=id)
    for monitor in _forking.held:
        monitor.__enter__()


def _after_fork_in_parent() -> None:
    for monitor in _forking.held:
        monitor.__exit__(None, None, None)
    _forking.held = []


def _after_fork_in_child() -> None:
    for monitor in _forking.held:
        monitor.after_fork()
    _after_fork_in_parent()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
