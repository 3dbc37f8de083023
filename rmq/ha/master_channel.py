"""Sends a link's bytes over a plain connection: from the file to the socket, without a copy.

`PlainChannel.push` sends what the socket takes at once, in the caller's step: a message that was
just appended is on its way before the step ends. Work that has to wait (room in the socket, pages
from a disk, a turn for other tasks) is left to the channel's own task, `write`, which continues
where `push` stopped. While that task is busy, `push` does nothing: a slave that does not read keeps
one position in the log, and nothing in memory.
"""

from __future__ import annotations

import enum
import os
import socket
import struct
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from rmq.ha.busy_wait import SocketBusyWait
from rmq.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.ha.protocol.master_link import Chunk, MasterLink
    from rmq.ha.store_log import LogReader, ReadAhead

JOIN_BYTES: Final = 16 * 1024
"""Up to this size a copy behind the header costs less than a second system call."""
PUSH_BYTES: Final = 1024**2
"""After this many bytes `push` leaves the rest to the task."""
TURN_BYTES: Final = 1024**2
"""After this many bytes the task lets other tasks run."""
RECEIVE_BYTES: Final = 4096
"""Room for about a hundred acknowledgements."""
_RESET: Final = struct.pack("ii", 1, 0)


class Turn(enum.Enum):
    """Result of one attempt to send."""

    DONE = "done"
    """Nothing is left to send until the log grows or a heartbeat is due."""
    BLOCKED = "blocked"
    """The socket takes no more."""
    COLD = "cold"
    """The next bytes have to be read from a disk."""
    MORE = "more"
    """There is more, but other tasks have to run."""
    ENDED = "ended"


class Channel(Protocol):
    """The connection of a link, as its server uses it."""

    is_secure: bool
    sent_bytes: int

    @property
    def is_idle(self) -> bool:
        """Whether everything was sent."""

    def push(self, now: float) -> None:
        """Send what can be sent without waiting. Never raises."""

    async def write(self) -> str | None:
        """Send until the link has ended and its last frames are sent.

        Return why the connection failed; None if the link ended it.
        """

    async def receive(self, *, busy_waits: bool = False) -> bytes | memoryview:
        """Return received bytes, none at the end of the connection; valid until the next call.

        With `busy_waits`, it may busy-wait before it sleeps; see `SocketBusyWait`.
        """

    def close(self) -> None:
        """Close; bytes that the kernel has still arrive."""


@final
class PlainChannel:
    """A link over a bare socket."""

    is_secure = False

    def __init__(
        self,
        sock: socket.socket,
        link: MasterLink,
        reader: LogReader,
        limiter: trio.CapacityLimiter,
        on_idle: Callable[[], None],
    ) -> None:
        self.sent_bytes = 0
        """Bytes of the log that the socket took."""
        self._sock = sock
        self._busy_wait = SocketBusyWait(sock)
        self._link = link
        self._reader = reader
        self._limiter = limiter
        self._on_idle = on_idle
        """Called when the task has nothing to do until `push`; `link.next_tick` is set by then."""
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        self._pending: bytes | memoryview = b""
        """Headers and handshake bytes that the socket did not take yet; sent before anything else.
        """
        self._chunk: Chunk | None = None
        """The chunk that is being sent."""
        self._left = 0
        """How many bytes of it are still to be sent from the file."""
        self._read_ahead: ReadAhead | None = None
        self._failure: str | None = None
        self._turn = Turn.MORE
        self._is_idle = False
        self._wake = trio.Event()

    @property
    def is_idle(self) -> bool:
        return self._is_idle

    # --- sending -----------------------------------------------------------------------------

    def push(self, now: float) -> None:
        if self._is_idle:
            turn = self._advance(now, PUSH_BYTES)
            if turn is not Turn.DONE:
                self._turn = turn
                self._is_idle = False
                self._wake.set()

    async def write(self) -> str | None:
        while True:
            if self._turn is Turn.DONE:
                self._wake = trio.Event()
                self._is_idle = True
                self._on_idle()
                await self._wake.wait()
            if self._turn is Turn.BLOCKED:
                await trio.lowlevel.wait_writable(self._sock)
            elif self._turn is Turn.COLD and self._read_ahead is not None:
                read_ahead, self._read_ahead = self._read_ahead, None
                await run_in_thread(read_ahead.run, limiter=self._limiter, abandon_on_cancel=True)
            elif self._turn is Turn.ENDED:
                return self._failure
            else:
                await trio.lowlevel.checkpoint()
            self._turn = self._advance(trio.current_time(), TURN_BYTES)

    def _advance(self, now: float, bytes_max: int) -> Turn:
        """Send as much as possible without waiting."""
        link = self._link
        try:
            while True:
                if self._pending and not self._send_pending():
                    return self._blocked()
                chunk = self._chunk
                if chunk is not None:
                    if self._left and not self._send_file(chunk):
                        return self._blocked() if self._failure is None else Turn.ENDED
                    link.chunk_sent(chunk, now)
                    self.sent_bytes += chunk.size
                    bytes_max -= chunk.size
                    self._chunk = None
                elif output := link.take_output():
                    self._pending = output
                elif bytes_max <= 0:
                    return Turn.MORE
                elif (chunk := link.next_chunk(now)) is not None:
                    self._read_ahead = (
                        self._reader.read_ahead_for(chunk.offset, chunk.size)
                        if chunk.size
                        else None
                    )
                    self._begin(chunk)
                    if self._read_ahead is not None:
                        return Turn.COLD
                elif link.end_reason is not None:
                    return Turn.ENDED
                else:
                    self._reader.caught_up(link.position)
                    return Turn.DONE
        except OSError as exc:
            self._failure = f"the connection failed: {exc.strerror or exc}"
            return Turn.ENDED

    def _blocked(self) -> Turn:
        if self._link.end_reason is not None:
            return Turn.ENDED
        if self._left and self._sock.family in (socket.AF_INET, socket.AF_INET6):
            # The kernel was told that more of this chunk follows, and would keep what it has of it
            # for 200 ms (seen when `sendfile` stops half-way). Asking once more for no delay sends
            # it.
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader.fell_behind()
        return Turn.BLOCKED

    def _begin(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._pending = chunk.header
        self._left = chunk.size

    def _send_pending(self) -> bool:
        """Send headers, and short bodies copied behind one; return whether all was sent."""
        pending, chunk = self._pending, self._chunk
        if chunk is not None and pending is chunk.header and chunk.size:
            view = self._reader.view(chunk.offset, chunk.size)
            if view is not None:
                self._pending = pending = self._link.sealed(chunk, view)
                if chunk.size <= JOIN_BYTES:
                    self._pending = pending = pending + view
                    self._left = 0
        try:
            sent = self._sock.send(pending, socket.MSG_MORE if self._left else 0)
        except BlockingIOError:
            return False
        if sent < len(pending):
            self._pending = memoryview(pending)[sent:]
            return False
        self._pending = b""
        return True

    def _send_file(self, chunk: Chunk) -> bool:
        """Send bytes of the log; return whether all was sent."""
        while self._left:
            offset = chunk.offset + (chunk.size - self._left)
            place = self._reader.file_at(offset)
            if place is None:
                self._failure = (
                    f"its bytes at {offset} have expired, the log begins at"
                    f" {self._reader.log.begin}"
                )
                return False
            fd, position = place
            try:
                # fileno() is called each time: the socket may be closed by now.
                sent = os.sendfile(self._sock.fileno(), fd, position, self._left)
            except BlockingIOError:
                return False
            if not sent:
                self._failure = f"the file of the log ends before offset {offset}"
                return False
            self._left -= sent
        return True

    # --- the rest ----------------------------------------------------------------------------

    async def receive(self, *, busy_waits: bool = False) -> memoryview:
        while True:
            if not (busy_waits and await self._busy_wait.wait()):
                await trio.lowlevel.wait_readable(self._sock)
            try:
                size = self._sock.recv_into(self._received)
            except BlockingIOError:
                continue
            return self._received[:size]

    def close(self) -> None:
        close(self._sock)
        self._reader.close()


def close(sock: socket.socket) -> None:
    """Close a socket that tasks may wait for: they get `trio.ClosedResourceError`."""
    if sock.fileno() >= 0:
        trio.lowlevel.notify_closing(sock)
        sock.close()
