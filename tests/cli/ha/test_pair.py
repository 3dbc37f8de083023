"""`rmq ha` against real brokers: mode, comparison and a change of roles under `rmq dev`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

DEADLINE_S = 60


class Dev:
    """A running `rmq dev`."""

    def __init__(self, process: subprocess.Popen[str], output: str) -> None:
        self.process = process
        self.output = output
        roles = r"^(nameserver|master|slave) +(127\.0\.0\.1:\d+)(?:  data in .*/(broker-\d))?$"
        found = re.findall(roles, output, re.MULTILINE)
        self.addresses = {role: address for role, address, _ in found}
        self.folders = {role: folder for role, _, folder in found if folder}


@contextmanager
def dev(data: Path) -> Iterator[Dev]:
    """Run it, its self-check done; it must end with success."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq", "dev", "--port", "0", "--data", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if line.startswith("Ctrl-C stops"):
                break
        assert "self-check passed" in output, output
        yield Dev(process, output)
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == ExitCode.OK
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=DEADLINE_S)


def test_a_pair_is_switched_compared_and_turned_round_and_stays_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ha(*arguments: str) -> str:
        code = main(["ha", *arguments])
        out, err = capsys.readouterr()
        assert code == ExitCode.OK, out + err
        return out

    def status(nameserver: str) -> dict[str, Any]:
        main(["ha", "status", "-n", nameserver, "--json"])
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    with dev(tmp_path) as run:
        nameserver = run.addresses["nameserver"]
        master, slave = run.addresses["master"], run.addresses["slave"]
        (broker,) = status(nameserver)["brokers"]
        assert broker["healthy"] is True
        end = broker["members"][0]["status"]["end"]
        assert f"is async from offset {end:,} on" in ha("switch", "async", "-b", master)
        assert "is sync from offset" in ha("switch", "sync", "-n", nameserver)
        assert f"the same: {master} and {slave}, from 0 to {end:,}" in ha("verify", "-b", slave)
        assert "nothing is to be cut" in ha("resync", "-b", slave)
        told = ha("promote", "-b", slave, "--yes")
        assert f"{slave} is master now: sync, epoch 2, from offset {end:,} on" in told
        assert f"nothing is lost: {master} ended at {end:,}" in told
        give_up_at = time.monotonic() + DEADLINE_S
        while not status(nameserver)["healthy"]:
            assert time.monotonic() < give_up_at
            time.sleep(0.2)
        (broker,) = status(nameserver)["brokers"]
        assert [member["address"] for member in broker["members"]] == [slave, master]
        assert f"the same: {slave} and {master}" in ha("verify", "-n", nameserver)

    with dev(tmp_path) as run:
        assert run.folders == {"master": "broker-2", "slave": "broker-1"}
        assert "mode sync, epoch 2; slave in sync" in run.output
