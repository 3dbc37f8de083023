"""Brokers of one name in one process, on real sockets, with a real nameserver between them.

async with pair(tmp_path) as it:
    master = await it.start("master", "SYNC_MASTER")
    slave = await it.start("slave", "SLAVE")
    await it.in_sync(master)
    assert await it.send(master, 10) == [0] * 10
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rmq.broker.broker import serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import decode_records
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.server import serve_nameserver
from rmq.remoting.bodies import HaStatusBody
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    HaPromoteRequest,
    PullMessageRequest,
    PullMessageResponse,
    SendMessageRequestV2,
)
from tests.broker.broker_kit import NEVER_FULL, SMALL_STORE
from tests.port_shares import own_share

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from rmq.broker.broker import Broker
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

TOPIC: Final = "PairTopic"
QUEUES: Final = 2
_WAIT_S: Final = 20.0
_PORTS: Final = own_share(range(20_000, 30_000))


class Pair:
    """The brokers of one name, and a client that talks to them."""

    def __init__(
        self, root: Path, nursery: trio.Nursery, nameserver: str, client: RemotingClient
    ) -> None:
        self.root = root
        self.nameserver = nameserver
        self.client = client
        self._nursery = nursery
        self._ports: dict[str, int] = {}
        self._ended: dict[str, trio.Event] = {}
        self._running: dict[str, Broker] = {}
        self._sent = 0

    # --- brokers -----------------------------------------------------------------------------

    async def start(
        self, name: str, role: str, settings: Mapping[str, str] | None = None
    ) -> Broker:
        """Start a broker, or start it again; it has its port and its folder for the whole test."""
        port = self._ports.setdefault(name, free_port())
        conf = self.root / f"{name}.conf"
        number = 0 if role != "SLAVE" else list(self._ports).index(name) + 1
        wanted = {
            **SMALL_STORE,
            **NEVER_FULL,
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "brokerName": "broker-a",
            "brokerClusterName": "DefaultCluster",
            "brokerId": str(number),
            "brokerRole": role,
            "listenPort": str(port),
            "namesrvAddr": self.nameserver,
            "storePathRootDir": str(self.root / name),
            "shutdownDrainTime": "100",
            **(settings or {}),
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
        return await self.restart(name)

    async def restart(self, name: str) -> Broker:
        """Start a broker by the settings in its file as they are now."""
        loaded = load_broker_config(self.root / f"{name}.conf", {}, {})
        live = LiveConfig(loaded, now_ms=_now_ms())
        ended = self._ended[name] = trio.Event()

        async def serve(*, task_status: trio.TaskStatus[Broker]) -> None:
            try:
                await serve_broker(live, task_status=task_status)
            finally:
                ended.set()

        broker: Broker = await self._nursery.start(serve)
        self._running[name] = broker
        return broker

    async def stop(self, name: str) -> None:
        """Stop a broker gracefully."""
        self._running.pop(name).stop()
        with trio.fail_after(_WAIT_S):
            await self._ended[name].wait()

    async def stop_all(self) -> None:
        for name in list(self._running):
            await self.stop(name)

    # --- requests ----------------------------------------------------------------------------

    async def ask(
        self,
        broker: Broker,
        code: RequestCode,
        header: Header | None = None,
        body: bytes | None = None,
    ) -> Command:
        return await self.client.request(broker.address, code, header, body=body, timeout_s=_WAIT_S)

    async def promote(self, broker: Broker, *, accept_loss: bool = False) -> Command:
        header = HaPromoteRequest(accept_loss=accept_loss)
        return await self.ask(broker, RequestCode.HA_PROMOTE, header)

    async def status(self, broker: Broker) -> HaStatusBody:
        answer = await self.ask(broker, RequestCode.HA_STATUS)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return HaStatusBody.decode(answer.body)

    async def create_topic(self, broker: Broker, topic: str = TOPIC) -> None:
        header = CreateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        answer = await self.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def send(
        self, broker: Broker, count: int, *, properties: str = "", size: int = 100
    ) -> list[int]:
        """Send messages at once; return the codes of the answers."""
        codes: list[int] = [-1] * count

        async def send_one(index: int, number: int) -> None:
            header = SendMessageRequestV2(
                producer_group="pair",
                topic=TOPIC,
                default_topic="TBW102",
                default_topic_queue_nums=QUEUES,
                queue_id=number % QUEUES,
                sys_flag=0,
                born_timestamp=_now_ms(),
                flag=0,
                properties=properties,
            )
            body = (b"message %d " % number).ljust(size, b".")
            answer = await self.ask(broker, RequestCode.SEND_MESSAGE_V2, header, body)
            codes[index] = answer.code

        async with trio.open_nursery() as nursery:
            for index in range(count):
                nursery.start_soon(send_one, index, self._sent)
                self._sent += 1
        return codes

    async def bodies(self, broker: Broker, topic: str = TOPIC) -> set[bytes]:
        """Return what a broker gives to a consumer that reads everything."""
        found: set[bytes] = set()
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                header = PullMessageRequest(
                    consumer_group="pair",
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=offset,
                    max_msg_nums=32,
                    sys_flag=4,
                    commit_offset=0,
                    suspend_timeout_millis=0,
                    subscription="*",
                    sub_version=0,
                )
                answer = await self.ask(broker, RequestCode.PULL_MESSAGE, header)
                if answer.code == ResponseCode.SUCCESS:
                    found |= {bytes(record.body) for record in decode_records(answer.body or b"")}
                told = answer.header(PullMessageResponse)
                if told.next_begin_offset >= told.max_offset:
                    break
                offset = told.next_begin_offset
        return found

    # --- waiting -----------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so, looking often."""
        with trio.move_on_after(_WAIT_S):
            while not condition():  # noqa: ASYNC110 - two brokers and a clock, no event
                await trio.sleep(0.005)
            return
        raise AssertionError(f"not within {_WAIT_S:g} s: {what}")

    async def in_sync(self, master: Broker, count: int = 1) -> None:
        """Wait until this many slaves are in sync, by what they report about their tables, too.

        Before a slave has answered its welcome, its master does not know that it lacks tables.
        """
        state = master.replication.master
        assert state is not None

        def are_enough() -> bool:
            answered = sum(each.in_sync and each.has_answered for each in state.slaves)
            return min(answered, state.slaves.in_sync_count) >= count

        await self.until(are_enough, f"{count} slaves are in sync")

    async def settled(self, master: Broker) -> None:
        """Wait until it is recorded by what rule a master answers sends."""
        keeping = master.replication.records
        assert keeping is not None
        await self.until(lambda: not keeping.missing, "what is relied on is recorded")

    async def sync_pair(self) -> tuple[Broker, Broker]:
        """Start a sync master and a slave that counts, and have a few messages replicated."""
        master = await self.start("one", "SYNC_MASTER")
        await self.create_topic(master)
        slave = await self.start("two", "SLAVE")
        await self.in_sync(master)
        assert await self.send(master, 5) == [ResponseCode.SUCCESS] * 5
        await self.settled(master)
        return master, slave

    async def equal(self, one: Broker, other: Broker) -> None:
        """Wait until two logs end at the same offset, and compare them."""
        logs = one.store.log, other.store.log
        await self.until(lambda: logs[0].written == logs[1].written, "logs are equally long")
        assert log_bytes(one) == log_bytes(other)


def log_bytes(broker: Broker) -> bytes:
    """Return the whole log of a broker."""
    log = broker.store.log
    parts: list[bytes] = []
    offset: int = log.min_offset
    while (view := log.view_from(PhysicalOffset(offset))) is not None:
        parts.append(bytes(view))
        offset += len(view)
    return b"".join(parts)


@asynccontextmanager
async def pair(root: Path, nameserver_settings: str = "") -> AsyncIterator[Pair]:
    """Run a nameserver for brokers that the test starts; all are stopped at the end."""
    conf = root / "namesrv.conf"
    conf.write_text(
        f"bindAddress=127.0.0.1\nlistenPort=0\nkvConfigPath={root / 'kv.json'}\n"
        f"{nameserver_settings}"
    )
    async with trio.open_nursery() as nursery, open_client() as client:
        nameserver = await nursery.start(
            partial(serve_nameserver, load_nameserver_config(conf, environ={}).config)
        )
        it = Pair(root, nursery, f"127.0.0.1:{nameserver.port}", client)
        yield it
        await it.stop_all()
        nameserver.stop(grace_s=0.1)
        nursery.cancel_scope.cancel()


def free_port() -> int:
    """Return a port that is free with its neighbours, of a range nobody dials from."""
    while True:
        port = random.choice(_PORTS)
        with ExitStack() as held:
            try:
                for each in (port - 2, port, port + 1):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            return port


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
