"""`rmq pipeline` around the pipelines: help without Spark, the bundle, what the demo prepares."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rmq.cli.app import main
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.dev.demo_traffic import BURST_S, CLICKS_PER_S, click_rate
from rmq.cli.pipeline.demo import copy_damaged
from rmq.model.record import NewMessage
from rmq.spark.pipelines.catalogue import PIPELINES
from rmq.spark.pipelines.verdict import Outcome
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.store.reader import Reader

NAMES = ("report", "archive", "audit", "dlq", "replay", "duplicates", "verify", "forecast")


def test_all_pipelines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert {pipeline.name for pipeline in PIPELINES} == set(NAMES)
    assert main(["pipeline", "--help"]) == ExitCode.OK
    listed = capsys.readouterr().out
    for name in (*NAMES, "demo", "bundle"):
        assert f"\n  {name} " in listed


@pytest.mark.parametrize("name", NAMES)
def test_help_names_the_options_that_all_share(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", name, "--help"]) == ExitCode.OK
    shown = capsys.readouterr().out
    for option in ("--spark-master", "--conf", "--json", "--metrics-file", "examples:"):
        assert option in shown


def test_help_needs_neither_spark_nor_arrow() -> None:
    code = (
        "import sys; from rmq.cli.app import main; main(['pipeline', 'audit', '--help']);"
        "sys.exit(', '.join({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_extra_nobody_can_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["pipeline", "verify", "--store", str(tmp_path)]) == Outcome.UNKNOWN.exit_code
    told = capsys.readouterr().out
    assert told.startswith("verify: could not tell: ")
    assert "pyspark, pyarrow and numpy are not installed" in told
    assert "hint: pip install 'rmq[spark]'" in told
    assert main(["pipeline", "demo", "--out", str(tmp_path / "demo")]) == ExitCode.CONFIG
    assert "hint: pip install 'rmq[spark]'" in capsys.readouterr().err


def test_a_verdict_that_cannot_be_printed_is_not_a_verdict(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rmq", "pipeline", "verify", "--store", str(tmp_path)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == Outcome.UNKNOWN.exit_code
    assert done.stderr == (
        "verify: error: cannot write to standard output: No space left on device\n"
    )


# --- bundle -----------------------------------------------------------------------------------


def test_a_bundle_holds_all_packages_and_can_be_imported_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rmq.zip"
    assert main(["pipeline", "bundle", str(path)]) == ExitCode.OK
    assert str(path) in capsys.readouterr().out
    with zipfile.ZipFile(path) as bundle:
        names = set(bundle.namelist())
        assert bundle.testzip() is None
    assert {"rmq/spark/wire/source.py", "pyspark_rmq/__init__.py", "rmq/py.typed"} <= names
    assert not any("__pycache__" in name for name in names)
    first = path.read_bytes()
    assert main(["pipeline", "bundle", str(path)]) == ExitCode.OK
    assert path.read_bytes() == first
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import rmq.model; print(rmq.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(str(path))


def test_a_bundle_that_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nowhere" / "rmq.zip"
    assert main(["pipeline", "bundle", str(path)]) == ExitCode.CONFIG
    assert f"{path}: No such file or directory" in capsys.readouterr().err


# --- demo -------------------------------------------------------------------------------------


def test_a_folder_that_is_not_the_demos_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("")
    assert main(["pipeline", "demo", "--out", str(tmp_path)]) == ExitCode.CONFIG
    assert "is not empty and was not written by a demo" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_the_damaged_copy_differs_in_one_bit(tmp_path: Path) -> None:
    store = tmp_path / "store"
    core = StoreCore(
        StoreConfig(root=store, segment_bytes=1 << 20, index_slots=50, index_entries=500)
    )
    core.append([NewMessage("Orders", 0, b"order %d" % number) for number in range(500)])
    core.close()
    offset = copy_damaged(store, tmp_path / "copy")
    (segment,) = (store / "commitlog").iterdir()
    sound = int.from_bytes(segment.read_bytes())
    damaged = int.from_bytes((tmp_path / "copy" / "commitlog" / segment.name).read_bytes())
    assert (sound ^ damaged).bit_count() == 1
    bad: list[int | None] = []
    with Reader(tmp_path / "copy") as reader:
        found = list(reader.records(on_bad=lambda error: bad.append(error.offset)))
    assert bad == [offset]
    assert len(found) == 499


def test_clicks_come_in_a_wave_with_a_burst() -> None:
    calm, burst = click_rate(0.0), click_rate(BURST_S[0])
    assert calm == CLICKS_PER_S
    assert burst > 2 * max(click_rate(BURST_S[1]), calm / 2)
