"""Our client on asyncio as a client process: `python -m benchmarks.client_aio`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from benchmarks.client_work import Load, Meter, serve
from rmq.client.aio import ConsumeFrom, Message, RmqError, open_producer, open_push_consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from benchmarks.broker_load.figures import Outcome
    from rmq.client.core.received import ReceivedMessage

FIRST_WITHIN_S: Final = 30.0
"""How long the first message may take to come."""


async def send(load: Load) -> Outcome:
    """Send from so many tasks, each one message after the other."""
    body = b"x" * load.body_bytes
    meter = Meter()
    note = meter.latencies_s.append
    async with open_producer(load.nameserver, load.group) as producer:
        await producer.send(Message(load.topic, body))

        async def repeat() -> None:
            since_s = time.perf_counter()
            try:
                while since_s < end_s:
                    await producer.send(Message(load.topic, body))
                    now_s = time.perf_counter()
                    note(now_s - since_s)
                    since_s = now_s
            except RmqError as exc:
                meter.failed(exc)

        async with asyncio.TaskGroup() as tasks:
            end_s = meter.start() + load.seconds
            for _ in range(load.at_once):
                tasks.create_task(repeat())
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


async def push(load: Load) -> Outcome:
    """Consume with a batch listener; the time runs from the first message it is given."""
    meter = Meter()
    first = asyncio.Event()
    count = body_bytes = 0

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal count, body_bytes
        if not count:
            meter.start()
            first.set()
        count += len(messages)
        body_bytes += sum([len(message.body) for message in messages])

    async with open_push_consumer(
        load.nameserver,
        load.group,
        {load.topic: "*"},
        listener,
        consume_from=ConsumeFrom.FIRST,
        batch_messages_max=load.batch,
        pull_messages_max=load.batch,
    ):
        async with asyncio.timeout(FIRST_WITHIN_S):
            await first.wait()
        await asyncio.sleep(load.seconds)
        outcome = meter.stop(count)
    if body_bytes < count:
        raise RuntimeError(f"{count} messages of {body_bytes} bytes came")
    return outcome


def _running(work: Callable[[Load], Coroutine[Any, Any, Outcome]]) -> Callable[[Load], Outcome]:
    """Return the same as a plain function: each load has an event loop of its own."""

    def run(load: Load) -> Outcome:
        return asyncio.run(work(load))

    return run


if __name__ == "__main__":
    serve({work.__name__: _running(work) for work in (send, send_soon, push)})
