"""`rmq top` as a person uses it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

from rmq.cli.common.exit_codes import ExitCode
from tests.cli.client_kit import DEADLINE_S, environment

if TYPE_CHECKING:
    from tests.cli.admin_kit import Rmq
    from tests.cli.client_kit import Processes


def read_until(leader: int, wanted: bytes) -> bytes:
    """Return what a terminal is sent, up to a text."""
    output, give_up_at = b"", time.monotonic() + DEADLINE_S
    while wanted not in output:
        ready, _, _ = select.select([leader], [], [], give_up_at - time.monotonic())
        assert ready, output
        output += os.read(leader, 65_536)
    return output


def test_it_shows_the_cluster_until_q(processes: Processes) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "rmq", "top", "-n", processes.nameserver],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**environment(), "TERM": "xterm-256color"},
    ) as process:
        os.close(follower)
        try:
            shown = read_until(leader, b"broker-a:0")
            assert b"1 broker " in shown
            os.write(leader, b"q")
            while process.poll() is None:
                if select.select([leader], [], [], 0.05)[0]:
                    try:
                        os.read(leader, 65_536)
                    except OSError:
                        break  # the other end is closed
            assert process.wait(DEADLINE_S) == ExitCode.OK
        finally:
            process.kill()
            os.close(leader)


def test_without_a_terminal_there_is_nothing_to_see(rmq: Rmq) -> None:
    code, _, errors = rmq("top")
    assert code == ExitCode.USAGE
    assert "scripts use `rmq cluster` and `rmq group list`" in errors
