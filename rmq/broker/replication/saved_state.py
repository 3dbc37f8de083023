"""What a broker saves of its part in replication: its identity, and its role in the settings.

The identity (epoch, names, in-sync records) is on disk before it counts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

import trio

from rmq.errors import StorageError
from rmq.ha.identity import (
    FIRST_EPOCH,
    reborn,
    renamed,
    save_identity,
    with_epoch,
    with_records,
    with_role,
)
from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config import BrokerRole, LiveConfig
    from rmq.ha.identity import HaIdentity
    from rmq.model.in_sync_record import InSyncRecord

logger = logging.getLogger(__name__)


@final
class SavedState:
    """The saved state of one broker."""

    def __init__(
        self, live: LiveConfig, identity: HaIdentity, *, now_ms: Callable[[], int]
    ) -> None:
        self.identity = identity
        self._live = live
        self._now_ms = now_ms

    async def save(self, identity: HaIdentity) -> None:
        """Save an identity; from then on it is this broker's."""
        if identity is self.identity:
            return
        root = self._live.current.store.root
        await trio.to_thread.run_sync(save_identity, root, identity)
        self.identity = identity

    async def save_role(self) -> None:
        """Save the configured role."""
        await self.save(with_role(self.identity, self._live.current.role.value))

    async def save_epoch(self, epoch: int, start: PhysicalOffset) -> None:
        """Save the epoch of the master."""
        await self.save(with_epoch(self.identity, epoch, start))

    async def save_records(self, records: tuple[InSyncRecord, ...]) -> None:
        """Save the in-sync records."""
        await self.save(with_records(self.identity, records))

    async def rename(self) -> None:
        """Take a new incarnation; what the log holds still counts by the old one."""
        await self.save(renamed(self.identity, self._now_ms()))

    async def count_as_another(self) -> None:
        """Save a new incarnation before the log may lose bytes."""
        await self.save(reborn(self.identity, self._now_ms()))

    async def assume(self, role: BrokerRole, broker_id: int) -> None:
        """Change the role in the settings, and in their file if that can be written."""
        self._live.assume_role(role, broker_id, now_ms=self._now_ms())
        try:
            await trio.to_thread.run_sync(self._live.persist)
        except StorageError as exc:
            logger.error(
                "this broker is %s now, but its settings could not be saved: %s; set brokerRole=%s"
                " and brokerId=%d yourself before it is restarted",
                role.value,
                exc,
                role.value,
                broker_id,
            )

    @property
    def partings(self) -> tuple[PhysicalOffset, ...]:
        """Where epochs began, but for the first: behind each of these physical offsets the log may
        differ from that of the master before.
        """
        identity = self.identity
        if identity.epoch == FIRST_EPOCH:
            return ()
        starts = tuple(start for epoch, start in identity.history if epoch > FIRST_EPOCH)
        return starts or (PhysicalOffset(0),)
