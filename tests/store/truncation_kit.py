"""What the tests of truncation share: stores to cut, what must be left, and ends at any call."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.store.layout import INDEX_ENTRY, INDEX_ENTRY_BYTES, QUEUE_ENTRY
from rmq.store.truncation import NOTE_NAME, Truncation, request_truncation
from tests.store.model import checks
from tests.store.store_kit import ROOT, START_MS, Clock, message, open_core, put

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rmq.store.core import StoreCore
    from rmq.testing.faults import Operation
    from rmq.testing.storage import MemoryStorage

NOTE: Final = ROOT / NOTE_NAME
CHANGES: Final[frozenset[Operation]] = frozenset(
    {
        "make_directory",
        "create",
        "resize",
        "write",
        "replace",
        "delete",
        "sync_directory",
        "sync",
        "reserve",
        "clear_from",
    }
)
"""The calls that change what a disk holds: between two others nothing can go wrong that could not
at the next of these.
"""


class Ended(BaseException):
    """The process ends here."""


class EndsAt:
    """Ends the process at a call that changes files, counted from 1."""

    def __init__(self, storage: MemoryStorage, call: int) -> None:
        self.seen = 0
        self._call = call
        storage.faults.watch(self._meet)

    def _meet(self, operation: Operation, path: Path) -> None:
        del path
        if operation in CHANGES:
            self.seen += 1
            if self.seen == self._call:
                raise Ended


class Seen:
    """Tells which disks were there before: what a store does with one it does with its like."""

    def __init__(self) -> None:
        self._prints: set[bytes] = set()

    def is_new(self, storage: MemoryStorage) -> bool:
        """Tell whether this is the first of its like; ask before anything opened it."""
        seen = len(self._prints)
        self._prints.add(hashlib.sha256(pickle.dumps(storage._volume.root)).digest())
        return len(self._prints) > seen


def put_varied(core: StoreCore, clock: Clock, numbers: Iterable[int]) -> None:
    """Append messages of several queues, sizes and keys; some queues begin late, some are rare."""
    for number in numbers:
        clock.ms += 700
        topic = "TopicLate" if number > 40 and number % 5 == 0 else "TopicA"
        put(
            core,
            [
                message(
                    b"%d " % number * (1 + number * 7 % 60),
                    topic=topic,
                    queue_id=2 if number % 29 == 3 else number % 2,
                    unique_key=f"key{number}" if number % 4 else "",
                    keys=f"all by{number % 3}" if number % 3 else "",
                )
            ],
        )


def record_ends(core: StoreCore) -> list[int]:
    """Return where records end, and where the log and its segments begin."""
    records = checks.walk_log(core, core.log.written)
    ends = {physical + len(data) for physical, data in records}
    return sorted(ends | {segment.first for segment in core.log.segments})


@dataclass(frozen=True)
class Left:
    """What a store holds below an offset."""

    log: bytes
    queues: dict[tuple[str, int], tuple[int, list[bytes]]]
    """The end of each queue that has one, and its entries from the min offset on."""
    index: list[tuple[int, int]]
    """Hash and physical offset of each entry, in order."""
    reachable: frozenset[tuple[int, int]]
    """Those that slots lead to."""


def left_below(core: StoreCore, end: int) -> Left:
    """Return what must be left of a store when it is cut at `end`."""
    queues: dict[tuple[str, int], tuple[int, list[bytes]]] = {}
    for key, queue in core.queues.by_key.items():
        entries = [e for e in checks.entries_of(queue) if QUEUE_ENTRY.unpack(e)[0] < end]
        if queue.min_offset + len(entries):
            queues[key] = (queue.min_offset + len(entries), entries)
    index: list[tuple[int, int]] = []
    reachable: set[tuple[int, int]] = set()
    if core.index is not None:
        for file in core.index.files:
            start = file.entries_at + INDEX_ENTRY_BYTES
            stop = file.entries_at + file.count * INDEX_ENTRY_BYTES
            rows = INDEX_ENTRY.iter_unpack(bytes(file.buffer[start:stop]))
            index += [(key_hash, physical) for key_hash, physical, _, _ in rows if physical < end]
        reachable = {pair for pair in checks.reachable(core.index) if pair[1] < end}
    data = b"".join(bytes(segment.buffer) for segment in core.log.segments)
    return Left(data[: end - core.log.min_offset], queues, index, frozenset(reachable))


def request(storage: MemoryStorage, end: int | None, at_ms: int = START_MS) -> None:
    request_truncation(ROOT, Truncation(end, "a test wants it", at_ms), storage=storage)


def assert_cut(core: StoreCore, storage: MemoryStorage, expected: Left, end: int) -> None:
    """Check that a store is as if nothing behind `end` had ever been there."""
    assert core.log.written == core.log.flushed == core.dispatcher.dispatched == end
    assert left_below(core, 1 << 60).queues == expected.queues
    found = left_below(core, end)
    assert found.log == expected.log
    assert found.index == expected.index
    assert found.reachable == expected.reachable
    if core.index is not None:
        assert checks.reachable(core.index) == expected.reachable
    assert all(queue.assigned == queue.next_offset for queue in core.queues)
    assert core.statistics().recovery_point == end
    checks.check_tails(core)
    checks.check_files(core, storage)
    checks.check_room(storage)
    assert not storage.exists(NOTE)


def assert_goes_on(core: StoreCore, storage: MemoryStorage, clock: Clock) -> None:
    """Check that a store takes messages, and has them and all others after another stop."""
    before = left_below(core, core.log.written)
    put_varied(core, clock, range(300, 330))
    after = left_below(core, core.log.written)
    assert after.log.startswith(before.log)
    for key, (_, entries) in before.queues.items():
        assert after.queues[key][1][: len(entries)] == entries
    core.close()
    again = open_core(storage, clock=clock)
    assert left_below(again, again.log.written) == after
    assert again.recovery.used_point
    assert again.recovery.records_read == 0
