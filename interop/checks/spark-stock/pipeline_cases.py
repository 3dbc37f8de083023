"""The pipelines on stock servers and stores, each as the command `rmq pipeline NAME`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from math import isclose
from typing import TYPE_CHECKING, Any, Final

import trio
from seen_rows import content, expect_same_rows
from spark_messages import send_varied
from spark_side import collect
from stock_session import BROKER_SETTINGS

from interop.support.cases import MismatchError, expect, expect_true
from interop.support.expectations import expect_sent, numbered
from interop.support.java_messages import Outgoing
from interop.support.spark import flip_a_bit
from interop.support.waiting import wait_until
from rmq.errors import NoRouteError
from rmq.spark.jobs.archive.table import read_archive
from rmq.spark.jobs.forecast.model import DAY_S
from rmq.spark.pipelines.catalogue import PIPELINES
from rmq.store.layout import QUEUE_ENTRY_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from stock_session import StockSession

    Row = dict[str, Any]

PART: Final = "pipelines"
KEPT: Final = "SparkKept"
KEPT_MORE: Final = 2000
GROUP: Final = "spark-behind"
DYING: Final = "SparkDying"
DYING_GROUP: Final = "spark-dying"
TWICE: Final = "SparkTwice"
# Spark starts anew for every one of them.
PIPELINE_S: Final = 300
STOPPED_S: Final = 400
GROWTH_S: Final = 300
"""After so many seconds a topic has a growth."""
NAMES: Final = frozenset(pipeline.name for pipeline in PIPELINES)


@dataclass(frozen=True)
class Done:
    """How a pipeline ended."""

    code: int
    result: dict[str, Any]
    errors: str

    def expect(self, outcome: str) -> None:
        """Exit code and verdict must be these, and of one mind."""
        codes = {"holds": 0, "fails": 1, "unknown": 2}
        said = f"({self.result.get('verdict')}; {self.errors[-500:]})"
        expect(f"outcome {said}", self.result["outcome"], outcome)
        expect(f"exit code {said}", self.code, codes[outcome])


async def run_pipeline_cases(session: StockSession) -> None:
    filled = trio.current_time()
    queues = await session.create_topic(KEPT)
    sent = await send_varied(session.java, KEPT, queues)
    await session.fill(KEPT, [f"{n} ".encode() * 20 for n in range(KEPT_MORE)], 1)
    await session.stock_rows(KEPT, count=len(sent) + KEPT_MORE)
    await _archive(session)
    await _report(session)
    await _forecast(session, filled)
    await _replay(session)
    await _dead_letters(session)
    await _duplicates(session)
    await _stores(session)


def _has(session: StockSession, name: str) -> bool:
    if name not in NAMES:
        session.operations.missing(PART, name, "this pipeline is not there yet")
    return name in NAMES


async def _run(session: StockSession, name: str, *arguments: str | Path) -> Done:
    """Run a pipeline as a command."""
    done = await trio.run_process(
        [
            *(sys.executable, "-m", "rmq", "pipeline", name, *map(str, arguments)),
            *("--spark-master", "local[2]", "--conf", "spark.driver.memory=768m", "--json"),
        ],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=session.folder,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
    )
    errors = done.stderr.decode("utf-8", "replace")
    try:
        result = json.loads(done.stdout)
    except ValueError as exc:
        raise MismatchError(f"{name} printed {done.stdout!r} and {errors[-1500:]}") from exc
    return Done(done.returncode, result, errors)


# ---- over the wire ---------------------------------------------------------------------------


async def _archive(session: StockSession) -> None:
    out = session.folder / "archive"
    arguments = ("-n", session.nameserver, "--topic", KEPT, "--out", out)
    if not _has(session, "archive"):
        return

    with session.operation(PART, "archive: all columns of every message", timeout_s=PIPELINE_S):
        done = await _run(session, "archive", *arguments)
        done.expect("holds")
        wanted = await session.our_rows(KEPT)
        expect("new messages", done.result["records"], len(wanted))
        expect_same_rows(await _archived(session, out), wanted)

    with session.operation(PART, "archive: run again, only what is new", timeout_s=PIPELINE_S):
        expect_sent(await session.java.send(*numbered(KEPT, 30, tags="New")))
        wanted = await session.stock_rows(KEPT, count=len(wanted) + 30)
        done = await _run(session, "archive", *arguments)
        done.expect("holds")
        expect("new messages", done.result["records"], 30)
        expect_same_rows(await _archived(session, out), wanted)

    with session.operation(PART, "archive --from-store: the same", timeout_s=PIPELINE_S):
        copy = session.folder / "archive-of-store"
        done = await _run(
            session,
            "archive",
            *("--from-store", session.store, "--broker-name", session.broker.name),
            *("--topic", KEPT, "--out", copy),
        )
        done.expect("holds")
        expect_same_rows(await _archived(session, copy), await session.our_rows(KEPT))


async def _archived(session: StockSession, out: Path) -> list[Row]:
    return await session.spark.do(lambda spark: collect(read_archive(spark, out)))


async def _report(session: StockSession) -> None:
    if not _has(session, "report"):
        return
    queue = (await session.reader.queues(KEPT))[1]
    count = len(await session.our_rows(KEPT))
    end = await session.java.offset("max offset", queue)
    async with session.driver.pull_consumer("behind", group=GROUP) as consumer:
        await consumer.commit(queue, end - 700)

    with session.operation(
        PART, "report: messages, and the lag of a stock consumer", timeout_s=PIPELINE_S
    ):
        out = session.folder / "report"
        done = await _run(
            session, "report", "-n", session.nameserver, "--topic", KEPT, "--out", out
        )
        done.expect("holds")
        expect("messages", done.result["records"], count)
        groups = [each for each in done.result["facts"]["groups"] if each["group"] == GROUP]
        lag = sum(each["lag"] for each in groups if each["topic"] == KEPT)
        expect_true(f"a lag of 700 and more in {groups}", lag >= 700)
        expect_true("a page", (out / "report.html").is_file())

    with session.operation(PART, "report: a limit that is exceeded", timeout_s=PIPELINE_S):
        done = await _run(
            session,
            "report",
            *("-n", session.nameserver, "--topic", KEPT, "--max-lag", "600"),
            *("--out", session.folder / "report"),
        )
        done.expect("fails")
        expect_true(
            f"the group in {done.result['findings']}", GROUP in str(done.result["findings"])
        )

    with session.operation(PART, "report --store: the same messages", timeout_s=PIPELINE_S):
        done = await _run(
            session,
            "report",
            *("--store", session.store, "--topic", KEPT, "--broker-name", session.broker.name),
            *("--out", session.folder / "report-of-store"),
        )
        done.expect("holds")
        expect("messages", done.result["records"], count)


async def _forecast(session: StockSession, filled: float) -> None:
    if not _has(session, "forecast"):
        return
    with session.operation(
        PART, "forecast: from what stock brokers tell", timeout_s=PIPELINE_S + GROWTH_S
    ):
        # Growth is measured over whole minutes, of which it takes three.
        await trio.sleep_until(filled + GROWTH_S)
        done = await _run(
            session,
            "forecast",
            *("-n", session.nameserver, "--capacity", "900G", "--ignore-group", GROUP),
            *("--out", session.folder / "forecast"),
        )
        # Groups that have not read what another part has taken away: how old it was, nobody knows.
        done.expect("unknown" if _of_ages(done) else "holds")
        expect("other findings", [each["text"] for each in _not_of_ages(done)], [])
        (growth,) = (each for each in done.result["facts"]["topics"] if each["topic"] == KEPT)
        rows = await session.our_rows(KEPT)
        stored = sum(row["storeSize"] for row in rows) + QUEUE_ENTRY_BYTES * len(rows)
        a_day = stored / (growth["to_s"] - growth["from_s"]) * DAY_S
        got = growth["mean_disk_bytes_per_day"]
        expect_true(f"a mean growth of {a_day} bytes a day in {growth}", isclose(got, a_day))


def _of_ages(done: Done) -> list[Row]:
    """Return the findings about groups whose first unread message has no known age."""
    return [each for each in done.result["findings"] if each["kind"] == "trend"]


def _not_of_ages(done: Done) -> list[Row]:
    """Return the findings that are neither about ages nor about bursts."""
    return [
        each
        for each in done.result["findings"]
        if each["kind"] not in ("trend", "bursts")
        and not each["text"].startswith("not known: age of")
    ]


async def _replay(session: StockSession) -> None:
    if not _has(session, "replay"):
        return
    target = "SparkReplayed"
    await session.create_topic(target)
    with session.operation(
        PART, "replay: a stock client reads what was archived", timeout_s=PIPELINE_S
    ):
        done = await _run(
            session,
            "replay",
            *("-n", session.nameserver, "--from", session.folder / "archive", "--topic", target),
            *("--out", session.folder / "replay"),
        )
        done.expect("holds")
        original = await session.stock_rows(KEPT)
        copies = await session.stock_rows(target, count=len(original))
        expect("messages", sorted(map(content, copies)) == sorted(map(content, original)), True)


async def _dead_letters(session: StockSession) -> None:
    if not _has(session, "dlq"):
        return
    await session.create_topic(DYING, queues=1)
    messages = [
        Outgoing(DYING, f"dying {n}".encode(), f"Tag{n % 2}", f"dying-{n}") for n in range(6)
    ]
    out = session.folder / "dlq"
    arguments = ("-n", session.nameserver, "--group", DYING_GROUP, "--out", out)

    async def are_dead() -> bool:
        try:
            return len(await session.our_rows(f"%DLQ%{DYING_GROUP}")) == len(messages)
        except NoRouteError:
            return False

    async with session.driver.push_consumer(
        "dying", group=DYING_GROUP, topic=DYING, failures=99, reconsumeTimesMax=0
    ):
        expect_sent(await session.java.send(*messages))
        await wait_until("dead letters", are_dead, timeout_s=90)

    with session.operation(PART, "dlq: what a stock group has given up", timeout_s=PIPELINE_S):
        done = await _run(session, "dlq", *arguments)
        done.expect("fails")
        expect("dead letters", done.result["records"], len(messages))

    async with session.driver.push_consumer("living", group=DYING_GROUP, topic=DYING) as consumer:
        with session.operation(
            PART, "dlq --redrive: chosen ones come again, once", timeout_s=2 * PIPELINE_S
        ):
            where = ("--redrive", "--where", "tags = 'Tag1'")
            for _ in range(2):
                done = await _run(session, "dlq", *arguments, *where)
                done.expect("holds")
            again = sorted(message.body for message in messages if message.tags == "Tag1")
            got = await consumer.wait_received(len(again), timeout_s=60)
            expect("received", sorted(message.body for message in got), again)

        with session.operation(
            PART, "dlq --redrive: the others, and then nobody is left", timeout_s=2 * PIPELINE_S
        ):
            done = await _run(session, "dlq", *arguments, "--redrive", "--all")
            done.expect("holds")
            got = await consumer.wait_received(len(messages), timeout_s=60)
            bodies = sorted(message.body for message in messages)
            expect("received", sorted(message.body for message in got), bodies)
            done = await _run(session, "dlq", *arguments)
            done.expect("holds")
            rows = await session.stock_rows(DYING, count=2 * len(messages))
            expect("messages", len(rows), 2 * len(messages))


async def _duplicates(session: StockSession) -> None:
    if not _has(session, "duplicates"):
        return
    await session.create_topic(TWICE)
    arguments = ("-n", session.nameserver, "--topic", TWICE)

    def table(spark: SparkSession) -> DataFrame:
        return spark.range(0, 500, 1, 2).selectExpr("string(id) AS body")

    with session.operation(PART, "duplicates: none, then all of them", timeout_s=PIPELINE_S):
        expect_sent(await session.java.send(*numbered(TWICE, 20)))
        await session.spark.save(table, topic=TWICE, runId="twice")
        await session.stock_rows(TWICE, count=520)
        done = await _run(session, "duplicates", *arguments)
        done.expect("holds")
        await session.spark.save(table, topic=TWICE, runId="twice")
        await session.stock_rows(TWICE, count=1020)
        done = await _run(session, "duplicates", *arguments)
        done.expect("fails")


# ---- stores ----------------------------------------------------------------------------------


async def _stores(session: StockSession) -> None:
    if _has(session, "verify"):
        verify = partial(
            _run, session, "verify", "--delay-levels", BROKER_SETTINGS["messageDelayLevel"]
        )
        await _verify(session, verify)
    if _has(session, "audit"):
        copy = session.folder / "audited"
        with session.operation(PART, "audit: a copy of a stock store", timeout_s=STOPPED_S):
            await session.cluster.stop_broker(session.broker)
            shutil.copytree(session.store, copy)
            done = await _run(
                session, "audit", "--master-store", session.store, "--slave-store", copy
            )
            done.expect("holds")
        with session.operation(PART, "audit: one flipped bit in it", timeout_s=PIPELINE_S):
            offset = flip_a_bit(copy)
            done = await _run(
                session, "audit", "--master-store", session.store, "--slave-store", copy
            )
            done.expect("fails")
            found = [each.get("physical_offset") for each in done.result["findings"]]
            expect(f"offsets of records that differ ({done.result['verdict']})", found, [offset])
        await session.cluster.start_broker(session.broker, BROKER_SETTINGS)


async def _verify(session: StockSession, verify: partial[Any]) -> None:
    with session.operation(PART, "verify: beside the running stock broker", timeout_s=PIPELINE_S):
        done = await verify("--store", session.store)
        done.expect("holds")

    with session.operation(PART, "verify: after it was killed", timeout_s=STOPPED_S):
        await session.cluster.kill_broker(session.broker)
        done = await verify("--store", session.store)
        await session.cluster.start_broker(session.broker, BROKER_SETTINGS)
        done.expect("holds")

    with session.operation(PART, "verify: after it was stopped", timeout_s=STOPPED_S):
        await session.cluster.stop_broker(session.broker)
        copy = session.folder / "verified"
        shutil.copytree(session.store, copy)
        done = await verify("--store", session.store)
        await session.cluster.start_broker(session.broker, BROKER_SETTINGS)
        done.expect("holds")

    with session.operation(PART, "verify: one flipped bit", timeout_s=PIPELINE_S):
        offset = flip_a_bit(copy)
        done = await verify("--store", copy)
        done.expect("fails")
        errors = [each for each in done.result["findings"] if each["severity"] == "error"]
        told = [(each["kind"], each["physical_offset"]) for each in errors]
        expect(f"errors ({done.result['verdict']})", told, [("record", offset)])
