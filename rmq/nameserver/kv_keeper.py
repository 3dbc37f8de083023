"""Keeps the KV config and its file the same: a change is on disk before anyone sees it.

Changes are queued in the order of their requests. All that have come while the file was being
written go into the next write together. Only when that is on disk does the table with the changes
take the place of the old one, and only then are the requests answered; when it fails, nothing has
changed and they are told so. (RocketMQ 4.9.8 KVConfigManager only logs a write that failed.)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

import trio

from rmq.errors import RefusedError, StorageError
from rmq.files import ConfigFile
from rmq.nameserver.kv import KvTable
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)


class Put(NamedTuple):
    """Set a value."""

    namespace: str
    key: str
    value: str
    check: Callable[[str | None], None] = lambda _kept: None
    """Raises `RefusedError` if the value must not take the place of the one there is."""

    def apply(self, table: KvTable) -> bool:
        self.check(table.get(self.namespace, self.key))
        return table.put(self.namespace, self.key, self.value)


class Delete(NamedTuple):
    """Remove a value."""

    namespace: str
    key: str

    def apply(self, table: KvTable) -> bool:
        return table.delete(self.namespace, self.key)


Edit: TypeAlias = Put | Delete


class _Pending(NamedTuple):
    edit: Edit
    on_outcome: Callable[[RefusedError | None], None]


@final
class KvKeeper:
    """The one who changes the KV config. `run` must run for `submit` to come to anything."""

    def __init__(self, path: Path, *, write: Callable[[str], None] | None = None) -> None:
        self._file: Final = ConfigFile(path)
        self._write: Final = write or self._file.write
        self._pending: list[_Pending] = []
        self._work = trio.lowlevel.ParkingLot()
        self.table = KvTable()
        """What is on disk. Replaced with every change."""

    async def load(self) -> None:
        """Read the file; raise `ConfigError` when it, and its backup, cannot be read."""
        table = await trio.to_thread.run_sync(self._file.load, KvTable.parse)
        self.table = table or KvTable()

    def submit(self, edit: Edit, on_outcome: Callable[[RefusedError | None], None]) -> None:
        """Queue a change. `on_outcome` is called when it is on disk, or with why it is not.

        Callers bound how many changes are under way (requests count against their group).
        """
        self._pending.append(_Pending(edit, on_outcome))
        self._work.unpark()

    async def run(self) -> None:
        """Write changes until cancelled."""
        while True:
            if not self._pending:
                await self._work.park()
            batch, self._pending = self._pending, []
            await self._carry_out(batch)

    async def _carry_out(self, batch: list[_Pending]) -> None:
        table = self.table.copy()
        outcomes: list[RefusedError | None] = []
        is_changed = False
        for pending in batch:
            try:
                is_changed |= pending.edit.apply(table)
                outcomes.append(None)
            except RefusedError as refusal:
                outcomes.append(refusal)
        if is_changed:
            try:
                await trio.to_thread.run_sync(self._write, table.render())
            except StorageError as exc:
                logger.error("KV config: %s; %d changes refused", exc, len(batch))
                failure = RefusedError(ResponseCode.SYSTEM_ERROR, f"{exc}; nothing was changed")
                outcomes = [failure] * len(batch)
            else:
                self.table = table
        for pending, outcome in zip(batch, outcomes, strict=True):
            pending.on_outcome(outcome)
