"""House rules that a machine can check, and the small programs that hold the project together."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

import pytest

import rmq
from rmq.broker.config import BrokerConfig
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.config import (
    BlockingConsumerConfig,
    LitePullConfig,
    PushConsumerConfig,
)
from rmq.client.core.producing.config import ProducerConfig
from rmq.ha.protocol.master import MasterSettings
from rmq.ha.protocol.slave_link import SlaveSettings
from rmq.nameserver.config import NameserverConfig
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.server import ServerConfig
from rmq.store.config import StoreConfig
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Put together here so that this file does not contain them itself.
MACHINE_PATHS = [f"/{folder}/".encode() for folder in ("work", "root", "tmp", "home", "Users")]

NOT_WORDS = re.compile(
    r"replica(?!t)|follower|promis|sibling|duties|lookout|settl|(?<![a-z])lanes?(?![a-z])",
    re.IGNORECASE,
)
"""Words that docs/glossary.md replaces, in names and texts."""
NOT_PHRASES = re.compile(
    r"\b(?:look(?:s|ed|ing)? for|mend(?:s|ed|ing)?"
    r"|who(?:m)?ever|(?:some|no|any|every)body|anew|in vain|in earnest|ha(?:ve|s|d) done with"
    r"|how it goes|what (?:came|comes?|became|becomes?) of|all the same|so many(?! \w+ that)"
    r"|up to where)\b",
    re.IGNORECASE,
)
"""Phrases that do not say which process, task or value is meant."""
WIRE_NAMES = re.compile(
    r"(?:min_?)?in_?sync_?replicas|slave\.replica\b|\breplica: str|[\"`]replica[\"`]"
    r"|replica_lag_\w+|\bAnyBody\b|RocketMQReplicasDiffer",
    re.IGNORECASE,
)
"""Settings, JSON keys, metrics and alerts keep their names; `AnyBody` is a type variable."""
PLAIN_PACKAGES = (
    *(
        "access",
        "broker",
        "cli",
        "client",
        "counting",
        "ha",
        "metrics",
        "model",
        "nameserver",
        "remoting",
        "settings",
        "spark",
        "store",
    ),
    "testing",
)


@cache
def tree(path: Path) -> ast.Module:
    """Return a module as it was parsed, once for all rules."""
    return ast.parse(path.read_text())


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


def other_words(path: Path) -> list[str]:
    """Return where a file uses words that the glossary replaces; lines are joined first."""
    name = str(path.relative_to(ROOT))
    text = re.sub(r"\s+(?:# )?", " ", WIRE_NAMES.sub("", path.read_text()))
    return [
        f"{name}: {text[max(0, found.start() - 30) : found.end() + 30]}"
        for pattern in (NOT_WORDS, NOT_PHRASES)
        for found in pattern.finditer(text)
    ]


@pytest.mark.parametrize("package", PLAIN_PACKAGES)
def test_names_and_texts_of_a_package_use_the_words_of_the_glossary(package: str) -> None:
    modules = sorted((ROOT / "rmq" / package).rglob("*.py"))
    assert modules
    assert [line for module in modules for line in other_words(module)] == []


def test_names_and_texts_outside_of_packages_use_the_words_of_the_glossary() -> None:
    modules = sorted((ROOT / "rmq").glob("*.py"))
    assert modules
    assert [line for module in modules for line in other_words(module)] == []


def test_every_package_is_read_for_its_words() -> None:
    packages = {init.parent.name for init in (ROOT / "rmq").glob("*/__init__.py")}
    assert packages == set(PLAIN_PACKAGES)


def test_public_pages_use_the_words_of_the_glossary() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    pages += [ROOT / "benchmarks" / "README.md", ROOT / "interop" / "README.md"]
    glossary = ROOT / "docs" / "glossary.md"
    assert [line for page in pages if page != glossary for line in other_words(page)] == []


def test_every_package_folder_says_what_it_is() -> None:
    folders = {path.parent for path in (ROOT / "rmq").rglob("*.py")}
    silent = []
    for folder in sorted(folders):
        init = folder / "__init__.py"
        if not init.is_file() or not ast.get_docstring(tree(init)):
            silent.append(str(init.relative_to(ROOT)))
    assert silent == []


def test_every_module_says_what_it_is() -> None:
    modules = sorted((ROOT / "rmq").rglob("*.py"))
    assert modules
    silent = [
        str(module.relative_to(ROOT)) for module in modules if not ast.get_docstring(tree(module))
    ]
    assert silent == []


PLAIN_OFFSETS = {
    "rmq/store/segments.py": "it serves log and queues: a byte address in either",
    "rmq/ha/protocol/wire.py": "what a frame holds; whoever reads a frame says what it is",
}
"""Modules whose offsets may be plain integers, and why."""


def public_offsets(node: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.expr | None, int]]:
    """Yield name, annotation and line of parameters and fields with `offset` in their names.

    Of functions, methods and classes whose own names do not begin with an underscore.
    """
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if not child.name.startswith("_") or child.name == "__init__":
                parameters = child.args
                for each in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
                    if "offset" in each.arg:
                        yield f"{child.name}({each.arg})", each.annotation, each.lineno
        elif isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from public_offsets(child)
        elif isinstance(child, ast.AnnAssign) and "offset" in (name := ast.unparse(child.target)):
            yield name, child.annotation, child.lineno


def is_plain_number(annotation: ast.expr | None) -> bool:
    """Tell whether it is `int`, or a union that has it."""
    if isinstance(annotation, ast.BinOp):
        return is_plain_number(annotation.left) or is_plain_number(annotation.right)
    return isinstance(annotation, ast.Name) and annotation.id == "int"


def test_offsets_say_of_which_kind_they_are() -> None:
    """A physical offset where a queue offset belongs must not pass the checker."""
    found, excused, count = [], set(), 0
    for folder in ("rmq/store", "rmq/ha", "rmq/broker/tables"):
        for module in sorted((ROOT / folder).rglob("*.py")):
            path = str(module.relative_to(ROOT))
            for name, annotation, line in public_offsets(tree(module)):
                count += 1
                if not is_plain_number(annotation):
                    continue
                if path in PLAIN_OFFSETS:
                    excused.add(path)
                else:
                    found.append(f"{path}:{line}: {name}")
    assert found == []
    assert count > 50
    assert excused == set(PLAIN_OFFSETS)


def test_the_core_of_a_running_store_is_reached_by_the_store_alone() -> None:
    """Others use what `MessageStore` offers by name; if that lacks something, it gets a door."""
    found = []
    for module in sorted((ROOT / "rmq").rglob("*.py")):
        if module.is_relative_to(ROOT / "rmq" / "store"):
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Attribute) and node.attr in {"core", "_core"}:
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if name in {"store", "_store"}:
                    found.append(f"{module.relative_to(ROOT)}:{node.lineno}")
    assert found == []


PARTS_MAX = 7
"""A constructor takes at most this many arguments; what belongs together is a value by itself."""
MANY_PARTS = {
    "rmq/client/tasks/pending.py: Pending": "a value in between costs time for every send"
}


def test_constructors_take_no_more_parts_than_can_be_kept_in_mind() -> None:
    """Values (dataclasses and structs) may have as many fields as they need."""
    found = set()
    for module in sorted((ROOT / "rmq").rglob("*.py")):
        for node in ast.walk(tree(module)):
            if not isinstance(node, ast.ClassDef):
                continue
            for child in node.body:
                if isinstance(child, ast.FunctionDef) and child.name == "__init__":
                    given = child.args
                    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                    if count > PARTS_MAX:
                        found.add(f"{module.relative_to(ROOT)}: {node.name}")
    assert found == set(MANY_PARTS)


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


def modules_and_folders() -> set[str]:
    """Paths of all that is below rmq/, each beginning with a slash; folders end with one."""
    paths = [*(ROOT / "rmq").rglob("*.py"), ROOT / "rmq", *(ROOT / "rmq").rglob("*/")]
    return {f"/{path.relative_to(ROOT)}" + "/" * path.is_dir() for path in paths}


def test_modules_and_folders_that_the_guides_name_are_there() -> None:
    """`handlers/send.py` in a guide is a file below rmq/, `client/core/` a folder of it."""
    known = modules_and_folders()
    named = [
        (page, name)
        for page in ("README.md", "docs/architecture.md")
        for name in re.findall(r"[\w/]+\.py\b|(?<=`)\w[\w/]*/(?=`)", (ROOT / page).read_text())
    ]
    assert len(named) > 100
    outside = ("tests/", "benchmarks/", "interop/")
    missing = [
        f"{page}: {name}"
        for page, name in named
        if not name.startswith(outside) and not any(path.endswith(f"/{name}") for path in known)
    ]
    assert missing == []


def test_the_maps_of_the_packages_name_modules_that_are_there() -> None:
    """In the tables of the architecture a module is named without its folder and ending."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    maps = page.partition("## Inside the packages")[2].partition("## Journeys")[0]
    stems = {
        path.rstrip("/").rpartition("/")[2].partition(".")[0] for path in modules_and_folders()
    }
    others = {"mqadmin", "pread", "rocketmq"}
    named = set(re.findall(r"`(?:\w+/)?([a-z_]+)`", maps))
    assert len(named) > 60
    assert named - stems - others == set()


def test_the_layers_of_the_architecture_are_those_that_are_enforced() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawn = page.partition("## Layers\n\n```\n")[2].partition("\n")[0]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(
        each["layers"] for each in contracts["contracts"] if each.get("containers") == ["rmq"]
    )
    assert drawn == "  >  ".join(re.sub(r"[()]", "", layer) for layer in layers)


def test_the_maps_say_which_modules_know_trio() -> None:
    """The last column is `no`, or names the modules of the folder that import trio."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([\w/]+/)` \|.*\| (no|`[^|]*\.py`) \|$", page, re.MULTILINE)
    assert len(rows) > 15
    wrong = []
    for folder, said in rows:
        modules = (ROOT / "rmq" / folder.removeprefix("rmq/")).rglob("*.py")
        knowing = {
            module.name
            for module in modules
            if re.search(r"^\s*(?:import|from) trio\b", module.read_text(), re.MULTILINE)
        }
        named = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.py)`", said)}
        if knowing != named:
            wrong.append(f"{folder}: {sorted(knowing)}, not {sorted(named)}")
    assert wrong == []


FOLDER_FILES_MAX = 26
"""A folder of rmq/ has at most this many modules."""


def test_no_folder_has_more_modules_than_can_be_read_at_a_glance() -> None:
    folders = {path.parent for path in (ROOT / "rmq").rglob("*.py")}
    counts = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > FOLDER_FILES_MAX} == {}


CONFIGS = (
    BrokerConfig,
    StoreConfig,
    NameserverConfig,
    ClientConfig,
    ProducerConfig,
    PushConsumerConfig,
    LitePullConfig,
    BlockingConsumerConfig,
    ChannelConfig,
    ServerConfig,
    MasterSettings,
    SlaveSettings,
)


def test_every_setting_is_read() -> None:
    """One that is not has no effect; a broker's belongs into `rmq.broker.config.ignored` then."""
    holders = {"config", "_config", "current", "new", "old", "store", "settings", "_settings"}
    read = set()
    for path in (ROOT / "rmq").rglob("*.py"):
        is_config = path.parent.name == "config" or path.name == "config.py"
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                holder = ast.unparse(node.value).rpartition(".")[2]
                if holder in holders or (is_config and holder == "self"):
                    read.add(node.attr)
    settings = {(of.__name__, field.name) for of in CONFIGS for field in fields(of)}
    assert len(settings) > 200
    assert {setting for setting in settings if setting[1] not in read} == set()


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
