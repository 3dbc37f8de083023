"""The result of a run of the archive, as text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.model.words import count_text, size_text
from rmq.spark.pipelines.verdict import Finding, Gauge, Outcome, Verdict, bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmq.spark.jobs.archive.manifest import Manifest, RunManifest
    from rmq.spark.jobs.archive.plan import Plan
    from rmq.spark.pipelines.verdict import Json


def verdict_of(
    manifest: Manifest, run: RunManifest | None, plan: Plan, outputs: Mapping[str, str]
) -> Verdict:
    """Decide: an archive holds if all gaps are accepted, and no queue has begun again at 0.

    While queues cannot be read, the outcome is unknown.
    """
    outcome = Outcome.UNKNOWN if plan.unreadable else Outcome.HOLDS
    if plan.restarts or manifest.gaps:
        outcome = Outcome.FAILS
    findings, left_out = bounded([*_restarts(plan), *_unreadable(plan, manifest), *_gaps(manifest)])
    size = sum(part.size_bytes for part in run.parts.values()) if run is not None else 0
    topics: list[Json] = [*sorted({queue.topic for queue in manifest.parts})]
    facts: dict[str, Json] = {
        "archive_id": manifest.archive_id,
        "run": None if run is None else run.run,
        "new_messages": 0 if run is None else run.messages,
        "new_bytes": size,
        "messages": manifest.messages,
        "queues": len(manifest.parts),
        "topics": topics,
        "gaps": len(manifest.gaps),
        "gap_messages": sum(gap.messages for _, gap in manifest.gaps),
        "restarts": len(plan.restarts),
        "unreadable": len(plan.unreadable),
        "left": plan.left,
    }
    return Verdict(
        outcome=outcome,
        sentence=_sentence(manifest, run, plan, size),
        facts=facts,
        findings=findings,
        findings_left_out=left_out,
        outputs=outputs,
        records=0 if run is None else run.messages,
        size_bytes=size,
        gauges=(
            Gauge("archived_messages", "Messages in the archive.", manifest.messages),
            Gauge(
                "archive_left_messages", "Messages that the last run left to the next.", plan.left
            ),
            Gauge("gap_messages", "Messages that are missing in the archive.", _missing(manifest)),
        ),
    )


def _missing(manifest: Manifest) -> int:
    return sum(gap.messages for part in manifest.parts.values() for gap in part.gaps)


def _sentence(manifest: Manifest, run: RunManifest | None, plan: Plan, size: int) -> str:
    queues = f"{count_text(len(manifest.parts), 'queue')}"
    if run is None:
        text = "nothing new"
    else:
        text = f"{count_text(run.messages, 'new message')} ({size_text(size)} of bodies)"
    text = f"{text}; the archive has {count_text(manifest.messages, 'message')} of {queues}"
    missing = sum(gap.messages for _, gap in manifest.gaps)
    if missing:
        text = f"{text}, and lacks {count_text(missing, 'message')} in between"
    elif not plan.restarts:
        accepted = _missing(manifest)
        rest = f" but for {count_text(accepted, 'message')} known to be lost" if accepted else ""
        text = f"{text}, each offset once from the first to the last{rest}"
    if plan.restarts:
        text = f"{text}; {count_text(len(plan.restarts), 'queue')} not continued, see below"
    if plan.unreadable:
        text = f"{text}; {count_text(len(plan.unreadable), 'queue')} not readable now, see below"
    return (
        f"{text}; {count_text(plan.left, 'message')} left for the next run" if plan.left else text
    )


def _restarts(plan: Plan) -> Iterator[Finding]:
    for restart in plan.restarts:
        queue = restart.queue
        yield Finding(
            f"{queue} is not the one that was archived up to offset {restart.archived}:"
            f" {restart.reason}. If the topic was deleted and made again, archive it into another"
            " --out; after a failover, audit master and slave",
            {
                "kind": "restart",
                "topic": queue.topic,
                "broker_name": queue.broker_name,
                "queue_id": queue.queue_id,
                "archived": restart.archived,
            },
        )


def _unreadable(plan: Plan, manifest: Manifest) -> Iterator[Finding]:
    for queue in plan.unreadable:
        archived = manifest.parts[queue].last
        yield Finding(
            f"{queue} is not readable now: nothing after offset {archived} is archived. If its"
            " broker is down, start it before retention deletes messages; if it is gone for good,"
            " archive the topic into another --out",
            {
                "kind": "unreadable",
                "topic": queue.topic,
                "broker_name": queue.broker_name,
                "queue_id": queue.queue_id,
                "archived": archived,
            },
        )


def _gaps(manifest: Manifest) -> Iterator[Finding]:
    for queue, gap in manifest.gaps:
        yield Finding(
            f"{queue}: {count_text(gap.messages, 'message')} missing, offsets {gap.first} to"
            f" {gap.last}; --accept-gap says that they are known to be lost",
            {
                "kind": "gap",
                "topic": queue.topic,
                "broker_name": queue.broker_name,
                "queue_id": queue.queue_id,
                "first": gap.first,
                "last": gap.last,
            },
        )
