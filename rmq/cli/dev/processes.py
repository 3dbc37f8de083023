"""Child processes of `rmq dev`: each runs one `rmq` command and says when it is up."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Sequence

READY: Final = "boot success"
STOP_S: Final = 12.0
"""How long a child may take to stop before it is killed."""
_PORTS: Final = range(10_000, 32_000)
"""Free ports are taken from here: below those that systems give to outgoing connections."""
_PORT_TRIES: Final = 200
_RESERVE_S: Final = 1.0
"""Within this time a connection to an own port is made; it takes microseconds."""


class ChildFailedError(RmqError):
    """A child process ended without being told to."""

    def __init__(self, name: str, exit_code: int) -> None:
        super().__init__(f"the {name} ended with exit code {exit_code}")
        self.exit_code = exit_code


class Child:
    """A running `rmq` command. What it logs goes to our own standard error."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.arguments = [sys.executable, "-m", "rmq", *arguments]
        self._process: trio.Process | None = None
        self._is_stopping = False
        self._was_told = False
        self.has_served = False

    @property
    def pid(self) -> int:
        """The number of the process, which must have been started."""
        assert self._process is not None, f"the {self.name} was not started"
        return self._process.pid

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until it ends; `started` when it serves. Raises `ChildFailedError`."""
        process = await trio.lowlevel.open_process(self.arguments, stdout=subprocess.PIPE)
        self._process = process
        assert process.stdout is not None
        try:
            seen = b""
            while READY.encode() not in seen:
                chunk = await process.stdout.receive_some()
                if not chunk:
                    raise ChildFailedError(self.name, await process.wait())
                seen += chunk
            self.has_served = True
            task_status.started()
            # The output is not used, but a full pipe would stop the child.
            while await process.stdout.receive_some():
                pass
            exit_code = await process.wait()
            # A second signal may kill it while it is stopping.
            if not self._is_stopping or exit_code not in (0, -signal.SIGTERM):
                raise ChildFailedError(self.name, exit_code)
        finally:
            with trio.CancelScope(shield=True):
                await self._end(process)
                await process.stdout.aclose()

    def expect_end(self) -> None:
        """Expect the process to end from now on."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Tell it to stop, and wait until it has; it is killed if that takes too long."""
        self.expect_end()
        if self._process is not None:
            await self._end(self._process)

    async def _end(self, process: trio.Process) -> None:
        if process.returncode is None:
            if not self._was_told:
                self._was_told = True
                process.terminate()
            with trio.move_on_after(STOP_S):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


def free_port(host: str, *offsets: int) -> int:
    """Return a free port whose neighbours at `offsets` are free, too, and reserve all of them."""
    for port in random.sample(_PORTS, _PORT_TRIES):
        if all(_reserve(host, port + offset) for offset in (0, *offsets)):
            return port
    raise RmqError(f"no free ports at {host}")


def _reserve(host: str, port: int) -> bool:
    """Keep others off a port until a child listens on it; return whether it was free.

    The end of a connection that closes first stays in TIME-WAIT for a minute. In that time the
    system refuses its port to sockets without SO_REUSEADDR, as the first one here; servers set
    that option and can listen.
    """
    try:
        with socket.socket() as probe:
            probe.bind((host, port))
        with socket.create_server((host, port)) as listener:
            listener.settimeout(_RESERVE_S)
            with socket.create_connection((host, port), _RESERVE_S) as dialled:
                accepted, _ = listener.accept()
                accepted.close()
                dialled.recv(1)
    except (OSError, OverflowError):
        return False
    return True
