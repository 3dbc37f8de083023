"""What a slave's replication asks of its broker, and tells it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.model.in_sync_record import InSyncRecord
    from rmq.model.offsets import PhysicalOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveListener:
    """The owner of a `SlaveRunner`."""

    epoch: Callable[[], int]
    """Returns the epoch of this broker."""
    adopt_epoch: Callable[[int, PhysicalOffset], Awaitable[None]]
    """Saves that a later epoch begins here, at an offset; before any byte of it is taken."""
    save_record: Callable[[InSyncRecord], Awaitable[None]]
    """Saves the in-sync record of the master."""
    news: Callable[[], None]
    """Topics, groups or offsets of the master have changed."""
    is_current: Callable[[], bool] = lambda: True
    """Returns whether they are copied."""
    cut: Callable[[PhysicalOffset, str], None]
    """Has the log cut at an offset or before, because what follows differs from the master's; the
    text says why.
    """
    reseed: Callable[[PhysicalOffset, str], None] | None
    """Has the store emptied, to begin at an offset; None: only an operator may do that."""
