"""Reads files with accounts or credentials again when they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S: Final = 5.0
"""Seconds between two checks whether a file has changed, as in RocketMQ 4.9.8."""


async def watch(poll: Callable[[], object]) -> None:
    """Call `poll`, which reads what has changed, in a thread now and then until cancelled."""
    while True:
        await trio.sleep(POLL_S)
        await trio.to_thread.run_sync(poll)
