"""Does to a nameserver and a broker whatever clients could do, and reports what does not go well.

    python -m tests.fuzz.fuzz_servers [--seconds T] [--seed S] [--rounds N] [--start R] [--steps K]

A round is a pair of servers on an empty store, and some hundred scenarios (`servers.scenarios`) in
an order that comes of the seed and the number of the round: `--seed S --start R --rounds 1` does
one again, as far as threads let it. Findings are: a request that is not answered, or twice, or with
a reason that makes no sense; an exception or an error in the log; a server that no longer serves
after a scenario, or that keeps something of it when the connections are closed; a request that
keeps the event loop; a message that was acknowledged and is gone, at the end of the round or after
the store was opened again; files that cannot be read again. The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
import trio.testing

from rmq.remoting.channel import Channel
from rmq.remoting.client import open_client
from rmq.remoting.codes import ResponseCode
from rmq.remoting.protocol import REQUESTS
from tests.fuzz.fuzz_remoting import resident_bytes
from tests.fuzz.servers.aftermath import check_files, check_store, copy_files, open_again, promised
from tests.fuzz.servers.probe import Probe
from tests.fuzz.servers.rig import running
from tests.fuzz.servers.scenarios import SCENARIOS, last_words
from tests.fuzz.servers.values import Values
from tests.fuzz.servers.watch import LogWatch, StepWatch, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.fuzz.servers.rig import Rig
    from tests.fuzz.servers.scenarios import Scenario

SEED: Final = 4098
STEPS: Final = 200
FINDINGS_MAX: Final = 60
RESIDENT_GROWTH_MAX: Final = 512 << 20
"""By how much the memory in use may grow, once caches are warm. Large answers leave holes in it."""
CHANNELS_MAX: Final = 18
"""Ends of connections that may be there at the end of a round: those of two connections to the
nameserver and one to the broker, and some that service tasks saw last.
"""

VARIANTS: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {"flushDiskType": "SYNC_FLUSH"},
    {"enablePropertyFilter": "false", "longPollingEnable": "false"},
    {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"},
    {"storeReplyMessageEnable": "false", "brokerTopicEnable": "false", "traceTopicEnable": "true"},
    {"notifyConsumerIdsChangedEnable": "false", "slaveReadEnable": "true"},
    {"brokerRole": "SLAVE", "brokerId": "1"},
)
"""Settings of the broker, by the number of the round."""


@dataclass
class Report:
    """What a run has come to."""

    seed: int
    rounds: int = 0
    steps: int = 0
    frames: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    resident_growth: int = 0
    where: str = ""
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    watch: StepWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = StepWatch(self.note)

    def note(self, kind: str, what: str) -> None:
        """Keep the first of each kind of finding, and count all."""
        self.counts[kind] += 1
        if self.counts[kind] > 1 or len(self.findings) >= FINDINGS_MAX:
            return
        self.findings.append(f"{kind}\n  seed {self.seed}, {self.where}\n  {what[:4000]}")

    def worst(self, count: int = 12) -> list[str]:
        """Return the requests that kept the event loop longest, by code."""
        rows = sorted(self.watch.worst.items(), key=lambda row: -row[1].seconds)[:count]
        return [
            f"  {code:>4}: {worst.seconds * 1000:7.1f} ms for {worst.requests} requests,"
            f" {worst.bytes} bytes, {worst.what}"
            for code, worst in rows
        ]

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.steps} steps, {self.frames} frames,"
            f" {self.answers.total()} answers,"
            f" {self.acknowledged} messages acknowledged, {len(self.counts)} kinds of findings"
            f" ({self.counts.total()} times), longest step {self.watch.worst_step[0] * 1000:.0f} ms"
            f" ({self.watch.worst_step[1]}), {self.watch.worst_wall[0] * 1000:.0f} ms by the clock"
            f" ({self.watch.worst_wall[1]}), memory +{self.resident_growth >> 20} MiB,"
            f" {self.seconds:.0f} s, seed {self.seed}"
        )


def fuzz(
    *,
    rounds: int = 1_000_000,
    steps: int = STEPS,
    seed: int = SEED,
    seconds: float | None = None,
    start: int = 0,
    scenarios: Mapping[Scenario, int] = SCENARIOS,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Do so many rounds, or as many as the time allows."""
    report = Report(seed)
    began = time.monotonic()
    until = None if seconds is None else began + seconds
    first_resident = 0
    # What was there before is not the servers': neither the time a search for garbage takes there,
    # nor the connections it finds.
    gc.collect()
    gc.freeze()
    for number in range(start, start + rounds):
        if until is not None and time.monotonic() >= until:
            break
        with tempfile.TemporaryDirectory(prefix="fuzz-servers-") as outer:
            folder = Path(outer) / "servers"
            folder.mkdir()
            _run_round(report, folder, number, steps, until, scenarios)
        report.rounds += 1
        report.seconds = time.monotonic() - began
        gc.collect()
        if report.rounds <= 2:
            first_resident = resident_bytes()
        report.resident_growth = resident_bytes() - first_resident
        if progress is not None:
            progress(report)
    if report.resident_growth > RESIDENT_GROWTH_MAX:
        report.note("memory in use grew", f"by {report.resident_growth} bytes")
    return report


def _run_round(
    report: Report,
    folder: Path,
    number: int,
    steps: int,
    until: float | None,
    scenarios: Mapping[Scenario, int],
) -> None:
    report.where = f"round {number}"
    chance = random.Random(report.seed << 32 | number)
    settings = VARIANTS[number % len(VARIANTS)]
    with _logging_to(report):
        try:
            trio.run(
                _round,
                report,
                folder,
                chance,
                steps,
                until,
                settings,
                scenarios,
                clock=trio.testing.MockClock(rate=1.0),
                instruments=[report.watch],
            )
        except Exception as exc:  # noqa: BLE001 - any kind is what is looked for
            inner: BaseException = exc
            while isinstance(inner, BaseExceptionGroup):
                inner = inner.exceptions[0]
            told = "".join(traceback.format_exception(inner))
            report.note(f"a server ended: {kind_of(inner)}", told)


async def _round(
    report: Report,
    folder: Path,
    chance: random.Random,
    steps: int,
    until: float | None,
    settings: Mapping[str, str],
    scenarios: Mapping[Scenario, int],
) -> None:
    values = Values(chance)
    name, note, watch = report.where, report.note, report.watch
    weights = list(scenarios.values())
    async with open_client() as client, running(folder, values, note, watch, settings) as rig:
        probe = Probe(rig, client)
        await probe.prepare()
        await probe.check()
        handles = _handles()
        for step in range(steps):
            if until is not None and time.monotonic() >= until:
                break
            (scenario,) = chance.choices(list(scenarios), weights)
            values.edginess = chance.choice((0.0, 0.05, 0.3))
            watch.doing = scenario.__name__
            report.where = f"{name}, step {step}, {scenario.__name__}"
            await scenario(rig)
            await rig.hang_up()
            await probe.check()
            report.steps += 1
        watch.doing = "the end of a round"
        report.where = f"{name}, at its end"
        await rig.pass_time(75, step_s=5)
        await rig.check_nothing_left()
        _check_size(rig, handles, note)
        await probe.verify("while it ran")
        before = promised(rig, probe)
        killed = copy_files(folder)
        await last_words(rig)
    report.frames += rig.frames
    report.acknowledged += len(rig.answers.ledger)
    report.answers += rig.answers.counts
    report.where = f"{name}, opened again"
    await check_files(folder, rig, note)
    check_store(folder, note)
    # What was acknowledged while the servers stopped counts, too.
    after = before._replace(ledger=rig.answers.ledger)
    await open_again(folder, after, note, "after a restart")
    report.where = f"{name}, opened again as if it was killed"
    await open_again(killed, before, note, "after a kill")


def _check_size(rig: Rig, handles: int, note: Callable[[str, str], None]) -> None:
    """Check that a broker does not hold more than it should."""
    if len(rig.broker.locks):
        note("locks are left", f"{len(rig.broker.locks)} of them")
    gc.collect()
    channels = sum(type(each) is Channel for each in gc.get_objects())
    if channels > CHANNELS_MAX:
        note("connections are kept in memory", f"{channels} ends of them")
    # Every queue may have a file or two open.
    if (now := _handles()) > handles + 64 + 2 * len(rig.broker.store.queues):
        note("files or connections are left open", f"{handles} before, {now} after")


def _handles() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@contextmanager
def _logging_to(report: Report) -> Iterator[None]:
    handler = LogWatch(report.note)
    loggers = [logging.getLogger(name) for name in ("rmq", "trio")]
    levels = [logger.level for logger in loggers]
    propagate = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, level, is_handed_on in zip(loggers, levels, propagate, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = is_handed_on


def _never_answered_well(report: Report) -> list[str]:
    """Return the requests that were only ever refused, of which little is known then."""
    served = {str(int(code)) for code in REQUESTS}
    return sorted(
        code
        for code in {code for code, _ in report.answers}
        if not report.answers[code, ResponseCode.SUCCESS] and code.partition(" ")[2] in served
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz_servers")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=SEED, help="of all chance (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1_000_000, help="how many at most")
    parser.add_argument("--start", type=int, default=0, help="number of the first round")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a round (%(default)s)")
    options = parser.parse_args()

    def progress(report: Report) -> None:
        print(report, file=sys.stderr, flush=True)

    report = fuzz(
        rounds=options.rounds,
        steps=options.steps,
        seed=options.seed,
        seconds=options.seconds,
        start=options.start,
        progress=progress,
    )
    for finding in report.findings:
        kind = finding.partition("\n")[0]
        print(f"{report.counts[kind]} times: {finding}")
    print("requests that kept the event loop longest, by code:")
    print("\n".join(report.worst()))
    print("never answered with success:", ", ".join(_never_answered_well(report)))
    print(report)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
