"""One-shot futures."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rmq.errors import ClientClosedError
from rmq.remoting.awaited import Waiter


async def test_all_who_wait_get_the_first_outcome() -> None:
    waiter: Waiter[int] = Waiter()
    got: list[int] = []

    async def wait() -> None:
        got.append(await waiter.wait())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert waiter.outcome is None
        waiter(7)
        waiter(8)
    assert got == [7, 7, 7]
    assert await waiter.wait() == 7


async def test_an_error_is_raised_to_each_of_them_without_growing() -> None:
    waiter: Waiter[int] = Waiter()
    waiter(ClientClosedError("it"))
    depths = []
    for _ in range(5):
        with pytest.raises(ClientClosedError) as caught:
            await waiter.wait()
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


async def test_whoever_gives_up_is_not_woken() -> None:
    waiter: Waiter[int] = Waiter()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiter.wait)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    waiter(1)
    assert await waiter.wait() == 1
    with trio.CancelScope() as scope:
        scope.cancel()
        await waiter.wait()
    assert scope.cancelled_caught
