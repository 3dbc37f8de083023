"""What the tests of the store's engine share: a store small enough to fill, and looks into it.

The geometry makes every boundary near: a segment of the log has two pages, one of a queue ten
entries, an index file nineteen. Time stands still unless a test moves the `Clock`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmq.model.offsets import QueueOffset
from rmq.model.record import NewMessage, StoredRecord, decode_records
from rmq.store.append import AppendResult, AppendStatus
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.testing.storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmq.store.storage import Storage

ROOT: Final = Path("store")
"""Where a store in memory is."""

TOPIC: Final = "TopicA"
START_MS: Final = 1_700_000_000_000

SEGMENT_BYTES: Final = 8192
QUEUE_ENTRIES: Final = 10
QUEUE_SEGMENT_BYTES: Final = QUEUE_ENTRIES * 20
INDEX_SLOTS: Final = 50
INDEX_CAPACITY: Final = 20
INDEX_ENTRIES: Final = INDEX_CAPACITY - 1
"""How many entries an index file really takes."""

HEAD_BYTES: Final = 88
"""The fixed part of a record over IPv4, with the length of the body."""
RECORD_BYTES_MIN: Final = HEAD_BYTES + 1 + 2


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def small_config(root: Path = ROOT, **changes: Any) -> StoreConfig:  # noqa: ANN401 - any setting
    """Return a configuration with the small geometry, or with what `changes` says."""
    settings: dict[str, Any] = {
        "root": root,
        "segment_bytes": SEGMENT_BYTES,
        "queue_segment_bytes": QUEUE_SEGMENT_BYTES,
        "index_slots": INDEX_SLOTS,
        "index_entries": INDEX_CAPACITY,
    }
    return StoreConfig(**settings | changes)


def open_core(
    storage: Storage,
    config: StoreConfig | None = None,
    *,
    clock: Clock | None = None,
    memory_bytes: int = 1 << 30,
) -> StoreCore:
    """Open the store on a storage."""
    return StoreCore(
        config or small_config(),
        storage=storage,
        now_ms=clock or Clock(),
        memory_bytes=memory_bytes,
    )


def properties(
    *,
    tags: str = "",
    keys: str = "",
    unique_key: str = "",
    delay: str = "",
) -> bytes:
    """Return encoded properties; what is empty is left out."""
    named = {"UNIQ_KEY": unique_key, "KEYS": keys, "TAGS": tags, "DELAY": delay}
    return "\x02".join(f"{name}\x01{value}" for name, value in named.items() if value).encode()


def message(
    body: bytes | int = b"body",
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    tags: str = "",
    keys: str = "",
    unique_key: str = "",
    delay: str = "",
    **fields: Any,  # noqa: ANN401 - any field of NewMessage
) -> NewMessage:
    """Return a message; a number as its body makes one that is easy to tell from others."""
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=b"body %d" % body if isinstance(body, int) else body,
        properties=properties(tags=tags, keys=keys, unique_key=unique_key, delay=delay),
        **fields,
    )


def message_of_size(size: int, *, topic: str = TOPIC, queue_id: int = 0) -> NewMessage:
    """Return a message whose record takes exactly `size` bytes."""
    return message(b"x" * (size - RECORD_BYTES_MIN - len(topic)), topic=topic, queue_id=queue_id)


def put(core: StoreCore, messages: Sequence[NewMessage]) -> list[AppendResult]:
    """Append messages that must all be taken."""
    results = core.append(messages)
    assert [result.status for result in results] == [AppendStatus.PUT_OK] * len(messages), results
    return results


def put_numbered(core: StoreCore, numbers: Iterable[int], **changes: Any) -> list[AppendResult]:  # noqa: ANN401 - as `message`
    """Append one message with a unique key for each number, one by one."""
    return [put(core, [message(n, unique_key=f"key{n}", **changes)])[0] for n in numbers]


def numbered_bodies(numbers: Iterable[int]) -> list[bytes]:
    return [b"body %d" % number for number in numbers]


def fill_segments(core: StoreCore, segments: int, **changes: Any) -> int:  # noqa: ANN401 - as `message`
    """Append numbered messages until the log has this many segments; return how many they are."""
    count = 0
    while len(core.log.segments) < segments or core.log.written == core.log.segment_first:
        put_numbered(core, [count], **changes)
        count += 1
    return count


def read_queue(core: StoreCore, topic: str = TOPIC, queue_id: int = 0) -> list[StoredRecord]:
    """Return all messages of a queue, as a consumer gets them from the first one on."""
    found: list[StoredRecord] = []
    result = core.reads.get(topic, queue_id, QueueOffset(-1), 32)
    result = core.reads.get(topic, queue_id, result.min_offset, 32)
    while result.records:
        for view in result.records:
            found += decode_records(view)
        result = core.reads.get(topic, queue_id, result.next_offset, 32)
    return found


def read_bodies(core: StoreCore, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    return [record.body for record in read_queue(core, topic, queue_id)]


def query_bodies(core: StoreCore, key: str, topic: str = TOPIC, count: int = 64) -> list[bytes]:
    """Return the bodies of all messages that carry a key."""
    return [
        record.body
        for view in core.reads.query(topic, key, count, 0, 1 << 62)
        for record in decode_records(view)
    ]


def stock_stop(core: StoreCore) -> None:
    """Stop a store and leave it as a stock broker does: clean, and without a recovery point."""
    core.close()
    core.storage.delete(core.config.root / "recovery-point")


def kill(core: StoreCore) -> None:
    """Leave a store as a killed process does: nothing is flushed, and `abort` stays."""
    core.release()


def save_point(core: StoreCore) -> None:
    """Let a store save a recovery point, as it does by itself from time to time."""
    plan = core.plan_point()
    assert plan is not None
    plan.run()
    core.finish_point(plan)


def three_records(stop: Callable[[StoreCore], None]) -> MemoryStorage:
    """Return a store of three records of 1000 bytes, stopped in this way."""
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message_of_size(1000) for _ in range(3)])
    stop(core)
    return storage


def four_segments(stop: Callable[[StoreCore], None]) -> tuple[MemoryStorage, int]:
    """Return a store of four segments with a recovery point at its end, and how many it holds."""
    storage = MemoryStorage()
    core = open_core(storage)
    count = fill_segments(core, 4)
    save_point(core)
    stop(core)
    return storage, count


def remove_tree(storage: Storage, path: Path) -> None:
    for name in storage.names(path) if storage.is_directory(path) else []:
        remove_tree(storage, path / name)
    storage.delete(path)


def forget_point(storage: Storage, root: Path = ROOT) -> None:
    storage.delete(root / "recovery-point")


def overwrite(storage: Storage, path: Path, position: int, data: bytes) -> None:
    """Change bytes of a file of a store that is not open, durably."""
    file = storage.open(path)
    file.buffer[position : position + len(data)] = data
    file.sync()
    file.close()


def flip(storage: Storage, path: Path, position: int, mask: int = 1) -> None:
    """Flip bits of one byte of a file of a store that is not open."""
    (byte,) = storage.read(path)[position : position + 1]
    overwrite(storage, path, position, bytes((byte ^ mask,)))


def content(storage: Storage, folder: Path = ROOT) -> dict[str, bytes]:
    """Return the bytes of all files in a folder and below, by their path from there."""
    found: dict[str, bytes] = {}
    for name in storage.names(folder):
        path = folder / name
        if storage.is_directory(path):
            found |= {f"{name}/{below}": data for below, data in content(storage, path).items()}
        else:
            found[name] = storage.read(path)
    return found


def log_path(first: int = 0, root: Path = ROOT) -> Path:
    return root / "commitlog" / f"{first:020d}"


def queue_path(first: int = 0, topic: str = TOPIC, queue_id: int = 0, root: Path = ROOT) -> Path:
    """Return the file of a queue that begins at byte `first`."""
    return root / "consumequeue" / topic / str(queue_id) / f"{first:020d}"


def index_paths(storage: Storage, root: Path = ROOT) -> list[Path]:
    return [root / "index" / name for name in storage.names(root / "index")]


@dataclass(frozen=True)
class RecordFilter:
    """A filter by tags codes and by what is in the record; None lets everything through."""

    codes: frozenset[int] | None = None
    text: bytes | None = None

    def matches_tags_code(self, tags_code: int) -> bool:
        return self.codes is None or tags_code in self.codes

    def matches_record(self, record: memoryview) -> bool:
        return self.text is None or self.text in bytes(record)
