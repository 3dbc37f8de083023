"""Work that is done in steps, done at once; and how many steps it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


def counted(steps: Generator[None, None, T]) -> tuple[T, int]:
    """Do all steps; return the result, and how often others had their turn in between."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result, count
        count += 1


def run(steps: Generator[None, None, T]) -> T:
    """Do all steps; return the result."""
    return counted(steps)[0]
