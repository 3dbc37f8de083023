"""Work that is done in steps, done at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


def finish(steps: Generator[None, None, T]) -> T:
    """Do all steps; return the result."""
    return count_steps(steps)[0]


def count_steps(steps: Generator[None, None, T]) -> tuple[T, int]:
    """Do all steps; return the result, and how many they were."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1
