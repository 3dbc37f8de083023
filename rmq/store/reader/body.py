"""The body of a stored message as its producer gave it.

Producers compress large bodies; the store keeps them as they came. Of the three kinds a 4.9.8
client knows, zlib is undone here; LZ4 and Zstandard need packages that rmq does not depend on.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from rmq.model import flags
from rmq.model.compression import COMPRESSION_MASK

if TYPE_CHECKING:
    from rmq.model.record import StoredRecord

COMPRESSION_ZLIB: Final = 0x300
COMPRESSION_UNNAMED: Final = 0x000
"""Older clients know zlib only and do not name it."""

PLAIN_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than any broker takes; a body that grows beyond it was made to exhaust its reader."""


def plain_body(record: StoredRecord) -> bytes | None:
    """Return the body of a record, decompressed; None if that cannot be done."""
    if not record.sys_flag & flags.COMPRESSED:
        return record.body
    if record.sys_flag & COMPRESSION_MASK not in (COMPRESSION_ZLIB, COMPRESSION_UNNAMED):
        return None
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(record.body, PLAIN_BYTES_MAX)
    except zlib.error:
        return None
    return plain if decompressor.eof else None
