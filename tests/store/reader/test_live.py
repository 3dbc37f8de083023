"""The reader beside a store that is open, in this process or another, and on what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rmq.model.offsets import PhysicalOffset
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.store.reader import Reader
from rmq.store.reader.state import LockHolder, lock_holder, read_state
from rmq.store.verify import verify
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEGMENT_BYTES = 64 * 1024


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root,
        segment_bytes=SEGMENT_BYTES,
        queue_segment_bytes=1200,
        index_slots=100,
        index_entries=400,
    )


class Clock:
    """Each look at it is a millisecond later."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


def open_store(root: Path) -> StoreCore:
    return StoreCore(config_of(root), now_ms=Clock())


def append(store: StoreCore, count: int, start: int = 0, topic: str = "T") -> None:
    for number in range(start, start + count):
        properties = encode_properties(
            {"KEYS": f"k{number}", "TAGS": f"tag{number % 3}", "UNIQ_KEY": f"{number:032X}"}
        )
        store.append(
            [
                NewMessage(
                    topic=topic,
                    queue_id=number % 2,
                    body=b"%d" % number * 50,
                    properties=properties,
                )
            ]
        )


def bodies(reader: Reader) -> list[int]:
    """Return the numbers of the messages in the log."""
    return [int(record.properties["KEYS"][1:]) for record in reader.records()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreCore]:
    opened = open_store(tmp_path)
    yield opened
    opened.release()


# --- open in this process ---------------------------------------------------------------------


def test_only_what_is_flushed_is_read_from_an_open_store(store: StoreCore, tmp_path: Path) -> None:
    append(store, 10)
    store.flush()
    append(store, 10, start=10)
    reader = Reader(tmp_path)
    assert reader.state.lock_holder == LockHolder(os.getpid())
    assert reader.end_offset == store.log.flushed < store.log.written
    assert bodies(reader) == list(range(10))
    assert [(each.queue_id, each.max_offset) for each in reader.queues()] == [(0, 5), (1, 5)]
    assert [each.queue_offset for each in reader.messages("T", 0)] == [0, 1, 2, 3, 4]
    assert list(reader.find("T", "k12")) == []
    assert [each.queue_id for each in reader.find("T", "k7")] == [1]


def test_what_was_flushed_since_is_seen_after_a_refresh(store: StoreCore, tmp_path: Path) -> None:
    append(store, 3)
    store.flush()
    reader = Reader(tmp_path)
    assert bodies(reader) == [0, 1, 2]
    append(store, 1000, start=3)
    store.flush()
    assert bodies(reader) == [0, 1, 2]
    reader.refresh()
    assert bodies(reader) == list(range(1003))
    assert len(reader.segments) > 2
    assert len(reader.index_files()) > 2
    assert [each.queue_offset for each in reader.find("T", "k1002")] == [501]


def test_looking_at_the_lock_does_not_end_it(store: StoreCore, tmp_path: Path) -> None:
    """Closing a descriptor of the lock file gives up the locks of the whole process on it."""
    for _ in range(3):
        with Reader(tmp_path) as reader:
            assert reader.state.is_live
    assert holder_seen_from_outside(tmp_path) == os.getpid()


def holder_seen_from_outside(root: Path) -> int | None:
    code = (
        "import sys; from pathlib import Path; from rmq.store.reader.state import lock_holder;"
        "holder = lock_holder(Path(sys.argv[1])); print(holder.pid if holder else '')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root / "lock")], capture_output=True, text=True, check=True
    )
    return int(done.stdout) if done.stdout.strip() else None


def test_a_check_of_an_open_store_finds_nothing(store: StoreCore, tmp_path: Path) -> None:
    append(store, 700)
    store.flush()
    append(store, 20, start=700)
    assert list(verify(Reader(tmp_path))) == []


# --- after it was open ------------------------------------------------------------------------


def test_a_closed_store_is_read_to_its_end(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, 700)
    end = store.log.written
    store.close()
    reader = Reader(tmp_path)
    assert reader.state.lock_holder is None
    assert not reader.state.is_abort_present
    assert reader.state.recovery_point is not None
    assert reader.end_offset == end == reader.state.recovery_point.physical_offset
    assert bodies(reader) == list(range(700))
    assert list(verify(reader)) == []


def test_a_killed_store_is_read_to_the_last_record_that_reached_a_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, 300)
    store.flush()
    append(store, 300, start=300)
    end = store.log.written
    store.release()
    reader = Reader(tmp_path)
    assert (reader.state.is_live, reader.state.is_abort_present) == (False, True)
    assert reader.end_offset == end
    assert bodies(reader) == list(range(600))
    assert [each for each in verify(reader) if each.severity.value == "error"] == []


def test_messages_that_expired_are_not_there_and_not_missed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, 1500)
    store.flush()
    expire(store, 3)
    store.follow_log()
    store.close()
    reader = Reader(tmp_path)
    assert reader.min_offset == 3 * SEGMENT_BYTES
    first, *_ = numbers = bodies(reader)
    assert numbers == list(range(first, 1500))
    bounds = list(reader.queues())
    assert [each.max_offset for each in bounds] == [750, 750]
    assert sum(each.entry_count for each in bounds) == 1500 - first
    assert [each.severity.value for each in verify(reader)] in ([], ["note"])


def expire(store: StoreCore, count: int) -> None:
    for _ in range(count):
        store.log.segments.drop_first()


# --- while it changes -------------------------------------------------------------------------


def test_segments_that_are_deleted_before_their_turn_are_passed_over(
    store: StoreCore, tmp_path: Path
) -> None:
    append(store, 1500)
    store.flush()
    reader = Reader(tmp_path)
    records = reader.records()
    heads = reader.heads()
    messages = reader.messages("T", 0)
    assert [next(records).queue_offset, next(heads).queue_offset, next(messages).queue_offset] == [
        0,
        0,
        0,
    ]
    begin_of_fourth = 3 * SEGMENT_BYTES
    expire(store, 3)
    store.follow_log()
    # What was opened is read to its end, then comes what is still there.
    offsets = [record.physical_offset for record in records]
    assert [offset for offset in offsets if SEGMENT_BYTES <= offset < begin_of_fourth] == []
    assert offsets[-1] == max(head.physical_offset for head in heads)
    assert sum(offset >= begin_of_fourth for offset in offsets) > 100
    queue_offsets = [message.queue_offset for message in messages]
    assert queue_offsets == sorted(queue_offsets)
    assert queue_offsets[-1] == 749
    assert reader.min_offset == begin_of_fourth


def test_a_record_that_expired_is_not_there(store: StoreCore, tmp_path: Path) -> None:
    append(store, 700)
    store.flush()
    reader = Reader(tmp_path)
    first = next(reader.records())
    reader.close()
    expire(store, 1)
    assert reader.record_at(PhysicalOffset(0)) is None
    assert reader.record_by_id(first.message_id) is None
    assert list(reader.find("T", "k0")) == []


def test_an_index_file_that_is_deleted_is_passed_over(store: StoreCore, tmp_path: Path) -> None:
    append(store, 700)
    store.flush()
    assert store.index is not None
    reader = Reader(tmp_path)
    found = reader.find("T", "k699")
    store.index.delete_all()
    assert list(found) == []


# --- open in another process ------------------------------------------------------------------

STORE_CHILD = """
import sys
from pathlib import Path
from tests.store.reader.test_live import append, open_store

store = open_store(Path(sys.argv[1]))
append(store, 50)
store.flush()
append(store, 5, start=50)
print("open", flush=True)
sys.stdin.readline()
store.release()
"""

LOCK_CHILD = """
import fcntl, os, sys

fd = os.open(sys.argv[1] + "/lock", os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("open", flush=True)
sys.stdin.readline()
"""


@contextmanager
def child(script: str, root: Path) -> Iterator[int]:
    """Run a process that has a store open, and give its number."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        yield process.pid
    finally:
        process.communicate("\n", timeout=60)
    assert process.returncode == 0


def test_a_store_of_another_process_is_read_up_to_what_it_flushed(tmp_path: Path) -> None:
    with child(STORE_CHILD, tmp_path) as pid:
        reader = Reader(tmp_path)
        assert reader.state.lock_holder == LockHolder(pid)
        assert bodies(reader) == list(range(50))
        reader.refresh()
        assert reader.state.lock_holder == LockHolder(pid)
    reader.refresh()
    assert reader.state.lock_holder is None
    assert bodies(reader) == list(range(55))


def test_a_lock_file_that_is_not_there_is_held_by_nobody(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "lock") is None


def test_what_an_open_stock_store_put_into_its_queues_is_read(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED, tmp_path)
    with child(LOCK_CHILD, root) as pid:
        reader = Reader(root)
        assert reader.state.lock_holder == LockHolder(pid)
        assert sum(1 for _ in reader.records()) == 2000


def test_a_record_that_an_open_stock_store_may_still_be_writing_is_not_read(tmp_path: Path) -> None:
    """Its beginning is written before its end; it goes into a queue when all of it is there."""
    root = golden.unpack(golden.CRASHED, tmp_path)
    last = golden.records(golden.CRASHED)[-1]
    queue_id = int.from_bytes(last.data[12:16])
    queue_offset = int.from_bytes(last.data[20:28])
    path = root / "consumequeue" / "GoldenFill" / str(queue_id) / f"{9600:020d}"
    content = bytearray(path.read_bytes())
    at = queue_offset * 20 - 9600
    content[at : at + 20] = bytes(20)
    path.write_bytes(content)
    with child(LOCK_CHILD, root):
        reader = Reader(root)
        assert reader.end_offset == last.physical_offset
        assert sum(1 for _ in reader.records()) == 1999


def test_an_old_mark_does_not_count_when_a_stock_broker_has_the_store_open(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, 20)
    store.close()
    with child(LOCK_CHILD, tmp_path):
        ours = read_state(tmp_path)
        assert ours.live_flushed == ours.live_mark
        checkpoint = bytearray((tmp_path / "checkpoint").read_bytes())
        checkpoint[8:16] = (1_800_000_000_000).to_bytes(8)
        (tmp_path / "checkpoint").write_bytes(checkpoint)
        theirs = read_state(tmp_path)
        assert (theirs.recovery_point, theirs.live_flushed) == (None, None)
        assert theirs.live_mark == ours.live_mark


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(bytes(4096), id="zeros"),
        pytest.param(b"\xff" * 4096, id="anything"),
        pytest.param(b"rmqpoint" * 512, id="only magic"),
    ],
)
def test_a_recovery_point_that_was_not_wholly_written_does_not_count(
    data: bytes, tmp_path: Path
) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    (root / "recovery-point").write_bytes(data)
    state = read_state(root)
    assert (state.recovery_points, state.live_mark) == ((), None)
    assert sum(1 for _ in Reader(root).records()) == 685


# --- nothing but reading ----------------------------------------------------------------------

AUDIT = """
import os, sys
from pathlib import Path
from rmq.store.reader import Reader
from rmq.store.verify import verify

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.utime", "os.chmod")
seen = []

def audit(event, arguments):
    if event == "open" and arguments[2] & WRITING:
        seen.append((event, arguments))
    elif event in CHANGES or (event.startswith("fcntl") and "lock" in event):
        seen.append((event, arguments))

sys.addaudithook(audit)
with Reader(Path(sys.argv[1])) as reader:
    count = sum(1 for _ in reader.records())
    list(reader.queues())
    list(reader.find("GoldenFill", "k5"))
    list(verify(reader))
    reader.refresh()
print(count, seen)
"""


def test_no_file_is_opened_for_writing_and_no_lock_is_taken(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(root)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2000 []\n"
