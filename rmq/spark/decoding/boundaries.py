"""Where records begin in bytes that hold them end to end: a pull response, or a part of a segment.

A record says how long it is, so one record leads to the next. A chain of ten thousand records takes
long to walk; so it is walked in many strands at once, each from a place where the magic of a
message was found to where the next strand begins, all of them by the same few operations of numpy.

The magic may also lie inside a body. What counts is the chain: a strand is on it if the strand
before, which is on it, ends exactly where it begins. The first strand begins with the first record.
Where a strand does not end at the next one, that one began inside a body, and the chain is walked
record by record until it meets a strand again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rmq.model.record import BadRecordError
from rmq.model.record_layout import (
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_BYTES,
    RECORD_BYTES_MIN,
    RECORD_PREFIX,
    RecordPrefix,
)
from rmq.spark.decoding.fixed import dtype_of, structures_at

if TYPE_CHECKING:
    from collections.abc import Container

    from numpy.typing import NDArray

STRAND_FACTOR: Final = 20
"""A strand has sqrt(STRAND_FACTOR * all bytes) bytes: so long that finding the strands, 0.5 us for
each, takes as long as walking them, 8 us for one record of every strand.
"""
STRANDS_BYTES_MIN: Final = 64 * 1024
"""Fewer bytes are walked record by record."""

_MAGIC_AT: Final = 4
_PREFIX: Final = dtype_of(RECORD_PREFIX, [str(each.name) for each in RecordPrefix.subcons])
_read_prefix = RECORD_PREFIX.unpack_from


class Chain(NamedTuple):
    """Records that follow each other without a gap."""

    starts: NDArray[np.int64]
    stop: int
    """Where the last of them ends, and no whole record begins."""


def chained(data: bytes) -> NDArray[np.int64]:
    """Return where the records begin that fill `data` from its first to its last byte.

    Raises `BadRecordError` with the reason if there is anything else in it. Of a record only magic
    and size are checked; `RecordDecoder.decode` checks the rest.
    """
    chain = find_chain(data)
    if chain.stop != len(data):
        raise BadRecordError(
            f"after {len(chain.starts)} records, at byte {chain.stop} of {len(data)}:"
            f" {reason_at(data, chain.stop)}"
        )
    return chain.starts


def find_chain(data: bytes) -> Chain:
    """Return the records that follow each other from the first byte of `data` on.

    The chain ends at the first byte that no whole record begins with; what is there, the caller
    has to find out.
    """
    if len(data) < STRANDS_BYTES_MIN:
        walked, stop = _walk_on(data, 0, ())
        return Chain(np.array(walked, np.int64), stop)
    places = _walk_strands(data, find_strands(data))
    prefixes = structures_at(data, places, _PREFIX)
    sizes = prefixes["total_size"].astype(np.int64)
    ends = places + sizes
    is_end = (prefixes["magic"] != MESSAGE_MAGIC) | (sizes < RECORD_BYTES_MIN) | (ends > len(data))
    if is_end.any():
        # Behind a place where no record is, there is no chain.
        count = int(np.argmax(is_end))
        return Chain(places[:count], int(places[count]))
    return Chain(places, int(ends[-1]))


def find_strands(data: bytes) -> list[int]:
    """Return places where records may begin, about equally far from each other, and the first."""
    strand_bytes = max(math.isqrt(STRAND_FACTOR * len(data)), RECORD_BYTES_MIN)
    strands = [0]
    at = data.find(MESSAGE_MAGIC_BYTES, strand_bytes)
    while at >= 0:
        strands.append(at - _MAGIC_AT)
        at = data.find(MESSAGE_MAGIC_BYTES, at + strand_bytes)
    return strands


def reason_at(data: bytes, position: int) -> str:
    """Return why no whole record begins at a place of `data`, behind which there is nothing."""
    left = len(data) - position
    if left < RECORD_PREFIX.size:
        return f"{left} bytes after the last record"
    size, magic = RECORD_PREFIX.unpack_from(data, position)
    if magic == MESSAGE_MAGIC:
        return f"size {size} with {left} bytes left"
    if magic == BLANK_MAGIC:
        return "a blank, as segments end with"
    return f"magic 0x{magic & 0xFFFFFFFF:08X} is not that of a message"


def _walk_strands(data: bytes, strands: list[int]) -> NDArray[np.int64]:
    """Return the places on the chain, which has still to be checked.

    From the first place on at which no record is, the places mean nothing.
    """
    behind = len(data) - RECORD_PREFIX.size + 1
    windows = np.ndarray(behind, _PREFIX["total_size"], data, strides=(1,))
    begins = np.array(strands, np.int64)
    ends = begins.copy()
    places, limits = begins, np.append(begins[1:], behind)
    numbers = np.arange(len(strands))
    steps = []
    while len(places):
        steps.append(places)
        # A size that no record has would lead back, or nowhere.
        places = places + np.maximum(windows[places], RECORD_BYTES_MIN)
        ends[numbers] = places
        goes_on = places < limits
        places, limits, numbers = places[goes_on], limits[goes_on], numbers[goes_on]
    found = np.concatenate(steps)
    found.sort()
    if (ends[:-1] == begins[1:]).all():
        return found
    return _without_false_strands(data, found, strands, ends.tolist())


def _without_false_strands(
    data: bytes, found: NDArray[np.int64], strands: list[int], ends: list[int]
) -> NDArray[np.int64]:
    """Return the places on the chain where some strands do not begin with a record."""
    number_of = {begin: number for number, begin in enumerate(strands)}
    bounds = [*np.searchsorted(found, strands).tolist(), len(found)]
    parts = []
    number: int | None = 0
    while number is not None:
        parts.append(found[bounds[number] : bounds[number + 1]])
        places, stop = _walk_on(data, ends[number], number_of)
        parts.append(np.array(places, np.int64))
        number = number_of.get(stop)
    return np.concatenate(parts)


def _walk_on(data: bytes, place: int, meets: Container[int]) -> tuple[list[int], int]:
    """Walk the chain record by record until it ends, or meets one of some places.

    Returns the places of the records, and where it ended.
    """
    places = []
    last = len(data) - RECORD_PREFIX.size
    while place <= last and place not in meets:
        size, magic = _read_prefix(data, place)
        if magic != MESSAGE_MAGIC or not RECORD_BYTES_MIN <= size <= len(data) - place:
            break
        places.append(place)
        place += size
    return places, place
