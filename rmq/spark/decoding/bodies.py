"""Bodies of many records: their CRCs, and what compressed ones stand for.

Both are done record by record, because a checksum and a compressed stream are computed by C code
that takes one body at a time. Compressed bodies are few, or long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq.model import flags
from rmq.model.compression import COMPRESSION_MASK, Compression, DecompressError, decompressed
from rmq.model.crc import crc32
from rmq.spark.decoding.spans import binary_spans
from rmq.store.reader.body import PLAIN_BYTES_MAX

if TYPE_CHECKING:
    from rmq.spark.decoding.heads import Heads

CRC_MASK: Final = 0x7FFFFFFF
CRC_BLOCK_ROWS: Final = 256
"""How many bodies are Python objects at once: their memory is reused and stays in the cache."""
COPIED_BYTES_MAX: Final = 2048
"""Longer bodies are not copied for their CRC. Shorter ones are: 170 ns for the CRC of 200 bytes,
against 220 ns from a slice of the buffer and 300 ns with all copies made at once.
"""
PLAIN_BATCH_BYTES: Final = 64 * 1024**2
"""How long the bodies of one batch may be together once they are decompressed."""

ARROW_CODECS: Final[dict[int, str]] = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}
"""Frames of LZ4 and of Zstandard, as the compressors of Java clients write them."""


class BodiesTooLongError(Exception):
    """Bodies are too long for one batch once they are decompressed, from record `index` on."""

    def __init__(self, index: int) -> None:
        super().__init__(
            f"the bodies of {index} records are as long, decompressed, as those of a batch may be"
        )
        self.index = index


def stored_bodies(heads: Heads, *, verify_crc: bool) -> pa.BinaryArray:
    """Return the bodies as they are stored; raise `UnsoundRecordError` for a wrong CRC."""
    bodies = binary_spans(heads.data, heads.body_starts, heads.body_ends)
    if verify_crc:
        found = np.array(_crcs(heads, bodies), np.uint32) & CRC_MASK
        expected = heads.integers("body_crc").view(np.uint32)
        # A record without a body may have any CRC.
        is_bad = (found != expected) & (heads.body_starts < heads.body_ends)
        if is_bad.any():
            index = int(np.argmax(is_bad))
            raise heads.unsound(
                index,
                f"CRC of the body is {found[index]}, the record says"
                f" {expected[index : index + 1].view(np.int32)[0]}",
            )
    return bodies


def _crcs(heads: Heads, bodies: pa.BinaryArray) -> list[int]:
    """Return the CRCs of the bodies, by the quickest way from Arrow to C and back."""
    crcs: list[int] = []
    content = int((heads.body_ends - heads.body_starts).sum())
    if content > len(bodies) * COPIED_BYTES_MAX:
        view = memoryview(heads.data)
        places = zip(heads.body_starts.tolist(), heads.body_ends.tolist(), strict=True)
        return [crc32(view[start:end]) for start, end in places]
    for first in range(0, len(bodies), CRC_BLOCK_ROWS):
        crcs += map(crc32, bodies.slice(first, CRC_BLOCK_ROWS).to_pylist())
    return crcs


def plain_bodies(heads: Heads, bodies: pa.BinaryArray, bytes_max: int) -> pa.BinaryArray:
    """Return the bodies as they were sent.

    Raises `UnsoundRecordError` for one that cannot be decompressed, and `BodiesTooLongError` when
    all together are longer than `bytes_max`. The first alone may be.
    """
    is_compressed = (heads.sys_flags & flags.COMPRESSED) != 0
    if not is_compressed.any():
        return bodies
    rows = np.flatnonzero(is_compressed)
    plain: list[bytes] = []
    lengths = heads.body_ends - heads.body_starts
    lengths[rows] = 0
    # The bytes up to and with each record, as far as they need no decompressing.
    others = np.cumsum(lengths)
    total = 0
    for row, body in zip(rows.tolist(), bodies.take(pa.array(rows)).to_pylist(), strict=True):
        try:
            plain.append(plain_body(body, int(heads.sys_flags[row])))
        except DecompressError as exc:
            advice = "" if exc.hint is None else f" ({exc.hint})"
            raise heads.unsound(
                row,
                f"the compressed body cannot be read: {exc}{advice};"
                " with decompress=false bodies are given as they are stored",
            ) from exc
        total += len(plain[-1])
        if row and total + int(others[row]) > bytes_max:
            raise BodiesTooLongError(row)
    if len(rows) == len(bodies):
        return pa.array(plain, pa.binary())
    return pc.replace_with_mask(bodies, pa.array(is_compressed), pa.array(plain, pa.binary()))


def plain_body(body: bytes, sys_flag: int, bytes_max: int = PLAIN_BYTES_MAX) -> bytes:
    """Return what a compressed body stands for; raise `DecompressError`."""
    codec = ARROW_CODECS.get(sys_flag & COMPRESSION_MASK)
    if codec is None:
        return decompressed(body, sys_flag, bytes_max=bytes_max)
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            # One byte more than allowed tells a body that is just as long from a longer one.
            plain: bytes = stream.read(bytes_max + 1)
    except OSError as exc:
        raise DecompressError(f"it is no {codec} data: {exc}") from exc
    if len(plain) > bytes_max:
        raise DecompressError(f"it has more than {bytes_max} bytes when inflated")
    return plain
