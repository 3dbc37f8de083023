"""Tables to topics of stock brokers, read back by stock clients."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from pyspark.errors import PySparkException
from seen_rows import content, in_queue_order
from spark_messages import TEXT, send_varied
from spark_side import WIRE

from interop.support.cases import MismatchError, expect, expect_true
from interop.support.java_messages import Outgoing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from stock_session import StockSession

    Row = dict[str, Any]

PART: Final = "sink"
TOPIC: Final = "SparkSink"
ROWS: Final = 10_000
RUN: Final = "interop-run"
ORDERED: Final = "SparkSinkOrdered"
ORDERED_ROWS: Final = 3000
KEYS: Final = 11
DELIVERED_WITHIN_S: Final = 30


async def run_sink_cases(session: StockSession) -> None:
    await _everything(session)
    await _order(session)
    await _delays(session)
    await _large(session)
    await _copies(session)
    await _stream(session)
    await _wrong(session)


async def _everything(session: StockSession) -> None:
    await session.create_topic(TOPIC)

    def table(spark: SparkSession) -> DataFrame:
        return spark.range(0, ROWS, 1, 2).selectExpr(
            "concat('row ', id) AS body",
            "if(id % 3 = 0, NULL, concat('tag', id % 5)) AS tags",
            "if(id % 7 = 0, NULL, array(concat('k', id), 'all')) AS keys",
            f"map('n', string(id), 'text', '{TEXT}') AS properties",
            "int(id) AS flag",
        )

    with session.operation(PART, "10,000 rows: the stock client reads every one, once") as case:
        await session.spark.save(table, topic=TOPIC, runId=RUN, sparkKeyInKeys="true")
        rows = await session.stock_rows(TOPIC, count=ROWS)
        expect("messages", len(rows), ROWS)
        for row in rows:
            number = int(row["properties"]["n"])
            spark_key = f"{RUN}/{number // (ROWS // 2)}/{number % (ROWS // 2)}"
            keys = f"k{number} all {spark_key}" if number % 7 else spark_key
            expect("body", row["body"], f"row {number}".encode())
            expect("tags", row["tags"], f"tag{number % 5}" if number % 3 else None)
            expect("keys", row["keys"], keys)
            expect("text", row["properties"]["text"], TEXT)
            expect("SPARK_KEY", row["properties"]["SPARK_KEY"], spark_key)
        numbers = {row["body"] for row in rows}
        expect("bodies", len(numbers), ROWS)
        expect("message ids", len({row["msgId"] for row in rows}), ROWS)
        by_queue = sorted(row["queueId"] for row in rows)
        expect("queues", sorted(set(by_queue)), [0, 1, 2, 3])
        flags = sorted(row["flag"] for row in await session.our_rows(TOPIC))
        expect("flags", flags == list(range(ROWS)), True)
        case.note(f"{len(rows)} messages")

    with session.operation(PART, "the stock client finds a row by key, by SPARK_KEY and by id"):
        row = next(row for row in rows if row["body"] == b"row 4712")
        for key in ("k4712", f"{RUN}/0/4712"):
            found = await session.java.query_by_key(TOPIC, key)
            expect(f"by {key}", [message.body for message in found], [b"row 4712"])
        found_by_id = await session.java.view_by_unique_key(TOPIC, row["msgId"])
        expect("by id", found_by_id.body, b"row 4712")

    with session.operation(PART, "a stock push consumer gets the rows of a tag"):
        async with session.driver.push_consumer(
            "sink", group="spark-sink-readers", topic=TOPIC, expression="tag2"
        ) as consumer:
            wanted = sorted(row["body"] for row in rows if row["tags"] == "tag2")
            got = await consumer.wait_received(len(wanted), timeout_s=60)
            expect("bodies", sorted(message.body for message in got) == wanted, True)


async def _order(session: StockSession) -> None:
    await session.create_topic(ORDERED, queues=5)
    half = ORDERED_ROWS // 2

    def table(spark: SparkSession) -> DataFrame:
        # Every key is in one of the two tasks: between tasks nobody promises an order.
        return spark.range(0, ORDERED_ROWS, 1, 2).selectExpr(
            "string(id) AS body",
            f"concat('Kunde-ü-', id % {KEYS}, '-', id div {half}) AS shardingKey",
        )

    with session.operation(PART, "shardingKey: one queue for each, in order") as case:
        await session.spark.save(table, topic=ORDERED, batchMessages="50")
        rows = in_queue_order(await session.stock_rows(ORDERED, count=ORDERED_ROWS))
        by_key: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            number = int(row["body"])
            by_key[f"Kunde-ü-{number % KEYS}-{number // half}"].append(row)
        expect("keys", len(by_key), 2 * KEYS)
        for key, found in by_key.items():
            numbers = [int(row["body"]) for row in found]
            expect(f"order of {key}", numbers, sorted(set(numbers)))
        expect("messages", sum(map(len, by_key.values())), ORDERED_ROWS)
        case.note(f"{len(by_key)} keys")

    with session.operation(PART, "shardingKey: the queue that a stock producer chooses"):
        for key, found in by_key.items():
            queues = {row["queueId"] for row in found}
            (sent,) = await session.java.send_by_key(Outgoing(ORDERED, b"one more"), key=key)
            expect(f"queue of {key}", queues, {sent.queue.queue_id})


async def _delays(session: StockSession) -> None:
    await session.create_topic("SparkSinkDelayed", queues=2)

    def table(spark: SparkSession) -> DataFrame:
        return spark.range(0, 40, 1, 2).selectExpr(
            "concat('late ', id) AS body", "int(id % 4 = 0) AS delayLevel", "'Late' AS tags"
        )

    with session.operation(PART, "delayLevel: some come a second later, all come"):
        await session.spark.save(table, topic="SparkSinkDelayed")
        rows = await session.stock_rows("SparkSinkDelayed", count=30)
        with trio.fail_after(DELIVERED_WITHIN_S):
            while len(rows) < 40:
                await trio.sleep(0.2)
                rows = await session.stock_rows("SparkSinkDelayed")
        bodies = {f"late {n}".encode() for n in range(40)}
        expect("bodies", {row["body"] for row in rows}, bodies)
        for row in rows:
            is_delayed = int(row["body"].split()[1]) % 4 == 0
            expect("DELAY", row["properties"].get("DELAY"), "1" if is_delayed else None)
            waited_ms = row["storeTimestamp"] - row["bornTimestamp"]
            expect_true(f"a wait of a second, not {waited_ms} ms", waited_ms >= 1000 * is_delayed)


async def _large(session: StockSession) -> None:
    await session.create_topic("SparkSinkLarge", queues=2)

    def table(spark: SparkSession) -> DataFrame:
        return spark.range(0, 12, 1, 2).selectExpr(
            "encode(repeat(concat(id, ' äöü '), int(pow(4, id % 9) * 2)), 'UTF-8') AS body"
        )

    with session.operation(PART, "bodies up to a megabyte, in batches, alone and compressed"):
        await session.spark.save(table, topic="SparkSinkLarge")
        rows = await session.stock_rows("SparkSinkLarge", count=12)
        wanted = {f"{n} äöü ".encode() * (4 ** (n % 9) * 2) for n in range(12)}
        expect("bodies", {row["body"] for row in rows} == wanted, True)
        expect_true("some to be compressed", any(row["sysFlag"] & 1 for row in rows))
        expect_true("some not to be", any(not row["sysFlag"] & 1 for row in rows))


async def _copies(session: StockSession) -> None:
    queues = await session.create_topic("SparkSinkSource")
    await session.create_topic("SparkSinkCopy")
    with session.operation(PART, "a topic read and written as it is: the same messages"):
        sent = await send_varied(session.java, "SparkSinkSource", queues)
        original = await session.stock_rows("SparkSinkSource", count=len(sent))
        await session.spark.save(
            lambda _: session.spark.table(subscribe="SparkSinkSource").drop("topic"),
            topic="SparkSinkCopy",
        )
        copy = await session.stock_rows("SparkSinkCopy", count=len(sent))
        expect("messages", sorted(map(content, copy)) == sorted(map(content, original)), True)


async def _stream(session: StockSession) -> None:
    await session.create_topic("SparkPipeIn", queues=2)
    await session.create_topic("SparkPipeOut", queues=3)
    folder = session.folder / "pipe"
    with session.operation(PART, "from topic to topic as a stream, restarted: each message once"):
        for run in range(2):
            bodies = [f"{run} {n}".encode() for n in range(500)]
            await session.fill("SparkPipeIn", bodies, run)
            await session.wait_visible("SparkPipeIn", [500, 500 * run])
            await session.spark.do(partial(_pipe, session, folder))
        rows = await session.stock_rows("SparkPipeOut", count=1000)
        wanted = sorted(f"{run} {n}".encode() for run in range(2) for n in range(500))
        expect("bodies", sorted(row["body"] for row in rows) == wanted, True)
        keys = {row["properties"]["SPARK_KEY"] for row in rows}
        expect("keys of rows", len(keys), 1000)


def _pipe(session: StockSession, folder: Path, spark: SparkSession) -> None:
    """Copy what is new from one topic to another."""
    options = session.spark.options(
        subscribe="SparkPipeIn", startingOffsets="earliest", maxOffsetsPerTrigger="300"
    )
    query = (
        spark.readStream.format(WIRE)
        .options(**options)
        .load()
        .drop("topic")
        .writeStream.format(WIRE)
        .options(**session.spark.options(topic="SparkPipeOut"))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


async def _wrong(session: StockSession) -> None:
    with session.operation(PART, "a topic that is not there is created, as by a stock producer"):
        await session.spark.save(
            lambda spark: spark.range(300).selectExpr("string(id) AS body"), topic="SparkSinkNew"
        )
        rows = await session.stock_rows("SparkSinkNew", count=300)
        expect("bodies", {int(row["body"]) for row in rows}, set(range(300)))

    with session.operation(PART, "a body that the broker refuses is an error that says so"):
        # The limit of these brokers is 2 MiB, that of clients 4.
        def table(spark: SparkSession) -> DataFrame:
            return spark.range(1).selectExpr(
                "unhex(array_join(transform(sequence(1, 160000), n -> md5(string(n))), '')) AS body"
            )

        try:
            await session.spark.save(table, topic=TOPIC)
        except PySparkException as exc:
            expect_true(f"the reason in {str(exc)[-500:]!r}", "message is illegal" in str(exc))
        else:
            raise MismatchError("it was accepted")
