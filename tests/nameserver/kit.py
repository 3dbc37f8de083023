"""What tests of the nameserver share: registrations, a nameserver running, and brokers that speak
frames.

Peers are those of `tests.remoting.server_kit`: they read frames without help of the code under
test.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio
import trio.testing

from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.registration import Registration
from rmq.nameserver.route_views import RouteViews
from rmq.nameserver.routes import RouteTable
from rmq.nameserver.server import Nameserver
from rmq.remoting.bodies.registration import RegisterBrokerBody
from rmq.remoting.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq.remoting.codes import FLAG_ONEWAY, VERSION, RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import GetRouteInfoRequest, RegisterBrokerRequest
from tests.remoting.server_kit import Served
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable
    from pathlib import Path

    from rmq.access.control import AccessControl
    from rmq.nameserver.config import NameserverConfig
    from rmq.nameserver.registration import Registered, RouteLimits
    from rmq.remoting.bodies.routes import ClusterInfo, TopicRouteData
    from rmq.remoting.header import Header
    from tests.remoting.server_kit import Frame, Peer

MASTER: Final = "10.0.0.1:10911"
SLAVE: Final = "10.0.0.2:10911"
CLUSTER: Final = "c"

_REAL_LIMIT_S: Final = 10.0
_VIRTUAL_LIMIT_S: Final = 36_000.0


def topic(name: str, *, perm: int = 6, queues: int = 4, flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=flag,
    )


def saying(
    name: str = "a",
    broker_id: int = 0,
    address: str = MASTER,
    *,
    cluster: str = CLUSTER,
    version: int = 1,
    topics: Iterable[TopicConfig | str] = (),
    filter_servers: tuple[str, ...] | None = (),
    epoch: int = 0,
) -> Registration:
    """What a broker says of itself; its HA address is its address with one more digit."""
    return Registration(
        cluster=cluster,
        broker_name=name,
        broker_id=broker_id,
        address=address,
        ha_address=f"{address}0",
        data_version=DataVersion(timestamp=1_000, counter=version),
        topics=tuple(each if isinstance(each, TopicConfig) else topic(each) for each in topics),
        filter_servers=filter_servers,
        epoch=epoch,
    )


class WholeTable:
    """A route table of which everything is done at once, and what clients ask of it."""

    def __init__(
        self,
        limits: RouteLimits | None = None,
        *,
        recorded: Callable[[str], int] = lambda _name: 0,
    ) -> None:
        self.table: RouteTable[str] = RouteTable(limits, recorded=recorded)
        self.views = RouteViews(self.table.tables)
        self.unregister = self.table.unregister
        self.connection_lost = self.table.connection_lost
        self.expire = self.table.expire
        self.heard_of = self.table.heard_of
        self.holder = self.table.holder
        self.data_version = self.table.data_version
        self.epoch_of = self.table.epoch_of

    def clean(self) -> None:
        finish(self.table.clean())

    @property
    def topic_count(self) -> int:
        self.clean()
        return self.table.topic_count

    @property
    def address_count(self) -> int:
        return self.table.address_count

    def register(self, said: Registration, connection: str, now: float) -> Registered:
        return finish(self.table.register(said, connection, now))

    def wipe_write_perm(self, name: str) -> int:
        return finish(self.table.wipe_write_perm(name))

    def add_write_perm(self, name: str) -> int:
        return finish(self.table.add_write_perm(name))

    def delete_topic(self, name: str, cluster: str | None = None) -> bool:
        return finish(self.table.delete_topic(name, cluster))

    def route(self, name: str, order_topic_conf: str | None = None) -> TopicRouteData | None:
        return finish(self.views.route(name, order_topic_conf))

    def cluster_info(self) -> ClusterInfo:
        return finish(self.views.cluster_info())

    def topics(self) -> set[str]:
        return names_of(self.views.topics())

    def topics_of_cluster(self, cluster: str) -> set[str]:
        return names_of(self.views.topics_of_cluster(cluster))

    def topics_flagged(self, *, set_bits: int, clear_bits: int = 0) -> set[str]:
        return names_of(self.views.topics_flagged(set_bits=set_bits, clear_bits=clear_bits))

    def system_topics(self) -> tuple[set[str], str | None]:
        names, address = finish(self.views.system_topics())
        return set(names), address


def names_of(steps: Generator[None, None, list[str]]) -> set[str]:
    """The names of a list, each of which is told once."""
    names = finish(steps)
    assert len(names) == len(set(names))
    return set(names)


def config_for(folder: Path, **settings: str) -> NameserverConfig:
    """Settings of a nameserver on a free port that keeps its files in `folder`."""
    overrides = {
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "kvConfigPath": str(folder / "kvConfig.json"),
        "configStorePath": str(folder / "namesrv.properties"),
        **settings,
    }
    return load_nameserver_config(None, overrides, environ={}).config


class Running(Served):
    """A nameserver and the peers connected to it."""

    def __init__(self, nameserver: Nameserver) -> None:
        super().__init__(nameserver.server)
        self.nameserver = nameserver


@asynccontextmanager
async def running(
    config: NameserverConfig, access: AccessControl | None = None
) -> AsyncIterator[Running]:
    """Run a nameserver for the length of the block; it is stopped in good order at the end.

    With a `mock_clock` time passes by itself once the nameserver runs, not before: starting reads a
    file in a thread, which the clock does not see.
    """
    nameserver = Nameserver(config, access)
    clock = trio.lowlevel.current_clock()
    virtual = isinstance(clock, trio.testing.MockClock)
    served = Running(nameserver)
    with trio.fail_after(_VIRTUAL_LIMIT_S if virtual else _REAL_LIMIT_S):
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(nameserver.run)
                if isinstance(clock, trio.testing.MockClock):
                    clock.autojump_threshold = 0
                yield served
                nameserver.stop()
        finally:
            await served.aclose()


def frame(
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    *,
    opaque: int = 0,
    version: int = VERSION,
    oneway: bool = False,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    return (
        encode_frame(
            code=code,
            flag=FLAG_ONEWAY if oneway else 0,
            opaque=opaque,
            header=header,
            body_length=len(body),
            version=version,
            serialization=serialization,
        )
        + body
    )


def register_header(
    said: Registration, *, compressed: bool = False, crc32: int = 0
) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        broker_name=said.broker_name,
        broker_addr=said.address,
        cluster_name=said.cluster,
        ha_server_addr=said.ha_address,
        broker_id=said.broker_id,
        compressed=compressed,
        body_crc32=crc32,
        epoch=said.epoch or None,
    )


def register_body(said: Registration) -> RegisterBrokerBody:
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table={each.topic_name: each for each in said.topics},
            data_version=said.data_version,
        ),
        filter_server_list=said.filter_servers or (),
    )


async def register(peer: Peer, said: Registration) -> Frame:
    """Register as a stock broker does by default: JSON, not compressed."""
    body = register_body(said).encode()
    return await peer.request(frame(RequestCode.REGISTER_BROKER, register_header(said), body))


async def ask_route(peer: Peer, name: str, *, version: int = VERSION) -> Frame:
    header = GetRouteInfoRequest(topic=name)
    return await peer.request(frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=version))
