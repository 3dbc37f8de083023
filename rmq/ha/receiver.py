"""Receives from one master: writes its bytes to the log and sends reports back.

    ending = await Receiver(store, link, connection, ...).run()

`SlaveLink` decides; this module moves bytes. Large bodies are received straight into the mapped
log; headers and small frames come through a buffer, many in one read. After the socket is drained
one report is sent at once; if the socket does not take it, a newer one replaces it. A master that
counts only flushed bytes gets another report as soon as they are flushed.

A new epoch is on disk before a byte of it is in the log, and an in-sync record before it is
acknowledged to the master.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import StoreError, StoreUnavailableError, to_keep
from rmq.ha.protocol.wire import DOWN
from rmq.store.flusher import FlushOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.ha.protocol.log_view import LogView
    from rmq.ha.protocol.slave_link import LinkEnd, SlaveLink
    from rmq.ha.slave_connection import Connection
    from rmq.ha.slave_listener import SlaveListener
    from rmq.store.flusher import FlushWait
    from rmq.store.store import MessageStore

STAGING_BYTES: Final = 64 * 1024
DIRECT_BYTES_MIN: Final = 16 * 1024
"""A body with less than this left is read through the buffer together with what follows it."""
TURN_BYTES: Final = 1024**2
"""After this many bytes a report is sent and other tasks run."""
FEW_BYTES: Final = 4 * 1024
"""About the size of a few messages."""
_TICK_PAUSE_S: Final = 0.001


@dataclass(slots=True)
class ReceiverCounters:
    """Totals of all connections of a slave."""

    received_bytes: int = 0
    """Bytes of the log."""
    reads: int = 0
    reports: int = 0
    """How many times the slave wrote to the master."""


class Receiver:
    """Moves the bytes of one connection until it ends."""

    def __init__(
        self,
        store: MessageStore,
        log: LogView,
        link: SlaveLink,
        connection: Connection,
        listener: SlaveListener,
        *,
        on_turn: Callable[[float], None],
        counters: ReceiverCounters,
    ) -> None:
        self.failure: StoreError | None = None
        """The store's error that ended the connection."""
        self._store = store
        self._log = log
        self._link = link
        self._connection = connection
        self._epoch = link.epoch
        """The epoch that is saved here; the link has that of the master from its welcome on."""
        self._listener = listener
        self._on_turn = on_turn
        self._counters = counters
        self._staging = memoryview(bytearray(STAGING_BYTES))
        self._held = b""
        """Received bytes behind an epoch or record that has to be on disk first."""
        self._is_adopting = False
        """An epoch or a record has to be on disk before anything else is processed."""
        self._turn_bytes = 0
        """How many bytes the last turn received."""
        self._flush_wait: FlushWait | None = None
        self._has_unsent = trio.Event()
        self._scope = trio.CancelScope()
        self._tick_scope = trio.CancelScope()

    async def run(self) -> LinkEnd:
        """Serve the connection until it ends, and close it."""
        link = self._link
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tick_on_time)
                    nursery.start_soon(self._send_rest)
                    await self._receive()
                    nursery.cancel_scope.cancel()
        finally:
            self._forget_flush()
            self._connection.close()
        assert link.ending is not None, "a connection that was served has ended"
        return link.ending

    def _end(self, reason: str) -> None:
        self._link.closed(reason)
        self._scope.cancel()

    def _fail(self, error: StoreError) -> None:
        self.failure = to_keep(error)
        self._end(str(error))

    # --- from the master -----------------------------------------------------------------------

    async def _receive(self) -> None:
        link, connection = self._link, self._connection
        self._send()
        is_drained = True
        while link.ending is None:
            if not is_drained:
                await trio.lowlevel.checkpoint()
            elif not (self._is_awaited() and await connection.busy_wait()):
                await connection.wait_readable()
            now = trio.current_time()
            try:
                is_drained = self._take_turn(now)
                while self._is_adopting:
                    if link.epoch != self._epoch:
                        await self._listener.adopt_epoch(link.epoch, self._log.end)
                        self._epoch = link.epoch
                    if link.record is not None:
                        await self._listener.save_record(link.record)
                        link.record_saved(now)
                    self._is_adopting = False
                    held, self._held = self._held, b""
                    self._take(memoryview(held), now)
            except StoreError as exc:
                self._fail(exc)
                return
            except OSError as exc:
                self._end(exc.strerror or str(exc))
                return
            self._finish_turn(now)

    def _is_awaited(self) -> bool:
        """Return whether the master likely waits for our next report."""
        return self._link.master.is_sync and self._turn_bytes <= FEW_BYTES

    def _take_turn(self, now: float) -> bool:
        """Read what has arrived, within bounds; return whether that was all."""
        link, counters = self._link, self._counters
        self._turn_bytes = taken = 0
        while taken < TURN_BYTES and link.ending is None and not self._is_adopting:
            size = self._read(now)
            if size is None:
                return True
            if size == 0:
                link.closed("the master closed the connection")
                return True
            counters.reads += 1
            self._turn_bytes = taken = taken + size
        return False

    def _read(self, now: float) -> int | None:
        """Read once; see `Connection.receive` for what is returned."""
        link, staging = self._link, self._staging
        if link.body_left < DIRECT_BYTES_MIN:
            size = self._connection.receive((staging,))
            if size:
                self._take(staging[:size], now)
            return size
        if not self._log.end and link.frame_offset:
            self._store.begin_raw(link.frame_offset)
        room = self._store.raw_room(link.body_left)
        # Behind the body there is room for the next header, and no more than that: what follows
        # belongs into the log again.
        size = self._connection.receive((room, staging[: DOWN.size]))
        if size:
            appended = min(size, len(room))
            self._store.raw_written(appended)
            link.body_received(room[:appended], now)
            self._counters.received_bytes += appended
            if size > appended:
                self._take(staging[: size - appended], now)
        return size

    def _take(self, data: memoryview, now: float) -> None:
        """Process headers, and copy bodies into the log."""
        link = self._link
        while len(data) and link.ending is None:
            if link.body_left:
                piece = data[: link.body_left]
                self._store.append_raw(link.frame_offset, piece)
                link.body_received(piece, now)
                self._counters.received_bytes += len(piece)
                data = data[len(piece) :]
                continue
            was_streaming = link.is_streaming
            data = data[link.receive(data, now) :]
            is_new = link.is_streaming and not was_streaming and link.epoch != self._epoch
            if is_new or link.record is not None:
                # No byte of an epoch before its begin is saved.
                self._is_adopting = True
                self._held = bytes(data)
                return

    def _finish_turn(self, now: float) -> None:
        """Report to the master, and to the owner, what the log holds."""
        link = self._link
        if link.ending is None and not self._is_adopting:
            if not self._connection.has_unsent:
                link.report(now)
            self._send()
            self._want_flush()
        self._on_turn(now)
        if link.next_tick < self._tick_scope.deadline:
            self._tick_scope.deadline = link.next_tick
        if link.ending is not None:
            self._scope.cancel()

    # --- flushing on demand ------------------------------------------------------------------

    def _want_flush(self) -> None:
        """Ask for a flush if the master waits for one; one at a time, up to the end of the log."""
        if self._flush_wait is None and self._link.master.wants_flush:
            end = self._log.end
            if end > self._log.flushed:
                self._flush_wait = self._store.when_flushed(end, self._flushed)

    def _flushed(self, outcome: FlushOutcome) -> None:
        self._flush_wait = None
        if outcome is FlushOutcome.FAILED:
            self._fail(self._store.failure or StoreUnavailableError("the store is closed"))
        else:
            self._finish_turn(trio.current_time())

    def _forget_flush(self) -> None:
        if self._flush_wait is not None:
            self._store.forget(self._flush_wait)
            self._flush_wait = None

    # --- to the master -----------------------------------------------------------------------

    def _send(self) -> None:
        output = self._link.take_output()
        if not output:
            return
        try:
            self._connection.send(output)
        except OSError as exc:
            self._end(exc.strerror or str(exc))
            return
        self._counters.reports += 1
        if self._connection.has_unsent:
            self._has_unsent.set()

    async def _send_rest(self) -> None:
        """Send what the socket did not take at once."""
        connection = self._connection
        while True:
            await self._has_unsent.wait()
            while connection.has_unsent:
                await connection.wait_writable()
                try:
                    connection.send(b"")
                except OSError as exc:
                    self._end(exc.strerror or str(exc))
                    return
            self._has_unsent = trio.Event()
            self._finish_turn(trio.current_time())

    async def _tick_on_time(self) -> None:
        link = self._link
        while True:
            deadline = max(link.next_tick, trio.current_time() + _TICK_PAUSE_S)
            with trio.CancelScope(deadline=deadline) as self._tick_scope:
                await trio.sleep_forever()
            if not self._is_adopting:
                link.tick(trio.current_time())
            if link.ending is not None:
                self._scope.cancel()
            elif not self._connection.has_unsent:
                self._send()
