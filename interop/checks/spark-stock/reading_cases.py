"""Topics of stock brokers as tables: messages of stock producers and ours, as clients read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from seen_rows import expect_copies, expect_same_rows, stock_row
from spark_messages import TEXT, send_varied
from stock_session import as_messages

from interop.support.cases import expect, expect_true
from interop.support.cluster import CLUSTER
from interop.support.expectations import expect_sent
from interop.support.java_messages import Outgoing
from interop.support.java_transactions import (
    COMMIT,
    ROLLBACK,
    transaction_producer,
)
from interop.support.waiting import wait_until
from rmq.client.blocking import BlockingConsumer, BlockingProducer
from rmq.errors import NoRouteError
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from stock_session import StockSession

PART: Final = "batch"
VARIED: Final = "SparkVaried"
OURS: Final = "SparkOurs"
DELAYED: Final = "SparkDelayed"
TRANSACTIONS: Final = "SparkTransactions"
SHARED: Final = "SparkShared"
MANY: Final = "SparkMany"
HASHES: Final = "SparkHashes"
FAILING: Final = "SparkFailing"
FAILING_GROUP: Final = "spark-failing"
SCHEDULED: Final = "SCHEDULE_TOPIC_XXXX"
HALVES: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALVES_WITHIN_S: Final = 100

FAILED: Final = [Outgoing(FAILING, f"failing {n}".encode(), "T", f"f-{n}") for n in range(3)]
DIED_WITHIN_S: Final = 90

MANY_PER_QUEUE: Final = 5000
TRANSFER_MAX: Final = 400
DELIVERED_WITHIN_S: Final = 30
_COMPRESSED: Final = 1


async def run_reading_cases(session: StockSession) -> None:
    await session.create_topic(FAILING, queues=1)
    failing = session.driver.push_consumer(
        "failing", group=FAILING_GROUP, topic=FAILING, failures=99, reconsumeTimesMax=1
    )
    # It takes half a minute until its messages have died; the others are looked at meanwhile.
    async with failing:
        expect_sent(await session.java.send(*FAILED))
        await _stock_producer(session)
        await _our_producer(session)
        await _tags(session)
        await _delayed(session)
        await _transactions(session)
        await _two_masters(session)
        await _many(session)
        await _wrong(session)
        await _dead_letters(session)
    await _patterns(session)


async def _stock_producer(session: StockSession) -> None:
    sent = await send_varied(session.java, VARIED, await session.create_topic(VARIED))
    with session.operation(PART, "a stock producer's messages, column by column as it reads them"):
        rows = await session.spark.rows(subscribe=VARIED)
        wanted = await session.stock_rows(VARIED, count=len(sent))
        expect_same_rows(rows, wanted)
        expect_copies(rows, sent)
        # It is no proof unless there were some of them.
        kinds = {row["sysFlag"] & _COMPRESSED for row in rows}
        expect("with and without compression", kinds, {0, _COMPRESSED})

    with session.operation(PART, "all columns as our blocking client reads them"):
        rows = await session.spark.rows(subscribe=VARIED)
        expect_same_rows(rows, await session.our_rows(VARIED))
        expect("columns", len(rows[0]), 20)

    with session.operation(PART, "compressed bodies as they are stored"):
        rows = await session.spark.rows(
            subscribe=VARIED, decompress="false", columns="sysFlag,body,bodyCrc"
        )
        stored = {bytes(row["body"]) for row in rows if row["sysFlag"] & _COMPRESSED}
        expect_true("zlib streams", stored and all(body[:1] == b"\x78" for body in stored))


async def _our_producer(session: StockSession) -> None:
    await session.create_topic(OURS)
    messages = [
        Outgoing(OURS, f"ours {n}".encode() * (n + 1), "Mine", f"ours-{n}", properties={"t": TEXT})
        for n in range(300)
    ]
    messages.append(Outgoing(OURS, b"ours and large " * 4096))

    def send() -> None:
        with BlockingProducer(session.nameserver, "py-spark") as producer:
            producer.send_many(as_messages(messages[:100]))
            producer.send_batch(as_messages(messages[100:300]))
            producer.send(*as_messages(messages[300:]))

    with session.operation(PART, "our producer's messages, as the stock client reads them"):
        await trio.to_thread.run_sync(send)
        wanted = await session.stock_rows(OURS, count=len(messages))
        rows = await session.spark.rows(subscribe=OURS)
        expect_same_rows(rows, wanted)
        expect_copies(rows, messages)


async def _tags(session: StockSession) -> None:
    with session.operation(PART, "tags: what the stock client gets for the same expression"):
        tags = ("Tag0", "Big", "Täg")
        rows = await session.spark.rows(subscribe=VARIED, tags=" || ".join(tags))
        wanted = [row for row in await session.stock_rows(VARIED) if row["tags"] in tags]
        expect_same_rows(rows, wanted)
        lite = session.driver.lite_pull_consumer(
            "by-tag", group="spark-by-tag", topic=VARIED, expression=" || ".join(tags)
        )
        async with lite as consumer:
            expect_same_rows(rows, [stock_row(m) for m in await consumer.poll(len(wanted))])

    with session.operation(PART, "tags of equal hash are told apart (Aa, BB)"):
        await session.create_topic(HASHES, queues=1)
        messages = [Outgoing(HASHES, f"{n}".encode(), ("Aa", "BB")[n % 2]) for n in range(40)]
        expect_sent(await session.java.send(*messages))
        await session.wait_visible(HASHES, [40])
        rows = await session.spark.rows(subscribe=HASHES, tags="Aa")
        expect_copies(rows, [message for message in messages if message.tags == "Aa"])


async def _delayed(session: StockSession) -> None:
    await session.create_topic(DELAYED, queues=1)
    messages = [
        Outgoing(DELAYED, f"late {n}".encode(), "Late", delay_level=1, properties={"n": str(n)})
        for n in range(4)
    ]
    with session.operation(PART, "delayed messages, when they are due, and where they have waited"):
        expect_sent(await session.java.send(*messages))
        wanted = await session.stock_rows(DELAYED)
        with trio.fail_after(DELIVERED_WITHIN_S):
            while len(wanted) < len(messages):
                await trio.sleep(0.2)
                wanted = await session.stock_rows(DELAYED)
        rows = await session.spark.rows(subscribe=DELAYED)
        expect_same_rows(rows, wanted)
        expect_copies(rows, messages)
        waited = [
            row
            for row in await session.spark.rows(subscribe=SCHEDULED)
            if row["properties"].get("REAL_TOPIC") == DELAYED
        ]
        expect("waited", len(waited), len(messages))
        first = min(row["storeTimestamp"] for row in waited)
        expect_true("a second in between", all(r["storeTimestamp"] >= first + 1000 for r in rows))


async def _transactions(session: StockSession) -> None:
    await session.create_topic(TRANSACTIONS, queues=2)
    kept = [Outgoing(TRANSACTIONS, f"kept {n}".encode(), "T") for n in range(6)]
    gone = [Outgoing(TRANSACTIONS, f"gone {n}".encode(), "T") for n in range(6)]
    with session.operation(PART, "transactions: what was committed, and nothing else"):
        async with transaction_producer(
            session.driver, "transactor", group="spark-transactors"
        ) as producer:
            expect_sent(await producer.send(*kept, state=COMMIT))
            expect_sent(await producer.send(*gone, state=ROLLBACK))
        wanted = await session.stock_rows(TRANSACTIONS, count=len(kept))
        rows = await session.spark.rows(subscribe=TRANSACTIONS)
        expect_same_rows(rows, wanted)
        expect_same_rows(rows, await session.our_rows(TRANSACTIONS))
        expect_copies(rows, kept)
        expect_true("half messages", all(row["preparedTransactionOffset"] > 0 for row in rows))


async def _two_masters(session: StockSession) -> None:
    with session.operation(PART, "a topic of two masters"):
        await session.java.create_topic(SHARED, queues=3, key=CLUSTER)
        messages = [Outgoing(SHARED, f"shared {n}".encode(), f"Tag{n % 2}") for n in range(120)]
        expect_sent(await session.java.send(*messages))
        wanted = await session.stock_rows(SHARED, count=len(messages))
        rows = await session.spark.rows(subscribe=SHARED, minPartitions="12")
        expect_same_rows(rows, wanted)
        brokers = {row["brokerName"] for row in rows}
        expect("brokers", brokers, {session.broker.name, session.other.name})


async def _dead_letters(session: StockSession) -> None:
    dead = f"%DLQ%{FAILING_GROUP}"

    async def are_dead() -> bool:
        try:
            return len(await session.our_rows(dead)) == len(FAILED)
        except NoRouteError:
            return False

    with session.operation(PART, "dead letters and retries of a stock consumer, by name"):
        await wait_until("dead letters", are_dead, timeout_s=DIED_WITHIN_S)
        for topic in (dead, f"%RETRY%{FAILING_GROUP}"):
            rows = await session.spark.rows(subscribe=topic)
            expect_same_rows(rows, await session.our_rows(topic))
            expect("messages", {row["body"] for row in rows}, {m.body for m in FAILED})
            expect("first topic", {r["properties"]["RETRY_TOPIC"] for r in rows}, {FAILING})


async def _patterns(session: StockSession) -> None:
    async def topics(**options: str) -> set[str]:
        def ask(_: SparkSession) -> set[str]:
            table = session.spark.table(subscribePattern=".*", columns="topic", **options)
            return {row.topic for row in table.distinct().collect()}

        return await session.spark.do(ask)

    async def are_known() -> bool:
        names = await session.mqadmin.run("topicList")
        return {SCHEDULED, HALVES} <= set(names.split())

    with session.operation(PART, "subscribePattern: topics of the application, and all of them"):
        # Stock brokers make the topic of half messages when they look through them first.
        await wait_until("topics of the system", are_known, timeout_s=HALVES_WITHIN_S)
        applications = {VARIED, OURS, HASHES, DELAYED, TRANSACTIONS, SHARED, MANY, FAILING}
        # Other parts of this check have topics, too; they all begin with the same word.
        told = await topics()
        expect("topics that are missing", applications - told, set())
        expect("topics of others", {name for name in told if not name.startswith("Spark")}, set())
        everything = await topics(includeSystemTopics="true")
        expect("topics that are missing among all", applications - everything, set())
        for topic in (SCHEDULED, f"%DLQ%{FAILING_GROUP}", HALVES):
            expect_true(f"{topic} among {sorted(everything)}", topic in everything)


async def _many(session: StockSession) -> None:
    await session.create_topic(MANY)
    for queue_id in range(4):
        first = queue_id * MANY_PER_QUEUE
        bodies = [f"{first + n:05d} {'.' * (n % 300)}".encode() for n in range(MANY_PER_QUEUE)]
        await session.fill(MANY, bodies, queue_id)
    await session.wait_visible(MANY, [MANY_PER_QUEUE] * 4)

    with session.operation(PART, "20,000 messages, 32 per pull whatever is asked for") as case:
        largest = await _largest_pull(session)
        expect("messages of the largest pull", largest, 32)
        case.note(await _expect_many(session))

    with session.operation(PART, "20,000 messages, as many per pull as the broker is told") as case:
        for key, value in (
            ("maxTransferCountOnMessageInMemory", TRANSFER_MAX),
            ("maxTransferBytesOnMessageInMemory", 1 << 20),
            ("maxTransferCountOnMessageInDisk", TRANSFER_MAX),
            ("maxTransferBytesOnMessageInDisk", 1 << 20),
        ):
            await session.mqadmin.run(
                "updateBrokerConfig", "-b", session.broker.address, "-k", key, "-v", str(value)
            )
        largest = await _largest_pull(session)
        expect("messages of the largest pull", largest, TRANSFER_MAX)
        case.note(f"{await _expect_many(session)}, {largest} per pull")


async def _expect_many(session: StockSession) -> str:
    """Read all of them with Spark; they must be what our blocking client reads."""
    rows = await session.spark.rows(subscribe=MANY, minPartitions="8")
    numbers = sorted(int(bytes(row["body"])[:5]) for row in rows)
    expect("numbers", numbers == list(range(4 * MANY_PER_QUEUE)), True)
    return expect_same_rows(rows, await session.our_rows(MANY))


async def _largest_pull(session: StockSession) -> int:
    """Return how many messages a pull of the source brings at most."""

    def look() -> int:
        queue = MessageQueue(topic=MANY, broker_name=session.broker.name, queue_id=0)
        with BlockingConsumer(session.nameserver, "py-lookers", pull_messages_max=1024) as consumer:
            pulls = consumer.read_raw(queue, 0, MANY_PER_QUEUE)
            return max(pull.next_offset - pull.offset for pull in pulls)

    return await trio.to_thread.run_sync(look)


async def _wrong(session: StockSession) -> None:
    with session.operation(PART, "a topic that is not there: its name, and what is near"):
        text = await session.spark.failure(subscribe="SparkVarieds")
        expect_true(f"both names in {text[-500:]!r}", "did you mean SparkVaried" in text)
        topics = await session.mqadmin.run("topicList")
        expect_true("that nobody has created it", "SparkVarieds" not in topics)
