"""A store's CommitLog as replication sees it: its watermarks, and its bytes for sockets.

`StoreLog` is a `LogView`. Each link reads through its own `LogReader`, which keeps at most one file
open and knows whether the next bytes are in memory: sending a page that is not would block the
event loop while the disk works.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.store.segments import Segment
    from rmq.store.store import MessageStore

READ_AHEAD_BYTES: Final = 2 * 1024**2
"""How much is read from a disk at a time."""
_READ_BYTES: Final = 256 * 1024
_CANNOT_TELL: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors of a non-blocking read where the file system does not support it."""


@final
class StoreLog:
    """The log of a running store, at either end."""

    def __init__(self, store: MessageStore) -> None:
        self._log = store.log
        self._segments = store.log.segments

    @property
    def begin(self) -> PhysicalOffset:
        return PhysicalOffset(self._segments.first)

    @property
    def end(self) -> PhysicalOffset:
        return self._log.readable

    @property
    def flushed(self) -> PhysicalOffset:
        return self._log.flushed

    @property
    def segment_bytes(self) -> int:
        return self._segments.segment_bytes

    def digest(self, start: PhysicalOffset, stop: PhysicalOffset) -> bytes:
        return self._log.digest(start, stop)

    def view(self, offset: PhysicalOffset, size: int) -> memoryview | None:
        """Return bytes within one segment; None if they are not all there."""
        return self._log.view(offset, size)

    def segment_at(self, offset: PhysicalOffset) -> Segment | None:
        return self._segments.find(offset)


class ReadAhead(NamedTuple):
    """Bytes of a file to be read into the page cache."""

    path: Path
    start: int
    stop: int

    def run(self) -> None:
        """Read them. Blocks: to be run in a thread, which may be abandoned.

        It opens the file itself, so that it may end at any time. A missing file is not an error
        here: the link that sends its bytes will notice.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            position = self.start
            # The advice covers twice what is read, so that the disk works while this is sent.
            os.posix_fadvise(fd, position, 2 * (self.stop - position), os.POSIX_FADV_WILLNEED)
            buffer = bytearray(_READ_BYTES)
            while position < self.stop:
                size = os.preadv(fd, [memoryview(buffer)[: self.stop - position]], position)
                if not size:
                    return
                position += size
        finally:
            os.close(fd)


@final
class LogReader:
    """Reads the log for one replication link; keeps one segment file open."""

    def __init__(self, log: StoreLog) -> None:
        self.log = log
        self._segment: Segment | None = None
        self._fd = -1
        self._follows = False
        """The next bytes were appended just now, so they are in memory."""
        self._warm_stop = 0
        """Bytes before this offset were read ahead."""
        self._probe = [bytearray(1)]

    def view(self, offset: PhysicalOffset, size: int) -> memoryview | None:
        return self.log.view(offset, size)

    def file_at(self, offset: PhysicalOffset) -> tuple[int, int] | None:
        """Return descriptor and position of a byte; None if it is not there.

        The descriptor is valid until the next call, or `close`.
        """
        segment = self.log.segment_at(offset)
        if segment is None:
            return None
        if segment is not self._segment:
            self.close()
            try:
                self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            self._segment = segment
        return self._fd, offset - segment.first

    def caught_up(self, offset: PhysicalOffset) -> None:
        """Note that all up to `offset` was sent; if that is the end, what follows is in memory."""
        self._follows = offset >= self.log.end

    def fell_behind(self) -> None:
        """Note that the link lags: the next bytes may no longer be in memory when it gets there."""
        self._follows = False

    def read_ahead_for(self, offset: PhysicalOffset, size: int) -> ReadAhead | None:
        """Return what to read first, in a thread; None if these bytes are in memory."""
        stop = offset + size
        if self._follows or stop <= self._warm_stop:
            return None
        place = self.file_at(offset)
        if place is None or self._segment is None:
            # Sending will fail and say so.
            return None
        fd, position = place
        if self._is_warm(fd, position) and self._is_warm(fd, position + size - 1):
            return None
        segment = self._segment
        self._warm_stop = max(stop, min(offset + READ_AHEAD_BYTES, segment.end, self.log.end))
        return ReadAhead(segment.path, position, self._warm_stop - segment.first)

    def _is_warm(self, fd: int, position: int) -> bool:
        try:
            os.preadv(fd, self._probe, position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as exc:
            if exc.errno in _CANNOT_TELL:
                return False
            raise
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._segment = None
