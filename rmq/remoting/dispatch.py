"""From request code to handler: the handler table, groups with their limits, and the request a
handler gets.

There are three kinds of handler, all of them given a `Request` and all of them answering with
`request.reply`:

- `add`: a plain function for one request. Runs at once, inside the step that read the request.
- `add_batch`: a plain function for all consecutive requests of its code that one read brought
  (sends). It may return one response header per request, which is the fastest way to answer.
- `add_async`: a coroutine that may wait. Runs in a worker task of its group.

A handler that cannot answer yet calls `request.defer()` and keeps the request; whoever completes
the work calls `reply` later, from any task, and all answers given in one step of the scheduler
leave in one write per connection. A handler that neither answers nor defers sends nothing, as some
requests demand.

Every code belongs to a group (send, pull, query ...), and a group has bounds of its own: how many
coroutines run, how many requests are unanswered in all, and how many of them may be one
connection's. Waiting requests of a group are served in turn by connection, so that one client's
thousand queries do not hold up another's one.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

import msgspec
import trio

from rmq.errors import HeaderError, LocalProtocolError, RefusedError
from rmq.remoting.channel import Channel
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode, Serialization
from rmq.remoting.command import Command, whole_header_decoder
from rmq.remoting.header import READ_ERRORS, EmptyHeader, Header, json_decoder
from rmq.remoting.layout import FRAME_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence


logger = logging.getLogger(__name__)

H = TypeVar("H", bound=Header)

_PLAIN_HEADER_BYTES_MAX: Final = 4096
_REFUSAL_CHARS_MAX: Final = 1000
_pack_prefix = FRAME_PREFIX.pack

REMARK_OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerGroup:
    """Bounds that a group of request codes has to itself."""

    name: str
    concurrency: int
    """How many coroutine handlers run at a time."""
    capacity: int
    """How many requests may be unanswered; one more is answered SYSTEM_BUSY."""
    per_connection: int
    """How many of them may be one connection's."""
    slows_down: bool = True
    """What happens at `per_connection`: the connection is read no further until an answer is out
    (True), or the request is answered SYSTEM_BUSY (False; for requests that rest unanswered on
    purpose, such as held pulls).
    """

    def __post_init__(self) -> None:
        if min(self.concurrency, self.capacity, self.per_connection) < 1:
            raise ValueError(f"group {self.name}: bounds must be at least 1")


# Capacities are those of the queues of 4.9.8's thread pools; its pools have no bound per
# connection.
SEND: Final = HandlerGroup(name="send", concurrency=64, capacity=10_000, per_connection=5_000)
PULL: Final = HandlerGroup(
    name="pull", concurrency=64, capacity=100_000, per_connection=50_000, slows_down=False
)
QUERY: Final = HandlerGroup(name="query", concurrency=8, capacity=20_000, per_connection=1_000)
ADMIN: Final = HandlerGroup(name="admin", concurrency=16, capacity=10_000, per_connection=1_000)
CLIENT_MANAGEMENT: Final = HandlerGroup(
    name="client_management", concurrency=32, capacity=100_000, per_connection=1_000
)
HEARTBEAT: Final = HandlerGroup(
    name="heartbeat", concurrency=16, capacity=50_000, per_connection=1_000
)


@final
class Request(msgspec.Struct, Generic[H], eq=False):
    """One request as its handler sees it. Answer it at most once, now or later."""

    command: Command
    header: H
    channel: Channel
    _group: _GroupState
    _answered: bool = False
    _counted: bool = False
    _deferred: bool = False

    @property
    def body(self) -> bytes | None:
        return self.command.body

    @property
    def answered(self) -> bool:
        return self._answered

    def reply(
        self,
        header: Header | None = None,
        *,
        code: int = ResponseCode.SUCCESS,
        body: bytes | memoryview | None = None,
        remark: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Answer, in the serialization of the request. A one-way request's answer is not sent."""
        if self._answered or self._counted:
            self._settle()
        self._answered = True
        if not self.command.flag & FLAG_ONEWAY:
            self._send(header, code, body, remark, extra)

    def defer(self) -> None:
        """Keep the request unanswered past the handler's return; it counts against its group until
        `reply`.
        """
        self._deferred = True
        self._count()

    def drop(self) -> None:
        """Let go of a deferred request without an answer."""
        if not self._answered:
            self._settle()

    def refuse(self, code: int, remark: str) -> None:
        """Answer with an error, as the server itself does: in the server's own serialization
        (JSON).
        """
        self._settle()
        if not self.command.flag & FLAG_ONEWAY:
            self.channel.send(_refusal(self.command, self.channel, code, remark))

    def _send(
        self,
        header: Header | None,
        code: int = ResponseCode.SUCCESS,
        body: bytes | memoryview | None = None,
        remark: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        command = self.command
        channel = self.channel
        try:
            frame = channel.encoder.response(
                command.opaque,
                code,
                header,
                0 if body is None else len(body),
                command.serialization,
                remark,
                extra,
            )
        except LocalProtocolError as exc:
            logger.error("answer to %s of %s dropped: %s", _name_of(command), channel.peer, exc)
            frame = _refusal(command, channel, ResponseCode.SYSTEM_ERROR, str(exc))
            body = None
        channel.send(frame, body)

    def _count(self) -> None:
        if not self._counted and not self._answered:
            self._counted = True
            self._group.count(self.channel)

    def _settle(self) -> None:
        if self._answered:
            raise RuntimeError(f"{_name_of(self.command)} of {self.channel.peer} answered twice")
        self._answered = True
        if self._counted:
            self._counted = False
            self._group.uncount(self.channel)


@final
class HandlerTable:
    """Which handler serves which request code. Filled once, before the server or client starts."""

    def __init__(self) -> None:
        self.entries: dict[int, _Entry] = {}

    def add(
        self,
        code: RequestCode,
        handler: Callable[[Request[H]], None],
        *,
        header: type[H] = EmptyHeader,  # type: ignore[assignment]
        group: HandlerGroup = ADMIN,
    ) -> None:
        """Serve `code` with a plain function."""

        def handle_each(requests: Sequence[Request[H]]) -> None:
            for request in requests:
                _guarded(handler, request)

        self._put(code, _Entry(header, group, handle_batch=handle_each))

    def add_batch(
        self,
        code: RequestCode,
        handler: Callable[[Sequence[Request[H]]], Sequence[Header | None] | None],
        *,
        header: type[H] = EmptyHeader,  # type: ignore[assignment]
        group: HandlerGroup = ADMIN,
    ) -> None:
        """Serve `code` with a plain function that takes many requests at once.

        Where it returns response headers, one per request, the requests are answered SUCCESS with
        them; None stands for a request that the handler has answered or deferred itself.
        """
        self._put(code, _Entry(header, group, handle_batch=handler, comes_in_runs=True))

    def add_async(
        self,
        code: RequestCode,
        handler: Callable[[Request[H]], Awaitable[None]],
        *,
        header: type[H] = EmptyHeader,  # type: ignore[assignment]
        group: HandlerGroup = ADMIN,
    ) -> None:
        """Serve `code` with a coroutine."""
        self._put(code, _Entry(header, group, handle_async=handler))

    def without(self, *codes: RequestCode) -> HandlerTable:
        """Return a table that serves all but `codes`, for a second port with fewer rights."""
        table = HandlerTable()
        table.entries = {code: e for code, e in self.entries.items() if code not in codes}
        return table

    def _put(self, code: RequestCode, entry: _Entry) -> None:
        if code in self.entries:
            raise ValueError(f"{code.name} has a handler already")
        self.entries[code] = entry


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """A snapshot of one group, for metrics."""

    name: str
    unanswered: int
    waiting: int
    running: int
    refused: int
    """Requests answered SYSTEM_BUSY since the start."""


@final
class Dispatcher:
    """Hands requests to handlers within the bounds of their groups."""

    def __init__(
        self,
        table: HandlerTable,
        *,
        guard: Callable[[Channel, Command], None] | None = None,
        answer_unknown: bool = True,
    ) -> None:
        self._guard = guard
        # A stock nameserver says nothing to a code it does not know, a stock broker says so.
        self._answer_unknown = answer_unknown
        self._groups: dict[HandlerGroup, _GroupState] = {}
        self._bound: dict[int, _Bound] = {}
        for code, entry in table.entries.items():
            state = self._groups.setdefault(entry.group, _GroupState(entry.group))
            self._bound[code] = _Bound(entry, state)
        self.whole_decoders = {
            code: whole_header_decoder(entry.header_class)
            for code, entry in table.entries.items()
            if entry.comes_in_runs
        }
        """How to read the headers of codes that are served in batches, for `FrameDecoder`."""
        self._nursery: trio.Nursery | None = None
        self._quiet: trio.Event | None = None
        for state in self._groups.values():
            state.on_settled = self._settled

    @property
    def unanswered(self) -> int:
        """How many requests are deferred, waiting or running."""
        return sum(state.unanswered for state in self._groups.values())

    def statistics(self) -> list[GroupStatistics]:
        return [state.statistics() for state in self._groups.values()]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the workers of coroutine handlers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def wait_quiet(self) -> None:
        """Wait until no request is unanswered."""
        while self.unanswered:
            self._quiet = trio.Event()
            await self._quiet.wait()

    def dispatch(self, channel: Channel, commands: Sequence[Command]) -> None:
        """Hand on what one read brought, runs of one code together. Never raises."""
        start = 0
        count = len(commands)
        while start < count:
            code = commands[start].code
            stop = start + 1
            while stop < count and commands[stop].code == code:
                stop += 1
            run = commands[start:stop] if stop - start < count else commands
            bound = self._bound.get(code)
            if bound is None:
                self._refuse_unknown(channel, run)
            else:
                self._hand_on(channel, bound, run)
            start = stop

    def forget(self, channel: Channel) -> None:
        """Drop the requests of a connection that is gone and that no handler has seen yet."""
        for state in self._groups.values():
            for request in state.forget(channel):
                request.drop()

    def _hand_on(self, channel: Channel, bound: _Bound, commands: Sequence[Command]) -> None:
        state = bound.state
        if self._guard is not None:
            commands = self._admit(self._guard, channel, commands)
        if state.crowded_by(len(commands)) and (room := state.room_for(channel)) < len(commands):
            for command in commands[room:]:
                state.refused += 1
                _refuse(channel, command, ResponseCode.SYSTEM_BUSY, REMARK_OVERLOAD)
            commands = commands[:room]
        requests: list[Request[Any]] = []
        decode_json = bound.decode_json
        header_class = bound.header_class
        header: Any
        for command in commands:
            try:
                header = command.json_ext
                if type(header) is not header_class:
                    header = decode_json(header)
            except READ_ERRORS:
                # Not JSON (then this part is empty), or not as the fast reader wants it.
                try:
                    header = command.header(bound.header_class)
                except HeaderError as exc:
                    _refuse(channel, command, ResponseCode.SYSTEM_ERROR, str(exc))
                    continue
            requests.append(Request(command, header, channel, state))
        if not requests:
            return
        if bound.handle_batch is not None:
            try:
                headers = bound.handle_batch(requests)
                if headers is not None:
                    _reply_all(channel, requests, headers)
            except Exception as exc:  # noqa: BLE001 - one bad batch must not end the connection
                _answer_error(requests, exc)
        else:
            self._enqueue(bound, requests)

    def _admit(
        self,
        guard: Callable[[Channel, Command], None],
        channel: Channel,
        commands: Sequence[Command],
    ) -> list[Command]:
        admitted: list[Command] = []
        for command in commands:
            try:
                guard(channel, command)
            except RefusedError as exc:
                _refuse(channel, command, exc.code, exc.remark)
            except Exception as exc:
                logger.exception("guard failed on %s of %s", _name_of(command), channel.peer)
                _refuse(channel, command, ResponseCode.SYSTEM_ERROR, _describe(exc))
            else:
                admitted.append(command)
        return admitted

    def _refuse_unknown(self, channel: Channel, commands: Sequence[Command]) -> None:
        for command in commands:
            logger.debug("no handler for %s from %s", _name_of(command), channel.peer)
            if self._answer_unknown and not command.flag & FLAG_ONEWAY:
                # In the serialization of the request: in a stock broker this is a handler's answer.
                frame = channel.encoder.response(
                    command.opaque,
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    None,
                    0,
                    command.serialization,
                    remark=f" request type {command.code} not supported",
                )
                channel.send(frame)

    def _enqueue(self, bound: _Bound, requests: Sequence[Request[Any]]) -> None:
        assert bound.handle_async is not None, "a handler is either plain or a coroutine"
        if self._nursery is None:
            # The endpoint is ending; the connection goes the same way.
            return
        state = bound.state
        for request in requests:
            request._count()
            state.put(request, bound.handle_async)
            if state.running < state.group.concurrency:
                state.running += 1
                self._nursery.start_soon(_work, state, name=f"rmq {state.group.name} worker")

    def _settled(self) -> None:
        if self._quiet is not None and not self.unanswered:
            self._quiet.set()


@final
class _Entry:
    """A handler as registered."""

    __slots__ = ("comes_in_runs", "group", "handle_async", "handle_batch", "header_class")

    def __init__(
        self,
        header_class: type[Header],
        group: HandlerGroup,
        *,
        handle_batch: Callable[[Any], Sequence[Header | None] | None] | None = None,
        handle_async: Callable[[Any], Awaitable[None]] | None = None,
        comes_in_runs: bool = False,
    ) -> None:
        self.comes_in_runs = comes_in_runs
        self.header_class = header_class
        self.group = group
        self.handle_batch = handle_batch
        self.handle_async = handle_async


@final
class _Bound:
    """A registered handler with the running state of its group."""

    __slots__ = ("decode_json", "handle_async", "handle_batch", "header_class", "state")

    def __init__(self, entry: _Entry, state: _GroupState) -> None:
        self.header_class = entry.header_class
        self.decode_json = json_decoder(entry.header_class)
        self.handle_batch = entry.handle_batch
        self.handle_async = entry.handle_async
        self.state = state


@final
class _GroupState:
    """The requests of one group that are not answered yet."""

    def __init__(self, group: HandlerGroup) -> None:
        self.group = group
        self.unanswered = 0
        self.running = 0
        self.refused = 0
        self.on_settled: Callable[[], None] | None = None
        # Below this no bound can be hit, neither the group's nor a connection's.
        self._comfortable = (
            group.capacity if group.slows_down else min(group.capacity, group.per_connection)
        )
        self._by_channel: dict[Channel, int] = {}
        self._turns: deque[Channel] = deque()
        self._waiting: dict[
            Channel, deque[tuple[Request[Any], Callable[..., Awaitable[None]]]]
        ] = {}

    def statistics(self) -> GroupStatistics:
        return GroupStatistics(
            name=self.group.name,
            unanswered=self.unanswered,
            waiting=sum(map(len, self._waiting.values())),
            running=self.running,
            refused=self.refused,
        )

    def crowded_by(self, count: int) -> bool:
        """Tell quickly whether `count` more requests might not all be taken."""
        return self.unanswered + count > self._comfortable

    def room_for(self, channel: Channel) -> int:
        """Return how many more requests of this connection can be taken."""
        room = self.group.capacity - self.unanswered
        if not self.group.slows_down:
            room = min(room, self.group.per_connection - self._by_channel.get(channel, 0))
        return max(0, room)

    def count(self, channel: Channel) -> None:
        self.unanswered += 1
        mine = self._by_channel.get(channel, 0) + 1
        self._by_channel[channel] = mine
        if mine == self.group.per_connection and self.group.slows_down:
            channel.pause()

    def uncount(self, channel: Channel) -> None:
        self.unanswered -= 1
        mine = self._by_channel[channel] - 1
        if mine:
            self._by_channel[channel] = mine
        else:
            del self._by_channel[channel]
        if mine == self.group.per_connection - 1 and self.group.slows_down:
            channel.resume()
        if self.unanswered == 0 and self.on_settled is not None:
            self.on_settled()

    def put(self, request: Request[Any], handler: Callable[..., Awaitable[None]]) -> None:
        waiting = self._waiting.get(request.channel)
        if waiting is None:
            waiting = self._waiting[request.channel] = deque()
            self._turns.append(request.channel)
        waiting.append((request, handler))

    def take(self) -> tuple[Request[Any], Callable[..., Awaitable[None]]] | None:
        """Return the next request, connections taking turns."""
        if not self._turns:
            return None
        channel = self._turns.popleft()
        waiting = self._waiting[channel]
        taken = waiting.popleft()
        if waiting:
            self._turns.append(channel)
        else:
            del self._waiting[channel]
        return taken

    def forget(self, channel: Channel) -> list[Request[Any]]:
        waiting = self._waiting.pop(channel, None)
        if waiting is None:
            return []
        self._turns.remove(channel)
        return [request for request, _ in waiting]


async def _work(state: _GroupState) -> None:
    """Serve waiting requests of a group until there are none."""
    try:
        while (taken := state.take()) is not None:
            request, handler = taken
            try:
                await handler(request)
            except Exception as exc:  # noqa: BLE001 - one bad request must not end the worker
                _answer_error((request,), exc)
            else:
                # A coroutine had all the time it wanted: neither answered nor deferred, no answer
                # is due.
                if not request._deferred:
                    request.drop()
    finally:
        state.running -= 1


def _reply_all(
    channel: Channel, requests: Sequence[Request[Any]], headers: Sequence[Header | None]
) -> None:
    """Answer many requests of one connection at once."""
    if len(headers) != len(requests):
        raise RuntimeError(f"{len(headers)} response headers for {len(requests)} requests")
    writers = channel.encoder.response_writers
    plain_bytes_max = min(_PLAIN_HEADER_BYTES_MAX, channel.encoder.frame_bytes_max - 8)
    pieces: list[bytes] = []
    for request, header in zip(requests, headers, strict=True):
        if header is None:
            continue
        command = request.command
        if request._answered:
            logger.error(
                "handler of %s from %s returned a header for a request it had answered",
                _name_of(command),
                channel.peer,
            )
            continue
        if request._counted:
            request._settle()
        request._answered = True
        if command.flag & FLAG_ONEWAY:
            continue
        if command.serialization is Serialization.JSON:
            # What `FrameEncoder.response` does, for headers that no limit of size concerns.
            try:
                encoded = writers[type(header)](header, 0, command.opaque)
                length = len(encoded)
            except UnicodeEncodeError:
                length = sys.maxsize
            if length <= plain_bytes_max:
                pieces.append(_pack_prefix(length + 4, length))
                pieces.append(encoded)
                continue
        request._send(header)
    if pieces:
        channel.send(b"".join(pieces))


def _guarded(handler: Callable[[Request[H]], None], request: Request[H]) -> None:
    try:
        handler(request)
    except Exception as exc:  # noqa: BLE001 - one bad request must not end the connection
        _answer_error((request,), exc)


def _answer_error(requests: Sequence[Request[Any]], exc: Exception) -> None:
    """Answer what a failed handler left unanswered; requests it deferred are still in its hands."""
    first = requests[0]
    left = [request for request in requests if not request._answered and not request._deferred]
    if isinstance(exc, RefusedError) and left:
        code, remark = exc.code, exc.remark
    else:
        code, remark = ResponseCode.SYSTEM_ERROR, _describe(exc)
        logger.error(
            "handler of %s from %s failed, %d of %d requests unanswered",
            _name_of(first.command),
            first.channel.peer,
            len(left),
            len(requests),
            exc_info=exc,
        )
    for request in left:
        request.refuse(code, remark)


def _refuse(channel: Channel, command: Command, code: int, remark: str) -> None:
    if not command.flag & FLAG_ONEWAY:
        channel.send(_refusal(command, channel, code, remark))


def _refusal(command: Command, channel: Channel, code: int, remark: str) -> bytes:
    # The remark may be anybody's text: what the wire cannot carry must not cost the answer.
    remark = remark[:_REFUSAL_CHARS_MAX].encode("utf-8", "replace").decode()
    return channel.encoder.response(
        command.opaque, code, None, 0, Serialization.JSON, remark=remark
    )


def _describe(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"


_NAMES: Final = {int(code): code.name for code in RequestCode}


def _name_of(command: Command) -> str:
    return f"{_NAMES.get(command.code, 'request')} ({command.code})"
