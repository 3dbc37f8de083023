"""What all connections of one server or one client share: registry, flusher, timer, health checks,
handlers.

An endpoint owns the nursery in which its connections and its service tasks live:

- the poller reads from plain connections (others have a task each);
- the flusher writes, once per step of the scheduler, what was queued on connections from outside
  their readers;
- the timer wakes the calls whose deadline has passed;
- the inspector closes connections that are idle, stuck or not read by their peer.
"""

from __future__ import annotations

import logging
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

import trio

from rmq.log_limits import LimitedLog
from rmq.process_limits import memory_limit
from rmq.remoting.busy_wait import BusyWait, Wakings, give_way
from rmq.remoting.channel import Channel
from rmq.remoting.command import FrameEncoder
from rmq.remoting.fairness.shares import HostShares
from rmq.remoting.poller import Poller, run_poller
from rmq.remoting.session import Deadlines
from rmq.remoting.transport import SocketTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from rmq.remoting.awaited import Awaited
    from rmq.remoting.channel import Call, ChannelConfig
    from rmq.remoting.codes import LanguageCode
    from rmq.remoting.dispatch import Dispatcher
    from rmq.remoting.signing import Credentials
    from rmq.remoting.transport import Transport

T = TypeVar("T")

logger = logging.getLogger(__name__)

_INSPECTION_INTERVAL_S: Final = 1.0
_FLUSHES_PER_STEP: Final = 256

HELD_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of large unfinished frames, and of large requests that wait, that all connections of an
endpoint may hold together; less where the process may have little memory.
"""
_MEMORY_SHARE: Final = 8
"""What part of the memory that the process may have is for those bytes."""
_SHED_BYTES_MIN: Final = 64 * 1024
_HELD_BYTES_OF_HOST_MIN: Final = 16 * 1024 * 1024
"""What every host may hold: the largest frame."""


class ConnectionListener(Protocol):
    """Callbacks for the life of connections, in the event loop: they must not block or raise."""

    def connection_opened(self, channel: Channel) -> None: ...

    def connection_closed(self, channel: Channel, reason: str) -> None: ...

    def connection_idle(self, channel: Channel) -> None: ...


@dataclass(frozen=True, slots=True)
class EndpointStatistics:
    """A snapshot for metrics."""

    connections: int
    outbox_bytes: int
    held_bytes: int
    calls_under_way: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Bounds of the connections of one endpoint."""

    channel: ChannelConfig
    """Of each connection."""
    held_bytes_max: int = HELD_BYTES_MAX
    """Bytes of large requests that are not whole yet, or that wait, of all connections."""
    host_share_max: int = 100
    """What one host may have of those, in percent; a client may have but one."""
    busy_wait_s: float = 0.0
    """How long to poll for a single answer before sleeping."""


class Endpoint:
    """The shared part of a server's or client's connections."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        config: EndpointConfig,
        language: LanguageCode,
        dials: bool,
        listeners: Iterable[ConnectionListener] = (),
        on_round: Callable[[], None] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.encoder = FrameEncoder(
            language=language, frame_bytes_max=config.channel.frame_bytes_max
        )
        self.dispatcher = dispatcher
        self.dials = dials
        """Whether we made the connections, and could make them again."""
        self.credentials = credentials
        """What channels sign their requests with; None: requests are not signed."""
        self.channel_config = config.channel
        self.channels: set[Channel] = set()
        self.now: Callable[[], float] = trio.current_time
        self.work_now: Callable[[], float] = time.perf_counter
        """What turns are measured by: the time that passes also where the clock is a mock."""
        self.lines = LimitedLog(logging.getLogger("rmq.remoting"))
        """For lines that peers can cause, with limits per host."""
        self._listeners = tuple(listeners)
        self._held_bytes_max = min(config.held_bytes_max, memory_limit() // _MEMORY_SHARE)
        self._held = HostShares(
            self._held_bytes_max,
            floor=_HELD_BYTES_OF_HOST_MIN,
            share_max=config.host_share_max,
        )
        self._nursery: trio.Nursery | None = None
        self._poller: Poller | None = None
        self._on_round = on_round
        self.in_round = False
        """Whether a round is in progress: `on_round` is called at its end."""
        self._dirty: list[Channel] = []
        self._flusher = trio.lowlevel.ParkingLot()
        self.wakings = Wakings()
        self._busy_wait = BusyWait(config.busy_wait_s)
        self._deadlines: Deadlines[Call] = Deadlines()
        self._timer = trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        """Open the nursery and the service tasks; on leaving, every connection is closed.

        An error of the block comes out as itself, not inside a group.
        """
        error: Exception | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            # The clock itself, asked directly: channels ask at every read.
            self.now = trio.lowlevel.current_clock().current_time
            try:
                if Poller.available:
                    self._poller = await nursery.start(run_poller, self)
                await nursery.start(self.dispatcher.run)
                nursery.start_soon(self._flush_dirty)
                nursery.start_soon(self._expire_calls)
                nursery.start_soon(self._inspect)
                yield nursery
            except Exception as exc:  # noqa: BLE001 - raised again below, outside the nursery
                error = exc
            finally:
                for channel in list(self.channels):
                    channel.close("the endpoint is closing")
                nursery.cancel_scope.cancel()
                self._nursery = None
                self._poller = None
        if error is not None:
            raise error

    @property
    def is_running(self) -> bool:
        return self._nursery is not None

    def open_channel(self, transport: Transport) -> Channel:
        """Register a connection and begin to read from it."""
        assert self._nursery is not None, "the endpoint is not running"
        channel = Channel(transport, self)
        self.channels.add(channel)
        self._notify("connection_opened", lambda listener: listener.connection_opened(channel))
        if self._poller is not None and isinstance(transport, SocketTransport):
            try:
                if channel.is_open:
                    self._poller.add(channel, transport)
                else:
                    # A listener closed it.
                    transport.close()
            except (OSError, MemoryError) as exc:
                transport.close()
                channel.close(f"it cannot be watched: {exc}")
        else:
            self._nursery.start_soon(channel.run)
        return channel

    def statistics(self) -> EndpointStatistics:
        return EndpointStatistics(
            connections=len(self.channels),
            outbox_bytes=sum(channel.outbox_bytes for channel in self.channels),
            held_bytes=sum(channel.held_bytes for channel in self.channels),
            calls_under_way=sum(channel.calls_under_way for channel in self.channels),
        )

    # ---- called by channels ----------------------------------------------------------------------

    def schedule_flush(self, channel: Channel) -> None:
        self._dirty.append(channel)
        if not self.in_round:
            self._flusher.unpark()

    # ---- called by the poller --------------------------------------------------------------------

    def begin_round(self, connections: int) -> None:
        self.in_round = True
        # With a single connection the first responses are written while the rest is served.
        self.dispatcher.collects = connections > 1

    def serve_collected(self) -> None:
        self.dispatcher.serve_collected()

    def end_round(self) -> None:
        """Serve what was collected, run the `on_round` callback, and write all responses."""
        self.dispatcher.serve_collected()
        self.dispatcher.collects = False
        if self._on_round is not None:
            try:
                self._on_round()
            except Exception:
                logger.exception("on_round callback raised")
        self.in_round = False
        dirty = self._dirty
        if not dirty:
            return
        if len(dirty) > _FLUSHES_PER_STEP:
            self._flusher.unpark()
            return
        self._dirty = []
        for channel in dirty:
            channel.flush()

    def in_one_round(self, act: Callable[[], None]) -> None:
        """Run `act`, which answers deferred requests; its responses are written in this step."""
        if self.in_round:
            act()
            return
        self.in_round = True
        try:
            act()
        finally:
            self.end_round()

    def watch(self, deadline: float, call: Call) -> None:
        if self._deadlines.add(deadline, call):
            self._timer.unpark()

    @property
    def is_busy_waiting(self) -> bool:
        """Whether this endpoint busy-waits at all."""
        return self._busy_wait.limit_s > 0

    async def busy_wait_for(self, awaited: Awaited[T], is_alone: Callable[[], bool]) -> None:
        """Busy-wait for an outcome while `is_alone()`, up to the limit.

        Other tasks run between two polls.
        """
        poller, busy_wait = self._poller, self._busy_wait
        if poller is None or not busy_wait.is_worth_it():
            return
        until = time.perf_counter() + busy_wait.limit_s
        while is_alone():
            await trio.lowlevel.cancel_shielded_checkpoint()
            if awaited.outcome is None:
                poller.poll()
            if awaited.outcome is not None:
                busy_wait.found()
                return
            if time.perf_counter() >= until:
                busy_wait.missed()
                return
            give_way()

    def start_soon(self, function: Callable[[], Awaitable[object]]) -> None:
        assert self._nursery is not None, "the endpoint is not running"
        self._nursery.start_soon(function)

    def report_idle(self, channel: Channel) -> None:
        self._notify("connection_idle", lambda listener: listener.connection_idle(channel))

    def forget(self, channel: Channel) -> None:
        """Remove a connection that has ended."""
        self.channels.discard(channel)
        if self._poller is not None:
            self._poller.remove(channel)
        self.dispatcher.forget(channel)
        reason = channel.close_reason or "closed"
        self._notify(
            "connection_closed", lambda listener: listener.connection_closed(channel, reason)
        )

    def unblocked(self, channel: Channel) -> None:
        """Resume reading from a connection that was paused."""
        if self._poller is not None:
            self._poller.resume(channel)

    def hold_bytes(self, host: str, change: int) -> bool:
        """Count bytes of large unfinished frames and waiting requests; return whether they are too
        many, in all or of this host.
        """
        is_too_many = change > self._held.room_for(host)
        self._held.change(host, change)
        return is_too_many

    def has_room_for(self, host: str, count: int) -> bool:
        """Whether that many more bytes may be held for a host."""
        return count <= self._held.room_for(host)

    def ran_out_of_memory(self) -> None:
        """Close the connections that hold most: half of all that is held."""
        held = sum(channel.own_bytes() for channel in self.channels)
        self.shed_bytes(held // 2, "out of memory")

    def shed_bytes(self, count: int, reason: str) -> None:
        """Close connections until that many bytes less are held, the largest first."""
        largest = sorted(self.channels, key=Channel.own_bytes, reverse=True)
        for channel in largest:
            held = channel.own_bytes()
            if count <= 0 or held < _SHED_BYTES_MIN:
                return
            count -= held
            channel.warn(
                "memory",
                "closing connection of %s: %s, it holds %d bytes",
                channel.peer,
                reason,
                held,
            )
            channel.close(reason)

    def _notify(self, event: str, call: Callable[[ConnectionListener], None]) -> None:
        for listener in self._listeners:
            try:
                call(listener)
            except Exception:
                logger.exception("%r failed on %s", listener, event)

    # ---- service tasks ---------------------------------------------------------------------------

    async def _flush_dirty(self) -> None:
        while True:
            if not self._dirty:
                await self._flusher.park()
            dirty, self._dirty = self._dirty, []
            for number, channel in enumerate(dirty, start=1):
                channel.flush()
                if number % _FLUSHES_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()

    async def _expire_calls(self) -> None:
        while True:
            deadline = self._deadlines.next_at()
            with trio.CancelScope() as scope:
                if deadline is not None:
                    scope.deadline = deadline
                await self._timer.park()
            for call in self._deadlines.expire(trio.current_time()):
                if not call.is_complete:
                    call.channel.expire(call)

    async def _inspect(self) -> None:
        while True:
            await trio.sleep(_INSPECTION_INTERVAL_S)
            try:
                self._inspect_now(trio.current_time())
            except MemoryError:
                self.ran_out_of_memory()

    def _inspect_now(self, now: float) -> None:
        held = 0
        for channel in list(self.channels):
            channel.check_health(now)
            held += channel.own_bytes()
        if held > self._held_bytes_max:
            self.shed_bytes(
                held - self._held_bytes_max, "what all connections hold takes too much memory"
            )
        self.dispatcher.refuse_old(now)
        self.lines.summarize(now)
