"""Where queries start and end in topics of stock brokers: offsets, times, consumer groups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import trio
from seen_rows import expect_same_rows

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_sent, numbered
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from stock_session import StockSession

    Row = dict[str, Any]

PART: Final = "places"
TOPIC: Final = "SparkPlaces"
COUNT: Final = 40
PAUSE_S: Final = 0.02


async def run_place_cases(session: StockSession) -> None:
    queues = await session.create_topic(TOPIC, queues=2)
    messages = numbered(TOPIC, 2 * COUNT)
    for first in range(0, 2 * COUNT, 4):
        # Two for each queue, then a pause: some are stored in the same ms, most are not.
        for at, queue in enumerate(queues):
            pair = messages[first + 2 * at : first + 2 * at + 2]
            expect_sent(await session.java.send_to_queue(*pair, queue=queue))
        await trio.sleep(PAUSE_S)
    everything = await session.stock_rows(TOPIC, count=2 * COUNT)
    await _offsets(session, everything)
    await _times(session, everything)
    await _groups(session, everything)


def _json(session: StockSession, *offsets: int) -> str:
    """Return offsets of the queues of the topic as options have them."""
    by_queue = {str(number): offset for number, offset in enumerate(offsets)}
    return json.dumps({TOPIC: {session.broker.name: by_queue}})


def _between(rows: list[Row], *bounds: tuple[int, int]) -> list[Row]:
    """Return the rows of each queue from one offset up to another."""
    return [
        row
        for row in rows
        if bounds[row["queueId"]][0] <= row["queueOffset"]
        and row["queueOffset"] < bounds[row["queueId"]][1]
    ]


async def _offsets(session: StockSession, everything: list[Row]) -> None:
    with session.operation(PART, "offsets queue by queue, -2 and -1 among them"):
        rows = await session.spark.rows(
            subscribe=TOPIC,
            startingOffsets=_json(session, 3, -2),
            endingOffsets=_json(session, -1, 7),
        )
        expect_same_rows(rows, _between(everything, (3, COUNT), (0, 7)))

    with session.operation(PART, "assign: one queue, in tasks of seven messages"):
        assignment = json.dumps({TOPIC: {session.broker.name: [1]}})
        rows = await session.spark.rows(assign=assignment, maxRecordsPerPartition="7")
        expect_same_rows(rows, _between(everything, (COUNT, COUNT), (0, COUNT)))

    with session.operation(PART, "an offset behind the end of a queue is an error"):
        text = await session.spark.failure(
            subscribe=TOPIC, startingOffsets=_json(session, COUNT + 1, -2)
        )
        expect_true(f"failOnDataLoss in {text[-500:]!r}", "failOnDataLoss" in text)
        rows = await session.spark.rows(
            subscribe=TOPIC,
            startingOffsets=_json(session, COUNT + 1, -2),
            failOnDataLoss="false",
        )
        expect_same_rows(rows, _between(everything, (COUNT, COUNT), (0, COUNT)))


async def _times(session: StockSession, everything: list[Row]) -> None:
    times = sorted({row["storeTimestamp"] for row in everything})
    expect_true("messages of many times", len(times) > COUNT // 2)

    with session.operation(PART, "startingTimestamp and endingTimestamp") as case:
        chosen = [times[0] - 1, times[0], times[len(times) // 3], times[len(times) // 2] + 1]
        last = times[-5]
        for start in chosen:
            rows = await session.spark.rows(
                subscribe=TOPIC, startingTimestamp=start, endingTimestamp=last
            )
            wanted = [row for row in everything if start <= row["storeTimestamp"] < last]
            expect_same_rows(rows, wanted)
        case.note(f"{len(chosen)} times")

    with session.operation(PART, "startingTimestamp: what the stock client finds for the time"):
        # Of a time that one message alone has, the stock search and ours are of one mind.
        queue = (await session.reader.queues(TOPIC))[0]
        own = [row for row in everything if row["queueId"] == queue.queue_id]
        alone = [
            row
            for row in own
            if sum(each["storeTimestamp"] == row["storeTimestamp"] for each in own) == 1
        ]
        for row in alone[1:-1:7]:
            ms = row["storeTimestamp"]
            offset = await session.java.offset("search offset", queue, ms=ms)
            expect(f"offset of {ms} at the broker", offset, row["queueOffset"])
            rows = await session.spark.rows(
                assign=json.dumps({TOPIC: {queue.broker: [queue.queue_id]}}),
                startingTimestamp=ms,
                columns="queueOffset",
            )
            first = min(found["queueOffset"] for found in rows)
            expect(f"offset of {ms} in the table", first, offset)

    with session.operation(PART, "startingTimestamp behind the last message"):
        text = await session.spark.failure(subscribe=TOPIC, startingTimestamp=times[-1] + 1)
        expect_true(f"the strategy in {text[-500:]!r}", "TimestampStrategy=latest" in text)
        rows = await session.spark.rows(
            subscribe=TOPIC,
            startingTimestamp=times[-1] + 1,
            startingOffsetsByTimestampStrategy="latest",
        )
        expect("rows", rows, [])


async def _groups(session: StockSession, everything: list[Row]) -> None:
    queues = await session.reader.queues(TOPIC)

    with session.operation(PART, "where a stock pull consumer has committed; nothing in a queue"):
        async with session.driver.pull_consumer("places", group="spark-places") as pulling:
            await pulling.commit(queues[0], 11)

            async def is_committed() -> bool:
                return await pulling.committed(queues[0]) == 11

            # The stock client does not wait for an answer.
            await wait_until("offset 11 at the broker", is_committed)
        rows = await session.spark.rows(
            subscribe=TOPIC, startingOffsets="group", group="spark-places"
        )
        expect_same_rows(rows, _between(everything, (11, COUNT), (0, COUNT)))
        rows = await session.spark.rows(
            subscribe=TOPIC, endingOffsets="group", group="spark-places"
        )
        expect_same_rows(rows, _between(everything, (0, 11), (0, 0)))

    with session.operation(PART, "what a stock push consumer has left"):
        async with session.driver.push_consumer(
            "consuming", group="spark-consumed", topic=TOPIC
        ) as consumer:
            await consumer.wait_received(2 * COUNT)
        later = numbered("SparkPlaces", 2 * COUNT + 6)[2 * COUNT :]
        expect_sent(await session.java.send(*later))
        await session.stock_rows(TOPIC, count=2 * COUNT + 6)
        rows = await session.spark.rows(
            subscribe=TOPIC, startingOffsets="group", group="spark-consumed"
        )
        bodies = sorted(bytes(row["body"]) for row in rows)
        expect("bodies", bodies, sorted(message.body for message in later))

    with session.operation(PART, "reading has moved nobody's offsets"):
        async with session.driver.pull_consumer("places", group="spark-places") as pulling:
            expect("committed", await pulling.committed(queues[0]), 11)
        progress = await session.mqadmin.run("consumerProgress")
        expect_true("no group of ours", "rmq-spark" not in progress)
