"""What replication needs to know of a log, at either end."""

from __future__ import annotations

from typing import Final, Protocol

TAIL_BYTES: Final = 64 * 1024
"""So much before its end a slave proves to have in common with its master."""


class LogView(Protocol):
    """A CommitLog, or what stands for one in a simulation."""

    @property
    def begin(self) -> int:
        """The first offset there is, at the beginning of a segment."""

    @property
    def end(self) -> int:
        """The offset behind the last byte that may be read."""

    @property
    def flushed(self) -> int:
        """The offset behind the last byte that is known to be on disk."""

    @property
    def segment_bytes(self) -> int: ...

    def digest(self, start: int, stop: int) -> bytes:
        """SHA-256 of a range that lies in one segment."""


def tail_start(log: LogView) -> int:
    """Return where the range begins by which a log is compared: within the last segment in use."""
    end = log.end
    if end <= log.begin:
        return end
    segment_start = (end - 1) // log.segment_bytes * log.segment_bytes
    return max(log.begin, segment_start, end - TAIL_BYTES)
