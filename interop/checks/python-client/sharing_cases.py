"""One group, of which one member is ours and one is stock: they must agree on who has what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inbox import Inbox
from leaving import member
from our_messages import as_queue

from interop.support.cases import expect
from interop.support.expectations import expect_once, expect_sent, numbered
from interop.support.java_consumers import PushConsumer as StockConsumer
from interop.support.waiting import wait_until
from rmq.client.core.consuming.allocation import AverageByCircle, ConsistentHash

if TYPE_CHECKING:
    from python_session import PythonSession

    from interop.support.java_messages import Queue
    from rmq.client.core.consuming.allocation import Strategy
    from rmq.client.tasks.push_consumer import PushConsumer

PART: Final = "sharing"
QUEUES: Final = 8
# Less than the 20 s after which consumers rebalance on their own: the broker must tell them.
NOTIFIED_WITHIN_S: Final = 10


async def run_sharing_cases(session: PythonSession) -> None:
    await _share(session)
    await _other_strategies(session)
    await _die(session)


async def _share(session: PythonSession) -> None:
    queues = await session.create_topic("PyShared", queues=QUEUES)
    messages = numbered("PyShared", 80)
    inbox = Inbox()
    async with member(session.push_consumer("shared", "PyShared", inbox)) as it:
        mine = it.consumer
        with session.operation(PART, "ours alone has all queues"):
            await wait_has(mine, QUEUES)

        stock = session.driver.push_consumer("shared", group="shared", topic="PyShared")
        async with stock as theirs:
            with session.operation(PART, "ours and a stock consumer share the queues"):
                await wait_split(queues, mine, theirs)
                # Whole rounds over the queues: each half gets half of them.
                expect_sent(await session.java.send(*messages[:16]))
                expect_sent(await session.send(*messages[16:32]))
                await theirs.wait_received(16)
                await inbox.wait(16)
                expect_once([*inbox.received, *theirs.received], messages[:32])

            with session.operation(PART, "the stock consumer leaves: ours has all queues"):
                await theirs.stop()
                await wait_has(mine, QUEUES)
                expect_sent(await session.java.send(*messages[32:48]))
                await inbox.wait(32)
                expect_once([*inbox.received, *theirs.received], messages[:48])

        # Whoever gets queues begins where the broker thinks the group is.
        await mine.commit()
        stock = session.driver.push_consumer("shared-2", group="shared", topic="PyShared")
        async with stock as heir:
            with session.operation(PART, "ours leaves: the stock consumer has all queues"):
                await wait_split(queues, mine, heir)
                expect_sent(await session.java.send(*messages[48:64]))
                await heir.wait_received(8)
                await inbox.wait(40)
                await it.leave()
                await wait_has(heir, QUEUES)
                expect_sent(await session.java.send(*messages[64:]))
                await heir.wait_received(24)
                expect_once([*inbox.received, *theirs.received, *heir.received], messages)


async def _other_strategies(session: PythonSession) -> None:
    for strategy in (AverageByCircle(), ConsistentHash()):
        name = strategy.name
        with session.operation(PART, f"three consumers of strategy {name} have each queue once"):
            await _share_by(session, name, strategy)


async def _share_by(session: PythonSession, name: str, strategy: Strategy) -> None:
    topic = f"Py{name}"
    queues = await session.create_topic(topic, queues=19)
    options = {"group": name, "topic": topic, "strategy": name}
    async with (
        session.driver.push_consumer(f"a-{name}", **options) as first,
        session.push_consumer(name, topic, Inbox(), strategy=strategy) as mine,
        session.driver.push_consumer(f"z-{name}", **options) as last,
    ):

        async def is_split() -> bool:
            shares = [await queues_of(consumer) for consumer in (first, mine, last)]
            return sum(map(len, shares)) == len(queues) and set().union(*shares) == set(queues)

        await wait_until("each queue to have one consumer", is_split, timeout_s=NOTIFIED_WITHIN_S)


async def _die(session: PythonSession) -> None:
    with session.operation(PART, "a stock consumer is killed: ours has all queues"):
        queues = await session.create_topic("PyMourned", queues=QUEUES)
        messages = numbered("PyMourned", 16)
        inbox = Inbox()
        async with (
            session.push_consumer("mourned", "PyMourned", inbox) as survivor,
            session.kit.driver(session.nameserver) as other,
            other.push_consumer("victim", group="mourned", topic="PyMourned") as victim,
        ):
            await wait_split(queues, survivor, victim)
            await other.kill()
            await wait_has(survivor, QUEUES)
            expect_sent(await session.java.send(*messages))
            expect_once(await inbox.wait(len(messages)), messages)


async def queues_of(consumer: PushConsumer | StockConsumer, topic: str | None = None) -> set[Queue]:
    """Return the queues of a consumer, without those of its retry topic."""
    if isinstance(consumer, StockConsumer):
        return await consumer.queues()
    return {as_queue(queue) for queue in consumer.queues if not queue.topic.startswith("%RETRY%")}


async def wait_has(
    consumer: PushConsumer | StockConsumer, count: int, *, timeout_s: float = NOTIFIED_WITHIN_S
) -> None:
    async def has() -> bool:
        return len(await queues_of(consumer)) == count

    await wait_until(f"a consumer to have {count} queues", has, timeout_s=timeout_s)


async def wait_split(
    queues: list[Queue],
    first: PushConsumer | StockConsumer,
    second: PushConsumer | StockConsumer,
    *,
    timeout_s: float = NOTIFIED_WITHIN_S,
) -> None:
    """Wait until two consumers have half of the queues each."""
    half = len(queues) // 2
    await wait_has(second, half, timeout_s=timeout_s)
    await wait_has(first, half, timeout_s=timeout_s)
    expect("all queues", await queues_of(first) | await queues_of(second), set(queues))
