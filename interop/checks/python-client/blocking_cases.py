"""The blocking client: no loop, no threads of its own. Here it runs in a thread of the check."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, Final

import trio
from our_messages import as_queue, as_received, as_sent, ours

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_in_order, expect_once, expect_sent, numbered
from interop.support.java_messages import Outgoing
from rmq.client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.consuming.subscription_set import Sql

if TYPE_CHECKING:
    from python_session import PythonSession

    from interop.support.java_messages import Received
    from rmq.client.core.messages import SendResult

PART: Final = "blocking"
POLLED_WITHIN_S: Final = 15.0


async def run_blocking_cases(session: PythonSession) -> None:
    await _produce(session)
    await _consume(session)
    await _places(session)
    await _admin(session)


async def _produce(session: PythonSession) -> None:
    await session.create_topic("PyBlocking")
    messages = numbered("PyBlocking", 1000, tags="TagA")

    def send() -> list[SendResult]:
        # Made here, opened elsewhere, as Spark does it.
        producer = pickle.loads(pickle.dumps(BlockingProducer(session.nameserver, "py-blocking")))
        with producer:
            results = [producer.send(ours(message)) for message in messages[:20]]
            results += producer.send_batch([ours(message) for message in messages[20:52]])
            results += producer.send_many([ours(message) for message in messages[52:980]])
            for message in messages[980:]:
                producer.send_oneway(ours(message))
        return results

    with session.operation(PART, "send, send_batch, send_many and send_oneway"):
        results = await trio.to_thread.run_sync(send)
        expect("results", len(results), 20 + 1 + 928)
        expect_sent([as_sent(result) for result in results])
        expect_once(await session.reader.read_topic("PyBlocking", count=1000), messages)

    with session.operation(PART, "a sharding key chooses the queue that a stock producer chooses"):
        message = Outgoing("PyBlocking", b"ordered")
        (theirs,) = await session.java.send_by_key(message, key="order-4711")

        def send_ordered() -> SendResult:
            with BlockingProducer(session.nameserver, "py-blocking") as producer:
                return producer.send_ordered(ours(message), "order-4711")

        mine = await trio.to_thread.run_sync(send_ordered)
        expect("queue", as_queue(mine.queue), theirs.queue)

    with session.operation(PART, "compressed body (64 KiB)"):
        await session.create_topic("PyBlockingBig", queues=1)
        big = Outgoing("PyBlockingBig", b"abcdefgh" * 8192, keys="big")

        def send_big() -> SendResult:
            with BlockingProducer(session.nameserver, "py-blocking") as producer:
                return producer.send(ours(big))

        expect_sent([as_sent(await trio.to_thread.run_sync(send_big))])
        expect_once(await session.reader.read_topic("PyBlockingBig", count=1), [big])


def _consumer(session: PythonSession, group: str) -> BlockingConsumer:
    return BlockingConsumer(session.nameserver, group, consume_from=ConsumeFrom.FIRST)


def _poll(consumer: BlockingConsumer, count: int) -> list[Received]:
    polled: list[Received] = []
    deadline = time.monotonic() + POLLED_WITHIN_S
    while len(polled) < count and time.monotonic() < deadline:
        polled += [as_received(message) for message in consumer.poll(timeout_s=1.0)]
    return polled


async def _consume(session: PythonSession) -> None:
    await session.create_topic("PyBlockingRead")
    messages = numbered("PyBlockingRead", 60, tags="TagA")
    expect_sent(await session.java.send(*messages[:40]))

    def read(count: int) -> list[Received]:
        with _consumer(session, "py-blocking-read") as consumer:
            consumer.assign(consumer.queues("PyBlockingRead"))
            return _poll(consumer, count)

    with session.operation(PART, "poll a stock producer's messages, commit by leaving"):
        expect_once(await trio.to_thread.run_sync(read, 40), messages[:40])

    with session.operation(PART, "a stock consumer goes on where it stopped"):
        expect_sent(await session.java.send(*messages[40:50]))
        stock = session.driver.push_consumer(
            "blocking-read", group="py-blocking-read", topic="PyBlockingRead"
        )
        async with stock as consumer:
            expect_once(await consumer.wait_received(10), messages[40:50])

    with session.operation(PART, "it goes on where a stock consumer stopped"):
        expect_sent(await session.java.send(*messages[50:]))
        expect_once(await trio.to_thread.run_sync(read, 10), messages[50:])


async def _places(session: PythonSession) -> None:
    (queue,) = await session.create_topic("PyBlockingSeek", queues=1)
    messages = [
        Outgoing("PyBlockingSeek", f"{n}".encode(), f"Tag{n % 2}", properties={"n": str(n)})
        for n in range(20)
    ]
    for message in messages:
        expect_sent(await session.java.send_to_queue(message, queue=queue))
        await trio.sleep(0.005)
    stored = await session.reader.read_queue(queue, count=20)

    def look() -> dict[str, list[Received]]:
        found: dict[str, list[Received]] = {}
        with _consumer(session, "py-blocking-seek") as consumer:
            (queue,) = consumer.queues("PyBlockingSeek")
            consumer.assign([queue])
            found["all"] = _poll(consumer, 20)
            consumer.seek(queue, 15)
            found["offset"] = _poll(consumer, 5)
            consumer.seek_to_time(stored[10].store_ms, queue)
            found["time"] = _poll(consumer, 10)
            consumer.seek_to_begin(queue)
            found["begin"] = _poll(consumer, 20)
            found["range"] = [as_received(m) for m in consumer.read_range(queue, 3, 7)]
            consumer.assign([queue], "Tag1")
            consumer.seek_to_begin(queue)
            found["tag"] = _poll(consumer, 10)
            consumer.assign([queue], Sql("n >= 18"))
            consumer.seek_to_begin(queue)
            found["sql"] = _poll(consumer, 2)
            expect("ends", (consumer.begin_offset(queue), consumer.end_offset(queue)), (0, 20))
            consumer.commit({queue: 11})
            expect("committed", consumer.committed(queue), 11)
        return found

    with session.operation(PART, "seek, ranges, filters and offsets"):
        found = await trio.to_thread.run_sync(look)
        expect_in_order(found["all"], messages)
        expect_in_order(found["offset"], messages[15:])
        expect_in_order(found["time"], messages[10:])
        expect_in_order(found["begin"], messages)
        expect_in_order(found["range"], messages[3:7])
        expect_in_order(found["tag"], messages[1::2])
        expect_in_order(found["sql"], messages[18:])


async def _admin(session: PythonSession) -> None:
    def look() -> tuple[bool, int, bool]:
        with BlockingAdmin(session.nameserver) as admin:
            admin.create_topic("PyBlockingAdmin", queues=3)
            known = "PyBlockingAdmin" in admin.list_topics()
            held = sum(r.max_offset for r in admin.topic_stats("PyBlockingSeek").queues.values())
            admin.delete_topic("PyBlockingAdmin")
            return known, held, "PyBlockingAdmin" in admin.list_topics()

    with session.operation(PART, "the admin client: topics are created, looked at and deleted"):
        known, held, still_known = await trio.to_thread.run_sync(look)
        expect_true("the topic", known)
        expect("messages", held, 20)
        expect_true("it to be gone", not still_known)
