"""Stores to check, ways to damage them, and tasks that run without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage
from rmq.spark.jobs.verify import exact
from rmq.spark.jobs.verify.job import Check
from rmq.store.config import DEFAULT_DELAY_LEVELS, StoreConfig, parse_delay_levels
from rmq.store.core import StoreCore
from rmq.store.reader import Reader
from rmq.store.verify import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import TypeVar

    import numpy as np
    from numpy.typing import NDArray

    from rmq.spark.jobs.verify.exact import Found
    from rmq.spark.jobs.verify.job import StoreCheck

    A = TypeVar("A")
    B = TypeVar("B")

START_MS: Final = 1_700_000_000_000
SEGMENT_BYTES: Final = 8192
QUEUE_SEGMENT_BYTES: Final = 400
INDEX_SLOTS: Final = 50
INDEX_ENTRIES: Final = 120
DELAY_LEVELS_MS: Final = parse_delay_levels(DEFAULT_DELAY_LEVELS)


class PlainTasks:
    """Runs functions here, one after the other."""

    def map(self, title: str, function: Callable[[A], B], things: Sequence[A]) -> list[B]:
        assert title
        return [function(thing) for thing in things]

    def check_queues(
        self,
        rules: exact.QueueRules,
        offsets: Sequence[exact.OffsetsTask],
        queues: Iterable[tuple[str, int]],
    ) -> list[Found]:
        places: dict[tuple[str, int], list[NDArray[np.int64]]] = {queue: [] for queue in queues}
        for task in offsets:
            for queue, found in exact.offsets_of_queues(task):
                places[queue].append(found)
        return [exact.check_queue(rules, queue, found) for queue, found in places.items()]


def open_store(root: Path, step_ms: int = 700) -> StoreCore:
    """Open a store with small files, whose clock goes on with each message."""
    return StoreCore(
        StoreConfig(
            root=root,
            segment_bytes=SEGMENT_BYTES,
            queue_segment_bytes=QUEUE_SEGMENT_BYTES,
            index_slots=INDEX_SLOTS,
            index_entries=INDEX_ENTRIES,
        ),
        now_ms=iter(range(START_MS, START_MS * 2, step_ms)).__next__,
    )


def sample_messages(count: int) -> list[NewMessage]:
    """Return messages of several topics and kinds: keys, tags, delays, transactions."""
    messages = []
    for number in range(count):
        pairs = {"UNIQ_KEY": f"0A0000010000{number:08X}", "TAGS": f"Tag{number % 3}"}
        if number % 2:
            pairs["KEYS"] = f"order{number} käse{number % 7}  ."
        topic, sys_flag = ("Orders", 0) if number % 4 else ("Payments", 0)
        if number % 17 == 0:
            topic, pairs["DELAY"] = "SCHEDULE_TOPIC_XXXX", str(number % 5 - 1)
        if number % 19 == 0:
            sys_flag = (0x4, 0x8, 0xC)[number % 3]
        messages.append(
            NewMessage(
                topic,
                number % 3,
                b"body of %d" % number * (1 + number % 5),
                encode_properties(pairs),
                sys_flag=sys_flag,
                born_ms=START_MS,
            )
        )
    return messages


def write_store(root: Path, count: int = 250) -> Path:
    """Make a store of some segments that was closed cleanly."""
    store = open_store(root)
    for message in sample_messages(count):
        store.append([message])
    store.close()
    return root


def reader_of(root: Path) -> Reader:
    """Open a store, told how its index is divided: damage may hide it."""
    return Reader(root, index_slots=INDEX_SLOTS, index_entries=INDEX_ENTRIES)


def one_by_one(reader: Reader) -> list[str]:
    """Return what the check in one process finds."""
    with reader:
        return sorted(map(str, Verifier(reader).run()))


def in_parts(reader: Reader, part_bytes: int = 1 << 30) -> StoreCheck:
    """Check a store in parts of so many bytes."""
    with reader:
        return Check(
            reader, PlainTasks(), delay_levels_ms=DELAY_LEVELS_MS, part_bytes=part_bytes
        ).run()


def texts(check: StoreCheck) -> list[str]:
    return sorted(map(str, check.found.findings))


def files_below(root: Path, *folders: str) -> list[Path]:
    """Return the files in some folders of a store."""
    return sorted(
        path for folder in folders for path in (root / folder).rglob("*") if path.is_file()
    )
