"""Offsets by queue under texts like `topic@group`, and how they are written as JSON. Pure.

They are written as fastjson does it, in the order of a stock broker's table, and in pieces: one
with a hundred thousand offsets takes a tenth of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from rmq.broker.tables.order import (
    OFFSETS_TABLE_SIZE,
    spread_hash,
    table_order,
    table_order_in_steps,
)
from rmq.model import fastjson
from rmq.model.limits import INT32_MAX, INT32_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmq.model.offsets import ConsumerOffset

_OFFSETS_PER_PIECE: Final = 2000

_encode: Final = msgspec.json.Encoder().encode


@final
class OffsetTables:
    """The tables of one broker."""

    def __init__(self) -> None:
        self.by_key: dict[str, dict[int, ConsumerOffset]] = {}
        """None is empty. Offsets of queues that a table has may be changed in place."""
        self.removed = 0
        """How many tables have been removed so far."""
        # Tables whose queues do not ascend. They are sorted when they are next written: at every
        # commit it would cost the more, the more queues there are.
        self._unsorted: set[str] = set()
        self._hashes: dict[str, int] = {}
        self._names: dict[str, bytes] = {}  # as they begin in JSON
        self._order: list[str] | None = None
        self._stamp = 0
        """Moves when a table is new or removed."""

    def add_queue(self, key: str, queue_id: int, offset: ConsumerOffset) -> None:
        """Store the offset of a queue that is new; `ValueError` if its number is none of Java's."""
        if not INT32_MIN <= queue_id <= INT32_MAX:
            raise ValueError(f"queue id {queue_id} of {key} does not fit into 32 bits")
        table = self.by_key.get(key)
        if table is None:
            self.set(key, {queue_id: offset})
            return
        if queue_id < next(reversed(table)):
            self._unsorted.add(key)
        table[queue_id] = offset

    def set(self, key: str, table: dict[int, ConsumerOffset]) -> None:
        """Store a copy of a table that is not empty."""
        if key not in self.by_key:
            self._hashes[key] = spread_hash(key)
            self._names[key] = fastjson.dumps(key) + b":"
            self._forget_order()
        self.by_key[key] = dict(sorted(table.items()))
        self._unsorted.discard(key)

    def drop(self, key: str) -> None:
        del self.by_key[key], self._hashes[key], self._names[key]
        self._unsorted.discard(key)
        self._forget_order()
        self.removed += 1

    def clear(self) -> None:
        self.removed += len(self.by_key)
        self.by_key.clear()
        self._hashes.clear()
        self._names.clear()
        self._unsorted.clear()
        self._forget_order()

    def copy(self) -> dict[str, dict[int, int]]:
        """Return a copy of everything, in order."""
        return {key: dict(self._sorted(key) or {}) for key in self._keys_in_order()}

    def queues(self, key: str) -> list[int]:
        """Return the queues of a table, ascending."""
        return list(self._sorted(key) or ())

    def row(self, key: str, queues: Iterable[int] | None = None) -> bytes | None:
        """Return a table, or these queues of it, as a member of a JSON object; None if empty."""
        table = self._sorted(key)
        if table is not None and queues is not None:
            table = {queue: table[queue] for queue in queues if queue in table}
        return self._row(key, table) + b"}" if table else None

    def ordering(self, keys: list[str]) -> Iterator[None]:
        """Fill an empty list with the names of all tables, in order, in steps of a millisecond."""
        order = self._order
        if order is None:
            stamp = self._stamp
            order = yield from table_order_in_steps(self._hashes, OFFSETS_TABLE_SIZE)
            if stamp == self._stamp:
                self._order = order
        keys += order

    def rows(
        self,
        before: bytes,
        end: bytes,
        last: frozenset[str] = frozenset(),
        keys: list[str] | None = None,
    ) -> Iterator[bytes]:
        """Yield the members of a JSON object, some in each piece; commas between pieces are absent.

        `before` comes before each member and `end` ends its table. Tables in `last` come in one
        piece, after all others. `keys` is what `ordering` gave; without it, the order is found at
        once.
        """
        between = end + b"," + before
        rows: list[bytes] = []
        offsets = 0
        for key in self._keys_in_order() if keys is None else keys:
            table = self._sorted(key)
            if table is None or key in last:  # None: removed since the first piece
                continue
            rows.append(self._row(key, table))
            offsets += len(table) + 1
            if offsets >= _OFFSETS_PER_PIECE:
                yield before + between.join(rows) + end
                rows.clear()
                offsets = 0
        for key in sorted(last):
            table = self._sorted(key)
            if table is not None:
                rows.append(self._row(key, table))
        if rows:
            yield before + between.join(rows) + end

    def _row(self, key: str, table: dict[int, ConsumerOffset]) -> bytes:
        # The fastest way to write whole numbers. Those that are keys get quotes, and no others.
        return self._names[key] + _encode(table)[:-1].replace(b'"', b"")

    def _sorted(self, key: str) -> dict[int, ConsumerOffset] | None:
        if key in self._unsorted:
            self.set(key, self.by_key[key])
        return self.by_key.get(key)

    def _forget_order(self) -> None:
        self._order = None
        self._stamp += 1

    def _keys_in_order(self) -> list[str]:
        if self._order is None:
            self._order = table_order(self._hashes, OFFSETS_TABLE_SIZE)
        return self._order
