"""What each client could do against rmq: rows of `interop/RESULTS.md`.

A check calls `record` once per operation. Rows go into the file named by `RMQ_INTEROP_RESULTS`,
which `interop/run` sets; after the last check it runs this module, which puts the rows into
`RESULTS.md`, one section per client. A client that was not part of the run keeps its section, and
nothing in the file depends on when or where the run was: equal results give equal files.

Without the variable (a check started by hand, or against stock servers) nothing is written.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from interop.support.cases import Case

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from interop.support.cases import CaseTable

RESULTS: Final = Path(__file__).resolve().parent.parent / "RESULTS.md"
ROWS_VARIABLE: Final = "RMQ_INTEROP_RESULTS"

_INTRODUCTION: Final = """\
# Results of the interoperation checks

Stock clients against the nameserver and the broker of rmq, and the Python client of rmq against
stock servers, as the last `make interop` of each found them. Written by `interop/run`; what the
checks do is in [README.md](README.md).
"""
_SECTION_MARK: Final = "## "
_DETAIL_CHARS_MAX: Final = 300
_OPERATION_TIMEOUT_S: Final = 60
# What a failure says about this machine and this moment, not about rmq.
_CHANGING: Final = (
    (re.compile(r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?"), "ADDRESS"),
    (re.compile(r"(?<![\w.])/[\w./+-]{2,}"), "PATH"),
    (re.compile(r"\b[0-9A-F]{16,}\b"), "ID"),
    (re.compile(r"\b\d{13}\b"), "TIME"),
)


@dataclass(frozen=True)
class Row:
    """One operation of one client."""

    client: str
    operation: str
    passed: bool
    detail: str = ""


def record(client: str, operation: str, passed: bool, detail: str = "") -> None:
    """Add a row to the results of this run.

    `client` names the section, with its version ("Java client 4.9.8"). `detail` of a row that
    passed must be the same in every run: no times, ports or ids.
    """
    path = os.environ.get(ROWS_VARIABLE)
    if path is None:
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(Row(client, operation, passed, detail))) + "\n")


@dataclass(frozen=True)
class Operations:
    """The cases of a check that are operations of one client: they are in both tables."""

    table: CaseTable
    client: str
    prefix: str = ""
    """Stands before the parts in the table of a check that runs its cases more than once."""

    def missing(self, part: str, name: str, what: str) -> None:
        """Say that an operation cannot be tried here, and for want of what."""
        self.table.add(Case(f"{self.prefix}{part}", name, what, missing=True))

    @contextmanager
    def operation(
        self, part: str, name: str, *, timeout_s: float = _OPERATION_TIMEOUT_S
    ) -> Iterator[Case]:
        """Run a block as a case, with a limit to its time, and record how it went."""
        with self.table.case(f"{self.prefix}{part}", name) as case, trio.fail_after(timeout_s):
            yield case
        record(self.client, f"{part}: {name}", case.passed, "" if case.passed else case.detail)

    @contextmanager
    def group(self, name: str) -> Iterator[None]:
        """Run several operations; what fails between them is a failure, too.

        Other groups run all the same.
        """
        try:
            yield
        except Exception as exc:
            with self.operation(name, "everything around the other cases"):
                raise exc


def read_rows(text: str) -> list[Row]:
    """Return the rows that `record` wrote."""
    return [Row(**json.loads(line)) for line in text.splitlines()]


def merge(document: str, rows: Iterable[Row]) -> str:
    """Return `document` with the sections of the clients in `rows` replaced."""
    sections = _split(document)
    for client, client_rows in _by_client(rows).items():
        sections[client] = _section(client, client_rows)
    return "\n".join((_INTRODUCTION, *(sections[client] for client in sorted(sections))))


def _split(document: str) -> dict[str, str]:
    sections: dict[str, str] = {}
    for part in f"\n{document}".split(f"\n{_SECTION_MARK}")[1:]:
        client = part.partition("\n")[0].strip()
        sections[client] = f"{_SECTION_MARK}{part.strip()}\n"
    return sections


def _by_client(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.client, []).append(row)
    return found


def _section(client: str, rows: Sequence[Row]) -> str:
    passed = sum(row.passed for row in rows)
    lines = [
        f"{_SECTION_MARK}{client}",
        "",
        f"{passed} of {len(rows)} passed.",
        "",
        "| operation | result | |",
        "| --- | --- | --- |",
        *(
            f"| {_cell(row.operation)} | {'pass' if row.passed else 'FAIL'} | {_cell(row.detail)} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return " ".join(text.split())[:_DETAIL_CHARS_MAX].replace("|", "\\|")


def main() -> int:
    """Put the rows of a run into `RESULTS.md`."""
    rows_path = Path(os.environ[ROWS_VARIABLE])
    rows = read_rows(rows_path.read_text(encoding="utf-8")) if rows_path.exists() else []
    if rows:
        before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
        RESULTS.write_text(merge(before, rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
