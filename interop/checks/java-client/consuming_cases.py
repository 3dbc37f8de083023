"""Push consumers: clustering and broadcasting, concurrent and orderly, with tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_in_order, expect_once, expect_sent, numbered
from interop.support.java_messages import Outgoing

if TYPE_CHECKING:
    from client_session import ClientSession

PART: Final = "push"
HELD_PULL_WAKES_WITHIN_MS: Final = 1000


async def run_consuming_cases(session: ClientSession) -> None:
    await _clustering(session)
    await _many(session)
    await _tags(session)
    await _broadcasting(session)
    await _orderly(session)


async def _clustering(session: ClientSession) -> None:
    producer, driver = session.producer, session.driver
    messages = numbered("Push", 45)

    with session.operations.operation(PART, "clustering, what was there and what comes"):
        await session.create_topic("Push")
        expect_sent(await producer.send(*messages[:20]))
        async with driver.push_consumer("push", group="push", topic="Push") as consumer:
            expect_once(await consumer.wait_received(20), messages[:20])
            expect_sent(await producer.send(*messages[20:40]))
            expect_once(await consumer.wait_received(40), messages[:40])
            for message in consumer.received[20:]:
                waited_ms = (message.received_ms or 0) - message.store_ms
                expect_true(
                    f"a held pull to wake up at once, not after {waited_ms} ms",
                    waited_ms < HELD_PULL_WAKES_WITHIN_MS,
                )

    with session.operations.operation(PART, "the group goes on where it has stopped"):
        expect_sent(await producer.send(*messages[40:]))
        async with driver.push_consumer("push-again", group="push", topic="Push") as consumer:
            expect_once(await consumer.wait_received(5), messages[40:])

    with session.operations.operation(PART, "a new group reads a young topic from its beginning"):
        young = driver.push_consumer(
            "young", group="young", topic="Push", start_at="CONSUME_FROM_LAST_OFFSET"
        )
        async with young as consumer:
            expect_once(await consumer.wait_received(45), messages)


async def _many(session: ClientSession) -> None:
    with session.operations.operation(PART, "5,000 messages, sent while they are consumed"):
        await session.create_topic("Many")
        messages = numbered("Many", 5000)
        async with session.driver.push_consumer("many", group="many", topic="Many") as consumer:
            for start in range(0, 5000, 500):
                expect_sent(await session.producer.send_async(*messages[start : start + 500]))
            expect_once(await consumer.wait_received(5000), messages)


async def _tags(session: ClientSession) -> None:
    with session.operations.operation(PART, "tags A || B"):
        await session.create_topic("Tagged")
        messages = [
            Outgoing("Tagged", f"{tag} {number}".encode(), tags=tag)
            for number in range(10)
            for tag in ("TagA", "TagB", "TagC", None)
        ]
        expect_sent(await session.producer.send(*messages))
        wanted = [message for message in messages if message.tags in ("TagA", "TagB")]
        tagged = session.driver.push_consumer(
            "tagged", group="tagged", topic="Tagged", expression="TagA || TagB"
        )
        async with tagged as consumer:
            await consumer.wait_received(20)
            last = Outgoing("Tagged", b"the last", tags="TagA")
            expect_sent(await session.producer.send(Outgoing("Tagged", b"no", tags="TagC"), last))
            expect_once(await consumer.wait_received(21), [*wanted, last])


async def _broadcasting(session: ClientSession) -> None:
    with session.operations.operation(PART, "broadcasting, each gets everything"):
        await session.create_topic("Broadcast")
        messages = numbered("Broadcast", 20)
        consumers = [
            session.driver.push_consumer(
                f"broadcast-{number}", group="broadcast", topic="Broadcast", model="BROADCASTING"
            )
            for number in range(2)
        ]
        async with consumers[0] as first, consumers[1] as second:
            expect_sent(await session.producer.send(*messages))
            expect_once(await first.wait_received(20), messages)
            expect_once(await second.wait_received(20), messages)


async def _orderly(session: ClientSession) -> None:
    producer, driver = session.producer, session.driver

    with session.operations.operation(PART, "orderly, each queue in its order"):
        queues = await session.create_topic("InOrder")
        sent = {}
        for queue in queues:
            name = f"InOrder {queue.queue_id}"
            sent[queue] = [Outgoing("InOrder", f"{name}.{n}".encode()) for n in range(10)]
            expect_sent(await producer.send_to_queue(*sent[queue], queue=queue))
        orderly = driver.push_consumer("orderly", group="orderly", topic="InOrder", orderly=True)
        async with orderly as consumer:
            await consumer.wait_received(40)
            for queue in queues:
                got = [m for m in consumer.received if m.queue_id == queue.queue_id]
                expect_in_order(got, sent[queue])

    with session.operations.operation(PART, "orderly, a message that fails holds up its queue"):
        (queue,) = await session.create_topic("Stubborn", queues=1)
        messages = numbered("Stubborn", 5)
        expect_sent(await producer.send(*messages))
        stubborn = driver.push_consumer(
            "stubborn", group="stubborn", topic="Stubborn", orderly=True, failures=1
        )
        async with stubborn as consumer:
            await consumer.wait_received(10)
            twice = [message for message in messages for _ in range(2)]
            expect_in_order(consumer.received, twice)
            times = [message.reconsume_times for message in consumer.received]
            expect("reconsume times", times, [0, 1] * 5)
