"""CRC-32 of message bodies, by the fastest implementation there is.

zlib-ng computes the same number as zlib in a fraction of the time (1 instead of 16 us for 64 KiB,
0.09 instead of 0.21 us for 128 bytes). It has no wheel for every machine, so zlib stands in.
"""

from __future__ import annotations

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # a machine without a wheel of zlib-ng
    from zlib import crc32

__all__ = ["crc32"]
