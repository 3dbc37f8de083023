"""Two masters in one cluster, and two nameservers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_session import BROKER_SETTINGS

from interop.support.cases import expect
from interop.support.cluster import CLUSTER
from interop.support.expectations import expect_once, expect_sent, numbered
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from client_session import ClientSession

    from interop.support.cases import Case
    from interop.support.cluster import Broker
    from interop.support.java_client import Driver, Producer

PART: Final = "two masters"
TOPIC: Final = "Spread"
MESSAGES: Final = numbered(TOPIC, 60)
# So that the check needs not wait for the usual 30 s.
ROUTE_POLL_MS: Final = 1000
# Nobody tells consumers of new queues; they look every 20 s.
REBALANCED_WITHIN_S: Final = 40


async def run_masters_cases(session: ClientSession) -> None:
    """Add a nameserver and a broker; take the first nameserver away in the end."""
    cluster = session.cluster
    await cluster.add_nameserver()
    # A broker registers with those it was started with.
    await cluster.stop_broker(session.broker)
    await cluster.start_broker(session.broker, BROKER_SETTINGS)
    other = cluster.place_broker("broker-b")
    await cluster.start_broker(other, BROKER_SETTINGS)
    async with (
        session.kit.driver(cluster.nameserver) as driver,
        driver.producer("spread", routePollMs=ROUTE_POLL_MS) as producer,
    ):
        masters = Masters(session, driver, producer, other)
        await _spread(masters)
        await _failover(masters)
        await _nameserver_gone(masters)


@dataclass(frozen=True)
class Masters:
    """Two masters, and clients that know both."""

    session: ClientSession
    driver: Driver
    producer: Producer
    other: Broker
    """The one that goes and comes back."""

    def operation(self, name: str) -> AbstractContextManager[Case]:
        return self.session.operations.operation(PART, name)


async def _spread(masters: Masters) -> None:
    producer, stays = masters.producer, masters.session.broker
    with masters.operation("a topic on both, sends go to both"):
        await producer.create_topic(TOPIC, queues=4, key=CLUSTER)
        queues = await producer.queues(TOPIC)
        names = {stays.name: 4, masters.other.name: 4}
        expect("queues", Counter(queue.broker for queue in queues), Counter(names))
        sent = await producer.send(*MESSAGES[:40])
        expect_sent(sent)
        expect("each", Counter(answer.queue for answer in sent), Counter(queues * 5))


async def _failover(masters: Masters) -> None:
    producer, cluster, stays = masters.producer, masters.session.cluster, masters.session.broker
    with masters.operation("one is stopped, sends go on to the other"):
        await cluster.stop_broker(masters.other)
        sent = await producer.send(*MESSAGES[40:])
        expect_sent(sent)
        expect("broker", {answer.queue.broker for answer in sent}, {stays.name})

    spread = masters.driver.push_consumer(
        "spread", group="spread", topic=TOPIC, routePollMs=ROUTE_POLL_MS
    )
    async with spread as consumer:
        with masters.operation("what the other one has can be consumed"):
            got = await consumer.wait_received(40)
            expect("brokers", {message.broker for message in got}, {stays.name})

        with masters.operation("it comes back, and so do its messages"):
            await cluster.start_broker(masters.other, BROKER_SETTINGS)
            await consumer.wait_received(60, timeout_s=REBALANCED_WITHIN_S)
            expect_once(consumer.received, MESSAGES)

        with masters.operation("it comes back, and sends go to both again"):

            async def both() -> bool:
                sent = await producer.send(*numbered(TOPIC, 8))
                return len({answer.queue.broker for answer in sent}) == 2

            await wait_until("sends to both", both, timeout_s=10)


async def _nameserver_gone(masters: Masters) -> None:
    with masters.session.operations.operation("two nameservers", "one is stopped, clients go on"):
        cluster = masters.session.cluster
        await cluster.stop_nameserver(cluster.nameservers[0])
        expect_sent(await masters.producer.send(*numbered(TOPIC, 4)))
        async with masters.driver.producer("newcomer") as newcomer:
            expect("queues", len(await newcomer.queues(TOPIC)), 8)
            expect_sent(await newcomer.send(*numbered(TOPIC, 4)))
