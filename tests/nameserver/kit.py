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
from rmq.nameserver.server import Nameserver
from rmq.remoting.bodies.registration import RegisterBrokerBody
from rmq.remoting.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq.remoting.codes import FLAG_ONEWAY, VERSION, RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import GetRouteInfoRequest, RegisterBrokerRequest
from tests.remoting.server_kit import Served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from rmq.access.control import AccessControl
    from rmq.nameserver.config import NameserverConfig
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
