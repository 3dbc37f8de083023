"""Our client on trio as a client process: `python -m benchmarks.client_trio`."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from benchmarks.client_trio_consume import lite_pull, memory, push, read_range
from benchmarks.client_work import Load, Meter, serve
from rmq.client.core.messages import Message
from rmq.client.trio.opening import open_producer
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.broker_load.figures import Outcome
    from rmq.client.core.messages import SendResult

SUBMITS_PER_STEP: Final = 64
"""After so many sends the connection gets its turn."""


async def send(load: Load) -> Outcome:
    """Send from so many tasks, each one message after the other."""
    body = b"x" * load.body_bytes
    async with open_producer(load.nameserver, load.group) as producer:
        await producer.send(Message(load.topic, body))

        async def once() -> None:
            await producer.send(Message(load.topic, body))

        return await _in_tasks(load, once)


async def batch(load: Load) -> Outcome:
    """Send batches from so many tasks."""
    body = b"x" * load.body_bytes
    async with open_producer(load.nameserver, load.group) as producer:
        await producer.send(Message(load.topic, body))

        async def once() -> None:
            await producer.send_batch([Message(load.topic, body) for _ in range(load.batch)])

        return await _in_tasks(load, once)


async def _in_tasks(load: Load, once: Callable[[], Awaitable[None]]) -> Outcome:
    meter = Meter()
    note = meter.latencies_s.append

    async def repeat() -> None:
        since_s = time.perf_counter()
        try:
            while since_s < end_s:
                await once()
                now_s = time.perf_counter()
                note(now_s - since_s)
                since_s = now_s
        except RmqError as exc:
            meter.failed(exc)

    async with trio.open_nursery() as nursery:
        end_s = meter.start() + load.seconds
        for _ in range(load.at_once):
            nursery.start_soon(repeat)
    return meter.stop(len(meter.latencies_s) * load.batch)


async def pipeline(load: Load) -> Outcome:
    """Submit one message after the other, as long as not too many are under way."""
    body = b"x" * load.body_bytes
    meter = Meter()
    note = meter.latencies_s.append
    room = trio.lowlevel.ParkingLot()
    under_way = 0
    enough = load.at_once * 3 // 4

    def done(since_s: float, outcome: SendResult | RmqError) -> None:
        nonlocal under_way
        under_way -= 1
        if isinstance(outcome, RmqError):
            meter.failed(outcome)
        else:
            note(time.perf_counter() - since_s)
        if room and under_way <= enough:
            room.unpark()

    async with open_producer(load.nameserver, load.group, pending_max=load.at_once) as producer:
        await producer.send(Message(load.topic, body))
        now_s = meter.start()
        end_s = now_s + load.seconds
        while now_s < end_s:
            for _ in range(min(SUBMITS_PER_STEP, load.at_once - under_way)):
                producer.submit(Message(load.topic, body), partial(done, time.perf_counter()))
                under_way += 1
            if under_way >= load.at_once:
                await room.park()
            else:
                await trio.lowlevel.checkpoint()
            now_s = time.perf_counter()
        enough = 0
        if under_way:
            await room.park()
        return meter.stop(len(meter.latencies_s))


async def send_soon(load: Load) -> Outcome:
    """Let the producer say when there is room; wait for each result in the order of sending."""
    body = b"x" * load.body_bytes
    meter = Meter()
    sent = 0
    async with open_producer(load.nameserver, load.group, pending_max=load.at_once) as producer:
        await producer.send(Message(load.topic, body))
        end_s = meter.start() + load.seconds
        while time.perf_counter() < end_s:
            pendings = [
                await producer.send_soon(Message(load.topic, body)) for _ in range(load.at_once)
            ]
            for pending in pendings:
                await pending.wait()
            sent += len(pendings)
        return meter.stop(sent)


def _running(work: Callable[[Load], Awaitable[Outcome]]) -> Callable[[Load], Outcome]:
    """Return the same as a plain function: each load has an event loop of its own."""

    def run(load: Load) -> Outcome:
        return trio.run(work, load)

    return run


if __name__ == "__main__":
    works = (send, batch, pipeline, send_soon, push, lite_pull, read_range, memory)
    serve({work.__name__: _running(work) for work in works})
