"""Buffers in locked memory that take appends before the files do (`transientStorePoolEnable`).

An append into such a buffer never waits for the page cache. The price: what is in a buffer when the
process dies is gone, so it is for ASYNC_FLUSH only.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap

logger = logging.getLogger(__name__)


class TransientPool:
    """A fixed number of buffers, each the size of a segment."""

    def __init__(self, buffers: int, buffer_bytes: int, *, lock: bool = True) -> None:
        self._free: list[memoryview] = []
        for _ in range(buffers):
            memory = mmap.mmap(-1, buffer_bytes)
            if lock:
                _lock(memory, buffer_bytes)
            self._free.append(memoryview(memory))

    @property
    def available(self) -> int:
        """How many buffers are free; with none, appends should be refused as 4.9.8 does."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Take a buffer; None when all are in use, and then the file is written directly."""
        return self._free.pop() if self._free else None

    def give_back(self, buffer: memoryview) -> None:
        self._free.append(buffer)


def _lock(memory: mmap.mmap, size: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        pin = ctypes.c_char.from_buffer(memory)
        failed = libc.mlock(ctypes.c_void_p(ctypes.addressof(pin)), ctypes.c_size_t(size))
        del pin
        if failed:
            logger.warning(
                "the transient pool is not locked in memory and may be swapped out; raise the limit"
                " of locked memory (ulimit -l, LimitMEMLOCK)"
            )
