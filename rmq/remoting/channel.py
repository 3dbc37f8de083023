"""One connection: reads commands, dispatches them, writes responses and requests. The trio glue of
both ends.

What a channel guarantees:

- One read may bring hundreds of frames; they are handed on in batches and each batch is answered in
  one write.
- Frames sent from elsewhere (deferred answers, requests to the peer) are collected and written once
  per step of the scheduler, by the endpoint's flusher.
- A peer that does not read is not read either: while bytes cannot be written, no further request is
  taken from it. What can pile up is bounded, and a peer that takes nothing for `stall_timeout_s` is
  cut off.
- When the connection ends, for whatever reason, every call that waits on it is woken with that
  reason.

The code is the same for the side that accepted and the side that dialled: requests flow both ways.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import (
    ClientError,
    ConfigError,
    ConnectionLostError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from rmq.log_limits import host_of
from rmq.remoting.awaited import Awaited
from rmq.remoting.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RequestCode,
    Serialization,
)
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.layout import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from rmq.remoting.outbox import Outbox
from rmq.remoting.session import Arrivals, Calls
from rmq.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.log_limits import ExcInfo
    from rmq.remoting.command import Command, FrameTemplate
    from rmq.remoting.endpoint import Endpoint
    from rmq.remoting.header import Header
    from rmq.remoting.outbox import Content
    from rmq.remoting.transport import Transport

logger = logging.getLogger(__name__)

BATCH_FRAMES: Final = 32
"""Frames handled before their answers are written; the peer works on them meanwhile."""

FRAMES_PER_TURN: Final = 256
"""After this many frames of one read, other connections and tasks run."""

TURN_S: Final = 0.005
"""After this time in one turn they run, too, however few frames were handled."""
_BATCH_S: Final = 0.002
"""What a batch of frames should take at most; a plain send takes some 10 us."""

_LARGE_BYTES: Final = 4096
"""Requests with a body of at least this size are written at once."""

_HELD_BYTES_FREE: Final = 64 * 1024
"""Unfinished frames up to this size do not count against the endpoint's bound."""

_CLOSE_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelConfig:
    """Bounds of one connection."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Largest frame taken or sent, its length field included."""
    header_bytes_max: int = HEADER_BYTES_MAX
    """Longest header taken, as soon as a read does not bring it whole."""
    batch_frames: int = BATCH_FRAMES
    """Frames handled per write. Fewer: a pipelining peer idles less; more: fewer system calls."""
    unread_answer_bytes_max: int = 64 * 1024
    """Unwritten answers at which no further request is taken from a peer that does not read."""
    outbox_bytes_max: int = 64 * 1024 * 1024
    """Unwritten answers at which that peer is cut off, and unwritten bytes at which no further
    request of our own is taken."""
    stall_timeout_s: float = 30.0
    """How long a peer may take nothing of what we write before it is cut off."""
    frame_timeout_s: float = 120.0
    """How long a frame may take from its first byte to its last."""
    idle_timeout_s: float = 120.0
    """A connection without a byte in either direction for this long is closed."""
    calls_max: int = 65_535
    """Our requests in flight on the connection."""
    oneways_max: int = 65_535
    """Our one-way requests not yet written."""

    def __post_init__(self) -> None:
        for name in (
            "frame_bytes_max",
            "header_bytes_max",
            "batch_frames",
            "unread_answer_bytes_max",
            "outbox_bytes_max",
            "calls_max",
            "oneways_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(name, f"{getattr(self, name)} is below 1")
        for name in ("stall_timeout_s", "frame_timeout_s", "idle_timeout_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(name, f"{getattr(self, name)} is not above 0")


@final
class Call:
    """A request sent over a channel that waits for its response."""

    __slots__ = ("channel", "code", "is_complete", "on_outcome", "opaque", "sent_at", "timeout_s")

    def __init__(
        self,
        channel: Channel,
        opaque: int,
        code: int,
        sent_at: float,
        timeout_s: float,
        on_outcome: Callable[[Command | ClientError], None],
    ) -> None:
        self.channel = channel
        self.opaque = opaque
        self.code = code
        self.sent_at = sent_at
        self.timeout_s = timeout_s
        self.on_outcome = on_outcome
        self.is_complete = False

    def complete(self, outcome: Command | ClientError) -> None:
        if self.is_complete:
            return
        self.is_complete = True
        # The deadline heap keeps the call for a while; its callback need not live as long.
        on_outcome, self.on_outcome = self.on_outcome, _ignore
        try:
            on_outcome(outcome)
        except Exception:  # noqa: BLE001 - the other calls must still be completed
            self.channel.log(
                logging.ERROR,
                "callback",
                "callback for the response from %s raised",
                self.channel.peer,
                exc_info=True,
            )


@final
class Channel:
    """One connection, either end."""

    __slots__ = (
        "__weakref__",
        "_batch_frames",
        "_calls",
        "_corked",
        "_decoder",
        "_dirty",
        "_dispatch",
        "_drained",
        "_draining",
        "_endpoint",
        "_frame_started_at",
        "_held_reported",
        "_last_words",
        "_outbox",
        "_pauses",
        "_resumed",
        "_scope",
        "_transport",
        "_waiting_since",
        "_wrote_at",
        "arrivals",
        "busy",
        "close_reason",
        "config",
        "encoder",
        "has_spoken",
        "host",
        "local",
        "now",
        "opened_at",
        "peer",
        "received_at",
        "secure",
        "state",
        "waited_s",
    )

    def __init__(self, transport: Transport, endpoint: Endpoint) -> None:
        config = endpoint.channel_config
        self.config = config
        self.peer = transport.peer
        self.host = host_of(transport.peer)
        self.local = transport.local
        self.secure = transport.secure
        self.encoder = endpoint.encoder
        self.close_reason: str | None = None
        """Why the connection ended; None while it is open."""
        self.state: dict[str, object] = {}
        """Data of the owner about the connection (client id, version ...)."""
        self.now = endpoint.now
        """The clock of `arrived_at`."""
        self.opened_at = self.received_at = self._wrote_at = endpoint.now()
        self._transport = transport
        self._endpoint = endpoint
        self._dispatch = endpoint.dispatcher.dispatch
        self._batch_frames = config.batch_frames
        """Frames handled at once: fewer where they take long."""
        self._decoder = FrameDecoder(
            frame_bytes_max=config.frame_bytes_max,
            header_bytes_max=config.header_bytes_max,
            whole_decoders=endpoint.dispatcher.whole_decoders,
        )
        self._frame_started_at: float | None = None
        self._waiting_since = self.opened_at
        self.waited_s = 0.0
        """How long the requests that are dispatched now have waited since their bytes arrived, as
        far as others are the cause: 0 while no other connection waits.
        """
        self.arrivals: Arrivals | None = None
        """Set while bytes were left behind by the last read."""
        self.has_spoken = False
        """Whether a whole frame has come."""
        self._held_reported = 0
        self._last_words: str | None = None
        self._outbox = Outbox()
        self.busy = False
        """Whether received frames are still to be handled: nothing more should be read yet."""
        self._corked = False
        self._dirty = False
        self._draining = False
        self._drained: trio.Event | None = None
        self._pauses = 0
        self._resumed: trio.Event | None = None
        self._calls: Calls[Call] = Calls()
        self._scope: trio.CancelScope | None = None

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return f"<Channel {self.local} - {self.peer} {state}>"

    # ---- life ------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.close_reason is None

    @property
    def outbox_bytes(self) -> int:
        return self._outbox.size

    @property
    def held_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        return self._decoder.held_bytes

    @property
    def arrived_at(self) -> float:
        """When the requests that are dispatched now had arrived, at the latest."""
        return self._waiting_since

    @property
    def calls_under_way(self) -> int:
        return len(self._calls)

    async def run(self) -> None:
        """Read from the transport until the connection ends. Never raises because of the peer.

        For connections without a `Poller`: it does the same without a task for each.
        """
        transport = self._transport
        try:
            with trio.CancelScope() as self._scope:
                while self.close_reason is None:
                    self.receive(await transport.receive(), self._endpoint.now())
                    while self.busy and self.close_reason is None:
                        if self.blocked:
                            await self._wait_until_clear()
                        else:
                            await trio.lowlevel.checkpoint()
                        self.advance(now=self._endpoint.now())
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self.close(_describe(exc))
        finally:
            self.close("closed")
            with trio.move_on_after(_CLOSE_GRACE_S, shield=True):
                await transport.aclose()

    def close(self, reason: str) -> None:
        """End the connection; the first reason given is the one remembered."""
        if self.close_reason is not None:
            return
        self.close_reason = reason
        if self._scope is not None:
            self._scope.cancel()
        self._outbox.clear()
        self._decoder.clear()
        self._endpoint.hold_bytes(self.host, -self._held_reported)
        self._held_reported = 0
        for call in self._calls.drain():
            call.complete(ConnectionLostError(self.peer, reason))
        self._endpoint.forget(self)
        self._wake_waiting()

    def check_health(self, now: float) -> None:
        """Close the connection if it is idle, stuck in a frame, or not read by its peer."""
        config = self.config
        if self._draining:
            if now - self._wrote_at >= config.stall_timeout_s:
                self.warn(
                    "peer that does not read",
                    "closing connection of %s: it took nothing for %g s while %d bytes wait",
                    self.peer,
                    config.stall_timeout_s,
                    self._outbox.size,
                )
                self.close(f"the peer did not read for {config.stall_timeout_s:g} s")
        elif self._pauses:
            # We do not read on purpose, so silence of the peer means nothing.
            return
        elif (
            self._frame_started_at is not None
            and now - self._frame_started_at >= config.frame_timeout_s
        ):
            self.warn(
                "unfinished frame",
                "closing connection of %s: a frame is unfinished after %g s",
                self.peer,
                config.frame_timeout_s,
            )
            self.close(f"a frame was unfinished after {config.frame_timeout_s:g} s")
        elif now - max(self.received_at, self._wrote_at) >= config.idle_timeout_s:
            self._endpoint.report_idle(self)
            self.close(f"idle for {config.idle_timeout_s:g} s")

    # ---- lines about the peer -----------------------------------------------------------------

    def warn(self, kind: str, message: str, *args: object) -> None:
        """Log a line that this peer caused, within the limit of its host for lines of this kind."""
        self.log(logging.WARNING, kind, message, *args)

    def log(
        self, level: int, kind: str, message: str, *args: object, exc_info: ExcInfo = None
    ) -> None:
        """Do what `warn` does, at any level and with a traceback."""
        endpoint = self._endpoint
        endpoint.lines.log(
            level, kind, self.host, endpoint.now(), message, *args, exc_info=exc_info
        )

    # ---- calls to the peer -----------------------------------------------------------------------

    async def request(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
        serialization: Serialization = Serialization.JSON,
    ) -> Command:
        """Send a request and wait for its answer, whatever its code."""
        await trio.lowlevel.checkpoint_if_cancelled()
        endpoint = self._endpoint
        awaited: Awaited[Command | ClientError] = Awaited(endpoint.wakings)
        # No other call is in flight: none would share the write, and a busy-wait is allowed.
        is_first = (
            endpoint.is_busy_waiting and not self._calls.by_opaque and not endpoint.wakings.count
        )
        call = self.submit(
            code,
            header,
            body=body,
            timeout_s=timeout_s,
            extra=extra,
            remark=remark,
            serialization=serialization,
            on_outcome=awaited,
            is_urgent=is_first,
        )
        if awaited.outcome is None and is_first:
            await endpoint.busy_wait_for(awaited, lambda: self.calls_under_way == 1)
        if awaited.outcome is None:
            await awaited.sleep(lambda: self._abandon(call))
            awaited.woke()
        outcome = awaited.outcome
        if isinstance(outcome, ClientError):
            try:
                raise outcome
            finally:
                # Its traceback holds this frame, which holds it and the body.
                del outcome, awaited
        assert outcome is not None, "woken without an outcome"
        return outcome

    def submit(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        on_outcome: Callable[[Command | ClientError], None],
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
        serialization: Serialization = Serialization.JSON,
        is_urgent: bool = False,
    ) -> Call:
        """Send a request; `on_outcome` is called once, with the answer or with why there is none.

        Costs no scheduler step, so thousands of requests can be pipelined. `on_outcome` must not
        block or raise. A request that is urgent does not wait for the end of this step to be
        written.
        """
        opaque = self._opaque_for_call(code)
        credentials = self._endpoint.credentials
        if credentials is not None:
            extra = signed(credentials, header, extra, body)
        frame = self.encoder.request(
            opaque, code, header, len(body) if body else 0, serialization, remark, extra
        )
        now = self._endpoint.now()
        return self._add_call(opaque, code, frame, body, now, timeout_s, on_outcome, is_urgent)

    def submit_like(
        self,
        template: FrameTemplate,
        values: tuple[str | int, ...],
        body: bytes | None,
        on_outcome: Callable[[Command | ClientError], None],
        timeout_s: float,
        now: float,
        is_urgent: bool = False,
    ) -> Call:
        """Do what `submit` does, for a request that is like many others and is not signed."""
        opaque = self._opaque_for_call(template.code)
        self._decoder.expected_answer = template.read_answer
        frame = template.frame(opaque, len(body) if body else 0, values)
        return self._add_call(
            opaque, template.code, frame, body, now, timeout_s, on_outcome, is_urgent
        )

    def _opaque_for_call(self, code: int) -> int:
        """Return the number of the next call; raise `ClientError` if it cannot be made."""
        config, calls = self.config, self._calls
        if (
            self.close_reason is not None
            or self._outbox.size >= config.outbox_bytes_max
            or len(calls.by_opaque) >= config.calls_max
        ):
            self._check_open()
            self._check_room(code)
            raise TooManyRequestsError(self.peer, _request_name(code), config.calls_max)
        return calls.next_opaque()

    def _add_call(
        self,
        opaque: int,
        code: int,
        frame: bytes,
        body: bytes | None,
        now: float,
        timeout_s: float,
        on_outcome: Callable[[Command | ClientError], None],
        is_urgent: bool,
    ) -> Call:
        call = Call(self, opaque, code, now, timeout_s, on_outcome)
        self._calls.add(opaque, call)
        self._endpoint.watch(now + timeout_s, call)
        self._outbox.add_request(frame, body)
        if body is not None and len(body) >= _LARGE_BYTES:
            # Other tasks would add little to the write, and the peer could begin already.
            is_urgent = True
        if is_urgent and not (self._draining or self._corked):
            self._flush(now)
        else:
            self._schedule_write()
        return call

    def oneway(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
        serialization: Serialization = Serialization.JSON,
    ) -> None:
        """Send a request that the peer must not answer."""
        self._check_open()
        if self._outbox.oneways >= self.config.oneways_max:
            raise TooManyRequestsError(self.peer, code.name, self.config.oneways_max)
        self._check_room(code)
        credentials = self._endpoint.credentials
        if credentials is not None:
            extra = signed(credentials, header, extra, body)
        frame = self.encoder.frame(
            code=code,
            flag=FLAG_ONEWAY,
            opaque=self._calls.next_opaque(),
            header=header,
            extra=extra,
            remark=remark,
            body_length=len(body) if body else 0,
            serialization=serialization,
        )
        self._outbox.add_oneway(frame, body)
        self._schedule_write()

    def expire(self, call: Call) -> None:
        """Complete `call` with a timeout: its deadline has passed."""
        self._calls.pop(call.opaque)
        what = _request_name(call.code)
        silent = self.received_at <= call.sent_at and not self.blocked
        call.complete(RequestTimeoutError(self.peer, what, call.timeout_s))
        if silent and self._endpoint.dials:
            # Nothing at all came since the request left: the connection itself may be dead, and a
            # new one is cheaper than finding out. The original closes on every timeout; that
            # punishes one slow answer. A server leaves that to the client, as the original does:
            # it could not dial again.
            self.close(f"no byte received since {what} was sent {call.timeout_s:g} s ago")

    def _abandon(self, call: Call) -> None:
        call.is_complete = True
        call.on_outcome = _ignore
        self._calls.pop(call.opaque)

    def _check_open(self) -> None:
        if self.close_reason is not None:
            raise ConnectionLostError(self.peer, self.close_reason)

    def _check_room(self, code: int) -> None:
        limit = self.config.outbox_bytes_max
        if self._outbox.size >= limit:
            raise TooManyRequestsError(
                self.peer, _request_name(code), limit, what_waits="bytes wait to be written"
            )

    # ---- reading ----------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether nothing more may be handled until `Endpoint.unblocked` is called."""
        return self._pauses > 0 or (
            self._draining and self._outbox.answer_bytes >= self.config.unread_answer_bytes_max
        )

    def receive(
        self,
        data: bytes,
        now: float,
        frames_max: int = FRAMES_PER_TURN,
        hold_answers: bool = False,
        since: float | None = None,
        waited_s: float = 0.0,
    ) -> int:
        """Process received bytes: handle some frames and return how many. Never raises.

        b"" is the end of the stream. If `busy` is set, frames are left for `advance`. With
        `hold_answers` the last responses stay queued; the caller has to `flush` them soon.
        `since` is when the bytes had arrived, and `waited_s` how much of that counts.
        """
        if not data:
            if held := self._decoder.held_bytes:
                self.warn(
                    "unfinished frame",
                    "connection of %s ended %d bytes into a frame",
                    self.peer,
                    held,
                )
            self.close("closed by the peer")
            return 0
        self.received_at = now
        self._waiting_since = now if since is None else since
        self.waited_s = waited_s
        try:
            self._decoder.feed(data)
            return self._advance(frames_max, hold_answers)
        except Exception as exc:  # noqa: BLE001 - a fault of ours must end this connection only
            self._fail(exc)
            return 0

    def advance(self, *, frames_max: int = FRAMES_PER_TURN, now: float | None = None) -> int:
        """Handle frames that were left; return how many were handled. Never raises.

        With `now` the time they have waited counts, because others have had turns meanwhile.
        """
        self.waited_s = 0.0 if now is None else now - self._waiting_since
        try:
            return self._advance(frames_max, hold_answers=False)
        except Exception as exc:  # noqa: BLE001 - a fault of ours must end this connection only
            self._fail(exc)
            return 0

    def _advance(self, frames_max: int, hold_answers: bool) -> int:
        decoder = self._decoder
        handled = 0
        self.busy = True
        work_now = self._endpoint.work_now
        began = batch_began = work_now()
        while self.close_reason is None and not ((self._draining or self._pauses) and self.blocked):
            commands = decoder.take(self._batch_frames)
            if commands:
                self._frame_started_at = None
                self.has_spoken = True
                self._corked = True
                try:
                    if decoder.flags_seen & FLAG_RESPONSE:
                        self._deliver(commands)
                    else:
                        self._dispatch(self, commands)
                finally:
                    self._corked = False
                handled += len(commands)
                if decoder.held_bytes:
                    if self._outbox.size and not self._draining:
                        self._flush(self.received_at)
                    now = work_now()
                    self._adapt_batch(now - batch_began)
                    if handled < frames_max and now - began < TURN_S:
                        batch_began = now
                        continue
                    return handled
                if self._outbox.size and not self._draining and not hold_answers:
                    self._flush(self.received_at)
            self.busy = False
            if decoder.error is not None:
                self.warn("bad frame", "closing connection of %s: %s", self.peer, decoder.error)
                self._close_when_written(f"protocol error: {decoder.error}")
            elif decoder.held_bytes and self._frame_started_at is None:
                self._frame_started_at = self.received_at
            if decoder.held_bytes > _HELD_BYTES_FREE or self._held_reported:
                self._report_held(decoder.held_bytes)
            break
        return handled

    def _adapt_batch(self, took_s: float) -> None:
        """Make the next batch as large as is right for requests that take that long."""
        if took_s > _BATCH_S:
            # Not at once: it may be the machine that stalled.
            self._batch_frames = max(1, self._batch_frames // 4)
        elif self._batch_frames < self.config.batch_frames:
            self._batch_frames = min(self.config.batch_frames, 2 * self._batch_frames)

    def _report_held(self, held: int) -> None:
        change = held - self._held_reported
        self._held_reported = held
        if self._endpoint.hold_bytes(self.host, change) and change > 0:
            self.warn(
                "too many bytes held",
                "closing connection of %s: unfinished frames of its host, or of all, take too much"
                " memory, its own %d bytes",
                self.peer,
                held,
            )
            self.close("unfinished frames of its host, or of all, take too much memory")

    def _close_when_written(self, reason: str) -> None:
        """Read no more, and close once the answers that are due have left."""
        self.flush()
        if self._draining:
            self._last_words = reason
            self.pause()
        else:
            self.close(reason)

    def park_bytes(self, change: int) -> None:
        """Count bytes of requests of this connection that wait for their answer."""
        self._endpoint.hold_bytes(self.host, change)

    def has_room_for(self, count: int) -> bool:
        """Whether that many more bytes may be held for requests that wait."""
        return self._endpoint.has_room_for(self.host, count)

    def ran_out_of_memory(self) -> None:
        """A handler had no memory for a request: have some given back."""
        self._endpoint.ran_out_of_memory()

    def own_bytes(self) -> int:
        """Return how much memory the unfinished frame and the unwritten answers take."""
        return self._decoder.held_bytes + (self._outbox.own_bytes() if self._draining else 0)

    def _fail(self, exc: Exception) -> None:
        if isinstance(exc, MemoryError):
            self.close("out of memory")
            self._endpoint.ran_out_of_memory()
            return
        self.log(
            logging.ERROR,
            "internal error",
            "closing connection of %s: internal error",
            self.peer,
            exc_info=exc,
        )
        self.close("internal error")

    def _deliver(self, commands: list[Command]) -> None:
        """Dispatch a mix of requests and responses."""
        requests = [command for command in commands if not command.flag & FLAG_RESPONSE]
        if requests:
            self._dispatch(self, requests)
        for command in commands:
            if command.flag & FLAG_RESPONSE:
                self._answer(command)

    def _answer(self, command: Command) -> None:
        call = self._calls.pop(command.opaque)
        if call is None:
            # Late, or the answer to a refused one-way request: stock servers send those.
            logger.debug("answer %d of %s matches no request", command.opaque, self.peer)
            return
        call.complete(command)

    # ---- writing ---------------------------------------------------------------------------------

    def send(self, frame: bytes, body: Content | None = None) -> None:
        """Queue an answer; it leaves with all else queued in this step. Dropped when closed."""
        if self.close_reason is None:
            self._outbox.add_answer(frame, body)
            if not self._corked:
                self._schedule_write()

    def _schedule_write(self) -> None:
        if self._corked:
            # The reader, which is in the middle of a batch, writes at its end.
            return
        if self._draining:
            self._check_outbox()
        elif not self._dirty:
            self._dirty = True
            self._endpoint.schedule_flush(self)

    def flush(self, now: float | None = None) -> None:
        """Write what is queued as far as that goes without waiting; a task drains the rest."""
        self._dirty = False
        if self._outbox.size and not self._draining and self.close_reason is None:
            self._flush(self._endpoint.now() if now is None else now)

    def _flush(self, now: float) -> None:
        try:
            sent = self._transport.send_nowait(self._outbox.buffers)
        except (OSError, MemoryError) as exc:
            self.close(_describe(exc))
            return
        self._wrote_at = now
        self._outbox.sent(sent)
        if self._outbox.size:
            self._draining = True
            self._endpoint.start_soon(self._drain)

    def pause(self) -> None:
        """Read no further until `resume`. Pauses add up."""
        self._pauses += 1

    def resume(self) -> None:
        self._pauses -= 1
        if not self.blocked:
            self._unblocked()

    async def wait_written(self) -> None:
        """Wait until all that is queued is with the kernel, or the connection has ended."""
        while self.close_reason is None and (self._outbox.size or self._draining):
            if not self._draining:
                self.flush()
            if self._draining:
                await self._wait_drained()

    def _check_outbox(self) -> None:
        if self._outbox.answer_bytes > self.config.outbox_bytes_max:
            waiting = self._outbox.size
            self.warn(
                "peer that does not read",
                "closing connection of %s: %d bytes wait for it to read",
                self.peer,
                waiting,
            )
            self.close(f"{waiting} bytes wait for the peer to read")

    async def _drain(self) -> None:
        """Write the rest, waiting for the peer to read."""
        try:
            while self._outbox.size and self.close_reason is None:
                sent = await self._transport.send(self._outbox.buffers)
                if self.close_reason is not None:
                    break
                self._wrote_at = self._endpoint.now()
                blocked = self.blocked
                self._outbox.sent(sent)
                if blocked and not self.blocked:
                    self._unblocked()
        except (
            OSError,
            MemoryError,
            trio.BrokenResourceError,
            trio.ClosedResourceError,
        ) as exc:
            self.close(_describe(exc))
        finally:
            blocked = self.blocked
            self._draining = False
            if self._last_words is not None:
                self.close(self._last_words)
            elif blocked and not self.blocked:
                self._unblocked()
            if self._drained is not None:
                self._drained.set()
                self._drained = None

    async def _wait_drained(self) -> None:
        if self._drained is None:
            self._drained = trio.Event()
        await self._drained.wait()

    async def _wait_until_clear(self) -> None:
        while self.blocked and self.close_reason is None:
            self._resumed = trio.Event()
            await self._resumed.wait()

    def _unblocked(self) -> None:
        """Go on reading, if the connection lives."""
        if self.close_reason is None:
            # Time in which we did not read on purpose does not count as the peer's silence.
            self.received_at = self._waiting_since = self._endpoint.now()
            if self.arrivals is not None:
                self.arrivals.forget()
            if self._frame_started_at is not None:
                self._frame_started_at = self.received_at
            self._wake_waiting()
            self._endpoint.unblocked(self)

    def _wake_waiting(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None


def _ignore(outcome: Command | ClientError) -> None:
    """Replaces the callback of a completed call."""


def _describe(exc: BaseException) -> str:
    # trio's own errors often have no text; their causes do.
    if not str(exc) and exc.__cause__ is not None:
        return _describe(exc.__cause__)
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


_REQUEST_NAMES: Final = {int(code): code.name for code in RequestCode}


def _request_name(code: int) -> str:
    return _REQUEST_NAMES.get(code, f"request {code}")
