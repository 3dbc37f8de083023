"""The replication port of a master: accepts slaves, streams the log, receives their reports.

Nothing is decided here. `MasterLink` judges what a slave says, `PendingAcks` which sends it
releases; this module moves bytes between them and sockets, keeps time, and logs who comes and goes.

`pump` is called after every round of appends and sends in the caller's step, so that a message is
on its way to slaves before its send waits for them. A slave's report releases all sends it covers
in the step in which it is read.
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
from rmq.ha.link_status import REFUSED, STOPS, LinkLog, status_of
from rmq.ha.master_channel import PlainChannel, close
from rmq.ha.protocol.master_link import MasterLink
from rmq.ha.protocol.pending_acks import AckOutcome
from rmq.ha.protocol.wire import NONCE_BYTES
from rmq.ha.store_log import LogReader
from rmq.ha.tls_channel import TLS_FIRST_BYTE, TlsChannel
from rmq.remoting.addresses import format_address
from rmq.settings.networks import is_allowed, plain_host

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from rmq.ha.link_status import LinkStatus
    from rmq.ha.master_channel import Channel
    from rmq.ha.protocol.master import Master
    from rmq.ha.store_log import StoreLog
    from rmq.model.offsets import PhysicalOffset
    from rmq.settings.networks import Network

REFRESH_S: Final = 1.0
"""How often it is checked which slaves are still in sync."""
REPORT_PAUSE_S: Final = 0.01
"""In async mode reports of a slave are read this often: a step costs as much for one report as for
many.
"""
_STEP_S: Final = 0.001
"""Shortest sleep of the timer task."""
_LAST_WORDS_S: Final = 1.0
"""How long a refused slave may take to receive the reason."""
_READ_THREADS: Final = 4
NEWCOMER_S: Final = 2.0
"""How long a connection may take to say who it is, when others need its place."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HaServerConfig:
    """Where the port listens, and which slaves may connect."""

    host: str = "0.0.0.0"
    port: int = 0
    allowed: tuple[Network, ...] = ()
    """Networks that slaves may connect from; empty: any."""
    tls_context: Callable[[], ssl.SSLContext | None] | None = None
    """Returns the context for a new connection; None: no TLS."""
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
    """Slaves hold more than before (`PendingAcks.visible`)."""
    in_one_round: Callable[[Callable[[], None]], None] = lambda act: act()
    """Runs what answers sends, so that their answers leave together and at once."""


class ReplicationWait:
    """Sends that are released together."""

    __slots__ = ("_callback", "sends")

    def __init__(self, callback: Callable[[AckOutcome], None], sends: int) -> None:
        self._callback: Callable[[AckOutcome], None] | None = callback
        self.sends = sends

    def end(self, outcome: AckOutcome) -> None:
        # The wait may be referenced for a while; its callback keeps large objects alive.
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(outcome)


class _Connection:
    """One connection and its state."""

    __slots__ = (
        "channel",
        "host",
        "in_sync",
        "is_over",
        "is_told",
        "link",
        "scope",
        "since",
        "sock",
    )

    def __init__(self, sock: socket.socket, link: MasterLink, host: str, since: float) -> None:
        self.sock = sock
        self.since = since
        self.link = link
        self.host = host
        self.channel: Channel | None = None
        """None before the first byte shows whether it is encrypted."""
        self.scope = trio.CancelScope()
        self.is_told = False
        """The connection was logged."""
        self.in_sync = False
        """Whether it was in sync at the last check."""
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
        """May be changed at any time; open connections stay."""
        self._store_log = log
        self._connections: list[_Connection] = []
        self._in_sync_most = 0
        self._link_log = LinkLog()
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

    # --- called by the broker ----------------------------------------------------------------

    def pump(self) -> None:
        """Send new bytes to slaves, as far as their sockets take them at once. Never waits."""
        now = trio.current_time()
        self.master.grew(now)
        for connection in self._connections:
            self._push(connection, now)

    def when_replicated(
        self, end_offset: PhysicalOffset, callback: Callable[[AckOutcome], None], sends: int = 1
    ) -> None:
        """Call back when enough slaves hold the log up to `end_offset`; at once if they do.

        `sends` is how many are answered by that, to be counted.
        """
        wait = ReplicationWait(callback, sends)
        pending_acks = self.master.pending_acks
        now = trio.current_time()
        outcome = pending_acks.ask(end_offset, now, wait)
        if outcome is None:
            deadline = now + pending_acks.timeout_s
            if deadline < self._tick_scope.deadline:
                self._tick_scope.deadline = deadline
            return
        if outcome is AckOutcome.NOT_AVAILABLE:
            self.master.counters.unavailable += sends
        wait.end(outcome)

    def statistics(self) -> list[LinkStatus]:
        """Return the slaves that are connected, then those that were."""
        now = trio.current_time()
        end = self._store_log.end
        connected = [
            status_of(connection.link.slave, connection.channel, end, now)
            for connection in self._connections
            if connection.link.slave is not None
        ]
        return connected + [status_of(gone, None, end, now) for gone in self.master.slaves.gone]

    # --- running -----------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; `started` reports the port."""
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
            # No report will release them any more; their messages are in this log, at least.
            for wait in self.master.pending_acks.give_up():
                wait.end(AckOutcome.TIMED_OUT)

    def attach(self, sock: socket.socket, host: str, peer: str) -> None:
        """Serve a connection that the caller accepted."""
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
            # Close without a word: a slave must not adopt an epoch that may be withdrawn.
            sock.close()
            return
        if not is_allowed(self.allowed, host):
            refusal = "its address is not among haAllowedAddresses"
        elif len(self._connections) >= self.config.links_max and not self._make_room(now):
            refusal = f"{len(self._connections)} connections are open, the limit"
        if refusal is not None:
            self.master.counters.refused += 1
            self._link_log.refused(host, peer, refusal, now)
            sock.close()
            return
        sock.setblocking(False)
        link = MasterLink(self.master, host, peer, nonce=secrets.token_bytes(NONCE_BYTES), now=now)
        connection = _Connection(sock, link, host, now)
        self._connections.append(connection)
        self._check_again(connection)
        try:
            with connection.scope:
                await self._talk(connection)
        except Exception:  # one connection must not end the others
            logger.exception("the link to %s failed", peer)
            self._end(connection, "an error in this broker, see its log")
        finally:
            self._end(connection, STOPS)
            if connection.channel is not None:
                connection.channel.close()
            else:
                close(sock)

    def _make_room(self, now: float) -> bool:
        """End the connection that has not said for longest who it is; return whether there is one
        that had time for it. Else strangers could keep a slave out.
        """
        for connection in self._connections:
            if connection.link.slave is None and now - connection.since >= NEWCOMER_S:
                self._end(connection, "it has not said who it is, and others wait")
                connection.scope.cancel()
                return True
        return False

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
            # The channel may still have to send why the link ends.
            grace_s = _LAST_WORDS_S if has_last_words else 0
            nursery.cancel_scope.deadline = trio.current_time() + grace_s

    async def _open(self, connection: _Connection) -> str | None:
        """Choose the channel by the first byte; return why the connection cannot be served."""
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
                sock, link, reader, self._limiter, partial(self._check_again, connection)
            )
            return None
        context = config.tls_context() if config.tls_context is not None else None
        if context is None:
            return self._refused("it speaks TLS, and this master does not (haTlsMode)")
        channel = TlsChannel(
            sock, context, link, reader, self._limiter, partial(self._check_again, connection)
        )
        failure = await channel.handshake()
        if failure is not None:
            # A connection that this side closed was not refused.
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
        """Process a slave's frames until the connection ends; return why."""
        link, pending_acks = connection.link, self.master.pending_acks
        while link.end_reason is None:
            if not pending_acks.is_sync and link.slave is not None:
                await trio.sleep(REPORT_PAUSE_S)
            try:
                # With few waiting sends each report matters.
                data = await channel.receive(
                    busy_waits=pending_acks.is_sync and len(pending_acks) <= 1
                )
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                return f"the connection failed: {exc.__cause__ or exc}"
            if not data:
                return "it closed the connection"
            now = trio.current_time()
            heard = self.master.records_heard
            link.receive(data, now)
            if self.master.records_heard != heard and self._tell_recorded is not None:
                self._tell_recorded()
            if not connection.is_told and link.slave is not None:
                connection.is_told = True
                self._link_log.connected(connection.host, link, self._store_log.end, now)
            self._note_in_sync(now)
            self._in_one_round(self._release_sends)
            self._push(connection, now)
        return link.end_reason

    def _push(self, connection: _Connection, now: float) -> None:
        """Send what a connection takes at once."""
        channel = connection.channel
        if channel is not None:
            channel.push(now)
            if channel.is_idle:
                self._check_again(connection)

    # --- consequences of reports --------------------------------------------------------------

    def release_sends(self) -> None:
        """Answer the sends whose messages enough slaves hold, and tell slaves what is new."""
        self._in_one_round(self._release_sends)
        self.pump()

    def _release_sends(self) -> None:
        """Answer the sends whose messages enough slaves hold by now."""
        pending_acks = self.master.pending_acks
        visible = pending_acks.visible
        waits = pending_acks.release()
        if pending_acks.visible != visible and self._tell_visible_moved is not None:
            self._tell_visible_moved()
        for wait in waits:
            wait.end(AckOutcome.REPLICATED)

    def _note_in_sync(self, now: float) -> None:
        """Log and report slaves that got in sync or out of sync."""
        slaves = self.master.slaves
        has_changed = slaves.in_sync_most != self._in_sync_most
        for connection in self._connections:
            slave = connection.link.slave
            if slave is None:
                continue
            in_sync = slave.in_sync and slave.has_answered
            if in_sync != connection.in_sync:
                connection.in_sync = in_sync
                has_changed = True
                end = self._store_log.end
                self._link_log.in_sync_changed(connection.host, slave, end, now)
        if has_changed:
            self._in_sync_most = slaves.in_sync_most
            for connection in self._connections:
                # Frames to native slaves say how many are in sync, and whether they are.
                self._push(connection, now)
            if self._tell_in_sync_changed is not None:
                self._tell_in_sync_changed()
            if len(self.master.pending_acks) and not slaves.is_enough:
                self._in_one_round(self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        """Answer all waiting sends now: too few slaves are left to release them."""
        master = self.master
        for wait in master.pending_acks.give_up():
            master.counters.unavailable += wait.sends
            wait.end(AckOutcome.NOT_AVAILABLE)

    def _end(self, connection: _Connection, why: str) -> None:
        """Remove a connection at once; its tasks end when they run next."""
        if connection.is_over:
            return
        connection.is_over = True
        now = trio.current_time()
        link = connection.link
        link.closed(now, why)
        self._connections.remove(connection)
        self._link_log.ended(connection.host, link, now)
        self._note_in_sync(now)

    # --- time --------------------------------------------------------------------------------

    def _check_again(self, connection: _Connection) -> None:
        """Wake `_tick` in time for a connection that has nothing to do until then."""
        next_tick = connection.link.next_tick
        if next_tick < self._tick_scope.deadline:
            self._tick_scope.deadline = next_tick

    async def _tick(self) -> None:
        """Send heartbeats, end silent links, answer sends whose deadline has passed."""
        master = self.master
        while True:
            now = trio.current_time()
            deadline = now + REFRESH_S
            master.grew(now)
            for connection in list(self._connections):
                deadline = min(deadline, self._tick_connection(connection, now))
            master.slaves.refresh(now)
            self._note_in_sync(now)
            self._link_log.summarize(now)
            self._release_sends()
            for wait in master.pending_acks.expire(now):
                master.counters.timeouts += wait.sends
                wait.end(AckOutcome.TIMED_OUT)
            first_deadline = master.pending_acks.next_deadline()
            if first_deadline is not None:
                deadline = min(deadline, first_deadline)
            with trio.CancelScope(deadline=max(deadline, now + _STEP_S)) as self._tick_scope:
                await trio.sleep_forever()

    def _tick_connection(self, connection: _Connection, now: float) -> float:
        """Run what is due for a connection; return when the next thing is."""
        link, channel = connection.link, connection.channel
        link.tick(now)
        why = link.end_reason
        begin = self._store_log.begin
        # A link that sends detects these itself, but one whose slave reads nothing does not.
        if why is None and link.slave is not None:
            if link.position < begin:
                # It would keep the disk space of a deleted file.
                why = f"its bytes at {link.position} have expired, the log begins at {begin}"
            elif link.slave.is_superseded:
                why = "its slave has connected again"
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
