"""Brokers that are stopped or killed under our clients, and come back; a second master."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from inbox import Inbox
from our_messages import as_sent, ours
from python_session import BROKER_SETTINGS

from interop.support.cases import MismatchError, expect, expect_true
from interop.support.expectations import expect_once, expect_sent, numbered
from interop.support.java_messages import Outgoing
from interop.support.topics import create_topics
from interop.support.waiting import wait_until
from rmq.client.blocking import BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import SendResult
from rmq.client.trio.opening import open_producer
from rmq.errors import ClientError

if TYPE_CHECKING:
    from python_session import PythonSession

    from rmq.client.tasks.producer import Producer

PART: Final = "outage"
SEND_TIMEOUT_S: Final = 3.0
IDLE_S: Final = 3
BACK_WITHIN_S: Final = 60.0


async def run_outage_cases(session: PythonSession) -> None:
    await _one_broker(session)
    await _two_masters(session)
    await _idle(session)
    await _two_nameservers(session)


async def _one_broker(session: PythonSession) -> None:
    await session.create_topic("PyOutage")
    messages = numbered("PyOutage", 60)
    inbox = Inbox()
    async with session.push_consumer("py-outage", "PyOutage", inbox):
        expect_sent(await session.send(*messages[:20]))
        expect_once(await inbox.wait(20), messages[:20])

        for number, kind in enumerate(("stopped", "killed")):
            with session.operation(
                PART, f"{kind}: sends fail in time, then go on; consumers go on", timeout_s=150
            ):
                if kind == "stopped":
                    await session.cluster.stop_broker(session.broker)
                else:
                    await session.cluster.kill_broker(session.broker)
                started = trio.current_time()
                try:
                    await session.producer.send(ours(Outgoing("PyOutage", b"lost")))
                except ClientError:
                    took_s = trio.current_time() - started
                    expect_true(
                        f"an error in time, not after {took_s:.1f} s", took_s < 2 * SEND_TIMEOUT_S
                    )
                else:
                    raise MismatchError("a send to a broker that is not there was acknowledged")
                await session.cluster.start_broker(session.broker, BROKER_SETTINGS)
                batch = messages[20 * (number + 1) : 20 * (number + 2)]
                await _send_until_taken(session.producer, batch)
                received = await inbox.wait(20 * (number + 2), timeout_s=BACK_WITHIN_S)
                bodies = {message.body for message in received}
                wanted = {message.body for message in messages[: 20 * (number + 2)]}
                expect("messages", bodies, wanted)


async def _send_until_taken(producer: Producer, messages: list[Outgoing]) -> None:
    with trio.fail_after(BACK_WITHIN_S):
        for message in messages:
            while True:
                try:
                    result = await producer.send(ours(message))
                except ClientError:
                    await trio.sleep(0.2)
                else:
                    expect_sent([as_sent(result)])
                    break


async def _two_masters(session: PythonSession) -> None:
    second = session.cluster.place_broker("broker-b")
    await session.cluster.start_broker(second, BROKER_SETTINGS)
    both = (session.broker, second)
    for broker in both:
        await create_topics(session.cluster, broker, {"PyTwo": 4})
    messages = numbered("PyTwo", 200)
    inbox = Inbox()
    # A producer of its own: it has never heard of the topic while only one broker had it.
    async with (
        open_producer(session.nameserver, "py-two") as producer,
        session.push_consumer("py-two", "PyTwo", inbox) as consumer,
    ):
        with session.operation(PART, "two masters: sends go to both, both are consumed"):

            async def has_all() -> bool:
                return sum(queue.topic == "PyTwo" for queue in consumer.queues) == 8

            await wait_until("all 8 queues", has_all, timeout_s=40)
            results = [await producer.send(ours(message)) for message in messages[:20]]
            expect("brokers", {r.queue.broker_name for r in results}, {b.name for b in both})
            expect_once(await inbox.wait(20), messages[:20])

        with session.operation(
            PART,
            "one of two masters is killed under load: no acknowledged message is lost",
            timeout_s=150,
        ):
            acknowledged: set[bytes] = set()
            failed: list[Exception] = []
            slowest_s = 0.0

            async def send_some(some: list[Outgoing]) -> None:
                nonlocal slowest_s
                for message in some:
                    started = trio.current_time()
                    try:
                        result = await producer.send(ours(message))
                    except ClientError as exc:
                        failed.append(exc)
                    else:
                        assert isinstance(result, SendResult)
                        acknowledged.add(message.body)
                    slowest_s = max(slowest_s, trio.current_time() - started)

            async with trio.open_nursery() as nursery:
                for start in range(20, 200, 30):
                    nursery.start_soon(send_some, messages[start : start + 30])
                await trio.sleep(0.02)
                await session.cluster.kill_broker(second)
            expect("failed sends", failed, [])
            expect_true(
                f"sends within one timeout, not {slowest_s:.1f} s", slowest_s < SEND_TIMEOUT_S + 1
            )
            # Sends go on: to the other one.
            result = await producer.send(ours(Outgoing("PyTwo", b"afterwards")))
            expect("broker", result.queue.broker_name, session.broker.name)
            await session.cluster.start_broker(second, BROKER_SETTINGS)

            async def has_come() -> bool:
                return acknowledged <= {message.body for message in inbox.received}

            await wait_until("everything acknowledged", has_come, timeout_s=BACK_WITHIN_S)
    await session.cluster.stop_broker(second)


async def _idle(session: PythonSession) -> None:
    """A broker closes connections that nothing came over for a while; usually 120 s."""
    broker = session.cluster.place_broker("broker-idle")
    settings = {**BROKER_SETTINGS, "serverChannelMaxIdleTimeSeconds": str(IDLE_S)}
    await session.cluster.start_broker(broker, settings)
    await create_topics(session.cluster, broker, {"PyIdle": 2})
    messages = numbered("PyIdle", 6)
    inbox = Inbox()
    with session.operation(PART, "idle connections that the broker closes are made anew"):
        blocking = BlockingProducer(session.nameserver, "py-idle-blocking")
        async with (
            open_producer(session.nameserver, "py-idle") as producer,
            session.push_consumer("py-idle", "PyIdle", inbox),
        ):
            for number in range(0, 6, 2):
                expect_sent([as_sent(await producer.send(ours(messages[number])))])
                with blocking:
                    send = partial(blocking.send, ours(messages[number + 1]))
                    expect_sent([as_sent(await trio.to_thread.run_sync(send))])
                    await trio.sleep(IDLE_S + 1)
                    send = partial(blocking.send, ours(Outgoing("PyIdle", b"again", "Again")))
                    expect_sent([as_sent(await trio.to_thread.run_sync(send))])
            await inbox.wait(9)
            received = [message for message in inbox.received if message.tags != "Again"]
            expect_once(received, messages)
    await session.cluster.stop_broker(broker)


async def _two_nameservers(session: PythonSession) -> None:
    cluster = session.cluster
    first = cluster.nameservers[0]
    second = await cluster.add_nameserver()
    broker = cluster.place_broker("broker-n")
    await cluster.start_broker(broker, BROKER_SETTINGS)
    await create_topics(cluster, broker, {"PyNames": 2})
    messages = numbered("PyNames", 20)
    inbox = Inbox()
    both = f"{first.address};{second.address}"
    config = ClientConfig(nameservers=both, route_refresh_s=1.0)
    with session.operation(PART, "two nameservers: one is stopped, clients go on"):
        async with (
            open_producer(config, "py-names") as producer,
            session.push_consumer("py-names", "PyNames", inbox, config=config),
        ):
            await _send_until_taken(producer, messages[:10])
            await cluster.stop_nameserver(second)
            # Long enough for routes to be asked for again.
            await trio.sleep(3)
            await _send_until_taken(producer, messages[10:15])
            async with open_producer(config, "py-names-late") as late:
                await _send_until_taken(late, messages[15:])
            expect_once(await inbox.wait(20), messages)
    await cluster.stop_broker(broker)
