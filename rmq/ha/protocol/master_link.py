"""One slave's connection as its master sees it. Pure: bytes and the time in, bytes out.

    link.receive(data, now)      what came in
    link.take_output()           handshake bytes to be sent before anything else
    link.next_chunk(now)         what to send next of the log, if anything
    link.chunk_sent(chunk, now)  it is on its way
    link.tick(now)               at `link.next_tick`, at the latest
    link.end_reason              not None: close the connection

A report that cannot be true is not believed: a slave cannot hold bytes that were never sent to it.
Such a connection is closed and counted as forged, and the report has no effect, even the first one.
The first report of a stock slave only says where to begin; its later reports say what it holds.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq.errors import RemoteProtocolError
from rmq.ha.protocol import wire
from rmq.ha.protocol.auth import is_hello_genuine, sign_welcome
from rmq.ha.protocol.log_view import is_tail_enough, tail_start
from rmq.ha.protocol.master import STOCK_FRAME_BYTES_MAX
from rmq.ha.protocol.slaves import NOTHING, SlaveProgress
from rmq.ha.protocol.wire import (
    BODY_BYTES_MAX,
    PREAMBLE,
    REPORT,
    TRANSFER,
    UP,
    CatchUp,
    ChallengeBody,
    DownFlag,
    DownHeader,
    DownKind,
    HelloBody,
    HelloVerdict,
    UpFlag,
    UpHeader,
    UpKind,
    WelcomeBody,
)
from rmq.model.in_sync_record import STOCK, member_name
from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from rmq.ha.protocol.master import Master
    from rmq.model.in_sync_record import InSyncRecord

_WAIT_S_MIN: Final = 0.001
_NO_START: Final = PhysicalOffset(0)
"""Stands in frames and verdicts that name no place of the log."""

# Plain numbers: a flag of an enum costs more than the rest of a header.
_SYNC: Final = int(DownFlag.SYNC)
_YOU_ARE_IN_SYNC: Final = int(DownFlag.YOU_ARE_IN_SYNC)
_WANTS_FLUSH: Final = int(DownFlag.WANTS_FLUSH)
_LACKS_TABLES: Final = int(UpFlag.LACKS_TABLES)


class LinkState(enum.Enum):
    """Stages of a connection."""

    NEW = "new"
    GREETED = "greeted"
    STOCK = "stock"
    NATIVE = "native"


class Chunk(NamedTuple):
    """What to send next: a header, then bytes of the log; no bytes for a heartbeat."""

    header: bytes
    offset: PhysicalOffset
    size: int


class MasterLink:
    """One slave's connection, as a state machine."""

    def __init__(
        self, master: Master[Any], peer_host: str, peer: str, *, nonce: bytes, now: float
    ) -> None:
        self.state = LinkState.NEW
        self.slave: SlaveProgress | None = None
        self.end_reason: str | None = None
        """Why the connection has to be closed."""
        self.position = PhysicalOffset(0)
        """The next byte of the log to be sent."""
        self.next_tick = now + master.settings.handshake_s
        self._master = master
        self._host = peer_host
        self._peer = peer
        self._nonce = nonce
        self._received = bytearray()
        self._output: list[bytes] = []
        self._offered = PhysicalOffset(0)
        """The end of what was handed out for sending: a slave cannot hold more."""
        self._opened_at = self._heard_at = self._sent_at = now
        self._throttled_until = 0.0
        self._begin_told = PhysicalOffset(0)
        """Where the log began when the challenge was sent."""
        self._told: tuple[int, int, int, int] | None = None
        """News, flags and numbers in the last header that was sent."""
        self._told_record = (0, 0)
        """Epoch and version of the last in-sync record that was sent."""
        master.counters.accepted += 1

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def is_streaming(self) -> bool:
        return self.state in (LinkState.STOCK, LinkState.NATIVE) and self.end_reason is None

    def take_output(self) -> bytes:
        """Return what is to be sent before any chunk."""
        if not self._output:
            return b""
        output = b"".join(self._output)
        self._output.clear()
        return output

    # --- from the slave ----------------------------------------------------------------------

    def receive(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """Take in what the slave sent."""
        if self.end_reason is not None:
            return
        self._heard_at = now
        # An incomplete frame is never longer than a HELLO, whose header bounds its length.
        self._received += data
        try:
            while self.end_reason is None and self._read_one(now):
                pass
        except RemoteProtocolError as exc:
            self._refuse(str(exc))
        self._plan_tick()

    def _read_one(self, now: float) -> bool:
        """Process the next complete frame; return whether there was one."""
        received = self._received
        if self.state is LinkState.STOCK:
            # Of several reports only the last one matters.
            whole = len(received) // REPORT.size * REPORT.size
            if not whole:
                return False
            (offset,) = REPORT.unpack_from(received, whole - REPORT.size)
            del received[:whole]
            self._stock_report(offset, now)
            return True
        if self.state is LinkState.NEW:
            if len(received) < REPORT.size:
                return False
            first = bytes(received[: REPORT.size])
            del received[: REPORT.size]
            self._begin(first, now)
            return True
        if len(received) < UP.size:
            return False
        header = wire.read_up(received[: UP.size])
        if self.state is LinkState.GREETED:
            if header.kind != UpKind.HELLO or header.size > BODY_BYTES_MAX:
                raise RemoteProtocolError(
                    f"frame {header.kind} of {header.size} bytes in place of a greeting"
                )
            if len(received) < UP.size + header.size:
                return False
            body = bytes(received[UP.size : UP.size + header.size])
            del received[: UP.size + header.size]
            self._hello(wire.read_hello(body), now)
            return True
        if header.kind == UpKind.RECORDED and not header.size:
            del received[: UP.size]
            self._recorded((header.epoch, header.appended))
            return True
        if header.kind != UpKind.ACK or header.size:
            raise RemoteProtocolError(
                f"frame {header.kind} of {header.size} bytes in place of an acknowledgement"
            )
        del received[: UP.size]
        self._ack(header, now)
        return True

    def _begin(self, first: bytes, now: float) -> None:
        settings = self._master.settings
        if first == PREAMBLE:
            self.state = LinkState.GREETED
            body = wire.pack_body(
                wire.Challenge,
                ChallengeBody(PREAMBLE[-1], 1 if settings.secret else 0, self._nonce),
            )
            self._begin_told = self._master.log.begin
            self._send_frame(DownKind.CHALLENGE, body, self._begin_told)
            return
        (offset,) = REPORT.unpack(first)
        log = self._master.log
        if first[:-1] == PREAMBLE[:-1]:
            self._refuse(f"it speaks version {first[-1]} of the dialect, this is {PREAMBLE[-1]}")
        elif offset < 0:
            self._refuse(f"it begins with {first.hex()}, which is no offset")
        elif settings.secret or not settings.takes_stock:
            self._refuse("it is a stock slave, and this master serves only those of its own kind")
        elif offset > log.end:
            self._forged(f"it says that it has {offset}, but the log ends at {log.end}")
        elif 0 < offset < log.begin:
            self._end(
                f"it needs bytes from {offset} on, the log begins at {log.begin}; empty the slave's"
                " store so that it copies the log from the start"
            )
        else:
            self.state = LinkState.STOCK
            start = offset if offset else self._start_of_empty(settings.catch_up)
            slave = SlaveProgress(
                f"{STOCK}{self._host}",
                self._peer,
                self._peer,
                broker_id=None,
                is_native=False,
                host=self._host,
                member=f"{STOCK}{self._host}",
            )
            self._start(slave, start, now)

    def _stock_report(self, offset: PhysicalOffset, now: float) -> None:
        if offset > self._offered:
            self._forged(f"it says that it has {offset}, but was sent {self._offered}")
        elif self.slave is not None:
            # Nothing is known of its disk.
            self._master.slaves.holds(self.slave, offset, NOTHING, now)
            assert self.slave.appended <= self._offered, self._marks()

    def _ack(self, header: UpHeader, now: float) -> None:
        appended, flushed = PhysicalOffset(header.appended), PhysicalOffset(header.flushed)
        epoch = header.epoch
        if appended > self._offered or flushed > appended:
            self._forged(
                f"it says that it has {appended}, {flushed} flushed, but was sent {self._offered}"
            )
        elif epoch != self._master.epoch:
            self._refuse(f"it acknowledges epoch {epoch}, this is {self._master.epoch}")
        elif self.slave is not None:
            self.slave.has_answered = True
            self.slave.lacks_tables = header.flags & _LACKS_TABLES != 0
            self._master.slaves.holds(self.slave, appended, flushed, now)
            assert self.slave.appended <= self._offered, self._marks()

    def _marks(self) -> str:
        appended = NOTHING if self.slave is None else self.slave.appended
        return f"appended {appended} <= sent {self._offered} <= log's end {self._master.log.end}"

    def _recorded(self, order: tuple[int, int]) -> None:
        if order > self._told_record:
            self._forged(f"it says that it has record {order}, but was sent {self._told_record}")
        elif self.slave is not None:
            self._master.recorded(self.slave, order)

    # --- the greeting ------------------------------------------------------------------------

    def _hello(self, hello: HelloBody, now: float) -> None:
        master = self._master
        verdict, start, reason = self._judge(hello)
        double = self._double_of(hello, now)
        if double and verdict is not HelloVerdict.REFUSED:
            verdict, start, reason = HelloVerdict.REFUSED, _NO_START, double
        if verdict is not HelloVerdict.REFUSED:
            # Identity and log are verified: earlier connections of this slave no longer count.
            master.slaves.supersede(hello.store_id.hex())
        if verdict is HelloVerdict.START or verdict is HelloVerdict.RESEED:
            self.state = LinkState.NATIVE
        welcome = sign_welcome(
            WelcomeBody(
                verdict,
                master.settings.cluster,
                master.settings.broker_name,
                master.settings.address,
                master.settings.store_id,
                master.epoch,
                master.log.begin,
                master.log.end,
                start,
                reason,
            ),
            master.settings.secret,
            hello.nonce,
        )
        self._send_frame(DownKind.WELCOME, wire.pack_body(wire.Welcome, welcome))
        if verdict is HelloVerdict.START:
            slave = SlaveProgress(
                hello.store_id.hex(),
                f"{hello.broker_name}:{hello.broker_id}",
                hello.address,
                broker_id=hello.broker_id,
                is_native=True,
                host=self._host,
                member=member_name(hello.store_id, hello.incarnation),
            )
            self._start(slave, start, now)
            # The ends of both logs were compared, so it holds everything up to `start`. An empty
            # slave counts the same, or it could not be in sync before more is appended.
            flushed = min(PhysicalOffset(hello.flushed), start) if hello.end else start
            master.slaves.holds(slave, start, flushed, now)
            assert slave.appended <= self._offered, self._marks()
        elif verdict is HelloVerdict.RESEED:
            master.counters.reseeded += 1
            name = f"{hello.broker_name}:{hello.broker_id}"
            self._end(f"{name} has to copy the log from the start: {reason}")
        elif verdict is HelloVerdict.DIVERGED:
            master.counters.diverged += 1
            self._end(f"{hello.broker_name}:{hello.broker_id} at {hello.address}: {reason}")
        else:
            self._refuse(reason)

    def _judge(self, hello: HelloBody) -> tuple[HelloVerdict, PhysicalOffset, str]:
        """Judge a HELLO; return the verdict, the offset to begin at, and the reason."""
        master, settings, log = self._master, self._master.settings, self._master.log
        if settings.secret and not is_hello_genuine(hello, settings.secret, self._nonce):
            return (
                HelloVerdict.REFUSED,
                _NO_START,
                "the slave does not know the secret (haSecret) of its master",
            )
        if hello.cluster != settings.cluster or hello.broker_name != settings.broker_name:
            return (
                HelloVerdict.REFUSED,
                _NO_START,
                f"a slave of {hello.cluster}/{hello.broker_name} called the master of"
                f" {settings.cluster}/{settings.broker_name}",
            )
        if hello.store_id == settings.store_id:
            return (
                HelloVerdict.REFUSED,
                _NO_START,
                "master and slave have the same store, or a copy of it",
            )
        if hello.epoch > master.epoch:
            master.outdated_by = max(hello.epoch, master.outdated_by or 0)
            return (
                HelloVerdict.STALE,
                _NO_START,
                f"the slave has followed a master of epoch {hello.epoch}, this one is of"
                f" {master.epoch}",
            )
        if hello.segment_bytes != log.segment_bytes:
            return (
                HelloVerdict.REFUSED,
                _NO_START,
                f"mappedFileSizeCommitLog is {hello.segment_bytes} on the slave and"
                f" {log.segment_bytes} on the master",
            )
        try:
            empty_start = self._start_of_empty(CatchUp(hello.catch_up))
        except ValueError:
            return HelloVerdict.REFUSED, _NO_START, f"there is no catch-up {hello.catch_up}"
        begin, end = PhysicalOffset(hello.begin), PhysicalOffset(hello.end)
        if end == 0:
            return HelloVerdict.START, empty_start, ""
        if end > log.end:
            return (
                HelloVerdict.DIVERGED,
                log.end,
                f"the slave ends at {end}, {end - log.end} bytes beyond its master's end {log.end}",
            )
        if end < log.begin:
            return (
                HelloVerdict.RESEED,
                empty_start,
                f"the slave ends at {end}, the master's log begins at {log.begin}",
            )
        tail = PhysicalOffset(hello.tail_offset)
        if begin == end:
            # It began at the offset that a master gave it and has received nothing yet; if that is
            # behind sends that wait now, it has to begin earlier.
            if end > self._start_of_empty(CatchUp.LAST_FILE):
                return HelloVerdict.RESEED, empty_start, f"sends before {end} wait for slaves"
            return HelloVerdict.START, end, ""
        if begin > end or tail != tail_start(begin, end, self._begin_told) or tail < log.begin:
            return (
                HelloVerdict.REFUSED,
                _NO_START,
                f"the slave compares from {tail} to {end}, the log begins at {log.begin}",
            )
        if not is_tail_enough(begin, tail, end):
            # It needs all that the master has, and too little is left in common to prove that its
            # own bytes precede that.
            return (
                HelloVerdict.RESEED,
                empty_start,
                f"the slave ends at {end}, too close to {log.begin}, where the master's log"
                " begins, to be compared",
            )
        if log.digest(tail, end) != hello.tail_digest:
            return (
                HelloVerdict.DIVERGED,
                log.end,
                f"slave and master differ between {tail} and {end}",
            )
        return HelloVerdict.START, end, ""

    def _double_of(self, hello: HelloBody, now: float) -> str:
        """Describe the healthy slave that a new one collides with; empty if there is none."""
        healthy_s = 2 * self._master.settings.heartbeat_s
        for other in self._master.slaves:
            if not other.is_native or other.is_superseded or now - other.heard_at > healthy_s:
                continue
            is_same_place = other.address == hello.address and other.host == self._host
            if other.identity == hello.store_id.hex():
                if not is_same_place:
                    return (
                        f"the slave at {other.address} ({other.host}) has the same store, of which"
                        " this is a copy; remove config/haState.json and its .bak from the copy"
                        f" at {hello.address}"
                    )
            elif other.broker_id == hello.broker_id:
                return (
                    f"the slave at {other.address} has the same brokerId, {hello.broker_id}; give"
                    f" the one at {hello.address} another"
                )
        return ""

    def _start_of_empty(self, catch_up: CatchUp) -> PhysicalOffset:
        log = self._master.log
        if catch_up is CatchUp.OLDEST:
            return log.begin
        # Not in the last segment if sends before it are waiting: a slave that does not hold them
        # would release them.
        last = self._master.pending_acks.awaited_from(log.end)
        return max(log.begin, PhysicalOffset(last - last % log.segment_bytes))

    def _start(self, slave: SlaveProgress, start: PhysicalOffset, now: float) -> None:
        self.slave = slave
        self.position = self._offered = start
        self._master.slaves.grew(self._master.log.end, now)
        self._master.slaves.join(slave, now)

    # --- to the slave ------------------------------------------------------------------------

    def next_chunk(self, now: float) -> Chunk | None:
        """Return what to send now; None if there is nothing, until the log grows or `next_tick`."""
        state = self.state
        is_native = state is LinkState.NATIVE
        if self.end_reason is not None or not (is_native or state is LinkState.STOCK):
            return None
        if self._is_superseded():
            return None
        master, position = self._master, self.position
        log = master.log
        end = log.end
        if position < log.begin:
            self._end(f"its bytes at {position} have expired, the log begins at {log.begin}")
            return None
        if is_native and (record := master.record_to_tell(self._told_record)) is not None:
            return self._record_chunk(record, now)
        size = 0
        if position < end:
            settings = master.settings
            size = min(
                end - position,
                log.segment_bytes - position % log.segment_bytes,
                settings.frame_bytes
                if is_native
                else min(settings.stock_frame_bytes, STOCK_FRAME_BYTES_MAX),
            )
            size = self._throttled(size, now)
        if not size and not self._is_sign_due(now):
            return None
        if is_native:
            header = wire.pack_down(self._data_header(position, size, now))
        else:
            header = TRANSFER.pack(position, size)
        self._offered = max(self._offered, position + size)
        assert self._offered <= end, self._marks()
        return Chunk(header, position, size)

    def sealed(self, chunk: Chunk, content: bytes | memoryview) -> bytes:
        """Return the header of a chunk with the checksum of its bytes, if its slave checks it."""
        if self.state is not LinkState.NATIVE:
            return chunk.header
        return wire.with_body_crc(chunk.header, content)

    def _record_chunk(self, record: InSyncRecord, now: float) -> Chunk:
        """Return a frame that carries an in-sync record and no bytes of the log."""
        settings, epoch = self._master.settings, self._master.epoch
        body = record.encode(settings.secret, settings.broker_name)
        end = self._master.log.end
        header = DownHeader(
            DownKind.RECORD, 0, 0, 0, len(body), _NO_START, epoch, 0, end, _NO_START, 0
        )
        self._told_record = record.order
        return Chunk(wire.with_body_crc(wire.pack_down(header), body) + body, self.position, 0)

    def chunk_sent(self, chunk: Chunk, now: float) -> None:
        """Note that a chunk was handed to the kernel; the next one follows it."""
        self.position = chunk.offset + chunk.size
        self._sent_at = now
        if chunk.size and self.slave is not None and not self.slave.in_sync:
            self._master.bucket.take(chunk.size)
        self._plan_tick()

    def _throttled(self, size: int, now: float) -> int:
        """Return how much of `size` may be sent now: slaves in sync are never throttled."""
        bucket = self._master.bucket
        self._throttled_until = 0.0
        if not bucket.is_limited or self.slave is None or self.slave.in_sync:
            return size
        allowed = int(min(size, bucket.allowed(now)))
        if allowed < min(size, 4096):
            # Rounding may leave next to nothing to wait for, and then the clock would not move.
            wait_s = max(bucket.wait_s(size), _WAIT_S_MIN)
            bucket.waited_s += wait_s
            self._throttled_until = now + wait_s
            self._plan_tick()
            return 0
        return allowed

    def _is_sign_due(self, now: float) -> bool:
        if now >= self._sent_at + self._master.settings.heartbeat_s:
            return True
        return self.state is LinkState.NATIVE and self._told != self._standing()

    def _standing(self) -> tuple[int, int, int, int]:
        """Return the header fields whose change is sent to a native slave at once."""
        master = self._master
        slaves = master.slaves
        rules, in_sync = slaves.rules, slaves.in_sync_most
        flags = _SYNC if master.pending_acks.is_sync else 0
        if self.slave is not None and self.slave.in_sync:
            flags |= _YOU_ARE_IN_SYNC
        if rules.counts_flushed:
            flags |= _WANTS_FLUSH
        # Called for each link whenever anything happens: comparisons, not min().
        return (
            master.news,
            flags,
            rules.needed if rules.needed < 255 else 255,
            in_sync if in_sync < 255 else 255,
        )

    def _data_header(self, offset: PhysicalOffset, size: int, now: float) -> DownHeader:
        master = self._master
        end = master.log.end
        self._told = news, flags, needed, in_sync = self._standing()
        return DownHeader(
            DownKind.DATA,
            flags,
            needed,
            in_sync,
            size,
            offset,
            master.epoch,
            news,
            end,
            # No send behind this was answered SEND_OK yet.
            max(master.pending_acks.advance_visible(end), master.slaves.replicated),
            int(now * 1000),
        )

    def _send_frame(self, kind: DownKind, body: bytes, offset: PhysicalOffset = _NO_START) -> None:
        master = self._master
        header = DownHeader(
            kind, 0, 0, 0, len(body), offset, master.epoch, 0, master.log.end, _NO_START, 0
        )
        self._output.append(wire.with_body_crc(wire.pack_down(header), body) + body)

    # --- time and the end --------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """End the connection if it is silent or its handshake takes too long."""
        settings = self._master.settings
        if self.end_reason is None:
            if self.is_streaming:
                if now >= self._heard_at + settings.silence_s and not self._is_superseded():
                    self._master.counters.silent += 1
                    self._end(f"it was silent for {now - self._heard_at:.1f} s")
            elif now >= self._opened_at + settings.handshake_s:
                self._refuse(f"it did not say what it wants within {settings.handshake_s:g} s")
        self._plan_tick()

    def _plan_tick(self) -> None:
        settings = self._master.settings
        if not self.is_streaming:
            self.next_tick = self._opened_at + settings.handshake_s
            return
        next_tick = self._heard_at + settings.silence_s
        heartbeat_at = self._sent_at + settings.heartbeat_s
        if heartbeat_at < next_tick:
            next_tick = heartbeat_at
        if 0 < self._throttled_until < next_tick:
            next_tick = self._throttled_until
        self.next_tick = next_tick

    def _is_superseded(self) -> bool:
        """End the connection if its slave has a newer one."""
        if self.slave is None or not self.slave.is_superseded:
            return False
        self._end("its slave has connected again")
        return True

    def closed(self, now: float, why: str = "the connection was closed") -> None:
        """Note that the connection has ended."""
        self._end(why)
        if self.slave is not None:
            self._master.slaves.leave(self.slave, now, self.end_reason or why)

    def _refuse(self, reason: str) -> None:
        self._master.counters.refused += 1
        self._end(f"refused: {reason}")

    def _forged(self, reason: str) -> None:
        self._master.counters.forged += 1
        self._end(f"refused: {reason}")

    def _end(self, reason: str) -> None:
        if self.end_reason is None:
            self.end_reason = reason
            self._master.last_error = f"{self._peer}: {reason}"
