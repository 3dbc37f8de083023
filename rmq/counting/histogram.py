"""How often a value was at most so large, for several bounds: counted cheaply, shown as Prometheus
has it. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

LATENCY_BOUNDS_S: Final = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    3.0,
    4.0,
    5.0,
    10.0,
)
"""For what a client waits for. They have the limits that RocketMQ's settings speak of: 200 ms
in the queue of sends, 1 s for a busy disk, 3 s for a slave, 5 s for the disk.
"""


@final
class Histogram:
    """Counts values by upper bounds, which are the same for its whole life."""

    __slots__ = ("bounds", "counts", "first", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = tuple(bounds)
        self.first = self.bounds[0]
        self.sum = 0.0
        self.counts = [0] * (len(self.bounds) + 1)
        """How many values were at most so large as their bound, and above the one before."""

    def note(self, value: float, times: int = 1) -> None:
        """Count a value, or several that are the same."""
        # Comparing with one bound takes half as long as a search, and mostly that is enough.
        self.counts[0 if value <= self.first else bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def plus(self, *others: Histogram) -> Histogram:
        """Return what this one and others with the same bounds have counted."""
        whole = Histogram(self.bounds)
        for each in (self, *others):
            assert each.bounds == self.bounds, (each.bounds, self.bounds)
            whole.sum += each.sum
            whole.counts = [a + b for a, b in zip(whole.counts, each.counts, strict=True)]
        return whole

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, int]]:
        """Return how many values were at most so large: cumulative, by bound."""
        total = 0
        buckets: list[tuple[str, int]] = []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets
