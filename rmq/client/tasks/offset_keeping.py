"""Where the offsets of a push consumer are kept: at brokers, or in a file of this machine.

The tables themselves are in `rmq.client.core.consuming.offset_store`; this is what reads and writes
them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, final

import anyio

from rmq.client.core.consuming.offset_file import LocalOffsetFile
from rmq.client.core.consuming.offset_store import LocalOffsetStore, RemoteOffsetStore
from rmq.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rmq.client.core.consuming.offset_store import OffsetTable
    from rmq.client.tasks.client import Client
    from rmq.model.queues import MessageQueue

logger = logging.getLogger(__name__)


class OffsetKeeper(Protocol):
    """Loads and stores the offsets of a push consumer."""

    @property
    def table(self) -> OffsetTable: ...

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of a queue, None if there is none; raise `ClientError`."""

    async def persist(
        self, queues: Iterable[MessageQueue] | None = None, *, is_waited_for: bool = False
    ) -> None:
        """Keep the offsets of these queues, or of all. What fails is logged."""


@final
class RemoteOffsetKeeper:
    """Offsets of a group, kept by the brokers of the queues."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._store = RemoteOffsetStore(client.routes, group)

    @property
    def table(self) -> OffsetTable:
        return self._store

    async def load(self, queue: MessageQueue) -> int | None:
        return await self._client.run(self._store.load(queue))

    async def persist(
        self, queues: Iterable[MessageQueue] | None = None, *, is_waited_for: bool = False
    ) -> None:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self._store.offsets() if queues is None else queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        # A broker that does not answer delays the offsets of its own queues only.
        async with anyio.create_task_group() as nursery:
            for told in by_broker.values():
                nursery.start_soon(self._persist, told, is_waited_for)

    async def _persist(self, queues: list[MessageQueue], is_waited_for: bool) -> None:
        for queue in queues:
            flow = self._store.persist((queue,), is_oneway=not is_waited_for)
            if await self._client.run(flow):
                # The other queues of the broker would fail as well, each after its time.
                return


@final
class LocalOffsetKeeper:
    """Offsets of one consumer of broadcasts, kept in a file."""

    def __init__(self, file: LocalOffsetFile, store: LocalOffsetStore) -> None:
        self._file = file
        self._store = store
        self._writing = anyio.Lock()

    @classmethod
    async def open(cls, path: Path) -> LocalOffsetKeeper:
        """Read the file; raise `CorruptStoreError` or `StorageError`."""
        file = LocalOffsetFile(path)
        return cls(file, LocalOffsetStore(await anyio.to_thread.run_sync(file.read)))

    @property
    def table(self) -> OffsetTable:
        return self._store

    async def load(self, queue: MessageQueue) -> int | None:
        return self._store.load(queue)

    async def persist(
        self, queues: Iterable[MessageQueue] | None = None, *, is_waited_for: bool = False
    ) -> None:
        async with self._writing:
            try:
                await anyio.to_thread.run_sync(self._file.write, self._store.content(queues))
            except StorageError as exc:
                logger.warning("offsets of broadcasts were not kept: %s", exc)
