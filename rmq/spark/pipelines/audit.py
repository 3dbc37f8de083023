"""`rmq pipeline audit`: is a slave's log the master's, record by record?

The logs are compared byte by byte at equal offsets, which finds everything that can differ, and the
records that differing bytes belong to are named by physical offset. Equal records, however many
there are, are never decoded. Runs on stores of running brokers, and on copies.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.spark.pipelines.job import Pipeline, main

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--master-store", type=Path, required=True, metavar="DIR", help="the master's store"
    )
    parser.add_argument(
        "--slave-store", type=Path, required=True, metavar="DIR", help="the slave's, or a copy"
    )
    parser.add_argument(
        "--master-log", type=Path, metavar="DIR", help="its CommitLog (default: STORE/commitlog)"
    )
    parser.add_argument("--slave-log", type=Path, metavar="DIR", help="likewise for the slave")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write the differences, a page and JSON there"
    )


def target(args: Namespace) -> str:
    return f"{args.slave_store} against {args.master_store}"


def run(job: Job, args: Namespace) -> Verdict:
    from rmq.spark.jobs.audit.run import run as run_audit

    return run_audit(job, args)


PIPELINE: Final = Pipeline(
    name="audit",
    help="compare a slave's log with the master's and name every record that differs",
    description=(
        "Compare the CommitLogs of a master and a slave byte by byte and name every record that\n"
        "differs or is missing, by physical offset. What the slave has not received yet is lag,\n"
        "and what only one of them still has is retention: neither is a difference."
    ),
    add_arguments=add_arguments,
    run=run,
    target=target,
    examples=(
        "rmq pipeline audit --master-store /data/master --slave-store /data/slave --out audit",
        "rmq pipeline audit --master-store M --slave-store S --json",
    ),
)

if __name__ == "__main__":
    sys.exit(main(PIPELINE))
