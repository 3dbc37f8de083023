"""What the tests of the serving side share: a running server, and peers that speak frames by hand.

A `Peer` knows nothing of our decoder: it reads frames with `struct`, `json` and the declared layout
of the binary header, so what a test sees is what is on the wire. It reaches the server over memory
(`Served.attach`, with virtual time), over a pair of connected sockets whose writes are recorded
(`Served.attach_recorded`) or over TCP (`Served.dial`).

Every block of `serving` has a deadline, so a test that waits in vain fails instead of hanging.
"""

from __future__ import annotations

import json
import logging
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio
import trio.testing

from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.header import EmptyHeader, Header, Int32
from rmq.remoting.layout import BinaryHeader
from rmq.remoting.protocol import RequestType
from rmq.remoting.server import RemotingServer, ServerConfig
from rmq.remoting.transport import SocketTransport, StreamTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    import pytest

    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.remoting.endpoint import ConnectionListener
    from rmq.remoting.groups import GroupStatistics
    from rmq.remoting.request import Request

SEND: Final = RequestCode.SEND_MESSAGE_V2
PULL: Final = RequestCode.PULL_MESSAGE
QUERY: Final = RequestCode.QUERY_MESSAGE
PING: Final = RequestCode.GET_BROKER_RUNTIME_INFO
"""Served at once by every table of `table_with_ping`."""

_PING_OPAQUE: Final = 2**31 - 1
_REAL_LIMIT_S: Final = 5.0
_VIRTUAL_LIMIT_S: Final = 3_600.0


class Ask(Header, frozen=True, kw_only=True):
    """The request header of these tests."""

    number: Int32
    text: str | None = None


class Told(Header, frozen=True, kw_only=True):
    """The response header of these tests."""

    number: Int32
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame as it was on the wire."""

    serialization: int
    code: int
    flag: int
    opaque: int
    language: str | int | None
    version: int | None
    remark: str | None
    fields: dict[str, str] | None
    body: bytes

    @property
    def number(self) -> int:
        assert self.fields is not None, f"{self} has no fields"
        return int(self.fields["number"])


def ask(
    code: int = SEND,
    opaque: int = 0,
    *,
    number: int | None = None,
    text: str | None = None,
    body: bytes = b"",
    oneway: bool = False,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """Return a request; its number is its opaque unless told otherwise."""
    header = Ask(number=opaque if number is None else number, text=text)
    flag = FLAG_ONEWAY if oneway else 0
    return (
        encode_frame(
            code=code,
            flag=flag,
            opaque=opaque,
            header=header,
            body_length=len(body),
            serialization=serialization,
        )
        + body
    )


def answer(opaque: int, *, code: int = 0, header: Header | None = None, body: bytes = b"") -> bytes:
    """Return a response."""
    return (
        encode_frame(
            code=code, flag=FLAG_RESPONSE, opaque=opaque, header=header, body_length=len(body)
        )
        + body
    )


def raw_frame(header: bytes, body: bytes = b"", *, serialization: int = 0) -> bytes:
    """Return a frame around any header bytes."""
    length = 4 + len(header) + len(body)
    return struct.pack(">iI", length, serialization << 24 | len(header)) + header + body


def table_with_ping() -> HandlerTable:
    table = HandlerTable()

    def pong(request: Request[EmptyHeader]) -> None:
        request.reply()

    table.add(RequestType(code=PING), pong)
    return table


def echo(request: Request[Ask]) -> None:
    """A plain handler: answers with what it was asked."""
    request.reply(Told(number=request.header.number, text=request.header.text), body=request.body)


class Holder:
    """A plain handler that keeps every request unanswered, for the test to answer."""

    def __init__(self) -> None:
        self.requests: list[Request[Ask]] = []

    def __call__(self, request: Request[Ask]) -> None:
        request.defer()
        self.requests.append(request)

    @property
    def numbers(self) -> list[int]:
        return [request.header.number for request in self.requests]


class Gate:
    """A coroutine handler that answers a request once its number has been let through."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.inside = 0
        self.inside_max = 0
        self._open: dict[int, trio.Event] = {}

    async def __call__(self, request: Request[Ask]) -> None:
        number = request.header.number
        self.entered.append(number)
        self.inside += 1
        self.inside_max = max(self.inside, self.inside_max)
        try:
            await self._event(number).wait()
        finally:
            self.inside -= 1
        request.reply(Told(number=number))

    def let(self, *numbers: int) -> None:
        for number in numbers:
            self._event(number).set()

    def _event(self, number: int) -> trio.Event:
        return self._open.setdefault(number, trio.Event())


class Peer:
    """The far end of one connection."""

    def __init__(self, stream: trio.abc.Stream, channel: Channel | None = None) -> None:
        self.stream = stream
        self._channel = channel
        self._data = bytearray()
        self._ended = False

    @property
    def channel(self) -> Channel:
        """The server's end; only of attached peers."""
        assert self._channel is not None, "a peer that dialled does not know its channel"
        return self._channel

    async def send(self, *frames: bytes) -> None:
        """Send everything in one piece."""
        await self.stream.send_all(b"".join(frames))

    async def read(self) -> Frame:
        """Return the next frame; fail at the end of the stream."""
        frame = await self._read()
        assert frame is not None, "the server closed the connection"
        return frame

    async def read_many(self, count: int) -> list[Frame]:
        return [await self.read() for _ in range(count)]

    async def read_numbers(self, count: int) -> list[int]:
        return [frame.number for frame in await self.read_many(count)]

    async def read_to_end(self) -> list[Frame]:
        """Return what still comes until the server closes the connection."""
        frames: list[Frame] = []
        while (frame := await self._read()) is not None:
            frames.append(frame)
        assert not self._data, "the server closed in the middle of a frame"
        return frames

    async def request(self, frame: bytes) -> Frame:
        await self.send(frame)
        return await self.read()

    async def ping(self) -> list[Frame]:
        """Send a request that is answered at once; return what came before its answer."""
        await self.send(ask(PING, _PING_OPAQUE))
        frames: list[Frame] = []
        while (frame := await self.read()).opaque != _PING_OPAQUE:
            frames.append(frame)
        return frames

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self.stream)

    async def _read(self) -> Frame | None:
        while True:
            if len(self._data) >= 4:
                end = 4 + int.from_bytes(self._data[:4], "big")
                if len(self._data) >= end:
                    frame = parse_frame(bytes(self._data[:end]))
                    del self._data[:end]
                    return frame
            if self._ended or not await self._receive():
                return None

    async def _receive(self) -> bool:
        try:
            data = await self.stream.receive_some(256 * 1024)
        except trio.BrokenResourceError:
            # Closing with unread bytes resets a TCP connection; to a peer both mean the end.
            data = b""
        self._data += data
        self._ended = not data
        return bool(data)


class RecordingTransport(SocketTransport):
    """A socket that remembers every write."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.writes: list[bytes] = []

    def send_nowait(self, buffers: Sequence[bytes | memoryview]) -> int:
        sent = super().send_nowait(buffers)
        if sent:
            self.writes.append(b"".join(buffers)[:sent])
        return sent


class Events:
    """A listener that writes down what happens to connections."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    def connection_opened(self, channel: Channel) -> None:
        self.seen.append(("opened", channel.peer))

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self.seen.append(("closed", channel.peer, reason))

    def connection_idle(self, channel: Channel) -> None:
        self.seen.append(("idle", channel.peer))

    @property
    def reasons(self) -> list[str]:
        """Why connections were closed, in order."""
        return [event[2] for event in self.seen if event[0] == "closed"]


class Served:
    """A running server and the peers connected to it."""

    def __init__(self, server: RemotingServer) -> None:
        self.server = server
        self._peers: list[Peer] = []

    def attach(self, name: str = "peer", *, lockstep: bool = False) -> Peer:
        """Connect a peer over memory. In lockstep every write waits until the other end has read
        it.
        """
        make = trio.testing.lockstep_stream_pair if lockstep else trio.testing.memory_stream_pair
        near, far = make()
        return self.attach_streams(near, far, name)

    def attach_streams(
        self, near: trio.abc.Stream, far: trio.abc.Stream, name: str = "peer"
    ) -> Peer:
        """Connect a peer over streams of the test's own making."""
        return self._keep(Peer(far, self.server.attach(StreamTransport(near, peer=name))))

    def attach_recorded(self, name: str = "peer") -> tuple[Peer, RecordingTransport]:
        """Connect a peer over a pair of sockets; the server's writes are recorded."""
        near, far = socket.socketpair()
        transport = RecordingTransport(near)
        transport.peer = name
        far.setblocking(False)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(far))
        return self._keep(Peer(stream, self.server.attach(transport))), transport

    async def dial(self, host: str = "127.0.0.1") -> Peer:
        """Connect a peer over TCP, from an address of this machine."""
        return self._keep(
            Peer(await trio.open_tcp_stream("127.0.0.1", self.server.port, local_address=host))
        )

    def group(self, name: str) -> GroupStatistics:
        (group,) = (each for each in self.server.statistics().groups if each.name == name)
        return group

    async def aclose(self) -> None:
        for peer in self._peers:
            await peer.aclose()

    def forget(self, peer: Peer) -> None:
        """Keep a peer no longer: the test has ended its connection."""
        self._peers.remove(peer)

    def _keep(self, peer: Peer) -> Peer:
        self._peers.append(peer)
        return peer


class Logs:
    """The lines of rmq that an operator would see."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def lines(self) -> list[str]:
        return [
            record.getMessage()
            for record in self._caplog.records
            if record.name.startswith("rmq") and record.levelno >= logging.WARNING
        ]

    def clear(self) -> None:
        self._caplog.clear()


@asynccontextmanager
async def serving(
    table: HandlerTable | None = None,
    *,
    channel: ChannelConfig | None = None,
    connections_max: int = 50_000,
    held_bytes_max: int = 512 * 1024 * 1024,
    listeners: Iterable[ConnectionListener] = (),
    guard: Callable[[Channel, Command], None] | None = None,
    answer_unknown: bool = True,
    work_now: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[Served]:
    """Run a server for the length of the block, which must not take long.

    By `work_now` it sees how long its turns take: none takes any time, unless a test says so.
    """
    server = RemotingServer(
        table_with_ping() if table is None else table,
        ServerConfig(
            host="127.0.0.1",
            channel=channel or ChannelConfig(),
            connections_max=connections_max,
            held_bytes_max=held_bytes_max,
        ),
        listeners=listeners,
        guard=guard,
        answer_unknown=answer_unknown,
    )
    server._endpoint.work_now = work_now
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    served = Served(server)
    with trio.fail_after(_VIRTUAL_LIMIT_S if virtual else _REAL_LIMIT_S):
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(server.run)
                try:
                    yield served
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            await served.aclose()


def parse_frame(data: bytes) -> Frame:
    """Read one whole frame without help of the code under test."""
    length, mark = struct.unpack_from(">iI", data)
    assert length == len(data) - 4
    serialization, header_length = mark >> 24, mark & 0xFFFFFF
    header, body = data[8 : 8 + header_length], data[8 + header_length :]
    if serialization == Serialization.JSON:
        members = json.loads(header)
        return Frame(
            serialization=serialization,
            code=members["code"],
            flag=members["flag"],
            opaque=members["opaque"],
            language=members.get("language"),
            version=members.get("version"),
            remark=members.get("remark"),
            fields=members.get("extFields"),
            body=body,
        )
    parsed = BinaryHeader.parse(header)
    return Frame(
        serialization=serialization,
        code=parsed.code,
        flag=parsed.flag,
        opaque=parsed.opaque,
        language=parsed.language,
        version=parsed.version,
        remark=parsed.remark.decode() or None,
        fields={entry.key.text.decode(): entry.value.text.decode() for entry in parsed.ext},
        body=body,
    )
