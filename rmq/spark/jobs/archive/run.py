"""The archive at work: what is new is written, read back, proven, and then made part of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from rmq.errors import ConfigError, StoreError
from rmq.spark.jobs.archive.files import ArchiveFolder
from rmq.spark.jobs.archive.manifest import Gap, RunManifest
from rmq.spark.jobs.archive.plan import make_plan
from rmq.spark.jobs.archive.result import verdict_of
from rmq.spark.jobs.archive.sources import ClusterSource, StoreSource
from rmq.spark.jobs.archive.table import find_gaps, prove, read_run, write_messages
from rmq.spark.pipelines.cluster import cluster_config, cluster_options

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from rmq.spark.jobs.archive.manifest import Manifest
    from rmq.spark.jobs.archive.plan import Plan
    from rmq.spark.jobs.archive.table import Proven
    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict


class NotProvenError(StoreError):
    """What was written is not what should have been read; nothing of it was archived."""


def run(job: Job, args: Namespace) -> Verdict:
    """Archive what is new."""
    archive = ArchiveFolder(args.out.absolute(), args.checkpoint)
    with archive.locked():
        manifest = archive.load()
        source = _source(args)
        with job.step("looking for what is new"):
            bounds, changed = source.look(manifest)
        _require_known(args, manifest, [queue.topic for queue in bounds])
        plan = make_plan(manifest, bounds, changed, args.max_messages)
        done: RunManifest | None = None
        if plan.spans:
            done = _archive(job, archive, manifest, source, plan)
            manifest = manifest.with_run(done)
        if args.accept_gap:
            manifest = manifest.accepting_gaps()
        archive.save(manifest)
    outputs = {"data": str(archive.data), "manifest": str(archive.manifest_path)}
    return verdict_of(manifest, done, plan, outputs)


def _source(args: Namespace) -> ClusterSource | StoreSource:
    if args.from_store is not None:
        return StoreSource(args.from_store, args.broker_name, args.topic)
    return ClusterSource(cluster_config(args), cluster_options(args), args.topic)


def _require_known(args: Namespace, manifest: Manifest, found: list[str]) -> None:
    """Raise `ConfigError` for a topic that the store has not, and the archive neither."""
    archived = {queue.topic for queue in manifest.parts}
    missing = sorted(set(args.topic) - set(found) - archived)
    if missing:
        raise ConfigError("--topic", f"there is no topic {', '.join(missing)}")


def _archive(
    job: Job,
    archive: ArchiveFolder,
    manifest: Manifest,
    source: ClusterSource | StoreSource,
    plan: Plan,
) -> RunManifest:
    number = manifest.last_run + 1
    folder = archive.begin(number)
    try:
        messages = source.read(job.spark, plan, manifest)
        with job.step(f"archiving {plan.messages:,} messages"):
            write_messages(messages, folder)
        with job.step("reading them back"):
            proven = _check(job, folder, plan)
        done = RunManifest(
            run=number,
            archive_id=manifest.archive_id,
            source=source.name,
            started_s=job.started_s,
            ended_s=time.time(),
            parts=proven.parts,
            store_positions={} if plan.left else source.positions(proven.log_end),
        )
        archive.commit(folder, done)
    except BaseException:
        archive.discard(folder)
        raise
    return done


def _check(job: Job, folder: Path, plan: Plan) -> Proven:
    """Hold the files against the plan; raise `NotProvenError` if they are something else.

    Offsets that the source itself does not have are gaps, which the verdict names.
    """
    written = read_run(job.spark, folder)
    proven = prove(written)
    for queue in set(proven.parts) - set(plan.spans):
        raise NotProvenError(f"{queue} was written, and was not to be read")
    for queue, span in plan.spans.items():
        part = proven.parts.get(queue)
        if part is None or part.last != span.end - 1 or part.first < span.start:
            found = "none" if part is None else f"{part.first} to {part.last}"
            raise NotProvenError(
                f"{queue}: of the offsets {span.start} to {span.end - 1} that it has, {found} could"
                " be read; nothing of this run was archived"
            )
        if part.count != part.last - part.first + 1:
            part = replace(part, gaps=find_gaps(written, queue))
        if part.first > span.start:
            head = Gap(span.start, part.first - 1)
            part = replace(part, first=span.start, gaps=(head, *part.gaps))
        if not part.is_dense:
            raise NotProvenError(f"{queue}: count, offsets and gaps contradict each other")
        proven.parts[queue] = part
    return proven
