"""Calls that block, run in a thread: also when the system allows no more threads.

A process that has used up its address space, or its number of threads, cannot start one. Then the
call runs where it is made: everything else waits for it, which is better than a flush that fails.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

logger = logging.getLogger(__name__)

_failures: Final = count(1)


async def run_in_thread(
    call: Callable[..., T],
    *args: object,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> T:
    """Do what `trio.to_thread.run_sync` does, without a thread if none can be started."""
    has_begun = False

    def run() -> T:
        nonlocal has_begun
        has_begun = True
        return call(*args)

    try:
        return await trio.to_thread.run_sync(
            run, limiter=limiter, abandon_on_cancel=abandon_on_cancel
        )
    except RuntimeError as exc:
        if has_begun:
            raise
        failures = next(_failures)
        if failures & (failures - 1) == 0:
            logger.error("no thread can be started, %d times so far: %s", failures, exc)
    return call(*args)
