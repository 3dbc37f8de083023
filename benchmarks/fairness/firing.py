"""Fires a scenario beside a probe, and says how long others were delayed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from benchmarks.broker_load.answers import AnswerCutter
from benchmarks.broker_load.figures import Outcome, percentile
from benchmarks.broker_load.peer import HungUpError, NoAnswerError, connect, read
from benchmarks.broker_servers import LOAD_CORE, spawn
from benchmarks.fairness.scenario import Target

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from benchmarks.fairness.scenario import Scenario
    from benchmarks.fairness.site import RunningSite

BEFORE_S: Final = 0.2
AFTER_S: Final = 0.5
"""How long the probe is watched before a request is made and after its last answer."""
PATIENCE_S: Final = 120.0

_KINDS: Final = {Target.BROKER: "send", Target.NAMESERVER: "route"}


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe did for a while."""

    taken: list[tuple[float, float]]
    """Beginning and length of each request that was answered well."""
    refused: int
    failures: dict[str, int]

    @property
    def took_s(self) -> list[float]:
        return [took_s for _, took_s in self.taken]


class Probe:
    """The process that does small things at one server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked: IO[bytes] = process.stdin
        self._reports: IO[bytes] = process.stdout

    def taken(self) -> list[tuple[float, float]]:
        """Return beginning and length of what was done since the last call; nothing is refused."""
        report = self.report()
        if report.failures:
            raise NoAnswerError(f"a probe was refused: {report.failures}")
        return report.taken

    def report(self) -> ProbeReport:
        """Return what was done since the last call."""
        self._asked.write(b"\n")
        self._asked.flush()
        line = self._reports.readline()
        if not line:
            raise NoAnswerError("the probe ended: the server hung up, or is silent")
        report = json.loads(line)
        taken = [(began_s, took_s) for began_s, took_s in report["taken"]]
        return ProbeReport(taken, report["refused"], report["failures"])


@contextmanager
def probing(site: RunningSite, target: Target) -> Iterator[Probe]:
    """Probe a server for the length of a block."""
    with probing_port(site.port(target), target) as probe:
        yield probe


@contextmanager
def probing_port(port: int, target: Target) -> Iterator[Probe]:
    """Probe the server behind a port."""
    process = spawn(
        [sys.executable, "-m", "benchmarks.fairness.probe", _KINDS[target], str(port)],
        core=LOAD_CORE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        probe = Probe(process)
        probe.taken()
        yield probe
    finally:
        process.kill()
        process.wait()


def fire(site: RunningSite, scenario: Scenario, probe: Probe) -> Outcome:
    """Make the request once, and return how long probes took meanwhile."""
    frames = scenario.build(site)
    data = b"".join(frames)
    time.sleep(BEFORE_S)
    probe.taken()
    with connect(site.port(scenario.target)) as sock:
        time.sleep(BEFORE_S)
        began_s = time.perf_counter()
        try:
            sock.sendall(data)
            failures = _await(sock, len(frames)) if scenario.awaits_answers else {}
        except (ConnectionError, HungUpError):
            if not scenario.may_be_cut:
                raise
            failures = {"the server ended the connection": 1}
        request_s = time.perf_counter() - began_s
        if not scenario.hangs_up:
            time.sleep(AFTER_S)
    if scenario.hangs_up:
        time.sleep(AFTER_S)
    delays = sorted(took_s for _, took_s in probe.taken())
    return Outcome(
        {
            "worst_ms": delays[-1] * 1e3 if delays else PATIENCE_S * 1e3,
            "p999_ms": percentile(delays, 0.999) * 1e3,
            "p50_ms": percentile(delays, 0.5) * 1e3,
            "probes": float(len(delays)),
            "took_s": request_s,
        },
        failures,
    )


def _await(sock: socket.socket, count: int) -> dict[str, int]:
    """Wait for this number of answers; return the remarks of those that were no success."""
    cutter = AnswerCutter()
    deadline_s = time.perf_counter() + PATIENCE_S
    while count > 0:
        if time.perf_counter() > deadline_s:
            raise NoAnswerError(f"{count} answers did not come within {PATIENCE_S:g} s")
        count -= len(cutter.opaques(read(sock)))
    return dict(cutter.failures)
