"""Consumers that ask for messages themselves: pull and lite pull."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import trio

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_in_order, expect_once, expect_sent, numbered
from interop.support.java_messages import Outgoing

if TYPE_CHECKING:
    from client_session import ClientSession

PULL: Final = "pull"
LITE: Final = "lite pull"
HOLD_S: Final = 3
PAUSE_S: Final = 0.05


async def run_pulling_cases(session: ClientSession) -> None:
    await _pull(session)
    await _pages(session)
    await _hold(session)
    await _lite_subscribe(session)
    await _lite_assign(session)


async def _pull(session: ClientSession) -> None:
    producer = session.producer
    (queue,) = await session.create_topic("Pulled", queues=1)
    messages = [*numbered("Pulled", 40, tags="TagA"), Outgoing("Pulled", b"odd", tags="TagB")]
    expect_sent(await producer.send(*messages))
    await session.reader.read_queue(queue, count=41)
    async with session.driver.pull_consumer("puller", group="pullers") as puller:
        with session.operations.operation(PULL, "the queues of a topic"):
            expect("queues", await puller.queues("Pulled"), [queue])

        with session.operations.operation(PULL, "a page at a time"):
            first = await puller.pull(queue, 0, count_max=16)
            expect("first page", (first.status, first.next_offset), ("FOUND", 16))
            expect("bounds", (first.min_offset, first.max_offset), (0, 41))
            second = await puller.pull(queue, 16)
            expect("second page", (second.status, second.next_offset), ("FOUND", 41))
            expect_in_order([*first.messages, *second.messages], messages)

        with session.operations.operation(PULL, "by tag"):
            odd = await puller.pull(queue, 0, expression="TagB", count_max=32)
            expect("found", [message.body for message in odd.messages], [b"odd"])
            none = await puller.pull(queue, 0, expression="TagC")
            expect("status", none.status, "NO_MATCHED_MSG")
            expect_true(f"to go on, not at {none.next_offset}", none.next_offset > 0)

        with session.operations.operation(PULL, "at the end and outside of the queue"):
            end = await puller.pull(queue, 41)
            expect("at the end", (end.status, end.next_offset), ("NO_NEW_MSG", 41))
            beyond = await puller.pull(queue, 1000)
            expect("beyond it", (beyond.status, beyond.next_offset), ("OFFSET_ILLEGAL", 41))

        with session.operations.operation(PULL, "commit an offset and read it"):
            # What a broker says of a young queue makes new groups read all of it.
            expect("before", await puller.committed(queue), 0)
            await puller.commit(queue, 17)
            expect("after", await puller.committed(queue), 17)


async def _pages(session: ClientSession) -> None:
    with session.operations.operation(PULL, "a page ends at 256 KiB"):
        (queue,) = await session.create_topic("Pages", queues=1)
        messages = [Outgoing("Pages", random.Random(n).randbytes(65_536)) for n in range(10)]
        expect_sent(await session.producer.send(*messages))
        expect_in_order(await session.reader.read_queue(queue, count=10), messages)
        page = await session.reader.pull(queue, 0)
        expect("messages of a page", len(page.messages), 3)


async def _hold(session: ClientSession) -> None:
    (queue,) = await session.create_topic("Held", queues=1)
    holding = session.driver.pull_consumer("holder", group="holders", waitMs=HOLD_S * 1000)
    async with holding as puller:
        with session.operations.operation(PULL, "a held pull ends after its time"):
            started = trio.current_time()
            nothing = await puller.pull_or_wait(queue, 0)
            waited_s = trio.current_time() - started
            expect("status", nothing.status, "NO_NEW_MSG")
            # The stock broker looks at what it holds every 5 s.
            expect_true(f"{HOLD_S} s, not {waited_s}", HOLD_S <= waited_s < HOLD_S + 6)

        with session.operations.operation(PULL, "a held pull is woken by a message"):
            message = Outgoing("Held", b"wake up", delay_level=1)
            expect_sent(await session.producer.send(message))
            found = await puller.pull_or_wait(queue, 0)
            expect("found", [m.body for m in found.messages], [message.body])


async def _lite_subscribe(session: ClientSession) -> None:
    queues = await session.create_topic("Lite")
    messages = numbered("Lite", 40, tags="TagA")
    expect_sent(await session.producer.send(*messages))
    subscribed = {"group": "lite", "topic": "Lite", "expression": "TagA"}

    with session.operations.operation(LITE, "subscribe and poll"):
        async with session.driver.lite_pull_consumer("lite-1", **subscribed) as consumer:
            expect_once(await consumer.poll(40), messages)

    with session.operations.operation(LITE, "nothing committed: everything again; commit"):
        async with session.driver.lite_pull_consumer("lite-2", **subscribed) as consumer:
            expect_once(await consumer.poll(40), messages)
            await consumer.commit()
            committed = [await consumer.committed(queue) for queue in queues]
            expect("committed", committed, [10] * 4)

    with session.operations.operation(LITE, "the group goes on after what was committed"):
        more = [Outgoing("Lite", b"more", tags="TagA")]
        async with session.driver.lite_pull_consumer("lite-3", **subscribed) as consumer:
            expect_sent(await session.producer.send(*more))
            expect_once(await consumer.poll(1), more)


async def _lite_assign(session: ClientSession) -> None:
    queues = await session.create_topic("Assigned", queues=2)
    messages = numbered("Assigned", 10)
    # The sixth alone has its time: of messages with the same one, a search may find any.
    for some in (messages[:5], messages[5:6], messages[6:]):
        expect_sent(await session.producer.send_to_queue(*some, queue=queues[0]))
        await trio.sleep(PAUSE_S)
    found = await session.reader.read_queue(queues[0], count=10)
    assigned = [queue.as_json() for queue in queues]
    starting = session.driver.lite_pull_consumer("assigned", group="assigned", queues=assigned)
    async with starting as consumer:
        with session.operations.operation(LITE, "assign queues and poll"):
            expect("queues", await consumer.queues("Assigned"), queues)
            expect_in_order(await consumer.poll(10), messages)

        with session.operations.operation(LITE, "seek to an offset"):
            await consumer.seek(queues[0], 7)
            expect_in_order(await consumer.poll(3), messages[7:])

        with session.operations.operation(LITE, "seek to a time"):
            offset = await consumer.offset_for_time(queues[0], found[5].store_ms)
            expect("offset", offset, 5)
            await consumer.seek(queues[0], offset)
            expect_in_order(await consumer.poll(5), messages[5:])

        with session.operations.operation(LITE, "seek to the beginning and to the end"):
            await consumer.seek_to_begin(queues[0])
            expect_in_order(await consumer.poll(10), messages)
            await consumer.seek_to_end(queues[0])
            last = Outgoing("Assigned", b"the last")
            expect_sent(await session.producer.send_to_queue(last, queue=queues[0]))
            expect_in_order(await consumer.poll(1), [last])

        with session.operations.operation(LITE, "commit what was assigned"):
            await consumer.commit()
            expect("committed", await consumer.committed(queues[0]), 11)
