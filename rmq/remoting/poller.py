"""Reads from all plain connections of an endpoint in one task.

A task per connection costs a scheduler step per read: 10 µs, as much as decoding and answering
three requests. Here the connections sit in an epoll of their own, trio waits for that epoll to have
something, and one step then reads from every connection that is ready. With 64 requests under way
on 16 connections that is half as fast again, and an idle connection needs no task.

The answers to several connections are written together at the end of a round: each write to a peer
that sleeps costs waking it, and one that has just been woken finds more to do.

Turns are taken by connection: one read each, at most, until all that were ready have been read. A
connection whose frames were not all handled in its turn goes to the end of the line, and is not
read again before they are. In that line hosts take turns (`turns`). Those that have new bytes come
before it, so that a thousand connections that flood hold up one that sends little for a few
milliseconds. Turns end by count, and by time where requests are heavy.

How long requests have waited since their bytes arrived is told with them, so that they can be
refused when that was too long. What waits for its own connection only does not count: TCP slows
down what is sent too fast.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, final

import trio

from rmq.remoting.channel import FRAMES_PER_TURN, TURN_S
from rmq.remoting.fairness.turns import Turns
from rmq.remoting.session import Arrivals
from rmq.remoting.transport import RECEIVE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.remoting.channel import Channel
    from rmq.remoting.transport import SocketTransport

_EVENTS_MAX: Final = 64
_FRAMES_PER_WRITE: Final = 64
"""Answers to several connections are written together, but none waits for more frames than this."""
_FRAMES_PER_STEP: Final = 512
"""After this many frames the other tasks run: some 2 ms of plain requests."""
_FRAMES_PER_LAP: Final = 2048
"""When more connections than `_CROWD` are ready, each has had a turn after about this many frames.
"""
_CROWD: Final = 64
_CROWDED_BYTES: Final = 8 * 1024
"""How much is read at once from each of that many: it is kept until it is handled."""


class Rounds(Protocol):
    """Callbacks at the begin and end of a round of reading. They must not raise."""

    work_now: Callable[[], float]
    """What turns are measured by."""

    def begin_round(self, connections: int) -> None:
        """The poller is about to read this many connections."""

    def serve_collected(self) -> None:
        """Serve the requests read so far; their responses are about to be written."""

    def end_round(self) -> None:
        """All ready connections have been read."""

    def ran_out_of_memory(self) -> None:
        """There was no memory to read more."""


@final
class Poller:
    """The reading side of plain connections. Linux only; elsewhere each connection has a task."""

    available: ClassVar[bool] = hasattr(select, "epoll") and hasattr(os, "eventfd")

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._now = trio.lowlevel.current_clock().current_time
        self._work_now = rounds.work_now
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._members: dict[int, tuple[Channel, SocketTransport]] = {}
        self._fds: dict[Channel, int] = {}
        self._waiting = Turns()

    def add(self, channel: Channel, transport: SocketTransport) -> None:
        fd = transport.fileno()
        self._epoll.register(fd, select.EPOLLIN)
        self._members[fd] = (channel, transport)
        self._fds[channel] = fd

    def remove(self, channel: Channel) -> None:
        """Stop reading and close the connection's socket."""
        fd = self._fds.pop(channel, None)
        if fd is None:
            return
        _, transport = self._members.pop(fd)
        if not self._epoll.closed:
            self._epoll.unregister(fd)
        transport.close()

    def resume(self, channel: Channel) -> None:
        """Go on with a connection that was blocked."""
        if channel in self._fds and not self._epoll.closed:
            self._waiting.append(channel)
            os.eventfd_write(self._wake_fd, 1)

    def poll(self) -> bool:
        """Read what has arrived; return whether there was anything."""
        if self._epoll.closed:
            return False
        events = self._epoll.poll(0, _EVENTS_MAX)
        if not events:
            return False
        self._read(events)
        if self._waiting:
            # Some frames were left; the task goes on with them.
            os.eventfd_write(self._wake_fd, 1)
        return True

    async def run(self) -> None:
        """Read until cancelled."""
        epoll_fd = self._epoll.fileno()
        try:
            while True:
                if self._waiting:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(epoll_fd)
                try:
                    self._take_turns()
                except MemoryError:
                    self._rounds.ran_out_of_memory()
        finally:
            self._epoll.close()
            os.close(self._wake_fd)

    def _take_turns(self) -> None:
        frames = 0
        began = self._work_now()
        while frames < _FRAMES_PER_STEP:
            # Those that have new bytes come before those that wait from the last round: one who
            # sends little waits for one slice of the others, however many they are.
            events = self._epoll.poll(0, _EVENTS_MAX)
            handled = self._read(events) if events else 0
            if self._waiting:
                handled += self._advance_waiting(_FRAMES_PER_STEP)
            elif handled < 2:
                # A single request or answer: more of them right behind it are not likely, and if
                # there are, trio says so.
                return
            frames += handled
            if not events or self._work_now() - began >= TURN_S:
                return

    def _advance_waiting(self, frames_max: int) -> int:
        """Go on with connections that have frames left, each in its turn; return how many frames
        were handled.
        """
        waiting = self._waiting
        count = len(waiting)
        share = _share_of(count)
        is_shared = waiting.hosts > 1
        handled = 0
        began = self._work_now()
        for _ in range(count):
            channel, share_of_host = waiting.take()
            frames = 0
            if channel.close_reason is None:
                # Those that had a turn before it were what it waited for.
                now = self._now() if count > 1 else None
                frames = channel.advance(frames_max=share_of_host if is_shared else share, now=now)
                handled += frames
            waiting.took(frames)
            if channel.close_reason is None:
                self._put_back(channel)
            if handled >= frames_max or self._work_now() - began >= TURN_S:
                break
        return handled

    def _read(self, events: list[tuple[int, int]]) -> int:
        """Read once from each connection that is ready; return how many frames were handled."""
        now, began = self._now(), self._work_now()
        self._rounds.begin_round(len(events))
        ready = len(events) + len(self._waiting)
        share = _share_of(ready)
        is_crowded = ready > _CROWD
        bytes_max = RECEIVE_BYTES
        unwritten: list[Channel] = []
        frames = unwritten_frames = 0
        for fd, _ in events:
            member = self._members.get(fd)
            if member is None:
                if fd == self._wake_fd:
                    os.eventfd_read(fd)
                continue
            channel, transport = member
            if channel.busy:
                # It is held, so this can only be an error or a hang-up, which cannot be masked.
                channel.close("the connection was reset")
                continue
            if is_crowded:
                # One that is not of the crowd brings as much as if there were none.
                crowd = self._waiting.waiting_of(channel.host) * self._waiting.hosts
                bytes_max = _CROWDED_BYTES if crowd > _CROWD else RECEIVE_BYTES
            try:
                data = transport.receive_nowait(bytes_max)
            except (OSError, MemoryError) as exc:
                channel.close(f"{type(exc).__name__}: {exc}")
                continue
            if data is None:
                continue
            if len(data) < bytes_max and channel.arrivals is None:
                handled = channel.receive(data, now, share, True)
            else:
                since = _arrived_at(channel, transport, len(data), now)
                waited_s = now - since if ready > 1 else 0.0
                handled = channel.receive(data, now, share, True, since, waited_s)
            frames += handled
            unwritten_frames += handled
            unwritten.append(channel)
            if channel.busy:
                self._hold(fd, channel)
                if len(events) > 1 and self._work_now() - began >= TURN_S:
                    # The other ones that are ready are told of again.
                    break
            if unwritten_frames >= _FRAMES_PER_WRITE:
                self._rounds.serve_collected()
                for each in unwritten:
                    each.flush(now)
                unwritten.clear()
                unwritten_frames = 0
        self._rounds.end_round()
        for each in unwritten:
            each.flush(now)
        return frames

    def _hold(self, fd: int, channel: Channel) -> None:
        """Read no further from a connection that still has frames to handle."""
        if channel.close_reason is not None:
            return
        self._epoll.modify(fd, 0)
        # One that is blocked comes back through `resume`.
        if not channel.blocked:
            self._waiting.append(channel)

    def _put_back(self, channel: Channel) -> None:
        """Decide what comes next for a connection that was held."""
        if channel.close_reason is not None:
            return
        fd = self._fds[channel]
        if channel.busy:
            self._hold(fd, channel)
        else:
            self._epoll.modify(fd, select.EPOLLIN)


def _share_of(connections: int) -> int:
    """Return how many frames of each ready connection are handled in a turn."""
    if connections < 2:
        return FRAMES_PER_TURN
    if connections <= _CROWD:
        return max(32, _FRAMES_PER_STEP // connections)
    return max(1, _FRAMES_PER_LAP // connections)


def _arrived_at(channel: Channel, transport: SocketTransport, count: int, now: float) -> float:
    """Return since when bytes that were just read had been there, at the latest."""
    arrivals = channel.arrivals
    if arrivals is None:
        arrivals = channel.arrivals = Arrivals()
    since = arrivals.read(count, transport.unread_bytes(), now)
    if not arrivals.is_behind:
        channel.arrivals = None
    return since


async def run_poller(rounds: Rounds, *, task_status: trio.TaskStatus[Poller]) -> None:
    """Run a poller until cancelled; `started` hands it over."""
    poller = Poller(rounds)
    task_status.started(poller)
    await poller.run()
