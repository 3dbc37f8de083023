"""`rmq pipeline bundle FILE`: rmq as one file for the workers of a Spark cluster.

`spark-submit --py-files FILE` sends it to every worker. Packages with compiled parts cannot travel
that way: numpy, pyarrow and msgspec have to be installed there, or be sent as an archive of an
environment (docs/spark.md).
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rmq
from rmq.cli.exit_codes import ExitCode
from rmq.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

HELP: Final = "write rmq into one file, for the workers of a Spark cluster"
DESCRIPTION: Final = (
    "Writes the packages rmq, pyspark_rmq and pyspark_rmq_store into a zip file for"
    " spark-submit --py-files."
)
_PACKAGES: Final = ("rmq", "pyspark_rmq", "pyspark_rmq_store")
_SUFFIXES: Final = {".py", ".properties", ".typed"}
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""Equal contents make equal files."""


def run(args: Namespace) -> int:
    path: Path = args.file
    try:
        count = write_bundle(path)
    except OSError as exc:
        raise ConfigError("FILE", f"{path}: {exc.strerror}") from exc
    print(f"{path}: {count} modules of rmq {rmq.__version__}")
    return ExitCode.OK


def write_bundle(path: Path) -> int:
    """Write the file; return how many modules are in it. A half-written file is never left."""
    root = Path(rmq.__file__).parent.parent
    fresh = path.with_name(f"{path.name}.part")
    count = 0
    try:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as bundle:
            for package in _PACKAGES:
                for module in sorted((root / package).rglob("*")):
                    if module.suffix not in _SUFFIXES or not module.is_file():
                        continue
                    info = zipfile.ZipInfo(str(module.relative_to(root)), _EPOCH)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    bundle.writestr(info, module.read_bytes())
                    count += 1
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return count


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the zip file to write")
