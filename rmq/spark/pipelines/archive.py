"""`rmq pipeline archive`: topics as Parquet by date, each message once, proven by a manifest.

Run it again, and it adds what is new. A run counts as a whole or not at all, whenever it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.spark.pipelines.arguments import positive
from rmq.spark.pipelines.cluster import cluster_target
from rmq.spark.pipelines.job import Pipeline, main
from rmq.spark.pipelines.report import names

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        type=names,
        action="extend",
        required=True,
        metavar="T[,T]",
        help="topics to archive",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the archive, or where it shall be"
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="keep manifest.json there, so that old runs may be moved away from --out",
    )
    parser.add_argument(
        "--from-store",
        type=Path,
        metavar="DIR",
        help="read the log of this store instead of a cluster; needs --broker-name",
    )
    parser.add_argument("--broker-name", metavar="NAME", help="the broker of the store")
    parser.add_argument(
        "--skip-corrupt",
        action="store_true",
        help="skip damage to the store; messages that cannot be read become gaps",
    )
    parser.add_argument(
        "--accept-gap",
        action="store_true",
        help="messages that are missing are known to be lost: the archive holds without them",
    )
    parser.add_argument(
        "--max-messages", type=positive, metavar="N", help="archive at most N messages in this run"
    )


def target(args: Namespace) -> str:
    where = cluster_target(args) if args.from_store is None else f"store {args.from_store}"
    return f"{','.join(args.topic)} of {where}"


def run(job: Job, args: Namespace) -> Verdict:
    args.topic = sorted(set(args.topic))
    if args.from_store is not None:
        if args.nameservers is not None:
            raise ConfigError(
                "--from-store", "and --nameservers both say what to read: give one of them"
            )
        if not args.broker_name:
            raise ConfigError(
                "--broker-name", "is needed: a store does not know the name of its broker"
            )
    elif args.skip_corrupt:
        raise ConfigError("--skip-corrupt", "is about a store: give --from-store with it")
    from rmq.spark.jobs.archive.run import run as run_archive

    return run_archive(job, args)


PIPELINE: Final = Pipeline(
    name="archive",
    help="write topics to Parquet, each message once, with a manifest that proves it",
    description=(
        "Write the messages of topics to Parquet by date and topic. The manifest has first and\n"
        "last offset, count and checksums of every queue, proven from the files. Run it again,\n"
        "and it adds only what is new; a run that is killed leaves nothing that counts."
    ),
    add_arguments=add_arguments,
    run=run,
    target=target,
    needs_cluster=True,
    examples=(
        "rmq pipeline archive -n 127.0.0.1:9876 --topic Orders,Payments --out archive",
        "rmq pipeline archive --from-store /data/rmq-slave --broker-name broker-a --topic Orders"
        " --out archive",
    ),
)

if __name__ == "__main__":
    sys.exit(main(PIPELINE))
