"""`rmq pipeline duplicates`: which messages are there more than once, why, and which are missing.

Duplicates are found by message id (UNIQ_KEY), copies by the id of what they are a copy of; the
likely cause of each is given (`rmq.spark.jobs.duplicates.causes`). A redrive or a replay is the
cause of one copy for each COPY_KEY; what is there more often was sent twice. With a ledger of the
keys that a producer says it has sent, keys that no message has are missing: delivery at least once
did not hold.

Reads topics of a cluster, an archive, or the CommitLog of a store. Fails if anything is missing, or
there more than once for a cause that is not allowed (`--allow`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.model.words import count_text
from rmq.settings.setting import nearest_word
from rmq.spark.jobs.duplicates.causes import Cause
from rmq.spark.pipelines.arguments import moment_ms, names
from rmq.spark.pipelines.cluster import cluster_options, cluster_target
from rmq.spark.pipelines.job import Pipeline, main
from rmq.spark.pipelines.printing import Run
from rmq.spark.pipelines.results import write_verdict
from rmq.spark.pipelines.verdict import Finding, Gauge, Json, Outcome, Verdict, bounded

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping

    from rmq.spark.jobs.duplicates.run import Duplicates
    from rmq.spark.pipelines.job import Job


def run(job: Job, args: Namespace) -> Verdict:
    """Find duplicates and what is missing."""
    check_arguments(args)
    from rmq.spark.jobs.duplicates.run import check_duplicates

    result = check_duplicates(job, args)
    outputs: dict[str, str] = {}
    if args.out is not None:
        outputs["duplicates"] = str(args.out / "duplicates")
        if args.ledger is not None:
            outputs["missing"] = str(args.out / "missing")
        outputs["json"] = str(args.out / "duplicates.json")
    verdict = make_verdict(result, args.allow, outputs)
    if args.out is not None:
        write_verdict(args.out / "duplicates.json", Run.of(job, target(args)), verdict)
    return verdict


def check_arguments(args: Namespace) -> None:
    """Raise `ConfigError` for options that do not go together."""
    if args.archive is not None and args.store is not None:
        raise ConfigError("--archive", "and --store both say what to read: give one of them")
    for name in ("archive", "store"):
        path = getattr(args, name)
        if path is not None:
            if not path.is_dir():
                raise ConfigError(f"--{name}", f"{path}: there is no such directory")
            return
    cluster_options(args)
    if args.topics is None:
        raise ConfigError("--topic", "which topics?", hint="give --topic T[,T]")


def make_verdict(
    result: Duplicates, allowed: frozenset[Cause], outputs: Mapping[str, str]
) -> Verdict:
    """Return the verdict of a run."""
    names_allowed = {cause.value for cause in allowed}
    extra = sum(result.extra.values())
    wrong = sum(n for cause, n in result.extra.items() if cause not in names_allowed)
    told = [f"{count_text(result.messages, 'message')}"]
    if extra:
        duplicated = sum(result.duplicated.values())
        told.append(f"{duplicated:,} of them more than once ({_copies(extra)} too many)")
        if wrong < extra:
            told.append(f"{extra - wrong:,} for causes that are allowed")
    else:
        told.append("each once")
    if result.ledger_keys is not None:
        told.append(
            f"{result.missing:,} of {count_text(result.ledger_keys, 'key')} of the ledger missing"
        )
    findings, left_out = bounded(
        _findings(result),
        total=len(result.extra) + sum(result.duplicated.values()) + result.missing,
    )
    return Verdict(
        outcome=Outcome.FAILS if wrong or result.missing else Outcome.HOLDS,
        sentence=", ".join(told),
        facts=_facts(result, extra, wrong),
        findings=findings,
        findings_left_out=left_out,
        outputs=outputs,
        records=result.messages,
        gauges=(
            Gauge("missing_messages", "Keys of the ledger that no message has.", result.missing),
            *(
                Gauge(
                    "duplicate_messages",
                    "Copies of messages that are too many.",
                    result.extra.get(cause.value, 0),
                    {"cause": cause.value},
                )
                for cause in Cause
            ),
        ),
    )


def _facts(result: Duplicates, extra: int, wrong: int) -> dict[str, Json]:
    return {
        "messages": result.messages,
        "duplicated": sum(result.duplicated.values()),
        "extra_copies": extra,
        "extra_copies_not_allowed": wrong,
        "extra_copies_by_cause": dict(result.extra),
        "ledger_keys": result.ledger_keys,
        "missing": result.missing if result.ledger_keys is not None else None,
    }


def _findings(result: Duplicates) -> Iterator[Finding]:
    for cause, count in sorted(result.extra.items(), key=lambda each: -each[1]):
        yield Finding(
            f"{_copies(count)} {Cause(cause).text} ({cause})",
            {"kind": "cause", "cause": cause, "copies": count},
        )
    for key in result.missing_shown:
        yield Finding(f"key {key} of the ledger is missing", {"kind": "missing", "key": key})
    for row in result.shown:
        places = ", ".join(
            f"{place['brokerName'] or 'store'} queue {place['queueId']} offset"
            f" {place['queueOffset']:,}"
            for place in row["places"]
        )
        yield Finding(
            f"{row['topic']}: message {row['id']} is there {row['copies']} times"
            f" ({', '.join(each['cause'] for each in row['extra'])}): {places}",
            {
                "kind": "duplicate",
                "topic": row["topic"],
                "id": row["id"],
                "copies": row["copies"],
                "cause": row["cause"],
            },
        )


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count:,} copies"


def target(args: Namespace) -> str:
    """Return what is checked."""
    where = args.archive or args.store or cluster_target(args)
    return f"{','.join(args.topics)} of {where}" if args.topics else str(where)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--topic",
        dest="topics",
        type=names,
        metavar="T[,T]",
        help="the topics to check (default: all of an archive or store)",
    )
    parser.add_argument(
        "--archive", type=Path, metavar="DIR", help="read an archive instead of a cluster"
    )
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help="read the log of a store instead of a cluster"
    )
    parser.add_argument(
        "--skip-corrupt",
        action="store_true",
        help="skip damage to the store; messages in it count as not there",
    )
    parser.add_argument(
        "--since",
        type=moment_ms,
        metavar="TIME",
        help="only what was stored since: ISO 8601, or milliseconds since 1970",
    )
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE|DIR",
        help="keys that the producer says it has sent: Parquet, CSV with a header, or JSON lines;"
        " each must be the id or one of the keys of a message",
    )
    parser.add_argument(
        "--ledger-column",
        metavar="C",
        help="the column that has them (default: the only one, or key, id, msgId)",
    )
    parser.add_argument(
        "--allow",
        type=_causes,
        default=frozenset(),
        metavar="CAUSE[,CAUSE]",
        help=f"causes that do not make it fail, of {', '.join(cause.value for cause in Cause)}",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write all of them (Parquet) and duplicates.json"
    )


def _causes(text: str) -> frozenset[Cause]:
    known = {cause.value: cause for cause in Cause}
    found = set()
    for name in names(text):
        if name not in known:
            near = nearest_word(name, known)
            advice = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
            raise argparse.ArgumentTypeError(f"{name!r} is not a cause; {advice}")
        found.add(known[name])
    return frozenset(found)


PIPELINE: Final = Pipeline(
    name="duplicates",
    help="find messages that are there more than once, or not at all, and tell why",
    description=(
        "Finds messages that are in a topic more than once, by message id, and tells the likely\n"
        "cause. With a ledger of what the producer sent, also finds what is missing. Exits with 1\n"
        "if there is either."
    ),
    add_arguments=add_arguments,
    run=run,
    target=target,
    needs_cluster=True,
    examples=(
        "rmq pipeline duplicates -n 127.0.0.1:9876 --topic Orders",
        "rmq pipeline duplicates --archive archive --ledger sent.csv --ledger-column order_id",
        "rmq pipeline duplicates --store /data/rmq/store --allow redrive,replay --out duplicates",
    ),
)

if __name__ == "__main__":
    sys.exit(main(PIPELINE))
