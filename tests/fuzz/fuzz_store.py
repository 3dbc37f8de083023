"""Files of a store: damaged ones are opened, read, written to and opened again.

The stores are the small ones of `store_images`, in memory. What is damaged is one or two files:
segments of log, queues and index, the checkpoint, the recovery point (also one whose checksum is
right).

A damaged store opens, or is refused with a `StoreError`. What lies before the damage of a log is
still there; damage outside of the log loses nothing that was refused or can be found in the log.
One that opened takes a message, and opens again with the same content. A `Reader` on the same files
gives only records that are right.
"""

from __future__ import annotations

import logging
import tempfile
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError, CorruptStoreError, StorageError, StoreError
from rmq.model.offsets import QueueOffset
from rmq.store.reader import Reader
from tests.fuzz.store_images import (
    IMAGES,
    damage_of,
    has_other,
    has_other_entries,
    image,
    queues_made_again,
    read_queues,
    sound_end,
    sound_records_from,
)
from tests.store.store_kit import INDEX_CAPACITY, INDEX_SLOTS, ROOT, message, open_core, read_bodies

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from rmq.store.core import StoreCore
    from tests.fuzz.store_images import Damage, Image

_READERS_SHARE: Final = 0.15
_END_MS: Final = 1 << 62
_KEYS: Final = {
    "key0": (0, ("TopicA", 0)),
    "key7": (2, ("TopicA", 1)),
    "nothing": (None, ("TopicA", 0)),
}
"""Keys that messages have, and where these are."""


@contextmanager
def examiner() -> Iterator[Callable[[random.Random], str]]:
    """Give a function that examines one input; what all of them need is there until the end."""
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(prefix="fuzz-store-") as name:
            folders = _Folders(Path(name))

            def examine(chance: random.Random) -> str:
                store = image(chance.randrange(IMAGES))
                damage = damage_of(store, chance)
                if chance.random() < _READERS_SHARE:
                    return folders.examine(store, damage)
                return _examine_store(store, damage)

            yield examine
    finally:
        logging.disable(logging.NOTSET)


# --- the store -------------------------------------------------------------------------------


def _examine_store(store: Image, damage: Damage) -> str:
    storage = store.damaged(damage)
    try:
        core = open_core(storage)
    except StoreError:
        return "refused"
    ended_at = core.log.written
    content = read_queues(core)
    # Of a store that was killed only a point tells what was on disk.
    if store.is_clean or not has_other(damage, "checkpoint", "recovery-point"):
        given_up = sound_records_from(store, damage, ended_at)
        assert not given_up, f"the log ends at {ended_at}, sound records follow at {given_up}"
    end = sound_end(store, damage)
    # An entry is all that leads to a message; a point says what need not be read.
    is_led_to = not has_other(damage, "recovery-point") and not has_other_entries(damage)
    lost = list(_lost(core, store, content, end)) if is_led_to else []
    if lost:
        excused = queues_made_again(store, damage)
        unexcused = [each for each in lost if each[:2] not in excused]
        assert not unexcused, f"{unexcused} lie before the damage and are lost"
    _read_index(core, store, 0 if has_other(damage, "index", "recovery-point") else end)
    status = core.append([message(b"one more", topic="TopicC")])[0].status
    assert status.name == "PUT_OK", status
    core.close()
    again = open_core(storage)
    assert again.log.written > ended_at, "what was appended is lost"
    _check_still_there(again, store, content)
    assert read_bodies(again, "TopicC") == [b"one more"]
    again.close()
    return "opened"


def _lost(
    core: StoreCore, store: Image, content: dict[tuple[str, int], bytes], end: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the messages before this physical offset that are not where they were."""
    for (topic, queue_id), queue in store.queues.items():
        if content[topic, queue_id].startswith(queue.before(end)):
            continue
        are_there = True
        for place, record in enumerate(queue.records):
            if queue.ends[place] <= end:
                views = core.reads.get(topic, queue_id, QueueOffset(place), 1).records
                if b"".join(views) != record:
                    are_there = False
                    yield topic, queue_id, place
        assert not are_there, f"{topic}/{queue_id} cannot be read in one go"


def _check_still_there(
    again: StoreCore, store: Image, content: dict[tuple[str, int], bytes]
) -> None:
    """Check that what could be read before can be; queues built again may have more."""
    content_again = read_queues(again)
    for key, queue in store.queues.items():
        if content_again[key] != content[key]:
            for place, record in enumerate(queue.records):
                assert record not in content[key] or record in content_again[key], (
                    f"message {place} of {key} is lost when the store is opened again"
                )


def _read_index(core: StoreCore, store: Image, end: int) -> None:
    """Check that keys lead to the records before a physical offset."""
    for key, (place, queue) in _KEYS.items():
        views = core.reads.query(queue[0], key, 64, 0, _END_MS)
        assert len(views) <= 64
        if place is not None and store.queues[queue].ends[place] <= end:
            record = store.queues[queue].records[place]
            assert record in views, f"{key} does not lead to message {place} of {queue}"


# --- the reader ------------------------------------------------------------------------------


class _Folders:
    """The stores as files on disk, of which only those change that an input damages."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._roots: dict[int, Path] = {}

    def examine(self, store: Image, damage: Damage) -> str:
        root = self._root(store)
        try:
            for path, data in damage.items():
                _write(root / path.relative_to(ROOT), data)
            return _read_files(root, store)
        except (CorruptStoreError, StorageError, ConfigError):
            # A `ConfigError` if the size of an index file is not that of these settings.
            return "reader: refused"
        finally:
            for path in damage:
                _write(root / path.relative_to(ROOT), store.files[path])

    def _root(self, store: Image) -> Path:
        root = self._roots.get(store.number)
        if root is None:
            root = self._roots[store.number] = self._parent / str(store.number)
            for path, data in store.files.items():
                target = root / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        return root


def _write(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink()
        return
    # In place: to cut a file to nothing first takes most file systems a hundred times as long.
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(data)
        file.truncate()


def _read_files(root: Path, store: Image) -> str:
    bad: list[CorruptStoreError] = []
    with Reader(root, index_slots=INDEX_SLOTS, index_entries=INDEX_CAPACITY) as reader:
        for record in chain(
            reader.records(on_bad=bad.append),
            *(
                reader.messages(bounds.topic, bounds.queue_id, on_bad=bad.append)
                for bounds in reader.queues()
            ),
            reader.find("TopicA", "key7"),
        ):
            # Topic, queue and queue offset have no checksum in this format.
            assert record.body in store.bodies, f"a body that was never stored: {record.body!r}"
    return "reader: damage told" if bad else "reader: read"
