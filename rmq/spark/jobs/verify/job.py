"""Checks a store with many tasks: segments, then queues and index files, then what was not right.

Where everything is as it should be, nothing is checked one by one. Where something is not, the
part of the store that it concerns (a queue, the index) is checked again by the rules of
`rmq.store.verify`, so that both name the same findings.

`Tasks` is how functions are run on many things; Spark does it, and tests do it without.
"""

from __future__ import annotations

from contextlib import closing
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np

from rmq.spark.jobs.verify import exact, index
from rmq.spark.jobs.verify import log as scanned
from rmq.spark.jobs.verify.expected import IndexBegins, Rules
from rmq.spark.jobs.verify.queues import plan_queues, read_queues
from rmq.spark.jobs.verify.scan import Bad, Ending, PartScan, Run, scan
from rmq.spark.jobs.verify.sums import QueueSum, RowSum
from rmq.store.reader.files import FilePool
from rmq.store.verify import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from rmq.spark.jobs.verify.exact import Found
    from rmq.spark.pipelines.job import Job
    from rmq.store.reader import Reader
    from rmq.store.verify.finding import DamagedRanges

SLICES_MAX: Final = 10_000
"""More tasks than that keep Spark busy with itself."""

A = TypeVar("A")
B = TypeVar("B")
Queue = tuple[str, int]


class Tasks(Protocol):
    """Runs a function on many things, in any order."""

    def map(self, title: str, function: Callable[[A], B], things: Sequence[A]) -> list[B]: ...

    def check_queues(
        self,
        rules: exact.QueueRules,
        offsets: Sequence[exact.OffsetsTask],
        queues: Iterable[Queue],
    ) -> list[Found]:
        """Find the records of queues, and check each queue when all of its records are there."""
        ...


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """What a check of a store found, and what it covered."""

    found: Found
    records: int
    size_bytes: int
    log_end: int
    queues: int
    queues_checked_one_by_one: int
    queue_entries: int
    index_entries: int
    is_index_checked_one_by_one: bool
    last_store_ms: int


class Check:
    """One check of one store."""

    def __init__(
        self,
        reader: Reader,
        tasks: Tasks,
        *,
        delay_levels_ms: tuple[int, ...],
        check_index: bool = True,
        part_bytes: int = scanned.PART_BYTES,
    ) -> None:
        self._reader = reader
        self._tasks = tasks
        self._delay_levels_ms = delay_levels_ms
        self._part_bytes = part_bytes
        self._index_files = index.list_files(reader) if check_index else []
        self._check_index = check_index
        begins: IndexBegins | None = None
        if check_index:
            begins = index.begins_of(self._index_files or [], is_live=reader.state.is_live)
        self._rules = Rules(delay_levels_ms, begins)

    def run(self) -> StoreCheck:
        """Check everything."""
        reader = self._reader
        events = self._scan_log()
        with closing(FilePool()) as files, copy(reader) as walked:
            walked.log = log = scanned.ScannedLog(files, reader.log, events)
            verifier = Verifier(walked, check_queues=False, check_index=False)
            found = [exact.Found.of(verifier.run(), 0)]
        log_end, damaged = verifier.log_end, verifier.damaged
        runs = [*log.runs(log_end)]
        sums = _sums_of(runs)
        queues = sorted({*sums, *_queues_of(reader)})
        unlike = self._unlike(sums, queues)
        if unlike:
            found += self._check_queues(unlike, runs, log_end, damaged)
        index_entries, is_index_exact = 0, False
        if self._check_index:
            index_entries, index_found = self._index_findings(runs, log_end, damaged)
            is_index_exact = index_found is not None
            if index_found is not None:
                found.append(index_found)
        return StoreCheck(
            found=_joined(found),
            records=sum(run.count for run in runs),
            size_bytes=sum(run.end - run.start for run in runs),
            log_end=log_end,
            queues=len(queues),
            queues_checked_one_by_one=len(unlike),
            queue_entries=sum(total.rows.count for total in sums.values()),
            index_entries=index_entries,
            is_index_checked_one_by_one=is_index_exact,
            last_store_ms=max((run.last_head.store_ms for run in runs), default=0),
        )

    # --- the log -----------------------------------------------------------------------------

    def _scan_log(self) -> dict[int, list[Run | Bad]]:
        parts = scanned.plan(self._reader, self._rules, self._part_bytes)
        scans = scanned.by_segment(self._tasks.map("reading the log", scan, parts))
        events: dict[int, list[Run | Bad]] = {}
        again: list[int] = []
        for first, of_segment in scans.items():
            linked = scanned.linked(of_segment)
            if linked is None:
                again.append(first)
            else:
                events[first] = linked
        if again:
            by_first = {part.segment_first: part for part in parts}
            whole = [scanned.whole_segment(by_first[first]) for first in again]
            for result in self._tasks.map("reading damaged segments", scan, whole):
                events[result.segment_first] = _events_of(result)
        return events

    # --- queues ------------------------------------------------------------------------------

    def _unlike(self, sums: dict[Queue, QueueSum], queues: Sequence[Queue]) -> list[Queue]:
        """Return the queues that are not just what the log says."""
        parts = plan_queues(self._reader, sums, queues)
        rows: dict[Queue, RowSum] = {}
        unlike = {queue for queue, total in sums.items() if not total.is_dense}
        for entries in self._tasks.map("reading queues", read_queues, parts):
            for part in entries:
                queue = (part.topic, part.queue_id)
                rows[queue] = rows.get(queue, RowSum()).plus(part.rows)
                if not part.is_tidy:
                    unlike.add(queue)
        empty = QueueSum()
        unlike |= {queue for queue in queues if rows.get(queue) != sums.get(queue, empty).rows}
        return sorted(unlike)

    def _check_queues(
        self, queues: list[Queue], runs: list[Run], log_end: int, damaged: DamagedRanges
    ) -> list[Found]:
        rules = exact.QueueRules(self._reader, log_end, damaged, self._delay_levels_ms)
        wanted = frozenset(queues)
        offsets = [
            exact.OffsetsTask(rules.reader, run.start, run.end, concerned)
            for run in runs
            if (concerned := wanted if run.has_extra_queues else wanted & _queues_in(run))
        ]
        return self._tasks.check_queues(rules, offsets, queues)

    # --- the index ---------------------------------------------------------------------------

    def _index_findings(
        self, runs: list[Run], log_end: int, damaged: DamagedRanges
    ) -> tuple[int, Found | None]:
        """Return how many entries there are, and the findings if it was checked entry by entry."""
        files = self._index_files
        if files is not None:
            state = self._reader.state
            begins = self._rules.index
            assert begins is not None
            is_closed = not (state.is_live or state.is_abort_present)
            log_min = int(self._reader.min_offset)
            parts = [index.IndexTask(file, begins, log_min, is_closed) for file in files]
            scans = self._tasks.map("reading the index", index.read_index, parts)
            keys, wanted = RowSum(), RowSum()
            for each in scans:
                keys = keys.plus(each.keys)
            for run in runs:
                wanted = wanted.plus(run.keys)
            if (
                all(each.is_tidy for each in scans)
                and _is_ordered(files)
                and keys == wanted
                and index.are_times_right(self._reader, files, scans, log_end)
            ):
                return sum(each.entries for each in scans), None
        check = partial(
            _check_index, log_end=log_end, damaged=damaged, runs=[(r.start, r.end) for r in runs]
        )
        (found,) = self._tasks.map("checking the index", check, [self._reader])
        return found.entries, found


def _check_index(
    reader: Reader, *, log_end: int, damaged: DamagedRanges, runs: list[tuple[int, int]]
) -> Found:
    return exact.check_index(reader, log_end, damaged, runs)


def _events_of(result: PartScan) -> list[Run | Bad]:
    return [] if result.ending is Ending.GONE else result.events


def _queues_of(reader: Reader) -> set[Queue]:
    """Return the queues that have a folder."""
    return {(topic, queue_id) for topic in reader.topics() for queue_id in reader.queue_ids(topic)}


def _queues_in(run: Run) -> frozenset[Queue]:
    rows = zip(run.queues["topic"].tolist(), run.queues["queue_id"].tolist(), strict=True)
    return frozenset((run.topics[topic], queue_id) for topic, queue_id in rows)


def _sums_of(runs: Iterable[Run]) -> dict[Queue, QueueSum]:
    """Return what all queues must have."""
    sums: dict[Queue, QueueSum] = {}
    for run in runs:
        for topic, queue_id, first, last, count, fingerprint, is_dense in run.queues.tolist():
            queue = (run.topics[topic], queue_id)
            total = sums.get(queue)
            if total is None:
                total = sums[queue] = QueueSum()
            total.add(first, last, count, fingerprint, is_dense=is_dense)
    return sums


def _is_ordered(files: Sequence[index.IndexFileHead]) -> bool:
    """Tell whether no index file begins before the one before it ends."""
    return all(
        before.header.end_offset <= behind.header.begin_offset for before, behind in pairwise(files)
    )


def _joined(parts: Iterable[Found]) -> Found:
    everything = [*parts]
    return exact.Found(
        tuple(finding for part in everything for finding in part.findings),
        sum(part.errors for part in everything),
        sum(part.notes for part in everything),
    )


class SparkTasks:
    """Runs functions as tasks of Spark."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def map(self, title: str, function: Callable[[A], B], things: Sequence[A]) -> list[B]:
        if not things:
            return []
        with self._job.step(title):
            context = self._job.spark.sparkContext
            return context.parallelize(things, min(len(things), SLICES_MAX)).map(function).collect()

    def check_queues(
        self,
        rules: exact.QueueRules,
        offsets: Sequence[exact.OffsetsTask],
        queues: Iterable[Queue],
    ) -> list[Found]:
        context = self._job.spark.sparkContext
        nothing: list[tuple[Queue, NDArray[Any]]] = [
            (queue, np.empty(0, np.int64)) for queue in queues
        ]
        with self._job.step(f"checking {len(nothing):,} queues"):
            places = context.parallelize(nothing)
            if offsets:
                slices = min(len(offsets), SLICES_MAX)
                records = context.parallelize(offsets, slices).flatMap(exact.offsets_of_queues)
                places = places.union(records)
            by_queue = places.groupByKey(min(len(nothing), SLICES_MAX))
            return by_queue.map(partial(_check_queue, rules)).collect()


def _check_queue(rules: exact.QueueRules, records: tuple[Queue, Iterable[NDArray[Any]]]) -> Found:
    queue, offsets = records
    return exact.check_queue(rules, queue, offsets)
