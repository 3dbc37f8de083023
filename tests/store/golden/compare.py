"""Opens golden stores with `rmq`, and says in what its result may differ from the stock broker's.

`tests.store.golden.stores` gives what the stock broker left; here is what it takes to hold ours
against it: the geometry of those stores, a clock, reads of whole queues, and the comparisons. What
may differ is named here and nowhere else:

- `recovery-point` is ours; a stock broker neither writes nor reads it.
- `config/` belongs to the broker, not to the store.
- An IndexFile is named by the clock at its creation. The order of the names is the order of the
  files, so lists of contents in this order are comparable.
- The first time of `checkpoint` is that of the newest append a thorough flush has covered, which on
  a stock broker depends on when it last flushed, and stays 0 in a young store. We sync the log when
  a store is opened and closed, so ours is the newest record's.
- What lies behind the end of CommitLog and ConsumeQueue is zero in ours; a stock broker leaves what
  it gave up.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from rmq.model import flags, record_layout
from rmq.model.offsets import QueueOffset
from rmq.model.record import NewMessage, StoredRecord, decode_record, decode_records, pack_host
from rmq.store import layout
from rmq.store.checkpoint import CheckpointTimes
from rmq.store.config import GIB, StoreConfig
from rmq.store.core import StoreCore
from rmq.store.reads import GetStatus
from rmq.store.storage import DiskStorage
from rmq.testing.storage import MemoryStorage
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmq.store.storage import Storage

NOW_MS: Final = 1_794_900_000_000
"""A moment after the last golden record, so that an index file made then is the newest."""

STORE_HOST: Final = pack_host("127.0.0.1", 10911)
"""That of every golden record."""

POINT_FILE: Final = "recovery-point"
FOREVER_MS: Final = (1 << 63) - 1
KEYED_MAX: Final = 64
"""So many messages one query gives at most; no golden key has more."""


class Clock:
    """The time a store is told; tests set it."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def golden_config(root: Path) -> StoreConfig:
    """Return settings with the sizes the golden stores were written with."""
    return StoreConfig(
        root=root,
        segment_bytes=golden.SEGMENT_BYTES,
        queue_segment_bytes=golden.QUEUE_SEGMENT_BYTES,
        index_slots=golden.INDEX_SLOTS,
        index_entries=golden.INDEX_ENTRIES,
    )


class Place:
    """Where a test has its store."""

    def __init__(self, storage: Storage, root: Path) -> None:
        self.storage = storage
        self.root = root

    def put(self, name: str, data: bytes = b"") -> None:
        """Create a file of the store, or replace its content."""
        path = self.root / name
        self.storage.make_directory(path.parent)
        self.storage.write(path, data)

    def unpack(self, store: str) -> Place:
        """Put all files of a golden store there."""
        for name, data in golden.files(store).items():
            self.put(name, data)
        return self

    def remove(self, name: str) -> None:
        """Remove a file or a directory with everything in it."""
        path = self.root / name
        if self.storage.is_directory(path):
            for child in self.storage.names(path):
                self.remove(f"{name}/{child}")
        self.storage.delete(path)

    def exists(self, name: str) -> bool:
        return self.storage.exists(self.root / name)

    def files(self, folder: str = "") -> dict[str, bytes]:
        """Return the content of every file by its path below the root, in the order of these."""
        content: dict[str, bytes] = {}
        for child in self.storage.names(self.root / folder):
            name = f"{folder}/{child}" if folder else child
            if self.storage.is_directory(self.root / name):
                content |= self.files(name)
            else:
                content[name] = self.storage.read(self.root / name)
        return content

    def open(self, clock: Clock | None = None) -> StoreCore:
        """Open the store, which recovers it."""
        return StoreCore(
            golden_config(self.root),
            storage=self.storage,
            store_host=STORE_HOST,
            now_ms=clock if clock is not None else Clock(),
            # Fixed, so that what counts as in memory does not depend on the machine.
            memory_bytes=GIB,
        )

    @contextlib.contextmanager
    def opened(self, clock: Clock | None = None) -> Iterator[StoreCore]:
        """Open the store and close it cleanly, unless the test failed."""
        core = self.open(clock)
        try:
            yield core
        except BaseException:
            core.release()
            raise
        core.close()

    def reopen(self) -> None:
        """Open the store and close it, nothing else."""
        with self.opened():
            pass


class DiskPlace(Place):
    """A store on the real disk, where every sync waits for it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(DiskStorage(), folder / "store")

    def put(self, name: str, data: bytes = b"") -> None:
        # What a test begins with needs no sync.
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class MemoryPlace(Place):
    """A store in memory, for tests of what is in the files: they do not depend on the disk."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage(), Path("/store"))


def choose_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return the `place` of a test; modules make a fixture of this."""
    return DiskPlace(tmp_path) if getattr(request, "param", "") == "disk" else MemoryPlace()


on_disk_too: Final = pytest.mark.parametrize("place", ["disk", "memory"], indirect=True)


# --- files ----------------------------------------------------------------------------------


def below(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """Return the files of one folder of a store, in the order of their names."""
    return {name: files[name] for name in sorted(files) if name.startswith(f"{folder}/")}


def index_contents(files: Mapping[str, bytes]) -> list[bytes]:
    """Return the contents of the IndexFiles, oldest first: their names are only times."""
    return list(below(files, "index").values())


def checkpoint_times(files: Mapping[str, bytes]) -> CheckpointTimes:
    return CheckpointTimes._make(layout.CHECKPOINT_TIMES.unpack_from(files["checkpoint"]))


def differing(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> set[str]:
    """Return the names of files that are not in both with the same content."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def end_of_log(store: str) -> int:
    """Return where the last whole record of a golden store ends."""
    last = golden.sound_records(store)[-1]
    return last.physical_offset + len(last.data)


def log_bytes(store: str) -> bytes:
    """Return the golden CommitLog as one piece, blanks included, up to its end."""
    segments = golden.files_below(store, "commitlog")
    return b"".join(segments.values())[: end_of_log(store)]


def index_entries(data: bytes) -> list[tuple[int, int, int, int]]:
    """Return the entries in use of an IndexFile: key hash, physical offset, seconds, previous."""
    start = layout.INDEX_HEADER_BYTES + golden.INDEX_SLOTS * layout.INDEX_SLOT_BYTES
    count = layout.IndexHeader.parse(data).entry_count
    entries = list(layout.INDEX_ENTRY.iter_unpack(data[start:]))
    # Entry 0 is never used.
    return entries[1:count]


# --- records and messages -------------------------------------------------------------------


@cache
def stored(store: str) -> tuple[StoredRecord, ...]:
    """Return the whole records of a golden CommitLog, decoded, in order."""
    return tuple(decode_record(record.data) for record in golden.sound_records(store))


@cache
def stored_by_queue(store: str) -> Mapping[tuple[str, int], list[StoredRecord]]:
    """Return the records of each queue in the order of the log.

    None of the golden ones is of a kind that gets no queue entry.
    """
    queues: dict[tuple[str, int], list[StoredRecord]] = {}
    for record in stored(store):
        queues.setdefault((record.topic, record.queue_id), []).append(record)
    return queues


def keys_of(record: StoredRecord) -> list[str]:
    """Return the keys a record can be found by."""
    properties = record.properties
    keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return [key for key in keys if key]


@cache
def stored_by_key(store: str) -> Mapping[tuple[str, str], list[StoredRecord]]:
    """Return the records with each key of each topic in the order of the log."""
    found: dict[tuple[str, str], list[StoredRecord]] = {}
    for record in stored(store):
        for key in dict.fromkeys(keys_of(record)):
            found.setdefault((record.topic, key), []).append(record)
    return found


def new_message(record: StoredRecord) -> NewMessage:
    """Return what a broker must have handed to its store for it to write this record."""
    return NewMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        body=record.body,
        properties=record.properties_bytes,
        flag=record.flag,
        sys_flag=record.sys_flag & ~record_layout.HOST_FLAGS,
        born_ms=record.born_ms,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
    )


def read_queue(core: StoreCore, topic: str, queue_id: int) -> list[StoredRecord]:
    """Return all messages of a queue as a consumer gets them, pull by pull."""
    records: list[StoredRecord] = []
    result = core.reads.get(topic, queue_id, QueueOffset(0), 32)
    offset = 0
    while offset < result.max_offset:
        assert result.status is GetStatus.FOUND, (topic, queue_id, offset, result)
        found = [record for view in result.records for record in decode_records(view)]
        assert (len(found), sum(record.size for record in found)) == (result.count, result.size)
        assert result.next_offset == offset + len(found)
        records += found
        offset = result.next_offset
        result = core.reads.get(topic, queue_id, offset, 32)
    assert result.status is GetStatus.OFFSET_OVERFLOW_ONE
    return records


def assert_is_message(record: StoredRecord, message: golden.GoldenMessage) -> None:
    """Check that a record is what the Java client saw, field by field."""
    body = zlib.decompress(record.body) if record.sys_flag & flags.COMPRESSED else record.body
    properties = record.properties
    assert (
        golden.GoldenMessage(
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            size=record.size,
            message_id=properties.get("UNIQ_KEY", record.message_id),
            born_ms=record.born_ms,
            store_ms=record.store_ms,
            sys_flag=record.sys_flag,
            flag=record.flag,
            body_crc=record.body_crc,
            reconsume_times=record.reconsume_times,
            prepared_offset=record.prepared_offset,
            body_length=len(body),
            body_sha256=hashlib.sha256(body).hexdigest(),
            tags_text=properties.get("TAGS", "null"),
            keys_text=properties.get("KEYS", "null"),
            properties_text=message.properties_text,
        )
        == message
    )
    assert properties == message.properties


def assert_reads_back(core: StoreCore, store: str) -> None:
    """Check that every queue gives the messages of a golden store, as the Java client got them."""
    expected = stored_by_queue(store)
    assert {(queue.topic, queue.queue_id) for queue in core.queues} == set(expected)
    read = {(topic, queue_id): read_queue(core, topic, queue_id) for topic, queue_id in expected}
    assert read == expected
    messages = golden.messages_of(store)
    for message in messages:
        assert_is_message(read[message.topic, message.queue_id][message.queue_offset], message)
    seen_by_client = {message.topic for message in messages}
    assert len(messages) == sum(
        len(records) for (topic, _), records in read.items() if topic in seen_by_client
    )


def assert_finds_keys(core: StoreCore, store: str, *, step: int = 1) -> None:
    """Check that each key of a golden store, or one in so many, leads to just its messages."""
    for (topic, key), records in islice(stored_by_key(store).items(), 0, None, step):
        assert len(records) <= KEYED_MAX
        found = core.reads.query(topic, key, KEYED_MAX, 0, FOREVER_MS)
        assert [decode_record(view) for view in found] == records
