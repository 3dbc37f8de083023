"""How it goes with a slave that follows its master, for those who show it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.ha.protocol.slave_link import MasterView


class SlaveState(enum.Enum):
    """What a slave is doing."""

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
    """Its master has nothing of what comes next, and an operator has to say that it begins anew."""
    FAILED = "failed"
    """Its own store takes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveStatus:
    """How replication goes, as the slave sees it."""

    state: SlaveState
    since: float
    """When it got into that state, by the clock of trio."""
    ha_address: str | None
    master_address: str | None
    is_native: bool | None
    """The dialect of the connection; None without one."""
    master: MasterView
    """What the master said last, also after the connection ended."""
    lag_bytes: int
    lag_s: float
    """For how long it has not had all its master has; infinite if it never had."""
    last_error: str | None
    connects: int
    received_bytes: int
    diverged_at: int | None
    """Where the master's log ended when it was found to be another one."""
