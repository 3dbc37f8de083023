"""A running store on a storage in memory, and a clock that stands still until a test moves it.

Blocking work runs in real threads, which no clock of a test knows of: `settle` waits for them, and
a `Gate` holds a call of the storage in its thread until it is opened.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.testing import wait_all_tasks_blocked

from rmq.model.offsets import QueueOffset
from rmq.model.properties import KEYS, TAGS, encode_properties
from rmq.model.record import NewMessage, decode_records
from rmq.store.config import KIB, FlushMode, StoreConfig
from rmq.store.core import StoreCore
from rmq.store.store import THREADS, MessageStore
from rmq.testing.storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rmq.testing.faults import Operation

ROOT: Final = Path("/store")
SEGMENT_BYTES: Final = 16 * KIB
START_MS: Final = 1_700_000_000_000


def small_config(root: Path = ROOT, /, **settings: object) -> StoreConfig:
    """Return the settings of a store whose files are small; by default an append waits."""
    defaults: dict[str, Any] = {
        "segment_bytes": SEGMENT_BYTES,
        "queue_segment_bytes": 100 * 20,
        "index_slots": 50,
        "index_entries": 1000,
        "flush_mode": FlushMode.SYNC,
        # How full the disk of the machine is must not matter.
        "disk_clean_ratio": 1.0,
        "disk_full_ratio": 1.0,
    }
    return StoreConfig(root=root, **(defaults | settings))


def message(
    body: bytes = b"hello", *, topic: str = "T", queue_id: int = 0, key: str = "K"
) -> NewMessage:
    return NewMessage(topic, queue_id, body, encode_properties({KEYS: key, TAGS: "TagA"}))


def bodies_of(store: MessageStore | StoreCore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """Return the bodies of all messages of a queue."""
    bodies: list[bytes] = []
    while views := store.reads.get(topic, queue_id, QueueOffset(len(bodies)), 32).records:
        bodies += (record.body for view in views for record in decode_records(view))
    return bodies


def is_of_log(path: Path) -> bool:
    return path.parent.name == "commitlog"


def is_of_queues(path: Path) -> bool:
    return "consumequeue" in path.parts


def is_of_index(path: Path) -> bool:
    return path.parent.name == "index"


class Gate:
    """Holds every call of one operation on some files in its thread while it is shut."""

    def __init__(
        self,
        storage: MemoryStorage,
        operation: Operation = "sync",
        on: Callable[[Path], bool] = is_of_log,
    ) -> None:
        self.passed = 0
        """How many calls went through."""
        self._operation = operation
        self._on = on
        self._is_shut = False
        self._held: list[threading.Event] = []
        self._arrivals = trio.Event()
        storage.faults.watch(self._meet)

    def shut(self) -> None:
        self._is_shut = True

    def open(self) -> None:
        self._is_shut = False
        while self._held:
            self.release_first()

    def release_first(self) -> None:
        """Let the one pass that has waited longest."""
        self._held.pop(0).set()

    def let_others_pass(self) -> None:
        """Hold those that wait already, and no other."""
        self._is_shut = False

    async def wait_arrival(self) -> None:
        """Wait until a call has come to the gate since the last time."""
        await self._arrivals.wait()
        self._arrivals = trio.Event()

    def _meet(self, operation: Operation, path: Path) -> None:
        if operation != self._operation or not self._on(path):
            return
        if self._is_shut:
            released = threading.Event()
            self._held.append(released)
            trio.from_thread.run_sync(self._arrive)
            # A test that fails leaves by closing the store, which needs the thread.
            assert released.wait(30), "the gate was not opened"
        self.passed += 1

    def _arrive(self) -> None:
        self._arrivals.set()


@dataclass(slots=True)
class Clock:
    """The time of day of a store."""

    ms: int = START_MS

    def __call__(self) -> int:
        return self.ms


@dataclass(slots=True, kw_only=True)
class Running:
    """A store with its tasks, as `open_store` makes it, and what a test looks at."""

    store: MessageStore
    core: StoreCore
    storage: MemoryStorage
    limiter: trio.CapacityLimiter
    now: Clock = field(default_factory=Clock)

    async def settle(self, *, held: int = 0) -> None:
        """Wait until nothing happens any more; `held` threads are known to wait at a gate."""
        await settle(self.limiter, held=held)


async def settle(limiter: trio.CapacityLimiter, *, held: int = 0) -> None:
    """Wait until all tasks wait and all threads but `held` are done."""
    await wait_all_tasks_blocked()
    while limiter.borrowed_tokens > held:
        await trio.lowlevel.checkpoint()
        if limiter.borrowed_tokens <= held:
            await wait_all_tasks_blocked()


@asynccontextmanager
async def running(
    storage: MemoryStorage | None = None, /, **settings: object
) -> AsyncIterator[Running]:
    """Run a store whose threads can be waited for."""
    storage = storage if storage is not None else MemoryStorage()
    limiter = trio.CapacityLimiter(THREADS)
    now = Clock()
    core = StoreCore(small_config(**settings), storage=storage, now_ms=now)
    store = MessageStore(core, limiter)
    try:
        async with trio.open_nursery() as nursery:
            for job in store.jobs():
                nursery.start_soon(job)
            await settle(limiter)
            yield Running(store=store, core=core, storage=storage, limiter=limiter, now=now)
            nursery.cancel_scope.cancel()
    finally:
        core.close()
