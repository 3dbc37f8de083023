"""What a run comes to: rates, percentiles, and what it cost on both sides."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of the load generator found out."""

    figures: dict[str, float]
    failures: dict[str, int] = field(default_factory=dict)
    """Answers other than success and how many of each."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the others do not exceed."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, int(rank) - 1)]


def percentiles_ms(latencies_s: list[float]) -> dict[str, float]:
    ordered = sorted(latencies_s)
    return {
        "p50_ms": percentile(ordered, 0.5) * 1e3,
        "p99_ms": percentile(ordered, 0.99) * 1e3,
        "p999_ms": percentile(ordered, 0.999) * 1e3,
        "max_ms": ordered[-1] * 1e3 if ordered else 0.0,
    }


class Process:
    """What the kernel says of a process, its threads included."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def cpu_s(self) -> float:
        """CPU seconds used so far, in user and kernel mode."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> tuple[float, float]:
        """Return resident memory, and the part of it that is not the page cache of files."""
        kib = {
            name: int(value.split()[0])
            for name, _, value in (
                line.partition(":")
                for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            )
            if name in ("VmRSS", "RssAnon")
        }
        return kib["VmRSS"] / 1024, kib["RssAnon"] / 1024

    def core_cpu_s(self) -> float | None:
        """CPU seconds that all processes used on its core, or None if it is not bound to one."""
        cores = os.sched_getaffinity(self.pid)
        if len(cores) != 1:
            return None
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name == f"cpu{min(cores)}":
                # Idle time and interrupts left out; stolen is what the machine itself did not get.
                user, nice, system, _, _, _, _, stolen = map(int, fields[:8])
                return (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")
        return None


class Watch:
    """Time and CPU from its making to its reading, of this process and of the broker."""

    def __init__(self, broker: Process) -> None:
        self._broker = broker
        self._core_cpu_s = broker.core_cpu_s()
        self._broker_cpu_s = broker.cpu_s()
        self._own_cpu_s = time.process_time()
        self.started_s = time.perf_counter()

    def read(self, messages: int) -> dict[str, float]:
        took_s = time.perf_counter() - self.started_s
        broker_cpu_s = self._broker.cpu_s() - self._broker_cpu_s
        figures = {
            "messages_per_s": messages / took_s,
            "cpu_us": broker_cpu_s / max(1, messages) * 1e6,
            "broker_cpu_share": broker_cpu_s / took_s,
            "load_cpu_share": (time.process_time() - self._own_cpu_s) / took_s,
        }
        core_cpu_s = self._broker.core_cpu_s()
        if core_cpu_s is not None and self._core_cpu_s is not None:
            others_cpu_s = core_cpu_s - self._core_cpu_s - broker_cpu_s
            figures["others_cpu_share"] = max(0.0, others_cpu_s / took_s)
        return figures
