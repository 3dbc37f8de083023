"""Clients of the C++ library, each in a process of its own (`cpp_driver`)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final, final

import msgspec
import trio

from tests.e2e.cpp_orders import (
    Answer,
    Arrival,
    Identity,
    Message,
    Order,
    Pull,
    Received,
    Role,
    Send,
    SendMode,
    Sent,
    Stop,
)
from tests.e2e.waiting import DEADLINE_S, wait_until
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ROOT: Final = ROOT
_ANSWER_S: Final = 60.0
_READ_BYTES: Final = 64 * 1024


def why_missing() -> str | None:
    """Return why the library cannot be used here; None if it can."""
    attempt = subprocess.run(
        [sys.executable, "-c", "import rocketmq.client"], capture_output=True, text=True, timeout=60
    )
    if attempt.returncode == 0:
        return None
    said = attempt.stderr.strip().splitlines() or [f"exit code {attempt.returncode}"]
    return f"the C++ client (rocketmq 0.4.4 from PyPI, for Linux on x86_64) is missing: {said[-1]}"


@final
class Driver:
    """A process that is a client. `run` it in a nursery; it is killed when that is cancelled."""

    def __init__(self, name: str, identity: Identity, folder: Path) -> None:
        self.name = name
        self.arrived: list[Received] = []
        self._identity = identity
        self._folder = folder
        self._log = folder / "stderr"
        self._process: trio.Process | None = None
        self._send_answer, self._answers = trio.open_memory_channel[Answer](1)
        self._is_expected_to_end = False

    async def run(self, *, task_status: trio.TaskStatus[Driver]) -> None:
        self._folder.mkdir()
        with self._log.open("wb") as log:
            self._process = process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "tests.e2e.cpp_driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # The library logs, and broadcast consumers keep their offsets, in the home folder.
                env={**os.environ, "PYTHONPATH": str(_ROOT), "HOME": str(self._folder)},
                cwd=_ROOT,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            await process.stdin.send_all(msgspec.json.encode(self._identity) + b"\n")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, process.stdout)
                await self._answer()
                task_status.started(self)
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                await process.stdin.aclose()
                await process.stdout.aclose()

    def library_log(self) -> str:
        """Return what the library has logged so far."""
        logs = (self._folder / "logs" / "rocketmq-cpp").iterdir()
        return "".join(log.read_text(errors="replace") for log in logs)

    async def tell(self, order: Order) -> Answer:
        """Give an order and return the answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        await self._process.stdin.send_all(msgspec.json.encode(order) + b"\n")
        answer = await self._answer()
        assert not answer.error, f"{self.name}: {answer.error}"
        return answer

    async def stop(self) -> None:
        """Let it say goodbye."""
        self._is_expected_to_end = True
        await self.tell(Stop())

    async def kill(self) -> None:
        """End it without a goodbye."""
        assert self._process is not None
        self._is_expected_to_end = True
        self._process.kill()
        await self._process.wait()

    async def _answer(self) -> Answer:
        with trio.move_on_after(_ANSWER_S):
            return await self._answers.receive()
        raise AssertionError(f"{self.name} did not answer within {_ANSWER_S:g} s")

    async def _read(self, lines: trio.abc.ReceiveStream) -> None:
        """Sort what it says into answers and messages, until it ends."""
        decoder = msgspec.json.Decoder(Answer | Arrival)
        rest = b""
        async with self._send_answer:
            while chunk := await lines.receive_some(_READ_BYTES):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    said = decoder.decode(line)
                    if isinstance(said, Arrival):
                        self.arrived.append(said.message)
                    else:
                        await self._send_answer.send(said)
        if not self._is_expected_to_end:
            raise AssertionError(f"{self.name} ended: {self._log.read_text(errors='replace')}")


@final
class Producer:
    """Sends. Unless a test says otherwise, that has to work."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def send(self, messages: Iterable[Message], mode: SendMode = SendMode.SYNC) -> list[Sent]:
        sent = await self.try_to_send(messages, mode)
        failed = [each.error for each in sent if each.error]
        assert not failed, f"{len(failed)} of {len(sent)} messages were not sent: {failed[0]}"
        return sent

    async def try_to_send(
        self, messages: Iterable[Message], mode: SendMode = SendMode.SYNC
    ) -> list[Sent]:
        answer = await self._driver.tell(Send(mode, list(messages)))
        return answer.sent


@final
class PushConsumer:
    """Is given messages by the library."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def arrived(self) -> list[Received]:
        """All messages, in the order in which it was given them."""
        return self._driver.arrived

    @property
    def bodies(self) -> list[str]:
        return [message.body for message in self.arrived]

    def notices(self) -> int:
        """Return how often a broker told it that its group has changed."""
        return self._driver.library_log().count("notifyConsumerIdsChanged:")

    async def wait_for(self, bodies: Iterable[str], *, deadline_s: float = DEADLINE_S) -> None:
        """Return when each of these messages came at least once."""
        wanted = set(bodies)

        def missing() -> set[str]:
            return wanted.difference(self.bodies)

        await wait_until(
            f"{self._driver.name} to get {len(wanted)} messages",
            lambda: not missing(),
            deadline_s=deadline_s,
            otherwise=lambda: f"{len(missing())} are missing: {sorted(missing())[:20]}",
        )

    async def stop(self) -> None:
        await self._driver.stop()

    async def kill(self) -> None:
        await self._driver.kill()


@final
class PullConsumer:
    """Asks for messages."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def pull(self, batch: int = 32) -> list[Received]:
        """Return all that came since the last time, queue by queue."""
        answer = await self._driver.tell(Pull(batch))
        return answer.pulled


@final
class Clients:
    """Starts clients of one nameserver in a nursery; they end with it at the latest."""

    def __init__(self, nursery: trio.Nursery, nameservers: str, folder: Path) -> None:
        self._nursery = nursery
        self._nameservers = nameservers
        self._folder = folder
        self._count = 0

    async def producer(self, *, send_timeout_ms: int = 10_000) -> Producer:
        identity = Identity(
            role=Role.PRODUCER,
            nameservers=self._nameservers,
            group="producers",
            send_timeout_ms=send_timeout_ms,
        )
        return Producer(await self._start(identity))

    async def push_consumer(
        self,
        topic: str,
        group: str,
        *,
        expression: str = "*",
        orderly: bool = False,
        broadcasting: bool = False,
        refusals: dict[str, int] | None = None,
        reads_properties: tuple[str, ...] = (),
    ) -> PushConsumer:
        identity = Identity(
            role=Role.PUSH_CONSUMER,
            nameservers=self._nameservers,
            group=group,
            topic=topic,
            expression=expression,
            orderly=orderly,
            broadcasting=broadcasting,
            refusals=refusals or {},
            reads_properties=reads_properties,
        )
        return PushConsumer(await self._start(identity))

    async def pull_consumer(
        self,
        topic: str,
        group: str,
        *,
        expression: str = "*",
        reads_properties: tuple[str, ...] = (),
    ) -> PullConsumer:
        identity = Identity(
            role=Role.PULL_CONSUMER,
            nameservers=self._nameservers,
            group=group,
            topic=topic,
            expression=expression,
            reads_properties=reads_properties,
        )
        return PullConsumer(await self._start(identity))

    async def _start(self, identity: Identity) -> Driver:
        self._count += 1
        name = f"{identity.role.value} {self._count}"
        driver = Driver(name, identity, self._folder / name.replace(" ", "-"))
        await self._nursery.start(driver.run)
        return driver
