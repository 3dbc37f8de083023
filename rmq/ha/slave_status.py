"""Status of a slave's replication."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.ha.protocol.slave_link import MasterView
    from rmq.model.offsets import PhysicalOffset


class SlaveState(enum.Enum):
    """State of a slave's replication; `rmq ha status` and metrics show it."""

    IDLE = "idle"
    """It has no master."""
    CONNECTING = "connecting"
    CATCHING_UP = "catching up"
    STREAMING = "streaming"
    """It has what its master has."""
    DIVERGED = "diverged"
    STALE = "stale"
    REFUSED = "refused"
    RESEEDING = "reseeding"
    OUTRUN = "outrun"
    """Its master no longer has what comes next; an operator has to order `rmq ha resync`."""
    FAILED = "failed"
    """Its own store refuses writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveStatus:
    """A snapshot of a slave's replication."""

    state: SlaveState
    since: float
    """When it entered that state, on trio's clock."""
    ha_address: str | None
    master_address: str | None
    is_native: bool | None
    """The dialect of the connection; None without one."""
    master: MasterView
    """The last known state of the master, also after the connection ended."""
    lag_bytes: int
    lag_s: float
    """For how long it has not held its master's whole log; infinite if it never did."""
    last_error: str | None
    connects: int
    received_bytes: int
    diverged_at: PhysicalOffset | None
    """Where the master's log ended when divergence was found."""
