"""`rmq pipeline dlq`: why messages died, and chosen ones sent again.

Reads the dead letters of all consumer groups or of one, and what waits in their retry topics, and
tells which of them are alike: by group, the topic they were sent to, tag and the shape of their
body (`rmq.spark.jobs.dlq.signature`). `letters` and `summary` are Parquet tables, dlq.json and
dlq.html the same for programs and people.

With `--redrive` chosen dead letters go to the topic they were sent to first, as the resend of
RocketMQ's cloud consoles does it: *every* group that subscribes to the topic gets them again, which
`--dry-run` names. Each is sent once, and a run that was interrupted goes on where it was
(`rmq.spark.jobs.dlq.ledger`). Dead letters themselves stay until retention deletes them.

Verdict: holds if there are no dead letters but those that were redriven (as the ledger in DIR
says); with `--redrive`, if all chosen ones were sent and found in their topics, once each.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.model.words import count_text
from rmq.spark.pipelines.arguments import moment_ms, positive
from rmq.spark.pipelines.cluster import cluster_target
from rmq.spark.pipelines.job import Pipeline, main
from rmq.spark.pipelines.printing import Run, time_text
from rmq.spark.pipelines.results import write_verdict
from rmq.spark.pipelines.verdict import Finding, Gauge, Json, Outcome, Verdict, bounded

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from rmq.spark.jobs.dlq.run import Triage
    from rmq.spark.pipelines.job import Job


def run(job: Job, args: Namespace) -> Verdict:
    """Read, report and, if asked to, redrive."""
    check_arguments(args)
    from rmq.spark.jobs.dlq.page import dlq_page
    from rmq.spark.jobs.dlq.run import triage
    from rmq.spark.pages.page import write_text

    result = triage(job, args)
    out: Path = args.out
    outputs = {
        "page": str(out / "dlq.html"),
        "letters": str(out / "letters"),
        "summary": str(out / "summary"),
        "json": str(out / "dlq.json"),
    }
    if result.sent is not None:
        outputs["ledger"] = str(out / "redriven")
    verdict = make_verdict(result, args, outputs)
    run = Run.of(job, cluster_target(args))
    write_verdict(out / "dlq.json", run, verdict, kinds=_kinds(result))
    write_text(out / "dlq.html", dlq_page(cluster_target(args), job.started_s, verdict, result))
    return verdict


def check_arguments(args: Namespace) -> None:
    """Raise `ConfigError` for options that do not go together."""
    if not args.redrive:
        for name in ("where", "all", "dry_run", "rate"):
            if getattr(args, name):
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(option, "has no effect without --redrive")
    elif args.where is None and not args.all:
        raise ConfigError(
            "--redrive",
            "which dead letters?",
            hint="choose some with --where CONDITION, or all of them with --all",
        )
    elif args.where is not None and args.all:
        raise ConfigError("--where", "and --all both say which dead letters: give one of them")
    elif args.where is not None and not args.where.strip():
        raise ConfigError("--where", "is empty")


def make_verdict(result: Triage, args: Namespace, outputs: Mapping[str, str]) -> Verdict:
    """Return the verdict of a run."""
    if result.sent is not None:
        outcome, sentence = _redriven(result)
    elif result.open:
        outcome, sentence = Outcome.FAILS, _open_sentence(result)
    else:
        outcome = Outcome.HOLDS
        redriven = f"; {count_text(result.dead, 'dead letter')} were redriven"
        sentence = f"no dead letter is left{redriven if result.dead else ''}"
    if result.retrying:
        sentence += f"; {count_text(result.retrying, 'message')} to be tried again"
    if args.redrive and args.dry_run:
        sentence += f"; {count_text(result.chosen, 'dead letter')} would be redriven"
    findings, left_out = bounded(_findings(result, is_dry=bool(args.dry_run)))
    return Verdict(
        outcome=outcome,
        sentence=sentence,
        facts=_facts(result),
        findings=findings,
        findings_left_out=left_out,
        outputs=outputs,
        records=result.dead + result.retrying,
        size_bytes=result.size_bytes,
        gauges=(
            Gauge("dead_letters", "Dead letters that are there.", result.dead),
            Gauge("dead_letters_open", "Dead letters that were not redriven.", result.open),
            Gauge("retrying_messages", "Messages to be tried again.", result.retrying),
        ),
    )


def _open_sentence(result: Triage) -> str:
    groups = {str(kind["group"]) for kind in result.summary if kind["open"]}
    return (
        f"{count_text(result.open, 'dead letter')} of {count_text(len(groups), 'group')} that"
        " were not redriven"
    )


def _redriven(result: Triage) -> tuple[Outcome, str]:
    sent = result.sent
    assert sent is not None
    comparison = sent.comparison
    told = f"{comparison.found:,} of {comparison.wanted:,} chosen dead letters were redriven"
    if comparison.wanted == 0:
        told = "no dead letter was chosen"
    if sent.recovered:
        told += f" and {sent.recovered:,} by a run that was interrupted"
    if comparison.doubled:
        told += f", {comparison.doubled:,} of them more than once"
    if result.unsendable:
        told += f", {sum(result.unsendable.values()):,} cannot be"
    told += f"; {result.open:,} are left" if result.open else ""
    is_done = comparison.is_exact and not result.unsendable
    return (Outcome.HOLDS if is_done else Outcome.FAILS), told


def _findings(result: Triage, *, is_dry: bool) -> list[Finding]:
    findings = [
        Finding(
            f"{count_text(count, 'chosen dead letter')} {reason}",
            {"kind": "unsendable", "letters": count, "reason": reason},
        )
        for reason, count in result.unsendable.items()
    ]
    if is_dry:
        findings += [
            Finding(
                f"{count_text(count, 'dead letter')} would go to topic {topic}, which"
                f" {_readers(result.audience.get(topic, ()))}",
                {
                    "kind": "would_send",
                    "topic": topic,
                    "letters": count,
                    "groups": list(result.audience.get(topic, ())),
                },
            )
            for topic, count in sorted(result.chosen_by_topic.items())
        ]
    for kind in result.summary:
        if kind["open"]:
            tag = f", tag {kind['tags']}" if kind["tags"] else ""
            findings.append(
                Finding(
                    f"group {kind['group']}: {count_text(kind['open'], 'dead letter')} of"
                    f" {kind['originTopic'] or 'an unknown topic'}{tag}, tried"
                    f" {kind['reconsumeTimes']} times: {kind['signature']}",
                    {"kind": "dead_letters", **_kind(kind)},
                )
            )
    findings += [Finding(text, {"kind": "not_known"}) for text in result.failures]
    return findings


def _readers(groups: Sequence[str]) -> str:
    if not groups:
        return "no group reads"
    return f"{'group' if len(groups) == 1 else 'groups'} {', '.join(groups)} will get"


def _facts(result: Triage) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "dead_letters": result.dead,
        "dead_letters_open": result.open,
        "retrying": result.retrying,
        "groups": len(result.groups),
        "chosen": result.chosen,
        "chosen_by_topic": dict(result.chosen_by_topic),
        "not_known": list(result.failures),
    }
    if result.sent is not None:
        comparison = result.sent.comparison
        facts |= {
            "run": result.sent.run,
            "redriven": comparison.found,
            "not_found": comparison.missing,
            "doubled": comparison.doubled,
            "recovered": result.sent.recovered,
        }
    return facts


def _kinds(result: Triage) -> list[Json]:
    return [_kind(kind) for kind in result.summary]


def _kind(kind: Mapping[str, object]) -> dict[str, Json]:
    return {
        "group": str(kind["group"]),
        "state": str(kind["kind"]),
        "origin_topic": None if kind["originTopic"] is None else str(kind["originTopic"]),
        "tag": None if kind["tags"] is None else str(kind["tags"]),
        "signature": str(kind["signature"]),
        "letters": int(str(kind["letters"])),
        "open": int(str(kind["open"])),
        "reconsume_times": int(str(kind["reconsumeTimes"])),
        "first_stored": time_text(int(str(kind["firstStored"])) / 1000),
        "last_stored": time_text(int(str(kind["lastStored"])) / 1000),
        "example_message_id": str(kind["exampleMsgId"]),
    }


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--group", metavar="G", help="only this consumer group (default: all)")
    parser.add_argument(
        "--since",
        type=moment_ms,
        metavar="TIME",
        help="only what died since: ISO 8601, or milliseconds since 1970",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="where tables, page and the ledger of what was redriven are kept",
    )
    redrive = parser.add_argument_group("sending dead letters again")
    redrive.add_argument(
        "--redrive", action="store_true", help="send chosen dead letters to their topic again"
    )
    redrive.add_argument(
        "--where",
        metavar="SQL",
        help="choose those for which this condition of Spark SQL holds, over the columns of"
        " DIR/letters, such as \"originTopic = 'Orders' AND ageSeconds < 3600\"",
    )
    redrive.add_argument("--all", action="store_true", help="choose all of them")
    redrive.add_argument(
        "--dry-run", action="store_true", help="say what would be sent, and send nothing"
    )
    redrive.add_argument(
        "--rate", type=positive, metavar="N", help="send at most N messages per second"
    )


PIPELINE: Final = Pipeline(
    name="dlq",
    help="tell why messages died, and send chosen dead letters again",
    description=(
        "Reads dead letters and retries of consumer groups and tells which are alike. With\n"
        "--redrive, chosen dead letters are sent once more to the topic they came from; every\n"
        "group that subscribes to it gets them. Exits with 1 while there are dead letters that\n"
        "were not redriven."
    ),
    add_arguments=add_arguments,
    run=run,
    target=cluster_target,
    needs_cluster=True,
    examples=(
        "rmq pipeline dlq -n 127.0.0.1:9876 --out dlq",
        "rmq pipeline dlq -n 127.0.0.1:9876 --group billing --out dlq --redrive --dry-run"
        " --where \"tags = 'TagA'\"",
    ),
)

if __name__ == "__main__":
    sys.exit(main(PIPELINE))
