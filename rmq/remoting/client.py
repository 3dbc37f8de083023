"""The remoting client: one connection per peer, opened when needed and again when lost."""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar, final

import trio

from rmq.errors import ConfigError, ConnectFailedError, RequestTimeoutError
from rmq.remoting import tls
from rmq.remoting.addresses import parse_address
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import LanguageCode, RequestCode, Serialization
from rmq.remoting.dispatch import Dispatcher, HandlerTable
from rmq.remoting.endpoint import Endpoint, EndpointConfig
from rmq.remoting.transport import SocketTransport

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from rmq.remoting.awaited import Awaited
    from rmq.remoting.busy_wait import Wakings
    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.remoting.endpoint import ConnectionListener, EndpointStatistics
    from rmq.remoting.header import Header
    from rmq.remoting.signing import Credentials
    from rmq.remoting.transport import Transport

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Connector(Protocol):
    """How a connection to an address is made. Raises OSError when it cannot be."""

    async def __call__(self, address: str) -> Transport: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of a client's connections."""

    connect_timeout_s: float = 3.0
    serialization: Serialization = Serialization.JSON
    channel: ChannelConfig = field(default_factory=ChannelConfig)
    busy_wait_s: float = 0.0
    """How long a task that waits for a single response busy-waits before sleeping; 0: never."""

    def __post_init__(self) -> None:
        if not self.connect_timeout_s > 0:
            raise ConfigError("connect_timeout_s", f"{self.connect_timeout_s} is not above 0")
        if not self.busy_wait_s >= 0:
            raise ConfigError("busy_wait_s", f"{self.busy_wait_s} is below 0")


@final
class RemotingClient:
    """Calls peers by address. Use `open_client` to get a running one."""

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        table: HandlerTable | None = None,
        listeners: Iterable[ConnectionListener] = (),
        connector: Connector | None = None,
        tls_context: ssl.SSLContext | None = None,
        language: LanguageCode = LanguageCode.PYTHON,
        credentials: Credentials | None = None,
    ) -> None:
        """With `credentials`, every request that leaves by any channel of the client is signed."""
        self.config = config or ClientConfig()
        self._connector = connector or TcpConnector(tls_context)
        self._endpoint = Endpoint(
            dispatcher=Dispatcher(table or HandlerTable()),
            config=EndpointConfig(channel=self.config.channel, busy_wait_s=self.config.busy_wait_s),
            language=language,
            dials=True,
            listeners=listeners,
            credentials=credentials,
        )
        self._peers: dict[str, _Peer] = {}
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RemotingClient]:
        async with self._endpoint.running() as nursery:
            self._nursery = nursery
            try:
                yield self
                for channel in list(self._endpoint.channels):
                    # One-way requests sent just before closing must still leave.
                    with trio.move_on_after(self.config.connect_timeout_s):
                        await channel.wait_written()
            finally:
                self._nursery = None

    def statistics(self) -> EndpointStatistics:
        return self._endpoint.statistics()

    @property
    def credentials(self) -> Credentials | None:
        """What requests are signed with; others count from the next request on."""
        return self._endpoint.credentials

    @credentials.setter
    def credentials(self, credentials: Credentials | None) -> None:
        self._endpoint.credentials = credentials

    @property
    def wakings(self) -> Wakings:
        """Counts tasks that waited here and are about to run."""
        return self._endpoint.wakings

    async def busy_wait_for(self, awaited: Awaited[T], is_alone: Callable[[], bool]) -> None:
        """Busy-wait for an outcome (`busy_wait_s`) while `is_alone()`."""
        await self._endpoint.busy_wait_for(awaited, is_alone)

    async def request(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
    ) -> Command:
        """Send a request to `address` and wait for its answer; connecting counts against
        `timeout_s`.
        """
        started = trio.current_time()
        channel = await self._channel_within(address, code, timeout_s)
        try:
            return await channel.request(
                code,
                header,
                body=body,
                timeout_s=timeout_s - (trio.current_time() - started),
                extra=extra,
                remark=remark,
                serialization=self.config.serialization,
            )
        except RequestTimeoutError:
            # Connecting took a part of the time; the caller knows the whole.
            raise RequestTimeoutError(address, code.name, timeout_s) from None

    async def oneway(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
    ) -> None:
        """Send a request that gets no answer. Returns when it is queued for writing."""
        channel = await self._channel_within(address, code, timeout_s)
        channel.oneway(
            code,
            header,
            body=body,
            extra=extra,
            remark=remark,
            serialization=self.config.serialization,
        )

    async def channel(self, address: str) -> Channel:
        """Return the open connection to `address`, made now if there is none."""
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer()
        if peer.channel is not None and peer.channel.is_open:
            return peer.channel
        # All callers wait for one attempt, which runs in its own task: a caller that is cancelled
        # does not cancel it for the others.
        attempt = peer.attempt
        if attempt is None:
            if self._nursery is None:
                raise ConnectFailedError(address, "the client is closed")
            attempt = peer.attempt = _Attempt()
            self._nursery.start_soon(self._dial, address, peer, attempt)
        await attempt.done.wait()
        if attempt.error is not None:
            raise attempt.error
        if attempt.channel is None:
            raise ConnectFailedError(address, attempt.failure)
        return attempt.channel

    def open_channel_to(self, address: str) -> Channel | None:
        """Return the open connection to `address` if there is one."""
        peer = self._peers.get(address)
        if peer is None or peer.channel is None or not peer.channel.is_open:
            return None
        return peer.channel

    def close_channel(self, address: str, reason: str = "closed by us") -> None:
        """Close the connection to `address`, if any; the next call dials again."""
        peer = self._peers.get(address)
        if peer is not None and peer.channel is not None:
            peer.channel.close(reason)
            peer.channel = None

    async def _channel_within(self, address: str, code: RequestCode, timeout_s: float) -> Channel:
        channel = self.open_channel_to(address)
        if channel is not None:
            return channel
        with trio.move_on_after(timeout_s):
            return await self.channel(address)
        raise RequestTimeoutError(address, code.name, timeout_s)

    async def _dial(self, address: str, peer: _Peer, attempt: _Attempt) -> None:
        timeout_s = self.config.connect_timeout_s
        attempt.failure = "the client is closing"
        try:
            with trio.move_on_after(timeout_s) as scope:
                transport = await self._connector(address)
                if not self._endpoint.is_running:
                    # Too late: the client is closed.
                    await transport.aclose()
                    return
                attempt.channel = peer.channel = self._endpoint.open_channel(transport)
            if scope.cancelled_caught:
                attempt.failure = f"no connection within {timeout_s:g} s"
        except OSError as exc:
            attempt.failure = _reason(exc)
        except Exception as exc:  # noqa: BLE001 - raised to the waiting callers, not here
            attempt.error = exc.with_traceback(None)
        finally:
            peer.attempt = None
            attempt.done.set()


@asynccontextmanager
async def open_client(
    config: ClientConfig | None = None,
    *,
    table: HandlerTable | None = None,
    listeners: Iterable[ConnectionListener] = (),
    connector: Connector | None = None,
    tls_context: ssl.SSLContext | None = None,
    language: LanguageCode = LanguageCode.PYTHON,
    credentials: Credentials | None = None,
) -> AsyncIterator[RemotingClient]:
    """Run a client for the length of an `async with` block."""
    client = RemotingClient(
        config,
        table=table,
        listeners=listeners,
        connector=connector,
        tls_context=tls_context,
        language=language,
        credentials=credentials,
    )
    async with client.running():
        yield client


@final
class TcpConnector:
    """Dials `host:port` over TCP, with TLS where a context is given."""

    def __init__(self, tls_context: ssl.SSLContext | None = None) -> None:
        self._tls_context = tls_context

    async def __call__(self, address: str) -> Transport:
        host, port = parse_address(address)
        try:
            stream = await trio.open_tcp_stream(host, port)
        except UnicodeError as exc:
            raise OSError(errno.EINVAL, f"{host!r} is no host name: {exc}") from exc
        sock = socket.socket(fileno=stream.socket.detach())
        if self._tls_context is None:
            return SocketTransport(sock)
        try:
            return await tls.wrap(sock, self._tls_context, server_side=False, server_hostname=host)
        except BaseException:
            sock.close()
            raise


class _Peer:
    """The connection to one address, or the attempt to make it."""

    __slots__ = ("attempt", "channel")

    def __init__(self) -> None:
        self.attempt: _Attempt | None = None
        self.channel: Channel | None = None


class _Attempt:
    """One attempt to connect, and its result."""

    __slots__ = ("channel", "done", "error", "failure")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.channel: Channel | None = None
        self.failure = ""
        """Why the connection failed."""
        self.error: Exception | None = None
        """Any other error: a malformed address, say."""


def _reason(exc: OSError) -> str:
    # trio reports the attempts on several addresses as one error with the others inside.
    inner = exc.__cause__
    if isinstance(inner, BaseExceptionGroup) and inner.exceptions:
        return str(inner.exceptions[0])
    return exc.strerror or str(exc)
