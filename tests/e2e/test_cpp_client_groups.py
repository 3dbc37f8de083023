"""C++ consumers of one group share its queues, whoever comes and goes."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from tests.e2e.cpp_orders import Message, SendMode
from tests.e2e.scenarios import scenario
from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.cpp_clients import Producer, PushConsumer
    from tests.e2e.scenarios import Stage

QUEUES: Final = 4


class Probes:
    """Finds out who is given the messages of which queue, by sending some."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._numbers = count()

    async def wait_for_shares(self, *consumers: PushConsumer, shares: Sequence[int]) -> None:
        """Return when the consumers have so many queues each. No probe may get lost meanwhile."""
        seen: list[set[int]] = []

        async def is_so() -> bool:
            seen[:] = await self._probe(consumers)
            return sorted(map(len, seen)) == sorted(shares) and len(set.union(*seen)) == QUEUES

        await wait_until(f"queues shared {shares}", is_so, otherwise=lambda: seen)

    async def _probe(self, consumers: Sequence[PushConsumer]) -> list[set[int]]:
        """Send a message to each queue; return the queues each consumer was given one of."""
        number = next(self._numbers)
        bodies = {f"probe {number} of queue {queue_id}" for queue_id in range(QUEUES)}
        await self._producer.send(
            (
                Message(topic=self._topic, body=body, shard=int(body.rpartition(" ")[2]))
                for body in bodies
            ),
            SendMode.ORDERED,
        )

        def queues_of(consumer: PushConsumer) -> set[int]:
            return {got.queue_id for got in consumer.arrived if got.body in bodies}

        await wait_until(
            f"all of probe {number} to arrive",
            lambda: len(set[int]().union(*map(queues_of, consumers))) == QUEUES,
            otherwise=lambda: [queues_of(consumer) for consumer in consumers],
        )
        return [queues_of(consumer) for consumer in consumers]


@scenario
async def test_queues_are_shared_anew_when_a_consumer_comes_and_when_it_leaves(
    stage: Stage,
) -> None:
    topic, group = "rebalance", "rebalance-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    probes = Probes(await clients.producer(), topic)
    first = await clients.push_consumer(topic, group)
    await probes.wait_for_shares(first, shares=[4])
    second = await clients.push_consumer(topic, group)
    await probes.wait_for_shares(first, second, shares=[2, 2])
    third = await clients.push_consumer(topic, group)
    await probes.wait_for_shares(first, second, third, shares=[2, 1, 1])
    await first.stop()
    await probes.wait_for_shares(second, third, shares=[2, 2])


@scenario
async def test_the_queues_of_a_killed_consumer_move_to_the_others(stage: Stage) -> None:
    topic, group = "orphans", "orphans-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    producer = await clients.producer()
    probes = Probes(producer, topic)
    victim = await clients.push_consumer(topic, group)
    survivor = await clients.push_consumer(topic, group)
    await probes.wait_for_shares(victim, survivor, shares=[2, 2])
    broker = stage.shared.brokers[0].address
    assert len(await stage.shared.admin.consumer_ids(broker, group)) == 2

    notices = survivor.notices()
    await victim.kill()
    bodies = [f"after the end {number}" for number in range(40)]
    await producer.send(
        (Message(topic=topic, body=body, shard=n) for n, body in enumerate(bodies)),
        SendMode.ORDERED,
    )
    await survivor.wait_for(bodies)
    assert len(await stage.shared.admin.consumer_ids(broker, group)) == 1
    # It did not have to wait for a timer of its own.
    await wait_until("a notice", lambda: survivor.notices() > notices)
    await probes.wait_for_shares(survivor, shares=[4])
