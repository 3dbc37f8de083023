"""A broker that is stopped or killed and comes back with its store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from client_session import BROKER_SETTINGS

from interop.support.cases import expect
from interop.support.expectations import expect_once, expect_same, expect_sent, numbered
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing, Queue
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from client_session import ClientSession

PART: Final = "restart"
TOPIC_NOT_EXIST: Final = 17
# Brokers write consumer offsets down every 5 s, for the first time 10 s after their start.
OFFSETS_WRITTEN_S: Final = 12
WITHOUT_CREATION: Final = {**BROKER_SETTINGS, "autoCreateTopicEnable": "false"}


async def run_restart_cases(session: ClientSession) -> None:
    await _stopped(session)
    await _unknown_topics(session)
    await _killed(session)


async def _stopped(session: ClientSession) -> None:
    driver, producer = session.driver, session.producer
    queues = await session.create_topic("Lasting")
    messages = numbered("Lasting", 30)
    delayed = Outgoing("Lasting", b"from before", delay_level=2)
    expect_sent(await producer.send(*messages[:20]))
    async with driver.push_consumer("a", group="lasting", topic="Lasting") as consumer:
        expect_once(await consumer.wait_received(20), messages[:20])
    expect_sent(await producer.send(delayed))
    await session.cluster.stop_broker(session.broker)
    await session.cluster.start_broker(session.broker, WITHOUT_CREATION)

    async with driver.push_consumer("b", group="lasting", topic="Lasting") as consumer:
        with session.operations.operation(PART, "stopped: consumer offsets are kept"):
            await _wait_answers(session, queues[0])
            expect_sent(await producer.send(*messages[20:]))
            received = await consumer.wait_received(11)
            expect_once(received, [*messages[20:], delayed])

        with session.operations.operation(PART, "stopped: a delayed message comes afterwards"):
            (found,) = (m for m in consumer.received if m.body == delayed.body)
            expect_same(found, delayed)

    with session.operations.operation(PART, "stopped: messages and keys are kept"):
        found_all = await session.reader.read_topic("Lasting", count=31)
        expect_once(found_all, [*messages, delayed])
        (one,) = await producer.query_by_key("Lasting", "Lasting-3")
        expect_same(one, messages[3])


async def _unknown_topics(session: ClientSession) -> None:
    producer = session.producer

    with session.operations.operation("send", "to a queue of an unknown topic"):
        unknown = Queue("Unknown", session.broker.name, 0)
        try:
            await producer.send_to_queue(Outgoing("Unknown", b"lost"), queue=unknown)
        except StockClientError as refusal:
            expect("code", refusal.code, TOPIC_NOT_EXIST)
        else:
            expect("outcome", "sent", "refused")

    with session.operations.operation("send", "by route, to an unknown topic"):
        try:
            await producer.send(Outgoing("Unrouted", b"lost"))
        except StockClientError as refusal:
            expect("code", refusal.code, TOPIC_NOT_EXIST)
        else:
            expect("outcome", "sent", "refused")


async def _killed(session: ClientSession) -> None:
    producer = session.producer
    queues = await session.create_topic("Hardy")
    messages = numbered("Hardy", 30)

    with session.operations.operation(PART, "killed: messages and consumer offsets are kept"):
        expect_sent(await producer.send(*messages[:20]))
        async with session.driver.push_consumer("c", group="hardy", topic="Hardy") as consumer:
            expect_once(await consumer.wait_received(20), messages[:20])
        await trio.sleep(OFFSETS_WRITTEN_S)
        await session.cluster.kill_broker(session.broker)
        await session.cluster.start_broker(session.broker, WITHOUT_CREATION)
        await _wait_answers(session, queues[0])
        expect_sent(await producer.send(*messages[20:]))
        async with session.driver.push_consumer("d", group="hardy", topic="Hardy") as consumer:
            expect_once(await consumer.wait_received(10), messages[20:])
        expect_once(await session.reader.read_topic("Hardy", count=30), messages)


async def _wait_answers(session: ClientSession, queue: Queue) -> None:
    """Wait until the clients have found the broker again."""

    async def answers() -> bool:
        try:
            return await session.producer.offset("max offset", queue) >= 0
        except StockClientError:
            return False

    await wait_until("an answer of the broker", answers, timeout_s=30)
