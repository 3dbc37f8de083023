"""The connection to a master as its slave sees it. Pure: bytes and the time in, bytes out.

    link.take_output()           what is to be sent
    link.receive(data, now)      takes headers and greetings; returns how many bytes it took
    link.body_left               this many bytes follow; they belong at the log's end
    link.body_received(b, now)   these of them are in the log now
    link.report(now)             tell the master what the log holds, if that has changed
    link.record                  not None: have it on disk, then call `record_saved`
    link.tick(now)               at `link.next_tick`, at the latest
    link.ending                  not None: close the connection, and act on it

The log itself is read only. A slave appends nothing that does not continue its log exactly.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import RemoteProtocolError
from rmq.ha.protocol import wire
from rmq.ha.protocol.auth import is_welcome_genuine, sign_hello
from rmq.ha.protocol.log_view import tail_start
from rmq.ha.protocol.wire import (
    BODY_BYTES_MAX,
    DOWN,
    PREAMBLE,
    REPORT,
    TRANSFER,
    CatchUp,
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
from rmq.model.crc import crc32
from rmq.model.in_sync_record import RECORD_BYTES_MAX, read_record
from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.ha.protocol.log_view import LogView
    from rmq.model.in_sync_record import InSyncRecord

LOOK_S: Final = 0.1
"""How often it is checked whether a slave that lacked tables has them."""
FRAME_BYTES_MAX: Final = 64 * 1024**2
"""A frame that claims more is garbage."""

# Plain numbers: a flag of an enum costs more than the rest of a header.
_SYNC: Final = int(DownFlag.SYNC)
_YOU_ARE_IN_SYNC: Final = int(DownFlag.YOU_ARE_IN_SYNC)
_WANTS_FLUSH: Final = int(DownFlag.WANTS_FLUSH)
_LACKS_TABLES: Final = int(UpFlag.LACKS_TABLES)


class EndKind(enum.Enum):
    """Why a connection to a master is over."""

    CLOSED = "closed"
    """Try again."""
    NOT_NATIVE = "not native"
    """It is a stock master: try again in its dialect."""
    RESEED = "reseed"
    """Start over at `LinkEnd.offset`: the master no longer has what comes next."""
    DIVERGED = "diverged"
    """This log is not the beginning of the master's; only `rmq ha resync` may cut it."""
    STALE = "stale"
    """The master is of an older epoch than one this slave has followed."""
    REFUSED = "refused"
    """The master refuses this slave."""
    DAMAGED = "damaged"
    """Bytes were changed on their way: those from `LinkEnd.offset` on are not the master's."""


class LinkEnd(NamedTuple):
    """How a connection ended."""

    kind: EndKind
    reason: str
    offset: PhysicalOffset = PhysicalOffset(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveSettings:
    """Who a slave is, and how it treats its master."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    """Where clients find it."""
    store_id: bytes
    """Names the store."""
    incarnation: int = 0
    secret: bytes = field(default=b"", repr=False)
    catch_up: CatchUp = CatchUp.OLDEST
    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    native_wait_s: float = 0.5
    """A master that has not answered a native greeting by then is a stock one. Infinite where the
    master is known to be native: then only a reply in the stock dialect shows a stock one."""
    handshake_s: float = 10.0


@dataclass(slots=True)
class MasterView:
    """What a slave knows of its master."""

    is_native: bool = False
    address: str = ""
    store_id: bytes = b""
    epoch: int = 0
    end: PhysicalOffset = PhysicalOffset(0)
    """The end of its log in its last header."""
    replicated: PhysicalOffset = PhysicalOffset(-1)
    """From its last header: it had answered no send behind this with SEND_OK."""
    is_sync: bool = False
    is_in_sync: bool = False
    """The master counts this slave."""
    wants_flush: bool = False
    needed: int = 0
    in_sync: int = 0
    """How many slaves it counts, this one included."""
    news: int = 0
    heard_at: float = 0.0
    sent_ms: int = 0
    """The master's clock when it sent the last header, to be echoed."""


class SlaveLink:
    """The connection to a master, as a state machine."""

    def __init__(
        self,
        settings: SlaveSettings,
        log: LogView,
        *,
        is_native: bool,
        epoch: int,
        nonce: bytes,
        now: float,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_current` returns whether the topics, groups and offsets here are the master's."""
        self.is_native = is_native
        self.is_streaming = not is_native
        """The greeting is over, bytes of the log may come."""
        self.ending: LinkEnd | None = None
        self.body_left = 0
        self.frame_offset = PhysicalOffset(0)
        """Where the next byte of the body belongs."""
        self._body_start = PhysicalOffset(0)
        self._body_crc: int | None = None
        """The checksum of the body that is coming; None if there is none."""
        self._crc = 0
        self.epoch = epoch
        self.master = MasterView(is_native=is_native, heard_at=now)
        self.record: InSyncRecord | None = None
        """A received in-sync record; nothing else is processed before it is on disk."""
        self.next_tick = now
        self._settings = settings
        self._log = log
        self._nonce = nonce
        self._header = bytearray()
        self._output: list[bytes] = []
        self._greeted = False
        self._opened_at = self._heard_at = self._sent_at = now
        self._reported = (-1, -1)
        self._is_current = is_current
        self._said_current = True
        self._looked_at = now
        if is_native:
            self._output.append(PREAMBLE)
        else:
            self._send_report(now)
        self._plan_tick()

    def take_output(self) -> bytes:
        if not self._output:
            return b""
        output = b"".join(self._output)
        self._output.clear()
        return output

    # --- from the master ---------------------------------------------------------------------

    def receive(self, data: bytes | bytearray | memoryview, now: float) -> int:
        """Take in headers and greetings; return how many bytes of `data` were taken.

        Stops before the first byte that belongs into the log: then `body_left` is not 0.
        """
        taken = 0
        self._heard_at = self.master.heard_at = now
        try:
            while (
                taken < len(data)
                and self.ending is None
                and not self.body_left
                and self.record is None
            ):
                wanted = self._wanted_bytes()
                piece = data[taken : taken + wanted - len(self._header)]
                self._header += piece
                taken += len(piece)
                if len(self._header) == wanted:
                    self._read_header(now)
        except RemoteProtocolError as exc:
            self._end(EndKind.CLOSED, str(exc))
        self._plan_tick()
        return taken

    def _wanted_bytes(self) -> int:
        """Return how many bytes have to be there before the header is parsed again."""
        header = self._header
        if not self.is_native:
            return TRANSFER.size
        if self.is_streaming:
            if len(header) < DOWN.size:
                return DOWN.size
            return DOWN.size + wire.read_down(header[: DOWN.size]).size
        if len(header) < len(PREAMBLE):
            # This many are enough to recognize a stock master, which repeats what it was sent.
            return len(PREAMBLE)
        if len(header) < DOWN.size:
            return DOWN.size
        return DOWN.size + wire.read_down(header[: DOWN.size]).size

    def _read_header(self, now: float) -> None:
        header = self._header
        if not self.is_native:
            offset, size = TRANSFER.unpack(header)
            header.clear()
            self.master.end = max(self.master.end, offset + size)
            self._frame(offset, size)
            return
        if len(header) == len(PREAMBLE):
            if header == PREAMBLE and not self._greeted:
                self._end(EndKind.NOT_NATIVE, "the master repeats what it was sent: a stock one")
            return
        down = wire.read_down(header[: DOWN.size])
        if self.is_streaming:
            if down.kind == DownKind.RECORD:
                self._take_record(down)
                return
            header.clear()
            self._data(down, now)
            return
        if down.size > BODY_BYTES_MAX:
            raise RemoteProtocolError(f"a greeting of {down.size} bytes")
        if len(header) < DOWN.size + down.size:
            return
        body = _whole(down, bytes(header[DOWN.size :]))
        header.clear()
        if down.kind == DownKind.CHALLENGE and not self._greeted:
            self._answer(body, down.offset, now)
        elif down.kind == DownKind.WELCOME and self._greeted:
            self._welcome(wire.read_welcome(body), now)
        else:
            raise RemoteProtocolError(f"frame {down.kind} in place of a greeting")

    def _answer(self, body: bytes, master_begin: PhysicalOffset, now: float) -> None:
        """Introduce this slave, in answer to a challenge."""
        settings, log = self._settings, self._log
        challenge = wire.read_challenge(body)
        if challenge.needs_secret and not settings.secret:
            self._end(EndKind.REFUSED, "the master asks for a secret, and haSecret is not set here")
            return
        tail = tail_start(log.begin, log.end, master_begin)
        hello = HelloBody(
            version=PREAMBLE[-1],
            catch_up=settings.catch_up,
            cluster=settings.cluster,
            broker_name=settings.broker_name,
            broker_id=settings.broker_id,
            address=settings.address,
            store_id=settings.store_id,
            incarnation=settings.incarnation,
            nonce=self._nonce,
            epoch=self.epoch,
            segment_bytes=log.segment_bytes,
            begin=log.begin,
            end=log.end,
            flushed=log.flushed,
            tail_offset=tail,
            tail_digest=log.digest(tail, log.end),
        )
        packed = wire.pack_body(wire.Hello, sign_hello(hello, settings.secret, challenge.nonce))
        header = UpHeader(UpKind.HELLO, 0, 0, len(packed), self.epoch, log.end, log.flushed, 0)
        self._output.append(wire.pack_up(header) + packed)
        self._greeted = True
        self._sent_at = now

    def _welcome(self, welcome: WelcomeBody, now: float) -> None:
        settings = self._settings
        if settings.secret and not is_welcome_genuine(welcome, settings.secret, self._nonce):
            self._end(
                EndKind.REFUSED,
                welcome.reason or "the master does not know the secret (haSecret) of its slave",
            )
            return
        verdict = welcome.verdict
        if verdict == HelloVerdict.DIVERGED:
            self._end(EndKind.DIVERGED, welcome.reason, PhysicalOffset(welcome.end))
        elif verdict == HelloVerdict.STALE or (
            welcome.epoch < self.epoch and verdict != HelloVerdict.REFUSED
        ):
            reason = (
                f"the master at {welcome.address} is of epoch {welcome.epoch}, this slave has"
                f" followed one of {self.epoch}"
            )
            self._end(EndKind.STALE, reason)
        elif verdict == HelloVerdict.RESEED:
            self._end(EndKind.RESEED, welcome.reason, PhysicalOffset(welcome.start))
        elif verdict != HelloVerdict.START:
            self._end(EndKind.REFUSED, welcome.reason)
        elif self._log.end and welcome.start != self._log.end:
            raise RemoteProtocolError(
                f"the master begins at {welcome.start}, this log ends at {self._log.end}"
            )
        else:
            master = self.master
            master.address, master.store_id = welcome.address, welcome.store_id
            master.epoch = self.epoch = welcome.epoch
            master.end = PhysicalOffset(welcome.end)
            self.is_streaming = True

    def _data(self, down: DownHeader, now: float) -> None:
        if down.kind != DownKind.DATA:
            raise RemoteProtocolError(f"frame {down.kind} in the middle of the log")
        if down.epoch != self.epoch:
            raise RemoteProtocolError(f"bytes of epoch {down.epoch} on a link of {self.epoch}")
        master = self.master
        master.end, master.replicated = down.end, down.replicated
        flags = down.flags
        master.is_sync = flags & _SYNC != 0
        master.is_in_sync = flags & _YOU_ARE_IN_SYNC != 0
        master.wants_flush = flags & _WANTS_FLUSH != 0
        master.needed, master.in_sync = down.needed, down.in_sync
        master.news, master.sent_ms = down.news, down.sent_ms
        self._frame(down.offset, down.size)
        self._body_start, self._body_crc, self._crc = down.offset, down.body_crc, 0

    def _take_record(self, down: DownHeader) -> None:
        """Take in a record when all of it is here."""
        header, settings = self._header, self._settings
        if down.size > RECORD_BYTES_MAX:
            raise RemoteProtocolError(f"an in-sync record of {down.size} bytes")
        if len(header) < DOWN.size + down.size:
            return
        record = read_record(_whole(down, bytes(header[DOWN.size :])))
        header.clear()
        if record.epoch != self.epoch:
            raise RemoteProtocolError(
                f"an in-sync record of epoch {record.epoch} on a link of {self.epoch}"
            )
        if not record.is_genuine(settings.secret, settings.broker_name):
            raise RemoteProtocolError("an in-sync record that was not made with the secret")
        self.record = record

    def record_saved(self, now: float) -> None:
        """The record is on disk: tell the master, and go on."""
        record, self.record = self.record, None
        assert record is not None
        header = UpHeader(UpKind.RECORDED, 0, 0, 0, record.epoch, record.version, 0, 0)
        self._output.append(wire.pack_up(header))
        self._sent_at = now
        self._plan_tick()

    def _frame(self, offset: PhysicalOffset, size: int) -> None:
        """Get ready for the bytes that a header announces."""
        log = self._log
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise RemoteProtocolError(f"a frame of {size} bytes")
        if not log.end:
            if offset < 0 or offset % log.segment_bytes:
                if size:
                    raise RemoteProtocolError(
                        f"the master begins at {offset}, which is not the beginning of a segment;"
                        f" is mappedFileSizeCommitLog {log.segment_bytes} there, too?"
                    )
                return
        elif offset != log.end:
            self._end(
                EndKind.DIVERGED,
                f"the master sends from {offset} on, this log ends at {log.end}",
                offset,
            )
            return
        self.frame_offset = offset
        self.body_left = size

    def body_received(self, content: bytes | bytearray | memoryview, now: float) -> None:
        """Note that these bytes of the body are in the log."""
        size = len(content)
        assert size <= self.body_left, (size, self.body_left)
        self.body_left -= size
        self.frame_offset += size
        if self._body_crc is not None:
            self._crc = crc32(content, self._crc)
            if not self.body_left and self._crc != self._body_crc:
                self._end(
                    EndKind.DAMAGED,
                    f"bytes from {self._body_start} to {self.frame_offset} were changed on their"
                    " way from the master",
                    self._body_start,
                )
        self._heard_at = self.master.heard_at = now
        self._plan_tick()

    # --- to the master -----------------------------------------------------------------------

    def report(self, now: float) -> None:
        """Report what the log holds, if that has changed since the last report.

        Nothing is reported once the connection has ended: damaged bytes are in the log until the
        owner cuts it.
        """
        if self.ending is None and self.is_streaming and self._reported != self._held():
            if not self.is_native and self._reported[0] == self._log.end:
                return
            self._send_report(now)
            self._plan_tick()

    def _held(self) -> tuple[PhysicalOffset, PhysicalOffset]:
        """Return what the log holds, and has on disk, as far as it was compared with checksums."""
        end = self._log.end
        if self._body_crc is not None and self.body_left:
            end = min(end, self._body_start)
        return end, min(end, self._log.flushed)

    def _send_report(self, now: float) -> None:
        end, flushed = self._held()
        self._looked_at = now
        if self.is_native:
            self._said_current = self._is_current()
            flags = 0 if self._said_current else _LACKS_TABLES
            sent_ms = self.master.sent_ms
            header = UpHeader(UpKind.ACK, flags, 0, 0, self.epoch, end, flushed, sent_ms)
            self._output.append(wire.pack_up(header))
        else:
            self._output.append(REPORT.pack(end))
        self._reported = (end, flushed)
        self._sent_at = now

    # --- time and the end --------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Send a report when it is due; end a connection that is silent."""
        settings = self._settings
        if self.ending is None:
            if now >= self._heard_at + settings.silence_s:
                self._end(EndKind.CLOSED, f"the master was silent for {now - self._heard_at:.1f} s")
            elif self.is_streaming:
                has_changed = not self._said_current and self._is_current()
                self._looked_at = now
                if has_changed or now >= self._sent_at + settings.heartbeat_s:
                    self._send_report(now)
            elif (
                not self._greeted
                and not self._header
                and now >= self._opened_at + settings.native_wait_s
            ):
                self._end(EndKind.NOT_NATIVE, "no answer to a native greeting: a stock master")
            elif now >= self._opened_at + settings.handshake_s:
                what = "finish" if self._greeted or self._header else "answer"
                self._end(EndKind.CLOSED, f"the master did not {what} a greeting: it may hang")
        self._plan_tick()

    def _plan_tick(self) -> None:
        settings = self._settings
        silent_at = self._heard_at + settings.silence_s
        if self.is_streaming:
            heartbeat_at = self._sent_at + settings.heartbeat_s
            self.next_tick = heartbeat_at if heartbeat_at < silent_at else silent_at
            if not self._said_current:
                self.next_tick = min(self.next_tick, self._looked_at + LOOK_S)
        else:
            self.next_tick = min(silent_at, self._opened_at + settings.handshake_s)
            if not self._greeted and not self._header:
                self.next_tick = min(self.next_tick, self._opened_at + settings.native_wait_s)

    def closed(self, reason: str) -> None:
        """Note that the connection has ended."""
        self._end(EndKind.CLOSED, reason)

    def _end(self, kind: EndKind, reason: str, offset: PhysicalOffset = PhysicalOffset(0)) -> None:
        if self.ending is None:
            self.ending = LinkEnd(kind, reason, offset)


def _whole(down: DownHeader, body: bytes) -> bytes:
    """Return a body that has arrived as it was sent."""
    if crc32(body) != down.body_crc:
        raise RemoteProtocolError("the checksum of a replication frame is wrong")
    return body
