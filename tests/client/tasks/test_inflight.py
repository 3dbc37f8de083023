"""The limit on sends in flight."""

from __future__ import annotations

import trio
import trio.testing

from rmq.client.tasks.inflight import InflightLimit


def test_room_is_bounded_by_number_and_by_size() -> None:
    room = InflightLimit(3, 100, trio.lowlevel.ParkingLot())
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
    room = InflightLimit(8, 1000, trio.lowlevel.ParkingLot())
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
