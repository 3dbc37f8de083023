"""The order in which a stock broker writes the members of its tables.

RocketMQ 4.9.8 keeps topics, groups and consumer offsets in `ConcurrentHashMap`s, and its files and
bodies list them in the order of those. Nothing depends on that order. It is kept because a file
that both brokers would write alike can be compared byte by byte, and because it depends on the
names alone: the same table is always written the same way.

Only what a map does when it is made large and grows by its load is followed, which is all that
tables of this size see. How growing shuffles names that share a bucket is not: those keep the order
in which they were put.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from rmq.model.java import string_hash

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

SETTINGS_TABLE_SIZE: Final = 2048
"""Buckets of the tables of topics and of groups, which ask for room for 1024 members."""

OFFSETS_TABLE_SIZE: Final = 1024
"""Buckets of the table of consumer offsets, which asks for room for 512."""

_NAMES_PER_STEP: Final = 2000
_NAMES_PER_PART: Final = 1000
"""Names that are sorted at once, on average."""


def spread_hash(name: str) -> int:
    """Return the hash of a name as the map mixes it, its upper half folded into the lower."""
    code = string_hash(name) & 0xFFFFFFFF
    return (code ^ code >> 16) & 0x7FFFFFFF


def table_order(hashes: Mapping[str, int], table_size: int) -> list[str]:
    """Return the names in the order of a map that began with `table_size` buckets.

    `hashes` holds the `spread_hash` of each name, in the order in which they were put.
    """
    while len(hashes) >= table_size - table_size // 4:
        table_size *= 2
    names = list(hashes)
    buckets = list(map((table_size - 1).__and__, hashes.values()))
    # Sorting is stable: names of one bucket stay in the order given.
    return [names[index] for index in sorted(range(len(names)), key=buckets.__getitem__)]


def table_order_in_steps(
    hashes: Mapping[str, int], table_size: int
) -> Generator[None, None, list[str]]:
    """Return what `table_order` does, in steps of about a millisecond.

    The result is the order of the names that there were at the first step.
    """
    while len(hashes) >= table_size - table_size // 4:
        table_size *= 2
    names, mixed = list(hashes), list(hashes.values())
    parts_wanted = min(table_size, 1 << (len(names) // _NAMES_PER_PART).bit_length())
    # Neighbouring buckets come into one part, in the order of their names.
    width = table_size // parts_wanted
    parts: list[list[tuple[int, str]]] = [[] for _ in range(parts_wanted)]
    for start in range(0, len(names), _NAMES_PER_STEP):
        stop = start + _NAMES_PER_STEP
        for name, code in zip(names[start:stop], mixed[start:stop], strict=True):
            bucket = code & table_size - 1
            parts[bucket // width].append((bucket, name))
        yield
    order: list[str] = []
    for part in parts:
        part.sort(key=itemgetter(0))
        order += [name for _, name in part]
        yield
    return order
