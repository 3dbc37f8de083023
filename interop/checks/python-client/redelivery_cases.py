"""Messages that come later: delayed ones, failed ones, and those that end as dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from inbox import Inbox

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_same, expect_sent, numbered
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing
from interop.support.topics import max_offset
from interop.support.waiting import wait_until
from rmq.client.core.consuming.results import ConsumeResult, Later
from rmq.model.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from python_session import PythonSession

    from interop.support.java_messages import Received

DELAY: Final = "delay"
RETRY: Final = "retry"
# The stock broker looks for due messages ten times a second; the rest is a busy machine.
LATE_MS_MAX: Final = 1500
FOREVER: Final = 1000
# A consumer of a new group may miss its retry topic at first; it looks again after 20 s.
RETRIED_WITHIN_S: Final = 40
_RETRY_QUEUE: Final = 2
"""Of the delayed messages: a first retry waits at level 3."""


async def run_redelivery_cases(session: PythonSession) -> None:
    await _delays(session)
    await _comes_back(session)
    await _changes_hands(session)
    await _dead_letters(session)


async def _delays(session: PythonSession) -> None:
    await session.create_topic("PyDelayed")
    mine = Inbox()
    stock = session.driver.push_consumer("delayed", group="delayed", topic="PyDelayed")
    async with stock as theirs, session.push_consumer("py-delayed", "PyDelayed", mine):
        for level, delay_ms in ((1, 1000), (2, 5000)):
            name = f"level {level}, {delay_ms // 1000} s"
            with session.operation(DELAY, f"{name}, ours to a stock consumer"):
                message = Outgoing("PyDelayed", f"mine {level}".encode(), "TagA", "k", level)
                expect_sent(await session.send(message))
                found = (await theirs.wait_received(2 * level - 1))[-1]
                _expect_delayed(found, message, level, delay_ms)

            with session.operation(DELAY, f"{name}, a stock producer to our consumer"):
                message = Outgoing("PyDelayed", f"theirs {level}".encode(), "TagA", "k", level)
                expect_sent(await session.java.send(message))
                found = (await mine.wait(2 * level))[-1]
                _expect_delayed(found, message, level, delay_ms)


def _expect_delayed(found: Received, message: Outgoing, level: int, delay_ms: int) -> None:
    expect_same(found, message)
    _expect_on_time(found.store_ms - found.born_ms, delay_ms)
    expect("level", found.properties["DELAY"], str(level))
    expect("topic", found.properties["REAL_TOPIC"], message.topic)


async def _comes_back(session: PythonSession) -> None:
    answers: dict[str, tuple[object, int]] = {
        "LATER": (ConsumeResult.LATER, 1000),
        "Later(4)": (Later(4), 2000),
        "an error": (ValueError("no"), 1000),
        "nonsense": ("nonsense", 1000),
    }
    for number, (name, (answer, delay_ms)) in enumerate(answers.items()):
        with session.operation(RETRY, f"a message whose listener answers {name} comes back"):
            received = await _fail_once(session, f"PyLater{number}", answer)
            first, second = received
            _expect_on_time(second.store_ms - (first.received_ms or 0), delay_ms)


async def _fail_once(session: PythonSession, topic: str, answer: object) -> list[Received]:
    await session.create_topic(topic)
    (message,) = numbered(topic, 1, tags="TagA")
    inbox = Inbox(failures=1, answer=answer)
    async with session.push_consumer(topic, {topic: "TagA"}, inbox):
        expect_sent(await session.java.send(message))
        received = await inbox.wait(2, timeout_s=RETRIED_WITHIN_S)
        _expect_retried(received, message)
        return received


def _expect_retried(received: list[Received], message: Outgoing) -> None:
    for found in received:
        expect_same(found, message)
    first, second = received
    expect("reconsume times", [found.reconsume_times for found in received], [0, 1])
    expect("retry topic", second.properties.get("RETRY_TOPIC"), message.topic)
    expect("unique id", second.message_id, first.message_id)
    expect("original message", second.properties["ORIGIN_MESSAGE_ID"], first.offset_message_id)


async def _changes_hands(session: PythonSession) -> None:
    with session.operation(RETRY, "what ours failed on comes back to a stock consumer"):
        await session.create_topic("PyHandOver")
        (message,) = numbered("PyHandOver", 1)
        inbox = Inbox(failures=1)
        async with session.push_consumer("hand-over", "PyHandOver", inbox):
            expect_sent(await session.java.send(message))
            (first,) = await inbox.wait(1)
        stock = session.driver.push_consumer("hand-over", group="hand-over", topic="PyHandOver")
        async with stock as consumer:
            (second,) = await consumer.wait_received(1, timeout_s=RETRIED_WITHIN_S)
            _expect_retried([first, second], message)

    with session.operation(RETRY, "what a stock consumer failed on comes back to ours"):
        await session.create_topic("PyHandBack")
        (message,) = numbered("PyHandBack", 1)
        stock = session.driver.push_consumer(
            "hand-back", group="hand-back", topic="PyHandBack", failures=1
        )
        before = await _waiting(session)

        async def is_sent_back() -> bool:
            return await _waiting(session) > before

        async with stock as consumer:
            expect_sent(await session.send(message))
            (first,) = await consumer.wait_received(1)
            # If it left earlier, the message would come to the next one as if for the first time.
            await wait_until("the message to be sent back", is_sent_back)
        inbox = Inbox()
        async with session.push_consumer("hand-back", "PyHandBack", inbox):
            (second,) = await inbox.wait(1, timeout_s=RETRIED_WITHIN_S)
            _expect_retried([first, second], message)


async def _waiting(session: PythonSession) -> int:
    """Return how many messages have been made to wait for their first retry."""
    return await max_offset(session.broker, SCHEDULE_TOPIC, _RETRY_QUEUE)


async def _dead_letters(session: PythonSession) -> None:
    with session.operation(RETRY, "the second failure ends in the dead letter queue"):
        received = await _fail_forever(session, "PyDoomed", attempts=2)
        expect("reconsume times", [found.reconsume_times for found in received], [0, 1])

    with session.operation(RETRY, "Later(-1) is the dead letter queue at once"):
        await _fail_forever(session, "PyDoomedAtOnce", attempts=1, answer=Later(-1))

    with session.operation(RETRY, "orderly, the last failure ends there, too"):
        await _fail_forever(session, "PyDoomedInOrder", attempts=2, is_orderly=True)


async def _fail_forever(
    session: PythonSession,
    topic: str,
    *,
    attempts: int,
    answer: object = ConsumeResult.LATER,
    **options: Any,  # noqa: ANN401 - of the consumer
) -> list[Received]:
    await session.create_topic(topic)
    (message,) = numbered(topic, 1)
    dead_letter_topic = f"%DLQ%{topic}"
    inbox = Inbox(failures=FOREVER, answer=answer)
    failing = session.push_consumer(topic, topic, inbox, reconsume_times_max=1, **options)
    async with failing:
        expect_sent(await session.java.send(message))
        received = await inbox.wait(attempts, timeout_s=RETRIED_WITHIN_S)
        await _wait_topic(session, dead_letter_topic)
        (dead,) = await session.reader.read_topic(dead_letter_topic, count=1)
        expect_same(dead, Outgoing(dead_letter_topic, message.body, keys=message.keys))
        expect("its topic was", dead.properties.get("RETRY_TOPIC"), topic)
        expect("unique id", dead.message_id, received[0].message_id)
        expect("attempts", len(inbox.received), attempts)
        return received


async def _wait_topic(session: PythonSession, topic: str) -> None:
    async def there() -> bool:
        try:
            return bool(await session.reader.queues(topic))
        except StockClientError:
            return False

    await wait_until(f"a topic {topic}", there, timeout_s=20)


def _expect_on_time(got_ms: int, wanted_ms: int) -> None:
    """It must not have come too early, nor much too late."""
    expect_true(f"{wanted_ms} ms, not {got_ms} ms", 0 <= got_ms - wanted_ms < LATE_MS_MAX)
