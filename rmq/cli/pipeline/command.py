"""The actions of `rmq pipeline`: the pipelines of `rmq.spark`, a demo, and a file for clusters.

Help and wrong arguments need no Spark; what runs one needs the extra `rmq[spark]`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmq.cli.common.command import Command
from rmq.cli.common.from_argparse import params_from
from rmq.cli.pipeline import bundle as pipeline_bundle
from rmq.cli.pipeline import demo as pipeline_demo

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from rmq.spark.pipelines.job import Pipeline


def actions() -> Sequence[Command]:
    """Return all pipelines, the demo and the bundle."""
    from rmq.spark.pipelines.catalogue import PIPELINES

    return (
        *(_action(pipeline) for pipeline in PIPELINES),
        Command(
            name="demo",
            help=pipeline_demo.HELP,
            description=pipeline_demo.DESCRIPTION,
            params=partial(params_from, pipeline_demo.add_arguments),
            run=_run_demo,
            examples=("rmq pipeline demo", "rmq pipeline demo --out DIR"),
        ),
        Command(
            name="bundle",
            help=pipeline_bundle.HELP,
            description=pipeline_bundle.DESCRIPTION,
            params=partial(params_from, pipeline_bundle.add_arguments),
            run=pipeline_bundle.run,
            examples=("rmq pipeline bundle rmq.zip",),
        ),
    )


def _action(pipeline: Pipeline) -> Command:
    def add_arguments(parser: ArgumentParser) -> None:
        from rmq.spark.pipelines.job import add_common_arguments

        add_common_arguments(parser, pipeline)

    def run(args: Namespace) -> int:
        from rmq.spark.pipelines.job import run_pipeline

        return run_pipeline(pipeline, args)

    return Command(
        name=pipeline.name,
        help=pipeline.help,
        description=pipeline.description,
        params=partial(params_from, add_arguments),
        run=run,
        examples=pipeline.examples,
    )


def _run_demo(args: Namespace) -> int:
    from rmq.spark.pipelines.job import check_installed

    check_installed()
    return pipeline_demo.run(args)
