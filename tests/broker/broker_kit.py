"""Brokers for tests of pulls, offsets, admin requests and a broker's life, and peers to ask them.

`part_broker` is a whole broker but for its sockets, its nameservers and the delivery of delayed
messages: the parts and their wiring are those of `rmq.broker.broker`, the store's files are in a
`MemoryStorage`, peers are connected over memory. Both clocks stand still until a test moves them.
`live_broker` is the real thing, on two ports of the loopback interface and in a real directory.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import trio
import trio.testing

from rmq.broker.broker import Broker, serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.broker.origin import Origin
from rmq.broker.tables.saved import Tables
from rmq.ha.identity import HaIdentity
from rmq.model.offsets import QueueOffset
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage, StoredRecord, decode_records, pack_host
from rmq.remoting.bodies import TopicConfig
from rmq.remoting.codes import FLAG_ONEWAY, ResponseCode
from rmq.store.append import AppendResult, AppendStatus
from rmq.store.core import StoreCore
from rmq.store.store import THREADS, MessageStore
from rmq.testing.storage import MemoryStorage
from tests.broker.broker_frames import GROUP, START_MS, TOPIC, frame, heartbeat
from tests.port_shares import own_share
from tests.remoting.server_kit import Frame, Peer, Served, serving
from tests.store.running import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from rmq.remoting.bodies import Body, ConsumerData
    from rmq.remoting.codes import RequestCode
    from rmq.remoting.header import Header

B = TypeVar("B", bound="Body")

STORE_HOST: Final = pack_host("192.0.2.1", 10911)

SMALL_STORE: Final = {
    "mappedFileSizeCommitLog": str(256 * 1024),
    "mappedFileSizeConsumeQueue": str(100 * 20),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
# How full the disk of the machine is must not matter, nor how busy its processors are.
NEVER_FULL: Final = {
    "waitTimeMillsInSendQueue": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
}
_DEADLINE_S: Final = 30.0
_VIRTUAL_DEADLINE_S: Final = 3_600.0


class WallClock:
    """The time of day, in milliseconds; moves when it is told to."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


# --- a broker in memory --------------------------------------------------------------------------


class PartBroker:
    """The parts of a broker, and the peers connected to it."""

    def __init__(
        self, broker: Broker, tables: Tables, storage: MemoryStorage, clock: WallClock
    ) -> None:
        self.broker = broker
        self.tables = tables
        self.storage = storage
        self.clock = clock
        self.live = broker.live
        self.topics = broker.topics
        self.groups = broker.groups
        self.offsets = broker.offsets
        self.clients = broker.clients
        self.pulls = broker.pulls
        self.store = broker.store
        self.core = broker.store._core
        self.served: Served
        self.limiter: trio.CapacityLimiter

    # --- asking ---

    def attach(self, name: str = "10.0.0.9:40000") -> Peer:
        return self.served.attach(name)

    async def ask(self, request: bytes) -> Frame:
        """Send one request over a connection of its own and return the answer."""
        return await self.attach().request(request)

    async def call(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Frame:
        return await self.ask(frame(code, header, body))

    async def get(self, kind: type[B], code: RequestCode, header: Header | None = None) -> B:
        """Return the body of an answer that must be a success."""
        answer = await self.call(code, header)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None), answer
        return kind.decode(answer.body)

    async def join(self, client_id: str, *consumers: ConsumerData) -> Peer:
        """Connect a consumer and send its heartbeat; read all that comes of it."""
        peer = self.attach(client_id)
        await peer.send(heartbeat(client_id, *consumers))
        while (answer := await peer.read()).opaque != 1 or answer.flag == FLAG_ONEWAY:
            pass
        assert answer.code == ResponseCode.SUCCESS, answer
        return peer

    async def hold(self, peer: Peer, request: bytes) -> None:
        """Send a pull that must be held."""
        before = len(self.pulls.holds)
        await peer.send(request)
        await trio.testing.wait_all_tasks_blocked()
        assert len(self.pulls.holds) == before + 1, "the pull was not held"

    # --- changing ---

    def create_topic(self, topic: str = TOPIC, queues: int = 4, perm: int = 6) -> None:
        self.topics.put(
            TopicConfig(
                topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm
            )
        )

    def change_topic(self, topic: str = TOPIC, **changes: object) -> None:
        config = self.topics.get(topic)
        assert config is not None, f"there is no topic {topic}"
        self.topics.put(msgspec.structs.replace(config, **changes))

    def change_group(self, group: str = GROUP, **changes: object) -> None:
        config = self.groups.find(group)
        assert config is not None, f"there is no group {group}"
        self.groups.put(msgspec.structs.replace(config, **changes))

    def update(self, **changes: str) -> None:
        """Change settings while the broker runs."""
        self.live.update(changes, now_ms=self.clock())

    def put(
        self,
        *bodies: bytes,
        topic: str = TOPIC,
        queue_id: int = 0,
        tags: str = "",
        **properties: str,
    ) -> list[AppendResult]:
        """Store messages, all of them in one step."""
        pairs = {**properties, **({"TAGS": tags} if tags else {})}
        encoded = encode_properties(pairs)
        results = self.store.append([NewMessage(topic, queue_id, body, encoded) for body in bodies])
        assert {result.status for result in results} == {AppendStatus.PUT_OK}, results
        return results

    def put_many(self, count: int, *, topic: str = TOPIC, queue_id: int = 0) -> None:
        self.put(*(b"%d" % number for number in range(count)), topic=topic, queue_id=queue_id)

    def expire_log(self, *, queues_follow: bool = True) -> None:
        """Let all of the log go but the segment in use, as after the reserved time."""
        core = self.core
        core.flush()
        point = core.plan_point()
        if point is not None:
            point.run()
            core.finish_point(point)
        self.clock.ms += 73 * 3_600_000
        core.retention.arm_manual_deletion()
        core.plan_expiry(0).run()
        if queues_follow:
            core.follow_log()

    async def settle(self, *, held: int = 0) -> None:
        """Wait until nothing happens any more but for threads that are held."""
        await settle(self.limiter, held=held)

    async def pass_time(self, seconds: float, *, step: float = 1.0) -> None:
        """Let the monotonic clock go on, in steps after each of which everything settles."""
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        while seconds > 0:
            clock.jump(min(step, seconds))
            self.clock.ms += int(min(step, seconds) * 1000)
            seconds -= step
            await self.settle()

    # --- looking ---

    @property
    def unanswered(self) -> int:
        """How many pulls the dispatcher counts as not answered."""
        return self.served.group("pull").unanswered

    def watched(self) -> set[tuple[str, int]]:
        """Return the queues whose messages are announced."""
        return {(queue.topic, queue.queue_id) for queue in self.core.queues if queue.is_watched}

    def records(self, topic: str = TOPIC, queue_id: int = 0) -> list[StoredRecord]:
        """Return all messages of a queue."""
        found: list[StoredRecord] = []
        while views := self.store.reads.get(topic, queue_id, QueueOffset(len(found)), 32).records:
            found += (record for view in views for record in decode_records(view))
        return found


@asynccontextmanager
async def part_broker(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    storage: MemoryStorage | None = None,
    memory_bytes: int | None = None,
    config_path: Path | None = None,
    has_topic: bool = True,
) -> AsyncIterator[PartBroker]:
    """Serve a broker for the length of the block, without nameservers and without delivery.

    `memory_bytes` is how much memory the machine has: what is further behind is likely on disk.
    """
    clock = WallClock()
    storage = storage if storage is not None else MemoryStorage(now_ms=clock)
    wanted = {
        **SMALL_STORE,
        **NEVER_FULL,
        "storePathRootDir": str(folder),
        "brokerIP1": "192.0.2.1",
        "brokerIP2": "192.0.2.1",
        "brokerName": "broker-a",
        **(settings or {}),
    }
    live = LiveConfig(load_broker_config(config_path, wanted, {}), now_ms=clock())
    store_host = pack_host(live.current.broker_ip1, live.current.listen_port)
    core = StoreCore(
        live.current.store,
        storage=storage,
        store_host=store_host,
        now_ms=clock,
        memory_bytes=memory_bytes,
    )
    limiter = trio.CapacityLimiter(THREADS)
    store = MessageStore(core, limiter)
    tables = Tables(live.current, clock)
    identity = HaIdentity(bytes(16))
    broker = Broker(live, tables, store, identity, Origin(store_host, clock))
    kit = PartBroker(broker, tables, storage, clock)
    kit.limiter = limiter
    try:
        async with (
            trio.open_nursery() as nursery,
            serving(broker.table, listeners=[broker]) as kit.served,
        ):
            for task in (
                *store.jobs(),
                broker.pulls.run,
                broker.tables.creation.run,
                broker.new_queues.run,
                broker.large_batches.run,
            ):
                nursery.start_soon(task)
            for writer in (tables.topics_writer, tables.groups_writer):
                nursery.start_soon(writer.run, None)
            if has_topic:
                kit.create_topic()
            await kit.settle()
            yield kit
            nursery.cancel_scope.cancel()
    finally:
        core.release()
        store.end_waits()


# --- a broker on sockets -------------------------------------------------------------------------


# Below the range that systems take the ports of outgoing connections from: a broker comes back to
# its port after a restart, and no client may have got it meanwhile.
_PORTS: Final = own_share(range(12_000, 20_000))


def free_port() -> int:
    """Return a port that is free, together with the one two below it and the next one."""
    while True:
        port = random.choice(_PORTS)
        with ExitStack() as held:
            try:
                for each in (port, port - 2, port + 1):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            return port


def live_config(
    root: Path,
    settings: Mapping[str, str] | None = None,
    *,
    port: int | None = None,
    config_path: Path | None = None,
) -> LiveConfig:
    """Return the settings of a broker on free ports with small files."""
    wanted = {
        **SMALL_STORE,
        **NEVER_FULL,
        "storePathRootDir": str(root),
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "brokerName": "broker-a",
        "namesrvAddr": "",
        "listenPort": str(port or free_port()),
        **(settings or {}),
    }
    return LiveConfig(load_broker_config(config_path, wanted, {}), now_ms=START_MS)


class LiveBroker:
    """A broker on sockets, and the peers that dialled it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.port = broker.server.port
        self.vip_port = broker.vip_server.port
        self.ended = trio.Event()
        """Set when `serve_broker` has returned."""
        self._peers: list[Peer] = []

    async def dial(self, port: int | None = None) -> Peer:
        peer = Peer(await trio.open_tcp_stream("127.0.0.1", port or self.port))
        self._peers.append(peer)
        return peer

    async def ask(self, request: bytes, *, port: int | None = None) -> Frame:
        peer = await self.dial(port)
        try:
            return await peer.request(request)
        finally:
            await peer.aclose()

    async def wait_held(self, count: int) -> None:
        """Wait until so many pulls are held."""
        while len(self.broker.pulls.holds) < count:
            await trio.testing.wait_all_tasks_blocked(0.001)

    async def stop(self) -> None:
        self.broker.stop()
        await self.ended.wait()

    async def aclose(self) -> None:
        for peer in self._peers:
            await peer.aclose()


@asynccontextmanager
async def live_broker(
    live: LiveConfig, *, now_ms: Callable[[], int] | None = None
) -> AsyncIterator[LiveBroker]:
    """Run a broker for the length of the block; it is stopped in good order at the end."""
    served: LiveBroker

    async def serve(task_status: trio.TaskStatus[LiveBroker]) -> None:
        nonlocal served
        async with trio.open_nursery() as inner:
            if now_ms is None:
                broker = await inner.start(serve_broker, live)
            else:
                broker = await inner.start(lambda **kw: serve_broker(live, now_ms=now_ms, **kw))
            served = LiveBroker(broker)
            task_status.started(served)
        served.ended.set()

    is_virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    with trio.fail_after(_VIRTUAL_DEADLINE_S if is_virtual else _DEADLINE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda **kw: serve(**kw))
            try:
                yield served
            finally:
                served.broker.stop()
                with trio.CancelScope(shield=True):
                    await served.aclose()
