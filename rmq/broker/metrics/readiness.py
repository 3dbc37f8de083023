"""Whether a broker does what it is there for, and if not, why. Pure.

A master is ready when it takes messages and a nameserver lists it; a slave when it follows its
master, counts as in sync, and a nameserver lists it. A broker without nameservers in its settings
needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.broker.config import BrokerRole
from rmq.ha.slave_status import SlaveState
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from rmq.remoting.bodies import HaStatusBody

RECOVERING: Final = "recovering"
STOPPING: Final = "stopping"
REFUSED: Final = "refused"
NOT_CONNECTED: Final = "not_connected"
NOT_IN_SYNC: Final = "not_in_sync"
NOT_REGISTERED: Final = "not_registered"
_OF_STORE: Final = {
    Refusal.CLOSED: STOPPING,
    Refusal.FAILED: "store_failed",
    Refusal.FENCED: "fenced",
    Refusal.DISK_FULL: "disk_full",
}
WORDS: Final = (
    RECOVERING,
    STOPPING,
    "store_failed",
    "disk_full",
    "fenced",
    REFUSED,
    NOT_CONNECTED,
    NOT_IN_SYNC,
    NOT_REGISTERED,
)
"""All there are; `refused` is for all reasons of the store without a word of their own."""
LIVE: Final = (SlaveState.CATCHING_UP.value, SlaveState.STREAMING.value)


@dataclass(frozen=True, slots=True)
class Unready:
    """One reason."""

    word: str
    detail: str

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}"


OPENING: Final = Unready(RECOVERING, "the store is being opened")


def why_unready(
    status: HaStatusBody,
    refusal: Refusal | None,
    *,
    is_stopping: bool,
    nameservers: int,
    registered_at: int,
) -> list[Unready]:
    """Return every reason that holds.

    `refusal` is why the store takes no messages; `registered_at` is how many of the nameservers
    list the broker.
    """
    reasons: list[Unready] = []
    if is_stopping:
        reasons.append(Unready(STOPPING, "the broker stops"))
    is_slave = status.mode == BrokerRole.SLAVE.value
    if refusal is not None and not (is_stopping and refusal is Refusal.CLOSED):
        reasons.append(Unready(_OF_STORE.get(refusal, REFUSED), refusal.value))
    if is_slave:
        reasons += _of_slave(status)
    if nameservers and not registered_at:
        which = "the nameserver does not list" if nameservers == 1 else "no nameserver lists"
        reasons.append(Unready(NOT_REGISTERED, f"{which} this broker"))
    return reasons


def _of_slave(status: HaStatusBody) -> list[Unready]:
    if status.state not in LIVE:
        return [Unready(NOT_CONNECTED, f"the slave does not follow its master: {status.state}")]
    master = status.master
    # A stock master does not say whom it counts.
    if master is not None and master.native and not master.in_sync:
        behind = f"{master.lag_bytes} bytes behind" if master.lag_bytes > 0 else "not counted yet"
        return [Unready(NOT_IN_SYNC, f"the slave is not in sync: {behind}")]
    return []
