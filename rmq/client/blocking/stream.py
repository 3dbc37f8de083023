"""A TCP connection, with TLS where it is wanted, that never blocks.

`advance` connects without waiting: it tries one address of the host after the other, then does the
TLS handshake. `events` returns what to wait for (`select.poll`); the owner of the stream waits.
Only the resolver blocks: a host name is resolved with `getaddrinfo`, which has timeouts of its own.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from rmq.remoting.addresses import parse_address
from rmq.remoting.outbox import GATHER_BUFFERS_MAX, as_one, first_piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    Buffer = bytes | memoryview

RECEIVE_BYTES: Final = 256 * 1024
"""Size of one read: large enough for a whole response to a pull."""

_UNDER_WAY: Final = frozenset((errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY))


@final
class Stream:
    """Bytes to and from one peer. Every method may raise OSError: the stream is of no use then."""

    __slots__ = (
        "_addresses",
        "_context",
        "_failure",
        "_host",
        "_piece",
        "_sends_after_reading",
        "_socket",
        "_tls",
        "_wants_write",
        "is_ready",
    )

    def __init__(self, address: str, context: ssl.SSLContext | None) -> None:
        """Start to connect to `host:port`; raise OSError if the address is unusable."""
        self.is_ready = False
        """Whether bytes can be sent and received."""
        host, port = parse_address(address)
        self._host = host
        self._context = context
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLSocket | None = None
        self._piece = b""
        self._wants_write = True
        self._sends_after_reading = False
        self._failure: OSError | None = None
        try:
            self._addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as exc:
            raise OSError(errno.EINVAL, f"{host!r} is no host name: {exc}") from exc
        self._addresses.reverse()
        self._dial_next()

    def fileno(self) -> int:
        assert self._socket is not None, "the stream has no socket"
        return self._socket.fileno()

    def events(self, *, has_output: bool) -> int:
        """Return what to wait for, as `select.poll` wants it."""
        if not self.is_ready:
            # Whether there is output does not matter yet: it waits for the handshake.
            return select.POLLOUT if self._wants_write else select.POLLIN
        if self._wants_write or (has_output and not self._sends_after_reading):
            return select.POLLIN | select.POLLOUT
        return select.POLLIN

    # --- connecting --------------------------------------------------------------------------

    def advance(self) -> bool:
        """Continue to connect; return whether the stream is ready."""
        if self._tls is not None:
            return self._shake_hands(self._tls)
        sock = self._socket
        assert sock is not None, "closed"
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._failed(OSError(code, os.strerror(code)))
            self._dial_next()
            return False
        return self._connected(sock)

    @property
    def addresses_left(self) -> int:
        """How many addresses of the host have not been tried."""
        return len(self._addresses)

    def skip_address(self) -> None:
        """Give up the address that is being tried: it takes too long."""
        self._failed(OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        self._tls = None
        self._wants_write = True
        self._dial_next()

    def _dial_next(self) -> None:
        """Try the addresses of the host one after the other."""
        while self._addresses:
            family, kind, protocol, _, target = self._addresses.pop()
            self._drop_socket()
            try:
                sock = self._socket = socket.socket(family, kind, protocol)
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                code = sock.connect_ex(target)
            except OSError as exc:
                self._failed(exc)
                continue
            if code == 0 or code in _UNDER_WAY:
                # Also if it is connected at once: it is writable then, and `advance` is called.
                return
            self._failed(OSError(code, os.strerror(code)))
        self._drop_socket()
        raise self._failure or OSError(errno.EADDRNOTAVAIL, f"{self._host} has no address")

    def _failed(self, error: OSError) -> None:
        # What went wrong with the first address says most: it is the one people mean.
        self._failure = self._failure or error

    def _connected(self, sock: socket.socket) -> bool:
        if self._context is None:
            self.is_ready = True
            self._wants_write = False
            return True
        self._tls = self._context.wrap_socket(
            sock,
            server_hostname=self._host,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=True,
        )
        self._socket = self._tls
        return self._shake_hands(self._tls)

    def _shake_hands(self, tls: ssl.SSLSocket) -> bool:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._wants_write = False
            return False
        except ssl.SSLWantWriteError:
            self._wants_write = True
            return False
        self.is_ready = True
        self._wants_write = False
        return True

    # --- bytes -------------------------------------------------------------------------------

    def receive(self) -> bytes | None:
        """Return what has arrived, b"" at the end of the stream, None when one has to wait."""
        assert self._socket is not None, "closed"
        if self._tls is None:
            try:
                return self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                return None
        self._wants_write = self._sends_after_reading = False
        parts: list[bytes] = []
        size = 0
        # TLS holds bytes of its own, which `poll` does not see: nothing may be left there.
        while not size or self._tls.pending():
            try:
                part = self._tls.recv(RECEIVE_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLWantWriteError:
                self._wants_write = True
                break
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
        return b"".join(parts) if parts else None

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send what can be sent without waiting; return how many bytes that was."""
        assert self._socket is not None, "closed"
        if self._tls is not None:
            return self._send_piece(self._tls, buffers)
        try:
            if (buffer := as_one(buffers)) is not None:
                return self._socket.send(buffer)
            return self._socket.sendmsg(list(islice(buffers, GATHER_BUFFERS_MAX)))
        except BlockingIOError:
            return 0

    def _send_piece(self, tls: ssl.SSLSocket, buffers: Sequence[Buffer]) -> int:
        # What TLS could not send it wants to be given again just so.
        if not self._piece:
            self._piece = first_piece(buffers)
        try:
            sent = tls.send(self._piece)
        except ssl.SSLWantWriteError:
            return 0
        except ssl.SSLWantReadError:
            self._sends_after_reading = True
            return 0
        self._piece = self._piece[sent:]
        return sent

    # --- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close at once; bytes not yet sent are lost. Nothing is sent, so that a child process can
        close its copy of a connection that its parent goes on using.
        """
        self.is_ready = False
        self._addresses = []
        self._piece = b""
        self._drop_socket()

    def _drop_socket(self) -> None:
        sock = self._socket
        self._socket = self._tls = None
        if sock is not None:
            sock.close()


def describe(error: OSError) -> str:
    """Return an error of the operating system as text."""
    return error.strerror or str(error) or type(error).__name__
