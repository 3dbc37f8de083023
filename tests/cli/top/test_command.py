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


def is_ready(descriptor: int, wait_s: float) -> bool:
    """Return whether there is something to read, after a while at most."""
    # Not `select.select`: a descriptor may be above 1,023.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, wait_s) * 1000))


def read_until(leader: int, wanted: bytes) -> bytes:
    """Return what a terminal is sent, up to a text."""
    output, give_up_at = b"", time.monotonic() + DEADLINE_S
    while wanted not in output:
        assert is_ready(leader, give_up_at - time.monotonic()), output
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
                if is_ready(leader, 0.05):
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
