"""How many instructions counting takes by send, counted by valgrind: the same in every run.

A broker runs in lockstep with a client (`lockstep`), with counting and without it, for a few sends
and for many; the difference is what each one takes. The client is in the same process and its part
in all figures: the share of counting among the broker's own instructions is a little larger.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.broker_servers import ROOT
from benchmarks.metrics.uncounted import copy_uncounted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Batch(NamedTuple):
    """Sends that are under way at once."""

    connections: int
    sends: int
    """Of each connection."""
    runs: int
    """How many such batches are compared with a tenth of them."""


BATCHES: Final = {
    "32 on one connection": Batch(1, 32, 100),
    "4 on each of 16 connections": Batch(16, 4, 60),
    "1": Batch(1, 1, 1_000),
}
_TIMEOUT_S: Final = 900.0
_COLLECTED: Final = re.compile(r"Collected : (\d+)")


class Instructions(NamedTuple):
    """By send."""

    counted: float
    uncounted: float

    @property
    def share(self) -> float:
        return self.counted / self.uncounted - 1


class ToolMissingError(Exception):
    """There is no valgrind on this machine."""


def count_instructions(folder: Path) -> dict[str, Instructions]:
    """Return the instructions by send; raise `ToolMissingError` without valgrind."""
    if shutil.which("valgrind") is None:
        raise ToolMissingError("valgrind is not installed")
    bare = folder / "bare"
    copy_uncounted(ROOT, bare)
    return {
        name: Instructions(_by_send(folder, ROOT, batch), _by_send(folder, bare, batch))
        for name, batch in BATCHES.items()
    }


def _by_send(folder: Path, root: Path, batch: Batch) -> float:
    few = batch._replace(runs=batch.runs // 10)
    spent = _run(folder, root, batch) - _run(folder, root, few)
    return spent / ((batch.runs - few.runs) * batch.connections * batch.sends)


def _run(folder: Path, root: Path, batch: Batch) -> int:
    """Return the instructions of a whole process."""
    place = folder / "lockstep"
    place.mkdir()
    command = [
        *("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"),
        *(sys.executable, "-m", "benchmarks.metrics.lockstep", str(place)),
    ]
    for option, value in batch._asdict().items():
        command += [f"--{option}", str(value)]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root}{os.pathsep}{ROOT}",
        "PYTHONSAFEPATH": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    shutil.rmtree(place, ignore_errors=True)
    found = _COLLECTED.search(done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2_000:]}")
    return int(found[1])


def instructions_table(counts: Mapping[str, Instructions]) -> str:
    """Return them as a table in Markdown."""
    lines = [
        "| sends under way | instructions by send | without counting | more |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {each.counted:,.0f} | {each.uncounted:,.0f} | {each.share:.2%} |"
        for name, each in counts.items()
    ]
    return "\n".join(lines) + "\n"
