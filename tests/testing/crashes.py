"""All ends a crash can have: the choices of a storage gone through one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.testing.storage import MemoryStorage


def every_crash(storage: MemoryStorage) -> Iterator[MemoryStorage]:
    """Yield the storage after each possible power cut; for small files and small sectors."""
    path: list[int] = []
    while True:
        taken: list[int] = []
        limits: list[int] = []

        def choose(
            limit: int,
            path: list[int] = path,
            taken: list[int] = taken,
            limits: list[int] = limits,
        ) -> int:
            taken.append(path[len(taken)] if len(taken) < len(path) else 0)
            limits.append(limit)
            return taken[-1]

        yield storage.crash(choose)
        while taken and taken[-1] == limits[-1] - 1:
            taken.pop()
            limits.pop()
        if not taken:
            return
        path = [*taken[:-1], taken[-1] + 1]


def every_content(storage: MemoryStorage, path: Path) -> set[bytes | None]:
    """Return each content a file can have after a power cut, None where it is gone."""
    return {
        crashed.read(path) if crashed.exists(path) else None for crashed in every_crash(storage)
    }
