"""The command line of interop/run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.paths import ROOT

RUN = ROOT / "interop" / "run"
EXIT_USAGE = 2


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of it that has the checks `one` and `two`, which print their arguments."""
    copy = Path(shutil.copy(RUN, folder))
    for name in ("one", "two"):
        check = folder / "checks" / name / "run"
        check.parent.mkdir(parents=True)
        check.write_text(f'#!/usr/bin/env bash\necho "{name} got [$*]"\n')
        check.chmod(0o755)
    return subprocess.run([copy, *arguments], capture_output=True, text=True, check=False)


def test_options_after_a_name_are_those_of_the_check(tmp_path: Path) -> None:
    done = _run(tmp_path, "two", "--rounds", "3", "--only", "kill")
    assert done.returncode == 0, done.stderr
    assert "two got [--rounds 3 --only kill]" in done.stdout
    assert "one got" not in done.stdout


def test_without_a_name_every_check_runs_without_options(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "one got []" in done.stdout
    assert "two got []" in done.stdout


def test_options_for_several_checks_are_refused(tmp_path: Path) -> None:
    done = _run(tmp_path, "one", "two", "--rounds", "3")
    assert done.returncode == EXIT_USAGE
    assert "'--rounds' is for one check" in done.stderr
    assert "got" not in done.stdout


def test_options_for_no_check_are_refused(tmp_path: Path) -> None:
    done = _run(tmp_path, "--rounds", "3")
    assert done.returncode == EXIT_USAGE
    assert "'--rounds' is for one check" in done.stderr
