"""The role of a slave: it follows the master that nameservers list, or the one that is configured.

While `run` runs, the log and the tables of the master are copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.replication.ha_settings import slave_settings
from rmq.ha.slave import SlaveRunner
from rmq.ha.slave_connection import Dialling
from rmq.ha.slave_listener import SlaveListener
from rmq.ha.slave_status import SlaveState
from rmq.ha.tls_channel import client_context_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.replication.role_parts import RoleParts
    from rmq.broker.replication.withdrawal import Withdrawal
    from rmq.model.in_sync_record import InSyncRecord
    from rmq.model.offsets import PhysicalOffset

SEARCH_S: Final = 1.0
"""How often a slave that knows no master asks the nameservers for one."""
SEARCH_S_MAX: Final = 10.0
_CONNECTED: Final = (SlaveState.CATCHING_UP, SlaveState.STREAMING)


@final
class SlaveRole:
    """This broker as slave: which master it follows, and what it copies."""

    def __init__(
        self,
        parts: RoleParts,
        withdrawal: Withdrawal,
        request_reopen: Callable[[int | None, str], None],
    ) -> None:
        """`request_reopen` opens the store again, cut at an offset, or empty for None."""
        self.slave: SlaveRunner | None = None
        """While `run` runs."""
        self._parts = parts
        self._metadata = parts.master_tasks.metadata
        self._withdrawal = withdrawal
        self._request_reopen = request_reopen

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the master until cancelled."""
        parts, saved = self._parts, self._parts.saved
        config = parts.live.current
        self.slave = SlaveRunner(
            parts.store,
            parts.log,
            slave_settings(config, saved.identity),
            SlaveListener(
                epoch=lambda: saved.identity.epoch,
                adopt_epoch=self._adopt_epoch,
                save_record=self._save_record,
                news=self._heard_news,
                is_current=lambda: self._metadata.is_current(trio.current_time()),
                cut=self._cut,
                reseed=self._reseed if config.ha_secret else None,
            ),
            Dialling(
                dialect="native" if config.ha_secret else config.ha_dialect,
                was_native=bool(saved.identity.records),
                tls_context=client_context_of(config.ha_tls_mode, config.tls_replication),
                tls_master_name=config.ha_tls_master_name,
                client=parts.peers.client,
            ),
        )
        self.point()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.slave.run)
                nursery.start_soon(self._metadata.run)
                nursery.start_soon(self._look_for_master)
                nursery.start_soon(self._withdrawal.take_back)
                task_status.started()
        finally:
            self.slave = None

    async def renounce(self) -> None:
        """Take a new incarnation, so that no master counts on this slave by the recorded one."""
        assert self.slave is not None, "only a slave renounces"
        saved = self._parts.saved
        async with self.slave.suspended():
            await saved.rename()
            self.slave.rename(saved.identity.incarnation)

    # --- which master ------------------------------------------------------------------------

    async def _look_for_master(self) -> None:
        """Ask nameservers more often while there is no connection: the master may have changed."""
        pause_s = SEARCH_S
        while True:
            await trio.sleep(pause_s)
            self._trust()
            if self._is_connected:
                pause_s = SEARCH_S
            else:
                pause_s = min(pause_s * 1.5, SEARCH_S_MAX)
                self._parts.registration.register_again()

    @property
    def _is_connected(self) -> bool:
        return self.slave is not None and self.slave.status.state in _CONNECTED

    def follow(self, ha_address: str) -> None:
        """Follow the master at an address, until a nameserver lists another one."""
        self._parts.known.follow(ha_address)
        self.point()

    def point(self) -> None:
        """Follow the master that is known now."""
        known = self._parts.known
        if self.slave is not None:
            ha_address = known.dialled
            self.slave.point_to(ha_address, known.asked_at(ha_address))
        self._trust()
        self._metadata.point_to(known.address)

    def _trust(self) -> None:
        """Tell `MetadataSync` which master the link proves, whose tables may be copied."""
        was_native = (
            bool(self._parts.saved.identity.records)
            and self._parts.live.current.ha_dialect != "stock"
        )
        self._metadata.trust(self.linked_master, was_native=was_native)
        if self._is_connected:
            self._parts.visible.show_all()

    @property
    def linked_master(self) -> str | None:
        """The master at the other end of the native link; None without such a link.

        A nameserver may not list it yet: for example while the master was being started.
        """
        status = None if self.slave is None else self.slave.status
        if status is None or not status.is_native or status.state not in _CONNECTED:
            return None
        return status.master.address or None

    @property
    def last_master_address(self) -> str | None:
        """The master of this slave, or the last one it knew."""
        told = self.slave.status.master.address if self.slave is not None else ""
        return self.linked_master or self._parts.known.address or told or None

    @property
    def master_end(self) -> int:
        """The last reported end of the master's log."""
        return self.slave.status.master.end if self.slave is not None else 0

    # --- what the master sends ---------------------------------------------------------------

    async def _adopt_epoch(self, epoch: int, start: PhysicalOffset) -> None:
        """Save the epoch of the master."""
        await self._metadata.epoch_begins()
        await self._parts.saved.save_epoch(epoch, start)

    async def _save_record(self, record: InSyncRecord) -> None:
        """Save the in-sync record of the master."""
        await self._parts.saved.save_records((record,))

    def _heard_news(self) -> None:
        """Copy tables that the master announced as changed; also once when a link begins."""
        self._trust()
        self._metadata.news()

    def _reseed(self, offset: PhysicalOffset, reason: str) -> None:
        """Empty the log and copy it from the start."""
        self._request_reopen(None, reason)

    def _cut(self, offset: PhysicalOffset, reason: str) -> None:
        """Cut the log behind the last message that ends at `offset` or before."""
        self._request_reopen(self._parts.store.record_boundary(offset), reason)
