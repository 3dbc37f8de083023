"""Writes changes of the KV config to its file before they become visible.

Changes are queued in the order of their requests. Changes that arrive while the file is being
written go into the next write together. When that is on disk, the changed table replaces the old
one and the requests are answered; if the write fails, nothing has changed and the requests are
refused. (RocketMQ 4.9.8 KVConfigManager only logs a failed write.)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

import trio

from rmq.errors import RefusedError, StorageError
from rmq.files import ConfigFile
from rmq.nameserver.kv import KvTable
from rmq.remoting.codes import ResponseCode
from rmq.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)


_BATCH_MAX: Final = 256
"""How many changes go into one write; they are checked and made without a pause."""


class Put(NamedTuple):
    """Set a value."""

    namespace: str
    key: str
    value: str
    check: Callable[[str | None], None] = lambda _kept: None
    """Raises `RefusedError` if the value must not replace the present one."""

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
    """Serializes changes of the KV config; `submit` needs `run` to be running."""

    def __init__(self, path: Path, *, write: Callable[[str], None] | None = None) -> None:
        self._file: Final = ConfigFile(path)
        self._write: Final = write or self._file.write
        self._pending: list[_Pending] = []
        self._work = trio.lowlevel.ParkingLot()
        self.table = KvTable()
        """The table that is on disk. Replaced with every change."""

    async def load(self) -> None:
        """Read the file; raise `ConfigError` when it, and its backup, cannot be read."""
        table = await run_in_thread(self._file.load, KvTable.parse)
        self.table = table or KvTable()

    def submit(self, edit: Edit, on_outcome: Callable[[RefusedError | None], None]) -> None:
        """Queue a change. `on_outcome` is called when it is on disk, or with the error.

        Callers bound how many changes are queued (requests count against their group).
        """
        self._pending.append(_Pending(edit, on_outcome))
        self._work.unpark()

    async def run(self) -> None:
        """Write changes until cancelled."""
        while True:
            if not self._pending:
                await self._work.park()
            batch = self._pending[:_BATCH_MAX]
            del self._pending[:_BATCH_MAX]
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
                await run_in_thread(self._write, table.render())
            except StorageError as exc:
                logger.error("KV config: %s; %d changes refused", exc, len(batch))
                failure = RefusedError(ResponseCode.SYSTEM_ERROR, f"{exc}; nothing was changed")
                outcomes = [failure] * len(batch)
            else:
                self.table = table
        for pending, outcome in zip(batch, outcomes, strict=True):
            pending.on_outcome(outcome)
