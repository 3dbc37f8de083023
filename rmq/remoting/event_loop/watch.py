"""Measures always how late the event loop is: the trio glue of `rmq.remoting.event_loop.lag`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.remoting.event_loop.lag import LoopLag

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.1
"""Ten wakings a second cost less than a thousandth of a core."""


async def watch_loop(lag: LoopLag, recent_codes: Callable[[], Sequence[int]]) -> None:
    """Note how late this task wakes, until cancelled; `recent_codes` as in `LoopLag.note`."""
    while True:
        due = trio.current_time() + INTERVAL_S
        await trio.sleep_until(due)
        now = trio.current_time()
        line = lag.note(now - due, now, recent_codes())
        if line is not None:
            logger.warning("%s", line)
