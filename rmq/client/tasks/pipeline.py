"""Sends under way: thousands at a time, without a task, cancel scope or event for any of them.

While its route and its connection are there, a send goes from `start` straight to `Channel.submit`,
and its answer comes back by a call. Whatever has to wait for a route or for a connection waits in
line there, with one task for the whole line; when that is over, all in line go on in the order they
came. What a send waits for, and what follows a failed attempt, is decided by
`rmq.client.core.producing.delivery`, whose steps are carried out here.

Every send is completed exactly once: with a result, with an error, or when the pipeline closes.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, final

import anyio

from rmq.client.core.producing.delivery import (
    AwaitMaster,
    AwaitRoute,
    Delivery,
    Done,
    SendPolicy,
    Transmit,
    no_master,
    nothing_writable,
)
from rmq.client.core.producing.master_waits import NoMasterError
from rmq.client.core.producing.outbound import send_request
from rmq.client.core.producing.route_search import RouteSearch
from rmq.client.tasks.inflight import InflightLimit
from rmq.client.tasks.pending import Line
from rmq.client.tasks.send_paths import PathTable, links_of
from rmq.errors import (
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    IllegalMessageError,
    LocalProtocolError,
    RequestTimeoutError,
    RmqError,
)
from rmq.remoting.codes import RequestCode, Serialization
from rmq.remoting.command import whole_header_decoder
from rmq.remoting.headers import SendMessageResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from anyio.abc import TaskGroup

    from rmq.client.core.messages import SendResult
    from rmq.client.core.producing.config import ProducerConfig
    from rmq.client.core.producing.outbound import OutboundMessage
    from rmq.client.core.routes import TopicRoute
    from rmq.client.core.trace import Tracer
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.loop import Channel
    from rmq.client.tasks.pending import Pending
    from rmq.client.tasks.send_paths import Link, Path, TopicPaths
    from rmq.model.queues import MessageQueue
    from rmq.remoting.headers import SendMessageRequestV2

logger = logging.getLogger(__name__)

SILENCE_S: Final = 1.0
"""After this time without an answer the route is asked for: a broker that hangs may have been
replaced. Sends in flight stay there, as they may be stored; new sends use the new route.
"""

_SEND: Final = RequestCode.SEND_MESSAGE_V2
_VARYING: Final = ("sys_flag", "born_timestamp", "flag", "properties")
"""Header fields that differ between messages to one queue."""
_read_answer = whole_header_decoder(SendMessageResponse)


@final
class Pipeline:
    """All sends of one producer that are under way."""

    def __init__(self, client: Client, config: ProducerConfig, tracer: Tracer | None) -> None:
        self.config = config
        self.now: Callable[[], float] = client.loop.clock()
        self.is_open = False
        """Whether sends may be started."""
        self._client = client
        self._wakings = client.remoting.wakings
        self._serialization = client.config.serialization
        self._is_plain = (
            self._serialization is Serialization.JSON
            and client.runner.extra() is None
            and client.remoting.credentials is None
        )
        """Whether requests have JSON headers without a signature or other extra fields."""
        self._tracer = tracer
        self._nursery: TaskGroup | None = None
        # A broker that we are new to learns of our group before it has to ask for it.
        self._paths = PathTable(on_new_broker=client.beat_soon)
        self._policy: SendPolicy[Path] = SendPolicy(
            config,
            routes=client.routes,
            nameservers=client.nameservers.addresses,
            targets_of=self._paths.get,
            on_stale=self._await_route,
            faults=self._paths.faults,
        )
        self._lookups: dict[str, Line] = {}
        """Topics whose routes are being found, and the sends that wait for them."""
        self._refreshes: dict[str, Line] = {}
        """Topics whose routes are being asked for again, and the sends that wait for them."""
        self._waits: dict[str, Line] = {}
        """Topics that have no master now, and the sends that wait for one."""
        self._pendings: set[Pending] = set()
        self._room = InflightLimit(
            config.pending_max, config.pending_bytes_max, client.loop.parking_lot()
        )
        self._drained: anyio.Event | None = None

    # --- life --------------------------------------------------------------------------------

    def open(self, nursery: TaskGroup) -> None:
        """Begin; the tasks of lines live in this nursery."""
        self._nursery = nursery
        # The clock itself, asked directly: every send asks.
        self.now = self._client.loop.clock()
        self.is_open = True
        nursery.start_soon(self._watch)

    def check_open(self) -> None:
        """Raise `ClientClosedError` if no sends may be started."""
        if not self.is_open:
            raise ClientClosedError(f"producer {self.config.group}")

    async def wait_drained(self) -> None:
        """Let no further sends be started, and wait until those under way are complete."""
        self.is_open = False
        if self._pendings:
            self._drained = anyio.Event()
            await self._drained.wait()

    def close(self) -> None:
        """Complete the sends under way as failed."""
        self.is_open = False
        self._nursery = None
        for pending in list(self._pendings):
            self._complete(pending, self._cut_short(pending))
        self._room.wake_all()

    def _cut_short(self, pending: Pending) -> SendResult | RmqError:
        closed = ClientClosedError(f"producer {self.config.group}")
        if pending.path is None:
            return closed
        delivery = self._delivery_of(pending)
        delivery.closed(pending.path, closed, is_sent=pending.is_sent)
        return delivery.outcome()

    # --- room --------------------------------------------------------------------------------

    @property
    def under_way(self) -> int:
        return self._room.count

    def has_room(self, body_bytes: int) -> bool:
        """Tell whether the limits of pipelined sends allow one more."""
        return self._room.has(body_bytes)

    async def wait_room(self, body_bytes: int) -> None:
        """Wait until the limits allow one more send, or the pipeline closes."""
        while self.is_open and not self._room.has(body_bytes):
            await self._room.wait()

    # --- sends -------------------------------------------------------------------------------

    def start(self, pending: Pending) -> None:
        """Begin a send; its outcome comes by a call, at the earliest before this returns.

        Raises `ClientClosedError`, and then there is no call.
        """
        if not self.is_open:
            self.check_open()
        self._pendings.add(pending)
        self._room.take(len(pending.outbound.body))
        self._begin(pending)

    def is_alone(self) -> bool:
        """Tell whether no more than one send is under way."""
        return len(self._pendings) == 1

    async def send_oneway(self, outbound: OutboundMessage, queue: MessageQueue | None) -> None:
        """Send a message without an answer; raise `ClientError`."""
        timeout_s = self.config.send_timeout_s
        with anyio.move_on_after(timeout_s):
            topic = await self._found(outbound.topic)
            path = self._policy.choose(topic, queue, None, self.now())
            if path.link is None:
                raise no_master(self._policy.asked, path.queue)
            channel = path.link.channel = await self._client.channel_to(path.address)
            header = self._header(outbound, path.queue, time.time_ns() // 1_000_000)
            try:
                channel.oneway(
                    outbound.code,
                    header,
                    body=outbound.body,
                    extra=self._client.runner.extra(),
                    serialization=self._serialization,
                )
            except LocalProtocolError as exc:
                raise IllegalMessageError(str(exc)) from exc
            await channel.wait_written()
            return
        raise RequestTimeoutError(f"topic {outbound.topic}", outbound.code.name, timeout_s)

    def abandon(self, pending: Pending) -> None:
        """Forget a send whose caller was cancelled; the message may still be stored."""
        if not pending.is_complete:
            pending.is_complete = True
            self._forget(pending)
            pending.release()

    def answered(self, pending: Pending, path: Path, result: SendResult) -> None:
        """The message of a send is stored."""
        policy = self._policy
        if policy.accepts_every_answer:
            self._complete(pending, result)
            return
        now = self.now()
        if policy.accepts(path.broker_name, result, took_s=now - pending.tried_at, now=now):
            self._complete(pending, result)
        else:
            self._delivery_of(pending).not_ok(path, result)
            self._advance(pending)

    def failed(self, pending: Pending, path: Path, error: ClientError) -> None:
        """An attempt has failed."""
        if pending.is_complete:
            return
        pending.is_sent = False
        now = self.now()
        self._delivery_of(pending).failed(
            path,
            error,
            took_s=now - pending.tried_at,
            now=now,
            left_s=self._left_s(pending, now),
        )
        self._advance(pending)

    def _begin(self, pending: Pending) -> None:
        """Make the first attempt, without a `Delivery` if nothing is missing."""
        now = pending.started_at
        topic = self._paths.get(pending.outbound.topic)
        if topic is not None:
            pending.path = path = self._policy.choose(topic, pending.queue, None, now)
            link = path.link
            if link is not None:
                channel = link.channel
                if channel is None or channel.close_reason is not None:
                    self._line_of(link).add(pending)
                else:
                    self._transmit(pending, path, channel, now)
                return
            self._delivery_of(pending).has_no_master(path, now, self._left_s(pending, now))
        self._advance(pending)

    def _advance(self, pending: Pending) -> None:
        """Carry out the next step of a send."""
        if pending.is_complete:
            return
        now = self.now()
        step = self._delivery_of(pending).next(now, self._left_s(pending, now))
        if isinstance(step, Transmit):
            pending.path = path = step.target
            link = path.link
            assert link is not None, "the machine found a master"
            if link.is_open:
                assert link.channel is not None
                self._transmit(pending, path, link.channel)
            else:
                self._line_of(link).add(pending)
        elif isinstance(step, Done):
            self._complete(pending, step.outcome)
        elif isinstance(step, AwaitMaster):
            self._await_master(pending.outbound.topic, now + step.pause_s).add(pending)
        elif isinstance(step, AwaitRoute):
            self._await_route(pending.outbound.topic).add(pending)
        else:
            self._look_up(pending.outbound.topic).add(pending)

    def _transmit(
        self, pending: Pending, path: Path, channel: Channel, now: float | None = None
    ) -> None:
        outbound = pending.outbound
        now_ms = time.time_ns() // 1_000_000 if pending.delivery else pending.started_at_ms
        if now is None:
            pending.tried_at = now = self.now()
        pending.is_sent = True
        try:
            if self._is_plain and outbound.code is _SEND:
                template = path.template
                if template is None:
                    header = self._header(outbound, path.queue, now_ms)
                    template = path.template = channel.encoder.template(
                        _SEND, header, _VARYING, _read_answer
                    )
                channel.submit_like(
                    template,
                    (outbound.sys_flag, now_ms, outbound.flag, outbound.properties),
                    outbound.body,
                    pending,
                    pending.deadline - now,
                    now,
                    # Others may send in this step, and one write for all of them is cheaper. A
                    # single send is written at once.
                    len(self._pendings) == 1 and not self._wakings.count,
                )
            else:
                header = self._header(outbound, path.queue, now_ms)
                channel.submit(
                    outbound.code,
                    header,
                    on_outcome=pending,
                    body=outbound.body,
                    timeout_s=pending.deadline - now,
                    extra=self._client.runner.extra(),
                    serialization=self._serialization,
                )
        except ClientError as exc:
            self.failed(pending, path, exc)
        except LocalProtocolError as exc:
            self._complete(pending, IllegalMessageError(str(exc)))

    def _header(
        self, outbound: OutboundMessage, queue: MessageQueue, now_ms: int
    ) -> SendMessageRequestV2:
        return send_request(
            outbound,
            group=self.config.group,
            queue=queue,
            now_ms=now_ms,
            default_queues=self.config.default_queues,
        )

    def _left_s(self, pending: Pending, now: float) -> float:
        """Return how long a send may still take: no time when the pipeline closes."""
        return 0.0 if self._nursery is None else pending.deadline - now

    def _delivery_of(self, pending: Pending) -> Delivery[Path]:
        delivery = pending.delivery
        if delivery is None:
            delivery = pending.delivery = Delivery(
                self._policy, pending.outbound.topic, pending.queue, pending.timeout_s
            )
        return delivery

    def _complete(self, pending: Pending, outcome: SendResult | RmqError) -> None:
        if pending.is_complete:
            return
        pending.is_complete = True
        self._forget(pending)
        if self._tracer is not None:
            self._tracer.sent(pending.as_event(self.config.group, self.now(), outcome))
        try:
            pending.on_outcome(outcome)
        except Exception:
            # The other sends must still be completed.
            logger.exception(
                "callback for the outcome of a send to %s raised", pending.outbound.topic
            )
        pending.release()

    def _forget(self, pending: Pending) -> None:
        self._pendings.discard(pending)
        self._room.give_back(len(pending.outbound.body))
        if self._drained is not None and not self._pendings:
            self._drained.set()

    # --- routes ------------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """Return the topics that were sent to."""
        return self._paths.topics()

    def route_changed(self, route: TopicRoute) -> None:
        """Send by a new route from now on."""
        self._paths.change(route)

    async def route(self, name: str, timeout_s: float) -> TopicRoute:
        """Find out where a topic is, waiting for a master if it has none; raise `ClientError`."""
        search = RouteSearch(name, asked=self._policy.asked, timeout_s=timeout_s, now=self.now())
        with anyio.move_on_after(timeout_s):
            while True:
                try:
                    return (await self._found(name)).route
                except NoMasterError as exc:
                    pause_s = search.no_master(exc, self.now())
                await anyio.sleep(pause_s)
        raise search.timed_out()

    async def connect(self, name: str) -> None:
        """Connect to all masters of a topic that can be reached; raise `ClientError`."""
        topic = await self._found(name)
        async with anyio.create_task_group() as nursery:
            for link in links_of(topic):
                if not link.is_open:
                    nursery.start_soon(self._try_to_connect, link)

    async def _try_to_connect(self, link: Link) -> None:
        try:
            link.channel = await self._client.channel_to(link.address)
        except RmqError as exc:
            # A send that needs it will try again, and can go elsewhere.
            logger.debug("no connection to %s for now: %s", link.address, exc)

    async def _found(self, name: str) -> TopicPaths:
        topic = self._paths.get(name)
        if topic is not None:
            await self._client.loop.checkpoint_if_cancelled()
            return topic
        route = await self._client.route_to_send(name, self.config.default_queues)
        if not route.writable:
            raise nothing_writable(self._policy.asked, name, route)
        return self._paths.take(route)

    def _look_up(self, name: str) -> Line:
        """Return the line of sends that wait for a route, which is being found."""
        line = self._lookups.get(name)
        if line is None:
            line = self._lookups[name] = Line()
            self._run(self._find_route, name, line)
        return line

    async def _find_route(self, name: str, line: Line) -> None:
        error: ClientError | None = None
        try:
            await line.wait_for(lambda: self._found(name), self._advance)
        except ClientError as exc:
            error = exc
        del self._lookups[name]
        for pending in line.take_all():
            if error is not None:
                self._delivery_of(pending).no_route(error)
            self._advance(pending)

    def _await_route(self, name: str) -> Line:
        """Return the line of sends that wait for a route, which is being asked for again."""
        line = self._refreshes.get(name)
        if line is None:
            line = self._refreshes[name] = Line()
            self._policy.refreshing.add(name)
            self._run(self._refresh_route, name, line)
        return line

    async def _refresh_route(self, name: str, line: Line) -> None:
        async def refresh() -> None:
            self._send_by(await self._client.refresh_route(name))

        try:
            await line.wait_for(refresh, self._advance)
        except ClientError as exc:
            logger.warning("the route of %s could not be refreshed: %s", name, exc)
        del self._refreshes[name]
        self._policy.refreshing.discard(name)
        for pending in line.take_all():
            self._advance(pending)

    def _run(
        self, task: Callable[[str, Line], Coroutine[Any, Any, object]], name: str, line: Line
    ) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(task, name, line)

    async def _watch(self) -> None:
        """Refresh routes of topics whose sends get no answer, until cancelled."""
        while True:
            await anyio.sleep(SILENCE_S)
            latest = self.now() - SILENCE_S
            for name in {
                pending.outbound.topic
                for pending in self._pendings
                if pending.is_sent and pending.tried_at <= latest
            }:
                self._policy.refresh(name, self.now())

    # --- masters -----------------------------------------------------------------------------

    def _await_master(self, name: str, until: float) -> Line:
        """Return the line of sends that wait for a master; the route is asked for `until` then."""
        line = self._waits.get(name)
        if line is None:
            assert self._nursery is not None, "sends go on while the pipeline is not closed"
            line = self._waits[name] = Line()
            self._nursery.start_soon(self._wait_for_master, name, line, until)
        return line

    async def _wait_for_master(self, name: str, line: Line, until: float) -> None:
        async def wait() -> None:
            await anyio.sleep_until(until)
            await self._client.refresh_route(name)

        try:
            await line.wait_for(wait, self._advance)
        except ClientError as exc:
            logger.warning("the route of %s could not be refreshed: %s", name, exc)
        del self._waits[name]
        route = self._policy.waits.end(name, self._client.routes.get(name))
        if route is not None:
            self._send_by(route)
        for pending in line.take_all():
            self._advance(pending)

    def _send_by(self, route: TopicRoute) -> None:
        """Send by a route that nameservers have told, or one with a master that was named."""
        topic = self._paths.get(route.topic)
        if topic is not None and topic.route == route:
            return
        if route.writable:
            self._paths.take(route)
        else:
            self._paths.change(route)

    # --- connections -------------------------------------------------------------------------

    def _line_of(self, link: Link) -> Line:
        """Return the line of sends that wait for a connection, which is being made."""
        if link.line is None:
            assert self._nursery is not None, "sends go on while the pipeline is not closed"
            link.line = Line()
            self._nursery.start_soon(self._connect, link, link.line)
        return link.line

    async def _connect(self, link: Link, line: Line) -> None:
        async def connect() -> None:
            link.channel = await self._client.channel_to(link.address)

        error: ClientError | None = None
        try:
            await line.wait_for(connect, self._connect_expired)
        except ClientError as exc:
            error = exc
        except RmqError as exc:
            # A nameserver told an address that is none.
            error = ConnectFailedError(link.address, exc.text)
        link.line = None
        for pending in line.take_all():
            path = pending.path
            assert path is not None
            if error is not None:
                self.failed(pending, path, error)
            elif link.channel is not None:
                self._transmit(pending, path, link.channel)

    def _connect_expired(self, pending: Pending) -> None:
        path = pending.path
        assert path is not None
        reason = f"no connection within {pending.timeout_s:g} s"
        self.failed(pending, path, ConnectFailedError(path.address, reason))
