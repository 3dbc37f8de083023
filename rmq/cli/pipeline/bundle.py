"""`rmq pipeline bundle FILE`: rmq as one file for the workers of a Spark cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import rmq
from rmq.cli.common.exit_codes import ExitCode
from rmq.errors import ConfigError
from rmq.spark.bundle import write_bundle

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

HELP: Final = "write rmq into one file, for the workers of a Spark cluster"
DESCRIPTION: Final = (
    "Writes the packages rmq, pyspark_rmq and pyspark_rmq_store into a zip file for"
    " spark-submit --py-files."
)


def run(args: Namespace) -> int:
    path: Path = args.file
    try:
        count = write_bundle(path)
    except OSError as exc:
        raise ConfigError("FILE", f"{path}: {exc.strerror}") from exc
    print(f"{path}: {count} modules of rmq {rmq.__version__}")
    return ExitCode.OK


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the zip file to write")
