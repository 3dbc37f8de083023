"""How sends ended and how long they took, for metrics. Pure.

Counting is for the hot path: what was appended together is counted together. Only the sizes are
counted one by one, because an average of a batch says nothing about the messages in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.counting.histogram import Histogram
from rmq.store.append import AppendStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

APPEND_BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    3.0,
    5.0,
)
"""For the parts of a send, of which some are over in no time."""
NOT_MASTER: Final = "not_master"
"""Why a slave takes no sends; other reasons are those of the store."""
_SIZE_POWERS: Final = (8, 10, 12, 14, 16, 18, 20, 22)
_SIZES_MAX: Final = 48


@final
class Sizes:
    """A histogram of sizes whose bounds are powers of two, so that a size is its own index."""

    __slots__ = ("by_bits", "sum")

    def __init__(self) -> None:
        self.by_bits = [0] * _SIZES_MAX
        """At index n is how many sizes were above 2**(n-1) and at most 2**n."""
        self.sum = 0

    def note(self, sizes: Iterable[int]) -> None:
        """Count the sizes of records, in bytes."""
        by_bits = self.by_bits
        for size in sizes:
            by_bits[(size - 1).bit_length()] += 1
            self.sum += size

    def buckets(self) -> list[tuple[str, int]]:
        """Return how many were at most so large: cumulative, by bound."""
        found = [(str(2**power), sum(self.by_bits[: power + 1])) for power in _SIZE_POWERS]
        return [*found, ("+Inf", sum(self.by_bits))]


@final
class SendStats:
    """The sends of one broker."""

    def __init__(self) -> None:
        self.results = dict.fromkeys(AppendStatus, 0)
        """Sends by what the store, the disk and the slaves said in the end."""
        self.latency = Histogram()
        """From the first look at a send to the moment when it may be acknowledged."""
        self.append = Histogram(APPEND_BOUNDS_S)
        """How long a send took to be in the log."""
        self.flush = Histogram(APPEND_BOUNDS_S)
        """How long one then waited for the disk."""
        self.replicate = Histogram(APPEND_BOUNDS_S)
        """How long one then waited for slaves."""
        self.sizes = Sizes()
        self.refusals: dict[str, int] = {}
        """Sends that the store did not take, by why not."""
        self.busy = 0
        """Sends that were refused because the disk was far too slow."""

    def appended(self, took_s: float, count: int, waiting: int) -> None:
        """Count sends that are in the log; `waiting` of them wait for the disk or for slaves."""
        self.append.note(took_s, count)
        done = count - waiting
        if done:
            self.results[AppendStatus.PUT_OK] += done
            self.latency.note(took_s, done)

    def ended(self, status: AppendStatus, took_s: float, count: int) -> None:
        """Count sends that have waited for the disk or for slaves."""
        self.results[status] += count
        self.latency.note(took_s, count)

    def failed(self, status: AppendStatus, why: str | None = None) -> None:
        """Count a send that is not in the log, and why the store takes none if it does not."""
        self.results[status] += 1
        if why is not None:
            self.refusals[why] = self.refusals.get(why, 0) + 1
