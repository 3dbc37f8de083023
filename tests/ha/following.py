"""A slave that follows masters made for a test: real stores, real sockets, time by hand.

`Node` is a running store, `following` runs a `SlaveRunner` on one and a master of
`scripted_masters` beside it. Nobody sleeps: `Hands` moves the clock and waits for tasks and
threads.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.testing import wait_all_tasks_blocked

from rmq.ha.protocol.slave_link import SlaveSettings
from rmq.ha.slave import SlaveRunner
from rmq.ha.slave_connection import Dialling
from rmq.ha.slave_listener import SlaveListener
from rmq.ha.store_log import StoreLog
from rmq.model.offsets import PhysicalOffset
from rmq.store.core import StoreCore
from rmq.store.store import THREADS, MessageStore
from rmq.testing.storage import MemoryStorage
from tests.store.running import message, settle, small_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from rmq.ha.slave_status import SlaveState, SlaveStatus
    from rmq.model.in_sync_record import InSyncRecord
    from tests.ha.scripted_masters import Listener

CLUSTER: Final = "C"
NAME: Final = "broker-a"
MASTER_ID: Final = b"m" * 16
SLAVE_ID: Final = b"s" * 16


@dataclass(slots=True, kw_only=True)
class Node:
    """A running store."""

    store: MessageStore
    core: StoreCore
    log: StoreLog
    limiter: trio.CapacityLimiter
    storage: MemoryStorage | None

    def put(self, count: int, *, size: int = 20, topic: str = "T") -> None:
        """Append so many messages, each with a body of its own."""
        queue = self.core.queues.get(topic, 0)
        first = 0 if queue is None else queue.next_offset
        bodies = [b"%06d" % number for number in range(first, first + count)]
        self.store.append([message(body.ljust(size, b"."), topic=topic) for body in bodies])

    @property
    def bytes(self) -> bytes:
        """All there is of the log."""
        return bytes_of(self.core)


def bytes_of(core: StoreCore) -> bytes:
    found = b""
    offset = int(core.log.min_offset)
    while (view := core.log.view_from(PhysicalOffset(offset))) is not None:
        found += view
        offset += len(view)
    return found


@asynccontextmanager
async def node(
    root: Path | None = None,
    storage: MemoryStorage | None = None,
    **settings: Any,  # noqa: ANN401 - any setting
) -> AsyncIterator[Node]:
    """Run a store, on disk if a root is given."""
    if root is None:
        storage = storage if storage is not None else MemoryStorage()
        config = small_config(**settings)
    else:
        config = small_config(root, **settings)
    limiter = trio.CapacityLimiter(THREADS)
    core = StoreCore(config, storage=storage)
    store = MessageStore(core, limiter)
    try:
        async with trio.open_nursery() as nursery:
            for job in store.jobs():
                nursery.start_soon(job)
            yield Node(
                store=store, core=core, log=StoreLog(store), limiter=limiter, storage=storage
            )
            nursery.cancel_scope.cancel()
    finally:
        if core.failure is not None:
            core.release()
        else:
            core.close()


@dataclass(slots=True)
class Hands:
    """Moves the time of a test."""

    clock: MockClock
    limiters: list[trio.CapacityLimiter] = field(default_factory=list)

    async def settle(self) -> None:
        """Wait until nothing happens any more."""
        await wait_all_tasks_blocked()
        while any(limiter.borrowed_tokens for limiter in self.limiters):
            for limiter in self.limiters:
                await settle(limiter)

    async def pass_time(self, seconds: float, step_s: float = 0.1) -> None:
        """Let time pass, in steps small enough for everything that waits."""
        left = seconds
        while left > 1e-9:
            step = min(step_s, left)
            self.clock.jump(step)
            left -= step
            await self.settle()

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> float:
        """Let time pass until something is so; return how long it took."""
        await self.settle()
        started_at = trio.current_time()
        while not condition():
            waited = trio.current_time() - started_at
            assert waited < seconds, f"not within {seconds} s"
            await self.pass_time(0.05, 0.05)
        return trio.current_time() - started_at


# --- the slave ------------------------------------------------------------------------------------


class Slave:
    """A slave runner, and what it reported."""

    def __init__(self, node: Node, **options: Any) -> None:  # noqa: ANN401 - any of Dialling, SlaveSettings
        self.node = node
        self.epoch = options.pop("epoch", 1)
        self.adopted: list[tuple[int, int]] = []
        self.records: list[InSyncRecord] = []
        self.reseeds: list[tuple[int, str]] = []
        self.cuts: list[tuple[int, str]] = []
        self.news = 0
        self.last_status: SlaveStatus | None = None
        """For a look at it after it ended."""
        self.on_adopt: Callable[[], Any] | None = None
        """Awaited while an epoch is adopted."""
        dialling = {
            field.name: options.pop(field.name)
            for field in fields(Dialling)
            if field.name in options
        }
        defaults: dict[str, Any] = {
            "cluster": CLUSTER,
            "broker_name": NAME,
            "broker_id": 1,
            "address": "127.0.0.1:10921",
            "store_id": SLAVE_ID,
        }
        self.runner = SlaveRunner(
            node.store,
            node.log,
            SlaveSettings(**defaults | options),
            SlaveListener(
                epoch=lambda: self.epoch,
                adopt_epoch=self._adopt,
                save_record=self._save_record,
                news=self._note_news,
                cut=lambda offset, reason: self.cuts.append((offset, reason)),
                reseed=lambda offset, reason: self.reseeds.append((offset, reason)),
            ),
            Dialling(**dialling),
        )

    def state(self) -> SlaveState:
        """Return what it is doing now."""
        return self.runner.status.state

    async def _save_record(self, record: InSyncRecord) -> None:
        self.records.append(record)

    async def _adopt(self, epoch: int, start: int) -> None:
        if self.on_adopt is not None:
            await self.on_adopt()
        self.epoch = epoch
        self.adopted.append((epoch, start))

    def _note_news(self) -> None:
        self.news += 1


@asynccontextmanager
async def following(node: Node, master: Listener | None, **options: Any) -> AsyncIterator[Slave]:  # noqa: ANN401 - as `Slave`
    """Run a slave, and the master it is pointed to."""
    master_address = options.pop("master_address", None)
    slave = Slave(node, **options)
    async with trio.open_nursery() as nursery:
        if master is not None:
            await nursery.start(master.run)
            slave.runner.point_to(master.address, master_address)
        nursery.start_soon(slave.runner.run)
        yield slave
        nursery.cancel_scope.cancel()
