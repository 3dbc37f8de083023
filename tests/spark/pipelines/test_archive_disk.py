"""A disk that fills up while the archive writes to it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.spark.pipelines.archive_full_disk import MESSAGES
from tests.store.kill.full_disk import CANNOT_MOUNT
from tests.store.kill.rounds import PROJECT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system as Linux does")
def test_a_run_that_fills_the_disk_leaves_nothing_and_the_next_completes(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.pipelines.archive_full_disk",
            disk,
            tmp_path / "store",
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    if done.returncode == CANNOT_MOUNT:
        pytest.skip("the system does not let this user mount a file system")
    assert done.returncode == 0, done.stderr
    full, again = json.loads(done.stdout)
    assert full["code"] == 2
    assert "No space left on device" in full["verdict"]
    assert "hint: make room" in full["verdict"]
    # Not even what was written before the disk was full: it would take the room of the next run.
    assert (full["names"], full["files"]) == (["data"], 0)
    assert (again["code"], again["records"]) == (0, MESSAGES)
    assert {"manifest.json", "run=000001", "run-000001.json"} <= set(again["names"])
