"""Messages that come later: delayed ones, failed ones, and those that end as dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_same, expect_sent, numbered
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from client_session import ClientSession

    from interop.support.java_consumers import PushConsumer
    from interop.support.java_messages import Received

DELAY: Final = "delay"
RETRY: Final = "retry"
# The stock broker looks for due messages ten times a second; the rest is a busy machine.
LATE_MS_MAX: Final = 1500
FOREVER: Final = 1000
# A consumer of a new group may miss its retry topic at first; it looks again after 20 s.
RETRIED_WITHIN_S: Final = 40


async def run_retry_cases(session: ClientSession) -> None:
    await _delays(session)
    await _comes_back(session)
    await _dead_letters(session)


async def _delays(session: ClientSession) -> None:
    await session.create_topic("Delayed")
    delayed = session.driver.push_consumer("delayed", group="delayed", topic="Delayed")
    async with delayed as consumer:
        for level, delay_ms in ((1, 1000), (2, 5000)):
            with session.operations.operation(DELAY, f"level {level}, {delay_ms // 1000} s"):
                message = Outgoing("Delayed", f"level {level}".encode(), "TagA", "k", level)
                expect_sent(await session.producer.send(message))
                (found,) = (await consumer.wait_received(level))[level - 1 :]
                expect_same(found, message)
                expect_on_time(found.store_ms - found.born_ms, delay_ms)
                expect("level", found.properties["DELAY"], str(level))
                expect("topic", found.properties["REAL_TOPIC"], "Delayed")


async def _comes_back(session: ClientSession) -> None:
    with session.operations.operation(RETRY, "a failed message comes back (default delay)"):
        consumed = await _fail_once(session, "Later", {})
        expect_on_time(_delay_ms(consumed), 1000)

    with session.operations.operation(RETRY, "a failed message comes back (delay of choice)"):
        consumed = await _fail_once(session, "MuchLater", {"delayLevel": 4})
        expect_on_time(_delay_ms(consumed), 2000)


async def _fail_once(session: ClientSession, topic: str, options: dict[str, Any]) -> list[Received]:
    await session.create_topic(topic)
    (message,) = numbered(topic, 1, tags="TagA")
    failing = session.driver.push_consumer(
        topic, group=topic, topic=topic, expression="TagA", failures=1, **options
    )
    async with failing as consumer:
        expect_sent(await session.producer.send(message))
        received = await consumer.wait_received(2, timeout_s=RETRIED_WITHIN_S)
        for found in received:
            expect_same(found, message)
        expect("reconsume times", [found.reconsume_times for found in received], [0, 1])
        expect("retry topic", received[1].properties.get("RETRY_TOPIC"), topic)
        expect("unique id", received[1].message_id, received[0].message_id)
        origin = received[1].properties.get("ORIGIN_MESSAGE_ID")
        expect("original message", origin, received[0].offset_message_id)
        return received


async def _dead_letters(session: ClientSession) -> None:
    with session.operations.operation(RETRY, "the second failure ends in the dead letter queue"):
        received = await _fail_forever(session, "Doomed", {}, attempts=2)
        expect("reconsume times", [found.reconsume_times for found in received], [0, 1])

    with session.operations.operation(RETRY, "delay level -1 is the dead letter queue at once"):
        await _fail_forever(session, "DoomedAtOnce", {"delayLevel": -1}, attempts=1)

    with session.operations.operation(RETRY, "orderly, the last failure ends there, too"):
        await _fail_forever(session, "DoomedInOrder", {"orderly": True}, attempts=2)


async def _fail_forever(
    session: ClientSession, topic: str, options: dict[str, Any], *, attempts: int
) -> list[Received]:
    await session.create_topic(topic)
    (message,) = numbered(topic, 1)
    dead_letter_topic = f"%DLQ%{topic}"
    failing = session.driver.push_consumer(
        topic, group=topic, topic=topic, failures=FOREVER, reconsumeTimesMax=1, **options
    )
    async with failing as consumer:
        expect_sent(await session.producer.send(message))
        received = await consumer.wait_received(attempts, timeout_s=RETRIED_WITHIN_S)
        await _wait_topic(session, dead_letter_topic)
        (dead,) = await session.reader.read_topic(dead_letter_topic, count=1)
        expect_same(dead, Outgoing(dead_letter_topic, message.body, keys=message.keys))
        expect("its topic was", dead.properties.get("RETRY_TOPIC"), topic)
        expect("unique id", dead.message_id, received[0].message_id)
        await _expect_no_more(consumer, attempts)
        return received


async def _wait_topic(session: ClientSession, topic: str) -> None:
    async def there() -> bool:
        try:
            return bool(await session.reader.queues(topic))
        except StockClientError:
            return False

    await wait_until(f"a topic {topic}", there, timeout_s=20)


async def _expect_no_more(consumer: PushConsumer, attempts: int) -> None:
    await consumer.look()
    expect("attempts", len(consumer.received), attempts)


def _delay_ms(received: list[Received]) -> int:
    """Return how long after its failure a message was put into the retry topic."""
    first, second = received
    return second.store_ms - (first.received_ms or 0)


def expect_on_time(got_ms: int, wanted_ms: int) -> None:
    """It must not have come too early, nor much too late."""
    expect_true(f"{wanted_ms} ms, not {got_ms} ms", 0 <= got_ms - wanted_ms < LATE_MS_MAX)
