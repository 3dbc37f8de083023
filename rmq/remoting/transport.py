"""Transports of bytes: a bare non-blocking socket, or any trio stream (TLS, memory).

A transport is what a `Channel` needs of a connection and no more. `SocketTransport` exists because
a bare socket with `wait_readable` and `wait_writable` costs a third less per read than
`trio.SocketStream`, and because answers can be tried at once (`send_nowait`) without a scheduler
step.
"""

from __future__ import annotations

import socket
import struct
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rmq.remoting.addresses import format_address
from rmq.remoting.outbox import GATHER_BUFFERS_MAX, as_one, first_piece

try:
    import fcntl
    from termios import FIONREAD
except ImportError:  # not on Windows
    FIONREAD = None  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Sequence

    Buffer = bytes | memoryview

RECEIVE_BYTES: Final = 64 * 1024
"""The most that one read brings: some 170 sends of 128 bytes, so that a flood yields to others in
time.
"""

_INT: Final = struct.Struct("=i")


class Transport(Protocol):
    """A connection's byte stream. One task receives, at most one sends."""

    peer: str
    """Address of the other side, for logs."""
    local: str
    secure: bool
    """Whether the bytes are encrypted on the way."""

    async def receive(self) -> bytes:
        """Wait for bytes and return them; b"" at the end of the stream."""

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        """Send what can be sent without waiting; return how many bytes that was."""

    async def send(self, buffers: Sequence[Buffer]) -> int:
        """Wait until something can be sent and send it; return how many bytes that was."""

    async def aclose(self) -> None:
        """Close at once; bytes not yet sent are lost."""


class SocketTransport:
    """A plain TCP connection."""

    __slots__ = ("_socket", "local", "peer", "secure")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self.peer = peer_name(sock)
        self.local = format_address(sock.getsockname())
        self.secure = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive_nowait(self, bytes_max: int = RECEIVE_BYTES) -> bytes | None:
        """Return what has arrived, b"" at the end of the stream, or None when one has to wait."""
        try:
            return self._socket.recv(bytes_max)
        except BlockingIOError:
            return None

    def unread_bytes(self) -> int:
        """Return how many bytes have arrived and were not received yet."""
        if FIONREAD is None:
            return 0
        (count,) = _INT.unpack(fcntl.ioctl(self._socket, FIONREAD, _INT.pack(0)))
        return int(count)

    async def receive(self) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                continue

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        try:
            if (buffer := as_one(buffers)) is not None:
                return self._socket.send(buffer)
            return self._socket.sendmsg(list(islice(buffers, GATHER_BUFFERS_MAX)))
        except BlockingIOError:
            return 0

    async def send(self, buffers: Sequence[Buffer]) -> int:
        while True:
            await trio.lowlevel.wait_writable(self._socket)
            if sent := self.send_nowait(buffers):
                return sent

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            # A task that waits to write gets ClosedResourceError.
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class StreamTransport:
    """Any trio stream as a transport."""

    __slots__ = ("_stream", "local", "peer", "secure")

    def __init__(
        self, stream: trio.abc.Stream, *, peer: str, local: str = "", secure: bool = False
    ) -> None:
        self._stream = stream
        self.peer = peer
        self.local = local
        self.secure = secure

    async def receive(self) -> bytes:
        return bytes(await self._stream.receive_some(RECEIVE_BYTES))

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        return 0

    async def send(self, buffers: Sequence[Buffer]) -> int:
        # New frames may join the buffers while this waits, so what is sent now is fixed first.
        piece = first_piece(buffers)
        await self._stream.send_all(piece)
        return len(piece)

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


def peer_name(sock: socket.socket) -> str:
    """Return the peer's address for logs, also of a connection that has already ended."""
    try:
        return format_address(sock.getpeername())
    except OSError:
        return "(gone)"
