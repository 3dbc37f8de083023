"""How long an isolated master goes on taking messages. Pure.

A master that is cut off does not learn that another one has taken its place, and what it
acknowledges then is lost. With a lease it stops by itself: it needs a sign of life from most
nameservers, or from a slave in sync, within the last `haMasterLease`. An operator who promotes
another broker and waits that long has at most one writer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
class Lease:
    """The lease of one master; the first one begins with the master."""

    def __init__(self, now: float) -> None:
        self._began_at = now
        self._heard_at: dict[str, float] = {}

    def heard(self, nameserver: str, now: float) -> None:
        """Note that a nameserver has answered."""
        self._heard_at[nameserver] = now

    def held_until(
        self, nameservers: Iterable[str], slaves_heard_at: Iterable[float], lasts_s: float
    ) -> float:
        """Return when the lease ends unless a nameserver or slave is heard from again.

        `slaves_heard_at` are the times of the last sign of life of each slave in sync. Without
        nameservers only slaves count: no other broker can become master unknown to them.
        """
        names = list(nameservers)
        latest = max(slaves_heard_at, default=-math.inf)
        if names:
            heard = sorted((self._heard_at.get(name, -math.inf) for name in names), reverse=True)
            # The time since which most of them have been heard from.
            latest = max(latest, heard[len(names) // 2])
        return max(latest, self._began_at) + lasts_s
