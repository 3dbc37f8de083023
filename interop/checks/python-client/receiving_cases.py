"""Our push consumers get what stock producers send, and go on where stock consumers stopped."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from inbox import Inbox

from interop.support.cases import expect, expect_true
from interop.support.expectations import (
    expect_once,
    expect_same,
    expect_sent,
    numbered,
)
from interop.support.java_messages import Outgoing
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.consuming.subscription_set import Sql
from rmq.model import flags

if TYPE_CHECKING:
    from python_session import PythonSession

PART: Final = "push"
HELD_PULL_WAKES_WITHIN_MS: Final = 1000


async def run_receiving_cases(session: PythonSession) -> None:
    await _what_comes(session)
    await _offsets(session)
    await _bodies(session)
    await _many(session)
    await _filters(session)


async def _what_comes(session: PythonSession) -> None:
    messages = numbered("PyPush", 40, tags="TagA")
    with session.operation(PART, "what was there and what comes, from a stock producer"):
        await session.create_topic("PyPush")
        expect_sent(await session.java.send(*messages[:20]))
        inbox = Inbox()
        async with session.push_consumer("py-push", "PyPush", inbox):
            expect_once(await inbox.wait(20), messages[:20])
            sent = await session.java.send(*messages[20:])
            expect_once(await inbox.wait(40), messages)
            for message in inbox.received[20:]:
                waited_ms = (message.received_ms or 0) - message.store_ms
                expect_true(
                    f"a held pull to wake up at once, not after {waited_ms} ms",
                    waited_ms < HELD_PULL_WAKES_WITHIN_MS,
                )
            by_id = {message.message_id: message for message in inbox.received}
            for answer in sent:
                found = by_id[answer.message_id]
                place = (found.broker, found.queue_id, found.queue_offset)
                wanted = (answer.queue.broker, answer.queue.queue_id, answer.queue_offset)
                expect("place", place, wanted)
                expect("offset id", found.offset_message_id, answer.offset_message_id)

    with session.operation(PART, "each field is what a stock consumer reads"):
        stock = await session.reader.read_topic("PyPush", count=40)
        unread = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
        for theirs in stock:
            mine = by_id[theirs.message_id]
            for field in (
                *("topic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "born_ms"),
                *("born_host", "store_ms", "store_host", "reconsume_times", "body", "tags", "keys"),
            ):
                expect(field, getattr(mine, field), getattr(theirs, field))
            properties = {k: v for k, v in theirs.properties.items() if k not in unread}
            expect(
                "properties",
                {k: v for k, v in mine.properties.items() if k not in unread},
                properties,
            )


async def _offsets(session: PythonSession) -> None:
    messages = numbered("PyGoOn", 30)
    with session.operation(PART, "a stock consumer goes on where ours stopped"):
        await session.create_topic("PyGoOn")
        expect_sent(await session.java.send(*messages[:10]))
        inbox = Inbox()
        async with session.push_consumer("go-on", "PyGoOn", inbox):
            expect_once(await inbox.wait(10), messages[:10])
        expect_sent(await session.send(*messages[10:20]))
        async with session.driver.push_consumer("go-on", group="go-on", topic="PyGoOn") as stock:
            expect_once(await stock.wait_received(10), messages[10:20])

    with session.operation(PART, "ours goes on where a stock consumer stopped"):
        expect_sent(await session.java.send(*messages[20:]))
        inbox = Inbox()
        async with session.push_consumer("go-on", "PyGoOn", inbox):
            expect_once(await inbox.wait(10), messages[20:])

    with session.operation(PART, "a new group reads a young topic from its beginning, always"):
        # Brokers say so of a queue whose first entry is still in memory.
        (queue,) = await session.create_topic("PyBegin", queues=1)
        old = numbered("PyBegin", 4)
        expect_sent(await session.java.send(*old))
        stored = await session.reader.read_queue(queue, count=4)
        at_end, at_time = Inbox("at the end"), Inbox("at a time")
        async with session.push_consumer(
            "begin-end", "PyBegin", at_end, consume_from=ConsumeFrom.LAST
        ):
            expect_once(await at_end.wait(4), old)
        by_time = session.push_consumer(
            "begin-time",
            "PyBegin",
            at_time,
            consume_from=ConsumeFrom.TIMESTAMP,
            consume_from_ms=stored[0].store_ms,
        )
        async with by_time:
            await at_time.wait(4)


async def _bodies(session: PythonSession) -> None:
    with session.operation(PART, "compressed body (64 KiB), batch, 3 MiB body"):
        await session.create_topic("PyGetBodies")
        compressed = Outgoing("PyGetBodies", b"abcdefgh" * 8192, "TagA", "compressed")
        big = Outgoing("PyGetBodies", random.Random(4).randbytes(3 << 20), keys="3m")
        batch = [Outgoing("PyGetBodies", f"batch {n}".encode(), "TagB") for n in range(32)]
        inbox = Inbox()
        async with session.push_consumer("py-bodies", "PyGetBodies", inbox):
            expect_sent(await session.java.send(compressed, big))
            expect_sent([await session.java.send_batch(*batch)])
            received = await inbox.wait(34)
            expect_once(received, [compressed, big, *batch])
            (found,) = (message for message in received if message.keys == "compressed")
            expect_same(found, compressed)
            expect_true("the compressed flag", found.sys_flag & flags.COMPRESSED)


async def _many(session: PythonSession) -> None:
    with session.operation(PART, "5,000 messages, sent while they are consumed"):
        await session.create_topic("PyMany")
        messages = numbered("PyMany", 5000)
        inbox = Inbox()
        async with session.push_consumer("py-many", "PyMany", inbox):
            for start in range(0, 5000, 500):
                expect_sent(await session.java.send_async(*messages[start : start + 500]))
            expect_once(await inbox.wait(5000), messages)

    with session.operation(PART, "a listener of batches: 32 at a time"):
        inbox = Inbox()
        async with session.push_consumer("py-many-32", "PyMany", inbox, batch_messages_max=32):
            expect_once(await inbox.wait(5000), messages)


async def _filters(session: PythonSession) -> None:
    await session.create_topic("PyFiltered")
    messages = [
        Outgoing("PyFiltered", f"{tag} {n}".encode(), tags=tag, properties={"n": str(n)})
        for n in range(10)
        for tag in ("TagA", "TagB", "TagC", None)
    ]
    # Two tags with one hash: brokers cannot tell them apart, consumers have to.
    alike = [Outgoing("PyFiltered", tag.encode(), tags=tag) for tag in ("Aa", "BB")]
    expect_sent(await session.java.send(*messages, *alike))

    with session.operation(PART, "tags A || B"):
        inbox = Inbox()
        async with session.push_consumer("py-tags", {"PyFiltered": "TagA || TagB"}, inbox):
            wanted = [message for message in messages if message.tags in ("TagA", "TagB")]
            expect_once(await inbox.wait(20), wanted)

    with session.operation(PART, "of two tags with one hash only the wanted one"):
        inbox = Inbox()
        async with session.push_consumer("py-alike", {"PyFiltered": "Aa"}, inbox):
            (last,) = (Outgoing("PyFiltered", b"last", tags="Aa"),)
            expect_once(await inbox.wait(1), alike[:1])
            expect_sent(await session.java.send(Outgoing("PyFiltered", b"no", tags="BB"), last))
            expect_once(await inbox.wait(2), [alike[0], last])

    with session.operation(PART, "SQL92 condition on properties"):
        inbox = Inbox()
        condition = Sql("n > 3 AND TAGS = 'TagA' OR n = 0 AND TAGS IS NULL")
        async with session.push_consumer("py-sql", {"PyFiltered": condition}, inbox):
            wanted = [
                message
                for message in messages
                if (message.tags == "TagA" and int(message.properties["n"]) > 3)
                or (message.tags is None and message.properties["n"] == "0")
            ]
            expect_once(await inbox.wait(len(wanted)), wanted)

    with session.operation(PART, "stock consumers filter what ours sent, by tag and by SQL92"):
        await session.create_topic("PyFilteredThere")
        sent = [
            Outgoing("PyFilteredThere", m.body, m.tags, properties=m.properties) for m in messages
        ]
        expect_sent(await session.send(*sent))
        driver = session.driver
        by_tag = driver.push_consumer(
            "by-tag", group="by-tag", topic="PyFilteredThere", expression="TagA || TagB"
        )
        by_sql = driver.push_consumer("by-sql", group="by-sql", topic="PyFilteredThere", sql="n>=8")
        async with by_tag as tagged, by_sql as matched:
            expect_once(
                await tagged.wait_received(20), [m for m in sent if m.tags in ("TagA", "TagB")]
            )
            expect_once(
                await matched.wait_received(8), [m for m in sent if int(m.properties["n"]) >= 8]
            )
