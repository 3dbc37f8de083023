"""All connections of a client, and waiting for them.

`step` is the one place where a process waits: until something comes, a deadline passes or the
caller's time is over. Everything else is queued (`submit`) or carried on in callbacks. Where
threads share the connections, one of those that wait polls for all (`rmq.client.blocking.monitor`);
the others sleep until their answer is there.

Deadlines count the time that is spent in `step`. A caller that goes away for a minute between two
steps finds its answers where the kernel kept them, not a row of timeouts.

After a fork the child has connections of its own: its copies of the parent's are closed without a
byte, and nothing of what was under way there goes on here.
"""

from __future__ import annotations

import heapq
import math
import os
import select
import time
import weakref
from typing import TYPE_CHECKING, Final, final

from rmq.client.blocking.connection import Connection
from rmq.client.blocking.monitor import Monitor, Sleeper
from rmq.client.blocking.waker import Waker
from rmq.errors import (
    ClientClosedError,
    ClientError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
)
from rmq.remoting.busy_wait import BusyWait, give_way

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.client.blocking.calls import Call
    from rmq.client.blocking.frames import Settings
    from rmq.client.core.broker_requests import Reply
    from rmq.remoting.codes import RequestCode
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

IDLE_S: Final = 1.0
"""A connection without a request for longer is polled before it is used: it may be closed."""
FORKED: Final = "the process was forked"

_monotonic = time.monotonic


@final
class Connections:
    """The connections of one client, by address; made when needed, and again when lost."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_request: Callable[[str, Command], Reply | None],
        monitor: Monitor | None = None,
    ) -> None:
        """`monitor`: threads that share these connections are inside when they call."""
        self.settings = settings
        self._monitor = Monitor() if monitor is None else monitor
        self.generation = 0
        """How many forks this object has been through."""
        self._on_request = on_request
        self._by_address: dict[str, Connection] = {}
        self._poll = select.poll()
        self._by_descriptor: dict[int, Connection] = {}
        self._waker: Waker | None = None
        """Ends the poll of the thread that drives; made by the first step."""
        self._attended_s = 0.0
        self._driven_since = 0.0
        """When the poll of the thread that drives began."""
        self._driven_to = math.inf
        """When that poll ends at the latest, by the clock of deadlines."""
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timers_made = 0
        self._busy_wait = BusyWait(settings.busy_wait_s)
        self._is_closed = False
        _living.add(self)

    @property
    def now(self) -> float:
        """The clock of deadlines: how long this process has waited here, in seconds."""
        if self._monitor.is_driven:
            # Another thread waits since then, which is counted when it is back.
            return self._attended_s + _monotonic() - self._driven_since
        return self._attended_s

    # --- requests ----------------------------------------------------------------------------

    def submit(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        timeout_s: float,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        on_outcome: Callable[[Command | ClientError], None] | None = None,
    ) -> Call:
        """Queue a request; raise `ClientError` if there is no way to send it.

        It leaves with the next `step`. Connecting counts against `timeout_s`.
        """
        return self._connection(address).submit(
            code,
            header,
            body,
            extra,
            timeout_s=timeout_s,
            now=self.now if self._monitor.is_driven else self._attended_s,
            on_outcome=on_outcome,
        )

    def tell(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
    ) -> None:
        """Queue a request that is not answered; it leaves with the next `step`."""
        self._connection(address).tell(code, header, body, extra, remark)

    def request(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        timeout_s: float,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Command:
        """Send a request and wait for its answer, whatever its code; raise `ClientError`."""
        call = self.submit(address, code, header, timeout_s=timeout_s, body=body, extra=extra)
        self.wait(call)
        if isinstance(call.outcome, ClientError):
            raise call.outcome
        assert call.outcome is not None, "completed without an outcome"
        return call.outcome

    def wait(self, call: Call) -> None:
        """Wait until a call is complete."""
        while call.outcome is None:
            if self._monitor.is_driven:
                call.on_outcome = sleeper = Sleeper()
                try:
                    self._sleep(sleeper, math.inf, for_any=False)
                finally:
                    call.on_outcome = None
            else:
                self.step()

    def wait_written(self, address: str, *, what: str, timeout_s: float) -> None:
        """Wait until the kernel has all that was queued for an address; raise `ClientError`."""
        connection = self._by_address.get(address)
        if connection is None:
            raise ConnectionLostError(address, "it ended before all was sent")
        until = _monotonic() + timeout_s
        connection.flush(self.now)
        while connection.unwritten_bytes and connection.close_reason is None:
            if _monotonic() >= until:
                connection.close(f"the peer took nothing for {timeout_s:g} s")
                raise RequestTimeoutError(address, what, timeout_s)
            self.step(until)
        if connection.close_reason is not None:
            raise connection.error()

    def sleep(self, seconds: float) -> None:
        """Wait; calls and flows in flight proceed meanwhile."""
        until = _monotonic() + seconds
        while _monotonic() < until:
            self.step(until)

    def is_open(self, address: str) -> bool:
        """Whether there is a connection to an address now."""
        connection = self._by_address.get(address)
        return connection is not None and connection.is_open

    def _connection(self, address: str) -> Connection:
        now = _monotonic()
        connection = self._by_address.get(address)
        if connection is not None:
            if now - connection.used_at > IDLE_S:
                connection.look(self.now)
            if connection.close_reason is None:
                connection.used_at = now
                return connection
        if self._is_closed:
            raise ClientClosedError("the client")
        try:
            connection = Connection(
                address,
                self.settings,
                now=self.now,
                on_request=self._on_request,
                on_end=self._forget,
            )
        except ConfigError as exc:
            # An address that a nameserver gave us, and that is none.
            raise ConnectFailedError(address, exc.reason) from exc
        connection.used_at = now
        self._by_address[address] = connection
        return connection

    def _forget(self, connection: Connection) -> None:
        if self._by_address.get(connection.address) is connection:
            del self._by_address[connection.address]
        self._unregister(connection)

    # --- waiting -----------------------------------------------------------------------------

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Have `step` call a function after a delay."""
        self._timers_made += 1
        heapq.heappush(self._timers, (self.now + delay_s, self._timers_made, callback))

    def flush(self) -> None:
        """Write queued bytes of all connections without waiting."""
        now = self.now
        for connection in list(self._by_address.values()):
            connection.flush(now)

    def step(self, until: float | None = None) -> None:
        """Wait until something happens, `until` (by `time.monotonic`) at the longest."""
        monitor = self._monitor
        started = _monotonic()
        if monitor.is_driven:
            wait_s = math.inf if until is None else max(0.0, until - started)
            self._sleep(Sleeper(), wait_s, for_any=True)
            return
        # What is sent may fail, and callbacks may dial again: so those that are there afterwards
        # are waited for.
        self.flush()
        nearest = self._timers[0][0] if self._timers else math.inf
        for connection in self._by_address.values():
            self._register(connection)
            if (deadline := connection.next_deadline()) < nearest:
                nearest = deadline
        wait_s = nearest - self._attended_s
        if until is not None and until - started < wait_s:
            wait_s = until - started
        if wait_s == math.inf and self._is_closed:
            # By another thread.
            raise ClientClosedError("the client")
        assert wait_s < math.inf, "nothing is under way, and nothing would end this wait"
        if self._waker is None:
            self._waker = Waker(self._poll)
        self._driven_since, self._driven_to = started, self._attended_s + wait_s
        monitor.is_driven = True
        depth = monitor.leave()
        try:
            ready = self._look(started, wait_s)
            if not ready:
                wait_s -= _monotonic() - started
                ready = self._poll.poll(wait_s * 1000 if wait_s > 0 else 0)
        finally:
            monitor.come_back(depth)
            monitor.is_driven = False
            self._attended_s += _monotonic() - started
        now = self._attended_s
        by_descriptor = self._by_descriptor
        for descriptor, mask in ready:
            found = by_descriptor.get(descriptor)
            if found is not None:
                found.on_ready(mask, now)
            elif descriptor == self._waker.descriptor:
                self._waker.take()
        if now >= nearest:
            self._expire(now)
        if monitor.is_shared:
            monitor.happened()
        if self._is_closed:
            self._drop_waker()

    def _sleep(self, sleeper: Sleeper, seconds: float, *, for_any: bool) -> None:
        """Sleep while another thread drives, which is told of what it does not know of yet."""
        self.flush()
        if self._waker is not None and (
            any(
                connection.poll_key() != connection.polled
                or connection.next_deadline() < self._driven_to
                for connection in self._by_address.values()
            )
            or (self._timers and self._timers[0][0] < self._driven_to)
        ):
            self._driven_to = -math.inf
            self._waker.wake()
        self._monitor.sleep(sleeper, seconds, for_any=for_any)

    def _look(self, started: float, wait_s: float) -> list[tuple[int, int]]:
        """Busy-wait briefly for ready connections; return them, none if the caller has to sleep."""
        busy_wait = self._busy_wait
        if wait_s < busy_wait.limit_s or self._monitor.is_shared or not busy_wait.is_worth_it():
            # Other threads need the interpreter.
            return []
        until = started + busy_wait.limit_s
        while not (ready := self._poll.poll(0)):
            if _monotonic() >= until:
                busy_wait.missed()
                return []
            give_way()
        busy_wait.found()
        return ready

    def _expire(self, now: float) -> None:
        for connection in list(self._by_address.values()):
            if connection.next_deadline() <= now:
                connection.expire(now)
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _register(self, connection: Connection) -> None:
        key = connection.poll_key()
        if key == connection.polled:
            return
        if connection.polled is not None and connection.polled[0] != key[0]:
            self._unregister(connection)
        # `register` also changes what is registered already.
        self._poll.register(*key)
        self._by_descriptor[key[0]] = connection
        connection.polled = key

    def _unregister(self, connection: Connection) -> None:
        if connection.polled is None:
            return
        descriptor = connection.polled[0]
        connection.polled = None
        if self._by_descriptor.get(descriptor) is connection:
            del self._by_descriptor[descriptor]
            self._poll.unregister(descriptor)

    # --- the end -----------------------------------------------------------------------------

    def close(self, *, linger_s: float) -> None:
        """Close all connections; what is queued is sent before, if that takes no longer."""
        self._is_closed = True
        until = _monotonic() + linger_s
        try:
            while self._has_output() and _monotonic() < until:
                self.step(until)
        finally:
            for connection in list(self._by_address.values()):
                connection.close("the client was closed")
            self._timers.clear()
            self._monitor.happened()
            if self._monitor.is_driven and self._waker is not None:
                self._waker.wake()
            else:
                self._drop_waker()

    def _drop_waker(self) -> None:
        if self._waker is not None:
            self._waker.close()
            self._waker = None

    def _has_output(self) -> bool:
        return any(each.unwritten_bytes for each in self._by_address.values())

    def forget_all(self) -> None:
        """Drop all connections and calls of the parent process after a fork."""
        self.generation += 1
        connections = list(self._by_address.values())
        self._by_address.clear()
        self._by_descriptor.clear()
        self._timers.clear()
        self._poll = select.poll()
        self._drop_waker()
        for connection in connections:
            connection.forget(FORKED)


_living: Final[weakref.WeakSet[Connections]] = weakref.WeakSet()


def _after_fork() -> None:
    for connections in list(_living):
        connections.forget_all()


os.register_at_fork(after_in_child=_after_fork)
