"""A broker's registration, and nameservers that it reaches over memory, in virtual time.

`Cluster` is a network of addresses. Behind an address there is a real nameserver, somebody who
plays one (`Listener`), or nobody.
"""

from __future__ import annotations

import errno
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from rmq.broker.config import BrokerRole, LiveConfig, load_broker_config
from rmq.broker.registration.registration import (
    Registered,
    Registration,
    RegistrationListener,
    Standing,
)
from rmq.broker.tables.topics import TopicTable
from rmq.model.in_sync_record import NAMESPACE, InSyncRecord
from rmq.nameserver.server import Nameserver
from rmq.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    HaStatusBody,
    RegisterBrokerBody,
    TopicRouteData,
)
from rmq.remoting.bodies.registration_steps import read_registration
from rmq.remoting.client import RemotingClient
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import (
    DeleteKvConfigRequest,
    EmptyHeader,
    GetKvConfigRequest,
    GetKvConfigResponse,
    GetRouteInfoRequest,
    HaStatusRequest,
    PutKvConfigRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)
from rmq.remoting.protocol import Requests
from rmq.remoting.server import RemotingServer, ServerConfig
from rmq.remoting.transport import StreamTransport, Transport
from tests.broker.send_kit import WallClock
from tests.nameserver.kit import config_for, frame, register, saying
from tests.remoting.server_kit import Peer
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    import pytest

    from rmq.remoting.channel import Channel
    from rmq.remoting.request import Request

A: Final = "ns-a:9876"
B: Final = "ns-b:9876"
BROKER: Final = "10.0.0.1:10911"
OTHER: Final = "10.0.0.2:10911"
PERIOD_S: Final = 30.0


class Listener:
    """Somebody who is taken for a nameserver: notes what it is told, and answers as it is told."""

    def __init__(self) -> None:
        self.registrations: list[tuple[RegisterBrokerRequest, RegisterBrokerBody]] = []
        self.times: list[float] = []
        self.versions: list[QueryDataVersionRequest] = []
        self.goodbyes: list[UnregisterBrokerRequest] = []
        self.answer: Callable[[Request[RegisterBrokerRequest]], None] = self.take
        self.is_known = False
        self.version_code: int = ResponseCode.SUCCESS
        self.unregister_delay_s = 0.0
        self.questions = 0
        """How often it was asked whom it lists."""
        self.listed: dict[int, str] | None = None
        """The brokers it lists under the name of all; None: it does not know that question."""
        self.record: str | None = None
        """The in-sync record it keeps."""
        self.on_record_asked: Callable[[], str | None] = lambda: self.record
        table = HandlerTable()
        table.add(Requests.GET_KV_CONFIG, self._get_record)
        table.add(Requests.DELETE_KV_CONFIG, self._delete_record)
        table.add(Requests.GET_BROKER_CLUSTER_INFO, self._list)
        table.add(Requests.REGISTER_BROKER, self._register)
        table.add(Requests.QUERY_DATA_VERSION, self._version)
        table.add_async(Requests.UNREGISTER_BROKER, self._unregister)
        self.server = RemotingServer(table, ServerConfig(host="127.0.0.1"))

    @property
    def topics(self) -> list[list[str]]:
        """The topics of each registration, by name, without those that every broker has."""
        return [
            sorted(
                name
                for name in body.topic_config_serialize_wrapper.topic_config_table
                if name.startswith("T-")
            )
            for _, body in self.registrations
        ]

    @property
    def sizes(self) -> list[int]:
        """How many topics each registration had, built-in ones included."""
        return [
            len(body.topic_config_serialize_wrapper.topic_config_table)
            for _, body in self.registrations
        ]

    def take(self, request: Request[RegisterBrokerRequest]) -> None:
        """Answer as a nameserver does."""
        request.reply(RegisterBrokerResponse())

    def _register(self, request: Request[RegisterBrokerRequest]) -> None:
        body = finish(read_registration(request.body, compressed=request.header.compressed))
        self.registrations.append((request.header, body))
        self.times.append(trio.current_time())
        self.answer(request)

    def _version(self, request: Request[QueryDataVersionRequest]) -> None:
        self.versions.append(request.header)
        request.reply(QueryDataVersionResponse(changed=not self.is_known), code=self.version_code)

    def refuse(self, request: Request[RegisterBrokerRequest], epoch: int | None = None) -> None:
        """Answer as a nameserver does that knows of a later master."""
        request.reply(
            RegisterBrokerResponse(epoch=epoch), code=ResponseCode.STALE_EPOCH, remark="deposed"
        )

    def _list(self, request: Request[EmptyHeader]) -> None:
        self.questions += 1
        if self.listed is None:
            request.reply(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="what?")
            return
        data = BrokerData(cluster="c", broker_name="broker-a", broker_addrs=self.listed)
        request.reply(body=ClusterInfo(broker_addr_table={"broker-a": data}).encode())

    def _get_record(self, request: Request[GetKvConfigRequest]) -> None:
        assert (request.header.namespace, request.header.key) == (NAMESPACE, "broker-a")
        value = self.on_record_asked()
        code = ResponseCode.QUERY_NOT_FOUND if value is None else ResponseCode.SUCCESS
        request.reply(GetKvConfigResponse(value=value), code=code)

    def _delete_record(self, request: Request[DeleteKvConfigRequest]) -> None:
        assert (request.header.namespace, request.header.key) == (NAMESPACE, "broker-a")
        self.record = None
        request.reply()

    async def _unregister(self, request: Request[UnregisterBrokerRequest]) -> None:
        self.goodbyes.append(request.header)
        await trio.sleep(self.unregister_delay_s)
        request.reply()


def record(epoch: int, secret: str = "") -> str:
    """Return an in-sync record of a master of this epoch."""
    made = InSyncRecord(epoch=epoch, version=1, is_sync=False)
    return made.encode(secret.encode(), "broker-a").decode()


class Rival:
    """Another broker of the name, as far as others ask it how it is."""

    def __init__(self, address: str, epoch: int, role: str) -> None:
        self.address = address
        self.status: HaStatusBody | None = HaStatusBody(
            role=role, epoch=epoch, broker_name="broker-a", address=address
        )
        """None: a stock broker, which does not know that question."""
        self.asked = 0
        self.on_asked: Callable[[], None] = lambda: None
        table = HandlerTable()
        table.add(Requests.HA_STATUS, self._answer)
        self.server = RemotingServer(table, ServerConfig(host="127.0.0.1"))

    def _answer(self, request: Request[HaStatusRequest]) -> None:
        self.asked += 1
        self.on_asked()
        if self.status is None:
            request.reply(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="what?")
        else:
            request.reply(body=self.status.encode())


class Cluster:
    """Nameservers by address, and the broker that registers with them."""

    def __init__(self, folder: Path, nursery: trio.Nursery, settings: Mapping[str, str]) -> None:
        wanted = {
            "storePathRootDir": str(folder),
            "brokerIP1": "10.0.0.1",
            "brokerIP2": "10.0.0.1",
            "brokerName": "broker-a",
            "namesrvAddr": A,
            **settings,
        }
        self.folder = folder
        self.clock = WallClock()
        self.live = LiveConfig(load_broker_config(None, wanted, {}), now_ms=self.clock())
        self.topics = TopicTable(self.live.current, self.clock)
        self.answers: list[Registered] = []
        self.on_registered: Callable[[], None] | None = None
        """Called at the moment that the broker knows that it is registered."""
        self.epoch = 0
        self.record: InSyncRecord | None = None
        """The last in-sync record of the broker."""
        self.fenced: list[tuple[int, str]] = []
        self.doubts: list[str] = []
        """Nameservers that may have lost the in-sync record, each time that was thought."""
        self.registration = Registration(
            self.live,
            self.topics,
            Standing(epoch=lambda: self.epoch, record=lambda: self.record),
            RegistrationListener(
                registered=self._registered,
                fenced=lambda epoch, reason: self.fenced.append((epoch, reason)),
                doubted=self.doubts.append,
            ),
        )
        self.topics.on_change = self.registration.topic_changed
        self.live.subscribe(self.registration.config_changed)
        self.client = RemotingClient(
            self.live.current.client, listeners=[self.registration], connector=self
        )
        self.dials: list[str] = []
        self.hangs: set[str] = set()
        """Addresses that never answer an attempt to connect."""
        self._servers: dict[str, RemotingServer] = {}
        self._nursery = nursery

    # --- nameservers -------------------------------------------------------------------------

    async def __call__(self, address: str) -> Transport:
        """Connect to an address."""
        self.dials.append(address)
        if address in self.hangs:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        server = self._servers.get(address)
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        near, far = memory_stream_pair()
        server.attach(StreamTransport(near, peer="10.0.0.1:50000"))
        return StreamTransport(far, peer=address)

    async def start_nameserver(self, address: str = A) -> Nameserver:
        """Start a real nameserver; time stands still meanwhile, for it reads a file in a thread."""
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        threshold, clock.autojump_threshold = clock.autojump_threshold, float("inf")
        folder = self.folder / address.partition(":")[0]
        folder.mkdir(exist_ok=True)
        nameserver = Nameserver(config_for(folder))
        await self._nursery.start(nameserver.run)
        clock.autojump_threshold = threshold
        self._servers[address] = nameserver.server
        return nameserver

    async def start_listener(self, address: str = A) -> Listener:
        listener = Listener()
        await self._nursery.start(listener.server.run)
        self._servers[address] = listener.server
        return listener

    async def start_rival(self, epoch: int, role: str = "MASTER", address: str = OTHER) -> Rival:
        rival = Rival(address, epoch, role)
        await self._nursery.start(rival.server.run)
        self._servers[address] = rival.server
        return rival

    async def register_other(
        self, broker_id: int, epoch: int, nameserver: str = A, address: str = OTHER
    ) -> Peer:
        """Register another broker of the name, which goes when its connection is closed."""
        near, far = memory_stream_pair()
        self._servers[nameserver].attach(StreamTransport(near, peer="10.0.0.2:50000"))
        peer = Peer(far)
        said = saying("broker-a", broker_id, address, cluster="DefaultCluster", epoch=epoch)
        answer = await register(peer, said)
        assert answer.code == ResponseCode.SUCCESS, answer
        return peer

    async def put_record(self, epoch: int, nameserver: str = A) -> None:
        """Have a real nameserver keep the in-sync record of a master of this epoch."""
        header = PutKvConfigRequest(namespace=NAMESPACE, key="broker-a", value=record(epoch))
        await self._change_record(frame(RequestCode.PUT_KV_CONFIG, header), nameserver)

    async def delete_record(self, nameserver: str = A) -> None:
        header = DeleteKvConfigRequest(namespace=NAMESPACE, key="broker-a")
        await self._change_record(frame(RequestCode.DELETE_KV_CONFIG, header), nameserver)

    async def _change_record(self, request: bytes, nameserver: str) -> None:
        # Time stands still meanwhile: the file is written in a thread.
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        threshold, clock.autojump_threshold = clock.autojump_threshold, float("inf")
        near, far = memory_stream_pair()
        self._servers[nameserver].attach(StreamTransport(near, peer="10.0.0.2:50001"))
        peer = Peer(far)
        answer = await peer.request(request)
        assert answer.code == ResponseCode.SUCCESS, answer
        await peer.aclose()
        clock.autojump_threshold = threshold

    async def listed(self, nameserver: str = A) -> dict[int, str]:
        """Ask a nameserver for the brokers of the name."""
        near, far = memory_stream_pair()
        self._servers[nameserver].attach(StreamTransport(near, peer="10.0.0.3:60000"))
        peer = Peer(far)
        answer = await peer.request(frame(RequestCode.GET_BROKER_CLUSTER_INFO))
        await peer.aclose()
        data = ClusterInfo.decode(answer.body).broker_addr_table.get("broker-a")
        return {} if data is None else data.broker_addrs

    def stop(self, address: str = A) -> None:
        """End a nameserver, and with it all connections to it."""
        self._servers.pop(address).stop(grace_s=0)

    def cut(self, address: str = A) -> None:
        """End the connections to a nameserver that stays."""
        for channel in self._servers[address].channels:
            channel.close("cut")

    def start_soon(self, function: Callable[[], Awaitable[object]]) -> None:
        self._nursery.start_soon(function)

    def channels(self, address: str = A) -> frozenset[Channel]:
        return self._servers[address].channels

    async def route(self, topic: str, address: str = A) -> TopicRouteData | None:
        """Ask a nameserver for the route of a topic, as a client does."""
        near, far = memory_stream_pair()
        self._servers[address].attach(StreamTransport(near, peer="10.0.0.2:60000"))
        peer = Peer(far)
        answer = await peer.request(
            frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic))
        )
        await peer.aclose()
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        assert answer.code == 0, answer
        return TopicRouteData.decode(answer.body)

    # --- the broker --------------------------------------------------------------------------

    def _registered(self, answer: Registered) -> None:
        self.answers.append(answer)
        if self.on_registered is not None:
            self.on_registered()

    def add_topic(self, topic: str, queues: int = 4) -> None:
        self.topics.create_on_send_back(topic, queues)

    def update(self, **changes: str) -> None:
        self.live.update(changes, now_ms=self.clock())

    def assume(self, role: BrokerRole, broker_id: int) -> None:
        """Give the broker another role while it runs."""
        self.live.assume_role(role, broker_id, now_ms=self.clock())

    async def register_now(self) -> int:
        """Register once; return how many nameservers took it."""
        async with self.client.running():
            return await self.registration.register_once(self.client)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Register and go on registering for the length of the block; gives how many took it."""
        async with self.client.running(), trio.open_nursery() as nursery:
            count = await self.registration.register_once(self.client)
            nursery.start_soon(self.registration.run)
            await settled()
            yield count
            nursery.cancel_scope.cancel()


async def settled() -> None:
    """Wait until all that can happen now has happened."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    threshold, clock.autojump_threshold = clock.autojump_threshold, float("inf")
    await wait_all_tasks_blocked()
    clock.autojump_threshold = threshold


@asynccontextmanager
async def cluster(folder: Path, **settings: str) -> AsyncIterator[Cluster]:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.autojump_threshold = 0
    async with trio.open_nursery() as nursery:
        yield Cluster(folder, nursery, settings)
        nursery.cancel_scope.cancel()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the registration said that an operator should read."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "rmq.broker.registration.registration"
        and record.levelno >= logging.WARNING
    ]
