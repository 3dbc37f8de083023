"""Compressed bodies: how they are marked, and how they are read. Pure.

Producers compress long bodies, brokers store them as they come, consumers inflate them. Stock
producers use zlib by default; other kinds need `use_decompressor`.
"""

from __future__ import annotations

import enum
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

COMPRESSION_MASK: Final = 0x700

INFLATED_BYTES_MAX: Final = 64 * 1024**2
"""A body that would be longer is not inflated: a few bytes can stand for gigabytes."""


class Compression(enum.IntEnum):
    """How a body is compressed: bits of the sysFlag, next to `flags.COMPRESSED`."""

    UNNAMED = 0
    """Clients before 4.9.3 know one way only, and do not name it: zlib."""
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


class DecompressError(Exception):
    """Compressed bytes cannot be read; the text says why, `hint` what to do about it."""

    def __init__(self, reason: str, *, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint


_decompressors: Final[dict[int, Callable[[bytes], bytes]]] = {}


def use_decompressor(compression: Compression, decompress: Callable[[bytes], bytes] | None) -> None:
    """Read bodies of this kind with this function from now on, in the whole process.

    `use_decompressor(Compression.LZ4, lz4.frame.decompress)` adds LZ4, and
    `use_decompressor(Compression.ZSTD, zstandard.decompress)` ZSTD. None goes back.
    """
    if decompress is None:
        _decompressors.pop(compression, None)
    else:
        _decompressors[compression] = decompress


def decompressed(data: bytes, sys_flag: int, *, bytes_max: int = INFLATED_BYTES_MAX) -> bytes:
    """Return what a body of a message with this sysFlag stands for; raise `DecompressError`."""
    kind = sys_flag & COMPRESSION_MASK
    own = _decompressors.get(kind)
    if own is not None:
        try:
            return own(data)
        except Exception as exc:
            raise DecompressError(f"the decompressor for it failed: {exc!r}") from exc
    if kind not in (Compression.UNNAMED, Compression.ZLIB):
        try:
            way = f"with {Compression(kind).name}"
        except ValueError:
            way = f"in a way that is not known (sysFlag {sys_flag:#x})"
        raise DecompressError(
            f"it is compressed {way}",
            hint="name a function that reads it with rmq.model.compression.use_decompressor,"
            " or let the producer compress with ZLIB",
        )
    return _inflated(data, bytes_max)


def _inflated(data: bytes, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # One byte more than allowed tells a body that is just as long from a longer one.
        body = inflater.decompress(data, bytes_max + 1)
    except zlib.error as exc:
        raise DecompressError(f"it is no zlib data: {exc}") from exc
    if len(body) > bytes_max:
        raise DecompressError(f"it has more than {bytes_max} bytes when inflated")
    if not inflater.eof:
        raise DecompressError("its compressed bytes end too early")
    return body
