"""Order: sharding keys, orderly consumers, queues that are locked and handed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inbox import Inbox
from leaving import member
from our_messages import as_queue, as_sent, ours
from sharing_cases import wait_has, wait_split

from interop.support.cases import expect
from interop.support.expectations import expect_in_order, expect_once, expect_sent, numbered
from interop.support.java_messages import Outgoing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from python_session import PythonSession

    from interop.support.java_messages import Queue, Received

PART: Final = "order"
KEYS: Final = ("order-1", "order-2", "", "Grüße", "你好", "polygenelubricants", "x" * 100)
"""The hash of one of them is the lowest there is, whose absolute value Java cannot say."""
QUEUES: Final = 8
# A queue that was still locked when a consumer first wanted it is tried again after 20 s.
UNLOCKED_WITHIN_S: Final = 30


async def run_ordering_cases(session: PythonSession) -> None:
    await _same_queues(session)
    await _in_order(session)
    await _held_up(session)
    await _handed_over(session)


async def _same_queues(session: PythonSession) -> None:
    with session.operation(PART, "a sharding key chooses the queue that a stock producer chooses"):
        await session.create_topic("PyShards", queues=7)
        for key in KEYS:
            message = Outgoing("PyShards", b"x")
            (theirs,) = await session.java.send_by_key(message, key=key)
            mine = await session.producer.send_ordered(ours(message), key)
            expect(f"queue of {key!r}", as_queue(mine.queue), theirs.queue)


async def _in_order(session: PythonSession) -> None:
    with session.operation(PART, "ours to a stock orderly consumer"):
        queues = await session.create_topic("PyInOrder")
        sent: dict[Queue, list[Outgoing]] = {queue: [] for queue in queues}
        for number in range(40):
            message = Outgoing("PyInOrder", f"order {number}".encode())
            result = await session.producer.send_ordered(ours(message), f"key-{number % 9}")
            expect_sent([as_sent(result)])
            sent[as_queue(result.queue)].append(message)
        orderly = session.driver.push_consumer(
            "in-order", group="in-order", topic="PyInOrder", orderly=True
        )
        async with orderly as consumer:
            _expect_order(await consumer.wait_received(40), sent)

    with session.operation(PART, "a stock producer to our orderly consumer"):
        queues = await session.create_topic("PyGetInOrder")
        sent = {queue: [] for queue in queues}
        for number in range(40):
            message = Outgoing("PyGetInOrder", f"order {number}".encode())
            (answer,) = await session.java.send_by_key(message, key=f"key-{number % 9}")
            sent[answer.queue].append(message)
        inbox = Inbox()
        async with session.push_consumer("py-in-order", "PyGetInOrder", inbox, is_orderly=True):
            _expect_order(await inbox.wait(40), sent)


def _expect_order(received: Sequence[Received], sent: dict[Queue, list[Outgoing]]) -> None:
    for queue, messages in sent.items():
        expect_in_order([m for m in received if m.queue_id == queue.queue_id], messages)


async def _held_up(session: PythonSession) -> None:
    with session.operation(PART, "a message that fails holds up its queue"):
        await session.create_topic("PyStubborn", queues=1)
        messages = numbered("PyStubborn", 5)
        expect_sent(await session.java.send(*messages))
        inbox = Inbox(failures=1)
        async with session.push_consumer("py-stubborn", "PyStubborn", inbox, is_orderly=True):
            await inbox.wait(10)
            expect_in_order(inbox.received, [m for m in messages for _ in range(2)])
            times = [message.reconsume_times for message in inbox.received]
            expect("reconsume times", times, [0, 1] * 5)


async def _handed_over(session: PythonSession) -> None:
    queues = await session.create_topic("PyLocked", queues=QUEUES)
    messages = numbered("PyLocked", 48)
    inbox = Inbox()
    stock = session.driver.push_consumer("locked", group="locked", topic="PyLocked", orderly=True)
    mine = session.push_consumer("locked", "PyLocked", inbox, is_orderly=True)
    async with member(mine) as it:
        consumer = it.consumer
        async with stock as theirs:
            with session.operation(
                PART, "locked queues are shared with a stock consumer", timeout_s=100
            ):
                await wait_split(queues, consumer, theirs, timeout_s=UNLOCKED_WITHIN_S)
                expect_sent(await session.java.send(*messages[:16]))
                await theirs.wait_received(8)
                await inbox.wait(8)
                expect_once([*inbox.received, *theirs.received], messages[:16])
        with session.operation(
            PART, "ours gets the queues of a stock consumer that leaves", timeout_s=100
        ):
            await wait_has(consumer, QUEUES, timeout_s=UNLOCKED_WITHIN_S)
            expect_sent(await session.java.send(*messages[16:32]))
            await inbox.wait(24)
        async with session.driver.push_consumer(
            "locked-2", group="locked", topic="PyLocked", orderly=True
        ) as heir:
            with session.operation(
                PART, "a stock consumer gets the queues of ours that leaves", timeout_s=100
            ):
                await wait_split(queues, consumer, heir, timeout_s=UNLOCKED_WITHIN_S)
                await it.leave()
                await wait_has(heir, QUEUES, timeout_s=UNLOCKED_WITHIN_S)
                expect_sent(await session.java.send(*messages[32:]))
                await heir.wait_received(16, timeout_s=UNLOCKED_WITHIN_S)
                everything = [*inbox.received, *theirs.received, *heir.received]
                expect_once(everything, messages)
