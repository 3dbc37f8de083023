"""`rmq pipeline forecast`: when disks are full, and which group loses messages it has not read.

Growth of topics, the age of what groups have not read against the retention, hot queues and keys;
from what `report` saw in earlier runs, from a store or from a cluster; as JSON and a page.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.spark.pipelines.arguments import amount, size_bytes
from rmq.spark.pipelines.cluster import store_or_cluster
from rmq.spark.pipelines.job import Pipeline, main
from rmq.spark.pipelines.report import names

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict

WITHIN_HOURS: Final = 72.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--history", type=Path, metavar="DIR", help="what rmq pipeline report wrote, run by run"
    )
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help="read this store instead of a cluster"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where page and JSON go"
    )
    parser.add_argument(
        "--within",
        type=amount,
        default=WITHIN_HOURS,
        metavar="HOURS",
        help="how far ahead nothing may go wrong (default: 72)",
    )
    parser.add_argument(
        "--capacity",
        type=size_bytes,
        metavar="BYTES",
        help="size of the disk, of each broker: 500G, 2T"
        " (default: what the store's disk has, or what brokers tell)",
    )
    parser.add_argument(
        "--used",
        type=size_bytes,
        metavar="BYTES",
        help="how much of --capacity is used (default: what the log has)",
    )
    parser.add_argument(
        "--reserved-hours",
        type=amount,
        metavar="H",
        help="fileReservedTime of the brokers (default: what they tell, otherwise 72)",
    )
    parser.add_argument(
        "--window",
        type=amount,
        metavar="HOURS",
        help="measure growth over the last hours only (default: 24 in a cluster, all of a store)",
    )
    parser.add_argument(
        "--ignore-group",
        type=names,
        action="extend",
        default=[],
        metavar="G[,G]",
        help="groups that are not used any more: what they do not read is not lost",
    )
    parser.add_argument("--no-keys", action="store_true", help="do not count keys: half the work")
    parser.add_argument("--skip-corrupt", action="store_true", help="skip damage to the store")


def target(args: Namespace) -> str:
    if args.history is not None:
        return f"history {args.history}"
    return store_or_cluster(args)


def run(job: Job, args: Namespace) -> Verdict:
    sources = {
        "--history": args.history,
        "--store": args.store,
        "--nameservers": args.nameservers,
    }
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(given[0], f"and {given[1]} both say what to read: give one of them")
    if args.used is not None and args.capacity is None and args.history is not None:
        raise ConfigError("--used", "says little without --capacity")
    from rmq.spark.jobs.forecast.run import run as run_forecast

    return run_forecast(job, args, target(args))


PIPELINE: Final = Pipeline(
    name="forecast",
    help="forecast full disks, and groups that lose messages before they read them",
    description=(
        "Tell how fast topics grow, when the disk is full, and which group will lose messages\n"
        "that it has not read because they expire first. It does not hold if one of these happens\n"
        "within --within hours. Where groups are going is known from earlier runs: of the report\n"
        "with --history, otherwise of the forecast itself with the same --out."
    ),
    add_arguments=add_arguments,
    run=run,
    target=target,
    needs_cluster=True,
    examples=(
        "rmq pipeline forecast --history report --capacity 500G --out forecast",
        "rmq pipeline forecast --store /data/rmq-slave --out forecast --within 24",
        "rmq pipeline forecast -n 127.0.0.1:9876 --out forecast --metrics-file forecast.prom",
    ),
)

if __name__ == "__main__":
    sys.exit(main(PIPELINE))
