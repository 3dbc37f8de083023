"""`rmq consume` while a broker name has no master: it reads from the slave, and says so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.cli.common.exit_codes import ExitCode
from tests.cli.client_kit import DEADLINE_S, environment
from tests.ha.processes.load import TOPIC, wait_settled
from tests.ha.processes.pair import MASTER, SLAVE, running_pair

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


async def consume(nameserver: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(DEADLINE_S):
        return await trio.run_process(
            [sys.executable, "-m", "rmq", "consume", "-n", nameserver, TOPIC, *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environment(),
        )


@pytest.mark.parametrize(
    "arguments",
    [(), ("--from", "2020-01-01T00:00:00+00:00"), ("--group", "readers", "--from", "earliest")],
    ids=["all", "by time", "group"],
)
async def test_all_messages_are_read_from_a_slave(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    async with running_pair(tmp_path) as it:
        for _ in range(8):
            await it.producer.send_one(it.address(MASTER))
        await it.kill(MASTER)
        await wait_settled(it.client, it.address(SLAVE))
        nameserver = it.cluster.nameserver_address
        done = await consume(nameserver, *arguments)
        assert done.returncode == ExitCode.OK, done.stderr.decode()
        assert set(done.stdout.splitlines()) == set(it.producer.acknowledged)
        said = [line for line in done.stderr.decode().splitlines() if "slave" in line]
        assert len(said) == 1, done.stderr.decode()
        assert "broker broker-a has no master now: it is read from its slave at" in said[0]
        assert it.address(SLAVE) in said[0]
