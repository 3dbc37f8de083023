"""The remoting server: listens, tells TLS from plain, and runs a channel per connection."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import ConfigError, ListenError
from rmq.log_limits import host_of
from rmq.process_limits import open_files_limit
from rmq.remoting.addresses import format_address
from rmq.remoting.channel import Channel, ChannelConfig
from rmq.remoting.codes import LanguageCode
from rmq.remoting.dispatch import Dispatcher, HandlerTable
from rmq.remoting.endpoint import HELD_BYTES_MAX, Endpoint, EndpointConfig
from rmq.remoting.fairness.shares import SHARE_MAX, HostShares
from rmq.remoting.frame import TLS_HANDSHAKE_BYTE
from rmq.remoting.tls_config import TlsMode
from rmq.remoting.transport import SocketTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmq.counting.requests import CodeCounts
    from rmq.remoting.command import Command
    from rmq.remoting.endpoint import ConnectionListener, EndpointStatistics
    from rmq.remoting.groups import GroupStatistics
    from rmq.remoting.tls import TlsServer
    from rmq.remoting.transport import Transport

logger = logging.getLogger(__name__)

_ACCEPTS_PER_STEP: Final = 64
_ACCEPT_RETRY_S: Final = 0.1
"""First byte of a TLS ClientHello. As the first byte of a length it would mean a frame of 369 MB or
more.
"""
_OUT_OF_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
_OUT_OF_MEMORY: Final = frozenset((errno.ENOBUFS, errno.ENOMEM))

STOPS: Final = "the server is stopping"
"""Why connections end that a server ends because it stops."""
NEWCOMER_S: Final = 5.0
"""How long a connection may be silent, or take to send its first frame, when others need its place.
"""
_CONNECTIONS_OF_HOST_MIN: Final = 64
"""What every host may have open, as far as there is room."""
_FILES_KEPT: Final = 64
"""Descriptors that connections leave to everything else, beside those that are open already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where a server listens and what it allows."""

    host: str = "0.0.0.0"
    port: int = 0
    """0 lets the system choose; `RemotingServer.port` tells which."""
    backlog: int = 1024
    connections_max: int = 50_000
    """Connections open at a time; one more is closed at once. Where the process may have fewer
    files open, that counts: `RemotingServer.connections_max`.
    """
    held_bytes_max: int = HELD_BYTES_MAX
    """Bytes of large requests that are not whole yet, or that wait, of all connections."""
    host_share_max: int = SHARE_MAX
    """Largest part of connections, unanswered requests and held bytes that one host may have, in
    percent (`rmq.remoting.fairness.shares`).
    """
    handshake_timeout_s: float = 10.0
    """How long a TLS handshake may take."""
    channel: ChannelConfig = field(default_factory=lambda: ChannelConfig(calls_max=10_000))

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigError("port", f"{self.port} is not between 0 and 65535")
        for name in ("backlog", "connections_max", "held_bytes_max"):
            if getattr(self, name) < 1:
                raise ConfigError(name, f"{getattr(self, name)} is below 1")
        if not 1 <= self.host_share_max <= 100:
            raise ConfigError("host_share_max", f"{self.host_share_max} is not between 1 and 100")
        if not self.handshake_timeout_s > 0:
            raise ConfigError("handshake_timeout_s", f"{self.handshake_timeout_s} is not above 0")


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """A snapshot for metrics."""

    endpoint: EndpointStatistics
    groups: list[GroupStatistics]
    accepted: int
    refused_connections: int
    failed_handshakes: int
    refused_old: int
    """Requests that were refused because they had waited too long."""
    capacities: Mapping[str, int]
    """How many requests may be unanswered, by the name of their group."""
    not_admitted: int
    """Requests that the guard refused."""
    unknown_codes: int
    """Requests of codes that nothing serves."""
    counts: Mapping[int, CodeCounts]
    """What was answered, by request code; not a copy."""


@final
class RemotingServer:
    """Serves a handler table on a port."""

    def __init__(
        self,
        table: HandlerTable,
        config: ServerConfig | None = None,
        *,
        tls: TlsServer | None = None,
        listeners: Iterable[ConnectionListener] = (),
        guard: Callable[[Channel, Command], None] | None = None,
        answer_unknown: bool = True,
        on_round: Callable[[], None] | None = None,
    ) -> None:
        self.config = config or ServerConfig()
        self._tls = tls
        self._newcomers = _Newcomers()
        share_max = self.config.host_share_max
        self._dispatcher = Dispatcher(
            table, guard=guard, answer_unknown=answer_unknown, host_share_max=share_max
        )
        self._hosts = HostShares(
            self.config.connections_max, floor=_CONNECTIONS_OF_HOST_MIN, share_max=share_max
        )
        self._endpoint = Endpoint(
            dispatcher=self._dispatcher,
            config=EndpointConfig(
                channel=self.config.channel,
                held_bytes_max=self.config.held_bytes_max,
                host_share_max=share_max,
            ),
            # A stock client compares nothing with it, but answers are then the bytes of a stock
            # server.
            language=LanguageCode.JAVA,
            dials=False,
            listeners=(*listeners, self._newcomers, _HostCounter(self._hosts)),
            on_round=on_round,
        )
        self.connections_max = self.config.connections_max
        """Connections open at a time, as far as the process may have files open."""
        self._spare_file: int | None = None
        self._sockets: list[socket.socket] = []
        self._nursery: trio.Nursery | None = None
        self._stop = trio.Event()
        self._stop_grace_s = 0.0
        self._handshaking = 0
        self._accepted = 0
        self._refused = 0
        self._failed_handshakes = 0

    @property
    def port(self) -> int:
        """The port in use; only while the server runs."""
        return int(self._sockets[0].getsockname()[1])

    @property
    def addresses(self) -> list[str]:
        return [format_address(sock.getsockname()) for sock in self._sockets]

    @property
    def channels(self) -> frozenset[Channel]:
        """The open connections."""
        return frozenset(self._endpoint.channels)

    @property
    def recent_codes(self) -> tuple[int, ...]:
        """The codes served last, the newest at the end, each once for requests in a row."""
        return tuple(self._dispatcher.recent_codes)

    @property
    def _open_connections(self) -> int:
        return len(self._endpoint.channels) + self._handshaking

    @property
    def in_round(self) -> bool:
        """Whether a round is in progress; `on_round` is called at its end."""
        return self._endpoint.in_round

    def limit_waits(self, seconds: Mapping[str, float]) -> None:
        """Refuse requests that have waited longer, by the name of their group, from now on."""
        self._dispatcher.limit_waits(seconds)

    def in_one_round(self, act: Callable[[], None]) -> None:
        """Run `act`, which answers deferred requests, and write all responses at once."""
        self._endpoint.in_one_round(act)

    def statistics(self) -> ServerStatistics:
        return ServerStatistics(
            endpoint=self._endpoint.statistics(),
            groups=self._dispatcher.statistics(),
            accepted=self._accepted,
            refused_connections=self._refused,
            failed_handshakes=self._failed_handshakes,
            refused_old=self._dispatcher.refused_old,
            capacities=self._dispatcher.capacities,
            not_admitted=self._dispatcher.not_admitted,
            unknown_codes=self._dispatcher.unknown_codes,
            counts=self._dispatcher.counts,
        )

    async def run(
        self, *, task_status: trio.TaskStatus[RemotingServer] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `stop`, or until cancelled. `started` means that the port is open."""
        self._sockets = await _listen(self.config.host, self.config.port, self.config.backlog)
        self.connections_max = min(
            self.config.connections_max, max(1, open_files_limit() - _files_kept())
        )
        self._hosts.limit = self.connections_max
        if self.connections_max < self.config.connections_max:
            logger.info(
                "at most %d connections on %s, because %d files may be open (ulimit -n)",
                self.connections_max,
                ", ".join(self.addresses),
                open_files_limit(),
            )
        self._keep_spare_file()
        try:
            async with self._endpoint.running() as nursery:
                self._nursery = nursery
                with trio.CancelScope() as accepting:
                    async with trio.open_nursery() as acceptors:
                        for sock in self._sockets:
                            acceptors.start_soon(self._accept, sock)
                        task_status.started(self)
                        await self._stop.wait()
                        accepting.cancel()
                self._close_sockets()
                await self._finish()
        finally:
            self._nursery = None
            self._close_sockets()
            self._give_spare_file()

    def stop(self, *, grace_s: float = 10.0) -> None:
        """Accept nothing more, answer open requests for at most `grace_s`, then close and return
        from `run`.
        """
        self._stop_grace_s = grace_s
        self._stop.set()

    def attach(self, transport: Transport) -> Channel:
        """Serve a connection that the caller accepted."""
        assert self._nursery is not None, "the server is not running"
        return self._endpoint.open_channel(transport)

    async def _finish(self) -> None:
        for channel in self._endpoint.channels:
            channel.pause()
        with trio.move_on_after(self._stop_grace_s) as scope:
            await self._dispatcher.wait_quiet()
            for channel in list(self._endpoint.channels):
                await channel.wait_written()
        if scope.cancelled_caught:
            logger.warning(
                "stopping with %d requests unanswered after %g s",
                self._dispatcher.unanswered,
                self._stop_grace_s,
            )
        for channel in list(self._endpoint.channels):
            channel.close(STOPS)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                await trio.lowlevel.wait_readable(listener)
                has_failed = self._accept_waiting(listener)
            except MemoryError:
                self._endpoint.ran_out_of_memory()
                has_failed = True
            if has_failed:
                # What is short does not come back at once, and the listener stays readable.
                await trio.sleep(_ACCEPT_RETRY_S)

    def _accept_waiting(self, listener: socket.socket) -> bool:
        """Accept the connections that wait; return whether the system has not enough for that."""
        for _ in range(_ACCEPTS_PER_STEP):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return False
            except OSError as exc:
                if exc.errno in _OUT_OF_FILES:
                    # Linux says so also when no connection waits.
                    try:
                        has_failed = not self._turn_away(listener)
                    except BlockingIOError:
                        return False
                    self._warn_short(exc)
                    if has_failed:
                        return True
                elif exc.errno in _OUT_OF_MEMORY:
                    self._warn_short(exc)
                    return True
                else:
                    # The peer gave up between its connect and our accept.
                    logger.debug("accept failed: %s", exc)
                continue
            peer = format_address(address)
            if self._hosts.room_for(host_of(peer)) < 1 and self._hosts.used < self.connections_max:
                self._refuse_host(sock, peer)
            elif self._open_connections >= self.connections_max and not self._make_room():
                self._refuse(sock, peer)
            else:
                self._take(sock, peer)
        return False

    def _warn_short(self, exc: OSError) -> None:
        self._endpoint.lines.log(
            logging.ERROR,
            "cannot accept",
            "",
            trio.current_time(),
            "cannot accept: %s; %d connections open; raise the limit of open files",
            os.strerror(exc.errno or 0),
            self._open_connections,
        )

    def _turn_away(self, listener: socket.socket) -> bool:
        """Close a connection that waits, with a descriptor kept for that: its peer knows at once,
        instead of waiting for an answer. Return whether that was possible; raise
        `BlockingIOError` if there is none.
        """
        if self._spare_file is None:
            self._keep_spare_file()
        if self._spare_file is None:
            return False
        self._give_spare_file()
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            raise
        except OSError:
            return False
        else:
            self._refused += 1
        finally:
            self._keep_spare_file()
        return True

    def _keep_spare_file(self) -> None:
        with suppress(OSError):
            self._spare_file = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _give_spare_file(self) -> None:
        if self._spare_file is not None:
            os.close(self._spare_file)
            self._spare_file = None

    def _make_room(self) -> bool:
        """Close the connection that has sent nothing whole for longest; return whether there is one
        that had time for it.
        """
        newcomer = self._newcomers.take_oldest(trio.current_time())
        if newcomer is None:
            return False
        self._refused += 1
        if isinstance(newcomer, Channel):
            newcomer.warn(
                "silent connection",
                "closing connection of %s: it has sent nothing for %g s, and others wait",
                newcomer.peer,
                NEWCOMER_S,
            )
            newcomer.close("it has sent nothing, and others wait")
        else:
            newcomer.cancel()
        return True

    def _refuse(self, sock: socket.socket, peer: str) -> None:
        self._refused += 1
        if _is_power_of_two(self._refused):
            logger.warning(
                "refused connection of %s: %d are open, the limit is %d; %d refused so far",
                peer,
                self._open_connections,
                self.connections_max,
                self._refused,
            )
        sock.close()

    def _refuse_host(self, sock: socket.socket, peer: str) -> None:
        """Close a connection of a host that has as many as it may have."""
        self._refused += 1
        self._endpoint.lines.warning(
            "connections of a host",
            host_of(peer),
            trio.current_time(),
            "refused connection of %s: its host has too large a part of the %d that are open",
            peer,
            self._open_connections,
        )
        sock.close()

    def _take(self, sock: socket.socket, peer: str) -> None:
        """Begin to serve an accepted connection."""
        self._accepted += 1
        tls = self._tls
        if tls is not None and tls.mode is not TlsMode.DISABLED:
            assert self._nursery is not None
            self._handshaking += 1
            self._hosts.change(host_of(peer), 1)
            self._nursery.start_soon(self._take_after_first_byte, sock, peer, tls)
            return
        try:
            transport = SocketTransport(sock)
        except OSError as exc:
            logger.debug("connection of %s is gone already: %s", peer, exc)
            sock.close()
        else:
            self._endpoint.open_channel(transport)

    async def _take_after_first_byte(self, sock: socket.socket, peer: str, tls: TlsServer) -> None:
        transport: Transport | None = None
        scope = trio.CancelScope()
        self._newcomers.add(scope, trio.current_time())
        try:
            sock.setblocking(False)
            with scope:
                transport = await self._tell_tls_from_plain(sock, tls)
        except (OSError, trio.BrokenResourceError) as exc:
            self._failed_handshakes += 1
            reason = exc.strerror if isinstance(exc, OSError) else None
            self._endpoint.lines.warning(
                "handshake",
                host_of(peer),
                trio.current_time(),
                "closing connection of %s: %s",
                peer,
                reason or exc,
            )
        finally:
            self._newcomers.remove(scope)
            self._handshaking -= 1
            self._hosts.change(host_of(peer), -1)
            if transport is None:
                sock.close()
        if transport is not None:
            if self._endpoint.is_running:
                self._endpoint.open_channel(transport)
            else:
                await transport.aclose()

    async def _tell_tls_from_plain(self, sock: socket.socket, tls: TlsServer) -> Transport | None:
        with trio.move_on_after(self.config.channel.idle_timeout_s):
            await trio.lowlevel.wait_readable(sock)
            first = sock.recv(1, socket.MSG_PEEK)
            if not first:
                return None
            if first[0] != TLS_HANDSHAKE_BYTE:
                if tls.mode is TlsMode.ENFORCING:
                    raise ConnectionRefusedError(errno.EPROTO, "plain bytes where TLS is enforced")
                return SocketTransport(sock)
            with trio.move_on_after(self.config.handshake_timeout_s):
                return await tls.handshake(sock)
            raise TimeoutError(
                errno.ETIMEDOUT,
                f"TLS handshake unfinished after {self.config.handshake_timeout_s:g} s",
            )
        return None

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                trio.lowlevel.notify_closing(sock)
                sock.close()


@final
class _Newcomers:
    """Connections that may have sent nothing whole yet, the oldest first."""

    def __init__(self) -> None:
        self._since: OrderedDict[Channel | trio.CancelScope, float] = OrderedDict()

    def add(self, newcomer: Channel | trio.CancelScope, now: float) -> None:
        """A scope stands for a connection of which it is not known yet whether it speaks TLS."""
        self._since[newcomer] = now

    def remove(self, newcomer: Channel | trio.CancelScope) -> None:
        self._since.pop(newcomer, None)

    def take_oldest(self, now: float) -> Channel | trio.CancelScope | None:
        """Remove and return the one that has been silent for longest, if that is long enough."""
        while self._since:
            newcomer, since = next(iter(self._since.items()))
            if isinstance(newcomer, Channel) and newcomer.has_spoken:
                del self._since[newcomer]
            elif now - since < NEWCOMER_S:
                return None
            else:
                del self._since[newcomer]
                return newcomer
        return None

    def connection_opened(self, channel: Channel) -> None:
        self.add(channel, channel.opened_at)

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self.remove(channel)

    def connection_idle(self, channel: Channel) -> None:
        pass


@final
class _HostCounter:
    """Counts the open connections of each host."""

    def __init__(self, hosts: HostShares) -> None:
        self._hosts = hosts

    def connection_opened(self, channel: Channel) -> None:
        self._hosts.change(channel.host, 1)

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self._hosts.change(channel.host, -1)

    def connection_idle(self, channel: Channel) -> None:
        pass


def _files_kept() -> int:
    """Return how many descriptors are not for connections."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir()) + _FILES_KEPT
    except OSError:
        return 2 * _FILES_KEPT


def _is_power_of_two(count: int) -> bool:
    """Return whether to log the `count`-th event: only powers of two, against floods of lines."""
    return count & (count - 1) == 0


async def _listen(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Open listening sockets on every address `host` stands for."""
    where = format_address((host, port))
    try:
        infos = await trio.socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else None
        raise ListenError(where, reason or str(exc), hint="check the host name or address") from exc
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in infos:
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # A port that the system chose for the first address is used for the others too.
            sock.bind((address[0], port, *address[2:]))
            port = sock.getsockname()[1]
            sock.listen(backlog)
            sock.setblocking(False)
    except OSError as exc:
        for sock in sockets:
            sock.close()
        hint = None
        if exc.errno == errno.EADDRINUSE:
            hint = (
                f"another process listens there: find it with `ss -ltnp 'sport = :{port}'`,"
                " or choose another port"
            )
        elif exc.errno == errno.EACCES:
            hint = "ports below 1024 need privileges; choose a higher one"
        elif exc.errno == errno.EADDRNOTAVAIL:
            hint = "this machine has no such address"
        raise ListenError(where, exc.strerror or str(exc), hint=hint) from exc
    return sockets
