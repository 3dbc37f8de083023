"""The store directory of a stock broker as a table: running, stopped, killed, shortened."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from seen_rows import expect_same_rows, in_queue_order
from spark_messages import send_varied
from stock_session import BROKER_SETTINGS, SEGMENT_BYTES

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_sent
from interop.support.java_messages import Outgoing
from rmq.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stock_session import StockSession

    Row = dict[str, Any]

PART: Final = "store"
VARIED: Final = "SparkStored"
MANY: Final = "SparkStoredMany"
LOADED: Final = "SparkStoredLoaded"
LOAD_BATCH: Final = 100
BODY_BYTES: Final = 700
SPLIT_BYTES: Final = 256 << 10
BROKER_BACK_S: Final = 180


async def run_store_cases(session: StockSession) -> None:
    queues = await session.create_topic(VARIED)
    sent = await send_varied(session.java, VARIED, queues)
    await session.create_topic(MANY, queues=2)
    for queue_id in range(2):
        await session.fill(MANY, [_body(queue_id, n) for n in range(5000)], queue_id)
    await session.wait_visible(MANY, [5000, 5000])
    wanted = await session.stock_rows(VARIED, count=len(sent))
    everything = await session.our_rows(VARIED, MANY)
    await _running(session, wanted, everything)
    await _ranges(session, everything)
    await _growing(session)
    await _stopped(session, everything)
    await _killed(session)
    await _shortened(session)


def _body(queue_id: int, number: int) -> bytes:
    return f"{queue_id} {number} ".encode().ljust(BODY_BYTES, b".")


def _read(session: StockSession, *topics: str, **options: object) -> partial[Any]:
    return partial(
        session.spark.store_rows,
        session.store,
        brokerName=session.broker.name,
        topics=",".join(topics),
        **options,
    )


async def _running(session: StockSession, wanted: list[Row], everything: list[Row]) -> None:
    with session.operation(PART, "beside the running broker: what the stock client reads"):
        expect_same_rows(await _read(session, VARIED)(), wanted)

    with session.operation(PART, "all columns of what our client reads, over segments") as case:
        segments = len([*(session.store / "commitlog").iterdir()])
        expect_true(f"several segments, not {segments}", segments > 1)
        rows = await _read(session, VARIED, MANY)()
        case.note(f"{expect_same_rows(rows, everything)}, {segments} segments")
        expect("columns", len(rows[0]), 20)

    with session.operation(PART, "in tasks of 256 KiB: the same"):
        rows = await _read(session, VARIED, MANY, splitBytes=SPLIT_BYTES)()
        expect_same_rows(rows, everything)

    with session.operation(PART, "all topics, those of the system when they are asked for"):
        delayed = Outgoing(VARIED, b"delayed", delay_level=2)
        expect_sent(await session.java.send(delayed))

        async def topics(**options: object) -> set[str]:
            rows = await _read(session, columns="topic", **options)()
            return {row["topic"] for row in rows}

        plain, all_topics = await topics(), await topics(includeSystemTopics="true")
        expect_true(f"{VARIED} and {MANY} in {plain}", {VARIED, MANY} <= plain)
        expect_true(f"none of the system in {plain}", "SCHEDULE_TOPIC_XXXX" not in plain)
        expect_true(f"it in {all_topics}", {"SCHEDULE_TOPIC_XXXX", *plain} <= all_topics)


async def _ranges(session: StockSession, everything: list[Row]) -> None:
    rows = sorted(everything, key=lambda row: row["commitLogOffset"])
    with session.operation(PART, "physical offsets and times from one to another"):
        first, last = rows[1000]["commitLogOffset"], rows[-1000]["commitLogOffset"]
        got = await _read(session, VARIED, MANY, fromOffset=first, toOffset=last)()
        expect_same_rows(got, rows[1000:-1000])
        early, late = rows[2000]["storeTimestamp"], rows[-2000]["storeTimestamp"]
        got = await _read(session, VARIED, MANY, startingTimestamp=early, endingTimestamp=late)()
        expect_same_rows(got, [row for row in rows if early <= row["storeTimestamp"] < late])


async def _load(session: StockSession, stopped: trio.Event) -> list[bytes]:
    """Send until it is stopped, or the broker is gone; return what was acknowledged."""
    done: list[bytes] = []
    while not stopped.is_set():
        batch = [_body(0, len(done) + n) for n in range(LOAD_BATCH)]
        try:
            await session.fill(LOADED, batch)
        except ClientError:
            break
        done += batch
    return done


async def _growing(session: StockSession) -> None:
    await session.create_topic(LOADED, queues=1)
    with session.operation(PART, "while the broker writes: whole records, none missing") as case:
        counts: list[int] = []
        stopped = trio.Event()

        async def load() -> None:
            sent.extend(await _load(session, stopped))

        sent: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            for _ in range(5):
                rows = in_queue_order(await _read(session, LOADED)())
                counts.append(len(rows))
                expect(
                    "bodies", [row["body"] for row in rows], [_body(0, n) for n in range(len(rows))]
                )
                expect("offsets", [row["queueOffset"] for row in rows], list(range(len(rows))))
            stopped.set()
        expect_true(f"that it has grown: {counts}", counts[0] < counts[-1])
        rows = await _read(session, LOADED)()
        expect("messages", len(rows), len(sent))
        case.note(f"{counts} messages")


async def _stopped(session: StockSession, everything: list[Row]) -> None:
    with session.operation(PART, "stopped: the same", timeout_s=BROKER_BACK_S):
        await session.cluster.stop_broker(session.broker)
        expect_same_rows(await _without_delayed(session), everything)
        await session.cluster.start_broker(session.broker, BROKER_SETTINGS)


async def _without_delayed(session: StockSession) -> list[Row]:
    rows: list[Row] = await _read(session, VARIED, MANY)()
    return [row for row in rows if row["body"] != b"delayed"]


async def _killed(session: StockSession) -> None:
    with session.operation(
        PART, "killed while it writes: what the client reads afterwards", timeout_s=BROKER_BACK_S
    ) as case:
        before = await session.our_rows(LOADED)
        acknowledged: list[bytes] = []

        async def load() -> None:
            acknowledged.extend(await _load(session, trio.Event()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            await trio.sleep(1.5)
            await session.cluster.kill_broker(session.broker)
        rows = await _read(session, LOADED)()
        added = len(rows) - len(before)
        expect_true(f"{len(acknowledged)} messages, not {added}", added >= len(acknowledged) > 0)
        await session.cluster.start_broker(session.broker, BROKER_SETTINGS)
        expect_same_rows(rows, await session.our_rows(LOADED))
        case.note(f"{len(acknowledged)} acknowledged, {added} there")


async def _shortened(session: StockSession) -> None:
    """Take the older segments away, as retention does."""
    with session.operation(
        PART,
        "without its older segments: what is left, and an error for what is not",
        timeout_s=BROKER_BACK_S,
    ) as case:
        before = await session.our_rows(VARIED, MANY, LOADED)
        await session.cluster.stop_broker(session.broker)
        many = sorted(row["commitLogOffset"] for row in before if row["topic"] == MANY)
        middle = many[len(many) // 2]
        first = middle - middle % SEGMENT_BYTES
        for segment in (session.store / "commitlog").iterdir():
            if int(segment.name) < first:
                segment.unlink()
        await session.cluster.start_broker(session.broker, BROKER_SETTINGS)
        left = [row for row in before if row["commitLogOffset"] >= first]
        expect_true("that something is gone, and not all", 0 < len(left) < len(before))
        rows = await _read(session, VARIED, MANY, LOADED)()
        expect_same_rows(rows, left)
        await _wait_first(session, [row for row in left if row["topic"] == MANY])
        case.note(f"{len(left)} of {len(before)} messages")
        # Of a queue that has lost all its messages stock brokers tell the first offset of before:
        # only queues that have some begin where they say.
        many = [row for row in left if row["topic"] == MANY]
        queues = sorted({row["queueId"] for row in many})
        assigned = json.dumps({MANY: {session.broker.name: queues}})
        expect_same_rows(await session.spark.rows(assign=assigned), many)
        topics = ",".join((VARIED, MANY, LOADED))
        text = await session.spark.failure(subscribe=topics)
        expect_true(f"the loss in {text[-500:]!r}", "messages are missing" in text)
        rows = await session.spark.rows(subscribe=topics, failOnDataLoss="false")
        expect_same_rows(rows, left)
        zero = json.dumps({MANY: {session.broker.name: {"0": 0, "1": 0}}})
        text = await session.spark.failure(subscribe=MANY, startingOffsets=zero)
        expect_true(f"the loss in {text[-500:]!r}", "messages are missing" in text)
        rows = await session.spark.rows(
            subscribe=MANY, startingOffsets=zero, failOnDataLoss="false"
        )
        expect_same_rows(rows, many)


async def _wait_first(session: StockSession, left: Sequence[Row]) -> None:
    """Wait until the broker has noticed: the queue of the first message begins with it then."""
    row = min(left, key=lambda row: row["commitLogOffset"])
    queue = (await session.reader.queues(row["topic"]))[row["queueId"]]
    first = row["queueOffset"]
    with trio.fail_after(BROKER_BACK_S):
        # The broker tells nobody.
        while await session.java.offset("min offset", queue) != first:  # noqa: ASYNC110
            await trio.sleep(0.5)
