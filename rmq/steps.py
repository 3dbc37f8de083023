"""Work that takes long, done in steps of about a millisecond with other tasks between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Do all steps; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()
