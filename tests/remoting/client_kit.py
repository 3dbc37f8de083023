"""What the tests of the client side and of TLS share.

- `MemoryNetwork` is a connector whose connections are in memory, so that time can be virtual; a
  test plays the far end of each through `MemoryPeer`.
- `serving` runs a real server on a port of the system's choice.
- `within` puts a deadline on a test, `in_virtual_time` also replaces its clock by a virtual one.
- `cancelled_at_every_step` runs something again and again, cancelled one scheduler step later each
  time.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio
import trio.testing

from rmq.remoting.client import ClientConfig, RemotingClient, open_client
from rmq.remoting.codes import FLAG_RESPONSE, RequestCode, ResponseCode, Serialization
from rmq.remoting.command import Command, encode_frame
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.protocol import RequestType
from rmq.remoting.server import RemotingServer, ServerConfig
from rmq.remoting.transport import StreamTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    import pytest

    from rmq.errors import ClientError
    from rmq.remoting.channel import Channel
    from rmq.remoting.header import EmptyHeader, Header
    from rmq.remoting.request import Request
    from rmq.remoting.tls import TlsServer
    from rmq.remoting.transport import Transport

PEER: Final = "peer:9876"
ECHO: Final = RequestCode.HEART_BEAT
"""The code under which `echo_table` and `MemoryPeer.echo` send a body back."""
READY: Final = RequestCode.GET_BROKER_CONFIG
"""A second code, where a test needs one that is not `ECHO`."""


AsyncTest: TypeAlias = "Callable[..., Awaitable[None]]"


def within(seconds: float) -> Callable[[AsyncTest], AsyncTest]:
    """Give an async test so many seconds of its clock."""

    def decorate(test: AsyncTest) -> AsyncTest:
        @functools.wraps(test)
        async def bounded(**arguments: object) -> None:
            with trio.fail_after(seconds):
                await test(**arguments)

        return bounded

    return decorate


def in_virtual_time(seconds: float = 60) -> Callable[[AsyncTest], AsyncTest]:
    """Give an async test a clock that jumps ahead whenever everybody waits, and so many seconds of
    it.
    """

    def decorate(test: AsyncTest) -> AsyncTest:
        @within(seconds)
        @functools.wraps(test)
        async def on_virtual_clock(*, autojump_clock: object, **arguments: object) -> None:
            await test(**arguments)

        # pytest-trio takes the clock from the arguments of the test itself, so it must be one.
        signature = inspect.signature(test)
        clock = inspect.Parameter("autojump_clock", inspect.Parameter.KEYWORD_ONLY)
        on_virtual_clock.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), clock]
        )
        return on_virtual_clock

    return decorate


# ---- a network in memory -----------------------------------------------------------------------


class MemoryPeer:
    """The far end of a connection in memory, played by the test."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._decoder = FrameDecoder()
        self._commands: deque[Command] = deque()

    async def next_command(self) -> Command:
        """Wait for the next frame of the client; `EndOfChannel` when it has closed its end."""
        while not self._commands:
            data = await self._stream.receive_some(65_536)
            if not data:
                raise trio.EndOfChannel
            self._decoder.feed(bytes(data))
            self._commands.extend(self._decoder.take(1_000_000))
            assert self._decoder.error is None, self._decoder.error
        return self._commands.popleft()

    async def next_commands(self, count: int) -> list[Command]:
        return [await self.next_command() for _ in range(count)]

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def answer(
        self,
        command: Command,
        *,
        code: int = ResponseCode.SUCCESS,
        header: Header | None = None,
        body: bytes = b"",
        remark: str | None = None,
        serialization: Serialization | None = None,
    ) -> None:
        """Answer `command`, in its own serialization unless another is named."""
        await self.send(
            answer_frame(
                command.opaque,
                code=code,
                header=header,
                body=body,
                remark=remark,
                serialization=command.serialization if serialization is None else serialization,
            )
        )

    async def ask(
        self, code: RequestCode, opaque: int, *, flag: int = 0, body: bytes = b""
    ) -> None:
        """Send the client a request."""
        await self.send(request_frame(code, opaque, flag=flag, body=body))

    async def echo(self) -> None:
        """Answer every request with its body until the client closes its end."""
        with contextlib.suppress(trio.EndOfChannel, trio.BrokenResourceError):
            while True:
                command = await self.next_command()
                if not command.is_oneway:
                    await self.answer(command, body=command.body or b"")
        await self.close()

    async def close(self) -> None:
        await self._stream.aclose()

    async def wait_closed(self) -> None:
        """Wait until the client has closed its end; what it sends until then is dropped."""
        while await self._stream.receive_some(65_536):
            pass


def request_frame(code: RequestCode, opaque: int, *, flag: int = 0, body: bytes = b"") -> bytes:
    """Return the whole frame of a request."""
    return encode_frame(code=code, flag=flag, opaque=opaque, body_length=len(body)) + body


def answer_frame(
    opaque: int,
    *,
    code: int = ResponseCode.SUCCESS,
    header: Header | None = None,
    body: bytes = b"",
    remark: str | None = None,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """Return the whole frame of a response."""
    return (
        encode_frame(
            code=code,
            flag=FLAG_RESPONSE,
            opaque=opaque,
            header=header,
            remark=remark,
            body_length=len(body),
            serialization=serialization,
        )
        + body
    )


class MemoryNetwork:
    """A connector: every dial makes a connection in memory, whose far end `accept` returns."""

    def __init__(self, *, lockstep: bool = False) -> None:
        self.dials: list[str] = []
        """Addresses in the order they were dialled."""
        self.dial_s = 0.0
        """How long a dial takes."""
        self.failures: deque[OSError] = deque()
        """What the next dials fail with."""
        self.lockstep = lockstep
        """Whether a byte is sent only once it is read: a peer that does not read is then felt at
        once.
        """
        self._accepted, self._incoming = trio.open_memory_channel[MemoryPeer](1_000)

    async def __call__(self, address: str) -> Transport:
        self.dials.append(address)
        await trio.sleep(self.dial_s)
        if self.failures:
            raise self.failures.popleft()
        ours: trio.abc.Stream
        theirs: trio.abc.Stream
        if self.lockstep:
            ours, theirs = trio.testing.lockstep_stream_pair()
        else:
            ours, theirs = trio.testing.memory_stream_pair()
        self._accepted.send_nowait(MemoryPeer(theirs))
        return StreamTransport(ours, peer=address, local="memory")

    async def accept(self) -> MemoryPeer:
        return await self._incoming.receive()

    async def serve_echo(self) -> None:
        """Accept and echo on every connection until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon((await self.accept()).echo)


@contextlib.asynccontextmanager
async def memory_client(
    network: MemoryNetwork,
    config: ClientConfig | None = None,
    *,
    table: HandlerTable | None = None,
) -> AsyncIterator[tuple[RemotingClient, trio.Nursery]]:
    """Run a client on `network`, beside a nursery for its callers and peers.

    The nursery is outside the client, so its tasks see what happens when the client closes; it is
    cancelled at the end.
    """
    async with trio.open_nursery() as nursery:
        async with open_client(config, connector=network, table=table) as client:
            yield client, nursery
        nursery.cancel_scope.cancel()


class Outcome:
    """What became of a call that ran in a task of its own."""

    def __init__(self) -> None:
        self.answer: Command | None = None
        self.error: Exception | None = None
        self.at: float | None = None
        """When it ended, by the test's clock."""
        self._done = trio.Event()

    async def of(self, call: Callable[[], Awaitable[Command]]) -> None:
        try:
            self.answer = await call()
        except Exception as exc:  # noqa: BLE001 - whatever it is, the test will ask for it
            self.error = exc
        self.at = trio.current_time()
        self._done.set()

    async def wait(self) -> Outcome:
        await self._done.wait()
        return self


def start_call(
    nursery: trio.Nursery,
    client: RemotingClient,
    *,
    code: RequestCode = ECHO,
    body: bytes | None = None,
    timeout_s: float = 3.0,
    address: str = PEER,
) -> Outcome:
    """Call `address` in a task of its own."""
    outcome = Outcome()
    nursery.start_soon(
        outcome.of,
        functools.partial(client.request, address, code, body=body, timeout_s=timeout_s),
    )
    return outcome


class Collector:
    """An `on_outcome` that remembers what it was called with."""

    def __init__(self) -> None:
        self.outcomes: list[Command | ClientError] = []
        self._changed = trio.Event()

    def __call__(self, outcome: Command | ClientError) -> None:
        self.outcomes.append(outcome)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_count(self, count: int) -> None:
        while len(self.outcomes) < count:
            await self._changed.wait()


Resolved: TypeAlias = """
    tuple[Literal[socket.AddressFamily.AF_INET], socket.SocketKind, int, str, tuple[str, int]]
    | tuple[
        Literal[socket.AddressFamily.AF_INET6],
        socket.SocketKind,
        int,
        str,
        tuple[str, int, int, int] | tuple[int, bytes],
    ]
"""


class Names(trio.abc.HostnameResolver):
    """Answers for the name server: a host that is not in the table does not exist."""

    def __init__(self, **addresses: str) -> None:
        self._addresses = addresses

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Resolved]:
        address = self._addresses.get((host or b"").decode())
        if address is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        # What is an address already is not asked for here again.
        return await trio.socket.getaddrinfo(address, port, family, type, proto, flags)

    async def getnameinfo(
        self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int
    ) -> tuple[str, str]:
        raise NotImplementedError("no test asks for the name of an address")


# ---- real servers ------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(
    table: HandlerTable, config: ServerConfig | None = None, *, tls: TlsServer | None = None
) -> AsyncIterator[RemotingServer]:
    """Run a server on a port of the system's choice for the length of the block."""
    server = RemotingServer(table, config or ServerConfig(host="127.0.0.1"), tls=tls)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        yield server
        nursery.cancel_scope.cancel()


def address_of(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


def echo_table() -> HandlerTable:
    """A table that answers `ECHO` with the body of the request."""

    def echo(request: Request[EmptyHeader]) -> None:
        request.reply(body=request.body)

    table = HandlerTable()
    table.add(RequestType(code=ECHO), echo)
    return table


class RawServer:
    """A listening socket that says and does only what the test tells it to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    async def accept(self) -> trio.SocketStream:
        await trio.lowlevel.wait_readable(self._listener)
        sock, _ = self._listener.accept()
        sock.setblocking(False)
        return trio.SocketStream(trio.socket.from_stdlib_socket(sock))

    def __enter__(self) -> RawServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def reset(stream: trio.SocketStream) -> None:
    """End a connection with a TCP reset."""
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


class RecordingTransport:
    """A transport that notes the size of every write of the one it stands in front of."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.peer = inner.peer
        self.local = inner.local
        self.secure = inner.secure
        self.writes: list[int] = []

    async def receive(self) -> bytes:
        return await self._inner.receive()

    def send_nowait(self, buffers: Sequence[bytes | memoryview]) -> int:
        return self._note(self._inner.send_nowait(buffers))

    async def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        return self._note(await self._inner.send(buffers))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _note(self, sent: int) -> int:
        if sent:
            self.writes.append(sent)
        return sent


# ---- what must hold afterwards -----------------------------------------------------------------


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines that rmq logged for an operator to see."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("rmq") and record.levelno >= logging.WARNING
    ]


def open_files() -> int:
    """Return how many file descriptors this process has open."""
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - a Path would open one more of them


def tasks_living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let the other tasks run until `condition` holds; the test's deadline bounds the wait."""
    while not condition():
        await trio.lowlevel.checkpoint()


class _CancelAfterSteps(trio.abc.Instrument):
    """Cancels a scope when so many steps have been made, by one task or by all."""

    def __init__(
        self, scope: trio.CancelScope, steps: int, task: trio.lowlevel.Task | None
    ) -> None:
        self._scope = scope
        self._steps_left = steps
        self._task = task

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._task is None or task is self._task:
            self._steps_left -= 1
            if self._steps_left == 0:
                self._scope.cancel()


async def cancelled_at_every_step(
    victim: Callable[[], Awaitable[object]],
    check: Callable[[], Awaitable[None]],
    *,
    of_all_tasks: bool = False,
) -> int:
    """Run `victim` until it gets through, cancelled one step later each time.

    Steps are those of the victim's own task, or those of all tasks, for a victim that has tasks of
    its own. `check` is called after every run. Returns how many runs were cancelled.
    """
    task = None if of_all_tasks else trio.lowlevel.current_task()
    cancelled = 0
    while True:
        with trio.CancelScope() as scope:
            instrument = _CancelAfterSteps(scope, cancelled + 1, task)
            trio.lowlevel.add_instrument(instrument)
            try:
                await victim()
            finally:
                trio.lowlevel.remove_instrument(instrument)
        await check()
        if not scope.cancelled_caught:
            return cancelled
        cancelled += 1


class EventLog:
    """A connection listener that remembers what it was told."""

    def __init__(self) -> None:
        self.opened: list[Channel] = []
        self.closed: list[tuple[Channel, str]] = []
        self.idle: list[Channel] = []

    def connection_opened(self, channel: Channel) -> None:
        self.opened.append(channel)

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self.closed.append((channel, reason))

    def connection_idle(self, channel: Channel) -> None:
        self.idle.append(channel)
