"""A store on a disk that becomes full, in processes that a missing reservation would kill."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.store.kill.full_disk import CANNOT_MOUNT
from tests.store.kill.rounds import PROJECT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system as Linux does")
@pytest.mark.parametrize(
    ("file_system", "shortages"),
    [
        pytest.param("tmpfs", ["log", "queues", "index"], id="tmpfs"),
        pytest.param(
            "ext4",
            ["queues"],
            id="ext4",
            marks=pytest.mark.skipif(not shutil.which("mkfs.ext4"), reason="mkfs.ext4 is missing"),
        ),
    ],
)
def test_a_full_disk_ends_no_process_and_loses_nothing_acknowledged(
    tmp_path: Path, file_system: str, shortages: list[str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.kill.full_disk", disk, file_system, *shortages],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode == CANNOT_MOUNT:
        pytest.skip(f"the system does not let this user mount a file system of kind {file_system}")
    assert done.returncode == 0, done.stderr
    cases = done.stdout.splitlines()
    assert len(cases) == 2 * len(shortages)
    if file_system == "tmpfs":
        # What was wanted last differs, or the cases would prove the same three times.
        wanted = [case.partition("{'")[2].partition("'")[0] for case in cases[::2]]
        assert wanted == ["commitlog", "consumequeue", "index"]
