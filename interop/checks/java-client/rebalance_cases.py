"""Consumers of one group that come, leave and die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.support.cases import expect
from interop.support.expectations import expect_once, expect_sent, numbered
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from client_session import ClientSession

    from interop.support.java_consumers import PushConsumer
    from interop.support.java_messages import Queue

PART: Final = "rebalance"
QUEUES: Final = 8
# Less than the 20 s after which consumers rebalance on their own: the broker must tell them.
NOTIFIED_WITHIN_S: Final = 10
# A queue that was still locked when a consumer first wanted it is tried again after those 20 s.
UNLOCKED_WITHIN_S: Final = 30


async def run_rebalance_cases(session: ClientSession) -> None:
    await _share(session)
    await _die(session)
    await _share_in_order(session)


async def _share(session: ClientSession) -> None:
    driver, producer = session.driver, session.producer
    queues = await session.create_topic("Shared", queues=QUEUES)
    messages = numbered("Shared", 60)
    async with driver.push_consumer("shared-1", group="shared", topic="Shared") as first:
        with session.operations.operation(PART, "a consumer alone has all queues"):
            await _wait_has(first, QUEUES)
        async with driver.push_consumer("shared-2", group="shared", topic="Shared") as second:
            with session.operations.operation(PART, "two consumers share the queues"):
                await _wait_split(queues, first, second)
                expect_sent(await producer.send(*messages[:40]))
                await first.wait_received(20)
                await second.wait_received(20)
                expect_once([*first.received, *second.received], messages[:40])

            with session.operations.operation(PART, "one that leaves gives its queues back"):
                await second.stop()
                await _wait_has(first, QUEUES)
                expect_sent(await producer.send(*messages[40:]))
                await first.wait_received(40)
                expect_once([*first.received, *second.received], messages)


async def _die(session: ClientSession) -> None:
    with session.operations.operation(PART, "one that is killed gives its queues back"):
        queues = await session.create_topic("Mourned", queues=QUEUES)
        messages = numbered("Mourned", 16)
        mourned = {"group": "mourned", "topic": "Mourned"}
        async with (
            session.driver.push_consumer("survivor", **mourned) as survivor,
            session.kit.driver(session.cluster.nameserver) as other,
            other.push_consumer("victim", **mourned) as victim,
        ):
            await _wait_split(queues, survivor, victim)
            await other.kill()
            await _wait_has(survivor, QUEUES)
            expect_sent(await session.producer.send(*messages))
            expect_once(await survivor.wait_received(len(messages)), messages)


async def _share_in_order(session: ClientSession) -> None:
    driver, producer = session.driver, session.producer
    with session.operations.operation(
        PART, "orderly consumers hand over locked queues", timeout_s=100
    ):
        queues = await session.create_topic("Locked", queues=QUEUES)
        messages = numbered("Locked", 32)
        locked = {"group": "locked", "topic": "Locked"}
        async with (
            driver.push_consumer("locked-1", **locked, orderly=True) as first,
            driver.push_consumer("locked-2", **locked, orderly=True) as second,
        ):
            await _wait_split(queues, first, second, timeout_s=UNLOCKED_WITHIN_S)
            expect_sent(await producer.send(*messages[:16]))
            await first.wait_received(8)
            await second.wait_received(8)
            await second.stop()
            await _wait_has(first, QUEUES)
            expect_sent(await producer.send(*messages[16:]))
            await first.wait_received(24)
            expect_once([*first.received, *second.received], messages)


async def _wait_has(
    consumer: PushConsumer, count: int, *, timeout_s: float = NOTIFIED_WITHIN_S
) -> None:
    async def has() -> bool:
        return len(await consumer.queues()) == count

    await wait_until(f"{consumer.name} to have {count} queues", has, timeout_s=timeout_s)


async def _wait_split(
    queues: list[Queue],
    first: PushConsumer,
    second: PushConsumer,
    *,
    timeout_s: float = NOTIFIED_WITHIN_S,
) -> None:
    half = len(queues) // 2
    await _wait_has(second, half, timeout_s=timeout_s)
    await _wait_has(first, half, timeout_s=timeout_s)
    expect("all queues", (await first.queues()) | (await second.queues()), set(queues))
