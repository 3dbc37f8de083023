"""The self-check of `rmq dev`: messages through a nameserver, a master and its slave.

It is an application like any other: it creates a topic, sends, and pulls everything back from both
brokers, with the client that users have. A message that is lost, doubled or changed raises, and so
does a slave that does not hold what its master acknowledged (`replication`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.dev.replication import CheckFailedError, check_copy, wait_in_sync
from rmq.cli.ha.client import HaClient
from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.tasks.admin import AdminClient
from rmq.client.tasks.producer import producing
from rmq.client.tasks.pull_consumer import pulling
from rmq.client.trio.loop import remoting_of
from rmq.client.trio.opening import open_client
from rmq.errors import NoRouteError, ResponseError
from rmq.model.names import AUTO_CREATE_TOPIC, MASTER_ID
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.client.core.routes import Address
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.producer import Producer
    from rmq.client.tasks.pull_consumer import PullConsumer
    from rmq.model.queues import MessageQueue

TOPIC: Final = "RMQ_DEV_CHECK"
GROUP: Final = "rmq_dev_check"
QUEUES: Final = 8
SENDERS: Final = 64
ROUTE_S: Final = 10.0
READ_S: Final = 15.0
"""How long a slave may take until consumers get from it what its master had."""
REQUEST_S: Final = 10.0
_POLL_S: Final = 0.05
_NOT_THERE_YET: Final = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
"""Responses of a slave that does not know a new topic yet."""


async def check(nameserver: str, mode: str, count: int, say: Callable[[str], None]) -> None:
    """Send and consume `count` messages; raise if any of them is lost, doubled or changed."""
    config = ClientConfig(nameservers=nameserver, request_timeout_s=REQUEST_S)
    async with open_client(config) as client:
        admin = AdminClient(client)
        ha = HaClient(remoting_of(client), REQUEST_S)
        master, slave = await _create_topic(admin)
        say(f"  topic {TOPIC} created, its route found at the nameserver")
        say(f"  {await wait_in_sync(ha, master.address, slave.address, mode)}")
        # A kept store may hold earlier runs.
        starts = await _ends(admin)
        started = time.perf_counter()
        async with producing(
            client, ProducerConfig(group=GROUP, send_timeout_s=REQUEST_S)
        ) as producer:
            sent = await _send(producer, count)
        took = time.perf_counter() - started
        say(f"  {count} messages sent      {count / took:10,.0f} per second, {mode}")
        say(f"  {await check_copy(ha, master.address, slave.address, mode)}")
        ends = await _ends(admin)
        async with pulling(client, GROUP) as consumer:
            for role, broker in (("master", master), ("slave", slave)):
                started = time.perf_counter()
                received = await _consume_all(consumer, broker, role, starts, ends)
                took = time.perf_counter() - started
                _compare(sent, received, f"from the {role} {broker.address}")
                rate = f"{count / took:10,.0f} per second"
                say(f"  {count} messages consumed  {rate}, from the {role}")


def _compare(sent: set[bytes], received: Mapping[bytes, int], where: str) -> None:
    lost = sent - received.keys()
    doubled = [body for body, times in received.items() if times > 1]
    foreign = received.keys() - sent
    if lost or doubled or foreign:
        raise CheckFailedError(
            f"of {len(sent)} messages {len(lost)} were lost, {len(doubled)} doubled"
            f" and {len(foreign)} not ours, {where}"
        )


# --- the topic --------------------------------------------------------------------------------


async def _create_topic(admin: AdminClient) -> tuple[Address, Address]:
    """Create the topic on the brokers of a built-in one; return the master and the slave of its
    route.
    """
    master, _ = await _brokers(admin.client, AUTO_CREATE_TOPIC)
    await admin.create_topic(TOPIC, queues=QUEUES, broker=master.broker_name)
    return await _brokers(admin.client, TOPIC)


async def _brokers(client: Client, topic: str) -> tuple[Address, Address]:
    """Return master and slave of a topic as soon as the nameserver knows both of them."""
    with trio.move_on_after(ROUTE_S):
        while True:
            try:
                brokers = (await client.refresh_route(topic)).brokers
            except NoRouteError:
                brokers = ()
            masters = [broker for broker in brokers if broker.broker_id == MASTER_ID]
            slaves = [broker for broker in brokers if broker.broker_id != MASTER_ID]
            if masters and slaves:
                return masters[0], slaves[0]
            await trio.sleep(_POLL_S)
    raise CheckFailedError(
        f"nameserver {client.config.addresses[0]} has no route for {topic} to a master and a slave"
        f" after {ROUTE_S:g} s"
    )


async def _ends(admin: AdminClient) -> dict[MessageQueue, int]:
    """Return where the queues end."""
    stats = await admin.topic_stats(TOPIC)
    return {queue: held.max_offset for queue, held in stats.queues.items()}


# --- messages ---------------------------------------------------------------------------------


async def _send(producer: Producer, count: int) -> set[bytes]:
    run = time.time_ns()
    numbers = iter(range(count))
    sent: set[bytes] = set()

    async def send_some() -> None:
        for number in numbers:
            body = b"%d-%d" % (run, number)
            await producer.send(Message(TOPIC, body, tag="check", keys=(f"key-{number}",)))
            sent.add(body)

    async with trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(send_some)
    return sent


async def _consume_all(
    consumer: PullConsumer,
    broker: Address,
    role: str,
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
) -> dict[bytes, int]:
    """Pull all queues from where they began to where they end on the master."""
    received: dict[bytes, int] = {}
    positions = dict(starts)
    with trio.move_on_after(READ_S):
        for queue, end in ends.items():
            while positions[queue] < end:
                positions[queue] = await _consume(
                    consumer, broker, queue, positions[queue], received
                )
        return received
    behind = sum(end - positions[queue] for queue, end in ends.items())
    raise CheckFailedError(
        f"the {role} {broker.address} gave no more messages: {behind} are missing"
        f" after {READ_S:g} s"
    )


async def _consume(
    consumer: PullConsumer,
    broker: Address,
    queue: MessageQueue,
    offset: int,
    received: dict[bytes, int],
) -> int:
    """Pull once and record the messages; return the offset to go on from."""
    try:
        result = await consumer.pull(queue, offset, broker_id=broker.broker_id)
    except ResponseError as exc:
        if exc.code not in _NOT_THERE_YET:
            raise
        await trio.sleep(_POLL_S)
        return offset
    for message in result.messages:
        received[message.body] = received.get(message.body, 0) + 1
    if not result.messages:
        await trio.sleep(_POLL_S)
        return offset
    return result.next_offset
