"""Waiting for outcomes and for room."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rmq.client.trio.waiting import Room, Waiter
from rmq.errors import ClientClosedError


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


def test_room_is_bounded_by_number_and_by_size() -> None:
    room = Room(3, 100)
    assert room.has(1000)
    room.take(60)
    assert room.has(40)
    assert not room.has(41)
    room.take(1)
    room.take(1)
    assert not room.has(1)
    assert room.count == 3
    for size in (60, 1, 1):
        room.give_back(size)
    assert room.count == 0
    assert room.has(10**9)


async def test_whoever_waits_for_room_is_woken_when_a_quarter_is_free() -> None:
    room = Room(8, 1000)
    for _ in range(8):
        room.take(10)
    woken = 0

    async def wait() -> None:
        nonlocal woken
        await room.wait()
        woken += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        room.give_back(10)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == 0
        room.give_back(10)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == 2
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        room.wake_all()
