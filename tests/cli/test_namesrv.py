"""`rmq namesrv` as an operator meets it: a process, its output and its exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from rmq.cli.common.exit_codes import ExitCode
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import GetKvConfigRequest, PutKvConfigRequest
from tests.nameserver.kit import frame
from tests.remoting.server_kit import parse_frame

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import RunHere
    from tests.remoting.server_kit import Frame

DEADLINE_S = 60


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rmq", "namesrv", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(home), "PYTHONUNBUFFERED": "1"},
    )


@pytest.fixture
def run(run_here: RunHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunHere:
    """Run what does not come to serve."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return partial(run_here, "namesrv")


@contextmanager
def up(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A nameserver process that has opened its port."""
    process = start(home, "--host", "127.0.0.1", "--port", "0", *arguments)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        listening = re.fullmatch(r"nameserver listens on 127\.0\.0\.1:(\d+)\n", first)
        assert listening is not None, first
        assert process.stdout.readline() == "The Name Server boot success. serializeType=JSON\n"
        yield process, int(listening[1])
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def ask(port: int, request: bytes) -> Frame:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        answer = connection.makefile("rb")
        length = answer.read(4)
        return parse_frame(length + answer.read(int.from_bytes(length, "big")))


def test_it_serves_while_nothing_reads_its_output(tmp_path: Path) -> None:
    with up(tmp_path, "--log-level", "debug") as (process, port):
        # Each is a line in the log, and 64 KiB of them fill the pipe.
        unknown = frame(RequestCode.SEND_MESSAGE)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            for _ in range(20):
                connection.sendall(unknown * 100)
                answer = ask(port, frame(RequestCode.GET_BROKER_CLUSTER_INFO))
                assert answer.code == ResponseCode.SUCCESS
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.OK
    assert log.count("no handler for SEND_MESSAGE") == 2_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_then_ends_with_success(
    tmp_path: Path, number: signal.Signals
) -> None:
    with up(tmp_path) as (process, port):
        answer = ask(port, frame(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert answer.body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
        with socket.create_connection(("127.0.0.1", port)):  # an open connection does not hold it
            process.send_signal(number)
            output, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == ExitCode.OK
        assert output == "stopping\n"
        assert all(" INFO " in line for line in errors.splitlines())


def test_hangup_reloads_settings_and_opens_the_log_file_again(tmp_path: Path) -> None:
    conf, log, moved = (tmp_path / name for name in ("namesrv.conf", "ns.log", "moved.log"))
    conf.write_text(f"logFile={log}\nlogFormat=json\n")
    with up(tmp_path, "-c", str(conf)) as (process, port):
        log.rename(moved)
        conf.write_text(f"logFile={log}\nlogFormat=json\norderMessageEnable=true\nlogLevel=debug\n")
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + DEADLINE_S
        while not (log.exists() and "reloaded" in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert ask(port, frame(RequestCode.GET_BROKER_CLUSTER_INFO)).code == ResponseCode.SUCCESS
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.OK
    lines = [json.loads(line) for path in (moved, log) for line in path.read_text().splitlines()]
    assert "rmq " in lines[0]["message"]
    assert {line["process"] for line in lines} == {f"nameserver@process-{process.pid}"}
    reloaded = next(line["message"] for line in lines if "reloaded" in line["message"])
    assert reloaded == "settings reloaded, in force: logLevel, orderMessageEnable"


def test_the_kv_config_survives_a_kill(tmp_path: Path) -> None:
    put = PutKvConfigRequest(namespace="n", key="k", value="v")
    with up(tmp_path) as (process, port):
        assert ask(port, frame(RequestCode.PUT_KV_CONFIG, put)).code == ResponseCode.SUCCESS
        process.kill()
    assert (tmp_path / "namesrv" / "kvConfig.json").is_file()
    get = GetKvConfigRequest(namespace="n", key="k")
    with up(tmp_path) as (_, port):
        assert ask(port, frame(RequestCode.GET_KV_CONFIG, get)).fields == {"value": "v"}


def test_settings_come_from_the_file_and_the_command_line(run: RunHere, tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=1234\norderMessageEnable=true\nserverWorkerThreads=16\n")
    code, output, errors = run("-c", str(conf), "--port", "4321", "-p")
    lines = output.splitlines()
    assert code == ExitCode.OK
    assert "listenPort=4321" in lines
    assert "orderMessageEnable=true" in lines
    assert f"configStorePath={conf}" in lines
    assert f"kvConfigPath={tmp_path / 'namesrv' / 'kvConfig.json'}" in lines
    assert "these settings have no meaning here: serverWorkerThreads" in errors
    assert not (tmp_path / "namesrv").exists()


def test_all_that_is_wrong_with_a_file_is_named_with_its_lines(
    run: RunHere, tmp_path: Path
) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("# mine\nlistenPrt=1\n\norderMessageEnable=maybe\n")
    code, output, errors = run("-c", str(conf))
    assert (code, output) == (ExitCode.CONFIG, "")
    assert f"{conf}:2: listenPrt: is not a known setting; did you mean listenPort?" in errors
    assert f"{conf}:4: orderMessageEnable: 'maybe' is neither true nor false" in errors
    assert "Traceback" not in errors


def test_a_port_in_use_is_named_with_what_to_do(run: RunHere) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output, errors = run("--host", "127.0.0.1", "--port", str(port))
    assert (code, output) == (ExitCode.UNAVAILABLE, "")
    # A line about the limit of open files may come before, where that was raised.
    assert (
        f"rmq: error: cannot listen on 127.0.0.1:{port}: Address already in use\nhint: " in errors
    )
    assert f"'sport = :{port}'" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--port", "70000"], "listenPort: 70000 is not between 0", id="port"),
        pytest.param(["--port", "x"], "command line: listenPort: 'x' is not", id="not-a-number"),
        pytest.param(["-c", "no.conf"], "no.conf: cannot be read: No such file", id="no-file"),
    ],
)
def test_bad_arguments_are_explained(run: RunHere, arguments: list[str], message: str) -> None:
    code, _, errors = run(*arguments)
    assert code == ExitCode.CONFIG
    assert message in errors
    assert "Traceback" not in errors


def test_a_damaged_kv_config_stops_the_start_and_says_what_to_do(
    run: RunHere, tmp_path: Path
) -> None:
    kv = tmp_path / "namesrv" / "kvConfig.json"
    kv.parent.mkdir()
    kv.write_text('{"configTable":{')
    code, _, errors = run("--port", "0")
    assert code == ExitCode.CONFIG
    assert str(kv) in errors
    assert "hint: repair it or restore a copy" in errors
    assert "Traceback" not in errors
