"""One connection of an asyncio client: requests out, answers and the peer's requests in.

A protocol of asyncio, so that TLS and all loops (uvloop as well) come with it. What is sent in one
step of the loop leaves with one write. When the connection ends, for whatever reason, every call
that waits on it is completed with that reason.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast, final

from rmq.client.aio.calls import Call, ignored
from rmq.client.core.broker_requests import Reply
from rmq.errors import (
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from rmq.remoting.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RequestCode,
    ResponseCode,
    Serialization,
)
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.session import Calls
from rmq.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Protocol

    from rmq.remoting.command import Command, FrameEncoder, FrameTemplate
    from rmq.remoting.header import Header
    from rmq.remoting.signing import Credentials

    class Owner(Protocol):
        """What a connection asks of those that it belongs to."""

        encoder: FrameEncoder
        credentials: Credentials | None
        now: Callable[[], float]
        in_callback: AbstractContextManager[None]

        def watch(self, deadline: float, call: Call) -> None:
            """Call `Connection.expire` at a time, if the call is not complete by then."""

        def serve(self, connection: Connection, command: Command) -> Reply | None:
            """Serve a request of the peer; None: it is answered later, or not at all."""

        def forget(self, connection: Connection) -> None: ...


logger = logging.getLogger(__name__)

CALLS_MAX: Final = 65_535
"""Requests under way on one connection."""
UNWRITTEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Unwritten bytes at which no further request is taken."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
"""A peer that sends requests and does not read is disconnected at this many unwritten bytes."""
_FRAMES_PER_TAKE: Final = 256


@final
class Connection(asyncio.Protocol):
    """The connection to one address, from when it is made to its end."""

    __slots__ = (
        "__weakref__",
        "_calls",
        "_decoder",
        "_drained",
        "_frame_started_at",
        "_in_callback",
        "_is_scheduled",
        "_loop",
        "_owner",
        "_queued",
        "_queued_bytes",
        "_received_at",
        "_transport",
        "close_reason",
        "encoder",
        "lost",
        "peer",
    )

    def __init__(self, address: str, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.peer = address
        self.close_reason: str | None = None
        """Why the connection ended; None while it is open."""
        self.encoder = owner.encoder
        self.lost: asyncio.Future[None] = loop.create_future()
        """Done when asyncio has let go of the socket."""
        self._owner = owner
        self._in_callback = owner.in_callback
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._calls: Calls[Call] = Calls()
        self._decoder = FrameDecoder()
        self._frame_started_at: float | None = None
        self._received_at = owner.now()
        self._queued: list[bytes] = []
        self._queued_bytes = 0
        self._is_scheduled = False
        """Whether what is queued will be written in this step of the loop."""
        self._drained: asyncio.Future[None] | None = None
        """Set while the kernel does not take all that was written."""

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return f"<Connection to {self.peer} {state}>"

    @property
    def calls_under_way(self) -> int:
        return len(self._calls)

    # --- what asyncio calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # So that `pause_writing` tells at once that the kernel takes no more.
        self._transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        try:
            self._received_at = self._owner.now()
            with self._in_callback:
                self._read(data)
        except Exception:
            logger.exception("closing the connection to %s: internal error", self.peer)
            self.close("internal error")

    def eof_received(self) -> None:
        held = self._decoder.held_bytes
        with self._in_callback:
            self.close(f"closed by the peer, {held} bytes into a frame" if held else _BY_PEER)

    def connection_lost(self, exc: Exception | None) -> None:
        with self._in_callback:
            self.close(_BY_PEER if exc is None else _describe(exc))
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        if self._drained is None:
            self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    # --- reading -----------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        decoder, pop = self._decoder, self._calls.pop
        decoder.feed(data)
        while commands := decoder.take(_FRAMES_PER_TAKE):
            self._frame_started_at = None
            for command in commands:
                if not command.flag & FLAG_RESPONSE:
                    self._serve(command)
                elif (call := pop(command.opaque)) is not None:
                    call.complete(command)
                # Else it came late, or answers a refused one-way request: stock servers send those.
            if self.close_reason is not None:
                return
        if decoder.error is not None:
            logger.warning("closing the connection to %s: %s", self.peer, decoder.error)
            self.close(f"protocol error: {decoder.error}")
        elif decoder.held_bytes and self._frame_started_at is None:
            self._frame_started_at = self._received_at

    def _serve(self, command: Command) -> None:
        try:
            reply = self._owner.serve(self, command)
        except Exception:
            logger.exception("request %d of %s could not be served", command.code, self.peer)
            reply = Reply(ResponseCode.SYSTEM_ERROR, "internal error")
        if reply is not None:
            self.answer(command, reply)

    def answer(self, command: Command, reply: Reply) -> None:
        """Answer a request of the peer."""
        if command.is_oneway or self.close_reason is not None:
            return
        if self.unwritten_bytes > ANSWER_BYTES_MAX:
            self.close("the peer asks and does not read the answers")
            return
        body = reply.body or b""
        frame = self.encoder.response(
            command.opaque,
            reply.code,
            None,
            len(body),
            serialization=command.serialization,
            remark=reply.remark,
        )
        self._queue(frame, body)

    # --- requests ----------------------------------------------------------------------------

    def submit(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        on_outcome: Callable[[Command | ClientError], None],
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
        serialization: Serialization = Serialization.JSON,
        is_urgent: bool = False,
    ) -> Call:
        """Send a request; `on_outcome` is called once, with the answer or with why there is none.

        Raises `ClientError` if nothing was sent. A request that is urgent does not wait for the end
        of this step to be written.
        """
        opaque = self._opaque_for_call(code)
        credentials = self._owner.credentials
        if credentials is not None:
            extra = signed(credentials, header, extra, body)
        frame = self.encoder.request(
            opaque, code, header, len(body) if body else 0, serialization, None, extra
        )
        return self._add_call(
            opaque, code, frame, body, self._owner.now(), timeout_s, on_outcome, is_urgent
        )

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
        opaque = self._opaque_for_call(code)
        credentials = self._owner.credentials
        if credentials is not None:
            extra = signed(credentials, header, extra, body)
        frame = self.encoder.frame(
            code=code,
            flag=FLAG_ONEWAY,
            opaque=opaque,
            header=header,
            extra=extra,
            remark=remark,
            body_length=len(body) if body else 0,
            serialization=serialization,
        )
        self._queue(frame, body)

    def abandon(self, call: Call) -> None:
        """Forget a call: its answer is not wanted any longer."""
        call.is_complete = True
        call.on_outcome = ignored
        self._calls.pop(call.opaque)

    def _opaque_for_call(self, code: int) -> int:
        """Return the number of the next call; raise `ClientError` if it cannot be made."""
        if self.close_reason is not None:
            raise ConnectionLostError(self.peer, self.close_reason)
        calls = self._calls
        if len(calls.by_opaque) >= CALLS_MAX:
            raise TooManyRequestsError(self.peer, _name_of(code), CALLS_MAX)
        if (self._drained is not None or self._queued_bytes >= UNWRITTEN_BYTES_MAX) and (
            self.unwritten_bytes >= UNWRITTEN_BYTES_MAX
        ):
            raise TooManyRequestsError(
                self.peer,
                _name_of(code),
                UNWRITTEN_BYTES_MAX,
                what_waits="bytes wait to be written",
            )
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
        self._owner.watch(now + timeout_s, call)
        self._queue(frame, body)
        if is_urgent:
            self.flush()
        return call

    # --- writing -----------------------------------------------------------------------------

    @property
    def unwritten_bytes(self) -> int:
        transport = self._transport
        return self._queued_bytes + (0 if transport is None else transport.get_write_buffer_size())

    def _queue(self, frame: bytes, body: bytes | None) -> None:
        self._queued.append(frame)
        self._queued_bytes += len(frame)
        if body:
            self._queued.append(body)
            self._queued_bytes += len(body)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_scheduled = False
        with self._in_callback:
            self.flush()

    def flush(self) -> None:
        """Give what is queued to asyncio, which writes what it can at once."""
        if self._queued and self._transport is not None and self.close_reason is None:
            queued, self._queued = self._queued, []
            self._queued_bytes = 0
            self._transport.writelines(queued)

    async def wait_written(self) -> None:
        """Wait until all that is queued is with the kernel, or the connection has ended."""
        self.flush()
        while self._drained is not None and self.close_reason is None:
            await asyncio.shield(self._drained)

    # --- deadlines and the end ---------------------------------------------------------------

    def expire(self, call: Call) -> None:
        """Complete a call with a timeout: its deadline has passed."""
        self._calls.pop(call.opaque)
        what, seconds = _name_of(call.code), call.timeout_s
        call.complete(RequestTimeoutError(self.peer, what, seconds))
        # A new connection is cheaper than finding out whether this one is dead; but one slow answer
        # must not take those of others with it.
        if self._received_at <= call.sent_at:
            self.close(f"no byte received since {what} was sent {seconds:g} s ago")
        elif (
            self._frame_started_at is not None
            and self._owner.now() - self._frame_started_at >= seconds
        ):
            self.close(f"a frame was unfinished after {seconds:g} s")

    def close(self, reason: str) -> None:
        """End the connection; the first reason given is the one remembered."""
        if self.close_reason is not None:
            return
        self.close_reason = reason
        self._owner.forget(self)
        self._queued.clear()
        self._queued_bytes = 0
        self._decoder.clear()
        if self._transport is not None:
            self._transport.abort()
        self.resume_writing()
        for call in self._calls.drain():
            call.complete(ConnectionLostError(self.peer, reason))


_BY_PEER: Final = "closed by the peer"
_NAMES: Final = {int(code): code.name for code in RequestCode}


def _name_of(code: int) -> str:
    return _NAMES.get(code, f"request {code}")


def _describe(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) or type(exc).__name__
