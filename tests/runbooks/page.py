"""The steps of a runbook, read from its page.

A fenced block of `sh` is a step: commands, one per line, that are run as they are written. A fenced
block of `text` after it, in the same section, is what they print. Comments of a step may say on
which machine it is done, and what exit code a command ends with:

    # on 10.0.0.1
    rmq ha status --name broker-a        # exit code 1
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.paths import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNBOOKS: Final = DOCS / "runbooks"

_MACHINE: Final = re.compile(r"# on (\S+)")
_EXIT_CODE: Final = re.compile(r"\s+# exit code (\d+)$")


@dataclass(frozen=True, slots=True)
class Command:
    """One line of a step."""

    machine: str
    line: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Step:
    """Commands, and what they print together; None: the page does not say."""

    where: str
    """Page and line."""
    commands: tuple[Command, ...]
    shown: str | None


def sections(page: str) -> dict[str, list[Step]]:
    """Return the steps below each heading of the second level, by its text; some have none."""
    found: dict[str, list[Step]] = {}
    text = (RUNBOOKS / page).read_text()
    for heading, number, lines in _parts(text):
        assert heading not in found, f"{page} has two sections {heading!r}"
        found[heading] = list(_steps(page, number, lines))
    return found


def _parts(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the heading of each section, the number of its first line, and its lines."""
    heading, first, lines = "", 1, list[str]()
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        is_fenced ^= line.lstrip().startswith("```")
        if line.startswith("## ") and not is_fenced:
            yield heading, first, lines
            heading, first, lines = line[3:], number + 1, []
        else:
            lines.append(line)
    yield heading, first, lines


def _steps(page: str, first: int, lines: list[str]) -> Iterator[Step]:
    step: Step | None = None
    for number, kind, block in _blocks(first, lines):
        if kind == "text":
            assert step is not None, f"{page}:{number}: nothing is run that would print this"
            yield Step(step.where, step.commands, "\n".join(block))
            step = None
            continue
        if step is not None:
            yield step
        step = Step(f"{page}:{number}", tuple(_commands(f"{page}:{number}", block)), None)
    if step is not None:
        yield step


def _blocks(first: int, lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line, kind and lines of the fenced blocks; those in lists are indented."""
    kind, start, block = "", 0, list[str]()
    for number, line in enumerate(lines, first):
        fence = line.lstrip().startswith("```")
        if fence and not kind:
            kind, start, block = line.strip().removeprefix("```"), number, []
            assert kind in ("sh", "text"), f"line {number}: a block of {kind!r} is no step"
        elif fence:
            yield start, kind, block
            kind = ""
        elif kind:
            block.append(line.removeprefix("   "))


def _commands(where: str, block: list[str]) -> Iterator[Command]:
    machine = ""
    for line in "\n".join(block).replace("\\\n", " ").splitlines():
        told = _MACHINE.match(line.strip())
        if told is not None:
            machine = told[1]
        elif line.strip() and not line.strip().startswith("#"):
            assert machine, f"{where}: on which machine?"
            code = _EXIT_CODE.search(line)
            yield Command(machine, _EXIT_CODE.sub("", line.strip()), int(code[1]) if code else 0)
