"""How Java hashes, orders and prints, where that shows in bytes that other programs read.

`string_hash` is `String.hashCode`: stock peers store it as the tag code of a ConsumeQueue entry,
find index slots by it and send it in subscriptions. `hash_map_order` is the order in which a
`java.util.HashMap` (or `HashSet`) hands out its keys, and with it the order of message properties
and of ext fields on the wire. `double_text` is `Double.toString`.

Not known here: buckets that Java turned into trees (nine or more keys in one bucket of a table of
64 or more). They are given in insertion order, which Java does not guarantee for them; it takes
deliberately colliding names to get there.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

Key = TypeVar("Key", str, int)

_UTF16_NATIVE = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"

# The weights of the last units of a text, 31^(_BLOCK - 1) down to 31^0. Weighing a block of them in
# C is faster than Horner's rule in Python, and weights reduced to 32 bits keep the sums small.
_BLOCK = 256
_WEIGHTS = tuple(pow(31, exponent, 1 << 32) for exponent in reversed(range(_BLOCK)))
_BLOCK_WEIGHT = pow(31, _BLOCK, 1 << 32)

_DEFAULT_TABLE_SIZE = 16
_MIN_TREEIFY_TABLE_SIZE = 64
_MAX_BUCKET_LENGTH = 8

_KEYS_PER_STEP = 512
_DIGIT_BITS = 10
_DIGIT_MASK = (1 << _DIGIT_BITS) - 1


def utf16_units(text: str) -> Sequence[int]:
    """Return `text` as Java holds it: UTF-16 units, two for a character beyond the first plane."""
    if text.isascii():
        return text.encode()
    return memoryview(text.encode(_UTF16_NATIVE, "surrogatepass")).cast("H")


def string_hash(text: str) -> int:
    """Return `String.hashCode` of `text`, a signed 32-bit number."""
    units = utf16_units(text)
    length = len(units)
    head = length if length <= _BLOCK else length % _BLOCK
    unsigned: int = sum(map(mul, units[:head], _WEIGHTS[_BLOCK - head :])) & 0xFFFFFFFF
    for start in range(head, length, _BLOCK):
        block = sum(map(mul, units[start : start + _BLOCK], _WEIGHTS))
        unsigned = (unsigned * _BLOCK_WEIGHT + block) & 0xFFFFFFFF
    return unsigned - (1 << 32) if unsigned & 0x80000000 else unsigned


def hash_map_order(keys: Sequence[Key]) -> list[Key]:
    """Return `keys` in the order a `HashMap` gives them, filled in the order they have here.

    The map is one made by the constructor without arguments. A key put twice keeps its first
    place. Numbers are hashed as `java.lang.Integer`, or as `Long` when they need more than 32 bits.
    """
    spread = {key: _spread(key) for key in keys}
    mask = _table_size(list(spread.values())) - 1
    # Growing a table keeps the order within a bucket, so only the final size matters; and sorting
    # is stable, so keys of one bucket stay in insertion order.
    return sorted(spread, key=lambda key: spread[key] & mask)


def hash_map_order_in_steps(
    keys: Sequence[str], *, is_set: bool = False
) -> Generator[None, None, list[str]]:
    """Return what `hash_map_order` does, in steps of well below a millisecond.

    No two keys may be equal. The keys of a set have no order of their own; those that share a
    bucket come in alphabetical order, unless the bucket is one that Java would turn into a tree.
    Keys that were made to collide take no longer than others.
    """
    codes: list[int] = []
    for start in range(0, len(keys), _KEYS_PER_STEP):
        codes += map(_spread_of_text, keys[start : start + _KEYS_PER_STEP])
        yield
    mask = _table_size(codes) - 1
    order: Sequence[int] = range(len(keys))
    # A radix sort, lowest digit first: it is stable, and each of its passes can be interrupted.
    for shift in range(0, mask.bit_length(), _DIGIT_BITS):
        piles: dict[int, list[int]] = {}
        for start in range(0, len(order), _KEYS_PER_STEP):
            for index in order[start : start + _KEYS_PER_STEP]:
                piles.setdefault((codes[index] & mask) >> shift & _DIGIT_MASK, []).append(index)
            yield
        sorted_so_far: list[int] = []
        for digit in sorted(piles):
            sorted_so_far += piles[digit]
        yield
        order = sorted_so_far
    ordered: list[str] = []
    bucket: list[str] = []
    for place, index in enumerate(order, start=1):
        bucket.append(keys[index])
        if place == len(order) or codes[order[place]] & mask != codes[index] & mask:
            if is_set and 1 < len(bucket) <= _MAX_BUCKET_LENGTH:
                bucket.sort()
            ordered += bucket
            bucket.clear()
        if place % _KEYS_PER_STEP == 0:
            yield
    return ordered


def double_text(value: float) -> str:
    """Return `Double.toString` of a finite number: the shortest digits that read back as it."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    shortest = Decimal(repr(value))
    digits = "".join(map(str, shortest.as_tuple().digits)).rstrip("0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{shortest.adjusted()}"


# Names come from a small vocabulary (properties, ext fields), so most have been hashed before.
@lru_cache(maxsize=1024)
def _spread(key: str | int) -> int:
    """Return the hash as `HashMap.hash` mixes it, its upper half folded into the lower."""
    if isinstance(key, str):
        return _spread_of_text(key)
    is_long = not -(1 << 31) <= key < 1 << 31
    code = (key ^ key >> 32 if is_long else key) & 0xFFFFFFFF
    return code ^ code >> 16


def _spread_of_text(key: str) -> int:
    code = string_hash(key) & 0xFFFFFFFF
    return code ^ code >> 16


def _table_size(hashes: list[int]) -> int:
    """Return how many buckets a default map has after taking keys with these hashes."""
    size = _DEFAULT_TABLE_SIZE
    if len(hashes) > _MAX_BUCKET_LENGTH:
        size = _crowded_table_size(hashes)
    while len(hashes) > size * 3 // 4:
        size *= 2
    return size


def _crowded_table_size(hashes: list[int]) -> int:
    """Return the size a small table reaches through growth by load and by crowded buckets.

    A bucket that gets a ninth key doubles the table, however empty the rest of it is, until there
    are 64 buckets; from then on it becomes a tree.
    """
    size = _DEFAULT_TABLE_SIZE
    lengths = [0] * size
    for count, code in enumerate(hashes, 1):
        bucket = code & size - 1
        lengths[bucket] += 1
        # The crowded bucket is checked first, and a table it doubled is rarely full as well.
        if lengths[bucket] <= _MAX_BUCKET_LENGTH and count <= size * 3 // 4:
            continue
        size *= 2
        if size >= _MIN_TREEIFY_TABLE_SIZE:
            break
        lengths = [0] * size
        for earlier in hashes[:count]:
            lengths[earlier & size - 1] += 1
    return size
