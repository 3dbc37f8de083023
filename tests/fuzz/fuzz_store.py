"""Files of a store: damaged ones are opened, read, written to and opened again.

The stores are small ones in memory, left as a clean stop, a kill, a stock broker or a recovery
point leaves them. What is damaged is one or two files: segments of log, queues and index, the
checkpoint, the recovery point (also one whose checksum is right), the tables of the broker.

A damaged store opens, or is refused with a `StoreError`. What lies before the damage of a log is
still there; damage outside of the log loses nothing that was refused or can be found in the log.
One that opened takes a message, and opens again with the same content. A `Reader` on the same files
gives only records that are right, at their places.
"""

from __future__ import annotations

import logging
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq.broker.delays.file import progress_after_cut
from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.errors import ConfigError, CorruptStoreError, RmqError, StorageError, StoreError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import decode_records
from rmq.store.checkpoint import decode_point, encode_point
from rmq.store.layout import RECOVERY_POINT_SLOT_BYTES, RecoveryPoint
from rmq.store.reader import Reader
from rmq.testing.storage import MemoryStorage
from tests.broker.tables.table_kit import Clock, golden_files, group_table, topic_table
from tests.fuzz.mutations import mutated_bytes, mutated_text
from tests.store.store_kit import (
    INDEX_CAPACITY,
    INDEX_SLOTS,
    ROOT,
    SEGMENT_BYTES,
    fill_segments,
    kill,
    message,
    open_core,
    put,
    put_numbered,
    save_point,
    stock_stop,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from rmq.broker.tables.groups import GroupTable
    from rmq.broker.tables.topics import TopicTable
    from rmq.model.record import StoredRecord
    from rmq.store.core import StoreCore

_QUEUES: Final = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))
_TABLES: Final = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
_DELAYS: Final = (
    '{"offsetTable":{1:12,2:7},"trail":{1:{100:3,200:12},2:{150:7}}}',
    '{"offsetTable":{"1":12}}',
)
_LOG_END: Final = PhysicalOffset(160)
_RARE: Final = (-(2**63), -1, 0, 1, 20, 8191, 8192, 8193, 2**31, 2**40, 2**63 - 1)
_SIZES: Final = (b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\x5a", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")


class _Message(NamedTuple):
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    end: int
    """The physical offset behind it."""


class _Image(NamedTuple):
    """A store that is not open, and what it holds."""

    storage: MemoryStorage
    files: dict[Path, bytes]
    messages: tuple[_Message, ...]


def examine(chance: random.Random) -> str:
    """Damage one store, or one table, and read it."""
    logging.disable(logging.CRITICAL)
    try:
        if chance.random() < 0.3:
            return _examine_table(chance)
        image = _image(chance.randrange(4))
        damage = dict(_damaged_files(image, chance))
        if chance.random() < 0.15:
            return _examine_reader(image, damage)
        return _examine_store(image, damage)
    finally:
        logging.disable(logging.NOTSET)


# --- the store -------------------------------------------------------------------------------


def _examine_store(image: _Image, damage: dict[Path, bytes | None]) -> str:
    storage = image.storage.kill()
    for path, data in damage.items():
        if data is None:
            storage.delete(path)
        else:
            storage.write(path, data)
    try:
        core = open_core(storage)
    except StoreError:
        return "store: refused"
    kept = _kept(image, damage)
    ended_at = core.log.written
    for each in kept:
        assert _body_at(core, each) == each.body, f"{each} lies before the damage and is lost"
    _read_all(core)
    _read_index(core)
    status = core.append([message(b"one more", topic="TopicC")])[0].status
    assert status.name == "PUT_OK", status
    core.close()
    try:
        again = open_core(storage)
    except CorruptStoreError:
        # Damage before the recovery point is seen when something has to be built again.
        if any("commitlog" in path.parts for path in damage):
            return "store: refused later"
        raise
    assert again.log.written > ended_at, "what was appended is lost"
    for each in kept:
        assert _body_at(again, each) == each.body, f"{each} is lost when it is opened again"
    last = _Message("TopicC", 0, 0, b"one more", 0)
    assert _body_at(again, last) == last.body
    again.close()
    return "store: opened"


def _kept(image: _Image, damage: dict[Path, bytes | None]) -> list[_Message]:
    """Return what must be there whatever was done to these files."""
    end = 1 << 62
    for path, data in damage.items():
        folder = path.relative_to(ROOT).parts[0]
        if folder == "commitlog":
            old = image.files[path]
            same = 0 if data is None else _common_bytes(old, data)
            end = min(end, int(path.name) + same)
        elif folder in ("consumequeue", "recovery-point"):
            # An entry is all that leads to a message; a point says what need not be read.
            return []
    return [each for each in image.messages if each.end <= end]


def _common_bytes(left: bytes, right: bytes) -> int:
    if len(left) != len(right):
        return 0
    return next(
        (i for i, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1]), len(left)
    )


def _body_at(core: StoreCore, wanted: _Message) -> bytes | None:
    result = core.reads.get(wanted.topic, wanted.queue_id, QueueOffset(wanted.queue_offset), 1)
    for view in result.records:
        for record in decode_records(view):
            return record.body
    return None


def _read_all(core: StoreCore) -> None:
    """Read each queue to its end, within bounds."""
    for topic, queue_id in _QUEUES:
        offset = core.reads.get(topic, queue_id, QueueOffset(0), 1).min_offset
        for _ in range(200):
            result = core.reads.get(topic, queue_id, offset, 32)
            if result.next_offset <= offset:
                break
            offset = result.next_offset
        else:
            raise AssertionError(f"{topic}/{queue_id} has no end")


def _read_index(core: StoreCore) -> None:
    for key in ("key0", "key7", "nothing"):
        views = core.reads.query("TopicA", key, 64, 0, 1 << 62)
        assert len(views) <= 64


# --- the reader ------------------------------------------------------------------------------


def _examine_reader(image: _Image, damage: dict[Path, bytes | None]) -> str:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path, sound in image.files.items():
            data = damage.get(path, sound)
            if data is not None:
                target = root / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        try:
            return _read_files(root, image)
        except (CorruptStoreError, StorageError, ConfigError):
            # A `ConfigError` if the size of an index file is not that of these settings.
            return "reader: refused"


def _read_files(root: Path, image: _Image) -> str:
    bodies = {(each.topic, each.queue_id, each.queue_offset): each.body for each in image.messages}
    bad: list[CorruptStoreError] = []
    with Reader(root, index_slots=INDEX_SLOTS, index_entries=INDEX_CAPACITY) as reader:
        for record in reader.records(on_bad=bad.append):
            _check(record, bodies)
        for bounds in reader.queues():
            for record in reader.messages(bounds.topic, bounds.queue_id, on_bad=bad.append):
                _check(record, bodies)
        for record in reader.find("TopicA", "key7"):
            _check(record, bodies)
    return "reader: damage told" if bad else "reader: read"


def _check(record: StoredRecord, bodies: dict[tuple[str, int, int], bytes]) -> None:
    """See that a record has its own body, if its place in a queue is one of those that were made.

    Topic, queue and queue offset have no checksum in this format.
    """
    body = bodies.get((record.topic, record.queue_id, record.queue_offset))
    assert record.body in bodies.values(), f"a body that was never stored: {record.body!r}"
    assert body is None or body == record.body or record.body in bodies.values()


# --- tables ----------------------------------------------------------------------------------


def _examine_table(chance: random.Random) -> str:
    name = chance.choice((*_TABLES, "delayOffset.json"))
    texts = _DELAYS if name == "delayOffset.json" else tuple(golden_files(name).values())
    data = chance.choice(texts).encode()
    data = mutated_text(data, chance)
    try:
        # What `ConfigFile.load` takes for damage.
        _load_table(name, data.decode())
    except (RmqError, ValueError):
        return "table: refused"
    return "table: read"


def _load_table(name: str, text: str) -> None:
    if name == "delayOffset.json":
        cut = progress_after_cut(text, _LOG_END)
        if cut is not None:
            assert progress_after_cut(cut, _LOG_END) in (None, cut), "a second cut goes further"
        return
    table, again = _table(name), _table(name)
    table.load(text)
    written = table.render()
    try:
        again.load(written)
    except (RmqError, ValueError) as exc:
        raise AssertionError(f"what was written cannot be read: {exc}: {written[:300]}") from exc
    assert len(again) == len(table), f"read again it says something else: {text[:2000]!r}"


def _table(name: str) -> TopicTable | GroupTable | ConsumerOffsets:
    match name:
        case "topics.json":
            return topic_table()
        case "subscriptionGroup.json":
            return group_table()
    return ConsumerOffsets(Clock())


# --- damage ----------------------------------------------------------------------------------


def _damaged_files(image: _Image, chance: random.Random) -> list[tuple[Path, bytes | None]]:
    folders = sorted({path.relative_to(ROOT).parts[0] for path in image.files})
    damaged: list[tuple[Path, bytes | None]] = []
    for _ in range(chance.choice((1, 1, 1, 2))):
        folder = chance.choice(folders)
        paths = [path for path in sorted(image.files) if path.relative_to(ROOT).parts[0] == folder]
        path = chance.choice(paths)
        damaged.append((path, _damaged(path.name, image.files[path], chance)))
    return damaged


def _damaged(name: str, data: bytes, chance: random.Random) -> bytes | None:
    kind = chance.random()
    if kind < 0.03:
        return None
    if kind < 0.12:
        return mutated_bytes(data, chance)
    if name == "recovery-point" and kind < 0.6:
        return _other_point(data, chance)
    return _patched(data, chance)


def _patched(data: bytes, chance: random.Random) -> bytes:
    """Return as many bytes, some of them others: near something that is written, mostly."""
    used = len(data.rstrip(b"\0"))
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(max(1, min(len(data), used + 8)))
        piece = _piece(data, chance)
        changed[place : place + len(piece)] = piece
    return bytes(changed[: len(data)])


def _piece(data: bytes, chance: random.Random) -> bytes:
    match chance.randrange(6):
        case 0:
            return bytes((chance.randrange(256),))
        case 1:
            return chance.choice(_SIZES)
        case 2:
            return (chance.choice(_RARE) & 2**64 - 1).to_bytes(8)
        case 3:
            return bytes(chance.choice((1, 20, 512, 4096)))
        case 4:
            return chance.randbytes(chance.choice((1, 4, 64)))
        case _:
            start = chance.randrange(len(data) + 1)
            return data[start : start + chance.choice((20, 100, 1000))]


def _other_point(data: bytes, chance: random.Random) -> bytes:
    """Return recovery points that say something else, with the right checksum."""
    changed = bytearray(data)
    for start in (0, RECOVERY_POINT_SLOT_BYTES):
        decoded = decode_point(data[start : start + RecoveryPoint.sizeof()])
        if decoded is None:
            continue
        sequence, point = decoded
        changes: dict[str, Any] = {}
        match chance.randrange(4):
            case 0:
                name = chance.choice(("", "x", "../../x", "20230101000000000", "9" * 20))
                changes["index_name"] = name
            case 1:
                other: dict[str, Any] = {
                    chance.choice(point.index_state._fields): chance.choice((0, 1, 7, 2**31 - 1))
                }
                changes["index_state"] = point.index_state._replace(**other)
            case 2:
                changes["physical_offset"] = _near(point.physical_offset, chance)
            case _:
                changes["queue_entries"] = _near(point.queue_entries, chance)
        slot = encode_point(sequence, point._replace(**changes))
        changed[start : start + len(slot)] = slot
    return bytes(changed)


def _near(sound: int, chance: random.Random) -> int:
    return chance.choice((*_RARE, sound - 1, sound + 1, sound - 100))


# --- stores ----------------------------------------------------------------------------------


@cache
def _image(number: int) -> _Image:
    """Return a store, the same for each number."""
    storage = MemoryStorage()
    core = open_core(storage)
    for place in range(24):
        topic, queue_id = _QUEUES[place % len(_QUEUES)]
        put_numbered(core, [place], topic=topic, queue_id=queue_id)
        if number == 1 and place == 10:
            save_point(core)
    if number:
        fill_segments(core, 3, queue_id=1, keys="some keys")
    if number == 3:
        save_point(core)
        put(core, [message(place, keys="later") for place in range(1000, 1012)])
    stops: tuple[Callable[[StoreCore], None], ...] = (kill, kill, stock_stop, kill)
    if number == 0:
        core.close()
    else:
        stops[number](core)
    storage = storage.kill()
    return _Image(storage, _files(storage, ROOT), _messages(storage.kill()))


def _files(storage: MemoryStorage, folder: Path) -> dict[Path, bytes]:
    files: dict[Path, bytes] = {}
    for name in storage.names(folder):
        path = folder / name
        if storage.is_directory(path):
            files |= _files(storage, path)
        else:
            files[path] = storage.read(path)
    return files


def _messages(storage: MemoryStorage) -> tuple[_Message, ...]:
    core = open_core(storage)
    found: list[_Message] = []
    for topic, queue_id in _QUEUES:
        offset = QueueOffset(0)
        while True:
            result = core.reads.get(topic, queue_id, offset, 32)
            records = [record for view in result.records for record in decode_records(view)]
            if not records:
                break
            found += [
                _Message(
                    record.topic,
                    record.queue_id,
                    record.queue_offset,
                    record.body,
                    record.physical_offset + record.size,
                )
                for record in records
            ]
            offset = result.next_offset
    assert found
    assert max(each.end for each in found) <= core.log.written
    core.close()
    return tuple(found)


assert SEGMENT_BYTES == 8192, "numbers in `_RARE` are near the end of a segment"
