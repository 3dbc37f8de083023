"""Damage for tests: bytes of a file that are other ones than they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def patch(path: Path, position: int, data: bytes) -> None:
    """Write `data` over what a file has at `position`; nothing else of it changes."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
