"""`rmq pipeline replay --from DIR --topic T`: an archive, or any table of bodies, into a topic.

Messages of one original queue go to one queue of the topic, in their order. Afterwards the part of
the topic that was written is read again: every row must be there once, with the same content (body,
tag, keys, flag and the application's properties; what belongs to the system, such as the message
id, is new by nature).

The name of a run follows from what is sent where, so the same rows sent again carry the same keys
(COPY_KEY, see `copies`). With `--out` a run that was interrupted is carried on: what the topic has
already is not sent again. Without it everything is sent.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.client.core.messages import check_topic
from rmq.errors import ConfigError, IllegalMessageError
from rmq.model.words import count_text, size_text
from rmq.spark.pipelines.arguments import names, positive
from rmq.spark.pipelines.cluster import cluster_options, cluster_target
from rmq.spark.pipelines.job import Pipeline, main
from rmq.spark.pipelines.printing import Run
from rmq.spark.pipelines.results import write_verdict
from rmq.spark.pipelines.verdict import Finding, Gauge, Json, Outcome, Verdict

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rmq.spark.jobs.replay.run import Replayed
    from rmq.spark.pipelines.job import Job


def run(job: Job, args: Namespace) -> Verdict:
    """Send, and find what was sent."""
    check_arguments(args)
    from rmq.spark.jobs.replay.run import replay

    result = replay(job, args)
    outputs: dict[str, str] = {}
    if args.out is not None:
        outputs["json"] = str(args.out / "replay.json")
    verdict = make_verdict(result, args.topic, outputs, is_dry=args.dry_run)
    if args.out is not None:
        write_verdict(args.out / "replay.json", Run.of(job, target(args)), verdict)
    return verdict


def check_arguments(args: Namespace) -> None:
    """Raise `ConfigError` for what can be seen to be wrong without Spark."""
    cluster_options(args)
    try:
        check_topic(args.topic)
    except IllegalMessageError as exc:
        raise ConfigError("--topic", exc.reason) from exc
    if not args.source.exists():
        raise ConfigError("--from", f"{args.source}: there is no such file or directory")


def make_verdict(result: Replayed, topic: str, outputs: dict[str, str], *, is_dry: bool) -> Verdict:
    """Return the verdict of a replay."""
    size = f"{count_text(result.rows, 'message')} ({size_text(result.size_bytes)})"
    facts: dict[str, Json] = {
        "run": result.run,
        "topic": topic,
        "rows": result.rows,
        "queues": result.queues,
        "sent_before": result.already,
        "sent": result.sent,
        "confirmed": result.sent,
    }
    findings: list[Finding] = []
    comparison = result.comparison
    if comparison is None:
        left = result.rows - result.already
        outcome = Outcome.HOLDS if left == 0 else Outcome.UNKNOWN
        sentence = f"nothing to send to {topic}"
        if left and is_dry:
            outcome, sentence = Outcome.HOLDS, f"{left:,} of {size} would be sent to {topic}"
    else:
        facts |= {
            "found": comparison.found,
            "not_found": comparison.missing,
            "doubled": comparison.doubled,
            "changed": comparison.changed,
        }
        for count, what in (
            (comparison.missing, "not in the topic"),
            (comparison.doubled, "in the topic more than once"),
            (comparison.changed, "in the topic with another content"),
        ):
            if count:
                findings.append(Finding(f"{count_text(count, 'message')} {what}"))
        outcome = Outcome.HOLDS if comparison.is_exact else Outcome.FAILS
        before = f", {result.already:,} of them by an earlier run" if result.already else ""
        how = ", each once and unchanged" if comparison.is_exact else ""
        sentence = f"{size} were sent to {topic}{before}: {comparison.found:,} found again{how}"
    return Verdict(
        outcome=outcome,
        sentence=sentence,
        facts=facts,
        findings=tuple(findings),
        outputs=outputs,
        records=result.rows,
        size_bytes=result.size_bytes,
        gauges=(Gauge("replayed_messages", "Messages sent by the last run.", result.sent),),
    )


def target(args: Namespace) -> str:
    """Return what is sent, and where."""
    return f"{args.source} to {args.topic} of {cluster_target(args)}"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="DIR",
        help="an archive, or a Parquet table with a column body (and tags, keys, properties ...)",
    )
    parser.add_argument("--topic", required=True, metavar="T", help="the topic to send to")
    parser.add_argument(
        "--source-topic",
        dest="source_topics",
        type=names,
        metavar="T[,T]",
        help="only messages of these topics (default: all there are)",
    )
    parser.add_argument(
        "--rate", type=positive, metavar="N", help="send at most N messages per second"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="keep what a run needs to be carried on there, and replay.json",
    )
    parser.add_argument(
        "--create-topic",
        action="store_true",
        help="let the first message create the topic, if brokers do that",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be sent, and send nothing"
    )


PIPELINE: Final = Pipeline(
    name="replay",
    help="send an archive, or any table with bodies, to a topic and prove that all is there",
    description=(
        "Sends messages of an archive, or rows of a Parquet table, to a topic: those of one\n"
        "original queue in their order. Then reads what was written and compares: every message\n"
        "must be there once, with the same body, tag, keys, flag and properties."
    ),
    add_arguments=add_arguments,
    run=run,
    target=target,
    needs_cluster=True,
    examples=(
        "rmq pipeline replay -n 127.0.0.1:9876 --from archive --topic OrdersAgain --rate 1000",
        "rmq pipeline replay -n 127.0.0.1:9876 --from archive --source-topic Orders --topic Copy"
        " --out state",
    ),
)

if __name__ == "__main__":
    sys.exit(main(PIPELINE))
