"""What the tests of runbooks rest on: reading pages, comparing what is printed."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from rmq.cli.app import COMMANDS, program
from rmq.cli.program import Chosen, parse
from tests.paths import ROOT
from tests.runbooks.page import RUNBOOKS, sections
from tests.runbooks.shown import is_shown

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted(path.name for path in RUNBOOKS.glob("*.md"))
SHOWN = """\
broker-a of DefaultCluster: healthy
in sync     1 of 1 slave, 1 needed: broker-a:1
epoch       3
...
slave   broker-a:1  10.0.0.2:10911  streaming  yes  1,747,780  0 B  0.0 s  0.8 s ago
"""
PRINTED = """\
broker-a of DefaultCluster: healthy

in sync  1 of 1 slave, 1 needed: broker-a:1
epoch    12
a line of no interest
another one

slave  broker-a:1  10.0.0.2:10911  streaming  yes  2,400  1.3 KiB  12 ms  2.0 s ago
"""


def test_what_changes_from_run_to_run_may_differ() -> None:
    assert is_shown(SHOWN, PRINTED)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("healthy", "NOT HEALTHY, 1 problem"),
        ("1 of 1 slave", "0 of 1 slave"),
        ("10.0.0.2:10911", "10.0.0.1:10911"),
        ("broker-a:1 ", "broker-a:2 "),
        ("streaming", "catching up"),
        ("2,400", "unknown"),
        ("ms  2.0 s ago", "ms  never"),
    ],
)
def test_words_addresses_and_small_numbers_may_not(old: str, new: str) -> None:
    assert old in PRINTED
    assert not is_shown(SHOWN, PRINTED.replace(old, new))


def test_nothing_may_be_missing_and_nothing_may_come_before_or_after() -> None:
    assert not is_shown(SHOWN, PRINTED + "problem: one more line\n")
    assert not is_shown(SHOWN, "one more line\n" + PRINTED)
    assert not is_shown(SHOWN, PRINTED.replace("epoch    12\n", ""))


def test_steps_have_a_machine_a_code_and_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.runbooks.page.RUNBOOKS", tmp_path)
    (tmp_path / "page.md").write_text(
        "# Page\n\n## One\n\n1. Do it:\n\n   ```sh\n   # on 10.0.0.1\n   false \\\n     -x"
        "    # exit code 1\n   # on 10.0.0.2\n   true\n   ```\n\n   ```text\n   out\n   ```\n\n"
        "## Two\n\n    not a step\n"
    )
    found = sections("page.md")
    assert list(found) == ["", "One", "Two"]
    (step,) = found["One"]
    assert [(each.machine, each.line.split(), each.exit_code) for each in step.commands] == [
        ("10.0.0.1", ["false", "-x"], 1),
        ("10.0.0.2", ["true"], 0),
    ]
    assert step.shown == "out"
    assert found["Two"] == []


def followed_sections(page: str) -> set[str]:
    """Return the sections of a page that tests and checks name behind it, in one call."""
    tests = [*(ROOT / "tests" / "runbooks").glob("test_*.py")]
    tests += (ROOT / "interop" / "checks" / "from-java").glob("*.py")
    calls = [
        [each.value for each in node.args if isinstance(each, ast.Constant)]
        for path in tests
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    return {str(name) for words in calls if words[:1] == [page] for name in words[1:]}


@pytest.mark.parametrize("page", PAGES)
def test_every_section_with_steps_is_followed_by_a_test(page: str) -> None:
    with_steps = {name for name, steps in sections(page).items() if steps}
    assert followed_sections(page) == with_steps


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_rmq_on_a_page_is_understood(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (RUNBOOKS / page).read_text()
    lines = re.findall(rf"`(rmq (?:{'|'.join(COMMANDS)}) [^`\n]*)`", text)
    for line in lines:
        words = re.sub(r"\b(?:[A-Z]{3,}\b|\.\.\.)", "10.0.0.1:1", line).split()[1:]
        if len(words) < 3 and "-" not in line:
            continue
        if not isinstance(parse(program(), words), Chosen):
            pytest.fail(f"{page}: {line}: {capsys.readouterr().err}")


def said_by(node: ast.expr | None) -> str:
    """Return the text of an expression, with a 0 byte where something is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(said_by(part) for part in node.values)
    return "\0"


def test_the_sentences_that_a_page_explains_are_said_by_the_program() -> None:
    modules = [
        ROOT / "rmq" / "cli" / "ha" / "change.py",
        ROOT / "rmq" / "ha" / "protocol" / "promotion.py",
        *(ROOT / "rmq" / "broker" / "replication" / "changes").glob("*.py"),
    ]
    said = {
        said_by(node)
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant | ast.JoinedStr)
    }
    page = (RUNBOOKS / "promote.md").read_text().partition("## What its sentences mean")[2]
    sentences = re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE)[1:]
    assert len(sentences) > 20
    for sentence in sentences:
        # What stands behind a colon may be filled in as a whole.
        beginning, colon, rest = sentence.partition(": ")
        assert is_said(sentence, said) or (
            colon and is_said(f"{beginning}: ", said) and is_said(rest, said)
        ), sentence


def is_said(sentence: str, said: set[str]) -> bool:
    """Tell whether a text has the words of a sentence around what is filled in.

    Those are dots, letters for offsets, and numbers with their units.
    """
    parts = re.split(r"\.\.\.|\b[NM]\b|\d[\d.]*(?: (?:KiB|B|s)\b)?", sentence)
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(map(pattern.search, said))
