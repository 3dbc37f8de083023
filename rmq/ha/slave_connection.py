"""The socket to a master: plain or TLS, read straight into the log; no call blocks.

Both kinds have the same interface: `receive` fills the caller's buffers, the mapped log among them,
with what has arrived, and `send` sends what the socket takes and keeps the rest. The caller waits
with `wait_readable` and `wait_writable`. TLS runs on memory buffers for that reason: its plain text
goes into the caller's buffers without a copy in between.
"""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import trio

from rmq.errors import ConfigError
from rmq.ha.busy_wait import SocketBusyWait
from rmq.remoting.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.remoting.client import RemotingClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialling:
    """How a slave connects to its master, whatever the address."""

    dialect: str = "auto"
    was_native: bool = False
    """The master is known to be one of ours."""
    tls_context: ssl.SSLContext | None = None
    tls_master_name: str | None = None
    """What the certificate of a master is checked for in place of its address."""
    client: RemotingClient | None = None
    """Asks stock masters about their logs; without one a client is made for that."""

    def __post_init__(self) -> None:
        if self.dialect not in ("auto", "native", "stock"):
            raise ConfigError("haDialect", f"{self.dialect!r} is not auto, native or stock")


_CIPHER_BYTES: Final = 256 * 1024
"""How much is read at once from a socket with TLS."""


_OTHER_HOST: Final = frozenset((62, 64))
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""


class PlainConnection:
    """A plain (unencrypted) TCP connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._busy_wait = SocketBusyWait(sock)
        self._unsent = b""

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait until the peer reads."""
        return bool(self._unsent)

    def receive(self, buffers: Sequence[memoryview]) -> int | None:
        """Fill the buffers, one after the other; 0 at the end, None if one has to wait."""
        try:
            return self._socket.recvmsg_into(buffers)[0]
        except BlockingIOError:
            return None

    def send(self, data: bytes) -> None:
        """Send what can be sent without waiting, and keep the rest for the next call."""
        data = self._unsent + data
        if data:
            try:
                self._unsent = data[self._socket.send(data) :]
            except BlockingIOError:
                self._unsent = data

    async def busy_wait(self) -> bool:
        """Busy-wait briefly until something has arrived; see `SocketBusyWait`."""
        return await self._busy_wait.wait()

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._socket)

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class TlsConnection:
    """A TCP connection with TLS; usable after `handshake`."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, name: str) -> None:
        """Where the context checks names, the certificate must carry `name`."""
        self._plain = PlainConnection(sock)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._cipher_text = memoryview(bytearray(_CIPHER_BYTES))

    @property
    def has_unsent(self) -> bool:
        return self._plain.has_unsent

    async def handshake(self) -> None:
        """Run the TLS handshake; raise `OSError` if it fails."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._pass_on()
            except ssl.SSLError as exc:
                # The peer learns the reason, too.
                self._pass_on()
                raise ConnectionAbortedError(
                    errno.ECONNABORTED, f"TLS handshake failed: {exc}{_advice(exc)}"
                ) from exc
            await self.wait_readable()
            if self._feed() == 0:
                raise ConnectionAbortedError(
                    errno.ECONNABORTED, "TLS handshake failed: the master hung up"
                )
        self._pass_on()

    def receive(self, buffers: Sequence[memoryview]) -> int | None:
        """Fill the buffers, one after the other; 0 at the end, None if one has to wait."""
        received = 0
        for buffer in buffers:
            position = 0
            while position < len(buffer):
                room = buffer[position:]
                try:
                    size = cast("int", self._tls.read(len(room), room))
                except ssl.SSLWantReadError:
                    fed = self._feed()
                    if fed:
                        continue
                    return received or fed
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return received
                finally:
                    self._pass_on()
                position += size
                received += size
        return received

    def send(self, data: bytes) -> None:
        """Send what can be sent without waiting, and keep the rest for the next call."""
        if data:
            self._tls.write(data)
        self._pass_on()

    async def busy_wait(self) -> bool:
        """Busy-wait briefly until something has arrived; see `SocketBusyWait`."""
        return await self._plain.busy_wait()

    async def wait_readable(self) -> None:
        await self._plain.wait_readable()

    async def wait_writable(self) -> None:
        await self._plain.wait_writable()

    def close(self) -> None:
        self._plain.close()

    def _feed(self) -> int | None:
        """Read received cipher text; 0 at the end, None if there is none."""
        size = self._plain.receive((self._cipher_text,))
        if size:
            self._incoming.write(self._cipher_text[:size])
        return size

    def _pass_on(self) -> None:
        if self._outgoing.pending or self._plain.has_unsent:
            self._plain.send(self._outgoing.read())


def _advice(exc: ssl.SSLError) -> str:
    """What to do where a certificate is that of another host."""
    if isinstance(exc, ssl.SSLCertVerificationError) and exc.verify_code in _OTHER_HOST:
        return "; the certificate of a master must carry its address, or set haTlsMasterName"
    return ""


Connection: TypeAlias = PlainConnection | TlsConnection


async def dial(
    address: str,
    tls_context: ssl.SSLContext | None,
    timeout_s: float,
    *,
    master_name: str | None = None,
) -> PlainConnection | TlsConnection:
    """Connect to `host:port`; raise `OSError` with a readable reason if that fails.

    Where the context checks names, the certificate must carry `master_name`, or else the host.
    """
    try:
        host, port = parse_address(address)
    except ConfigError as exc:
        raise OSError(errno.EINVAL, exc.reason) from exc
    try:
        with trio.fail_after(timeout_s):
            stream = await trio.open_tcp_stream(host, port)
            sock = socket.socket(fileno=stream.socket.detach())
            if tls_context is None:
                return PlainConnection(sock)
            connection = TlsConnection(sock, tls_context, master_name or host)
            try:
                await connection.handshake()
            except BaseException:
                connection.close()
                raise
            return connection
    except trio.TooSlowError:
        raise TimeoutError(errno.ETIMEDOUT, f"no connection within {timeout_s:g} s") from None
    except UnicodeError as exc:
        raise OSError(errno.EINVAL, f"{host!r} is no host name: {exc}") from exc
    except OSError as exc:
        # trio reports the attempts on several addresses as one error with the others inside.
        inner = exc.__cause__
        if isinstance(inner, BaseExceptionGroup):
            raise OSError(errno.EHOSTUNREACH, str(inner.exceptions[0])) from exc
        raise
