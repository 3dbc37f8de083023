"""Masters that were replaced and still run, as a new master hears of them. Pure.

A fenced master is listed by no nameserver. But it asks the new one every registerNameServerPeriod
whether the fence still stands, and names itself, so that operators find it.
"""

from __future__ import annotations

from typing import Final, final

HEARD_S: Final = 120.0
"""For how long a master is remembered that no longer asks; it asks at least every 60 s."""
HEARD_MAX: Final = 8
"""How many are remembered; the one that asked longest ago goes first."""


@final
class ReplacedMasters:
    """Who has asked of late."""

    def __init__(self) -> None:
        self._heard_at: dict[str, float] = {}
        """By address, in the order of the last question."""

    def heard(self, address: str, now: float) -> None:
        """Note that the master at `address` has asked."""
        self._heard_at.pop(address, None)
        self._heard_at[address] = now
        while len(self._heard_at) > HEARD_MAX:
            del self._heard_at[next(iter(self._heard_at))]

    def addresses(self, now: float) -> tuple[str, ...]:
        """Return those that have asked in the last `HEARD_S`."""
        return tuple(
            address for address, heard_at in self._heard_at.items() if now - heard_at <= HEARD_S
        )
