"""Measures always how late the event loop is: the trio glue of `rmq.remoting.event_loop.lag`."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.remoting.event_loop.lag import LoopLag

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.1
"""Ten wakings a second cost less than a thousandth of a core."""


async def watch_loop(
    lag: LoopLag,
    recent_codes: Callable[[], Sequence[int]],
    processor_s: Callable[[], float] = time.thread_time,
) -> None:
    """Note how late this task wakes, until cancelled; `recent_codes` as in `LoopLag.note`.

    A warning is logged for long steps of this process; that the machine was busy is information.
    """
    while True:
        due, worked_since = trio.current_time() + INTERVAL_S, processor_s()
        await trio.sleep_until(due)
        now = trio.current_time()
        held_up = lag.note(now - due, now, recent_codes(), processor_s() - worked_since)
        if held_up is not None:
            logger.log(logging.WARNING if held_up.is_own else logging.INFO, "%s", held_up.line)
