"""The log as replication sees it, at either end, and how two logs are compared."""

from __future__ import annotations

from typing import Final, Protocol

from rmq.model.offsets import PhysicalOffset

TAIL_BYTES: Final = 64 * 1024
"""A slave proves that this much before its end is equal to its master's log."""
TAIL_BYTES_MIN: Final = 1024
"""Less in common proves nothing, if there is more: several records are to be among it."""


class LogView(Protocol):
    """A CommitLog, or its model in a simulation."""

    @property
    def begin(self) -> PhysicalOffset:
        """The first offset there is, at the beginning of a segment."""

    @property
    def end(self) -> PhysicalOffset:
        """The offset behind the last byte that may be read."""

    @property
    def flushed(self) -> PhysicalOffset:
        """The offset behind the last byte that is known to be on disk."""

    @property
    def segment_bytes(self) -> int: ...

    def digest(self, start: PhysicalOffset, stop: PhysicalOffset) -> bytes:
        """SHA-256 of a range."""


def tail_start(
    begin: PhysicalOffset, end: PhysicalOffset, master_begin: PhysicalOffset
) -> PhysicalOffset:
    """Return where the range begins by which a log of this extent is compared with its master's.

    It may begin in an earlier segment than it ends in: the first bytes of a segment alone, the size
    and the magic number of a record, are the same in logs that have nothing else in common.
    """
    return max(begin, PhysicalOffset(end - TAIL_BYTES), min(master_begin, end))


def is_tail_enough(begin: PhysicalOffset, tail: PhysicalOffset, end: PhysicalOffset) -> bool:
    """Return whether a log that is equal from `tail` to its end counts as equal."""
    return tail == begin or end - tail >= TAIL_BYTES_MIN
