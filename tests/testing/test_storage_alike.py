"""The disk and the memory that stands in for it are asked the same, and must answer the same.

First every refusal that both can give, word for word; then drawn sequences of calls, in which each
result, each error and in the end each file must agree.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import StorageError
from tests.store.storage_contract import STORAGES, Place, Refusal, place_on, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.store.storage import MappedFile, StoreLock

# --- refusals -------------------------------------------------------------------------------


def closed(place: Place) -> MappedFile:
    file = place.storage.create(place.root / "another", 10)
    file.close()
    return file


def deleted(place: Place) -> MappedFile:
    file = place.storage.create(place.root / "another", 10)
    place.storage.delete(file.path)
    file.close()
    return file


REFUSALS: dict[str, Callable[[Place], object]] = {
    "look at a name too long": lambda at: at.storage.exists(at.root / ("x" * 256)),
    "ask if a name too long is a directory": lambda at: at.storage.is_directory(
        at.root / ("x" * 256)
    ),
    "list a file": lambda at: at.storage.names(at.root / "file"),
    "list below a file": lambda at: at.storage.names(at.root / "file" / "below"),
    "size of nothing": lambda at: at.storage.size_of(at.root / "missing"),
    "time of nothing": lambda at: at.storage.modified_ms(at.root / "missing"),
    "time below a file": lambda at: at.storage.modified_ms(at.root / "file" / "below"),
    "directory over a file": lambda at: at.storage.make_directory(at.root / "file"),
    "directory below a file": lambda at: at.storage.make_directory(at.root / "file" / "a" / "b"),
    "directory below a file of its name": lambda at: at.storage.make_directory(
        at.root / "file" / "file"
    ),
    "create over a file": lambda at: at.storage.create(at.root / "file", 10),
    "create over a directory": lambda at: at.storage.create(at.root / "folder", 10),
    "create in no directory": lambda at: at.storage.create(at.root / "missing" / "x", 10),
    "create below a file": lambda at: at.storage.create(at.root / "file" / "x", 10),
    "create with less than nothing": lambda at: at.storage.create(at.root / "new", -1),
    "create far too big": lambda at: at.storage.create(at.root / "new", 2**62),
    "create with a name too long": lambda at: at.storage.create(at.root / ("x" * 256), 10),
    "open nothing": lambda at: at.storage.open(at.root / "missing"),
    "open a directory": lambda at: at.storage.open(at.root / "folder"),
    "open a directory to read": lambda at: at.storage.open(at.root / "folder", writable=False),
    "open below a file": lambda at: at.storage.open(at.root / "file" / "x"),
    "resize nothing": lambda at: at.storage.resize(at.root / "missing", 10),
    "resize a directory": lambda at: at.storage.resize(at.root / "folder", 10),
    "resize to less than nothing": lambda at: at.storage.resize(at.root / "file", -1),
    "read nothing": lambda at: at.storage.read(at.root / "missing"),
    "read a directory": lambda at: at.storage.read(at.root / "folder"),
    "write over a directory": lambda at: at.storage.write(at.root / "folder", b"x"),
    "write in no directory": lambda at: at.storage.write(at.root / "missing" / "x", b"x"),
    "write below a file": lambda at: at.storage.write(at.root / "file" / "x", b"x"),
    "delete a full directory": lambda at: at.storage.delete(at.root / "folder"),
    "delete below a file": lambda at: at.storage.delete(at.root / "file" / "below"),
    "sync no directory": lambda at: at.storage.sync_directory(at.root / "missing"),
    "sync a file as a directory": lambda at: at.storage.sync_directory(at.root / "file"),
    "lock in no directory": lambda at: at.storage.lock(at.root / "missing" / "lock"),
    "lock a directory": lambda at: at.storage.lock(at.root / "folder"),
    "sync what is closed": lambda at: closed(at).sync(),
    "lock the memory of what is closed": lambda at: closed(at).lock_memory(),
    "reserve for what is deleted": lambda at: deleted(at).reserve(0, 10),
    "clear what is deleted": lambda at: deleted(at).clear_from(0),
    "look into what is deleted": lambda at: deleted(at).is_clear_from(0),
    "clear from before the start": lambda at: at.storage.open(at.root / "file").clear_from(-1),
    "reserve from before the start": lambda at: at.storage.open(at.root / "file").reserve(-5, 3),
}


@pytest.mark.parametrize("call", REFUSALS.values(), ids=REFUSALS.keys())
def test_both_refuse_in_the_same_words(tmp_path: Path, call: Callable[[Place], object]) -> None:
    refusals = []
    for kind in STORAGES:
        place = place_on(kind, tmp_path)
        place.storage.write(tmp_path / "file", b"content")
        place.storage.make_directory(tmp_path / "folder" / "inner")
        refusals.append(refusal_of(partial(call, place)))
        assert place.storage.read(tmp_path / "file") == b"content"
    assert refusals[0] == refusals[1]


# --- drawn sequences ------------------------------------------------------------------------

PATHS = ["a", "b", "d", "d/e", "d/f", "a/x", "d/g/h"]
SIZES = [0, 1, 100, 4096, 9000]
POSITIONS = [0, 1, 511, 4096, 8999, 20_000]

Step = tuple[str, str, int, int]
steps = st.tuples(
    st.sampled_from(
        [
            "create",
            "create",
            "open",
            "open to read",
            "fill",
            "fill",
            "write",
            "replace",
            "read",
            "resize",
            "delete",
            "clear_from",
            "is_clear_from",
            "reserve",
            "touch",
            "sync",
            "close",
            "make_directory",
            "make_directory",
            "names",
            "exists",
            "is_directory",
            "size_of",
            "sync_directory",
            "lock",
            "release",
        ]
    ),
    st.sampled_from(PATHS),
    st.sampled_from(POSITIONS),
    st.sampled_from(SIZES),
)


class Walk:
    """Takes the steps of a sequence on one storage and notes what came of them."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.files: dict[Path, list[MappedFile]] = {}
        self.locks: dict[Path, StoreLock] = {}
        self.notes: list[object] = []

    def take(self, step: Step) -> None:
        name, path, position, size = step
        try:
            self.notes.append(self._outcome(name, self.place.root / path, position, size))
        except StorageError as error:
            self.notes.append(Refusal.of(error))

    def _outcome(self, name: str, path: Path, position: int, size: int) -> object:
        storage = self.place.storage
        files = self.files.setdefault(path, [])
        if name == "create":
            files.append(storage.create(path, size))
        elif name.startswith("open"):
            files.append(storage.open(path, writable=name == "open"))
        elif name in ("write", "resize"):
            # Views keep a file from changing its size in memory, and on disk they are deadly then.
            self._close(path)
            if name == "write":
                storage.write(path, bytes([size % 251]) * size)
            else:
                storage.resize(path, size)
        elif name == "replace":
            storage.replace(path, bytes([size % 251]) * size)
        elif name == "size_of":
            return None if storage.is_directory(path) else storage.size_of(path)
        elif name == "lock":
            self._close(path)
            lock = storage.lock(path)
            if lock is not None:
                self.locks[path] = lock
            return lock is not None
        elif name == "release":
            if path in self.locks:
                self.locks.pop(path).release()
        elif name == "close":
            self._close(path)
        elif name in ("fill", "clear_from", "is_clear_from", "reserve", "touch", "sync"):
            return [self._use(file, name, position, size) for file in files]
        else:
            return getattr(storage, name)(path)
        return None

    @staticmethod
    def _use(file: MappedFile, name: str, position: int, size: int) -> object:
        if name == "fill":
            view = file.buffer[position : position + size]
            if not view.readonly:
                view[:] = b"x" * len(view)
            return bytes(file.buffer)
        arguments = {
            "clear_from": (position,),
            "is_clear_from": (position,),
            "reserve": (position, position + size),
            "touch": (position, position + size),
            "sync": (),
        }[name]
        return getattr(file, name)(*arguments)

    def _close(self, path: Path) -> None:
        for file in self.files.pop(path, []):
            file.close()

    def finish(self) -> dict[str, bytes | None]:
        """Let go of everything; return all that is there."""
        for path in list(self.files):
            self._close(path)
        for lock in self.locks.values():
            lock.release()
        found: dict[str, bytes | None] = {}
        self._collect(self.place.root, found)
        return found

    def _collect(self, directory: Path, found: dict[str, bytes | None]) -> None:
        storage = self.place.storage
        for name in storage.names(directory):
            path = directory / name
            is_directory = storage.is_directory(path)
            found[str(path)] = None if is_directory else storage.read(path)
            if is_directory:
                self._collect(path, found)


@settings(max_examples=60)
@given(st.lists(steps, max_size=30))
def test_both_agree_on_any_sequence_of_calls(sequence: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        walks = [Walk(place_on(kind, Path(folder))) for kind in STORAGES]
        for walk in walks:
            for step in sequence:
                walk.take(step)
        left = [walk.finish() for walk in walks]
    assert walks[0].notes == walks[1].notes
    assert left[0] == left[1]
