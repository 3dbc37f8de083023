"""What the tests of the storage seam share: both storages in one place, and errors as facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rmq.errors import StorageError
from rmq.store.storage import DiskStorage
from rmq.testing.storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmq.store.storage import Storage

STORAGES = ["disk", "memory"]


@dataclass(frozen=True)
class Place:
    """A storage, and an empty directory on it."""

    storage: Storage
    root: Path


def place_on(kind: str, root: Path) -> Place:
    """Return a storage of this kind; `root` is an empty directory of the real file system.

    In memory it has the same path, so that errors of both can be compared.
    """
    if kind == "disk":
        return Place(DiskStorage(), root)
    storage = MemoryStorage()
    storage.make_directory(root)
    return Place(storage, root)


@dataclass(frozen=True)
class Refusal:
    """What an error says."""

    kind: type[StorageError]
    operation: str
    path: str
    reason: str
    hint: str | None

    @classmethod
    def of(cls, error: StorageError) -> Refusal:
        return cls(type(error), error.operation, error.path, error.reason, error.hint)


def refusal_of(call: Callable[[], object]) -> Refusal:
    """Return the error that a call must raise."""
    with pytest.raises(StorageError) as caught:
        call()
    return Refusal.of(caught.value)
