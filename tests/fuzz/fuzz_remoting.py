"""Feeds mutated frames to the remoting layer, and reports whatever is not as it should be.

    python -m tests.fuzz.fuzz_remoting [--frames N] [--seed S] [--seconds T] [--start I]

Every frame comes of the seed and its number alone: `--seed S --start I --frames 1` repeats one
finding. Findings are exceptions that are not ours, broken promises (see `oracle`), single frames
that take too long, and memory that grows. The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fuzz.inputs import TooLong, kind_of, stopwatch
from tests.fuzz.mutations import mutated
from tests.fuzz.oracle import Outcome, examine
from tests.fuzz.seeds import Seed, all_seeds

if TYPE_CHECKING:
    from rmq.remoting.codes import RequestCode

FRAMES: Final = 1_000_000
SEED: Final = 4098
FRAME_CPU_SECONDS_MAX: Final = 2.0
"""How long a frame may keep the processor; time of other processes does not count."""
RESIDENT_GROWTH_MAX: Final = 32 << 20
"""By how much the memory in use may grow in a whole run, once caches are warm."""
PEAK_GROWTH_MAX: Final = 128 << 20
"""By how much it may do so for a moment."""
WARM_UP_FRAMES: Final = 20_000
FINDINGS_MAX: Final = 20
"""How many kinds of findings are told."""

Examine = Callable[[Iterable[bytes], int, "RequestCode | None"], Outcome]


@dataclass
class Report:
    """What a run has come to."""

    seed: int
    frames: int = 0
    decoded: int = 0
    refused: int = 0
    headers: int = 0
    bodies: int = 0
    seconds: float = 0.0
    resident_growth: int = 0
    peak_growth: int = 0
    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, what: str, number: int, chunks: list[bytes]) -> None:
        """Keep the first input of each kind of finding, and count all."""
        self.counts[kind] += 1
        if self.counts[kind] > 1 or len(self.findings) >= FINDINGS_MAX:
            return
        sizes = ",".join(str(len(chunk)) for chunk in chunks)
        stream = b"".join(chunks).hex()
        self.findings.append(
            f"{kind}: {what[:500]}\n  seed {self.seed}, number {number}, chunks {sizes}\n  {stream}"
        )

    def __str__(self) -> str:
        grown, peak = self.resident_growth / (1 << 20), self.peak_growth / (1 << 20)
        return (
            f"{self.frames} frames, {self.decoded} commands decoded"
            f" ({self.headers} headers and {self.bodies} bodies read), {self.refused} refused,"
            f" {len(self.findings)} kinds of findings ({self.counts.total()} times),"
            f" memory +{grown:.1f} MiB (peak +{peak:.1f}),"
            f" {self.frames / max(self.seconds, 1e-9):.0f}/s, seed {self.seed}"
        )


def peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except FileNotFoundError:
        return peak_bytes()
    return pages * resource.getpagesize()


class Memory:
    """Watches what the process holds."""

    def __init__(
        self,
        resident_bytes: Callable[[], int] = resident_bytes,
        peak_bytes: Callable[[], int] = peak_bytes,
    ) -> None:
        self._resident_bytes = resident_bytes
        self._peak_bytes = peak_bytes
        self.sample(warm=False)

    def sample(self, *, warm: bool) -> None:
        self._resident_last, self._peak_last = self._resident_bytes(), self._peak_bytes()
        if not warm:
            self._resident_first, self._peak_first = self._resident_last, self._peak_last

    def growth(self) -> tuple[int, int]:
        return self._resident_last - self._resident_first, self._peak_last - self._peak_first

    def findings(self) -> list[str]:
        resident, peak = self.growth()
        findings = []
        if resident > RESIDENT_GROWTH_MAX:
            findings.append(f"memory in use grew by {resident} bytes")
        if peak > PEAK_GROWTH_MAX:
            findings.append(f"memory in use grew by {peak} bytes for a moment")
        return findings


def fuzz(
    *,
    frames: int = FRAMES,
    seed: int = SEED,
    seconds: float | None = None,
    start: int = 0,
    examine: Examine = examine,
    frame_cpu_seconds_max: float = FRAME_CPU_SECONDS_MAX,
    memory: Memory | None = None,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Examine so many mutated frames, or as many as the time allows."""
    seeds = all_seeds()
    chance = random.Random()
    report = Report(seed)
    memory = memory or Memory()
    began = time.monotonic()
    with stopwatch() as limit:
        for number in range(start, start + frames):
            chance.seed(seed << 40 | number)
            stream, answers = _stream(seeds, chance)
            chunks = list(_split(stream, chance))
            limit(frame_cpu_seconds_max)
            try:
                outcome = examine(chunks, chance.choice((1, 2, 3, 1000)), answers)
            except TooLong:
                report.note("a frame takes too long", "", number, chunks)
            except Exception as exc:  # noqa: BLE001 - any kind is what is looked for
                report.note(kind_of(exc), str(exc), number, chunks)
            else:
                report.decoded += outcome.decoded
                report.refused += outcome.refused
                report.headers += outcome.headers
                report.bodies += outcome.bodies
            finally:
                limit(0)
            report.frames += 1
            if report.frames % 1000 == 0:
                report.seconds = time.monotonic() - began
                memory.sample(warm=report.frames > min(WARM_UP_FRAMES, frames // 2))
                if progress is not None:
                    progress(report)
                if seconds is not None and report.seconds >= seconds:
                    break
    report.seconds = time.monotonic() - began
    report.resident_growth, report.peak_growth = memory.growth()
    report.findings += memory.findings()
    return report


def _stream(seeds: list[Seed], chance: random.Random) -> tuple[bytes, RequestCode | None]:
    """Return a mutated frame, sometimes with a sound one in front of it or behind it."""
    sound = chance.choice(seeds)
    mutant = mutated(sound.frame, chance.choice(seeds).frame, chance)
    before = chance.choice(seeds).frame if chance.random() < 0.2 else b""
    behind = chance.choice(seeds).frame if chance.random() < 0.2 else b""
    return before + mutant + behind, sound.answers


def _split(stream: bytes, chance: random.Random) -> Iterator[bytes]:
    style = chance.random()
    if style < 0.5:
        yield stream
        return
    chunk_max = 9 if style < 0.6 and len(stream) < 400 else max(9, len(stream))
    position = 0
    while position < len(stream):
        size = chance.randint(1, chunk_max)
        yield stream[position : position + size]
        position += size


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz_remoting")
    parser.add_argument("--frames", type=int, default=FRAMES, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of all chance (%(default)s)")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--start", type=int, default=0, help="number of the first frame")
    options = parser.parse_args()

    def progress(report: Report) -> None:
        if report.frames % 100_000 == 0:
            print(report, file=sys.stderr, flush=True)

    report = fuzz(
        frames=options.frames,
        seed=options.seed,
        seconds=options.seconds,
        start=options.start,
        progress=progress,
    )
    for finding in report.findings:
        print(finding)
    print(report)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
