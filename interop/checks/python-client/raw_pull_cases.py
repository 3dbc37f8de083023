"""Raw pulls of ours: pages, filters, ends of queues, offsets that stock consumers see."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio
from our_messages import as_queue, as_received

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_in_order, expect_once, expect_sent, numbered
from interop.support.java_messages import Outgoing
from interop.support.waiting import wait_until
from rmq.client.core.consuming.pulls import PullStatus
from rmq.client.core.consuming.subscription_set import Sql
from rmq.client.trio.opening import open_pull_consumer
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from python_session import PythonSession

    from interop.support.java_messages import Received
    from rmq.client.tasks.pull_consumer import PullConsumer

PART: Final = "pull"
GROUP: Final = "py-pull"
WAKES_WITHIN_S: Final = 1.5


async def run_raw_pull_cases(session: PythonSession) -> None:
    async with open_pull_consumer(session.nameserver, GROUP) as consumer:
        await _pages(session, consumer)
        await _filters(session, consumer)
        await _ends(session, consumer)
        await _waiting(session, consumer)
        await _offsets(session, consumer)
        await _sent_back(session, consumer)


async def _pages(session: PythonSession, consumer: PullConsumer) -> None:
    with session.operation(PART, "the queues of a topic"):
        queues = await session.create_topic("PyPull")
        found = await consumer.fetch_queues("PyPull")
        expect("queues", [as_queue(queue) for queue in found], queues)

    with session.operation(PART, "a page at a time, of a stock producer's messages"):
        messages = numbered("PyPull", 50)
        expect_sent(await session.java.send_to_queue(*messages, queue=queues[1]))
        received: list[Received] = []
        offset = 0
        while offset < 50:
            page = await consumer.pull(_queue(session, "PyPull", 1), offset, max_messages=20)
            expect("status", page.status, PullStatus.FOUND)
            expect("range", (page.min_offset, page.max_offset), (0, 50))
            received += [as_received(message) for message in page.messages]
            offset = page.next_offset
        expect_in_order(received, messages)
        expect_once(received, messages)


async def _filters(session: PythonSession, consumer: PullConsumer) -> None:
    with session.operation(PART, "by tag and by SQL92"):
        await session.create_topic("PyPullTags", queues=1)
        messages = [
            Outgoing("PyPullTags", f"{n}".encode(), f"Tag{n % 3}", properties={"n": str(n)})
            for n in range(12)
        ]
        expect_sent(await session.java.send(*messages))
        queue = _queue(session, "PyPullTags", 0)
        page = await consumer.pull(queue, 0, "Tag0 || Tag2")
        wanted = [message for message in messages if message.tags != "Tag1"]
        expect_in_order([as_received(message) for message in page.messages], wanted)
        page = await consumer.pull(queue, 0, Sql("n BETWEEN 3 AND 5"))
        expect_in_order([as_received(message) for message in page.messages], messages[3:6])
        page = await consumer.pull(queue, 0, "TagNone")
        expect("status", page.status, PullStatus.NO_MATCH)
        expect_true("no messages", not page.messages)


async def _ends(session: PythonSession, consumer: PullConsumer) -> None:
    with session.operation(PART, "at the end and outside of the queue"):
        queue = _queue(session, "PyPull", 1)
        at_end = await consumer.pull(queue, 50)
        expect("at the end", (at_end.status, at_end.next_offset), (PullStatus.NO_NEW, 50))
        beyond = await consumer.pull(queue, 1000)
        expect("beyond", (beyond.status, beyond.next_offset), (PullStatus.OFFSET_ILLEGAL, 50))


async def _waiting(session: PythonSession, consumer: PullConsumer) -> None:
    with session.operation(PART, "a held pull is woken by a message"):
        (queue,) = await session.create_topic("PyPullHeld", queues=1)
        (message,) = numbered("PyPullHeld", 1)
        woken_after_s = 0.0

        async def wait_for_it() -> None:
            nonlocal woken_after_s
            page = await consumer.pull_waiting(_queue(session, "PyPullHeld", 0), 0)
            expect_once([as_received(found) for found in page.messages], [message])
            woken_after_s = time.time() - page.messages[0].stored_at_ms / 1000

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_it)
            await trio.sleep(0.5)
            expect_sent(await session.java.send_to_queue(message, queue=queue))
        expect_true(f"it at once, not after {woken_after_s:.1f} s", woken_after_s < WAKES_WITHIN_S)

    with session.operation(PART, "a held pull ends after its time"):
        started = trio.current_time()
        held = _queue(session, "PyPullHeld", 0)
        page = await consumer.pull(held, 1, suspend_s=1.0, timeout_s=20.0)
        expect("status", page.status, PullStatus.NO_NEW)
        # Brokers look after held pulls every 5 s.
        expect_true("it to be held", 0.9 < trio.current_time() - started < 8)


async def _offsets(session: PythonSession, consumer: PullConsumer) -> None:
    queue = _queue(session, "PyPull", 1)
    with session.operation(PART, "offsets: lowest, highest, by time"):
        expect("lowest", await consumer.min_offset(queue), 0)
        expect("highest", await consumer.max_offset(queue), 50)
        first_ms = await consumer.first_stored_at_ms(queue)
        expect_true("a time", first_ms is not None)
        assert first_ms is not None
        expect("by time", await consumer.offset_at(queue, first_ms - 60_000), 0)

    with session.operation(PART, "a committed offset is seen by a stock consumer, and the reverse"):
        stock_queue = as_queue(queue)
        # Brokers say 0 of a young queue that a group has never been in.
        expect("before", await consumer.fetch_offset(queue), 0)
        await consumer.update_offset(queue, 17)
        expect("ours", await consumer.fetch_offset(queue), 17)
        async with session.driver.pull_consumer("same-group", group=GROUP) as stock:
            expect("theirs", await stock.committed(stock_queue), 17)
            await stock.commit(stock_queue, 23)
        expect("ours again", await consumer.fetch_offset(queue), 23)


async def _sent_back(session: PythonSession, consumer: PullConsumer) -> None:
    with session.operation(PART, "a message that is sent back is in the retry topic, later"):
        page = await consumer.pull(_queue(session, "PyPull", 1), 5, max_messages=1)
        await consumer.send_back(page.messages[0], 1)
        retry = f"%RETRY%{GROUP}"

        async def has_come() -> bool:
            return bool(await session.reader.read_topic(retry, count=0))

        await wait_until("it in the retry topic", has_come, timeout_s=20)
        found = await session.reader.read_topic(retry, count=1)
        expect("body", [message.body for message in found], [page.messages[0].body])
        expect("times", found[0].reconsume_times, 1)


def _queue(session: PythonSession, topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=session.broker.name, queue_id=queue_id)
