"""`rmq pipeline demo`: a pair of brokers, sample traffic, and the pipelines at work on it.

The brokers are processes of their own, as in `rmq dev`; Spark runs in this one. Everything that is
written stays in one folder, which the next run replaces.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.dev.demo_traffic import TOPICS, TRAFFIC_S, make_traffic
from rmq.cli.dev.run import run_pair, run_with_children
from rmq.errors import ConfigError, RmqError
from rmq.model.offsets import PhysicalOffset
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rmq.cli.dev.run import RunningPair

HELP: Final = "start a pair, fill it with sample traffic and run pipelines on it"
DESCRIPTION: Final = (
    "Starts a nameserver, a master and its slave, lets a small shop send and consume for a while,"
    " flips one bit in a copy of the slave's store, and runs report, archive, audit and dlq on"
    " embedded Spark. Takes about a minute and prints where pages and tables are."
)
DEFAULT_OUT: Final = "rmq-demo"
_MARK: Final = ".rmq-pipeline-demo"
"""A folder with this file in it was written by an earlier run."""


class Step(NamedTuple):
    """One pipeline of the demo."""

    title: str
    arguments: list[str]
    """Its name, and what follows it."""
    expected: int
    """The exit code that is right here: some are there to find something."""


def run(args: Namespace) -> int:
    out: Path = args.out.absolute()
    _prepare(out)
    # Which consumer takes over which queue does not matter here.
    logging.getLogger("rmq.client").setLevel(logging.WARNING)
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rmq-demo-") as folder:
        # The brokers' data are half a gigabyte, mostly holes, and of no use afterwards.
        data = Path(folder)

        async def demo() -> None:
            async def work(running: RunningPair) -> None:
                nameserver, pair, _ = running
                _say("sample traffic")
                sent = await make_traffic(nameserver, _say, args.seconds)
                _say(f"  {sent:,} messages sent")
                stores = [broker.folder / "store" for broker in pair]
                damaged = data / "damaged-slave"
                offset = await trio.to_thread.run_sync(copy_damaged, stores[1], damaged)
                _say(f"  one bit flipped in a copy of the slave's store, at offset {offset}")
                steps = _steps(nameserver, stores, damaged, out)
                failed.extend(
                    await trio.to_thread.run_sync(
                        _run_steps, steps, args.spark_master, abandon_on_cancel=True
                    )
                )

            if await run_pair("127.0.0.1", 0, 0, data, "sync", work, _say):
                raise KeyboardInterrupt

        code = run_with_children(demo)
    if code:
        return code
    _say(_where(out))
    if failed:
        raise RmqError(f"not as expected: {', '.join(failed)}")
    return ExitCode.OK


def _prepare(out: Path) -> None:
    """Make an empty folder for what is written; what is no demo's is left alone."""
    try:
        if out.is_dir() and any(out.iterdir()):
            if not (out / _MARK).is_file():
                raise ConfigError(
                    "--out",
                    f"{out}: is not empty and was not written by a demo",
                    hint="name another folder, or empty this one",
                )
            shutil.rmtree(out)
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).write_text("Written by `rmq pipeline demo`; the next run replaces all.\n")
    except OSError as exc:
        raise ConfigError("--out", f"{out}: {exc.strerror}") from exc


def copy_damaged(store: Path, target: Path) -> int:
    """Copy a store and flip one bit of a message in the middle; return where its record begins."""
    shutil.copytree(store, target, ignore=shutil.ignore_patterns("lock", "abort"))
    with Reader(target) as reader:
        middle = PhysicalOffset((reader.min_offset + reader.end_offset) // 2)
        offset = reader.log.next_sound(middle, reader.end_offset)
        record = None if offset is None else reader.record_at(offset)
        segment = None if offset is None else reader.log.find(offset)
    if offset is None or record is None or segment is None:
        raise RmqError(f"{target}: no message to damage")
    with segment.path.open("r+b") as file:
        file.seek(offset - segment.first)
        stored = bytearray(file.read(record.size))
        stored[stored.index(record.body) + len(record.body) // 2] ^= 0x04
        file.seek(offset - segment.first)
        file.write(stored)
    return offset


def _steps(nameserver: str, stores: list[Path], damaged: Path, out: Path) -> list[Step]:
    master, slave = (str(store) for store in stores)
    pair = ["--master-store", master, "--slave-store"]
    return [
        Step("traffic and lag", ["report", "-n", nameserver, "--out", f"{out}/report"], 0),
        Step(
            "topics as Parquet, with a manifest",
            ["archive", "-n", nameserver, "--topic", ",".join(TOPICS), "--out", f"{out}/archive"],
            0,
        ),
        Step(
            "the slave's log against the master's",
            ["audit", *pair, slave, "--out", f"{out}/audit"],
            0,
        ),
        Step(
            "the copy with one flipped bit, which must be found",
            ["audit", *pair, str(damaged), "--out", f"{out}/audit-of-damaged-copy"],
            1,
        ),
        Step(
            "dead letters, of which there are some",
            ["dlq", "-n", nameserver, "--out", f"{out}/dlq"],
            1,
        ),
    ]


def _run_steps(steps: list[Step], spark_master: str) -> list[str]:
    """Run pipelines one after the other in one session; return those that ended unexpectedly."""
    from rmq.spark.pipelines.catalogue import PIPELINES
    from rmq.spark.pipelines.job import build_parser, run_pipeline
    from rmq.spark.session import open_session

    known = {pipeline.name: pipeline for pipeline in PIPELINES}
    _say("starting Spark")
    spark = open_session("rmq pipeline demo", spark_master, quiet=True)
    failed = []
    try:
        for step in steps:
            name, *arguments = step.arguments
            _say(f"\n== {name}: {step.title}")
            pipeline = known[name]
            args = build_parser(pipeline).parse_args([*arguments, "--spark-master", spark_master])
            code = run_pipeline(pipeline, args)
            if code != step.expected:
                failed.append(f"{name} exited with {code}, not {step.expected}")
    finally:
        spark.stop()
    return failed


def _where(out: Path) -> str:
    pages = sorted(out.rglob("*.html"))
    lines = ["", "Pages, for a browser:", *(f"  {page.as_uri()}" for page in pages)]
    lines.append("Tables, for Spark or any reader of Parquet:")
    tables = {file.parent for file in out.rglob("*.parquet")}
    roots = {_table_root(table, out) for table in tables}
    lines.extend(f"  {root}" for root in sorted(roots))
    return "\n".join(lines)


def _table_root(folder: Path, out: Path) -> Path:
    """Return the folder of a whole table, of which the given one is a partition."""
    while "=" in folder.name and folder != out:
        folder = folder.parent
    return folder


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(DEFAULT_OUT),
        metavar="DIR",
        help="where pages and tables go (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=TRAFFIC_S,
        metavar="S",
        help="how long there is traffic (default: %(default)g)",
    )
    parser.add_argument(
        "--spark-master", default="local[*]", metavar="URL", help="(default: %(default)s)"
    )


def _say(line: str) -> None:
    with suppress(BrokenPipeError):
        print(line, flush=True)
