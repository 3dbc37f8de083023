"""What a client's process is asked for, and what it answers: one line of JSON each.

A process does one load after the other, for as long as its standard input is open: a client is as
warm as it would be in an application that runs for long. Only this module is known on both sides.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import TYPE_CHECKING

import msgspec

from benchmarks.broker_load.figures import Outcome, percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, for a while."""

    work: str
    """`send`, `pipeline`, `send_soon`, `batch`, `push`, `lite_pull`, `read_range` or `memory`."""
    nameserver: str
    topic: str
    group: str
    seconds: float
    at_once: int = 1
    """Tasks or threads that send, or sends under way."""
    batch: int = 1
    """Messages of a batch, or those a listener is given at a time."""
    body_bytes: int = 128
    messages: int = 0
    """How many there are to consume."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    figures: dict[str, float] = {}
    failures: dict[str, int] = {}
    error: str | None = None
    """Why there are no figures."""

    def outcome(self, who: str) -> Outcome:
        """Return the figures; raise RuntimeError if there are none."""
        if self.error is not None:
            raise RuntimeError(f"{who}: {self.error}")
        return Outcome(self.figures, self.failures)


class Meter:
    """Time and CPU of this process from its start to its stop, and how long each request took."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.failures: dict[str, int] = {}
        self._cpu_s = 0.0
        self.started_s = 0.0

    def start(self) -> float:
        """Let the time run from now on, which is returned."""
        self._cpu_s = time.process_time()
        self.started_s = time.perf_counter()
        return self.started_s

    def failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self.failures[text] = self.failures.get(text, 0) + 1

    def stop(self, messages: int) -> Outcome:
        """Return what so many messages took."""
        took_s = time.perf_counter() - self.started_s
        cpu_s = time.process_time() - self._cpu_s
        figures = {
            "messages": float(messages),
            "messages_per_s": messages / took_s,
            "cpu_us": cpu_s / max(1, messages) * 1e6,
            "client_cpu_share": cpu_s / took_s,
        }
        if self.latencies_s:
            ordered = sorted(self.latencies_s)
            figures["p50_ms"] = percentile(ordered, 0.5) * 1e3
            figures["p99_ms"] = percentile(ordered, 0.99) * 1e3
            figures["max_ms"] = ordered[-1] * 1e3
        return Outcome(figures, self.failures)


def serve(works: Mapping[str, Callable[[Load], Outcome]]) -> None:
    """Do what standard input asks for until it ends."""
    decode = msgspec.json.Decoder(Load).decode
    # A library that prints must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with answers:
        for line in sys.stdin.buffer:
            load = decode(line)
            try:
                outcome = works[load.work](load)
            except Exception as exc:  # noqa: BLE001 - told to who asked
                traceback.print_exc()
                answer = Answer(error=f"{type(exc).__name__}: {exc}")
            else:
                answer = Answer(figures=outcome.figures, failures=outcome.failures)
            answers.write(msgspec.json.encode(answer) + b"\n")
