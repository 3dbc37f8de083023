"""Topics of a stock broker as streams: restarts, limits, groups that are told, brokers that die."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from seen_rows import expect_same_rows
from stock_session import BROKER_SETTINGS

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_sent, numbered
from interop.support.printed import table
from interop.support.waiting import wait_until
from rmq.client.blocking import BlockingAdmin
from rmq.spark.wire.cluster import PATIENCE_S
from rmq.spark.wire.progress import commit_progress

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from stock_session import StockSession

PART: Final = "stream"
TOPIC: Final = "SparkStream"
GROUP: Final = "spark-stream"
ENDURING: Final = "SparkEnduring"
ENDURING_COUNT: Final = 4000
BROKER_BACK_S: Final = 120 + PATIENCE_S
"""As long as the query waits for the broker, and time for everything else."""


async def run_stream_cases(session: StockSession) -> None:
    await _restarts(session)
    await _broker_dies(session)


async def _restarts(session: StockSession) -> None:
    await session.create_topic(TOPIC, queues=2)
    folder = session.folder / "stream"
    options = {
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
        "commitGroup": GROUP,
    }
    messages = numbered(TOPIC, 140)

    with session.operation(PART, "availableNow: everything once, in batches of 40 at most"):
        expect_sent(await session.java.send(*messages[:100]))
        wanted = await session.stock_rows(TOPIC, count=100)
        progress = await session.spark.copy_stream(folder, **options)
        expect_same_rows(await session.spark.copied(folder), wanted)
        # One that is empty and stores the start, 40, 40, 20.
        expect("batches", len(_batches(folder)), 4)

    with session.operation(PART, "commitGroup: mqadmin and our admin see where it is"):
        # Spark tells of a batch when it plans the next one.
        expect("left over", await _left(session), 20)
        assert progress is not None
        told = partial(commit_progress, progress, session.spark.options(**options))
        await trio.to_thread.run_sync(told)
        expect("left over", await _left(session), 0)
        groups = await session.mqadmin.run("consumerProgress")
        expect_true(f"the group in {groups!r}", GROUP in groups)

        def ask() -> list[int]:
            with BlockingAdmin(session.nameserver) as admin:
                progress = admin.group_progress(GROUP, topic=TOPIC)
            return [queue.consumer_offset for queue in progress.queues.values()]

        expect("offsets", sum(await trio.to_thread.run_sync(ask)), 100)

    with session.operation(PART, "a stock consumer of the group goes on where the query is"):
        expect_sent(await session.java.send(*messages[100:120]))
        async with session.driver.push_consumer(
            "after-spark", group=GROUP, topic=TOPIC
        ) as consumer:
            got = await consumer.wait_received(20)
            expect("bodies", {m.body for m in got}, {m.body for m in messages[100:120]})

    with session.operation(PART, "restarted, it adds what is new, of a new queue, too"):
        queues = await session.create_topic(TOPIC, queues=3)

        async def is_known() -> bool:
            return await session.reader.queues(TOPIC) == queues

        await wait_until("a third queue", is_known, timeout_s=20)
        expect_sent(await session.java.send_to_queue(*messages[120:], queue=queues[2]))
        wanted = await session.stock_rows(TOPIC, count=140)
        await session.spark.copy_stream(folder, **options)
        expect_same_rows(await session.spark.copied(folder), wanted)

    with session.operation(PART, "restarted without anything new, it makes no batch"):
        before = _batches(folder)
        await session.spark.copy_stream(folder, **options)
        expect("batches", len(_batches(folder)), len(before))
        expect("rows", len(await session.spark.copied(folder)), 140)

    for ends, end in (
        ("stopped", session.cluster.stop_broker),
        ("killed", session.cluster.kill_broker),
    ):
        with session.operation(
            PART, f"the broker is {ends} and started between two runs", timeout_s=BROKER_BACK_S
        ):
            await end(session.broker)
            await session.cluster.start_broker(session.broker, BROKER_SETTINGS)
            more = numbered(TOPIC, 20, tags=ends)
            expect_sent(await _send(session, more))
            known = len(await session.spark.copied(folder))
            wanted = await session.stock_rows(TOPIC, count=known + 20)
            await session.spark.copy_stream(folder, **options)
            expect_same_rows(await session.spark.copied(folder), wanted)


async def _left(session: StockSession) -> int:
    """Return how far a group is behind, as mqadmin has it."""
    output = await session.mqadmin.run("consumerProgress", "-g", GROUP)
    rows = [row for row in table(output, columns=8) if row[0] == TOPIC]
    expect_true(f"two queues in {output!r}", len(rows) == 2)
    return sum(int(row[3]) - int(row[4]) for row in rows)


async def _broker_dies(session: StockSession) -> None:
    await session.create_topic(ENDURING, queues=2)
    for queue_id in range(2):
        bodies = [f"{queue_id} {n} ".encode() * 8 for n in range(ENDURING_COUNT)]
        await session.fill(ENDURING, bodies, queue_id)
    await session.wait_visible(ENDURING, [ENDURING_COUNT] * 2)
    folder = session.folder / "enduring"
    wanted = await session.our_rows(ENDURING)
    with session.operation(
        PART,
        "the broker is killed while the query runs, and comes back: everything once",
        timeout_s=BROKER_BACK_S,
    ) as case:
        query = await session.spark.do(partial(_begin, session, folder))
        await _wait_batches(folder, 3)
        await session.cluster.kill_broker(session.broker)
        killed = trio.current_time()
        done = len(_batches(folder))
        await session.cluster.start_broker(session.broker, BROKER_SETTINGS)
        away_s = trio.current_time() - killed
        # No query would wait for a broker that takes longer than that: then this shows nothing.
        expect_true(f"a broker back after {PATIENCE_S:g} s, not {away_s:.0f}", away_s < PATIENCE_S)
        await session.spark.do(lambda _: query.awaitTermination())
        case.note(expect_same_rows(await session.spark.copied(folder), wanted))
        batches = len(_batches(folder))
        expect_true(f"that it was under way ({done} of {batches} batches)", 3 <= done < batches)


def _begin(session: StockSession, folder: Path, spark: SparkSession) -> StreamingQuery:
    return session.spark.start_copy(
        spark,
        folder,
        subscribe=ENDURING,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="400",
    )


async def _wait_batches(folder: Path, count: int) -> None:
    async def are_done() -> bool:
        return len(_batches(folder)) >= count

    await wait_until(f"{count} batches", are_done, timeout_s=60)


def _batches(folder: Path) -> list[Path]:
    """Return the files that Spark has written when batches were done."""
    return sorted((folder / "checkpoint" / "commits").glob("[0-9]*"))


async def _send(session: StockSession, messages: list[Any]) -> list[Any]:
    """Send with a producer that has no routes of before the restart."""
    async with session.driver.producer("again", group="spark-again") as producer:
        return await producer.send(*messages)
