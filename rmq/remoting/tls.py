"""TLS handshakes of remoting, with certificates that are reloaded without a restart.

Before each handshake the server checks its files; when one has changed, new connections get the
new certificates and old ones keep theirs. A changed file that cannot be used is reported and the
last good set stays in force.

A server without a configured certificate makes one for itself when the first client speaks TLS, so
that starting takes no longer; a stock server in test mode does so at its start.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import ssl
from typing import TYPE_CHECKING, cast, final

import trio

from rmq.errors import ConfigError
from rmq.remoting.addresses import format_address
from rmq.remoting.tls_config import TlsMode, server_context
from rmq.remoting.transport import StreamTransport, peer_name

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from rmq.remoting.tls_config import TlsServerConfig

logger = logging.getLogger(__name__)


@final
class TlsServer:
    """The server's side of handshakes, with certificates that follow their files."""

    def __init__(self, config: TlsServerConfig) -> None:
        self.config = config
        self._files = tuple(
            path
            for path in (config.cert_path, config.key_path, config.trust_cert_path)
            if path is not None
        )
        self._seen = self._stamps()
        self._making = trio.Lock()
        self._limiter = trio.CapacityLimiter(1)
        self._context: ssl.SSLContext | None = None
        if config.cert_path is not None:
            self._context = server_context(config)
        elif config.mode is TlsMode.PERMISSIVE and not config.test_mode:
            logger.info("no TLS certificate is configured: only plain connections are served")

    @property
    def mode(self) -> TlsMode:
        return self.config.mode

    async def handshake(self, sock: socket.socket) -> StreamTransport:
        """Turn an accepted connection into an encrypted one."""
        context = self.current() or await self._self_signed()
        return await wrap(sock, context, server_side=True)

    async def _self_signed(self) -> ssl.SSLContext:
        """Return the context with a certificate of our own, made if it is the first time."""
        if not self.config.test_mode:
            raise ConnectionRefusedError(
                errno.EPROTO, "TLS bytes, but no certificate is configured (tls.server.certPath)"
            )
        async with self._making:
            if self._context is None:
                try:
                    self._context = await trio.to_thread.run_sync(
                        server_context, self.config, limiter=self._limiter
                    )
                except (ConfigError, OSError) as exc:
                    raise ConnectionRefusedError(
                        errno.EPROTO, f"no certificate can be made: {exc}"
                    ) from exc
                logger.warning(
                    "TLS clients are served with a certificate that this server made for itself:"
                    " it encrypts, and proves nothing. Set tls.server.certPath and"
                    " tls.server.keyPath where clients must know whom they talk to"
                )
            return self._context

    def current(self) -> ssl.SSLContext | None:
        """Return the context for a new connection, reloaded if a file has changed; None before
        the first one of a server that makes its own.
        """
        if self.config.cert_path is None:
            return self._context
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._context = server_context(self.config)
            except ConfigError as exc:
                logger.error("TLS certificates not reloaded, the last good ones stay: %s", exc)
            else:
                logger.info("TLS certificates reloaded from %s", self.config.cert_path)
        return self._context

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in self._files)


async def wrap(
    sock: socket.socket,
    context: ssl.SSLContext,
    *,
    server_side: bool,
    server_hostname: str | None = None,
) -> StreamTransport:
    """Do the handshake on a connected socket and return the encrypted transport."""
    peer = peer_name(sock)
    local = format_address(sock.getsockname())
    handshake = Handshake(sock, context, server_side=server_side, server_hostname=server_hostname)
    try:
        await handshake.run()
    except (trio.BrokenResourceError, ssl.SSLError) as exc:
        cause = exc.__cause__ if isinstance(exc, trio.BrokenResourceError) else exc
        raise ConnectionAbortedError(
            errno.ECONNABORTED, f"TLS handshake failed: {cause or 'the peer hung up'}"
        ) from exc
    return StreamTransport(handshake.stream, peer=peer, local=local, secure=True)


@final
class Handshake:
    """An encrypted stream on a connected socket, and the handshake that opens it.

    If that fails, the peer is told why. `trio.SSLStream` closes without a word, and a stock client,
    which with TLS 1.3 has ended its own part by then, waits for its answer until the timeout.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
    ) -> None:
        self._socket = sock
        self._noting = _NotingContext(context)
        self.stream = trio.SSLStream(
            trio.SocketStream(trio.socket.from_stdlib_socket(sock)),
            cast("ssl.SSLContext", self._noting),
            server_side=server_side,
            server_hostname=server_hostname,
            https_compatible=True,
        )

    async def run(self) -> None:
        """Raise `trio.BrokenResourceError` or `ssl.SSLError` if it fails."""
        try:
            await self.stream.do_handshake()
        except (trio.BrokenResourceError, ssl.SSLError):
            alert = b"" if self._noting.outgoing is None else self._noting.outgoing.read()
            if alert:
                # A few bytes: if the socket does not take them at once, the peer is gone.
                with contextlib.suppress(OSError):
                    self._socket.send(alert)
            raise


class _NotingContext:
    """What `trio.SSLStream` needs of a context; notes where OpenSSL leaves bytes to be sent."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.outgoing: ssl.MemoryBIO | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        *,
        server_side: bool,
        server_hostname: str | bytes | None,
    ) -> ssl.SSLObject:
        self.outgoing = outgoing
        return self._context.wrap_bio(
            incoming, outgoing, server_side=server_side, server_hostname=server_hostname
        )


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
