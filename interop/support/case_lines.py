"""Cases that a program in another language runs by itself, and reports line by line.

Such a program is asked twice. With the argument `topics` it prints one JSON object, the topics its
cases need and how many queues each has. With `run NAMESERVER BROKER` it runs the cases and prints
one line of JSON for each, `{"part", "case", "ms", "failure"}` with a failure that is empty when the
case passed, and at last `{"end": true}`: a program that died has not shown anything by its silence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import trio

from interop.support.cases import Case
from interop.support.java import last_words
from interop.support.processes import running_process
from interop.support.results import record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from interop.support.cases import CaseTable

_TOPICS_TIMEOUT_S: Final = 30
_CHUNK_BYTES: Final = 65_536


async def read_topics(command: Sequence[str], *, environment: Mapping[str, str]) -> dict[str, int]:
    """Return the topics that the cases of a program need, with their numbers of queues."""
    with trio.fail_after(_TOPICS_TIMEOUT_S):
        done = await trio.run_process(
            [*command, "topics"], capture_stdout=True, env=dict(environment)
        )
    topics: dict[str, int] = json.loads(done.stdout)
    return topics


async def run_cases(
    table: CaseTable,
    client: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
) -> None:
    """Run a program's cases in `folder`: they go into the table and into the results."""
    log = folder / "log"
    running = running_process(
        command, log=log, environment=environment, folder=folder, talking=True
    )
    async with running as process:
        assert process.stdout is not None
        async for line in _lines(process.stdout):
            if "end" in line:
                return
            add_operation(
                table,
                client,
                Case(line["part"], line["case"], line["failure"], not line["failure"], line["ms"]),
            )
    ending = Case("program", "runs to its end", f"it ended early; {last_words(log)}", passed=False)
    add_operation(table, client, ending)


def add_operation(table: CaseTable, client: str, case: Case) -> None:
    """Enter a case that is an operation of a client into both tables."""
    table.add(case)
    record(client, f"{case.part}: {case.name}", case.passed, "" if case.passed else case.detail)


async def _lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[dict[str, Any]]:
    pending = b""
    while chunk := await stream.receive_some(_CHUNK_BYTES):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)
