"""`rmq dev` as a user meets it: processes, their output and their exit codes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rmq.cli.common.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import IO

    from tests.cli.conftest import RunHere

DEADLINE_S = 60


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rmq", "dev", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Ctrl-C goes to a whole process group, which must not be that of the tests.
        start_new_session=True,
    )


def told_at_the_end(errors: str) -> list[str]:
    """What was logged, but for the master's word that its slave, stopped first, is gone."""
    goodbye = re.compile(r"WARNING \S+ rmq\.ha\.link_status: slave broker-a:1 .* is gone: it")
    return [line for line in errors.splitlines() if not goodbye.search(line)]


def check_told(output: str, mode: str) -> None:
    """See that all of a self-check is there."""
    assert re.search(r"^nameserver +127\.0\.0\.1:\d+$", output, re.MULTILINE)
    (master,) = re.findall(r"^master +127\.0\.0\.1:(\d+) ", output, re.MULTILINE)
    (slave,) = re.findall(r"^slave +127\.0\.0\.1:(\d+) ", output, re.MULTILINE)
    assert int(slave) == int(master) + 10
    assert re.search(rf"^  mode {mode}, epoch 1; slave in sync", output, re.MULTILINE)
    assert re.search(rf"10000 messages sent +[\d,]+ per second, {mode}$", output, re.MULTILINE)
    assert re.search(r"replicated: lag .* the same on both, byte for byte$", output, re.MULTILINE)
    for role in ("master", "slave"):
        consumed = rf"10000 messages consumed +[\d,]+ per second, from the {role}$"
        assert re.search(consumed, output, re.MULTILINE)
    assert "\nself-check passed\n" in output


def stay_up_until(
    number: signal.Signals,
    *arguments: str,
    whole_group: bool,
    mode: str,
    first: Callable[[str, IO[str]], None] | None = None,
) -> None:
    """Run it until a signal comes when all is checked; it must end well and leave nobody behind.

    `first` is done before, with what was printed and what will be.
    """
    process = start("--port", "0", "--mode", mode, *arguments)
    try:
        assert process.stdout is not None
        before = ""
        for line in process.stdout:
            before += line
            if line.startswith("Ctrl-C stops"):
                break
        else:
            pytest.fail(f"it ended after {before!r}: {process.communicate(timeout=DEADLINE_S)[1]}")
        check_told(before, mode)
        if first is not None:
            first(before, process.stdout)
        assert process.poll() is None
        if whole_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        output, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == ExitCode.OK
    assert output == "stopping\n"
    # With the whole group the nameserver may be gone before the broker can leave it.
    is_told = not whole_group and first is None
    assert told_at_the_end(errors) == [] if is_told else "Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_the_self_check_ends_with_success_and_kept_data_serve_the_next_run(tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = start("--check", "--port", "0", "--mode", "async", "--data", str(data))
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.OK, errors
    check_told(output, "async")
    assert output.endswith("self-check passed\n")
    assert told_at_the_end(errors) == []
    check_kept(data)
    stay_up_until(signal.SIGINT, "--data", str(data), whole_group=False, mode="sync")
    check_kept(data)


def check_kept(data: Path) -> None:
    for broker in ("broker-1", "broker-2"):
        assert (data / broker / "broker.conf").exists()
        assert (data / broker / "store" / "config" / "topics.json").exists()
        assert not (data / broker / "store" / "abort").exists()


@pytest.mark.parametrize(
    ("number", "whole_group", "mode"),
    [
        pytest.param(signal.SIGINT, True, "sync", id="ctrl-c"),
        pytest.param(signal.SIGTERM, True, "async", id="terminate-group"),
    ],
)
def test_it_stays_up_until_a_signal_and_then_ends_with_success(
    number: signal.Signals, whole_group: bool, mode: str
) -> None:
    stay_up_until(number, whole_group=whole_group, mode=mode)


def kill_the_master_and_do_what_is_said(before: str, later: IO[str]) -> None:
    """The commands are run as they are printed."""
    (kill,) = re.findall(r"^  (kill -9 \d+) ", before, re.MULTILINE)
    subprocess.run(kill, shell=True, check=True)
    told = ""
    for line in later:
        told += line
        if line.startswith("Ctrl-C stops"):
            break
    assert "has ended (killed by signal 9): no broker takes messages." in told
    assert "has all that was answered SEND_OK." in told
    (promote,) = re.findall(r"^  (.* ha promote .*)$", told, re.MULTILINE)
    promoted = subprocess.run(promote, shell=True, capture_output=True, text=True, check=True)
    assert "is master now: sync, epoch 2" in promoted.stdout
    (produce,) = re.findall(r"^  (echo .* produce .*)$", before, re.MULTILINE)
    subprocess.run(produce, shell=True, check=True, capture_output=True)


def test_it_survives_its_master_and_says_what_to_do() -> None:
    stay_up_until(
        signal.SIGTERM,
        whole_group=False,
        mode="sync",
        first=kill_the_master_and_do_what_is_said,
    )


@pytest.mark.parametrize("option", ["--port", "--broker-port"])
def test_a_port_in_use_is_named_with_what_to_do(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        others = ["--port", "0"] if option != "--port" else []
        process = start("--check", *others, option, str(port))
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.UNAVAILABLE
    assert f"rmq: error: cannot listen on 127.0.0.1:{port}: Address already in use" in errors
    assert f"'sport = :{port}'" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["--port", "70000"], ExitCode.CONFIG, "70000 is not between 0", id="port"),
        pytest.param(
            ["--broker-port", "65530"], ExitCode.CONFIG, "no room for the slave's", id="slave"
        ),
        pytest.param(["--mode", "half"], ExitCode.USAGE, "is not one of", id="mode"),
        pytest.param(["--port", "x"], ExitCode.USAGE, "is not a valid integer", id="not-a-number"),
        pytest.param(["--data", "/dev/null/data"], ExitCode.CONFIG, "Not a directory", id="data"),
    ],
)
def test_bad_arguments_are_explained(
    run_here: RunHere, arguments: list[str], code: ExitCode, message: str
) -> None:
    ended_with, _, errors = run_here("dev", "--check", *arguments)
    assert ended_with == code
    assert message in errors
    assert "Traceback" not in errors


def test_a_host_that_is_not_found_is_explained() -> None:
    process = start("--check", "--port", "9876", "--host", "no.such.host.invalid")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.UNAVAILABLE
    assert "check the host name" in errors
    assert "Traceback" not in errors
