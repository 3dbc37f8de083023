"""From a command line to a printed verdict, a metrics file and an exit code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rmq.errors import ConfigError
from rmq.spark.pipelines.catalogue import PIPELINES
from rmq.spark.pipelines.cluster import cluster_config, cluster_options
from rmq.spark.pipelines.job import Job, Pipeline, build_parser, main, run_pipeline
from rmq.spark.pipelines.verdict import Finding, Gauge, Outcome, Verdict, bounded

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--store", default="here")


def _pipeline(run: Callable[[Job, Namespace], Verdict]) -> Pipeline:
    return Pipeline(
        name="probe",
        help="look at something",
        add_arguments=_add_arguments,
        run=run,
        target=lambda args: f"store {args.store}",
        needs_cluster=True,
        examples=("probe --store DIR",),
    )


def _returning(verdict: Verdict) -> Pipeline:
    return _pipeline(lambda _job, _args: verdict)


def _raising(error: BaseException) -> Pipeline:
    def run(_job: Job, _args: Namespace) -> Verdict:
        raise error

    return _pipeline(run)


def _run(pipeline: Pipeline, *argv: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a run that took 2.5 s."""
    out, err = io.StringIO(), io.StringIO()
    times = iter((1_700_000_000.0, 1_700_000_002.5))
    args = build_parser(pipeline).parse_args(argv)
    code = run_pipeline(pipeline, args, stdout=out, stderr=err, clock=lambda: next(times))
    return code, out.getvalue(), err.getvalue()


VERDICT = Verdict(
    outcome=Outcome.FAILS,
    sentence="1 of 2 queues has a gap",
    facts={"queues": 2, "ratio": float("nan"), "per_queue": [{"mean": float("inf")}]},
    findings=(Finding("queue 1 lacks offset 7\x1b[2J", {"queue_id": 1, "offset": 7}),),
    findings_left_out=3,
    outputs={"table": "out/gaps", "page": "out/gaps.html"},
    records=41,
    size_bytes=4_100,
    gauges=(
        Gauge("lag_messages", "Messages not read.", 5, {"group": "G"}),
        Gauge("lag_messages", "Messages not read.", 6, {"group": 'H"\n'}),
    ),
)


def test_text_for_people() -> None:
    code, out, err = _run(_returning(VERDICT))
    assert code == 1
    assert out.splitlines() == [
        "probe: does not hold: 1 of 2 queues has a gap",
        "  - queue 1 lacks offset 7\\x1b[2J",
        "  … and 3 more",
        "  table  out/gaps",
        "  page   out/gaps.html",
        "  took 2.5 s",
    ]
    assert err == ""


def test_json_is_one_object_and_nothing_else() -> None:
    code, out, _ = _run(_returning(VERDICT), "--json")
    assert code == 1
    assert out.count("\n") == 1
    assert json.loads(out) == {
        "pipeline": "probe",
        "target": "store here",
        "outcome": "fails",
        "exit_code": 1,
        "verdict": "1 of 2 queues has a gap",
        "started": "2023-11-14T22:13:20Z",
        "ended": "2023-11-14T22:13:22Z",
        "duration_s": 2.5,
        "records": 41,
        "bytes": 4100,
        "facts": {"queues": 2, "ratio": None, "per_queue": [{"mean": None}]},
        "findings": [{"text": "queue 1 lacks offset 7\x1b[2J", "queue_id": 1, "offset": 7}],
        "findings_left_out": 3,
        "outputs": {"table": "out/gaps", "page": "out/gaps.html"},
    }


def test_metrics_file(tmp_path: Path) -> None:
    path = tmp_path / "probe.prom"
    path.write_text("what an earlier run left")
    _run(_returning(VERDICT), "--store", 'a"b', "--metrics-file", str(path))
    lines = path.read_text().splitlines()
    common = 'pipeline="probe",target="store a\\"b"'
    assert [line for line in lines if not line.startswith("#")] == [
        f"rmq_pipeline_outcome{{{common}}} 1.0",
        f"rmq_pipeline_start_time_seconds{{{common}}} 1.7e+09",
        f"rmq_pipeline_end_time_seconds{{{common}}} 1.7000000025e+09",
        f"rmq_pipeline_duration_seconds{{{common}}} 2.5",
        f"rmq_pipeline_records{{{common}}} 41.0",
        f"rmq_pipeline_bytes{{{common}}} 4100.0",
        f'rmq_pipeline_lag_messages{{group="G",{common}}} 5.0',
        f'rmq_pipeline_lag_messages{{group="H\\"\\n",{common}}} 6.0',
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["probe.prom"]


HOLDS = Verdict(outcome=Outcome.HOLDS, sentence="fine", outputs={"page": "out/x.html"})


def test_a_metrics_file_that_cannot_be_written_is_part_of_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "probe.prom"
    code, out, _ = _run(_returning(HOLDS), "--metrics-file", str(path))
    assert code == 2
    assert out.splitlines() == [
        "probe: could not tell: fine; but --metrics-file: cannot write"
        f" {path}: No such file or directory",
        "  page  out/x.html",
    ]
    code, out, _ = _run(_returning(HOLDS), "--json", "--metrics-file", str(path))
    told = json.loads(out)
    assert (code, told["exit_code"], told["outcome"]) == (2, 2, "unknown")
    assert told["facts"] == {"error": "ConfigError", "found": "holds"}


PROGRAM = """
import sys
from rmq.spark.pipelines.job import Pipeline, main
from rmq.spark.pipelines.verdict import Outcome, Verdict

sys.exit(main(Pipeline(
    name="probe", help="", add_arguments=lambda parser: None, target=lambda args: "x",
    run=lambda job, args: Verdict(outcome=Outcome.HOLDS, sentence="fine"),
)))
"""


def run_program(program: str, redirect: str, *arguments: str) -> tuple[int, str]:
    """Return exit code and standard error of a program whose output goes somewhere else."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


FULL = "probe: error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("redirect", "code", "said"),
    [
        (">/dev/full", 2, FULL),
        (">/dev/full 2>/dev/full", 2, ""),
        # Closed by whoever started it: nobody wants to read it.
        (">&-", 0, ""),
    ],
)
def test_a_verdict_that_cannot_be_printed_is_not_a_verdict(
    redirect: str, code: int, said: str
) -> None:
    assert run_program(PROGRAM, redirect) == (code, said)
    assert run_program(PROGRAM, redirect, "--json") == (code, said)


def test_a_reader_that_went_away_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read().decode()
    process.stderr.close()
    assert (process.wait(60), said) == (141, "")


def test_main_never_lets_an_error_out(capsys: pytest.CaptureFixture[str]) -> None:
    def no_target(_args: Namespace) -> str:
        raise ValueError("no name")

    assert main(replace(_returning(VERDICT), target=no_target), []) == 2
    assert "probe: error: unexpected ValueError: no name" in capsys.readouterr().err


def test_without_the_packages_of_spark_the_verdict_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, _ = _run(_raising(AssertionError("it ran")), "--json")
    told = json.loads(out)
    assert (code, told["exit_code"]) == (2, 2)
    assert told["verdict"] == (
        "rmq[spark]: pipelines run on Spark, and pyspark, pyarrow and numpy are not installed"
        " (hint: pip install 'rmq[spark]')"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ConfigError("store", "is empty", hint="look elsewhere"),
            "is empty (hint: look elsewhere)",
        ),
        (
            OSError(28, "No space left on device", "/out/a"),
            "/out/a: No space left on device (hint:",
        ),
        (ValueError("oops"), "unexpected ValueError: oops (hint: this is a bug in rmq"),
    ],
)
def test_what_goes_wrong_could_not_tell(error: Exception, text: str, tmp_path: Path) -> None:
    metrics = tmp_path / "probe.prom"
    code, out, err = _run(_raising(error), "--json", "--metrics-file", str(metrics))
    assert code == 2
    told = json.loads(out)
    assert told["outcome"] == "unknown"
    assert text in told["verdict"]
    assert told["facts"]["error"] == type(error).__name__
    assert err == ""
    assert "rmq_pipeline_outcome" in metrics.read_text()
    code, out, err = _run(_raising(error), "--debug")
    assert code == 2
    assert out.startswith("probe: could not tell: ")
    assert "Traceback" in err


def test_interrupted() -> None:
    code, out, err = _run(_raising(KeyboardInterrupt()))
    assert (code, out, err) == (130, "", "probe: interrupted\n")


def test_a_wrong_command_line_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--conf", "novalue"], ["--unknown"]):
        with pytest.raises(SystemExit) as ended:
            main(_returning(VERDICT), argv)
        assert ended.value.code == 2
    assert "'novalue' is not KEY=VALUE" in capsys.readouterr().err


def test_main_prints_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_returning(VERDICT), ["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["pipeline"] == "probe"


def test_options_of_the_cluster() -> None:
    parser = build_parser(_returning(VERDICT))
    args = parser.parse_args(
        [
            *("-n", "a:1;", "--access-key", "me", "--secret-key-file", "/s"),
            *("--tls", "--tls-trust", "t", "--tls-check-host"),
        ]
    )
    assert cluster_options(args, {}) == {
        "nameservers": "a:1",
        "accessKey": "me",
        "secretKeyFile": "/s",
        "tls": "true",
        "tlsTrustFile": "t",
        "tlsCheckHost": "true",
    }
    args = parser.parse_args(["-n", "a:1", "--credentials", "/c.yml"])
    assert cluster_options(args, {}) == {"nameservers": "a:1", "credentialsFile": "/c.yml"}
    args = parser.parse_args([])
    assert cluster_options(args, {"NAMESRV_ADDR": "b:2"}) == {"nameservers": "b:2"}
    config = cluster_config(args, {"NAMESRV_ADDR": "b:2"})
    assert config.credentials is None
    with pytest.raises(ConfigError, match="which cluster"):
        cluster_options(args, {})


def test_findings_are_bounded() -> None:
    def endless() -> Iterator[Finding]:
        yield from (Finding(str(number)) for number in range(250))

    listed, left_out = bounded(endless(), limit=100)
    assert (len(listed), left_out) == (100, 150)
    assert bounded(listed, total=1_000) == (listed, 900)
    assert bounded(listed[:3]) == (listed[:3], 0)


def test_names_are_unique_and_help_is_complete() -> None:
    assert len({pipeline.name for pipeline in PIPELINES}) == len(PIPELINES)
    for pipeline in PIPELINES:
        assert pipeline.name in build_parser(pipeline).format_help()
        assert pipeline.examples, pipeline.name


def test_the_catalogue_needs_nothing_of_spark() -> None:
    code = (
        "import sys, rmq.spark.pipelines.catalogue;"
        "print(*sorted({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_job_leaves_a_session_of_others_running(spark: SparkSession) -> None:
    def run(job: Job, _args: Namespace) -> Verdict:
        with job.step("counting"):
            records = job.spark.range(10).count()
        return Verdict(outcome=Outcome.HOLDS, sentence="counted", records=records)

    code, out, _ = _run(_pipeline(run), "--json", "--spark-master", "local[2]")
    assert (code, json.loads(out)["records"]) == (0, 10)
    assert spark.range(3).count() == 3


def test_the_error_of_a_task_is_told_as_the_task_told_it(spark: SparkSession) -> None:
    def fail(_number: int) -> int:
        raise ConfigError("topics", "topic Orders does not exist", hint="create it")

    def run(job: Job, _args: Namespace) -> Verdict:
        job.spark.sparkContext.parallelize([1, 2], 1).map(fail).count()
        raise AssertionError("it did not fail")

    def read_nothing(job: Job, _args: Namespace) -> Verdict:
        job.spark.read.parquet("/nowhere/at all").count()
        raise AssertionError("it did not fail")

    code, out, _ = _run(_pipeline(run), "--json")
    assert code == 2
    assert json.loads(out)["verdict"] == "topics: topic Orders does not exist (create it)"
    code, out, _ = _run(_pipeline(read_nothing), "--json")
    assert code == 2
    assert json.loads(out)["verdict"].startswith("Path does not exist: file:/nowhere/at all")
