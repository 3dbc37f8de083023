"""Waiting for what another process does in its own time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from interop.support.cases import MismatchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_INTERVAL_S: Final = 0.02


async def wait_until(
    what: str, condition: Callable[[], Awaitable[bool]], *, timeout_s: float = 5.0
) -> None:
    """Ask until it is so; raise `MismatchError` saying `what` when it is not in time."""
    with trio.move_on_after(timeout_s):
        # Nobody in this process could set an event: what is waited for happens in another one.
        while not await condition():  # noqa: ASYNC110
            await trio.sleep(_INTERVAL_S)
        return
    raise MismatchError(f"expected {what} within {timeout_s:g} s")
