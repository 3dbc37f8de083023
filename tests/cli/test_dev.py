"""`rmq dev` as a user meets it: a process, its output and its exit code."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from rmq.cli.exit_codes import ExitCode

DEADLINE_S = 60


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rmq", "dev", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def test_the_self_check_passes_and_ends_with_success() -> None:
    process = start("--check", "--port", "0")
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.OK
    assert re.search(r"remoting server listens on 127\.0\.0\.1:\d+", output)
    for serialization in ("JSON", "ROCKETMQ"):
        assert re.search(rf"{serialization} +GET_KV_CONFIG +SUCCESS", output)
        assert re.search(rf"{serialization} +1000 requests at once +all answered", output)
    assert output.endswith("self-check passed\n")
    assert errors == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stays_up_until_a_signal_and_then_ends_with_success(number: signal.Signals) -> None:
    process = start("--port", "0")
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Ctrl-C stops"):
                break
        assert process.poll() is None
        process.send_signal(number)
        output, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == ExitCode.OK
    assert output == "stopping\n"
    assert errors == ""


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--check", "--port", str(port))
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.UNAVAILABLE
    assert output == ""
    assert f"rmq: error: cannot listen on 127.0.0.1:{port}: Address already in use" in errors
    assert f"'sport = :{port}'" in errors


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["--port", "70000"], ExitCode.CONFIG, "70000 is not between 0", id="port"),
        pytest.param(["--port", "x"], ExitCode.USAGE, "invalid int value", id="not-a-number"),
        pytest.param(
            ["--host", "no.such.host.invalid"],
            ExitCode.UNAVAILABLE,
            "check the host name",
            id="host",
        ),
    ],
)
def test_bad_arguments_are_explained(arguments: list[str], code: ExitCode, message: str) -> None:
    process = start("--check", *arguments)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code
    assert message in errors
    assert "Traceback" not in errors
