"""Clients as processes: what they are asked, what they answer, and what becomes of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.client_processes import ClientEndedError, ClientKind, running_client
from benchmarks.client_work import Load, Meter

if TYPE_CHECKING:
    from pathlib import Path

LOAD = Load(
    work="send", nameserver="127.0.0.1:9876", topic="T", group="g", seconds=0.0, at_once=3, batch=7
)

SERVING = """
import sys
from benchmarks.broker_load.figures import Outcome
from benchmarks.client_work import serve

def work(load):
    print("a word to nobody")
    if load.topic == "bad":
        raise ValueError("no such topic")
    return Outcome({"messages": float(load.at_once * load.batch)}, {"busy": 2})

serve({"send": work})
"""


def python(code: str) -> ClientKind:
    return ClientKind("some client", (sys.executable, "-c", code), run_in_s=0.0)


def test_a_client_does_one_load_after_the_other(tmp_path: Path) -> None:
    with running_client(python(SERVING), tmp_path / "client") as client:
        for _ in range(2):
            outcome = client.run(LOAD)
            assert outcome.figures == {"messages": 21.0}
            assert outcome.failures == {"busy": 2}


def test_what_a_load_fails_with_is_told_and_the_client_goes_on(tmp_path: Path) -> None:
    bad = Load(work="send", nameserver="", topic="bad", group="g", seconds=0.0)
    with running_client(python(SERVING), tmp_path / "client") as client:
        with pytest.raises(RuntimeError, match="some client, send: ValueError: no such topic"):
            client.run(bad)
        client.run(LOAD)


def test_a_client_that_ends_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    ending = "import sys; sys.stdin.readline(); sys.exit('out of breath')"
    with (
        running_client(python(ending), tmp_path / "client") as client,
        pytest.raises(ClientEndedError, match=r"ended with 1; it said:\nout of breath"),
    ):
        client.run(LOAD)


def test_a_client_that_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.client_processes.PATIENCE_S", 0.05)
    monkeypatch.setattr("benchmarks.client_processes._STOP_TIMEOUT_S", 0.05)
    silent = "import time; time.sleep(600)"
    with (
        running_client(python(silent), tmp_path / "client") as client,
        pytest.raises(ClientEndedError, match="does not answer"),
    ):
        client.run(LOAD)


def test_a_meter_counts_messages_latencies_and_failures() -> None:
    meter = Meter()
    meter.start()
    meter.latencies_s += [0.003, 0.001, 0.002]
    for _ in range(2):
        meter.failed(ValueError("no"))
    outcome = meter.stop(30)
    assert outcome.figures["messages"] == 30
    assert outcome.figures["messages_per_s"] > 0
    assert outcome.figures["p50_ms"] == pytest.approx(2.0)
    assert outcome.figures["max_ms"] == pytest.approx(3.0)
    assert outcome.failures == {"ValueError: no": 2}


def test_a_meter_without_requests_has_no_latencies() -> None:
    meter = Meter()
    meter.start()
    assert "p50_ms" not in meter.stop(1).figures
