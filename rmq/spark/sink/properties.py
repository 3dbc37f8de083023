r"""The properties of many rows as text, by the rules of `rmq.client.core.producing.outbound`. Pure.

Each function returns one stretch of the text for every row, `0x02 name 0x01 value` or null, so that
the stretches of a row only have to be put behind each other. The order of properties is not that of
a stock client; no program depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq.client.core.messages import RESERVED
from rmq.model.properties import DELAY, KEY_SEPARATOR, KEYS, NAME_VALUE, PAIR, TAGS
from rmq.spark.sink.arrays import as_binary, binary_cut, lengths_of, starts_of, values_of
from rmq.spark.sink.identity import SPARK_KEY

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAG_SEPARATOR: Final = b"||"
_KEY_SEPARATOR: Final = KEY_SEPARATOR.encode()
_DROPPED: Final = pa.array([name.encode() for name in sorted(RESERVED | {SPARK_KEY})], pa.binary())
"""Names that belong to the system: what a message brought along from a topic is not sent again."""


class RowError(Exception):
    """A row cannot be sent: its place in the batch, and why."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason


def check_rows(is_bad: NDArray[np.bool_], reason: str) -> None:
    """Raise `RowError` for the first row that is bad."""
    if is_bad.any():
        raise RowError(int(is_bad.argmax()), reason)


def pair_start(name: str) -> bytes:
    """Return what stands before the value of a property."""
    return PAIR + name.encode() + NAME_VALUE


def tag_pairs(tags: pa.Array) -> pa.BinaryArray:
    """Return TAGS; raise `RowError` for a tag that no consumer could subscribe to."""
    values = _not_empty(as_binary(tags))
    _check_separators(values, "the tag")
    parted = pc.match_substring(values, TAG_SEPARATOR).fill_null(False)
    check_rows(
        parted.to_numpy(zero_copy_only=False),
        "the tag has || in it, which subscriptions split at",
    )
    return pc.binary_join_element_wise(pair_start(TAGS), values, b"")


def key_pairs(keys: pa.Array | None, spark_keys: pa.BinaryArray | None) -> pa.BinaryArray | None:
    """Return KEYS: those of the column, and the keys of the rows if they are to be there too."""
    own = None if keys is None else _joined_keys(keys)
    if own is not None:
        own = _not_empty(own)
        _check_separators(own, "a key")
    if spark_keys is None:
        return None if own is None else pc.binary_join_element_wise(pair_start(KEYS), own, b"")
    if own is None:
        return pc.binary_join_element_wise(pair_start(KEYS), spark_keys, b"")
    both = pc.binary_join_element_wise(own, spark_keys, _KEY_SEPARATOR, null_handling="skip")
    return pc.binary_join_element_wise(pair_start(KEYS), both, b"")


def delay_pairs(levels: NDArray[np.int32]) -> pa.BinaryArray:
    """Return DELAY, null where there is none."""
    texts = pa.array(levels, mask=levels == 0).cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(pair_start(DELAY), texts, b"")


def own_pairs(properties: pa.MapArray) -> pa.BinaryArray:
    """Return the properties of the application, without names that belong to the system.

    A null value is no property. Raises `RowError` for names and values that cannot be carried.
    """
    offsets = properties.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    names = as_binary(properties.keys.slice(first, count))
    values = as_binary(properties.items.slice(first, count))
    rows = np.repeat(np.arange(len(properties)), np.diff(offsets))
    is_kept = pc.and_(pc.invert(pc.is_in(names, value_set=_DROPPED)), pc.is_valid(values))
    kept = is_kept.to_numpy(zero_copy_only=False)
    if properties.null_count:
        kept = kept & properties.is_valid().to_numpy(zero_copy_only=False)[rows]
    if not kept.all():
        mask = pa.array(kept)
        names, values, rows = names.filter(mask), values.filter(mask), rows[kept]
    _check_pairs(names, values, rows)
    texts = pc.binary_join_element_wise(PAIR, names, NAME_VALUE, values, b"")
    ends = np.zeros(len(properties) + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=len(properties)), out=ends[1:])
    starts = starts_of(texts)
    buffer = texts.buffers()[2]
    return binary_cut(np.empty(0, np.uint8) if buffer is None else buffer, starts[ends])


def _check_pairs(names: pa.BinaryArray, values: pa.BinaryArray, rows: NDArray[np.int64]) -> None:
    try:
        check_rows(lengths_of(names) == 0, "a property has no name")
        check_rows(lengths_of(values) == 0, "has no value")
        _check_separators(names, "the name of a property")
        _check_separators(values, "its value")
    except RowError as exc:
        name = names[exc.index].as_py().decode("utf-8", "replace")
        what = exc.reason if name == "" else f"property {name!r}: {exc.reason}"
        raise RowError(int(rows[exc.index]), what) from None


def _joined_keys(keys: pa.Array) -> pa.BinaryArray:
    if not pa.types.is_list(keys.type) and not pa.types.is_large_list(keys.type):
        return as_binary(keys)
    offsets = keys.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    each = as_binary(keys.values.slice(first, count))
    rows = np.repeat(np.arange(len(keys)), np.diff(offsets))
    kept = each.is_valid().to_numpy(zero_copy_only=False)
    if keys.null_count:
        kept = kept & keys.is_valid().to_numpy(zero_copy_only=False)[rows]
    if not kept.all():
        each, rows = each.filter(pa.array(kept)), rows[kept]
    is_bad = (lengths_of(each) == 0) | pc.match_substring(each, _KEY_SEPARATOR).to_numpy(
        zero_copy_only=False
    )
    if is_bad.any():
        row = int(rows[is_bad.argmax()])
        raise RowError(row, "a key of the array is empty or has a blank in it")
    ends = np.zeros(len(keys) + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=len(keys)), out=ends[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), each), _KEY_SEPARATOR)


def _not_empty(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return values with null in place of empty ones: a property without a value is none."""
    is_empty = lengths_of(values) == 0
    if not is_empty.any() or values.null_count == is_empty.sum():
        return values
    return pc.if_else(pa.array(is_empty), pa.scalar(None, pa.binary()), values)


def _check_separators(values: pa.BinaryArray, what: str) -> None:
    """Raise `RowError` for a value with one of the two characters in it that part properties."""
    starts = starts_of(values)
    first = int(starts[0])
    # One comparison for both: what is below 1 becomes large.
    places = np.flatnonzero(values_of(values)[first : starts[-1]] - np.uint8(1) < 2)
    if not places.size:
        return
    rows = np.searchsorted(starts, places + first, "right") - 1
    if values.null_count:
        rows = rows[values.is_valid().to_numpy(zero_copy_only=False)[rows]]
    if rows.size:
        raise RowError(int(rows[0]), f"{what} has a character 1 or 2 in it")
