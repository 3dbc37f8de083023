"""From request code to handler: the handler table and who hands requests on.

There are four kinds of handler, all of them given a `Request` and all of them answering with
`request.reply`. Which header class a request is read with stands in `rmq.remoting.protocol`.

- `add`: a plain function for one request. Runs at once, inside the step that read the request.
- `add_batch`: a plain function for all consecutive requests of its code that one round of reading
  brought (sends), from one connection or from several, those of a connection in their order. It may
  return one response header per request, which is the fastest way to answer.
- `add_async`: a coroutine that may wait. Runs in a worker task of its group.
- `add_steps`: a generator function, for requests that are mostly short and may be long. What it
  does until its first `yield` runs at once, the rest in a worker task, one step of all such
  requests in each pass of the event loop. Its connection is read no further until then, so that its
  next request finds this one finished.

A handler that cannot answer yet calls `request.defer()` and keeps the request; the code that
completes the work calls `reply` later, from any task, and all answers given in one step of the
scheduler leave in one write per connection. A handler that neither answers nor defers sends
nothing, as some requests demand.

Bounds are those of the groups (`rmq.remoting.groups`) that codes belong to.
"""

from __future__ import annotations

import logging
import math
import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import trio

from rmq.counting.requests import CodeCounts
from rmq.errors import HeaderError, RefusedError
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode, Serialization
from rmq.remoting.command import Command, whole_header_decoder
from rmq.remoting.groups import ADMIN, GroupState, GroupStatistics, HandlerGroup
from rmq.remoting.header import READ_ERRORS, Header, json_decoder
from rmq.remoting.layout import FRAME_PREFIX
from rmq.remoting.request import Request, name_of, refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from rmq.remoting.channel import Channel
    from rmq.remoting.protocol import RequestType


logger = logging.getLogger(__name__)

H = TypeVar("H", bound=Header)

_PLAIN_HEADER_BYTES_MAX: Final = 4096
_RECENT_CODES: Final = 8
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_pack_prefix = FRAME_PREFIX.pack

REMARK_OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"


@final
class HandlerTable:
    """Which handler serves which request code. Filled once, before the server or client starts."""

    def __init__(self) -> None:
        self.entries: dict[int, _Entry] = {}

    def add(
        self,
        request: RequestType[H],
        handler: Callable[[Request[H]], None],
        *,
        group: HandlerGroup = ADMIN,
        body_bytes_max: int | None = None,
    ) -> None:
        """Serve a request with a plain function.

        One with a body of more than `body_bytes_max` bytes is refused before the body is read.
        """

        def handle_each(requests: Sequence[Request[H]]) -> None:
            for request in requests:
                _guarded(handler, request)

        self._put(
            request.code,
            _Entry(request.read_as, group, handle_batch=handle_each, body_bytes_max=body_bytes_max),
        )

    def add_batch(
        self,
        request: RequestType[H],
        handler: Callable[[Sequence[Request[H]]], Sequence[Header | None] | None],
        *,
        group: HandlerGroup = ADMIN,
    ) -> None:
        """Serve a request with a plain function that takes many requests at once.

        They may be of several connections, which may even have ended by now.

        Where it returns response headers, one per request, the requests are answered SUCCESS with
        them; None stands for a request that the handler has answered or deferred itself.
        """
        self._put(
            request.code, _Entry(request.read_as, group, handle_batch=handler, comes_in_runs=True)
        )

    def add_async(
        self,
        request: RequestType[H],
        handler: Callable[[Request[H]], Awaitable[None]],
        *,
        group: HandlerGroup = ADMIN,
        body_bytes_max: int | None = None,
    ) -> None:
        """Serve a request with a coroutine; `body_bytes_max` as in `add`."""
        self._put(
            request.code,
            _Entry(request.read_as, group, handle_async=handler, body_bytes_max=body_bytes_max),
        )

    def add_steps(
        self,
        request: RequestType[H],
        handler: Callable[[Request[H]], Generator[None, None, None]],
        *,
        group: HandlerGroup = ADMIN,
        body_bytes_max: int | None = None,
    ) -> None:
        """Serve a request with a generator function; `body_bytes_max` as in `add`."""
        self._put(
            request.code,
            _Entry(request.read_as, group, handle_steps=handler, body_bytes_max=body_bytes_max),
        )

    def without(self, *codes: RequestCode) -> HandlerTable:
        """Return a table that serves all but `codes`, for a second port with fewer rights."""
        table = HandlerTable()
        table.entries = {code: e for code, e in self.entries.items() if code not in codes}
        return table

    def with_groups(self, groups: Mapping[HandlerGroup, HandlerGroup]) -> HandlerTable:
        """Return a table whose codes belong to other groups, for bounds that are configured."""
        table = HandlerTable()
        for code, entry in self.entries.items():
            table.entries[code] = entry.in_group(groups.get(entry.group, entry.group))
        return table

    def _put(self, code: RequestCode, entry: _Entry) -> None:
        if code in self.entries:
            raise ValueError(f"{code.name} has a handler already")
        self.entries[code] = entry


@final
class Dispatcher:
    """Hands requests to handlers within the bounds of their groups."""

    def __init__(
        self,
        table: HandlerTable,
        *,
        guard: Callable[[Channel, Command], None] | None = None,
        answer_unknown: bool = True,
        host_share_max: int = 100,
    ) -> None:
        self._guard = guard
        # A stock nameserver says nothing to a code it does not know, a stock broker says so.
        self._answer_unknown = answer_unknown
        self._groups: dict[HandlerGroup, GroupState] = {}
        self._bound: dict[int, _Bound] = {}
        self.counts: dict[int, CodeCounts] = {}
        """What was answered, by request code."""
        self.unknown_codes = 0
        """Requests of codes that nothing serves."""
        self.not_admitted = 0
        """Requests that the guard refused."""
        for code, entry in table.entries.items():
            state = self._groups.setdefault(entry.group, GroupState(entry.group, host_share_max))
            counts = self.counts[code] = CodeCounts()
            self._bound[code] = _Bound(entry, state, counts)
        self.whole_decoders = {
            code: whole_header_decoder(entry.header_class)
            for code, entry in table.entries.items()
            if entry.comes_in_runs
        }
        """How to read the headers of codes that are served in batches, for `FrameDecoder`."""
        self.collects = False
        """Whether requests for batch handlers wait for `serve_collected`, to be served with those
        of other connections: what a handler costs once is then paid once for all of them.
        """
        self._collected: list[Request[Any]] = []
        self._collected_for: _Bound | None = None
        self._nursery: trio.Nursery | None = None
        self._quiet: trio.Event | None = None
        self._turns = trio.Lock()
        """Held for a step: whatever number of long requests is under way, a pass of the event loop
        does one step of one of them.
        """
        self.recent_codes: deque[int] = deque(maxlen=_RECENT_CODES)
        """The codes served last, the newest at the end; one that is repeated stands there once."""
        for state in self._groups.values():
            state.on_all_answered = self._all_answered

    @property
    def unanswered(self) -> int:
        """How many requests are deferred, waiting or running."""
        return sum(state.unanswered for state in self._groups.values())

    def statistics(self) -> list[GroupStatistics]:
        return [state.statistics() for state in self._groups.values()]

    @property
    def refused_old(self) -> int:
        """How many requests were refused because they had waited too long."""
        return sum(state.refused_old for state in self._groups.values())

    @property
    def capacities(self) -> dict[str, int]:
        """How many requests may be unanswered, by the name of their group."""
        return {group.name: group.capacity for group in self._groups}

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
            self._note(code)
            if bound is not self._collected_for and self._collected:
                # What came first is served first.
                self.serve_collected()
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

    def _note(self, code: int) -> None:
        recent = self.recent_codes
        if not recent or recent[-1] != code:
            recent.append(code)

    def _hand_on(self, channel: Channel, bound: _Bound, commands: Sequence[Command]) -> None:
        state, counts = bound.state, bound.counts
        since = channel.arrived_at
        if channel.waited_s >= state.wait_max_s:
            counts.refused(ResponseCode.SYSTEM_BUSY, len(commands))
            for number, command in enumerate(commands, start=1):
                state.refused += 1
                state.refused_old += 1
                size = state.unanswered + len(commands) - number
                remark = waited_too_long(channel.waited_s, size)
                refuse(channel, command, ResponseCode.SYSTEM_BUSY, remark)
            return
        if bound.body_bytes_max is not None:
            # First: the guard hashes bodies, and reads some of them.
            commands = _of_size(bound.body_bytes_max, channel, commands, counts)
        if self._guard is not None:
            commands = self._admit(self._guard, channel, commands, counts)
        if state.crowded_by(len(commands)) and (room := state.room_for(channel)) < len(commands):
            counts.refused(ResponseCode.SYSTEM_BUSY, len(commands) - room)
            for command in commands[room:]:
                state.refused += 1
                refuse(channel, command, ResponseCode.SYSTEM_BUSY, REMARK_OVERLOAD)
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
                    counts.refused(ResponseCode.SYSTEM_ERROR)
                    refuse(channel, command, ResponseCode.SYSTEM_ERROR, str(exc))
                    continue
            requests.append(Request(command, header, channel, state, counts, since))
        if not requests:
            return
        if bound.handle_steps is not None:
            self._begin(bound.handle_steps, state, requests)
        elif bound.handle_batch is None:
            self._enqueue(bound, requests)
        elif self.collects and bound.comes_in_runs:
            self._collected += requests
            self._collected_for = bound
        else:
            _serve(bound.handle_batch, requests)

    def serve_collected(self) -> None:
        """Serve what was collected. Never raises."""
        bound, requests = self._collected_for, self._collected
        if bound is not None and requests:
            self._collected, self._collected_for = [], None
            assert bound.handle_batch is not None, "only such requests are collected"
            _serve(bound.handle_batch, requests)

    def _admit(
        self,
        guard: Callable[[Channel, Command], None],
        channel: Channel,
        commands: Sequence[Command],
        counts: CodeCounts,
    ) -> list[Command]:
        admitted: list[Command] = []
        for command in commands:
            try:
                guard(channel, command)
            except RefusedError as exc:
                self.not_admitted += 1
                counts.refused(exc.code)
                refuse(channel, command, exc.code, exc.remark)
            except Exception as exc:  # noqa: BLE001 - one bad request must not end the connection
                counts.refused(ResponseCode.SYSTEM_ERROR)
                channel.log(
                    logging.ERROR,
                    "guard",
                    "guard failed on %s of %s",
                    name_of(command),
                    channel.peer,
                    exc_info=exc,
                )
                refuse(channel, command, ResponseCode.SYSTEM_ERROR, _describe(exc))
            else:
                admitted.append(command)
        return admitted

    def _refuse_unknown(self, channel: Channel, commands: Sequence[Command]) -> None:
        self.unknown_codes += len(commands)
        for command in commands:
            logger.debug("no handler for %s from %s", name_of(command), channel.peer)
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
            body = request.body
            if body is not None and not request.channel.has_room_for(len(body)):
                state.refused += 1
                bound.counts.refused(ResponseCode.SYSTEM_BUSY)
                refuse(request.channel, request.command, ResponseCode.SYSTEM_BUSY, REMARK_OVERLOAD)
                continue
            self._put_to_work(self._nursery, state, request, bound.handle_async)

    def _begin(
        self,
        handle: Callable[[Any], Generator[None, None, None]],
        state: GroupState,
        requests: Sequence[Request[Any]],
    ) -> None:
        """Do the first step of each request, and leave what is left of it to a worker."""
        for request in requests:
            steps = handle(request)
            if _is_finished(steps, request) or self._nursery is None:
                continue
            request.channel.pause()
            # It has begun, so it is never refused for waiting too long.
            request.has_begun = True
            self._put_to_work(self._nursery, state, request, partial(self._go_on, steps))

    def _put_to_work(
        self,
        nursery: trio.Nursery,
        state: GroupState,
        request: Request[Any],
        handler: Callable[[Any], Awaitable[None]],
    ) -> None:
        if request._begin_count():
            state.count(request.channel)
        state.put(request, handler)
        if state.running < state.group.concurrency:
            state.running += 1
            nursery.start_soon(self._work, state, name=f"rmq {state.group.name} worker")

    async def _go_on(self, steps: Generator[None, None, None], request: Request[Any]) -> None:
        """Do the other steps of a request."""
        try:
            while True:
                async with self._turns:
                    self._note(request.command.code)
                    try:
                        next(steps)
                    except StopIteration:
                        return
        finally:
            request.channel.resume()

    async def _work(self, state: GroupState) -> None:
        """Serve waiting requests of a group until there are none."""
        try:
            while (taken := state.take()) is not None:
                request, handler = taken
                if state.wait_max_s != math.inf and not request.has_begun:
                    now = trio.current_time()
                    if now - request.since >= state.wait_max_s:
                        _refuse_old(state, request, now)
                        continue
                self._note(request.command.code)
                try:
                    await handler(request)
                except Exception as exc:  # noqa: BLE001 - one bad request must not end the worker
                    _answer_error((request,), exc)
                else:
                    # A coroutine had all the time it wanted: neither answered nor deferred, no
                    # answer is due.
                    if not request._deferred:
                        request.drop()
        finally:
            state.running -= 1

    def limit_waits(self, seconds: Mapping[str, float]) -> None:
        """Set how long requests may wait, by the name of their group; the others wait for ever."""
        for state in self._groups.values():
            state.wait_max_s = seconds.get(state.group.name, math.inf)

    def refuse_old(self, now: float) -> None:
        """Refuse requests that have waited too long for a coroutine."""
        for state in self._groups.values():
            if state.wait_max_s != math.inf:
                for request in state.take_older(now - state.wait_max_s):
                    _refuse_old(state, request, now)

    def _all_answered(self) -> None:
        if self._quiet is not None and not self.unanswered:
            self._quiet.set()


@final
class _Entry:
    """A handler as registered."""

    __slots__ = (
        "body_bytes_max",
        "comes_in_runs",
        "group",
        "handle_async",
        "handle_batch",
        "handle_steps",
        "header_class",
    )

    def __init__(
        self,
        header_class: type[Header],
        group: HandlerGroup,
        *,
        handle_batch: Callable[[Any], Sequence[Header | None] | None] | None = None,
        handle_async: Callable[[Any], Awaitable[None]] | None = None,
        handle_steps: Callable[[Any], Generator[None, None, None]] | None = None,
        comes_in_runs: bool = False,
        body_bytes_max: int | None = None,
    ) -> None:
        self.comes_in_runs = comes_in_runs
        self.header_class = header_class
        self.group = group
        self.handle_batch = handle_batch
        self.handle_async = handle_async
        self.handle_steps = handle_steps
        self.body_bytes_max = body_bytes_max

    def in_group(self, group: HandlerGroup) -> _Entry:
        return _Entry(
            self.header_class,
            group,
            handle_batch=self.handle_batch,
            handle_async=self.handle_async,
            handle_steps=self.handle_steps,
            comes_in_runs=self.comes_in_runs,
            body_bytes_max=self.body_bytes_max,
        )


@final
class _Bound:
    """A registered handler with the running state of its group."""

    __slots__ = (
        "body_bytes_max",
        "comes_in_runs",
        "counts",
        "decode_json",
        "handle_async",
        "handle_batch",
        "handle_steps",
        "header_class",
        "state",
    )

    def __init__(self, entry: _Entry, state: GroupState, counts: CodeCounts) -> None:
        self.counts = counts
        self.header_class = entry.header_class
        self.decode_json = json_decoder(entry.header_class)
        self.handle_batch = entry.handle_batch
        self.handle_async = entry.handle_async
        self.handle_steps = entry.handle_steps
        self.body_bytes_max = entry.body_bytes_max
        self.comes_in_runs = entry.comes_in_runs
        self.state = state


def _of_size(
    bytes_max: int, channel: Channel, commands: Sequence[Command], counts: CodeCounts
) -> Sequence[Command]:
    """Return the commands without those whose bodies are too long, which are refused."""
    if not any(command.body is not None and len(command.body) > bytes_max for command in commands):
        return commands
    fitting: list[Command] = []
    for command in commands:
        size = len(command.body or b"")
        if size <= bytes_max:
            fitting.append(command)
            continue
        counts.refused(ResponseCode.SYSTEM_ERROR)
        refuse(
            channel,
            command,
            ResponseCode.SYSTEM_ERROR,
            f"the body of {name_of(command)} has {size} bytes, the limit is {bytes_max}",
        )
    return fitting


def _is_finished(steps: Generator[None, None, None], request: Request[Any]) -> bool:
    """Do the first step of a request, and tell whether it is the last one, too."""
    try:
        next(steps)
    except StopIteration:
        return True
    except Exception as exc:  # noqa: BLE001 - one bad request must not end the connection
        _answer_error((request,), exc)
        return True
    return False


def waited_too_long(seconds: float, size: int) -> str:
    """Return the remark of 4.9.8 for requests that waited too long in a queue of this size."""
    return (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue:"
        f" {int(seconds * 1000)}ms, size of queue: {size}"
    )


def _refuse_old(state: GroupState, request: Request[Any], now: float) -> None:
    state.refused += 1
    state.refused_old += 1
    remark = waited_too_long(now - request.since, state.unanswered)
    request.refuse(ResponseCode.SYSTEM_BUSY, remark)


def reply_all(requests: Sequence[Request[Any]], headers: Sequence[Header | None]) -> None:
    """Answer many requests at once, SUCCESS with its header each; None for those that are answered
    otherwise. Those of one connection should stand together: they are answered with one write.
    """
    if len(headers) != len(requests):
        raise RuntimeError(f"{len(headers)} response headers for {len(requests)} requests")
    first: Request[Any] | None = None
    channel: Channel | None = None
    counts: CodeCounts | None = None
    pieces: list[bytes] = []
    answered = deferred = 0
    for request, header in zip(requests, headers, strict=True):
        if header is None:
            continue
        if request.channel is not channel or request._counts is not counts:
            if first is not None:
                _finish_run(first, answered, deferred, pieces)
                answered = deferred = 0
                pieces = []
            first, channel, counts = request, request.channel, request._counts
            writers = channel.encoder.response_writers
            plain_bytes_max = min(_PLAIN_HEADER_BYTES_MAX, channel.encoder.frame_bytes_max - 8)
        command = request.command
        if request._answered:
            channel.log(
                logging.ERROR,
                "answered twice",
                "handler of %s from %s returned a header for a request it had answered",
                name_of(command),
                channel.peer,
            )
            continue
        if request._counted:
            request._end_count()
            deferred += 1
        request._answered = True
        answered += 1
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
    if first is not None:
        _finish_run(first, answered, deferred, pieces)


def _finish_run(first: Request[Any], answered: int, deferred: int, pieces: Sequence[bytes]) -> None:
    """Count and send the answers to requests of one connection and one code."""
    channel = first.channel
    if answered:
        # The others came with the first one or after it.
        first._counts.answered(_SUCCESS, channel.now() - first.since, answered)
    if pieces:
        channel.send(b"".join(pieces))
    if deferred:
        first._group.uncount(channel, deferred)


def _serve(
    handle: Callable[[Any], Sequence[Header | None] | None], requests: Sequence[Request[Any]]
) -> None:
    """Have a batch handler serve requests, and answer those it leaves unanswered by failing."""
    try:
        headers = handle(requests)
        if headers is not None:
            reply_all(requests, headers)
    except Exception as exc:  # noqa: BLE001 - one bad batch must not end the connection
        _answer_error(requests, exc)


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
        if isinstance(exc, MemoryError):
            code, remark = ResponseCode.SYSTEM_BUSY, REMARK_OVERLOAD
            first.channel.ran_out_of_memory()
        else:
            code, remark = ResponseCode.SYSTEM_ERROR, _describe(exc)
        what = name_of(first.command)
        first.channel.log(
            logging.ERROR,
            f"failure of {what}",
            "handler of %s from %s failed, %d of %d requests unanswered",
            what,
            first.channel.peer,
            len(left),
            len(requests),
            exc_info=exc,
        )
    for request in left:
        request.refuse(code, remark)


def _describe(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"
