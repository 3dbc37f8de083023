"""A slave that copies the tables of a master: two brokers in memory, or one and a script.

`pair` has two whole brokers but for their sockets, linked over memory. Their logs are copied by
hand (`Pair.replicate`), so that a test can let the slave be behind. `scripted` has a slave whose
master is played by a `ScriptedMaster`: it answers with what a test gives it, byte by byte.
"""

from __future__ import annotations

import contextlib
import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from rmq.broker.replication.metadata_sync import MetadataSync
from rmq.broker.sending import properties as inbound
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage
from rmq.remoting.bodies import (
    DelayOffsetSerializeWrapper,
    KVTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.client import RemotingClient, open_client
from rmq.remoting.codes import FLAG_RESPONSE, RequestCode
from rmq.remoting.command import encode_frame
from rmq.remoting.transport import StreamTransport, Transport
from rmq.store.append import AppendStatus
from tests.broker.broker_frames import TOPIC
from tests.broker.broker_kit import PartBroker, part_broker
from tests.remoting.server_kit import Frame, Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

MASTER: Final = "192.0.2.1:10911"
OTHER: Final = "192.0.2.9:10911"
SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1", "listenPort": "20911"}

COPIED: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
)


class Pair:
    """A master, its slave, and the link between their tables."""

    def __init__(self, master: PartBroker, slave: PartBroker, sync: MetadataSync) -> None:
        self.master = master
        self.slave = slave
        self.sync = sync

    async def copy(self) -> None:
        """Copy the tables once; all of them."""
        assert await self.sync.sync_now(), self.sync.status

    async def replicate(self, stop: int | None = None) -> None:
        """Copy the log, up to an offset or all of it."""
        log = self.master.core.log
        end = log.readable if stop is None else stop
        while (start := self.slave.core.log.written) < end:
            view = log.view_from(start)
            assert view is not None
            self.slave.store.append_raw(start, view[: end - start])
        await self.slave.settle()

    def park(self, *bodies: bytes, level: int = 1) -> None:
        """Store messages at the master that are to be delayed."""
        broker = self.master
        levels = len(broker.live.current.store.delay_levels_ms)
        properties = encode_properties({"DELAY": str(level)})
        results = broker.store.append(
            [
                inbound.parked(NewMessage(TOPIC, 0, body), level, levels, properties)
                for body in bodies
            ]
        )
        assert {result.status for result in results} == {AppendStatus.PUT_OK}, results


@asynccontextmanager
async def pair(folder: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[Pair]:
    """Serve a master and a slave for the length of the block; nothing is copied yet."""
    for name in ("master", "slave"):
        (folder / name / "config").mkdir(parents=True)
    async with (
        part_broker(folder / "master", settings) as master,
        part_broker(folder / "slave", {**SLAVE, **(settings or {})}, has_topic=False) as slave,
    ):

        async def connect(address: str) -> Transport:
            if address != MASTER:
                raise OSError(errno.ECONNREFUSED, "connection refused")
            near, far = memory_stream_pair()
            master.served.server.attach(StreamTransport(near, peer="slave:1"))
            return StreamTransport(far, peer=address)

        async with open_client(connector=connect) as client:
            # Tables that were changed in the same millisecond would have the same version.
            slave.clock.ms += 5
            sync = sync_of(slave, client)
            sync.point_to(MASTER)
            yield Pair(master, slave, sync)


def sync_of(slave: PartBroker, client: RemotingClient) -> MetadataSync:
    return MetadataSync(slave.live, slave.store, slave.broker.tables, slave.broker.delay, client)


# --- a master that is played ---------------------------------------------------------------------


def reply(
    asked: Frame,
    body: bytes = b"",
    *,
    code: int = 0,
    remark: str | None = None,
    extra: Mapping[str, str] | None = None,
) -> bytes:
    """Return the answer to a request."""
    head = encode_frame(
        code=code,
        flag=FLAG_RESPONSE,
        opaque=asked.opaque,
        body_length=len(body),
        remark=remark,
        extra=extra,
    )
    return head + body


class ScriptedMaster:
    """Answers as a stock broker does, unless a test says otherwise.

    `answers` has by request code what is to be sent; None sends nothing. A `CUT` at the end closes
    the connection.
    """

    CUT: Final = b"cut"

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: topics_body("Orders"),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups_body("billing"),
            RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"Orders@billing":{0:7,1:8}}}',
            RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsetSerializeWrapper(
                offset_table={1: 3}
            ).encode(),
            RequestCode.GET_BROKER_RUNTIME_INFO: KVTable(
                table={"commitLogMaxOffset": "0"}
            ).encode(),
        }
        self.answers: dict[int, Callable[[Frame], bytes | None]] = {}
        self.delays: dict[int, float] = {}
        """By request code, after how many seconds it answers."""
        self.asked: list[tuple[float, int]] = []
        self.addresses: list[str] = []
        self.nursery: trio.Nursery

    @property
    def codes(self) -> list[int]:
        """What was asked, in order."""
        return [code for _, code in self.asked]

    @property
    def rounds(self) -> list[float]:
        """When everything was asked for."""
        return [time for time, code in self.asked if code == RequestCode.GET_ALL_TOPIC_CONFIG]

    async def connect(self, address: str) -> Transport:
        self.addresses.append(address)
        near, far = memory_stream_pair()
        self.nursery.start_soon(self._serve, _Asker(near))
        return StreamTransport(far, peer=address)

    async def _serve(self, peer: _Asker) -> None:
        async with trio.open_nursery() as nursery:
            while (asked := await peer.next()) is not None:
                self.asked.append((trio.current_time(), asked.code))
                nursery.start_soon(self._answer, peer, asked)
            nursery.cancel_scope.cancel()

    async def _answer(self, peer: _Asker, asked: Frame) -> None:
        script = self.answers.get(asked.code)
        data = reply(asked, self.bodies[asked.code]) if script is None else script(asked)
        if data is None:
            return
        await trio.sleep(self.delays.get(asked.code, 0))
        async with peer.writing:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await peer.send(data.removesuffix(self.CUT))
                if data.endswith(self.CUT):
                    await peer.aclose()


class _Asker(Peer):
    """The slave, as its master sees it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.writing = trio.Lock()

    async def next(self) -> Frame | None:
        """Return the next request; None when there will be none."""
        try:
            return await self._read()
        except trio.ClosedResourceError:
            return None


def topics_body(*names: str, counter: int = 5) -> bytes:
    return TopicConfigSerializeWrapper(
        topic_config_table={name: TopicConfig(topic_name=name) for name in names},
        data_version=DataVersion(timestamp=1_600_000_000_000, counter=counter),
    ).encode()


def groups_body(*names: str, counter: int = 5) -> bytes:
    return SubscriptionGroupWrapper(
        subscription_group_table={name: SubscriptionGroupConfig(group_name=name) for name in names},
        data_version=DataVersion(timestamp=1_600_000_000_000, counter=counter),
    ).encode()


class Scripted:
    """A slave, and the one who plays its master."""

    def __init__(self, master: ScriptedMaster, slave: PartBroker, sync: MetadataSync) -> None:
        self.master = master
        self.slave = slave
        self.sync = sync

    def seen(self) -> dict[int, object]:
        """Return what the slave has of each table, by the request that copies it."""
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: sorted(self.slave.topics.names()),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: sorted(self.slave.groups.names()),
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.slave.offsets.to_body().offset_table,
            RequestCode.GET_ALL_DELAY_OFFSET: {
                level: done for level, (done, _) in self.slave.broker.delay.progress().items()
            },
        }


@asynccontextmanager
async def scripted(
    folder: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Scripted]:
    """Serve a slave whose master is played, for the length of the block."""
    master = ScriptedMaster()
    async with (
        part_broker(folder, {**SLAVE, **(settings or {})}, has_topic=False) as slave,
        trio.open_nursery() as nursery,
    ):
        master.nursery = nursery
        async with open_client(connector=master.connect) as client:
            sync = sync_of(slave, client)
            sync.point_to(MASTER)
            yield Scripted(master, slave, sync)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(*tasks: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run tasks for the length of the block."""
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
        await wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()
