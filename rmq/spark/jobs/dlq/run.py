"""Reads the dead letters of a cluster, tells which are alike, and sends chosen ones again."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

from rmq.client.blocking.admin import BlockingAdmin
from rmq.errors import ConfigError
from rmq.model.words import count_text
from rmq.spark import schema
from rmq.spark.jobs.copies import (
    KEY,
    as_copies,
    compare,
    find_copies,
    first_offsets,
    lost_parts,
    parts_text,
)
from rmq.spark.jobs.copy_names import REDRIVE
from rmq.spark.jobs.dlq.ledger import Ledger, Redrive
from rmq.spark.jobs.dlq.tables import (
    DEAD,
    OWN_COLUMNS,
    READ_COLUMNS,
    RETRYING,
    ages_of,
    letters_of,
    marked,
    summary_of,
)
from rmq.spark.jobs.dlq.topics import DeadLetterQueues, find_queues
from rmq.spark.jobs.outputs import write_table
from rmq.spark.jobs.topic_ranges import end_offsets, read_range
from rmq.spark.pipelines.cluster import cluster_config, cluster_options
from rmq.spark.pipelines.failures import spark_reason

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from rmq.client.core.config import ClientConfig
    from rmq.spark.jobs.copies import Comparison
    from rmq.spark.pipelines.job import Job

SUMMARY_MAX: Final = 1_000
"""How many kinds of letters are shown; the table has them all."""


@dataclass(slots=True)
class Sent:
    """The result of a redrive."""

    run: str
    comparison: Comparison
    by_topic: dict[str, int]
    recovered: int = 0
    """How many copies an earlier run had sent that was interrupted."""


@dataclass(slots=True)
class Triage:
    """What a run found, and what it did."""

    dead: int = 0
    open: int = 0
    """Dead letters that were not redriven, by this run or an earlier one."""
    retrying: int = 0
    size_bytes: int = 0
    groups: tuple[str, ...] = ()
    summary: list[dict[str, Any]] = field(default_factory=list)
    """Kinds of letters, those with most open ones first; times are in ms since 1970."""
    ages: list[dict[str, Any]] = field(default_factory=list)
    chosen: int = 0
    """How many are, or would be, sent again."""
    chosen_by_topic: dict[str, int] = field(default_factory=dict)
    unsendable: dict[str, int] = field(default_factory=dict)
    """Chosen ones that have nowhere to go, by the reason."""
    audience: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By topic, the groups that would get them."""
    sent: Sent | None = None
    failures: list[str] = field(default_factory=list)


def triage(job: Job, args: Namespace) -> Triage:
    """Read, report and, if asked to, redrive."""
    config = cluster_config(args)
    queues = find_queues(config, args.group)
    ledger = Ledger(args.out)
    if not args.redrive or args.dry_run:
        return _Run(job, args, config, queues, ledger).report()
    with ledger.locked():
        return _Run(job, args, config, queues, ledger).redrive()


class _Run:
    """One run."""

    def __init__(
        self,
        job: Job,
        args: Namespace,
        config: ClientConfig,
        queues: DeadLetterQueues,
        ledger: Ledger,
    ) -> None:
        self._job = job
        self._args = args
        self._config = config
        self._cluster = cluster_options(args)
        self._queues = queues
        self._ledger = ledger

    def report(self) -> Triage:
        """Read and report; what would be sent is only counted."""
        result = self._nothing_yet()
        letters = self._letters()
        try:
            self._look(letters, result)
            if self._args.redrive:
                self._choose(letters, result)
                result.audience = _audience(self._config, result.chosen_by_topic)
            self._write_tables(letters, result)
        finally:
            letters.unpersist()
        return result

    def redrive(self) -> Triage:
        """Read, send, and report how things are then."""
        result = self._nothing_yet()
        recovered = self._recover()
        letters = self._letters()
        try:
            chosen = self._choose(letters, result)
            result.sent = self._send(chosen, result)
            result.sent.recovered = recovered
            after = self._mark(letters.drop("isRedriven")).persist()
            try:
                self._look(after, result)
                self._write_tables(after, result)
            finally:
                after.unpersist()
        finally:
            letters.unpersist()
        return result

    def _nothing_yet(self) -> Triage:
        return Triage(groups=self._queues.groups, failures=list(self._queues.failures))

    # --- reading -----------------------------------------------------------------------------

    def _letters(self) -> DataFrame:
        spark, queues = self._job.spark, self._queues
        # What retention deletes while this runs is no dead letter any more.
        cluster = {**self._cluster, "failOnDataLoss": "false"}
        dead = read_range(spark, cluster, queues.dead_starts, queues.dead_ends, READ_COLUMNS)
        retrying = read_range(spark, cluster, queues.retry_starts, queues.retry_ends, READ_COLUMNS)
        letters = letters_of(dead.unionByName(retrying), int(self._job.started_s * 1000))
        if self._args.since is not None:
            since = F.timestamp_millis(F.lit(self._args.since))
            letters = letters.filter(F.col(schema.STORE_TIMESTAMP) >= since)
        # Read once: topics go on, and every count must be about the same letters.
        return self._mark(letters).persist()

    def _mark(self, letters: DataFrame) -> DataFrame:
        return marked(letters, self._ledger.read(self._job.spark))

    def _look(self, letters: DataFrame, result: Triage) -> None:
        """Note what there is."""
        with self._job.step("reading dead letters"):
            is_dead = F.col("kind") == DEAD
            (row,) = letters.agg(
                F.count_if(is_dead).alias("dead"),
                F.count_if(is_dead & ~F.col("isRedriven")).alias("open"),
                F.count_if(F.col("kind") == RETRYING).alias("retrying"),
                F.coalesce(F.sum(F.length(schema.BODY)), F.lit(0)).alias("bytes"),
            ).collect()
        with self._job.step("finding what is alike"):
            kinds = summary_of(letters).orderBy(F.desc("open"), F.desc("letters"), *_ORDER)
            for name in ("firstStored", "lastStored"):
                # As a datetime it would get the time zone of this machine.
                kinds = kinds.withColumn(name, F.unix_millis(name))
            result.summary = [each.asDict() for each in kinds.limit(SUMMARY_MAX).collect()]
            result.ages = ages_of(letters)
        result.dead = int(row["dead"])
        result.open = int(row["open"])
        result.retrying = int(row["retrying"])
        result.size_bytes = int(row["bytes"])

    def _write_tables(self, letters: DataFrame, result: Triage) -> None:
        out: Path = self._args.out
        with self._job.step("writing tables"):
            write_table(letters.coalesce(_FILES), out / "letters", result.dead + result.retrying)
            write_table(summary_of(letters).coalesce(_FILES), out / "summary")

    # --- choosing ----------------------------------------------------------------------------

    def _choose(self, letters: DataFrame, result: Triage) -> DataFrame:
        """Return the dead letters to send, and note how many there are and cannot be sent."""
        wanted = letters.filter((F.col("kind") == DEAD) & ~F.col("isRedriven"))
        wanted = matching(wanted, self._args.where)
        with self._job.step("choosing dead letters"):
            counts = {
                row["originTopic"]: int(row["count"])
                for row in wanted.groupBy("originTopic").count().collect()
            }
        topics = sorted(topic for topic in counts if topic is not None)
        there = {queue.topic for queue in end_offsets(self._config, topics)}
        if None in counts:
            result.unsendable["do not say which topic they were sent to"] = counts[None]
        for topic in topics:
            if topic not in there:
                result.unsendable[f"belong to topic {topic}, which does not exist"] = counts[topic]
        result.chosen_by_topic = {topic: counts[topic] for topic in topics if topic in there}
        result.chosen = sum(result.chosen_by_topic.values())
        return wanted.filter(F.col("originTopic").isin(*result.chosen_by_topic))

    # --- sending -----------------------------------------------------------------------------

    def _recover(self) -> int:
        """Add to the ledger what interrupted runs have sent; return how much that is."""
        recovered = 0
        for redrive in self._ledger.unfinished():
            with self._job.step(f"finding what run {redrive.run} has sent"):
                found = self._found_of(redrive).persist()
                recovered += self._record_sent(redrive, found)
                found.unpersist()
        return recovered

    def _found_of(self, redrive: Redrive) -> DataFrame:
        """Return the copies that are in the topics of a run since it began."""
        firsts = first_offsets(self._config, redrive.starts)
        starts = {
            queue: max(start, firsts.get(queue, start)) for queue, start in redrive.starts.items()
        }
        ends = end_offsets(self._config, sorted({queue.topic for queue in starts}))
        return find_copies(self._job.spark, self._cluster, starts, ends, REDRIVE)

    def _record_sent(self, redrive: Redrive, found: DataFrame) -> int:
        """Add what a run has sent to the ledger; return how much that is.

        Raises `ConfigError` if a part of it may be where it cannot be read: the run stays open,
        and nothing is sent before that is cleared up.
        """
        count = found.count()
        if count:
            self._ledger.add(found, redrive.run, count)
        # Asked behind the reading: what was deleted meanwhile is found out, too.
        lost = lost_parts(redrive.starts, first_offsets(self._config, redrive.starts))
        if lost:
            path = self._ledger.path_of(redrive)
            raise ConfigError(
                "--redrive",
                f"what was sent by run {redrive.run} can no longer be found in {parts_text(lost)}",
                hint=f"if a broker is down, start it; otherwise find out what the run has sent, and"
                f" remove {path}: dead letters that the ledger does not have are sent again then,"
                " unless --where leaves them out",
            )
        self._ledger.finish(redrive)
        return count

    def _send(self, chosen: DataFrame, result: Triage) -> Sent:
        topics = sorted(result.chosen_by_topic)
        redrive = Redrive(
            run=f"redrive-{int(self._job.started_s * 1000):015d}-{secrets.token_hex(3)}",
            started_ms=int(self._job.started_s * 1000),
            letters=result.chosen,
            starts=end_offsets(self._config, topics),
        )
        copies = as_copies(chosen, F.col(KEY), F.col("originTopic"), None)
        if not result.chosen:
            return Sent(redrive.run, compare(copies, copies), {})
        self._ledger.require_shared(self._job.spark)
        self._ledger.begin(redrive)
        options = {**self._cluster, "runId": redrive.run}
        messages = copies.drop(KEY)
        if self._args.rate is not None:
            # One task has the whole rate to itself, however many could run.
            messages = messages.coalesce(1)
            options |= {"maxMessagesPerSecond": str(self._args.rate), "parallelTasks": "1"}
        with self._job.step(f"sending {count_text(result.chosen, 'dead letter')} again"):
            messages.write.format("rocketmq").options(**options).mode("append").save()
        with self._job.step("finding what was sent"):
            found = self._found_of(redrive).persist()
            comparison = compare(copies, found)
            self._record_sent(redrive, found)
            found.unpersist()
        return Sent(redrive.run, comparison, dict(result.chosen_by_topic))


def _audience(config: ClientConfig, topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups that read each topic, as far as brokers know."""
    with BlockingAdmin(config) as admin:
        return {topic: tuple(sorted(admin.groups_of_topic(topic).groups)) for topic in topics}


_ORDER: Final = ("group", "originTopic", "tags", "signature")
_FILES: Final = 8
"""Into how many files a table is written at most; dead letters are few."""


def matching(letters: DataFrame, where: str | None) -> DataFrame:
    """Return the letters that a condition holds for; raise `ConfigError` if it is none."""
    if where is None:
        return letters
    try:
        chosen = letters.filter(where)
        chosen.schema  # noqa: B018 - makes Spark look the names up
    except (ParseException, AnalysisException) as exc:
        names = ", ".join((*READ_COLUMNS, *OWN_COLUMNS))
        raise ConfigError(
            "--where",
            f"{where!r} cannot be used: {spark_reason(str(exc))}",
            hint=f"it is a condition of Spark SQL over these columns: {names}",
        ) from exc
    return chosen
