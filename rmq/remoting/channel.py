"""One connection: reads commands, hands them on, writes answers and requests. The trio glue of both
ends.

What a channel promises:

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
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import (
    ClientError,
    ConfigError,
    ConnectionLostError,
    RemoteProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from rmq.remoting.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RequestCode,
    Serialization,
)
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.layout import FRAME_BYTES_MAX
from rmq.remoting.session import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.remoting.command import Command
    from rmq.remoting.endpoint import Endpoint
    from rmq.remoting.header import Header
    from rmq.remoting.transport import Transport

logger = logging.getLogger(__name__)

BATCH_FRAMES: Final = 32
"""How many frames are handled before their answers are written: the peer works on these while we go
on.
"""

_READS_IN_A_ROW: Final = 16
_FRAMES_PER_STEP: Final = 256
"""After so many reads without waiting, or so many frames of one read, other tasks get their turn.
"""

_CLOSE_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelConfig:
    """Bounds of one connection."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Largest frame taken or sent, its length field included."""
    batch_frames: int = BATCH_FRAMES
    """Frames handled per write. Fewer: a pipelining peer idles less; more: fewer system calls."""
    outbox_bytes_max: int = 64 * 1024 * 1024
    """Unwritten bytes at which a peer that does not read is cut off."""
    stall_timeout_s: float = 30.0
    """How long a peer may take nothing of what we write before it is cut off."""
    frame_timeout_s: float = 120.0
    """How long a frame may take from its first byte to its last."""
    idle_timeout_s: float = 120.0
    """Without a byte either way for so long, the connection is closed."""
    calls_max: int = 65_535
    """Our requests under way on the connection."""
    oneways_max: int = 65_535
    """Our one-way requests not yet written."""

    def __post_init__(self) -> None:
        for name in (
            "frame_bytes_max",
            "batch_frames",
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
    """A request of ours that waits for its answer."""

    __slots__ = ("channel", "code", "on_outcome", "opaque", "sent_at", "settled", "timeout_s")

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
        self.settled = False

    def settle(self, outcome: Command | ClientError) -> None:
        if not self.settled:
            self.settled = True
            self.on_outcome(outcome)


@final
class Channel:
    """One connection, either end."""

    __slots__ = (
        "__weakref__",
        "_calls",
        "_corked",
        "_decoder",
        "_dirty",
        "_drained",
        "_draining",
        "_endpoint",
        "_frame_started_at",
        "_oneways",
        "_outbox",
        "_outbox_bytes",
        "_pauses",
        "_resumed",
        "_scope",
        "_transport",
        "_wrote_at",
        "close_reason",
        "config",
        "encoder",
        "local",
        "opened_at",
        "peer",
        "received_at",
        "secure",
        "state",
    )

    def __init__(self, transport: Transport, endpoint: Endpoint) -> None:
        config = endpoint.channel_config
        self.config = config
        self.peer = transport.peer
        self.local = transport.local
        self.secure = transport.secure
        self.encoder = endpoint.encoder
        self.close_reason: str | None = None
        """Why the connection ended; None while it is open."""
        self.state: dict[str, object] = {}
        """What the owner wants to remember about the connection (client id, version ...)."""
        self.opened_at = self.received_at = self._wrote_at = endpoint.now()
        self._transport = transport
        self._endpoint = endpoint
        self._decoder = FrameDecoder(frame_bytes_max=config.frame_bytes_max)
        self._frame_started_at: float | None = None
        self._outbox: deque[bytes | memoryview] = deque()
        self._outbox_bytes = 0
        self._oneways = 0
        self._corked = False
        self._dirty = False
        self._draining = False
        self._drained: trio.Event | None = None
        self._pauses = 0
        self._resumed: trio.Event | None = None
        self._calls: Calls[Call] = Calls()
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return f"<Channel {self.local} - {self.peer} {state}>"

    # ---- life ------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.close_reason is None

    @property
    def outbox_bytes(self) -> int:
        return self._outbox_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        return self._decoder.held_bytes

    @property
    def calls_under_way(self) -> int:
        return len(self._calls)

    async def run(self) -> None:
        """Read until the connection ends. Never raises because of the peer."""
        try:
            with self._scope:
                await self._read_loop()
        except RemoteProtocolError as exc:
            logger.warning("closing connection of %s: %s", self.peer, exc)
            self.close(f"protocol error: {exc}")
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self.close(_describe(exc))
        except Exception:
            # A fault of ours must end this connection only.
            logger.exception("closing connection of %s: internal error", self.peer)
            self.close("internal error")
        finally:
            self.close("closed")
            self._endpoint.forget(self)
            with trio.move_on_after(_CLOSE_GRACE_S, shield=True):
                await self._transport.aclose()

    def close(self, reason: str) -> None:
        """End the connection; the first reason given is the one remembered."""
        if self.close_reason is not None:
            return
        self.close_reason = reason
        self._scope.cancel()
        for call in self._calls.drain():
            call.settle(ConnectionLostError(self.peer, reason))
        self._wake_waiting()

    def check_health(self, now: float) -> None:
        """Close the connection if it is idle, stuck in the middle of a frame, or not read by its
        peer.
        """
        config = self.config
        if self._draining:
            if now - self._wrote_at >= config.stall_timeout_s:
                logger.warning(
                    "closing connection of %s: it took nothing for %g s while %d bytes wait",
                    self.peer,
                    config.stall_timeout_s,
                    self._outbox_bytes,
                )
                self.close(f"the peer did not read for {config.stall_timeout_s:g} s")
        elif self._pauses:
            # We are not reading on purpose; that the peer is silent says nothing about it.
            return
        elif (
            self._frame_started_at is not None
            and now - self._frame_started_at >= config.frame_timeout_s
        ):
            logger.warning(
                "closing connection of %s: a frame is unfinished after %g s",
                self.peer,
                config.frame_timeout_s,
            )
            self.close(f"a frame was unfinished after {config.frame_timeout_s:g} s")
        elif now - max(self.received_at, self._wrote_at) >= config.idle_timeout_s:
            self._endpoint.report_idle(self)
            self.close(f"idle for {config.idle_timeout_s:g} s")

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
        task = trio.lowlevel.current_task()
        outcome: Command | ClientError | None = None
        parked = False

        def wake(result: Command | ClientError) -> None:
            nonlocal outcome
            outcome = result
            if parked:
                trio.lowlevel.reschedule(task)

        call = self.submit(
            code,
            header,
            body=body,
            timeout_s=timeout_s,
            extra=extra,
            remark=remark,
            serialization=serialization,
            on_outcome=wake,
        )

        def abandon(_: object) -> trio.lowlevel.Abort:
            self._abandon(call)
            return trio.lowlevel.Abort.SUCCEEDED

        if outcome is None:
            parked = True
            await trio.lowlevel.wait_task_rescheduled(abandon)
        if isinstance(outcome, ClientError):
            raise outcome
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
    ) -> Call:
        """Send a request; `on_outcome` is called once, with the answer or with why there is none.

        Costs no scheduler step, so thousands of requests can be pipelined. `on_outcome` must not
        block or raise.
        """
        self._check_open()
        if len(self._calls) >= self.config.calls_max:
            raise TooManyRequestsError(self.peer, code.name, self.config.calls_max)
        opaque = self._calls.next_opaque()
        frame = self.encoder.frame(
            code=code,
            opaque=opaque,
            header=header,
            extra=extra,
            remark=remark,
            body_length=len(body) if body else 0,
            serialization=serialization,
        )
        now = self._endpoint.now()
        call = Call(self, opaque, code, now, timeout_s, on_outcome)
        self._calls.add(opaque, call)
        self._endpoint.watch(now + timeout_s, call)
        self.send(frame, body)
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
        if self._oneways >= self.config.oneways_max:
            raise TooManyRequestsError(self.peer, code.name, self.config.oneways_max)
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
        self._oneways += 1
        self.send(frame, body)

    def expire(self, call: Call) -> None:
        """The deadline of `call` has passed."""
        self._calls.pop(call.opaque)
        what = _request_name(call.code)
        silent = self.received_at <= call.sent_at
        call.settle(RequestTimeoutError(self.peer, what, call.timeout_s))
        if silent:
            # Nothing at all came since the request left: the connection itself may be dead, and a
            # new one is cheaper than finding out. The original closes on every timeout; that
            # punishes one slow answer.
            self.close(f"no byte received since {what} was sent {call.timeout_s:g} s ago")

    def _abandon(self, call: Call) -> None:
        call.settled = True
        self._calls.pop(call.opaque)

    def _check_open(self) -> None:
        if self.close_reason is not None:
            raise ConnectionLostError(self.peer, self.close_reason)

    # ---- reading ---------------------------------------------------------------------------------

    async def _read_loop(self) -> None:
        transport = self._transport
        endpoint = self._endpoint
        decoder = self._decoder
        batch_frames = self.config.batch_frames
        reads_left = 0
        frames_left = _FRAMES_PER_STEP
        while True:
            data: bytes | None = None
            if reads_left:
                data = transport.receive_nowait()
            if data is None:
                data = await transport.receive()
                # A peer that is alone is read again at once, which saves a scheduler step; where
                # several are busy, waiting first lets each read bring more and is the fairer order.
                reads_left = _READS_IN_A_ROW if endpoint.last_reader is self else 1
                endpoint.last_reader = self
                frames_left = _FRAMES_PER_STEP
            if not data:
                self.close("closed by the peer")
                return
            reads_left -= 1
            self.received_at = endpoint.now()
            decoder.feed(data)
            while commands := decoder.take(batch_frames):
                self._frame_started_at = None
                self._corked = True
                self._deliver(commands)
                self._corked = False
                if self._outbox and not self._draining:
                    self._flush(self.received_at)
                while self._draining or self._pauses:
                    await self._wait_until_clear()
                frames_left -= len(commands)
                if frames_left <= 0:
                    frames_left = _FRAMES_PER_STEP
                    await trio.lowlevel.checkpoint()
                if not decoder.held_bytes:
                    break
            if decoder.error is not None:
                raise decoder.error
            if decoder.held_bytes:
                if self._frame_started_at is None:
                    self._frame_started_at = self.received_at
                endpoint.check_held_bytes(self)

    def _deliver(self, commands: list[Command]) -> None:
        requests = [command for command in commands if not command.flag & FLAG_RESPONSE]
        if requests:
            self._endpoint.dispatcher.dispatch(self, requests)
        if len(requests) < len(commands):
            for command in commands:
                if command.flag & FLAG_RESPONSE:
                    self._answer(command)

    def _answer(self, command: Command) -> None:
        call = self._calls.pop(command.opaque)
        if call is None:
            # Late, or the answer to a refused one-way request: stock servers send those.
            logger.debug("answer %d of %s matches no request", command.opaque, self.peer)
            return
        call.settle(command)

    # ---- writing ---------------------------------------------------------------------------------

    def send(self, frame: bytes, body: bytes | memoryview | None = None) -> None:
        """Queue a frame; it leaves with all else queued in this step. Dropped when closed."""
        if self.close_reason is not None:
            return
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        if body is not None and len(body):
            self._outbox.append(body)
            self._outbox_bytes += len(body)
        if self._corked:
            # The reader, which is in the middle of a batch, writes at its end.
            return
        if self._draining:
            self._check_outbox()
        elif not self._dirty:
            self._dirty = True
            self._endpoint.schedule_flush(self)

    def flush(self) -> None:
        """Write what is queued as far as that goes without waiting; a task drains the rest."""
        self._dirty = False
        if self._outbox and not self._draining and self.close_reason is None:
            self._flush(self._endpoint.now())

    def _flush(self, now: float) -> None:
        try:
            sent = self._transport.send_nowait(self._outbox)
        except OSError as exc:
            self.close(_describe(exc))
            return
        self._wrote_at = now
        self._sent(sent)
        if self._outbox:
            self._draining = True
            self._endpoint.start_soon(self._drain)

    def pause(self) -> None:
        """Read no further until `resume`. Pauses add up."""
        self._pauses += 1

    def resume(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self._wake_waiting()

    async def wait_written(self) -> None:
        """Wait until all that is queued is with the kernel, or the connection has ended."""
        while self.close_reason is None and (self._outbox or self._draining):
            if not self._draining:
                self.flush()
            if self._draining:
                await self._wait_drained()

    def _check_outbox(self) -> None:
        if self._outbox_bytes > self.config.outbox_bytes_max:
            logger.warning(
                "closing connection of %s: %d bytes wait for it to read",
                self.peer,
                self._outbox_bytes,
            )
            self.close(f"{self._outbox_bytes} bytes wait for the peer to read")

    def _sent(self, count: int) -> None:
        """Take `count` bytes off the outbox."""
        outbox = self._outbox
        self._outbox_bytes -= count
        if not self._outbox_bytes:
            outbox.clear()
            self._oneways = 0
            return
        while count:
            first = outbox[0]
            if len(first) <= count:
                count -= len(first)
                outbox.popleft()
            else:
                outbox[0] = memoryview(first)[count:]
                return

    async def _drain(self) -> None:
        """Write the rest, waiting for the peer to read."""
        try:
            while self._outbox and self.close_reason is None:
                sent = await self._transport.send(self._outbox)
                self._wrote_at = self._endpoint.now()
                self._sent(sent)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self.close(_describe(exc))
        finally:
            self._draining = False
            self._wake_waiting()
            if self._drained is not None:
                self._drained.set()
                self._drained = None

    async def _wait_drained(self) -> None:
        if self._drained is None:
            self._drained = trio.Event()
        await self._drained.wait()

    async def _wait_until_clear(self) -> None:
        self._resumed = trio.Event()
        await self._resumed.wait()

    def _wake_waiting(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None


def _describe(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


_REQUEST_NAMES: Final = {int(code): code.name for code in RequestCode}


def _request_name(code: int) -> str:
    return _REQUEST_NAMES.get(code, f"request {code}")
