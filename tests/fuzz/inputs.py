"""Runs a fuzz target over inputs that have numbers, within limits of time, and counts what came.

An input comes of the seed, the name of its target and its number alone, so that the same number
gives the same input in any process and in a run of any length.
"""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from types import FrameType

SEED: Final = 4098
CPU_SECONDS_MAX: Final = 2.0
"""How long an input may keep the processor; time of other processes does not count."""
FINDINGS_MAX: Final = 20
"""How many kinds of findings are told."""

Examine = Callable[[random.Random], str]
"""Makes an input of chance and says what became of it; raises for what must not happen."""


@dataclass
class Tally:
    """What a run has come to."""

    name: str
    seed: int = SEED
    inputs: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    """The first of each kind, with the command that repeats it."""
    counts: Counter[str] = field(default_factory=Counter)
    """How often each kind was found."""

    def note(self, kind: str, what: str, number: int) -> None:
        self.counts[kind] += 1
        if self.counts[kind] == 1 and len(self.findings) < FINDINGS_MAX:
            command = repeat_command(self.name, number, self.seed)
            self.findings.append(f"{self.name}: {kind}: {what[:1000]}\n  {command}")

    def add(self, other: Tally) -> None:
        """Add what another process has come to."""
        self.inputs += other.inputs
        self.seconds += other.seconds
        self.outcomes += other.outcomes
        for finding in other.findings:
            if len(self.findings) < FINDINGS_MAX:
                self.findings.append(finding)
        self.counts += other.counts

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {what}" for what, count in sorted(self.outcomes.items()))
        return (
            f"{self.name}: {self.inputs} inputs, {outcomes or 'nothing done'},"
            f" {len(self.findings)} kinds of findings ({self.counts.total()} times),"
            f" {self.inputs / max(self.seconds, 1e-9):.0f}/s, seed {self.seed}"
        )


def repeat_command(name: str, number: int, seed: int) -> str:
    return f"python -m tests.fuzz.run --only {name} --inputs 1 --first {number} --seed {seed}"


def examine_inputs(
    name: str,
    examine: Examine,
    inputs: int,
    *,
    first: int = 0,
    seed: int = SEED,
    cpu_seconds_max: float = CPU_SECONDS_MAX,
) -> Tally:
    """Examine the inputs of so many numbers."""
    tally = Tally(name, seed)
    began = time.monotonic()
    # One generator, seeded with a number: to make one from a text takes a tenth of most inputs.
    chance = random.Random()
    start = (seed << 32 | crc32(name.encode())) << 64
    with stopwatch() as limit:
        for number in range(first, first + inputs):
            chance.seed(start | number)
            limit(cpu_seconds_max)
            try:
                tally.outcomes[examine(chance)] += 1
            except TooLong:
                tally.note("an input takes too long", "", number)
            except Exception as exc:  # noqa: BLE001 - any kind is what is looked for
                tally.note(kind_of(exc), str(exc), number)
            finally:
                limit(0)
            tally.inputs += 1
    tally.seconds = time.monotonic() - began
    return tally


def kind_of(exc: Exception) -> str:
    """Say what was raised and where, the same for all inputs that lead there."""
    place = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{type(exc).__name__} in {place.name} ({Path(place.filename).name}:{place.lineno})"


class TooLong(BaseException):
    """Time is up. No code under test catches one of this kind."""


@contextmanager
def stopwatch() -> Iterator[Callable[[float], None]]:
    """Give a function that sets (or with 0 ends) a limit on processor time from now on."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong

    def limit(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)

    previous = signal.signal(signal.SIGPROF, stop)
    try:
        yield limit
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
