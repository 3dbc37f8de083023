"""Headings of recorded figures say what was measured, and where."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from benchmarks import entry

if TYPE_CHECKING:
    from pathlib import Path

RESULTS = entry.ROOT / "benchmarks" / "results"
BENCHMARKS = sorted(
    path.stem.removeprefix("bench_") for path in (entry.ROOT / "benchmarks").glob("bench_*.py")
)


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_the_commit_is_named_and_changes_to_it_are(tmp_path: Path) -> None:
    measured = tmp_path / "measured.py"
    measured.write_text("1\n")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    (tmp_path / "figures.json").write_text("{}")
    assert re.fullmatch(r"[0-9a-f]{10}", entry.commit(tmp_path))
    measured.write_text("2\n")
    assert re.fullmatch(r"[0-9a-f]{10} with changes", entry.commit(tmp_path))


def test_a_folder_without_history_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert entry.commit(tmp_path) == entry.UNKNOWN


def test_a_heading_has_date_machine_python_commit_and_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["anywhere/bench_store.py", "--only", "append"])
    assert re.fullmatch(
        r"### \d{4}-\d\d-\d\d, \d+ cores of .+, Python 3\.\d+\.\w+, commit .+,"
        r" `benchmarks/bench_store\.py --only append`",
        entry.heading(),
    )


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_prints_its_heading_and_has_a_page_of_results(name: str) -> None:
    program = (entry.ROOT / "benchmarks" / f"bench_{name}.py").read_text()
    assert "print(heading()" in program
    page = (RESULTS / f"{name}.md").read_text()
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    assert headings
    for each in headings:
        assert re.match(r"\d{4}-\d\d-\d\d, ", each), each
        assert "`make bench" in each or "`benchmarks/bench_" in each, each


def test_results_are_pages_of_benchmarks() -> None:
    assert sorted(path.stem for path in RESULTS.glob("*.md")) == BENCHMARKS
