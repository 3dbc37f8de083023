"""One connection to a nameserver or broker: requests out, answers and the peer's requests in.

Nothing here waits. `Connections` (`rmq.client.blocking.connections`) owns all connections of a
client, waits for them together and calls `on_ready` and `expire`. Requests may be submitted before
the connection is made: they leave when it is.

When the connection ends, for whatever reason, every call that waits on it is completed with that
reason. An interrupt (Ctrl-C) during a read or write ends it as well: it is not known how much of
a frame was written.
"""

from __future__ import annotations

import logging
import math
import select
from typing import TYPE_CHECKING, Final, final

from rmq.client.blocking.calls import Call
from rmq.client.blocking.stream import RECEIVE_BYTES, Stream, describe
from rmq.client.core.broker_requests import Reply
from rmq.errors import (
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from rmq.remoting.codes import FLAG_RESPONSE, ResponseCode
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.outbox import Outbox
from rmq.remoting.session import Calls
from rmq.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.client.blocking.frames import Settings
    from rmq.remoting.codes import RequestCode
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

logger = logging.getLogger(__name__)

CALLS_MAX: Final = 65_535
"""Requests under way on one connection."""
OUTBOX_BYTES_MAX: Final = 64 * 1024 * 1024
"""Unwritten bytes at which no further request is taken."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
"""A peer that sends requests and does not read is disconnected at this many unwritten bytes."""

_FRAMES_PER_TAKE: Final = 256
_READS_PER_TURN: Final = 8
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL


@final
class Connection:
    """The connection to one address, from the first attempt to its end."""

    __slots__ = (
        "_calls",
        "_connect_deadline",
        "_decoder",
        "_earliest",
        "_frame_started_at",
        "_on_end",
        "_on_request",
        "_outbox",
        "_received_at",
        "_settings",
        "_stream",
        "_was_open",
        "address",
        "close_reason",
        "polled",
        "used_at",
    )

    def __init__(
        self,
        address: str,
        settings: Settings,
        *,
        now: float,
        on_request: Callable[[str, Command], Reply | None],
        on_end: Callable[[Connection], None],
    ) -> None:
        """Start to connect; raise `ConnectFailedError` if the address is unusable.

        `on_end` is called once, before the calls under way are completed.
        """
        self.address = address
        self.close_reason: str | None = None
        """Why the connection ended; None as long as it is there or being made."""
        self.polled: tuple[int, int] | None = None
        """File descriptor and events that its owner waits for now."""
        self.used_at = 0.0
        """When its owner used it last, on the owner's clock."""
        self._settings = settings
        self._on_request = on_request
        self._on_end = on_end
        self._calls: Calls[Call] = Calls()
        self._earliest = math.inf
        """No call under way has an earlier deadline; it may be that of one completed since."""
        self._decoder = FrameDecoder(frame_bytes_max=settings.frame_bytes_max)
        self._outbox = Outbox()
        self._frame_started_at: float | None = None
        self._received_at = now
        self._was_open = False
        try:
            self._stream = Stream(address, settings.context)
        except OSError as exc:
            raise ConnectFailedError(address, describe(exc)) from exc
        self._connect_deadline = now + self._share_s(settings.connect_timeout_s)

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return f"<Connection to {self.address} {state}>"

    def _share_s(self, left_s: float) -> float:
        """Return how much of the connect timeout the current address of the host may use."""
        return left_s / (1 + self._stream.addresses_left)

    # --- requests ----------------------------------------------------------------------------

    @property
    def calls_under_way(self) -> int:
        return len(self._calls)

    @property
    def unwritten_bytes(self) -> int:
        return self._outbox.size

    @property
    def is_open(self) -> bool:
        """Whether the connection is established."""
        return self._was_open and self.close_reason is None

    def submit(
        self,
        code: RequestCode,
        header: Header | None,
        body: bytes | None,
        extra: Mapping[str, str] | None,
        *,
        timeout_s: float,
        now: float,
        on_outcome: Callable[[Command | ClientError], None] | None,
    ) -> Call:
        """Queue a request; its call is completed once, never before this returns."""
        self._check_room(code)
        calls = self._calls
        if len(calls) >= CALLS_MAX:
            raise TooManyRequestsError(self.address, code.name, CALLS_MAX)
        opaque = calls.next_opaque()
        credentials = self._settings.credentials
        if credentials is not None:
            extra = signed(credentials, header, extra, body)
        frame = self._settings.frames.request(code, opaque, header, extra, len(body) if body else 0)
        call = Call(opaque, code, now, timeout_s, on_outcome)
        try:
            calls.add(opaque, call)
            if call.deadline < self._earliest:
                self._earliest = call.deadline
            self._outbox.add_request(frame, body)
        except BaseException:
            self.close("interrupted")
            raise
        return call

    def tell(
        self,
        code: RequestCode,
        header: Header | None,
        body: bytes | None,
        extra: Mapping[str, str] | None,
        remark: str | None,
    ) -> None:
        """Queue a request that the peer must not answer."""
        self._check_room(code)
        credentials = self._settings.credentials
        if credentials is not None:
            extra = signed(credentials, header, extra, body)
        frame = self._settings.frames.oneway(
            code, self._calls.next_opaque(), header, extra, remark, len(body) if body else 0
        )
        try:
            self._outbox.add_oneway(frame, body)
        except BaseException:
            self.close("interrupted")
            raise

    def _check_room(self, code: RequestCode) -> None:
        if self.close_reason is not None:
            raise self.error()
        if self._outbox.size >= OUTBOX_BYTES_MAX:
            raise TooManyRequestsError(
                self.address, code.name, OUTBOX_BYTES_MAX, what_waits="bytes wait to be written"
            )

    # --- what the owner's waiting is about ---------------------------------------------------

    def poll_key(self) -> tuple[int, int]:
        """Return the file descriptor, and the events to wait for."""
        stream = self._stream
        return stream.fileno(), stream.events(has_output=self._outbox.size > 0)

    def next_deadline(self) -> float:
        """Return when `expire` is due at the latest."""
        if not self._was_open:
            return min(self._connect_deadline, self._earliest)
        return self._earliest

    def on_ready(self, mask: int, now: float) -> None:
        """Read and write what is possible without waiting. Never raises because of the peer."""
        try:
            if not self._stream.is_ready:
                if not self._stream.advance():
                    return
                self._was_open = True
                mask = select.POLLOUT
            if self._outbox.size and mask & select.POLLOUT:
                self._write()
            if mask & _READABLE and self.close_reason is None:
                self._read(now)
                if self._outbox.size and self.close_reason is None:
                    # Answers to the peer, or what TLS could not send before it had read.
                    self._write()
        except OSError as exc:
            self.close(describe(exc))
        except Exception:
            logger.exception("closing the connection to %s: internal error", self.address)
            self.close("internal error")
        except BaseException:
            self.close("interrupted")
            raise

    def flush(self, now: float) -> None:
        """Write queued bytes without waiting."""
        if self._outbox.size and self._stream.is_ready:
            self.on_ready(select.POLLOUT, now)

    def look(self, now: float) -> None:
        """Read what has arrived since the last `on_ready`, to notice that the peer has closed."""
        if self._stream.is_ready:
            self.on_ready(select.POLLIN, now)

    def _write(self) -> None:
        outbox = self._outbox
        while outbox.size:
            try:
                sent = self._stream.send(outbox.buffers)
            except OSError:
                # The peer is gone; what it had said before that may still be here.
                self._read(self._received_at)
                raise
            if not sent:
                return
            outbox.sent(sent)

    def _read(self, now: float) -> None:
        decoder = self._decoder
        for _ in range(_READS_PER_TURN):
            data = self._stream.receive()
            if data is None:
                return
            if not data:
                self.close(_end_of_stream(decoder.held_bytes))
                return
            self._received_at = now
            decoder.feed(data)
            while commands := decoder.take(_FRAMES_PER_TAKE):
                self._frame_started_at = None
                self._deliver(commands)
                if self.close_reason is not None:
                    return
            if decoder.error is not None:
                logger.warning("closing the connection to %s: %s", self.address, decoder.error)
                self.close(f"protocol error: {decoder.error}")
                return
            if decoder.held_bytes and self._frame_started_at is None:
                self._frame_started_at = now
            if len(data) < RECEIVE_BYTES:
                return

    def _deliver(self, commands: list[Command]) -> None:
        pop = self._calls.pop
        for command in commands:
            if not command.flag & FLAG_RESPONSE:
                self._serve(command)
            elif (call := pop(command.opaque)) is not None:
                call.complete(command)
            # Else it came late, or answers a refused one-way request: stock servers send those.

    def _serve(self, command: Command) -> None:
        try:
            reply = self._on_request(self.address, command)
        except Exception:
            logger.exception("request %d of %s could not be served", command.code, self.address)
            reply = Reply(ResponseCode.SYSTEM_ERROR, "internal error")
        if reply is None or command.is_oneway or self.close_reason is not None:
            return
        body = reply.body or b""
        frame = self._settings.frames.response(
            command.opaque, reply.code, reply.remark, len(body), command.serialization
        )
        self._outbox.add_answer(frame, body)
        if self._outbox.answer_bytes > ANSWER_BYTES_MAX:
            self.close("the peer asks and does not read the answers")

    # --- deadlines and the end ---------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Complete calls whose deadline has passed. Never raises because of the peer."""
        if not self._was_open and now >= self._connect_deadline:
            self._give_up_address(now)
        if now < self._earliest:
            return
        late = [call for call in self._calls if call.deadline <= now]
        for call in late:
            self._calls.pop(call.opaque)
        self._earliest = min((call.deadline for call in self._calls), default=math.inf)
        reason = None
        for call in late:
            reason = reason or self._suspicion(call, now)
            call.complete(RequestTimeoutError(self.address, call.code.name, call.timeout_s))
        if reason is not None:
            self.close(reason)

    def _give_up_address(self, now: float) -> None:
        timeout_s = self._settings.connect_timeout_s
        if not self._stream.addresses_left:
            self.close(f"no connection within {timeout_s:g} s")
            return
        try:
            self._stream.skip_address()
        except OSError as exc:
            self.close(describe(exc))
            return
        self._connect_deadline = now + self._share_s(timeout_s)

    def _suspicion(self, call: Call, now: float) -> str | None:
        """Return why the connection may be dead, now that a call has timed out.

        A new connection is cheaper than finding out; but one slow answer must not take those of
        others with it, so not every timeout ends it.
        """
        what, seconds = call.code.name, call.timeout_s
        if not self._was_open:
            return None
        if self._received_at <= call.started_at:
            return f"no byte received since {what} was sent {seconds:g} s ago"
        if self._frame_started_at is not None and now - self._frame_started_at >= seconds:
            return f"a frame was unfinished after {seconds:g} s"
        return None

    def close(self, reason: str) -> None:
        """End the connection; the first reason given is the one remembered."""
        if self.close_reason is not None:
            return
        self.close_reason = reason
        self._on_end(self)
        self._stream.close()
        self._outbox.clear()
        for call in self._calls.drain():
            call.complete(self.error())

    def error(self) -> ClientError:
        """Return the error for requests on this connection after it has ended."""
        assert self.close_reason is not None, "it is not closed"
        if self._was_open:
            return ConnectionLostError(self.address, self.close_reason)
        return ConnectFailedError(self.address, self.close_reason)

    def forget(self, reason: str) -> None:
        """Close this process's copy of the parent's connection; send nothing, call no callback."""
        for call in self._calls.drain():
            call.on_outcome = None
            call.complete(ConnectionLostError(self.address, reason))
        self.close_reason = reason
        self._stream.close()


def _end_of_stream(held_bytes: int) -> str:
    if held_bytes:
        return f"closed by the peer, {held_bytes} bytes into a frame"
    return "closed by the peer"
