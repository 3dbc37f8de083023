"""Parts of the consumer offsets of a broker, as answers to 43 (`rmq.broker.tables.parts`). Pure.

A part has what the whole answer has, of some pairs of topic and group: offsets, and the numbers of
resets. A number always comes with the offset that it belongs to, both of the same moment: with an
older offset it would hide the reset from the slave. Pairs that were forgotten, and have numbers
only, come after all others; and pairs that must be of one moment with the end of the log come in
the last part.

The table of one pair may be longer than a part: it is cut between two queues.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from rmq.broker.tables.parts import Part, Place, place_now

if TYPE_CHECKING:
    from collections.abc import Generator

    from rmq.broker.tables.offset_resets import OffsetResets
    from rmq.broker.tables.offset_tables import OffsetTables
    from rmq.broker.tables.parts import WantedPart

QUEUES_PER_ROW: Final = 8192
"""A pair with more queues is cut: a slave reads each row in one step."""
RESETS_BYTES_MAX: Final = 64 * 1024
"""Of one part: a slave reads all resets of a part in one step."""
_WORK_PER_STEP: Final = 2000
_SKIPPED_WORK: Final = 0.1


def offsets_part(
    tables: OffsetTables,
    resets: OffsetResets,
    wanted: WantedPart,
    last: frozenset[str],
    table_id: int,
) -> Generator[None, None, Part]:
    """Make a part in steps of about a millisecond; offsets may be committed between them."""
    keys = [*tables.by_key, *resets.keys()]
    tables_end = len(tables.by_key)
    removed = tables.removed + resets.removed
    place = place_now(wanted.place, table_id, removed)
    position, after = place.position, place.queue
    draft = _Draft(tables, resets)
    work = 0.0
    while position < len(keys) and draft.has_room(wanted.bytes_max):
        key = keys[position]
        if key in last or (key in tables.by_key) != (position < tables_end):
            work += _SKIPPED_WORK  # it comes elsewhere, or has gone
            after = None
        else:
            after = draft.add(key, after)
            work += draft.work_of_last
        if after is not None:
            return draft.part(Place(table_id, removed, position, after))
        position += 1
        if work >= _WORK_PER_STEP:
            work = 0.0
            yield
    if position < len(keys):
        return draft.part(Place(table_id, removed, position))
    for key in sorted(last):
        draft.add(key, None, is_whole=True)
    return draft.part(None)


class _Draft:
    """A part in the making."""

    def __init__(self, tables: OffsetTables, resets: OffsetResets) -> None:
        self._tables = tables
        self._resets = resets
        self._rows: list[bytes] = []
        self._numbers: list[bytes] = []
        self._rows_bytes = self._numbers_bytes = 0
        self.work_of_last = 0
        """How many offsets and numbers the last pair had."""

    def has_room(self, bytes_max: int) -> bool:
        return (
            self._rows_bytes + self._numbers_bytes < bytes_max
            and self._numbers_bytes < RESETS_BYTES_MAX
        )

    def add(self, key: str, after: int | None, *, is_whole: bool = False) -> int | None:
        """Add a pair, beginning behind the queue `after`; return where it was cut, None at its end.

        A cut pair ends a part: no name may stand in it twice.
        """
        queues = self._queues(key)
        start = 0 if after is None else bisect_right(queues, after)
        stop = len(queues) if is_whole else min(len(queues), start + QUEUES_PER_ROW)
        is_end = stop == len(queues)
        chosen = queues[start:stop]
        self.work_of_last = len(chosen) + 1
        whole = start == 0 and is_end
        table = self._tables.row(key, None if whole else chosen)
        if table is not None:
            self._rows.append(table)
            self._rows_bytes += len(table) + 1
        numbers = self._resets.row(key, None if whole else chosen)
        if numbers is not None:
            self._numbers.append(numbers)
            self._numbers_bytes += len(numbers) + 1
        return None if is_end else chosen[-1]

    def _queues(self, key: str) -> list[int]:
        """Return the queues of a pair that have an offset or a number, ascending."""
        queues = self._tables.queues(key)
        forgotten = self._resets.queues(key) - self._tables.by_key.get(key, {}).keys()
        return sorted([*queues, *sorted(forgotten)]) if forgotten else queues

    def part(self, place: Place | None) -> Part:
        body = b'{"offsetTable":{' + b",".join(self._rows)
        if self._numbers:
            body += b'},"resets":{' + b",".join(self._numbers)
        return Part(body + b"}}", "" if place is None else place.text())
