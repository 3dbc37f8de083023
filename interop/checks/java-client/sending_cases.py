"""Sends of every kind, and what is in the queues afterwards."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from interop.support.cases import expect
from interop.support.expectations import (
    expect_in_order,
    expect_once,
    expect_same,
    expect_sent,
    numbered,
)
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing, Queue
from rmq.model.record import parse_message_id

if TYPE_CHECKING:
    from client_session import ClientSession

PART: Final = "send"
BODY_BYTES_MAX: Final = 4 << 20
COMPRESSED: Final = 1
MESSAGE_ILLEGAL: Final = 13


async def run_sending_cases(session: ClientSession) -> None:
    await _kinds(session)
    await _sizes(session)
    await _ways(session)


async def _kinds(session: ClientSession) -> None:
    producer, reader = session.producer, session.reader

    with session.operations.operation(PART, "create a topic"):
        queues = await session.create_topic("Sync")
        expect("queues", queues, [Queue("Sync", session.broker.name, n) for n in range(4)])

    with session.operations.operation(PART, "sync"):
        messages = [
            Outgoing(
                "Sync",
                f"Grüße, 世界 {number}".encode(),
                tags="TagA",
                keys=f"key-{number} all",
                properties={"colour": "grün", "number": str(number)},
            )
            for number in range(8)
        ]
        sent = await producer.send(*messages)
        expect_sent(sent)
        expect("queues in turn", Counter(answer.queue for answer in sent), Counter(queues * 2))
        found = await reader.read_topic("Sync", count=8)
        expect_once(found, messages)
        by_id = {message.message_id: message for message in found}
        for answer in sent:
            message = by_id[answer.message_id]
            expect("queue", message.queue_id, answer.queue.queue_id)
            expect("queue offset", message.queue_offset, answer.queue_offset)
            expect("offset id", message.offset_message_id, answer.offset_message_id)
            expect("store host", message.store_host, session.broker.address)
            offset = parse_message_id(answer.offset_message_id)[1]
            expect("physical offset", message.physical_offset, offset)

    with session.operations.operation(PART, "async"):
        await session.create_topic("Async")
        messages = numbered("Async", 100)
        expect_sent(await producer.send_async(*messages))
        expect_once(await reader.read_topic("Async", count=100), messages)

    with session.operations.operation(PART, "one-way"):
        await session.create_topic("OneWay")
        messages = numbered("OneWay", 50)
        await producer.send_one_way(*messages)
        expect_once(await reader.read_topic("OneWay", count=50), messages)

    with session.operations.operation(PART, "ordered, by a queue selector"):
        queues = await session.create_topic("Ordered")
        for number in range(8):
            messages = numbered(f"Ordered{number}", 5)
            messages = [Outgoing("Ordered", message.body) for message in messages]
            sent = await producer.send_ordered(*messages, number=number)
            expect_sent(sent)
            expect("queue", {answer.queue for answer in sent}, {queues[number % 4]})
            count = sent[-1].queue_offset + 1
            found = await reader.read_queue(queues[number % 4], count=count)
            expect_in_order(found[-5:], messages)

    with session.operations.operation(PART, "to a queue of choice"):
        queues = await session.create_topic("Chosen")
        messages = numbered("Chosen", 6)
        sent = await producer.send_to_queue(*messages, queue=queues[2])
        expect("offsets", [answer.queue_offset for answer in sent], list(range(6)))
        expect_in_order(await reader.read_queue(queues[2], count=6), messages)

    with session.operations.operation(PART, "batch of 32"):
        await session.create_topic("Batch")
        messages = numbered("Batch", 32, tags="TagB")
        answer = await producer.send_batch(*messages)
        expect("status", answer.status, "SEND_OK")
        found = await reader.read_queue(answer.queue, count=32)
        expect_in_order(found, messages)
        for message, outgoing in zip(found, messages, strict=True):
            expect_same(message, outgoing)
        first = answer.queue_offset
        offsets = [message.queue_offset for message in found]
        expect("offsets", offsets, list(range(first, first + 32)))
        expect("ids", [message.message_id for message in found], answer.message_id.split(","))
        expect(
            "offset ids",
            [message.offset_message_id for message in found],
            answer.offset_message_id.split(","),
        )


async def _sizes(session: ClientSession) -> None:
    producer, reader = session.producer, session.reader
    noise = random.Random(5)

    with session.operations.operation(PART, "compressed body (64 KiB)"):
        await session.create_topic("Compressed", queues=1)
        message = Outgoing("Compressed", b"the same again, " * 4096)
        expect_sent(await producer.send(message))
        (found,) = await reader.read_topic("Compressed", count=1)
        expect_same(found, message)
        expect("compressed flag", found.sys_flag & COMPRESSED, COMPRESSED)

    with session.operations.operation(PART, "empty properties, 1 byte body"):
        await session.create_topic("Tiny", queues=1)
        message = Outgoing("Tiny", b"\0")
        expect_sent(await producer.send(message))
        (found,) = await reader.read_topic("Tiny", count=1)
        expect_same(found, message)

    with session.operations.operation(PART, "a topic of 127 characters, 30 KiB of properties"):
        topic = "L" * 127
        await session.create_topic(topic, queues=1)
        message = Outgoing(topic, b"small", properties={"long": "p" * 30_000})
        expect_sent(await producer.send(message))
        (found,) = await reader.read_topic(topic, count=1)
        expect_same(found, message)

    big = session.driver.producer(
        "big", maxMessageBytes=2 * BODY_BYTES_MAX, compressOverBytes=2 * BODY_BYTES_MAX
    )
    async with big as big_producer:
        with session.operations.operation(PART, "4 MiB body"):
            await session.create_topic("Big", queues=1)
            message = Outgoing("Big", noise.randbytes(BODY_BYTES_MAX))
            expect_sent(await big_producer.send(message))
            (found,) = await reader.read_topic("Big", count=1)
            expect_same(found, message)

        with session.operations.operation(PART, "body over 4 MiB is refused"):
            try:
                await big_producer.send(Outgoing("Big", noise.randbytes(BODY_BYTES_MAX + 1)))
            except StockClientError as refusal:
                expect("code", refusal.code, MESSAGE_ILLEGAL)
            else:
                expect("outcome", "sent", "refused")
            expect("messages", len(await reader.read_topic("Big", count=1)), 1)


async def _ways(session: ClientSession) -> None:
    reader = session.reader

    with session.operations.operation(PART, "to a topic that is created by it"):
        messages = numbered("Automatic", 8)
        sent = await session.producer.send(*messages)
        expect_sent(sent)
        expect("queues", len({answer.queue for answer in sent}), 4)
        expect_once(await reader.read_topic("Automatic", count=8), messages)

    with session.operations.operation(PART, "through the VIP port"):
        await session.create_topic("Vip")
        messages = numbered("Vip", 4)
        async with session.driver.producer("vip", vip=True) as producer:
            expect_sent(await producer.send(*messages))
        expect_once(await reader.read_topic("Vip", count=4), messages)

    with session.operations.operation(PART, "binary header: sync, async, one-way, batch, consume"):
        await session.create_topic("Binary")
        messages = numbered("Binary", 40, tags="TagA")
        binary = session.kit.driver(
            session.cluster.nameserver, {"rocketmq.serialize.type": "ROCKETMQ"}
        )
        async with binary as driver, driver.producer("binary") as producer:
            expect_sent(await producer.send(*messages[:10]))
            expect_sent(await producer.send_async(*messages[10:20]))
            await producer.send_one_way(*messages[20:30])
            expect_sent([await producer.send_batch(*messages[30:])])
            consuming = driver.push_consumer(
                "binary", group="binary", topic="Binary", expression="TagA || TagB"
            )
            async with consuming as consumer:
                expect_once(await consumer.wait_received(len(messages)), messages)
            (found,) = await producer.query_by_key("Binary", "Binary-7")
            expect_same(found, messages[7])
        expect_once(await reader.read_topic("Binary", count=40), messages)
