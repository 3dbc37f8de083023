"""One process's part in a cluster: connections, routes and heartbeats, shared by its members.

    async with open_client("10.0.0.5:9876") as client:
        async with producing(client, ProducerConfig(group="orders")) as producer:
            await producer.send(Message("Orders", b"..."))

Everything that is said to nameservers and brokers goes through `run` as a flow, or through
`channel_to` where thousands of requests are pipelined. Routes are asked for when they are needed
first and again every 30 s; brokers hear of all members every 30 s, and at once when asked to
(`beat`).
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import anyio

from rmq.client.core.broker_requests import BrokerRequests
from rmq.client.core.config import (
    DEFAULT_INSTANCE,
    ClientConfig,
    client_id,
    own_address,
    unique_instance,
)
from rmq.client.core.flows import Ask, Flow
from rmq.client.core.members import (
    FIRST_BEAT_S,
    LEAVE_S,
    ConsumerMember,
    farewell,
    heartbeat,
)
from rmq.client.core.nameservers import Nameservers
from rmq.client.core.routes import MissingTopics, RouteTable
from rmq.client.tasks.runner import FlowRunner
from rmq.errors import ClientClosedError, ClientError, ConfigError
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from anyio.abc import TaskGroup

    from rmq.client.core.members import Member
    from rmq.client.core.routes import Address, TopicRoute
    from rmq.client.tasks.loop import Channel, Loop
    from rmq.remoting.headers import UnregisterClientRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")

MISSING_S: Final = 1.0
"""A topic that no broker has yet is asked for again this soon, then less and less often."""


@final
class Client:
    """Connections, routes and heartbeats of one process. Use `open_client` to get one."""

    def __init__(self, loop: Loop, config: ClientConfig, *, is_stream: bool = False) -> None:
        loop.check_running()
        self.loop = loop
        self.config = config
        ip = config.local_address or own_address(config.addresses[0])
        instance = config.instance_name
        if instance == DEFAULT_INSTANCE:
            instance = unique_instance(os.getpid(), time.perf_counter_ns())
        self.client_id = client_id(ip, instance, unit=config.unit_name, is_stream=is_stream)
        self.lasting_id = client_id(
            ip, config.instance_name, unit=config.unit_name, is_stream=is_stream
        )
        """An id that the next process has too: files of broadcasting consumers are named by it."""
        self.nameservers = Nameservers(config.addresses, first=secrets.randbelow(1 << 16))
        self.routes = RouteTable(self.nameservers.slave_reads)
        self.broker_requests = BrokerRequests(lambda: self._members, stacks=loop.stacks)
        self.remoting = loop.connections(config, self.broker_requests, self)
        self._runner = FlowRunner(
            self.remoting,
            timeout_s=config.request_timeout_s,
            is_stream=is_stream,
        )
        self._members: list[Member] = []
        self._asking: dict[str, anyio.Event] = {}
        """Topics whose routes are being asked for: all who want one wait for one answer."""
        self._nursery: TaskGroup | None = None
        self._beat_wanted = anyio.Event()
        self._beating = anyio.Lock()

    # --- running -----------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Client]:
        """Run for the length of a block.

        When the block is cancelled, connections live on until it has been left: members can still
        commit and say good-bye on their way out.
        """
        error: Exception | None = None
        ready, left = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as nursery:
            # Not with `start`: cancelled, that would wait for a task which waits for `left`.
            nursery.start_soon(self._serve, ready, left)
            try:
                await ready.wait()
                yield self
            except Exception as exc:  # noqa: BLE001 - raised again below, outside the nursery
                error = exc
            finally:
                left.set()
        if error is not None:
            raise error

    async def _serve(self, ready: anyio.Event, left: anyio.Event) -> None:
        with anyio.CancelScope(shield=True):
            async with self.remoting.running(), anyio.create_task_group() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._keep_routes)
                nursery.start_soon(self._keep_beating)
                ready.set()
                await left.wait()
                self._nursery = None
                nursery.cancel_scope.cancel()

    def start_soon(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a task as long as the client runs, at most."""
        if self._nursery is None:
            raise ClientClosedError(f"client {self.client_id}")
        self._nursery.start_soon(function)

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow on this client's connections."""
        if self._nursery is None:
            flow.close()
            raise ClientClosedError(f"client {self.client_id}")
        return await self._runner.run(flow)

    async def channel_to(self, address: str) -> Channel:
        """Return the connection to a broker, made now if there is none; raise `ClientError`."""
        return await self.remoting.channel(address)

    @property
    def runner(self) -> FlowRunner:
        return self._runner

    # --- routes ------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic, asked for if it is not known; raise `NoRouteError`."""
        known = self.routes.get(topic)
        if known is not None:
            return known
        return await self.refresh_route(topic)

    async def route_to_send(self, topic: str, queues: int) -> TopicRoute:
        """Return the route of a topic that the first send may create."""
        known = self.routes.get(topic)
        if known is not None and known.writable:
            return known
        return await self._asked_once(topic, lambda: self.nameservers.route_to_send(topic, queues))

    async def refresh_route(self, topic: str) -> TopicRoute:
        """Ask for the route of a topic now; members that care for it are told if it changed."""
        return await self._asked_once(topic, lambda: self.nameservers.route(topic))

    async def _asked_once(self, topic: str, flow: Callable[[], Flow[TopicRoute]]) -> TopicRoute:
        while (asking := self._asking.get(topic)) is not None:
            await asking.wait()
            if (known := self.routes.get(topic)) is not None:
                return known
        done = self._asking[topic] = anyio.Event()
        try:
            route = await self.run(flow())
        finally:
            del self._asking[topic]
            done.set()
        self._take_route(route)
        return route

    def _take_route(self, route: TopicRoute) -> None:
        if not self.routes.put(route):
            return
        for member in list(self._members):
            if route.topic in member.topics():
                member.route_changed(route)

    async def _keep_routes(self) -> None:
        refresh_s = self.config.route_refresh_s
        refresh_at = anyio.current_time() + refresh_s
        missing = MissingTopics(refresh_s)
        while True:
            await anyio.sleep(min(MISSING_S, refresh_s))
            now = anyio.current_time()
            wanted = {topic for member in self._members for topic in member.topics()}
            if now >= refresh_at:
                refresh_at = now + refresh_s
                for route in list(self.routes):
                    if route.topic not in wanted:
                        self.routes.forget(route.topic)
                due = sorted(wanted)
            else:
                due = missing.due(
                    {topic for topic in wanted if self.routes.get(topic) is None}, now
                )
            for topic in due:
                is_known = self.routes.get(topic) is not None
                try:
                    await self.refresh_route(topic)
                except ClientError as exc:
                    level = logging.WARNING if is_known else logging.DEBUG
                    logger.log(level, "the route of %s could not be refreshed: %s", topic, exc)

    # --- members and heartbeats --------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Take a member into heartbeats, and serve what brokers ask of it.

        Two consumers of a group need clients of their own: brokers tell members apart by client.
        """
        if isinstance(member, ConsumerMember):
            for other in self._members:
                if isinstance(other, ConsumerMember) and other.group == member.group:
                    raise ConfigError(
                        "group",
                        f"client {self.client_id} has a consumer of group {member.group} already",
                        hint="open the second one with a client of its own",
                    )
        self._members.append(member)

    async def leave(self, member: Member) -> None:
        """Remove a member, and unregister it at brokers."""
        if member not in self._members:
            return
        header = farewell(self.client_id, member)
        self._members.remove(member)
        if header is None:
            return
        with anyio.move_on_after(LEAVE_S) as scope:
            scope.shield = True
            async with anyio.create_task_group() as nursery:
                for broker in self.routes.brokers():
                    if self.remoting.open_channel_to(broker.address) is not None:
                        nursery.start_soon(self._say_goodbye, broker, header)

    async def _say_goodbye(self, broker: Address, header: UnregisterClientRequest) -> None:
        def flow() -> Flow[None]:
            yield Ask(broker.address, RequestCode.UNREGISTER_CLIENT, header)

        try:
            await self._runner.run(flow())
        except ClientError as exc:
            logger.debug("%s was not told that %s leaves: %s", broker.address, header, exc)

    def channel_opened(self, channel: Channel) -> None:
        """A broker that was restarted knows nothing of consumers: it is told before it asks."""
        if any(isinstance(member, ConsumerMember) for member in self._members) and any(
            broker.address == channel.peer for broker in self.routes.brokers()
        ):
            self.beat_soon()

    def beat_soon(self) -> None:
        """Have a heartbeat sent by the client's own task."""
        self._beat_wanted.set()

    async def beat(self) -> None:
        """Send heartbeats to all brokers now; return when each has answered or failed."""
        async with self._beating:
            said = heartbeat(self.client_id, self._members, self.routes.brokers())
            if said is None:
                return
            async with anyio.create_task_group() as nursery:
                for broker in said.brokers:
                    nursery.start_soon(self._beat_one, broker, said.body)

    async def _beat_one(self, broker: Address, body: bytes) -> None:
        def flow() -> Flow[None]:
            yield Ask(broker.address, RequestCode.HEART_BEAT, None, body)

        try:
            await self._runner.run(flow())
        except ClientError as exc:
            logger.warning("no heartbeat to %s at %s: %s", broker.broker_name, broker.address, exc)

    async def _keep_beating(self) -> None:
        pause_s = min(FIRST_BEAT_S, self.config.heartbeat_s)
        while True:
            with anyio.move_on_after(pause_s):
                await self._beat_wanted.wait()
            self._beat_wanted = anyio.Event()
            pause_s = self.config.heartbeat_s
            await self.beat()


@asynccontextmanager
async def open_client(
    loop: Loop, config: ClientConfig | str, *, is_stream: bool = False
) -> AsyncIterator[Client]:
    """Run a client for the length of a block; text stands for the addresses of nameservers."""
    if isinstance(config, str):
        config = ClientConfig(nameservers=config)
    async with Client(loop, config, is_stream=is_stream).running() as client:
        yield client
