"""What needs a process with a session of its own: a quiet start, and a disk that fills up."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.paths import ROOT
from tests.spark.pipelines.archive_full_disk import MESSAGES, SESSION_ENDS
from tests.store.kill.full_disk import CANNOT_MOUNT


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Such a process, when it is done: Java takes longer to start than what is tested takes."""
    folder = tmp_path_factory.mktemp("process")
    disk = folder / "disk"
    disk.mkdir()
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.pipelines.archive_full_disk", disk, folder / "store"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_nothing_but_results_is_printed(ended: subprocess.CompletedProcess[str]) -> None:
    """By a quiet session; what it was given counts, and it has two shuffle partitions per core."""
    before, mark, _ = ended.stderr.partition(f"{SESSION_ENDS}\n")
    assert (before, bool(mark)) == ("", True), ended.stderr
    assert json.loads(ended.stdout)["session"] == {
        "time zone": "Asia/Tokyo",
        "shuffle partitions": "2",
        "rows": 7,
    }


def test_a_run_that_fills_the_disk_leaves_nothing_and_the_next_completes(
    ended: subprocess.CompletedProcess[str],
) -> None:
    if ended.returncode == CANNOT_MOUNT:
        pytest.skip("the system does not let this user mount a file system")
    assert ended.returncode == 0, ended.stderr
    full, again = json.loads(ended.stdout)["runs"]
    assert full["code"] == 2
    assert "No space left on device" in full["verdict"]
    assert "hint: make room" in full["verdict"]
    # Not even what was written before the disk was full: it would take the room of the next run.
    assert (full["names"], full["files"]) == (["data"], 0)
    assert (again["code"], again["records"]) == (0, MESSAGES)
    assert {"manifest.json", "run=000001", "run-000001.json"} <= set(again["names"])
