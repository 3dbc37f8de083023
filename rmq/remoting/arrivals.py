"""Since when the bytes of a connection have been waiting to be read. Pure.

A flood waits in the kernel: what is read now may have been readable for seconds. The kernel does
not say since when, but it says how many bytes are waiting. So after a read that left bytes behind,
it is noted how far the stream had come by then: what lies before that place had arrived.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

_NOTES_MAX: Final = 64
"""Notes of one connection: the kernel holds some 6 MB, and a read takes up to 64 KiB."""


@final
class Arrivals:
    """When the bytes of one connection had arrived, at the latest."""

    __slots__ = ("_notes", "_read")

    def __init__(self) -> None:
        self._read = 0
        # How far the stream had come, and when that was seen.
        self._notes: deque[tuple[int, float]] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether bytes are known to wait."""
        return bool(self._notes)

    def read(self, count: int, unread: int, now: float) -> float:
        """Take in that `count` bytes were read and `unread` ones were left behind.

        Return since when the first of those that were read had been there, at the latest.
        """
        since = self._notes[0][1] if self._notes else now
        self._read += count
        while self._notes and self._notes[0][0] <= self._read:
            self._notes.popleft()
        end = self._read + unread
        if unread and (not self._notes or self._notes[-1][0] < end):
            if len(self._notes) == _NOTES_MAX:
                # The later time is the safe one: no request is refused for a wait that was shorter.
                self._notes.pop()
            self._notes.append((end, now))
        return since

    def forget(self) -> None:
        """Nothing was read on purpose for a while: that wait does not count."""
        self._notes.clear()
