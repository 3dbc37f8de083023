"""Digests of ranges of the log, for comparing two running brokers.

A response is bounded in the number of ranges, so that it fits a frame, and in bytes, so that it
comes before the request times out. The log is read in a thread, in pieces short enough to finish
while the broker stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import trio

from rmq.errors import StoreUnavailableError
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import HaDigest, HaDigestsBody

if TYPE_CHECKING:
    from collections.abc import Iterator

RANGES_MAX: Final = 4096
"""How many ranges an answer has at most."""
ANSWER_BYTES_MAX: Final = 512 * 1024**2
"""How much of the log an answer covers at most, but always one range."""
STEP_BYTES_MIN: Final = 4 * 1024
STEP_BYTES_MAX: Final = 256 * 1024**2
PIECE_BYTES: Final = 16 * 1024**2
"""How much is read at a time, but always a whole range."""

_Range: TypeAlias = "tuple[PhysicalOffset, PhysicalOffset]"


class DigestedLog(Protocol):
    """A log of which ranges can be digested."""

    @property
    def begin(self) -> PhysicalOffset: ...

    @property
    def end(self) -> PhysicalOffset: ...

    def digest(self, start: PhysicalOffset, stop: PhysicalOffset) -> bytes:
        """SHA-256 of a range; may run in a thread. Raise `StoreUnavailableError` if it is gone."""
        ...


async def log_digests(log: DigestedLog, start: int, stop: int, step: int) -> HaDigestsBody:
    """Return the digests of the ranges of `step` bytes from `start` on, the last one up to `stop`.

    Only ranges that the log holds as a whole are in the answer, so that it can be compared with
    that of another log, which begins and ends elsewhere. It may end early; ask again from there.
    """
    digests: list[HaDigest] = []
    for piece in _pieces(list(_ranges(log, start, stop, step))):
        try:
            digests += await trio.to_thread.run_sync(_digest, log, piece)
        except StoreUnavailableError:
            # The log was cut or has expired in the meantime; the answer tells where it begins and
            # ends now.
            break
    return HaDigestsBody(begin=log.begin, end=log.end, digests=tuple(digests))


def _ranges(log: DigestedLog, start: int, stop: int, step: int) -> Iterator[_Range]:
    begin, end = log.begin, log.end
    # The first one that begins inside the log.
    first = PhysicalOffset(start + max(0, -(-(begin - start) // step)) * step)
    count, covered = 0, 0
    while first < stop:
        last = min(first + step, PhysicalOffset(stop))
        covered += last - first
        count += 1
        if last > end or count > RANGES_MAX or (covered > ANSWER_BYTES_MAX and count > 1):
            return
        yield first, last
        first = last


def _pieces(ranges: list[_Range]) -> Iterator[list[_Range]]:
    piece: list[_Range] = []
    for start, stop in ranges:
        if piece and stop - piece[0][0] > PIECE_BYTES:
            yield piece
            piece = []
        piece.append((start, stop))
    if piece:
        yield piece


def _digest(log: DigestedLog, ranges: list[_Range]) -> list[HaDigest]:
    return [
        HaDigest(start=start, stop=stop, sha256=log.digest(start, stop).hex())
        for start, stop in ranges
    ]
