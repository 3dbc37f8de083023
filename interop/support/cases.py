"""Cases of a check: what was tried, how it went, and the table that says so at the end.

A case is a `with` block. Whatever it raises is its failure and goes into the table; the next case
runs all the same, so that one run shows everything that is wrong.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class MismatchError(Exception):
    """A peer did something else than expected."""


def expect(what: str, got: object, wanted: object) -> None:
    """Raise `MismatchError` unless `got` equals `wanted`."""
    if got != wanted:
        raise MismatchError(f"{what}: expected {wanted!r}, got {got!r}")


def expect_true(what: str, condition: object) -> None:
    """Raise `MismatchError` saying `what` should have been so, unless it is."""
    if not condition:
        raise MismatchError(f"expected {what}")


@dataclass(slots=True)
class Case:
    """One thing that was tried."""

    part: str
    name: str
    detail: str = ""
    passed: bool = True
    elapsed_ms: float = 0.0
    missing: bool = False
    """It could not be tried here; `detail` says what is missing."""

    @property
    def result(self) -> str:
        return "missing" if self.missing else "pass" if self.passed else "FAIL"

    def note(self, detail: str) -> None:
        """Say something worth knowing about a case that passes."""
        self.detail = detail


@final
class CaseTable:
    """The cases of one check, in the order they were run."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    @property
    def failures(self) -> list[Case]:
        return [case for case in self.cases if not case.passed]

    @contextmanager
    def case(self, part: str, name: str) -> Iterator[Case]:
        case = Case(part, name)
        started = time.perf_counter()
        try:
            yield case
        except Exception as exc:  # noqa: BLE001 - any failure is this case's result
            case.passed = False
            leaf = _leaf(exc)
            case.detail = f"{type(leaf).__name__}: {leaf}"
        case.elapsed_ms = (time.perf_counter() - started) * 1000
        self.add(case)

    def add(self, case: Case) -> None:
        self.cases.append(case)

    def show(self) -> None:
        """Print the table and a line with the sum."""
        rows = [
            (case.part, case.name, case.result, f"{case.elapsed_ms:.0f}") for case in self.cases
        ]
        details = [case.detail for case in self.cases]
        show_columns(("part", "case", "result", "ms"), rows, last_column=("", details))
        failed = len(self.failures)
        missing = sum(case.missing for case in self.cases)
        passed = len(self.cases) - failed - missing
        not_run = f", {missing} could not be run" if missing else ""
        say(f"\n{len(self.cases)} cases, {passed} passed, {failed} failed{not_run}")


def _leaf(exc: BaseException) -> BaseException:
    """Return what a nursery has wrapped."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def show_columns(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    last_column: tuple[str, Sequence[str]],
) -> None:
    """Print aligned columns; the last one may be of any length and hangs out to the right."""
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    for row, last in zip((titles, *rows), (last_column[0], *last_column[1]), strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        say("  ".join((*cells, last.replace("\n", " ")[:3000])).rstrip())


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
