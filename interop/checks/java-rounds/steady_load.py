"""The stock client as a load of the rounds: a Java process that sends all the time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from interop.support.java import last_words, running_java
from interop.support.java_client import DriverEndedError
from tests.ha.processes.load import TOPIC
from tests.ha.processes.rounds_account import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from interop.support.java_client import DriverKit
    from tests.ha.processes.rounds_account import Account

THREADS: Final = 8
_STOP_S: Final = 60.0
"""So long the sends that are under way may take, with the retries of the client."""
_CHUNK_BYTES: Final = 65_536


@final
class SteadyLoad:
    """A `DefaultMQProducer` with default settings and as many threads as our own load has."""

    def __init__(self, kit: DriverKit) -> None:
        self._kit = kit

    @asynccontextmanager
    async def running(
        self, nameserver: str, account: Account
    ) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """See `Load.running`."""
        arguments = nameserver, TOPIC, str(THREADS)
        program = self._kit.program("interop.SteadyProducer", arguments)
        log = program.home / "log"
        async with (
            running_java(program, log=log, talking=True) as process,
            trio.open_nursery() as nursery,
        ):
            sender = _Sender(process, account, log)
            nursery.start_soon(sender.listen)
            yield sender.stop
            nursery.cancel_scope.cancel()


@final
class _Sender:
    """The Java process, and what it says."""

    def __init__(self, process: trio.Process, account: Account, log: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self._output = process.stdout
        self._account = account
        self._log = log
        self._is_stopped = False
        self._has_ended = trio.Event()

    async def listen(self) -> None:
        """Note what became of each send, until the process ends."""
        rest = b""
        while chunk := await self._output.receive_some(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                note(line, self._account)
        if not self._is_stopped:
            raise DriverEndedError(f"the stock client said at last:\n{last_words(self._log)}")
        self._has_ended.set()

    async def stop(self) -> None:
        """Send no more, and wait for the answers."""
        self._is_stopped = True
        await self._input.aclose()
        with trio.fail_after(_STOP_S):
            await self._has_ended.wait()


def note(line: bytes, account: Account) -> None:
    """Put one line of SteadyProducer.java into the account."""
    nanoseconds, status, rest = line.split(b" ", 2)
    if status == b"failed":
        reason, _, _ = rest.partition(b" ")
        account.failed(reason.decode())
    else:
        # Java's clock and `time.monotonic` are the same one of the system.
        account.sent(Kind.PLAIN, rest, status.decode(), int(nanoseconds) / 1e9)
