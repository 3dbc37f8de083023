"""One process's part in a cluster, without a loop: connections, routes and heartbeats.

    with BlockingClient("10.0.0.5:9876") as client:
        route = client.route("Orders")

There are no threads and no timers. What is due (a route that is old, a heartbeat) is begun when
the client is called, and carried on whenever it waits for something; the caller does not wait for
it. Threads may share a client: a request of one goes out while others wait for answers.

A client that is used after a fork has another id in the child, and connections of its own.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

from rmq.client.blocking.connections import Connections
from rmq.client.blocking.frames import Settings
from rmq.client.blocking.monitor import Monitor
from rmq.client.blocking.routes import RouteKeeping
from rmq.client.blocking.runner import FlowRunner
from rmq.client.core.broker_requests import BrokerRequests
from rmq.client.core.config import (
    DEFAULT_INSTANCE,
    ClientConfig,
    client_id,
    own_address,
    unique_instance,
)
from rmq.client.core.flows import Ask
from rmq.client.core.members import FIRST_BEAT_S, LEAVE_S, farewell, heartbeat
from rmq.client.core.nameservers import Nameservers
from rmq.client.core.routes import RouteTable
from rmq.errors import ClientClosedError, ClientError
from rmq.remoting.codes import RequestCode
from rmq.remoting.tls_config import client_context

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.client.blocking.runner import Task
    from rmq.client.core.broker_requests import Reply
    from rmq.client.core.flows import Answer, Flow
    from rmq.client.core.members import Member
    from rmq.client.core.routes import TopicRoute
    from rmq.remoting.command import Command

logger = logging.getLogger(__name__)

T = TypeVar("T")

_monotonic = time.monotonic


@final
class BlockingClient:
    """Connections, routes and heartbeats of one process. Use it as a context manager.

    Producers and consumers have one of their own, or share one.
    """

    def __init__(self, config: ClientConfig | str) -> None:
        """Text stands for the addresses of nameservers. Nothing is connected yet."""
        self.config = ClientConfig(nameservers=config) if isinstance(config, str) else config
        self.monitor = Monitor()
        """Threads are inside while they use the client or one of its members."""
        self.nameservers = Nameservers(self.config.addresses, first=secrets.randbelow(1 << 16))
        self.routes = RouteTable(self.nameservers.slave_reads)
        self._members: list[Member] = []
        self._broker_requests = BrokerRequests(lambda: self._members)
        self._connections: Connections | None = None
        self._runner: FlowRunner | None = None
        self._generation = 0
        self._client_id = ""
        self.local_address = ""
        """The address of this machine, as brokers see it; known once it is open."""
        self.keeping = RouteKeeping(
            self.nameservers,
            self.routes,
            refresh_s=self.config.route_refresh_s,
            runner=lambda: self.runner,
            on_change=self._route_changed,
        )
        self._beat_at = 0.0
        self._due_at = 0.0
        self._beats: list[Task[Answer | None]] = []
        """Heartbeats under way."""
        self._registered: set[str] = set()
        """Brokers that have received a heartbeat with the members of this client."""

    def __reduce__(self) -> tuple[Any, ...]:
        if self._connections is not None:
            raise TypeError("an open client cannot be pickled: pass its config on instead")
        return BlockingClient, (self.config,)

    # --- running -----------------------------------------------------------------------------

    def open(self) -> Self:
        """Open the client. Connections are made by the first request to each address."""
        with self.monitor:
            if self._connections is None:
                self._open()
        return self

    def _open(self) -> None:
        config = self.config
        settings = Settings(
            connect_timeout_s=config.connect_timeout_s,
            serialization=config.serialization,
            context=None if config.tls is None else client_context(config.tls),
            busy_wait_s=config.busy_wait_s,
            credentials=config.credentials,
        )
        connections = Connections(settings, on_request=self._on_request, monitor=self.monitor)
        self._runner = FlowRunner(connections, timeout_s=config.request_timeout_s)
        self._connections = connections
        self._begin(connections)

    def close(self) -> None:
        """Unregister all members at brokers and close all connections, within a few seconds.

        Calls of other threads end with `ClientClosedError` or `ConnectionLostError`.
        """
        with self.monitor:
            if self._connections is not None:
                self._close(self._connections)

    def _close(self, connections: Connections) -> None:
        try:
            self._check_fork(connections)
            self._forget_beats()
            for member in list(self._members):
                self.leave(member)
            connections.close(linger_s=LEAVE_S)
        finally:
            # Again, in case an interrupt got us here.
            connections.close(linger_s=0)
            self._connections = self._runner = None
            self._members.clear()
            self.keeping.forget_refreshes()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._connections is not None

    @property
    def client_id(self) -> str:
        """The id by which brokers identify this client. A forked child process gets another one."""
        with self.monitor:
            self._check_fork(self.connections)
            return self._client_id

    @property
    def generation(self) -> int:
        """Counts forks: objects made for an earlier generation belong to the parent process."""
        connections = self.connections
        self._check_fork(connections)
        return connections.generation

    @property
    def connections(self) -> Connections:
        if self._connections is None:
            raise ClientClosedError("the client")
        return self._connections

    @property
    def runner(self) -> FlowRunner:
        if self._runner is None:
            raise ClientClosedError("the client")
        return self._runner

    def run(self, flow: Flow[T]) -> T:
        """Run a flow on this client's connections."""
        with self.monitor:
            return self.run_inside(flow)

    def run_inside(self, flow: Flow[T]) -> T:
        """Do what `run` does, for callers that are inside the monitor."""
        try:
            self.tick()
            runner = self.runner
        except BaseException:
            flow.close()
            raise
        return runner.run(flow)

    def start(self, flow: Flow[T]) -> Task[T]:
        """Start a flow that proceeds while the client waits. See `wait` and `Task.is_done`."""
        with self.monitor:
            try:
                self.tick()
                runner = self.runner
            except BaseException:
                flow.close()
                raise
            return runner.start(flow)

    def wait(self, task: Task[T]) -> T:
        """Wait for a flow that was begun; return its result, or raise what it raised."""
        with self.monitor:
            return self.runner.wait(task)

    def _begin(self, connections: Connections) -> None:
        config = self.config
        ip = config.local_address or own_address(config.addresses[0])
        instance = config.instance_name
        if instance == DEFAULT_INSTANCE:
            instance = unique_instance(os.getpid(), time.perf_counter_ns())
        self.local_address = ip
        self._client_id = client_id(ip, instance, unit=config.unit_name)
        self._generation = connections.generation
        self._registered.clear()
        self.keeping.forget_refreshes()
        self._beat_at = _monotonic() + min(FIRST_BEAT_S, config.heartbeat_s)
        self._due_at = 0.0

    def _check_fork(self, connections: Connections) -> None:
        if connections.generation != self._generation:
            self._begin(connections)

    # --- routes ------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic, asked for if it is not known; raise `NoRouteError`."""
        with self.monitor:
            self.tick()
            return self.keeping.route(topic)

    def route_to_send(self, topic: str, queues: int) -> TopicRoute:
        """Return the route of a topic that the first send may create."""
        with self.monitor:
            self.tick()
            return self.keeping.route_to_send(topic, queues)

    def refresh_route(self, topic: str) -> TopicRoute:
        """Ask for the route of a topic now; members that care for it are told if it changed."""
        with self.monitor:
            self.tick()
            return self.keeping.refresh(topic)

    def _route_changed(self, route: TopicRoute) -> None:
        for member in list(self._members):
            if route.topic in member.topics():
                member.route_changed(route)

    # --- what is due -------------------------------------------------------------------------

    @property
    def due_at(self) -> float:
        """When `tick` has to be called next, by `time.monotonic`."""
        return self._due_at

    def tick(self) -> None:
        """Start heartbeats and refreshes that are due. Never waits; loops of callers call it.

        They are inside the monitor.
        """
        now = _monotonic()
        connections = self.connections
        if connections.generation != self._generation:
            self._begin(connections)
        self.keeping.take_in()
        if now < self._due_at:
            return
        self.keeping.forget_unused({topic for member in self._members for topic in member.topics()})
        if now >= self._beat_at:
            self._beat_at = now + self.config.heartbeat_s
            self.beat_soon()
        self._due_at = min(self._beat_at, now + self.config.route_refresh_s)

    # --- members and heartbeats --------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Announce a member in heartbeats from now on."""
        with self.monitor:
            self._members.append(member)

    def leave(self, member: Member) -> None:
        """Remove a member, and unregister it at the brokers that know of it."""
        with self.monitor:
            if member in self._members:
                self._leave(member)

    def _leave(self, member: Member) -> None:
        header = farewell(self._client_id, member)
        self._members.remove(member)
        connections = self.connections
        if header is None or connections.generation != self._generation:
            return
        told = [address for address in self._registered if connections.is_open(address)]
        self._ask_all(
            told, Ask("", RequestCode.UNREGISTER_CLIENT, header, timeout_s=LEAVE_S), "farewell"
        )

    def beat(self) -> None:
        """Send heartbeats to all brokers now; return when each has answered or failed."""
        with self.monitor:
            self.tick()
            self._wait_all(self.beat_soon())

    def beat_soon(self) -> list[Task[Answer | None]]:
        """Start to send heartbeats to all brokers."""
        said = heartbeat(self._client_id, self._members, self.routes.brokers())
        if said is None:
            return []
        addressed = [broker.address for broker in said.brokers]
        self._registered.update(addressed)
        self._forget_beats()
        ask = Ask("", RequestCode.HEART_BEAT, None, said.body)
        self._beats = self._start_all(addressed, ask, "heartbeat")
        return self._beats

    def _forget_beats(self) -> None:
        for task in self._beats:
            task.cancel()
        self._beats = []

    def _ask_all(self, addresses: Iterable[str], ask: Ask, what: str) -> None:
        self._wait_all(self._start_all(addresses, ask, what))

    def _start_all(
        self, addresses: Iterable[str], ask: Ask, what: str
    ) -> list[Task[Answer | None]]:
        runner = self.runner
        return [
            runner.start(_reported(ask._replace(address=address), what)) for address in addresses
        ]

    def _wait_all(self, tasks: list[Task[Answer | None]]) -> None:
        connections = self.connections
        until = _monotonic() + LEAVE_S
        while any(not task.is_done for task in tasks) and _monotonic() < until:
            connections.step(until)

    def _on_request(self, address: str, command: Command) -> Reply | None:
        # Read while the client waits for something: one that waits for nothing answers nothing.
        return self._broker_requests.answer(address, command)


def _reported(ask: Ask, what: str) -> Flow[Answer | None]:
    """Send a request; return its response, None if it failed, which is logged."""
    try:
        return (yield ask)
    except ClientError as exc:
        logger.warning("no %s to %s: %s", what, ask.address, exc)
        return None
