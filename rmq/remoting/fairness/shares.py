"""How much of what is limited one host may have: connections, bytes, unanswered requests. Pure.

One host may have a share of what is there (75 of 100, say), if no other one has any of it. What is
left to each gets smaller the less is free: a host may have three times as much as is free. So a
host that takes all it can leaves a quarter to the next one, two such hosts leave a seventh each,
and no host that has little is ever refused because of one that has much.
"""

from __future__ import annotations

from typing import Final, final

SHARE_MAX: Final = 75
"""What one host may have by itself, in percent; at 100 hosts are not told apart."""


@final
class HostShares:
    """What each host has of something limited."""

    __slots__ = ("_by_host", "_floor", "_share_max", "limit", "used")

    def __init__(self, limit: int, *, floor: int, share_max: int = SHARE_MAX) -> None:
        """Every host may have `floor`, as far as there is so much."""
        self.limit = limit
        self.used = 0
        """By all hosts."""
        self._floor = floor
        self._share_max = share_max
        self._by_host: dict[str, int] = {}

    @property
    def comfortable(self) -> int:
        """Return how much may be used, by whom ever, before a bound can be hit."""
        return max(min(self._floor, self.limit), self.limit * self._share_max // 100)

    def room_for(self, host: str) -> int:
        """Return how much more a host may have."""
        own = self._by_host.get(host, 0)
        free = self.limit - self.used
        # As many as keep `own` within its part of what stays free.
        fair = (self._share_max * free - (100 - self._share_max) * own) // 100
        return max(0, fair, min(free, self._floor - own))

    def change(self, host: str, by: int) -> None:
        """Count what a host has more, or less."""
        self.used += by
        own = self._by_host.get(host, 0) + by
        if own:
            self._by_host[host] = own
        else:
            self._by_host.pop(host, None)
