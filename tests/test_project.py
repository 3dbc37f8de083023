"""House rules that a machine can check, and the small programs that hold the project together."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import rmq

ROOT = Path(__file__).resolve().parent.parent

# Put together here so that this file does not contain them itself.
MACHINE_PATHS = [f"/{folder}/".encode() for folder in ("work", "root", "tmp", "home", "Users")]


def project_files() -> list[Path]:
    """What git tracks or would track: everything but ignored files."""
    if not (ROOT / ".git").exists():
        pytest.skip("an unpacked archive has no list of project files")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {machine_path.decode()}"
        for path in project_files()
        for machine_path in MACHINE_PATHS
        if machine_path in path.read_bytes()
    ]
    assert found == []


def test_every_package_folder_says_what_it_is() -> None:
    folders = {path.parent for path in (ROOT / "rmq").rglob("*.py")}
    silent = []
    for folder in sorted(folders):
        init = folder / "__init__.py"
        if not init.is_file() or not ast.get_docstring(ast.parse(init.read_text())):
            silent.append(str(init.relative_to(ROOT)))
    assert silent == []


def test_every_module_says_what_it_is() -> None:
    modules = sorted((ROOT / "rmq").rglob("*.py"))
    assert modules
    silent = [
        str(module.relative_to(ROOT))
        for module in modules
        if not ast.get_docstring(ast.parse(module.read_text()))
    ]
    assert silent == []


def test_the_core_of_a_running_store_is_reached_by_the_store_alone() -> None:
    """Others use what `MessageStore` offers by name; if that lacks something, it gets a door."""
    found = []
    for module in sorted((ROOT / "rmq").rglob("*.py")):
        if module.is_relative_to(ROOT / "rmq" / "store"):
            continue
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in {"core", "_core"}:
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if name in {"store", "_store"}:
                    found.append(f"{module.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_tests_stay_a_namespace_so_that_two_files_may_share_a_name() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_the_package_and_its_metadata_agree_on_the_version() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert metadata["project"]["version"] == rmq.__version__


def test_links_between_documents_lead_somewhere() -> None:
    links = [
        (path, target)
        for path in project_files()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
        if "://" not in target
    ]
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path, target in links
        if not (path.parent / target).exists()
    ]
    assert broken == []


# --- interop/run ----------------------------------------------------------------------------


def interop(folder: Path, *names: str, **checks: int) -> subprocess.CompletedProcess[str]:
    """Run the real script in a folder of its own, with checks that only exit with a code."""
    run = folder / "run"
    run.write_bytes((ROOT / "interop" / "run").read_bytes())
    run.chmod(0o755)
    for name, code in checks.items():
        check = folder / "checks" / name / "run"
        check.parent.mkdir(parents=True)
        check.write_text(f"#!/bin/sh\nexit {code}\n")
        check.chmod(0o755)
    return subprocess.run([run, *names], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        pytest.param({"a": 0, "b": 0}, 0, id="all pass"),
        pytest.param({"a": 0, "b": 77}, 0, id="one pass, one missing"),
        pytest.param({"a": 0, "b": 1}, 1, id="one failed"),
        pytest.param({"a": 77, "b": 3}, 1, id="failed outranks missing"),
        pytest.param({"a": 77}, 77, id="all missing"),
        pytest.param({}, 77, id="no checks"),
    ],
)
def test_interop_exit_code_tells_verified_failed_and_nothing_verified(
    tmp_path: Path, checks: dict[str, int], code: int
) -> None:
    assert interop(tmp_path, **checks).returncode == code


def test_interop_table_has_a_row_for_every_check(tmp_path: Path) -> None:
    done = interop(tmp_path, good=0, absent=77, bad=5)
    rows = [line.split()[:2] for line in done.stdout.splitlines()[-3:]]
    assert rows == [["absent", "missing"], ["bad", "FAIL"], ["good", "pass"]]


def test_interop_runs_only_the_named_checks(tmp_path: Path) -> None:
    assert interop(tmp_path, "good", good=0, bad=1).returncode == 0


def test_interop_refuses_an_unknown_check_before_running_any(tmp_path: Path) -> None:
    done = interop(tmp_path, "good", "nosuch", good=0, bad=1)
    assert done.returncode == 2
    assert "no check 'nosuch'; there are: bad good" in done.stderr
    assert "== good" not in done.stdout
