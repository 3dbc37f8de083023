"""Where a history takes place: a small store's settings, a clock that jumps, a disk that fails.

`World` holds the storage and goes on to the next one when the power is cut or the process killed.
A `Trap` can be set in it: at the k-th call of the storage from then on the power is cut, the
process is killed, or the call fails, whatever the store is doing at that moment. In the same way
something can happen meanwhile, as it does in a running store while a thread waits for the disk.
"""

from __future__ import annotations

import enum
import errno
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

from rmq.files import storage_error
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.testing.faults import PHRASES, Operation
from rmq.testing.storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.testing.disk_model import Choose

ROOT: Final = Path("/store")
START_MS: Final = 1_700_000_000_000
MEMORY_BYTES: Final = 40_000
"""So little that reads of old messages count as reads from the disk."""
DELETE_HOUR: Final = 4
RESERVED_HOURS: Final = 1
EVERYTHING: Final = 1_000_000
CODES: Final = (errno.EIO, errno.ENOSPC)
"""Why a call of the storage fails."""


class Ending(enum.Enum):
    """How a process comes to its end without being asked."""

    CUT = "the power is cut"
    KILL = "the process is killed"


class Interrupted(BaseException):
    """The process ends here."""

    def __init__(self, ending: Ending, left: MemoryStorage, choose: Choose) -> None:
        super().__init__(ending.value)
        self.ending = ending
        self.left = left
        """What the next process finds."""
        self.choose = choose


@dataclass(slots=True)
class Trap:
    """What happens at the `calls`-th call of the storage from now on."""

    calls: int
    operation: Operation | None
    """Which calls count; None: all."""
    ending: Ending | None
    """None: the call fails."""
    code: int
    choose: Choose
    then: Trap | None = None
    """The trap that is set when this one was sprung."""

    def counts(self, operation: Operation) -> bool:
        is_ours = self.operation in (None, operation)
        return is_ours and (self.ending is not None or operation in PHRASES)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes so small that a few messages fill a file."""

    segment_bytes: int
    queue_entries: int
    """Entries of a ConsumeQueue segment."""
    index_slots: int
    index_entries: int
    """0 turns the index off."""
    log_paths: int
    has_pool: bool
    sector_bytes: int

    def config(self) -> StoreConfig:
        return StoreConfig(
            root=ROOT,
            commit_log_paths=tuple(ROOT / f"commitlog{place}" for place in range(self.log_paths)),
            segment_bytes=self.segment_bytes,
            queue_segment_bytes=self.queue_entries * 20,
            index_enabled=self.index_entries > 0,
            index_slots=self.index_slots,
            index_entries=self.index_entries or 2,
            transient_pool_enabled=self.has_pool,
            transient_pool_size=2,
            reserved_hours=RESERVED_HOURS,
            delete_hours=frozenset({DELETE_HOUR}),
            query_count_max=EVERYTHING,
        )


def geometries() -> st.SearchStrategy[Geometry]:
    return st.builds(
        Geometry,
        segment_bytes=st.sampled_from([4096, 4096, 8192, 16384, 40960]),
        queue_entries=st.sampled_from([10, 11, 16, 100]),
        index_slots=st.sampled_from([8, 16, 64]),
        # More than 256 make entry numbers of two bytes, which can be torn apart.
        index_entries=st.sampled_from([16, 64, 600, 17, 0]),
        log_paths=st.sampled_from([1, 1, 2]),
        has_pool=st.sampled_from([False, False, False, True]),
        sector_bytes=st.sampled_from([512, 64, 64, 4096]),
    )


class World:
    """The storage of one store, the clock, and the trap that is set."""

    def __init__(self, geometry: Geometry) -> None:
        self.config = geometry.config()
        self.now_ms = START_MS
        self.is_steady = True
        """The clock was never put back."""
        self.trap: Trap | None = None
        self.failed: Operation | None = None
        """Which call failed by order last; who takes note of it, forgets it."""
        self._meanwhile: tuple[int, Callable[[], None]] | None = None
        self._is_quiet = False
        self.storage = self._watched(
            MemoryStorage(sector_bytes=geometry.sector_bytes, now_ms=self._clock)
        )

    def open(self) -> StoreCore:
        return StoreCore(
            self.config, storage=self.storage, now_ms=self._clock, memory_bytes=MEMORY_BYTES
        )

    def go_on_with(self, storage: MemoryStorage) -> None:
        self.storage = self._watched(storage)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Let the trap wait: what is done in the block only looks."""
        was_quiet, self._is_quiet = self._is_quiet, True
        try:
            yield
        finally:
            self._is_quiet = was_quiet

    @contextmanager
    def meanwhile(self, calls: int, action: Callable[[], None]) -> Iterator[None]:
        """Do something before the `calls`-th call in the block, if there are so many."""
        self._meanwhile = (calls, action)
        try:
            yield
        finally:
            self._meanwhile = None

    def move_clock(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.is_steady &= by_ms >= 0

    def _clock(self) -> int:
        return self.now_ms

    def _watched(self, storage: MemoryStorage) -> MemoryStorage:
        storage.faults.watch(self._before_call)
        return storage

    def _before_call(self, operation: Operation, path: Path) -> None:
        if self._is_quiet:
            return
        self._do_meanwhile()
        trap = self.trap
        if trap is None or not trap.counts(operation):
            return
        trap.calls -= 1
        if trap.calls > 0:
            return
        self.trap = trap.then
        if trap.ending is None:
            self.failed = operation
            raise storage_error(PHRASES[operation], path, OSError(trap.code, "by order"))
        with self.quiet():
            is_cut = trap.ending is Ending.CUT
            left = self.storage.crash(trap.choose) if is_cut else self.storage.kill()
        raise Interrupted(trap.ending, left, trap.choose)

    def _do_meanwhile(self) -> None:
        if self._meanwhile is None:
            return
        calls, action = self._meanwhile
        self._meanwhile = None if calls == 1 else (calls - 1, action)
        if calls == 1:
            action()
