"""Replication over TLS: contexts from the broker's settings, and a link's encrypted connection.

Bytes are copied here, because they have to be encrypted: `sendfile` is not possible.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import ConfigError
from rmq.ha.master_channel import RECEIVE_BYTES, close
from rmq.remoting.tls import Handshake, TlsServer
from rmq.remoting.tls_config import TlsClientConfig, client_context
from rmq.threads import run_in_thread

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from rmq.ha.protocol.master_link import Chunk, MasterLink
    from rmq.ha.store_log import LogReader
    from rmq.remoting.tls_config import TlsServerConfig

TLS_FIRST_BYTE: Final = 0x16
"""How a TLS connection begins. No log is so long that a report begins with it."""
_DISABLED: Final = "disabled"


def server_context_of(
    mode: str, config: TlsServerConfig | None
) -> Callable[[], ssl.SSLContext | None] | None:
    """Return a function that gives the context of a new connection; None: no TLS.

    The next connection uses certificates that have changed on disk.
    """
    if mode == _DISABLED:
        return None
    if config is None or config.cert_path is None:
        raise ConfigError(
            "haTlsMode",
            f"{mode} needs a certificate",
            hint="set tls.server.certPath and tls.server.keyPath",
        )
    return TlsServer(config).current


def client_context_of(mode: str, config: TlsClientConfig | None) -> ssl.SSLContext | None:
    """Return the context with which a slave connects; None: no TLS."""
    if mode == _DISABLED:
        return None
    return client_context(config if config is not None else TlsClientConfig())


@final
class TlsChannel:
    """A link over an encrypted connection."""

    is_secure = True

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        link: MasterLink,
        reader: LogReader,
        limiter: trio.CapacityLimiter,
        on_idle: Callable[[], None],
    ) -> None:
        self.sent_bytes = 0
        self._sock = sock
        self._handshake = Handshake(sock, context, server_side=True)
        self._stream = self._handshake.stream
        self._link = link
        self._reader = reader
        self._limiter = limiter
        self._on_idle = on_idle
        """Called when the task has nothing to do until `push`; `link.next_tick` is set by then."""
        self._chunk: Chunk | None = None
        self._output = b""
        self._is_idle = False
        self._wake = trio.Event()

    @property
    def is_idle(self) -> bool:
        return self._is_idle

    async def handshake(self) -> str | None:
        """Agree on keys; return why that failed, if it did."""
        try:
            await self._handshake.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError) as exc:
            return f"the TLS handshake failed: {exc.__cause__ or exc or 'the peer hung up'}"
        return None

    def push(self, now: float) -> None:
        if self._is_idle and self._take(now):
            self._is_idle = False
            self._wake.set()

    def _take(self, now: float) -> bool:
        """Fetch what is to be sent next; return whether there is anything, or the end."""
        self._output = self._link.take_output()
        if not self._output:
            self._chunk = self._link.next_chunk(now)
        return bool(self._output) or self._chunk is not None or self._link.end_reason is not None

    async def write(self) -> str | None:
        try:
            while True:
                if not self._take(trio.current_time()):
                    self._reader.caught_up(self._link.position)
                    self._wake = trio.Event()
                    self._is_idle = True
                    self._on_idle()
                    await self._wake.wait()
                if self._output:
                    await self._stream.send_all(self._output)
                elif self._chunk is not None:
                    failure = await self._send_chunk(self._chunk)
                    if failure is not None:
                        return failure
                    self._chunk = None
                else:
                    return None
        except trio.BrokenResourceError as exc:
            return f"the connection failed: {exc.__cause__ or exc}"

    async def _send_chunk(self, chunk: Chunk) -> str | None:
        data: bytes = chunk.header
        if chunk.size:
            read_ahead = self._reader.read_ahead_for(chunk.offset, chunk.size)
            if read_ahead is not None:
                await run_in_thread(read_ahead.run, limiter=self._limiter, abandon_on_cancel=True)
            view = self._reader.view(chunk.offset, chunk.size)
            if view is None:
                return f"its bytes at {chunk.offset} have expired"
            data = self._link.sealed(chunk, view) + view
            self._reader.fell_behind()
        await self._stream.send_all(data)
        self._link.chunk_sent(chunk, trio.current_time())
        self.sent_bytes += chunk.size
        return None

    async def receive(self, *, busy_waits: bool = False) -> bytes:
        return bytes(await self._stream.receive_some(RECEIVE_BYTES))

    def close(self) -> None:
        close(self._sock)
        self._reader.close()
