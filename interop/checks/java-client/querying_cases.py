"""Questions about stored messages: by key, by id, by time; and the bounds of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_same, expect_sent, numbered
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing

if TYPE_CHECKING:
    from client_session import ClientSession

PART: Final = "query"
NO_MESSAGE: Final = 208
PAUSE_S: Final = 0.05


async def run_querying_cases(session: ClientSession) -> None:
    await _by_key(session)
    await _bounds(session)


async def _by_key(session: ClientSession) -> None:
    producer = session.producer
    await session.create_topic("Keys")
    messages = [
        Outgoing("Keys", f"body {n}".encode(), tags="TagA", keys=f"one-{n} half-{n % 2} all")
        for n in range(10)
    ]
    sent = await producer.send(*messages)
    expect_sent(sent)
    stored = {m.message_id: m for m in await session.reader.read_topic("Keys", count=10)}

    with session.operations.operation(PART, "by key"):
        (found,) = await producer.query_by_key("Keys", "one-3")
        expect_same(found, messages[3])
        expect("id", found.message_id, sent[3].message_id)
        half = await producer.query_by_key("Keys", "half-1")
        expect("five of them", {m.body for m in half}, {m.body for m in messages[1::2]})

    with session.operations.operation(PART, "by key, at most so many"):
        few = await producer.query_by_key("Keys", "all", count_max=4)
        expect("count", len(few), 4)

    with session.operations.operation(PART, "by key and time"):
        times = [stored[answer.message_id].store_ms for answer in sent]
        # The index knows times to the second, rounded down.
        all_of_it = await producer.query_by_key(
            "Keys", "all", begin_ms=min(times) - 1000, end_ms=max(times)
        )
        expect("within", len(all_of_it), 10)
        await _expect_none(session, "all", end_ms=min(times) - 60_000)

    with session.operations.operation(PART, "by a key that no message has"):
        await _expect_none(session, "none-of-them")

    with session.operations.operation(PART, "by offset id (viewMessage)"):
        for answer, message in zip(sent, messages, strict=True):
            found = await producer.view(answer.offset_message_id)
            expect_same(found, message)
            expect("place", found.queue_offset, answer.queue_offset)
            expect("queue", found.queue_id, answer.queue.queue_id)

    with session.operations.operation(PART, "by unique key"):
        found = await producer.view_by_unique_key("Keys", sent[6].message_id)
        expect_same(found, messages[6])

    with session.operations.operation(PART, "by an offset id where no message is"):
        nowhere = sent[0].offset_message_id[:16] + f"{1 << 40:016X}"
        try:
            await producer.view(nowhere)
        except StockClientError as refusal:
            expect_true("a code", refusal.code is not None)
        else:
            expect("outcome", "a message", "a refusal")


async def _expect_none(session: ClientSession, key: str, *, end_ms: int = 2**62) -> None:
    try:
        found = await session.producer.query_by_key("Keys", key, end_ms=end_ms)
    except StockClientError as refusal:
        expect("code", refusal.code, NO_MESSAGE)
    else:
        expect("found", len(found), 0)


async def _bounds(session: ClientSession) -> None:
    producer = session.producer
    full, empty = await session.create_topic("Bounds", queues=2)
    for message in numbered("Bounds", 6):
        expect_sent(await producer.send_to_queue(message, queue=full))
        await trio.sleep(PAUSE_S)
    found = await session.reader.read_queue(full, count=6)
    times = [message.store_ms for message in found]

    with session.operations.operation(PART, "lowest and highest offset of a queue"):
        expect("min", await producer.offset("min offset", full), 0)
        expect("max", await producer.offset("max offset", full), 6)
        expect("max of an empty one", await producer.offset("max offset", empty), 0)

    with session.operations.operation(PART, "offset by time"):
        for ms, wanted in (
            (times[0] - 100_000, 0),
            (times[3], 3),
            (times[3] + 1, 3),
            (times[5], 5),
        ):
            got = await producer.offset("search offset", full, ms=ms)
            expect(f"{ms - times[0]} ms after the first", got, wanted)

    with session.operations.operation(PART, "time of the earliest message"):
        expect("time", await producer.offset("earliest time", full), times[0])
