"""Lite pull consumers of ours: subscribe and assign, seek, commit, share with stock ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from our_messages import as_received

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_in_order, expect_once, expect_sent, numbered
from interop.support.java_messages import Outgoing
from interop.support.waiting import wait_until
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.consuming.subscription_set import Sql
from rmq.client.trio.opening import open_lite_pull_consumer
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

    from python_session import PythonSession

    from interop.support.java_messages import Received
    from rmq.client.tasks.lite_pull import LitePullConsumer

PART: Final = "lite pull"
POLLED_WITHIN_S: Final = 20.0
NOTIFIED_WITHIN_S: Final = 10


async def run_lite_cases(session: PythonSession) -> None:
    await _subscribe(session)
    await _assign(session)
    await _filters(session)
    await _share(session)


def _open(
    session: PythonSession, group: str, *, commits_itself: bool = False
) -> AbstractAsyncContextManager[LitePullConsumer]:
    return open_lite_pull_consumer(
        session.nameserver, group, commits_itself=commits_itself, consume_from=ConsumeFrom.FIRST
    )


async def _poll(consumer: LitePullConsumer, count: int) -> list[Received]:
    """Poll until there are at least so many messages."""
    polled: list[Received] = []
    with trio.fail_after(POLLED_WITHIN_S):
        while len(polled) < count:
            polled += [as_received(message) for message in await consumer.poll(1.0)]
    return polled


async def _subscribe(session: PythonSession) -> None:
    messages = numbered("PyLite", 40, tags="TagA")
    await session.create_topic("PyLite")
    expect_sent(await session.java.send(*messages[:20]))

    with session.operation(PART, "subscribe and poll a stock producer's messages"):
        async with _open(session, "py-lite") as consumer:
            await consumer.subscribe("PyLite")
            expect_once(await _poll(consumer, 20), messages[:20])

    with session.operation(PART, "nothing committed: everything again; commit"):
        async with _open(session, "py-lite") as consumer:
            await consumer.subscribe("PyLite")
            expect_once(await _poll(consumer, 20), messages[:20])
            await consumer.commit()

    with session.operation(PART, "a stock lite pull consumer goes on after what ours committed"):
        expect_sent(await session.send(*messages[20:30]))
        stock = session.driver.lite_pull_consumer(
            "go-on", group="py-lite", topic="PyLite", expression="*"
        )
        async with stock as theirs:
            expect_once(await theirs.poll(10), messages[20:30])
            await theirs.commit()

    with session.operation(PART, "ours goes on after what a stock one committed, by itself"):
        expect_sent(await session.java.send(*messages[30:]))
        async with _open(session, "py-lite", commits_itself=True) as consumer:
            await consumer.subscribe("PyLite")
            polled = []
            async for message in consumer:
                polled.append(as_received(message))
                if len(polled) == 10:
                    break
            expect_once(polled, messages[30:])
        async with _open(session, "py-lite") as consumer:
            await consumer.subscribe("PyLite")
            expect("nothing left", await consumer.poll(2.0), [])


async def _assign(session: PythonSession) -> None:
    messages = numbered("PyAssigned", 12)
    await session.create_topic("PyAssigned")
    queues = _queues(session, "PyAssigned", 4)
    for number, message in enumerate(messages):
        stock_queue = (await session.java.queues("PyAssigned"))[number % 2]
        expect_sent(await session.java.send_to_queue(message, queue=stock_queue))
        # So that each has a time of its own.
        await trio.sleep(0.02)

    async with _open(session, "py-assigned") as consumer:
        with session.operation(PART, "assign queues and poll"):
            await consumer.assign(queues[:1])
            expect_in_order(await _poll(consumer, 6), messages[0::2])

        with session.operation(PART, "seek to an offset, to a time, to the beginning, to the end"):
            await consumer.seek(queues[0], 4)
            polled = await _poll(consumer, 2)
            expect_in_order(polled, messages[8::2])
            await consumer.seek_to_time(queues[0], polled[0].store_ms)
            expect_in_order(await _poll(consumer, 2), messages[8::2])
            await consumer.seek_to_begin(queues[0])
            expect_in_order(await _poll(consumer, 6), messages[0::2])
            await consumer.seek_to_end(queues[0])
            expect("at the end", await consumer.poll(1.0), [])

        with session.operation(PART, "commit what was assigned; a stock consumer sees it"):
            await consumer.seek(queues[0], 3)
            await _poll(consumer, 3)
            await consumer.commit()
            expect("committed", await consumer.committed(queues[0]), 6)
            async with session.driver.pull_consumer("assigned", group="py-assigned") as stock:
                (queue, *_) = await stock.queues("PyAssigned")
                expect("stock", await stock.committed(queue), 6)

        with session.operation(PART, "pause and resume a queue"):
            await consumer.assign(queues[1:2])
            consumer.pause(queues[1:2])
            expect("paused", await consumer.poll(1.0), [])
            consumer.resume(queues[1:2])
            expect_in_order(await _poll(consumer, 6), messages[1::2])


async def _filters(session: PythonSession) -> None:
    with session.operation(PART, "by tag and by SQL92"):
        await session.create_topic("PyLiteTags")
        messages = [
            Outgoing("PyLiteTags", f"{n}".encode(), f"Tag{n % 3}", properties={"n": str(n)})
            for n in range(12)
        ]
        expect_sent(await session.java.send(*messages))
        async with _open(session, "py-lite-tags") as consumer:
            await consumer.subscribe("PyLiteTags", "Tag0 || Tag2")
            expect_once(await _poll(consumer, 8), [m for m in messages if m.tags != "Tag1"])
        async with _open(session, "py-lite-sql") as consumer:
            await consumer.subscribe("PyLiteTags", Sql("n < 3"))
            expect_once(await _poll(consumer, 3), messages[:3])


async def _share(session: PythonSession) -> None:
    with session.operation(PART, "ours and a stock lite pull consumer share the queues"):
        await session.create_topic("PyLiteShared", queues=8)
        messages = numbered("PyLiteShared", 80)
        expect_sent(await session.java.send(*messages))
        stock = session.driver.lite_pull_consumer(
            "lite-shared", group="py-lite-shared", topic="PyLiteShared", expression="*"
        )
        async with _open(session, "py-lite-shared") as mine:
            await mine.subscribe("PyLiteShared")
            async with stock as theirs:

                async def is_shared() -> bool:
                    return len(mine.assignment) == 4

                await wait_until("half of the queues", is_shared, timeout_s=NOTIFIED_WITHIN_S + 20)
                others = await theirs.poll(40)
                expect_true("others' messages", len(others) >= 40)
                # Ours may have read of queues that it had at first; the later half is its own.
                own = {(q.broker_name, q.queue_id) for q in mine.assignment}
                polled = await _poll(mine, 40)
                _expect_all([*polled, *others], messages)
                expect_true(
                    "no queue of ours polled by both",
                    all((m.broker, m.queue_id) not in own for m in others),
                )


def _expect_all(received: Iterable[Received], messages: Iterable[Outgoing]) -> None:
    """Everything must have come, once or more: queues moved while they were read."""
    expect("bodies", {m.body for m in received}, {m.body for m in messages})


def _queues(session: PythonSession, topic: str, count: int) -> list[MessageQueue]:
    return [
        MessageQueue(topic=topic, broker_name=session.broker.name, queue_id=queue_id)
        for queue_id in range(count)
    ]
