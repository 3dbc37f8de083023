"""The archive at work: what is new is written, read back, proven, and then made part of it."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from rmq.errors import ConfigError
from rmq.spark.jobs.archive.files import ArchiveFolder
from rmq.spark.jobs.archive.manifest import RunManifest
from rmq.spark.jobs.archive.plan import make_plan
from rmq.spark.jobs.archive.proof import proven
from rmq.spark.jobs.archive.result import verdict_of
from rmq.spark.jobs.archive.sources import ClusterSource, StoreSource
from rmq.spark.jobs.archive.table import find_gaps, prove, read_run, write_messages
from rmq.spark.pipelines.cluster import cluster_config, cluster_options

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.spark.jobs.archive.manifest import Manifest
    from rmq.spark.jobs.archive.plan import Plan
    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict


def run(job: Job, args: Namespace) -> Verdict:
    """Archive what is new."""
    archive = ArchiveFolder(args.out.absolute(), args.checkpoint)
    with archive.locked():
        manifest = archive.load()
        source = _source(args)
        with job.step("finding what is new"):
            bounds, changed = source.query_bounds(manifest)
        _require_known(args, manifest, [queue.topic for queue in bounds])
        expected = filter(source.serves, manifest.parts)
        plan = make_plan(manifest, bounds, changed, args.max_messages, expected=expected)
        done: RunManifest | None = None
        if plan.spans:
            done = _archive(job, archive, manifest, source, plan, may_lack=args.skip_corrupt)
            manifest = manifest.with_run(done)
        if args.accept_gap:
            manifest = manifest.accepting_gaps()
        archive.save(manifest)
    outputs = {"data": str(archive.data), "manifest": str(archive.manifest_path)}
    return verdict_of(manifest, done, plan, outputs)


def _source(args: Namespace) -> ClusterSource | StoreSource:
    if args.from_store is not None:
        return StoreSource(
            args.from_store, args.broker_name, args.topic, skips_corrupt=args.skip_corrupt
        )
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
    *,
    may_lack: bool,
) -> RunManifest:
    number = manifest.last_run + 1
    folder = archive.begin(number)
    try:
        messages = source.read(job.spark, plan)
        with job.step(f"archiving {plan.messages:,} messages"):
            write_messages(messages, folder)
        with job.step("reading them back"):
            written = read_run(job.spark, folder)
            parts = proven(plan, prove(written), partial(find_gaps, written), may_lack=may_lack)
        done = RunManifest(
            run=number,
            archive_id=manifest.archive_id,
            source=source.name,
            started_s=job.started_s,
            ended_s=time.time(),
            parts=parts,
        )
        archive.commit(folder, done)
    except BaseException:
        archive.discard(folder)
        raise
    return done
