"""The replication port of a master: takes slaves in, streams the log to them, hears what they hold.

Nothing is decided here. `MasterLink` judges what a slave says, `Promises` which sends it answers;
this moves bytes between them and sockets, looks at the clock, and writes down who comes and goes.

`pump` is called after every round of appends and sends in the caller's step, so that a message is
on its way to slaves before anybody waits for it. A slave's acknowledgement answers all sends it
covers in the step in which it is read.
"""

from __future__ import annotations

import errno
import logging
import math
import secrets
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import ConfigError, ListenError
from rmq.ha.allow_list import is_allowed, plain_host
from rmq.ha.link_status import REFUSED, LinkLog, status_of
from rmq.ha.master_channel import PlainChannel, close, reset
from rmq.ha.protocol.master_link import MasterLink
from rmq.ha.protocol.pending_acks import Kept
from rmq.ha.protocol.wire import NONCE_BYTES
from rmq.ha.store_log import LogReader
from rmq.ha.tls_channel import TLS_FIRST_BYTE, TlsChannel
from rmq.remoting.addresses import format_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from rmq.ha.allow_list import Network
    from rmq.ha.link_status import LinkStatus
    from rmq.ha.master_channel import Channel
    from rmq.ha.protocol.master import Master
    from rmq.ha.store_log import StoreLog

REFRESH_S: Final = 1.0
"""How often it is looked at who is still in sync."""
REPORT_PAUSE_S: Final = 0.01
"""While no send waits for slaves, what one says is read this often: a step costs as much for one
report as for many.
"""
_STEP_S: Final = 0.001
"""A clock that is not quite there yet is looked at again after this."""
_LAST_WORDS_S: Final = 1.0
"""For so long a slave that is turned away may take to hear why."""
_READ_THREADS: Final = 4

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HaServerConfig:
    """Where slaves connect, and which of them may."""

    host: str = "0.0.0.0"
    port: int = 0
    allowed: tuple[Network, ...] = ()
    """Where slaves may come from; empty: from everywhere."""
    tls_context: Callable[[], ssl.SSLContext | None] | None = None
    """Gives the context of a new connection; None: no TLS."""
    tls_required: bool = False
    links_max: int = 64
    """Connections at a time; one more is closed at once."""

    def __post_init__(self) -> None:
        if self.tls_required and self.tls_context is None:
            raise ConfigError("haTlsMode", "enforcing needs a certificate")
        if self.links_max < 1:
            raise ConfigError("links_max", f"{self.links_max} is below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class HaServerListener:
    """Whom a server tells what slaves say; each is called in the step in which that is read."""

    in_sync_changed: Callable[[], None] | None = None
    """A slave has come to be in sync, or is no longer."""
    recorded: Callable[[], None] | None = None
    """A slave has an in-sync record on its disk."""
    visible_moved: Callable[[], None] | None = None
    """Slaves hold more than before (`Promises.visible`)."""
    in_one_round: Callable[[Callable[[], None]], None] = lambda act: act()
    """Runs what answers sends, so that their answers leave together and at once."""


class ReplicationWait:
    """Sends that wait for slaves together."""

    __slots__ = ("_callback", "sends")

    def __init__(self, callback: Callable[[Kept], None], sends: int) -> None:
        self._callback: Callable[[Kept], None] | None = callback
        self.sends = sends

    def end(self, kept: Kept) -> None:
        # Whoever waited may be remembered for a while, what it waited with is large.
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(kept)


class _Connection:
    """One connection and how far it has come."""

    __slots__ = ("channel", "host", "in_sync", "is_over", "is_told", "link", "scope", "sock")

    def __init__(self, sock: socket.socket, link: MasterLink, host: str) -> None:
        self.sock = sock
        self.link = link
        self.host = host
        self.channel: Channel | None = None
        """None before it is known whether it is encrypted."""
        self.scope = trio.CancelScope()
        self.is_told = False
        """The log of the broker says who connected."""
        self.in_sync = False
        """Whether it was in sync when that was last looked at."""
        self.is_over = False


@final
class HaServer:
    """Serves the slaves of one master while `run` runs."""

    def __init__(
        self, master: Master[ReplicationWait], log: StoreLog, config: HaServerConfig
    ) -> None:
        self.master = master
        self.config = config
        self.allowed = config.allowed
        """May be changed at any time; connections that are open stay."""
        self._store_log = log
        self._connections: list[_Connection] = []
        self._in_sync_most = 0
        self._people = LinkLog()
        self._limiter = trio.CapacityLimiter(_READ_THREADS)
        self._nursery: trio.Nursery | None = None
        self._tick_scope = trio.CancelScope()
        self.listen(HaServerListener())

    def listen(self, listener: HaServerListener) -> None:
        """Tell a broker what slaves say from now on."""
        self._tell_in_sync_changed = listener.in_sync_changed
        self._tell_recorded = listener.recorded
        self._tell_visible_moved = listener.visible_moved
        self._in_one_round = listener.in_one_round

    # --- what the broker calls ---------------------------------------------------------------

    def pump(self) -> None:
        """Send slaves what is new, as far as their sockets take it at once. Never waits."""
        now = trio.current_time()
        self.master.grew(now)
        for connection in self._connections:
            self._push(connection, now)

    def when_replicated(
        self, end_offset: int, callback: Callable[[Kept], None], sends: int = 1
    ) -> None:
        """Call back when enough slaves hold the log up to `end_offset`; at once if they do.

        `sends` is how many are answered by that, to be counted.
        """
        wait = ReplicationWait(callback, sends)
        promises = self.master.promises
        now = trio.current_time()
        kept = promises.ask(end_offset, now, wait)
        if kept is None:
            deadline = now + promises.timeout_s
            if deadline < self._tick_scope.deadline:
                self._tick_scope.deadline = deadline
            return
        if kept is Kept.NOT_AVAILABLE:
            self.master.counters.unavailable += sends
        wait.end(kept)

    def close_links(self, reason: str) -> None:
        """End all links at once, and all that is on its way: for a log that is about to be cut.

        What was given to the kernel but not sent refers to pages of the log's files, and would
        go out with what is written there next.
        """
        for connection in list(self._connections):
            self._end(connection, reason)
            if connection.channel is not None:
                connection.channel.reset()
            else:
                reset(connection.sock)

    def statistics(self) -> list[LinkStatus]:
        """Return the slaves that are connected, then those that were."""
        now = trio.current_time()
        end = self._store_log.end
        connected = [
            status_of(connection.link.replica, connection.channel, end, now)
            for connection in self._connections
            if connection.link.replica is not None
        ]
        return connected + [status_of(gone, None, end, now) for gone in self.master.replicas.gone]

    # --- running -----------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; `started` tells the port."""
        listeners = await _listen(self.config.host, self.config.port)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._tick)
                serve = partial(trio.serve_listeners, handler_nursery=nursery)
                nursery.start_soon(serve, self._accept, listeners)
                task_status.started(int(listeners[0].socket.getsockname()[1]))
        finally:
            self._nursery = None
            for listener in listeners:
                listener.socket.close()
            # Nobody will answer them any more; what they sent is in the log, here at least.
            for wait in self.master.promises.give_up():
                wait.end(Kept.TIMED_OUT)

    def attach(self, sock: socket.socket, host: str, peer: str) -> None:
        """Serve a connection that somebody else accepted."""
        assert self._nursery is not None, "the server is not running"
        self._nursery.start_soon(self._serve, sock, host, peer)

    async def _accept(self, stream: trio.SocketStream) -> None:
        try:
            address = stream.socket.getpeername()
        except OSError:
            return
        sock = socket.socket(fileno=stream.socket.detach())
        await self._serve(sock, plain_host(address[0]), format_address(address))

    async def _serve(self, sock: socket.socket, host: str, peer: str) -> None:
        """Serve one connection from beginning to end."""
        now = trio.current_time()
        refusal = None
        if self.master.keeper.is_pending:
            # Nothing is said, so that a slave takes nothing on: it comes again.
            sock.close()
            return
        if not is_allowed(self.allowed, host):
            refusal = "its address is not among haAllowedAddresses"
        elif len(self._connections) >= self.config.links_max:
            refusal = f"{len(self._connections)} connections are open, the limit"
        if refusal is not None:
            self.master.counters.refused += 1
            self._people.refused(host, peer, refusal, now)
            sock.close()
            return
        sock.setblocking(False)
        link = MasterLink(self.master, host, peer, nonce=secrets.token_bytes(NONCE_BYTES), now=now)
        connection = _Connection(sock, link, host)
        self._connections.append(connection)
        self._look_again(connection)
        try:
            with connection.scope:
                await self._talk(connection)
        except Exception:  # noqa: BLE001 - one connection must not end the others
            _log.exception("the link to %s failed", peer)
            self._end(connection, "an error in this broker, see its log")
        finally:
            self._end(connection, "this broker stops serving slaves")
            if connection.channel is not None:
                connection.channel.close()
            else:
                close(sock)

    async def _talk(self, connection: _Connection) -> None:
        why = await self._open(connection)
        channel = connection.channel
        if channel is None or why is not None:
            self._end(connection, why or "it closed the connection")
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, connection, channel, nursery.cancel_scope)
            why = await self._read(connection, channel)
            has_last_words = connection.link.end_reason is not None
            self._end(connection, why)
            # What the link has to say about its end is with the channel.
            grace_s = _LAST_WORDS_S if has_last_words else 0
            nursery.cancel_scope.deadline = trio.current_time() + grace_s

    async def _open(self, connection: _Connection) -> str | None:
        """Find out whether a connection is encrypted; return why it cannot be served."""
        sock, link, config = connection.sock, connection.link, self.config
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await trio.lowlevel.wait_readable(sock)
            first = sock.recv(1, socket.MSG_PEEK)
        except (OSError, trio.ClosedResourceError) as exc:
            return f"the connection failed: {exc}"
        if not first:
            return None
        reader = LogReader(self._store_log)
        if first[0] != TLS_FIRST_BYTE:
            if config.tls_required:
                return self._refused("it speaks plain, and TLS is required (haTlsMode)")
            connection.channel = PlainChannel(
                sock, link, reader, self._limiter, partial(self._look_again, connection)
            )
            return None
        context = config.tls_context() if config.tls_context is not None else None
        if context is None:
            return self._refused("it speaks TLS, and this master does not (haTlsMode)")
        channel = TlsChannel(
            sock, context, link, reader, self._limiter, partial(self._look_again, connection)
        )
        failure = await channel.handshake()
        if failure is not None:
            # One that was closed from here has not been turned away.
            return failure if connection.is_over else self._refused(failure)
        connection.channel = channel
        return None

    def _refused(self, reason: str) -> str:
        self.master.counters.refused += 1
        return f"{REFUSED}{reason}"

    async def _write(
        self, connection: _Connection, channel: Channel, scope: trio.CancelScope
    ) -> None:
        try:
            why = await channel.write()
        except trio.ClosedResourceError:
            why = None
        self._end(connection, why or "the connection was closed")
        scope.cancel()

    async def _read(self, connection: _Connection, channel: Channel) -> str:
        """Take in what a slave says until it, or we, have had enough; return why."""
        link, promises = connection.link, self.master.promises
        while link.end_reason is None:
            if not promises.is_sync and link.replica is not None:
                await trio.sleep(REPORT_PAUSE_S)
            try:
                # With few sends that wait for it, each report counts.
                data = await channel.receive(looks=promises.is_sync and len(promises) <= 1)
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                return f"the connection failed: {exc.__cause__ or exc}"
            if not data:
                return "it closed the connection"
            now = trio.current_time()
            heard = self.master.records_heard
            link.receive(data, now)
            if self.master.records_heard != heard and self._tell_recorded is not None:
                self._tell_recorded()
            if not connection.is_told and link.replica is not None:
                connection.is_told = True
                self._people.connected(connection.host, link, self._store_log.end, now)
            self._note_in_sync(now)
            self._in_one_round(self._settle)
            self._push(connection, now)
        return link.end_reason

    def _push(self, connection: _Connection, now: float) -> None:
        """Send what a connection takes at once."""
        channel = connection.channel
        if channel is not None:
            channel.push(now)
            if channel.is_idle:
                self._look_again(connection)

    # --- what follows from what ---------------------------------------------------------------

    def settle(self) -> None:
        """Answer the sends whose messages enough slaves hold, and tell slaves what is new."""
        self._in_one_round(self._settle)
        self.pump()

    def _settle(self) -> None:
        """Answer the sends whose messages enough slaves hold by now."""
        promises = self.master.promises
        visible = promises.visible
        waits = promises.settle()
        if promises.visible != visible and self._tell_visible_moved is not None:
            self._tell_visible_moved()
        for wait in waits:
            wait.end(Kept.REPLICATED)

    def _note_in_sync(self, now: float) -> None:
        """See who has come to be in sync, or is no longer, and say so."""
        replicas = self.master.replicas
        has_changed = replicas.in_sync_most != self._in_sync_most
        for connection in self._connections:
            replica = connection.link.replica
            if replica is None:
                continue
            in_sync = replica.in_sync and replica.has_answered
            if in_sync != connection.in_sync:
                connection.in_sync = in_sync
                has_changed = True
                end = self._store_log.end
                self._people.in_sync_changed(connection.host, replica, end, now)
        if has_changed:
            self._in_sync_most = replicas.in_sync_most
            for connection in self._connections:
                # Native slaves are told how many there are, and whether they count.
                self._push(connection, now)
            if self._tell_in_sync_changed is not None:
                self._tell_in_sync_changed()
            if len(self.master.promises) and not replicas.is_enough:
                self._in_one_round(self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        """Too few slaves are left for those who wait: tell them now, not when time is up."""
        master = self.master
        for wait in master.promises.give_up():
            master.counters.unavailable += wait.sends
            wait.end(Kept.NOT_AVAILABLE)

    def _end(self, connection: _Connection, why: str) -> None:
        """Take a connection out of everything, at once; its tasks end when they get to it."""
        if connection.is_over:
            return
        connection.is_over = True
        now = trio.current_time()
        link = connection.link
        link.closed(now, why)
        self._connections.remove(connection)
        self._people.ended(connection.host, link, now)
        self._note_in_sync(now)

    # --- time --------------------------------------------------------------------------------

    def _look_again(self, connection: _Connection) -> None:
        """Wake `_tick` in time for a connection that has nothing to do until then."""
        next_tick = connection.link.next_tick
        if next_tick < self._tick_scope.deadline:
            self._tick_scope.deadline = next_tick

    async def _tick(self) -> None:
        """Send heartbeats, end what is silent, answer those who waited long enough."""
        master = self.master
        while True:
            now = trio.current_time()
            deadline = now + REFRESH_S
            master.grew(now)
            for connection in list(self._connections):
                deadline = min(deadline, self._tick_connection(connection, now))
            master.replicas.refresh(now)
            self._note_in_sync(now)
            self._settle()
            for wait in master.promises.expire(now):
                master.counters.timeouts += wait.sends
                wait.end(Kept.TIMED_OUT)
            first_deadline = master.promises.next_deadline()
            if first_deadline is not None:
                deadline = min(deadline, first_deadline)
            with trio.CancelScope(deadline=max(deadline, now + _STEP_S)) as self._tick_scope:
                await trio.sleep_forever()

    def _tick_connection(self, connection: _Connection, now: float) -> float:
        """Do what is due for a connection; return when to come again."""
        link, channel = connection.link, connection.channel
        link.tick(now)
        why = link.end_reason
        begin = self._store_log.begin
        # A link that sends finds these out by itself, but one whose slave takes nothing does not.
        if why is None and link.replica is not None:
            if link.position < begin:
                # It would keep the room of a deleted file.
                why = f"its bytes at {link.position} have expired, the log begins at {begin}"
            elif link.replica.is_superseded:
                why = "its slave has connected anew"
        if why is not None:
            self._end(connection, why)
            connection.scope.cancel()
            return math.inf
        if channel is None:
            return link.next_tick
        channel.push(now)
        return link.next_tick if channel.is_idle else math.inf


async def _listen(host: str, port: int) -> list[trio.SocketListener]:
    try:
        return await trio.open_tcp_listeners(port, host=host or None)
    except OSError as exc:
        hint = None
        if exc.errno == errno.EADDRINUSE:
            hint = f"another process listens there: find it with `ss -ltnp 'sport = :{port}'`"
        raise ListenError(
            format_address((host, port)), exc.strerror or str(exc), hint=hint
        ) from exc
