"""`rmq pipeline report`: traffic by topic and producer, lag of groups, and skew of queues.

Traffic per topic, queue and minute with the delay from producer to store, the lag of every group
with its trend over the last runs, and the skew of queues; as tables, JSON and a page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.model.moments import parse_moment_ms
from rmq.spark.pipelines.arguments import amount, natural
from rmq.spark.pipelines.cluster import store_or_cluster
from rmq.spark.pipelines.job import Pipeline, main

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help="read this store instead of a cluster"
    )
    parser.add_argument(
        "--broker-name", metavar="NAME", help="the broker of the store, for the column broker_name"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where tables and page go"
    )
    parser.add_argument(
        "--topic",
        type=names,
        action="extend",
        default=[],
        metavar="T[,T]",
        help="only these topics (default: all that are not of the system)",
    )
    parser.add_argument(
        "--from",
        dest="from_ms",
        type=moment,
        metavar="TIME",
        help="only messages stored at this time or later: ISO 8601, or ms since 1970"
        " (default: a day ago in a cluster, everything in a store)",
    )
    parser.add_argument(
        "--to", dest="to_ms", type=moment, metavar="TIME", help="only messages stored before it"
    )
    parser.add_argument(
        "--all", action="store_true", help="everything that the cluster holds, not only a day"
    )
    parser.add_argument("--skip-corrupt", action="store_true", help="skip damage to the store")
    limits = parser.add_argument_group("limits; the report does not hold if one is exceeded")
    limits.add_argument("--max-lag", type=natural, metavar="N", help="messages a group is behind")
    limits.add_argument(
        "--max-lag-seconds", type=amount, metavar="S", help="age of a group's first unread message"
    )
    limits.add_argument(
        "--max-skew",
        type=amount,
        metavar="X",
        help="messages of a topic's largest queue, in times of the mean",
    )


def names(text: str) -> list[str]:
    """Read names joined by commas."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return found


def moment(text: str) -> int:
    """Read a moment."""
    try:
        return parse_moment_ms(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


def run(job: Job, args: Namespace) -> Verdict:
    if args.store is not None and args.nameservers is not None:
        raise ConfigError("--store", "and --nameservers both say what to read: give one of them")
    if args.from_ms is not None and args.to_ms is not None and args.from_ms >= args.to_ms:
        raise ConfigError("--from", "is not before --to")
    from rmq.spark.jobs.report.run import run as run_report

    return run_report(job, args, store_or_cluster(args))


PIPELINE: Final = Pipeline(
    name="report",
    help="report messages, bytes, delays, lag of groups and skew of queues",
    description=(
        "Count messages and bytes per topic, queue and minute, with the delay from producer to\n"
        "store; tell how far every group is behind, in messages and seconds; show how evenly\n"
        "queues are used. Run it again with the same --out, and the lag of groups has a trend."
    ),
    add_arguments=add_arguments,
    run=run,
    target=store_or_cluster,
    needs_cluster=True,
    examples=(
        "rmq pipeline report -n 127.0.0.1:9876 --out report",
        "rmq pipeline report -n 127.0.0.1:9876 --out report --max-lag 10000 --max-lag-seconds 60",
        "rmq pipeline report --store /data/rmq-slave --out report --from 2024-05-31T08:00",
    ),
)

if __name__ == "__main__":
    sys.exit(main(PIPELINE))
