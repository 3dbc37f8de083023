"""Waiting for what other processes do in their own time."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DEADLINE_S: Final = 40.0
"""Longer than the slowest timer of a stock client (it asks for routes every 30 s)."""
_INTERVAL_S: Final = 0.02


async def wait_until(
    what: str,
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
    *,
    deadline_s: float = DEADLINE_S,
    otherwise: Callable[[], object] = lambda: "nothing else is known",
) -> None:
    """Ask until it is so; fail with `what` was expected and what is there `otherwise`."""
    with trio.move_on_after(deadline_s):
        # Nobody in this process could set an event: what is waited for happens in another one.
        while not await _is_so(condition):  # noqa: ASYNC110
            await trio.sleep(_INTERVAL_S)
        return
    raise AssertionError(f"expected {what} within {deadline_s:g} s; instead: {otherwise()}")


async def _is_so(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> bool:
    answer = condition()
    return await answer if inspect.isawaitable(answer) else answer
