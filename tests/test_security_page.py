"""The page about security names tests that exist, and its links lead to sections that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.paths import DOCS, ROOT

PAGE = re.sub(r"<!--.*?-->", "", (DOCS / "security.md").read_text(), flags=re.DOTALL)
_ATTACKS = PAGE.split("## Attacks")[1]
_ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in _ATTACKS.splitlines()
    if line.startswith("| ") and not line.startswith(("| attack ", "| --- "))
]


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row[0][:60])
def test_every_attack_has_a_test(row: list[str]) -> None:
    assert len(row) == 4, "attack, before, now, test"
    assert all(row)
    tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row[3])
    assert tests, row[3]
    for path, name in tests:
        functions = {
            node.name
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert not name or name in functions, f"{path} has no {name}"


@pytest.mark.parametrize(
    "page",
    ["SECURITY.md", "docs/security.md", "docs/ha.md", "docs/broker.md", "docs/nameserver.md"],
)
def test_links_into_the_page_lead_to_its_sections(page: str) -> None:
    sections = {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    }
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\((?:docs/)?security\.md#([\w-]+)\)", text)
    if page == "docs/security.md":
        links += re.findall(r"\]\(#([\w-]+)\)", text)
    assert links
    assert set(links) <= sections
