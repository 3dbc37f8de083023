"""`rmq pipeline NAME ...`: the jobs of `rmq.spark`, and a demo that shows them at work.

Help and wrong arguments need no Spark; what runs one needs the extra `rmq[spark]`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from rmq.cli.common.command import Command, add_global_options_again
from rmq.cli.pipeline import bundle as pipeline_bundle
from rmq.cli.pipeline import demo as pipeline_demo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.spark.pipelines.job import Pipeline


def run(args: argparse.Namespace) -> int:
    action: Callable[[argparse.Namespace], int] = args.action
    return action(args)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rmq.spark.pipelines.catalogue import PIPELINES

    actions = parser.add_subparsers(title="pipelines", metavar="NAME", required=True)
    for pipeline in PIPELINES:
        _add_pipeline(actions, pipeline)
    demo = _add(
        actions,
        "demo",
        pipeline_demo.HELP,
        pipeline_demo.DESCRIPTION,
        ("rmq pipeline demo", "rmq pipeline demo --out DIR"),
    )
    pipeline_demo.add_arguments(demo)
    demo.set_defaults(action=_run_demo)
    bundle = _add(
        actions,
        "bundle",
        pipeline_bundle.HELP,
        pipeline_bundle.DESCRIPTION,
        ("rmq pipeline bundle rmq.zip",),
    )
    pipeline_bundle.add_arguments(bundle)
    bundle.set_defaults(action=pipeline_bundle.run)


def _add_pipeline(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], pipeline: Pipeline
) -> None:
    from rmq.spark.pipelines.job import add_common_arguments

    parser = _add(actions, pipeline.name, pipeline.help, pipeline.description, pipeline.examples)
    add_common_arguments(parser, pipeline)

    def action(args: argparse.Namespace) -> int:
        from rmq.spark.pipelines.job import run_pipeline

        return run_pipeline(pipeline, args)

    parser.set_defaults(action=action)


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help_line: str,
    description: str | None,
    examples: Sequence[str],
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=help_line,
        description=description or help_line,
        epilog="\n  ".join(["examples:", *examples]) if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_global_options_again(parser)
    return parser


def _run_demo(args: argparse.Namespace) -> int:
    from rmq.spark.pipelines.job import check_installed

    check_installed()
    return pipeline_demo.run(args)


COMMAND: Final = Command(
    name="pipeline",
    help="archive, audit, report, triage and replay messages with Spark",
    description=(
        "Jobs over topics and stores, on embedded Spark or on a cluster. Each prints a verdict and"
        " exits with 0 (it holds), 1 (it does not hold) or 2 (could not tell)."
    ),
    add_arguments=add_arguments,
    run=run,
    examples=(
        "rmq pipeline demo",
        "rmq pipeline report -n 127.0.0.1:9876 --out report",
        "rmq pipeline archive -n 127.0.0.1:9876 --topic Orders --out archive",
        "rmq pipeline audit --master-store DIR --slave-store DIR",
    ),
)
