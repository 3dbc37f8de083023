"""Small stores that are not open, what they hold, and ways to damage their files.

The stores are made once and copied for each input. They are left as a clean stop, a kill, a stock
broker or a recovery point leaves them.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq.model.offsets import QueueOffset
from rmq.model.record import BadRecordError, NeedMoreDataError, decode_record, decode_records
from rmq.store.checkpoint import decode_point, encode_point
from rmq.store.layout import RECOVERY_POINT_SLOT_BYTES, RecoveryPoint
from rmq.testing.storage import MemoryStorage
from tests.fuzz.mutations import mutated_bytes
from tests.store.store_kit import (
    ROOT,
    SEGMENT_BYTES,
    Clock,
    kill,
    log_path,
    message,
    open_core,
    put,
    save_point,
    stock_stop,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from rmq.store.core import StoreCore

IMAGES: Final = 4
QUEUES: Final = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))
_READ_STEPS_MAX: Final = 200
_FIRST_RECORDS: Final = 12
_FILLER_BYTES: Final = 450
"""With it a segment of the log has about fourteen records, a queue three files and more."""
_RARE: Final = (-(2**63), -1, 0, 1, 20, 8191, 8192, 8193, 2**31, 2**40, 2**63 - 1)
_SIZES: Final = (b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\x5a", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")

Damage = dict["Path", "bytes | None"]
"""What is in files instead; None for a file that is gone."""


class Queue(NamedTuple):
    """What a queue holds, in its order."""

    records: tuple[bytes, ...]
    ends: tuple[int, ...]
    """The physical offset behind each record."""
    content: bytes
    sizes: tuple[int, ...]
    """How many bytes of the content the first record takes, the first two, and so on."""

    def before(self, end: int) -> bytes:
        """Return the records that lie before a physical offset."""
        count = bisect_right(self.ends, end)
        return self.content[: self.sizes[count - 1]] if count else b""


class Image(NamedTuple):
    """A store that is not open, and what it holds."""

    number: int
    storage: MemoryStorage
    files: dict[Path, bytes]
    folders: tuple[tuple[Path, ...], ...]
    """The files by folder."""
    queues: dict[tuple[str, int], Queue]
    bodies: frozenset[bytes]
    flushed: int
    """The physical offset below which everything was on disk, as the store knew when it ended."""

    @property
    def is_clean(self) -> bool:
        return ROOT / "abort" not in self.files

    def damaged(self, damage: Damage) -> MemoryStorage:
        """Return a copy with other content in some files."""
        storage = self.storage.kill()
        for path, data in damage.items():
            if data is None:
                storage.delete(path)
            else:
                storage.write(path, data)
        return storage


@cache
def image(number: int) -> Image:
    """Return a store, the same for each number."""
    storage = MemoryStorage(now_ms=Clock())
    core = open_core(storage)
    for place in range(_FIRST_RECORDS):
        _put_one(core, place, *QUEUES[place % len(QUEUES)], filler=place % 3 * 40)
        if number == 1 and place == _FIRST_RECORDS // 2:
            save_point(core)
    if number:
        place = _FIRST_RECORDS
        while len(core.log.segments) < 3 or core.log.written == core.log.segment_first:
            _put_one(core, place, "TopicA", 1, filler=_FILLER_BYTES)
            place += 1
    if number == 3:
        save_point(core)
        for place in range(1000, 1012):
            _put_one(core, place, "TopicA", 0, filler=0)
    stops: tuple[Callable[[StoreCore], None], ...] = (_stop, kill, stock_stop, kill)
    flushed = core.log.flushed if stops[number] is kill else core.log.written
    stops[number](core)
    storage = storage.kill()
    files = _files(storage, ROOT)
    names = sorted({path.relative_to(ROOT).parts[0] for path in files})
    folders = tuple(
        tuple(path for path in sorted(files) if path.relative_to(ROOT).parts[0] == name)
        for name in names
    )
    core = open_core(storage.kill())
    queues = {queue: _queue(content) for queue, content in read_queues(core).items()}
    assert all(queue.ends[-1] <= core.log.written for queue in queues.values())
    core.close()
    bodies = frozenset(
        record.body for queue in queues.values() for record in decode_records(queue.content)
    )
    return Image(number, storage, files, folders, queues, bodies, flushed)


def _stop(core: StoreCore) -> None:
    core.close()


def _put_one(core: StoreCore, place: int, topic: str, queue_id: int, *, filler: int) -> None:
    body = b"body %d " % place + b"." * filler
    keys = "some keys" if place % 3 == 0 else ""
    put(core, [message(body, topic=topic, queue_id=queue_id, keys=keys, unique_key=f"key{place}")])


def _queue(content: bytes) -> Queue:
    found = list(decode_records(content))
    assert found
    sizes = tuple(accumulate(record.size for record in found))
    starts = (0, *sizes)
    return Queue(
        tuple(content[start:stop] for start, stop in zip(starts, sizes, strict=False)),
        tuple(record.physical_offset + record.size for record in found),
        content,
        sizes,
    )


def _files(storage: MemoryStorage, folder: Path) -> dict[Path, bytes]:
    files: dict[Path, bytes] = {}
    for name in storage.names(folder):
        path = folder / name
        if storage.is_directory(path):
            files |= _files(storage, path)
        else:
            files[path] = storage.read(path)
    return files


def read_queues(core: StoreCore) -> dict[tuple[str, int], bytes]:
    """Return all records of each queue, read to its end within bounds."""
    contents: dict[tuple[str, int], bytes] = {}
    for topic, queue_id in QUEUES:
        offset = core.reads.get(topic, queue_id, QueueOffset(0), 1).min_offset
        views: list[memoryview] = []
        for _ in range(_READ_STEPS_MAX):
            result = core.reads.get(topic, queue_id, offset, 32)
            views += result.records
            if result.next_offset <= offset:
                break
            offset = result.next_offset
        else:
            raise AssertionError(f"{topic}/{queue_id} has no end")
        contents[topic, queue_id] = b"".join(views)
    return contents


# --- damage ----------------------------------------------------------------------------------


def damage_of(store: Image, chance: random.Random) -> Damage:
    """Damage one file or some."""
    damage: Damage = {}
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        path = chance.choice(chance.choice(store.folders))
        damage[path] = _damaged(path.name, store.files[path], chance)
    return damage


def sound_end(store: Image, damage: Damage) -> int:
    """Return the physical offset before which the log is as it was."""
    end = 1 << 62
    for path, data in damage.items():
        if path.parent.name == "commitlog":
            same = 0 if data is None else _common_bytes(store.files[path], data)
            end = min(end, int(path.name) + same)
    return end


def has_other(damage: Damage, *names: str) -> bool:
    """Tell whether something in one of these folders or files is damaged."""
    return any(path.relative_to(ROOT).parts[0] in names for path in damage)


def has_other_entries(damage: Damage) -> bool:
    """Tell whether a file of a queue has other bytes; one that is gone shows, and is made again."""
    return any(
        data is not None and path.relative_to(ROOT).parts[0] == "consumequeue"
        for path, data in damage.items()
    )


def sound_records_from(store: Image, damage: Damage, start: int) -> list[int]:
    """Return where the records lie from an offset on that were on disk, and are as they were."""
    found = []
    for queue in store.queues.values():
        for record, end in zip(queue.records, queue.ends, strict=True):
            physical = end - len(record)
            if (
                physical >= start
                and end <= store.flushed
                and _is_there(store, damage, physical, record)
            ):
                found.append(physical)
    return found


def _is_there(store: Image, damage: Damage, physical: int, record: bytes) -> bool:
    path = log_path(physical - physical % SEGMENT_BYTES)
    data = damage.get(path, store.files[path])
    place = physical % SEGMENT_BYTES
    return data is not None and data[place : place + len(record)] == record


def queues_made_again(store: Image, damage: Damage) -> set[tuple[str, int]]:
    """Return the queues of which a record says that its topic was deleted before, and made again.

    Such a record has queue offset 0. The format has no checksum for that, nor for topic and queue.
    """
    found: set[tuple[str, int]] = set()
    for path, data in damage.items():
        if data is None or path.parent.name != "commitlog":
            continue
        first = int(path.name)
        for queue in store.queues.values():
            for record, end in zip(queue.records, queue.ends, strict=True):
                start = end - len(record) - first
                changed = data[start : end - first] if 0 <= start < SEGMENT_BYTES else record
                if changed != record:
                    with suppress(BadRecordError, NeedMoreDataError):
                        said = decode_record(changed)
                        if said.queue_offset == 0:
                            found.add((said.topic, said.queue_id))
    return found


def _common_bytes(left: bytes, right: bytes) -> int:
    if len(left) != len(right):
        return 0
    same, other = 0, len(left) + 1
    while other - same > 1:
        middle = (same + other) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            other = middle
    return same


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


assert SEGMENT_BYTES == 8192, "numbers in `_RARE` are near the end of a segment"
