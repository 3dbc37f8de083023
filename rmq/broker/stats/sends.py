"""How sends ended and how long they took, for metrics. Pure.

Counting is for the hot path: what was appended together is counted together. Only the sizes are
counted one by one, because an average of a batch says nothing about the messages in it.
"""

from __future__ import annotations

from typing import Final, final

from rmq.counting.histogram import Histogram
from rmq.store.append import AppendStatus

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
    0.2,
    0.5,
    1.0,
    2.0,
    3.0,
    5.0,
    10.0,
)
"""For sends and their parts, of which some are over in no time."""
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
        """At index n is how many sizes were above 2**(n-1) and at most 2**n: that is the number of
        bits of a size less one. Sends count here themselves, and add the bytes to `sum`.
        """
        self.sum = 0

    def buckets(self) -> list[tuple[str, int]]:
        """Return how many were at most so large: cumulative, by bound."""
        found = [(str(2**power), sum(self.by_bits[: power + 1])) for power in _SIZE_POWERS]
        return [*found, ("+Inf", sum(self.by_bits))]


@final
class SendStats:
    """The sends of one broker."""

    def __init__(self) -> None:
        self._ok = 0
        self._others: dict[AppendStatus, int] = {}
        self._immediate = Histogram(APPEND_BOUNDS_S)
        """How long sends took to be in the log that wait for nothing more."""
        self._first = Histogram(APPEND_BOUNDS_S)
        """The same of those that do."""
        self._waited = Histogram(APPEND_BOUNDS_S)
        """How long those took in all."""
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
        if waiting:
            self._first.note(took_s, waiting)
            count -= waiting
        if count:
            self._ok += count
            self._immediate.note(took_s, count)

    def ended(self, status: AppendStatus, took_s: float, count: int) -> None:
        """Count sends that have waited for the disk or for slaves."""
        self._note(status, count)
        self._waited.note(took_s, count)

    def failed(self, status: AppendStatus, why: str | None = None) -> None:
        """Count a send that is not in the log, and why the store takes none if it does not."""
        self._note(status, 1)
        if why is not None:
            self.refusals[why] = self.refusals.get(why, 0) + 1

    def _note(self, status: AppendStatus, count: int) -> None:
        if status is AppendStatus.PUT_OK:
            self._ok += count
        else:
            self._others[status] = self._others.get(status, 0) + count

    # --- figures ---------------------------------------------------------------------------

    @property
    def results(self) -> dict[AppendStatus, int]:
        """Sends by what the store, the disk and the slaves said in the end."""
        return {**dict.fromkeys(AppendStatus, 0), **self._others, AppendStatus.PUT_OK: self._ok}

    @property
    def append(self) -> Histogram:
        """How long sends took to be in the log."""
        return self._immediate.plus(self._first)

    @property
    def latency(self) -> Histogram:
        """From the first look at a send to the moment when it may be acknowledged."""
        return self._immediate.plus(self._waited)
