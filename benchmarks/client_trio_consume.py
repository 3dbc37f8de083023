"""What our client on trio consumes for the benchmark, and the memory it takes meanwhile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import trio

from benchmarks.broker_load.figures import Outcome, Process
from benchmarks.client_rows import memory_figures
from benchmarks.client_work import Load, Meter
from rmq.client.core.consuming.config import ConsumeFrom
from rmq.client.core.consuming.pulls import PullStatus
from rmq.client.core.messages import Message
from rmq.client.trio.opening import (
    open_lite_pull_consumer,
    open_producer,
    open_pull_consumer,
    open_push_consumer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.client.core.received import ReceivedMessage

FIRST_WITHIN_S: Final = 30.0
"""How long the first message may take to come."""
SAMPLES: Final = 200
"""How often memory is looked at."""


class Counter:
    """A listener that looks at every body, and tells when so many have come."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.count = self.body_bytes = 0
        self._wanted = 1
        self._reached = trio.Event()

    async def listener(self, messages: Sequence[ReceivedMessage]) -> None:
        if not self.count:
            self.meter.start()
        self.take(messages)
        if self.count >= self._wanted:
            self._reached.set()

    async def wait_for(self, count: int) -> None:
        """Return when so many messages have come; one task at a time may wait."""
        if self.count < count:
            self._wanted, self._reached = count, trio.Event()
            await self._reached.wait()

    def take(self, messages: Sequence[ReceivedMessage]) -> None:
        self.count += len(messages)
        self.body_bytes += sum([len(message.body) for message in messages])

    def stop(self) -> Outcome:
        """Return the figures; raise RuntimeError if what came cannot be all there was to see."""
        outcome = self.meter.stop(self.count)
        if not self.count or self.body_bytes < self.count:
            raise RuntimeError(f"{self.count} messages of {self.body_bytes} bytes came")
        return outcome


async def push(load: Load) -> Outcome:
    """Consume with a batch listener; the time runs from the first message it is given."""
    counter = Counter()
    async with open_push_consumer(
        load.nameserver,
        load.group,
        {load.topic: "*"},
        counter.listener,
        consume_from=ConsumeFrom.FIRST,
        batch_messages_max=load.batch,
        pull_messages_max=load.batch,
    ):
        with trio.fail_after(FIRST_WITHIN_S):
            await counter.wait_for(1)
        with trio.move_on_after(load.seconds):
            await counter.wait_for(load.messages)
        return counter.stop()


async def lite_pull(load: Load) -> Outcome:
    """Poll all queues of a topic from their first messages on."""
    counter = Counter()
    async with open_lite_pull_consumer(
        load.nameserver, load.group, pull_messages_max=load.batch
    ) as consumer:
        queues = await consumer.queues(load.topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        counter.meter.start()
        with trio.move_on_after(load.seconds):
            while counter.count < load.messages:
                counter.take(await consumer.poll())
        return counter.stop()


async def read_range(load: Load) -> Outcome:
    """Pull queue by queue, one pull after the other."""
    counter = Counter()
    async with open_pull_consumer(load.nameserver, load.group) as consumer:
        queues = await consumer.fetch_queues(load.topic)
        counter.meter.start()
        with trio.move_on_after(load.seconds):
            for queue in queues:
                result = await consumer.pull(queue, 0, max_messages=load.batch)
                while result.status is PullStatus.FOUND:
                    counter.take(result.messages)
                    result = await consumer.pull(queue, result.next_offset, max_messages=load.batch)
        return counter.stop()


async def memory(load: Load) -> Outcome:
    """Send so many messages and consume them meanwhile, and watch how large the process gets."""
    body = b"x" * load.body_bytes
    usage = Process(os.getpid())
    counter = Counter()
    samples: list[tuple[int, float]] = [(0, usage.memory_mb()[0])]
    every = max(1, load.messages // SAMPLES)
    async with (
        open_push_consumer(
            load.nameserver,
            load.group,
            {load.topic: "*"},
            counter.listener,
            # A group starts with what comes from now on, and is there before the first message.
            batch_messages_max=32,
        ) as consumer,
        open_producer(load.nameserver, f"{load.group}-producers") as producer,
    ):
        queues = set(await producer.queues(load.topic))
        with trio.fail_after(FIRST_WITHIN_S):
            while not queues.issubset(consumer.queues):  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.01)
        with trio.fail_after(load.seconds):
            for number in range(1, load.messages + 1):
                await producer.send_soon(Message(load.topic, body))
                if number % every == 0:
                    # What waits in the broker says nothing about the client.
                    await counter.wait_for(number - every)
                    samples.append((number, usage.memory_mb()[0]))
            await counter.wait_for(load.messages)
    outcome = counter.stop()
    return Outcome({**outcome.figures, **memory_figures(samples)}, outcome.failures)
