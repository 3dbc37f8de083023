"""Sends of our producer, as the stock client finds them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import trio
from our_messages import as_sent, ours

from interop.support.cases import expect, expect_true
from interop.support.expectations import (
    expect_in_order,
    expect_once,
    expect_same,
    expect_sent,
    numbered,
)
from interop.support.java_messages import Outgoing
from rmq.client.core.messages import BODY_BYTES_MAX, SendResult
from rmq.client.trio.opening import open_producer
from rmq.errors import IllegalMessageError
from rmq.model import flags
from rmq.remoting.codes import Serialization

if TYPE_CHECKING:
    from python_session import PythonSession

    from rmq.client.tasks.producer import Producer
    from rmq.errors import RmqError

PART: Final = "send"
LETTERS: Final = "Grüße 你好 🚀"


async def run_producing_cases(session: PythonSession) -> None:
    await _one_by_one(session)
    await _pipelined(session)
    await _batches(session)
    await _bodies(session)
    await _new_topic(session)
    await _binary_header(session)


async def _one_by_one(session: PythonSession) -> None:
    with session.operation(PART, "one by one, with tag, keys and properties"):
        await session.create_topic("PySend")
        messages = [
            Outgoing("PySend", b"plain"),
            Outgoing("PySend", LETTERS.encode(), "TagA", "key-1", properties={"who": LETTERS}),
            Outgoing("PySend", b"\x00\x01\x02\xff", "TagB", "key-2 key-3", properties={"a": "1"}),
        ]
        async with session.driver.push_consumer("sent", group="sent", topic="PySend") as consumer:
            sent = await session.send(*messages)
            expect_sent(sent)
            received = await consumer.wait_received(3)
            expect_once(received, messages)
            by_id = {message.message_id: message for message in received}
            for answer in sent:
                found = by_id[answer.message_id]
                place = (found.broker, found.queue_id, found.queue_offset)
                wanted = (answer.queue.broker, answer.queue.queue_id, answer.queue_offset)
                expect("place", place, wanted)
                expect("offset id", found.offset_message_id, answer.offset_message_id)

    with session.operation(PART, "the stock client finds it by both of its ids"):
        found = await session.java.view(sent[1].offset_message_id)
        expect_same(found, messages[1])
        found = await session.java.view_by_unique_key("PySend", sent[1].message_id)
        expect_same(found, messages[1])

    with session.operation(PART, "round robin over all queues"):
        await session.create_topic("PyRound")
        sent = await session.send(*numbered("PyRound", 8))
        expect("queues", sorted(answer.queue.queue_id for answer in sent), [0, 0, 1, 1, 2, 2, 3, 3])


async def _pipelined(session: PythonSession) -> None:
    with session.operation(PART, "pipelined: 500 that are waited for later"):
        await session.create_topic("PyPipelined")
        messages = numbered("PyPipelined", 500)
        pending = [await session.producer.send_soon(ours(message)) for message in messages]
        expect_sent([as_sent(await send.wait()) for send in pending])
        expect_once(await session.reader.read_topic("PyPipelined", count=500), messages)

    with session.operation(PART, "submitted: 500 with an outcome each"):
        await session.create_topic("PySubmitted")
        messages = numbered("PySubmitted", 500)
        expect_sent([as_sent(result) for result in await _submit(session.producer, messages)])
        expect_once(await session.reader.read_topic("PySubmitted", count=500), messages)

    with session.operation(PART, "one-way"):
        await session.create_topic("PyOneWay")
        messages = numbered("PyOneWay", 20)
        for message in messages:
            await session.producer.send_oneway(ours(message))
        expect_once(await session.reader.read_topic("PyOneWay", count=20), messages)


async def _submit(producer: Producer, messages: list[Outgoing]) -> list[SendResult]:
    outcomes: list[SendResult | RmqError] = []
    done = trio.Event()

    def take(outcome: SendResult | RmqError) -> None:
        outcomes.append(outcome)
        if len(outcomes) == len(messages):
            done.set()

    for message in messages:
        producer.submit(ours(message), take)
    await done.wait()
    results = [outcome for outcome in outcomes if isinstance(outcome, SendResult)]
    expect("failures", [outcome for outcome in outcomes if outcome not in results], [])
    return results


async def _batches(session: PythonSession) -> None:
    with session.operation(PART, "batch of 32"):
        await session.create_topic("PyBatch")
        messages = numbered("PyBatch", 32, tags="TagA")
        (result,) = await session.producer.send_batch([ours(message) for message in messages])
        expect_sent([as_sent(result)])
        received = await session.reader.read_topic("PyBatch", count=32)
        expect_in_order(received, messages)
        expect_once(received, messages)
        ids = [message.message_id for message in received]
        expect("unique ids", result.message_id.split(","), ids)
        offset_ids = [message.offset_message_id for message in received]
        expect("offset ids", result.offset_message_id.split(","), offset_ids)

    with session.operation(PART, "a list of 9 MiB goes as several batches"):
        await session.create_topic("PyBigBatch")
        body = random.Random(1).randbytes(300 << 10)
        messages = [Outgoing("PyBigBatch", bytes([n]) + body) for n in range(30)]
        results = await session.producer.send_batch([ours(message) for message in messages])
        expect_sent([as_sent(result) for result in results])
        expect_true("several batches", 3 <= len(results) <= 5)
        received = await session.reader.read_topic("PyBigBatch", count=30)
        expect_once(received, messages)


async def _bodies(session: PythonSession) -> None:
    await session.create_topic("PyBodies", queues=1)
    with session.operation(PART, "compressed body (64 KiB)"):
        message = Outgoing("PyBodies", b"abcdefgh" * 8192, "TagA", "compressed")
        expect_sent(await session.send(message))
        (found,) = await session.reader.read_topic("PyBodies", count=1)
        expect_same(found, message)
        expect_true("the compressed flag", found.sys_flag & flags.COMPRESSED)

    with session.operation(PART, "4 MiB body"):
        message = Outgoing("PyBodies", random.Random(2).randbytes(BODY_BYTES_MAX), keys="4m")
        expect_sent(await session.send(message))
        (_, found) = await session.reader.read_topic("PyBodies", count=2)
        expect_same(found, message)

    with session.operation(PART, "body over 4 MiB is refused before it is sent"):
        body = random.Random(3).randbytes(BODY_BYTES_MAX + 1)
        try:
            await session.send(Outgoing("PyBodies", body))
        except IllegalMessageError:
            pass
        else:
            expect_true("IllegalMessageError", condition=False)

    with session.operation(PART, "30 KiB of properties"):
        properties = {f"name-{n}": "v" * 1000 for n in range(30)}
        message = Outgoing("PyBodies", b"1", properties=properties)
        expect_sent(await session.send(message))
        found = (await session.reader.read_topic("PyBodies", count=2))[-1]
        expect_same(found, message)


async def _new_topic(session: PythonSession) -> None:
    with session.operation(PART, "to a topic that is created by it"):
        messages = numbered("PyCreated", 8)
        expect_sent(await session.send(*messages))
        expect("queues", len(await session.reader.queues("PyCreated")), 4)
        expect_once(await session.reader.read_topic("PyCreated", count=8), messages)


async def _binary_header(session: PythonSession) -> None:
    with session.operation(PART, "binary header: send, batch, one-way"):
        await session.create_topic("PyBinary")
        messages = numbered("PyBinary", 12)
        config = session.config(serialization=Serialization.ROCKETMQ)
        async with open_producer(config, "py-binary") as producer:
            expect_sent([as_sent(await producer.send(ours(message))) for message in messages[:4]])
            await producer.send_batch([ours(message) for message in messages[4:8]])
            for message in messages[8:]:
                await producer.send_oneway(ours(message))
            expect_once(await session.reader.read_topic("PyBinary", count=12), messages)
