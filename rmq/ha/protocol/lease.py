"""How long a master that hears from nobody goes on taking messages. Sans-IO.

A master that is cut off from everybody does not learn that another has taken its place, and what it
acknowledges then is lost. With a lease it stops by itself: it needs a sign of life of most
nameservers, or of a slave that counts, not longer ago than the lease lasts. Whoever promotes
another broker meanwhile and waits that long has one writer at most.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
class Lease:
    """The lease of one master; it holds from the start for as long as it lasts."""

    def __init__(self, now: float) -> None:
        self._began_at = now
        self._heard_at: dict[str, float] = {}

    def heard(self, nameserver: str, now: float) -> None:
        """A nameserver has answered."""
        self._heard_at[nameserver] = now

    def held_until(
        self, nameservers: Iterable[str], slaves_heard_at: Iterable[float], lasts_s: float
    ) -> float:
        """Return until when the lease holds if nobody is heard of again.

        `slaves_heard_at` says when each slave that counts was last heard of. Without nameservers
        nobody can take this master's place unknown to its slaves: then only they count.
        """
        names = list(nameservers)
        latest = max(slaves_heard_at, default=-math.inf)
        if names:
            heard = sorted((self._heard_at.get(name, -math.inf) for name in names), reverse=True)
            # The moment since which most of them have been heard of.
            latest = max(latest, heard[len(names) // 2])
        return max(latest, self._began_at) + lasts_s
