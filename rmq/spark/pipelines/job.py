"""What a pipeline is, and how one is run: from a command line to a verdict and an exit code.

A pipeline module defines one constant, `PIPELINE`, and is listed in `catalogue`. It knows its own
arguments and its work; what all pipelines share is here: the session of Spark, the options that all
share, progress, errors, printing, metrics, exit codes.

Pipeline modules are imported by `rmq --help`, so at the top they import neither pyspark nor pyarrow
nor numpy: the part that needs them is a module of its own that `run` imports. Each ends with

    if __name__ == "__main__":
        sys.exit(main(PIPELINE))

which makes it a program for `spark-submit`.

Exit codes: 0 it holds, 1 it does not hold, 2 could not tell (anything that went wrong), 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from rmq.errors import ConfigError
from rmq.spark.pipelines.cluster import add_cluster_arguments
from rmq.spark.pipelines.failures import describe
from rmq.spark.pipelines.metrics import write_metrics
from rmq.spark.pipelines.printing import Run, verdict_json, verdict_text
from rmq.spark.pipelines.progress import Progress, task_counter
from rmq.spark.pipelines.verdict import Outcome, Verdict
from rmq.spark.session import LOCAL, open_session

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TextIO

    from pyspark.sql import SparkSession

    from rmq.spark.pipelines.verdict import Json

INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
_PACKAGES: Final = ("pyspark", "pyarrow", "numpy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """One pipeline: `rmq pipeline NAME ...`, and a program for `spark-submit`."""

    name: str

    help: str
    """One line for the list of pipelines: lower case, no full stop."""

    add_arguments: Callable[[ArgumentParser], None]
    """Declares the pipeline's own options; those that all share are there already."""

    run: Callable[[Job, Namespace], Verdict]
    """Does the work. An `RmqError`, or whatever else goes wrong, becomes "could not tell"."""

    target: Callable[[Namespace], str]
    """Names what is checked, for printed results and metrics. It must not fail."""

    needs_cluster: bool = False
    """Whether it has the options of `cluster`: nameservers, account, encryption."""

    description: str | None = None
    """A paragraph for `--help`; `help` is used when there is none."""

    examples: tuple[str, ...] = ()
    """Whole command lines for `--help`."""


@final
class Job:
    """What a run of a pipeline is given: Spark when it is asked for, the time, progress."""

    def __init__(
        self,
        name: str,
        *,
        master: str = LOCAL,
        conf: Mapping[str, str] | None = None,
        started_s: float | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.name = name
        self.started_s = time.time() if started_s is None else started_s
        """When the run began, in seconds since 1970: "now" for all that it decides."""
        self._master = master
        self._conf = dict(conf or {})
        self._progress = Progress(sys.stderr if stderr is None else stderr)
        self._spark: SparkSession | None = None
        self._is_ours = False

    @property
    def spark(self) -> SparkSession:
        """The session. The first use starts Spark, which takes seconds: check arguments first."""
        if self._spark is None:
            with self._progress.step("starting Spark", str):
                self._is_ours = not _has_session()
                self._spark = open_session(
                    f"rmq pipeline {self.name}", self._master, self._conf, quiet=True
                )
        return self._spark

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show on a terminal what is being done, and how many of its tasks are."""
        with self._progress.step(title, task_counter(self._spark)):
            yield

    def close(self) -> None:
        """Stop Spark, unless this process had it running before."""
        if self._spark is not None and self._is_ours:
            self._spark.stop()
        self._spark = None


def add_common_arguments(parser: ArgumentParser, pipeline: Pipeline) -> None:
    """Declare the pipeline's own options and those that all pipelines share."""
    pipeline.add_arguments(parser)
    if pipeline.needs_cluster:
        add_cluster_arguments(parser)
    group = parser.add_argument_group("Spark and results")
    group.add_argument(
        "--spark-master",
        default=LOCAL,
        metavar="URL",
        help="where Spark runs: local[*], local[4], spark://..., yarn, k8s://..."
        " (default: local[*]; under spark-submit what that was told)",
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_key_and_value,
        metavar="K=V",
        help="a setting of Spark; may be given several times",
    )
    group.add_argument(
        "--json", action="store_true", help="print the verdict as one JSON object and nothing else"
    )
    group.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE",
        help="write verdict and figures as Prometheus text, for node-exporter's textfile collector",
    )


def run_pipeline(
    pipeline: Pipeline,
    args: Namespace,
    *,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    clock: Callable[[], float] = time.time,
) -> int:
    """Run a pipeline with parsed arguments, print its verdict and return the exit code.

    A verdict that could not be printed, or not be written to the metrics file, is "could not tell".
    Only `BrokenPipeError` of standard output comes out of it.
    """
    out = sys.stdout if stdout is None else stdout
    err = sys.stderr if stderr is None else stderr
    is_debug = bool(getattr(args, "debug", False))
    started_s = clock()
    try:
        verdict = _verdict_of(pipeline, args, started_s, err, is_debug=is_debug)
    except KeyboardInterrupt:
        _tell(err, f"{pipeline.name}: interrupted")
        return INTERRUPTED
    run = Run(pipeline.name, pipeline.target(args), started_s, clock())
    if args.metrics_file is not None:
        try:
            write_metrics(args.metrics_file, run, verdict)
        except Exception as error:  # noqa: BLE001 - whatever it is, the metrics were not written
            verdict = _without_metrics(verdict, error)
    text = verdict_json(run, verdict) if args.json else verdict_text(run, verdict)
    try:
        _print(out, text)
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        _tell(err, f"{pipeline.name}: error: cannot write to standard output: {reason}")
        return Outcome.UNKNOWN.exit_code
    return verdict.exit_code


def _verdict_of(
    pipeline: Pipeline, args: Namespace, started_s: float, stderr: TextIO, *, is_debug: bool
) -> Verdict:
    """Run it; what goes wrong is a verdict too."""
    job = Job(
        pipeline.name,
        master=args.spark_master,
        conf=dict(args.conf),
        started_s=started_s,
        stderr=stderr,
    )
    try:
        check_installed()
        try:
            return pipeline.run(job, args)
        finally:
            job.close()
    except Exception as error:  # noqa: BLE001 - nothing above us could report it better
        if is_debug:
            stderr.write("".join(traceback.format_exception(error)))
        return failed_verdict(error)


def failed_verdict(error: BaseException) -> Verdict:
    """Return the verdict of a run that an error ended."""
    failure = describe(error)
    facts: dict[str, Json] = {"error": type(error).__name__}
    if failure.hint is None:
        return Verdict(outcome=Outcome.UNKNOWN, sentence=failure.text, facts=facts)
    facts["hint"] = failure.hint
    return Verdict(
        outcome=Outcome.UNKNOWN, sentence=f"{failure.text} (hint: {failure.hint})", facts=facts
    )


def check_installed() -> None:
    """Raise `ConfigError` if packages are missing that Spark is run with."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            "rmq[spark]",
            f"pipelines run on Spark, and {_listed(missing)} not installed",
            hint="pip install 'rmq[spark]'",
        )


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"


def _without_metrics(verdict: Verdict, error: Exception) -> Verdict:
    """Return the verdict of a run whose metrics could not be written."""
    facts: dict[str, Json] = {
        **verdict.facts,
        "error": type(error).__name__,
        "found": verdict.outcome.value,
    }
    sentence = f"{verdict.sentence}; but {describe(error).text}"
    return replace(verdict, outcome=Outcome.UNKNOWN, sentence=sentence, facts=facts)


def _print(out: TextIO | None, text: str) -> None:
    """Print the verdict; raise `OSError` if it did not get out."""
    if out is None:  # closed by the parent process: there is no reader
        return
    try:
        out.write(text)
        out.flush()
    except OSError:
        # What is still buffered goes nowhere, so that the flush at shutdown succeeds.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        raise


def _tell(err: TextIO | None, text: str) -> None:
    """Print what is wrong, if standard error is open."""
    if err is not None:
        with suppress(OSError, ValueError):
            err.write(f"{text}\n")
            err.flush()


def build_parser(pipeline: Pipeline, prog: str | None = None) -> ArgumentParser:
    """Return the parser of a pipeline that is run as a program of its own."""
    parser = argparse.ArgumentParser(
        prog=prog or pipeline.name,
        description=pipeline.description or pipeline.help,
        epilog="\n  ".join(["examples:", *pipeline.examples]) if pipeline.examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_common_arguments(parser, pipeline)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(pipeline: Pipeline, argv: Sequence[str] | None = None) -> int:
    """Run a pipeline as a program: `spark-submit ... archive.py --topic Orders ...`."""
    args = build_parser(pipeline).parse_args(argv)
    try:
        return run_pipeline(pipeline, args)
    except BrokenPipeError:
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - Python would end with 1, "does not hold"
        if args.debug:
            _tell(sys.stderr, "".join(traceback.format_exception(error)))
        _tell(sys.stderr, f"{pipeline.name}: error: {describe(error).text}")
        return Outcome.UNKNOWN.exit_code


def _key_and_value(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def _has_session() -> bool:
    """Tell whether this process has a session already, without importing Spark for it."""
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None
