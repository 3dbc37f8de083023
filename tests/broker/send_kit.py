"""A broker whose store is in memory, and producers that speak frames by hand.

The parts and their wiring are those of `rmq.broker.broker`; the store's files live in a
`MemoryStorage`, so that tests can take the power or fail the disk, and only the tables are written
to a real folder. Wall-clock time stands still until a test moves it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from rmq.broker.broker import Broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.broker.origin import Origin
from rmq.broker.tables.saved import Tables
from rmq.ha.identity import HaIdentity
from rmq.model.offsets import QueueOffset
from rmq.model.properties import decode_properties, encode_properties
from rmq.model.record import NewMessage, StoredRecord, decode_records, pack_host
from rmq.remoting.codes import FLAG_ONEWAY, VERSION, RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import (
    ConsumerSendMsgBackRequest,
    SendMessageRequest,
    SendMessageRequestV2,
)
from rmq.store.core import StoreCore
from rmq.store.store import THREADS, MessageStore
from rmq.testing.storage import MemoryStorage
from tests.remoting.server_kit import Frame, Peer, Served, serving
from tests.store.running import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from rmq.remoting.bodies import TopicConfig
    from rmq.remoting.header import Header

TOPIC: Final = "TopicA"
START_MS: Final = 1_700_000_000_000
BROKER_IP: Final = "10.0.0.1"
BROKER_PORT: Final = 10911
STORE_HOST: Final = pack_host(BROKER_IP, BROKER_PORT)
CLUSTER: Final = "DefaultCluster"
PRODUCER: Final = "10.0.0.9:40000"
BORN_MS: Final = 1_699_999_999_000

SMALL_STORE: Final = {
    "mappedFileSizeCommitLog": str(256 * 1024),
    "mappedFileSizeConsumeQueue": str(100 * 20),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}


class WallClock:
    """The time of day, in milliseconds; moves when it is told to."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def text(**pairs: str) -> str:
    """Return properties as a client sends them."""
    return encode_properties(pairs).decode()


def send_header(
    topic: str = TOPIC,
    *,
    queue_id: int = 0,
    properties: str | None = None,
    sys_flag: int = 0,
    flag: int = 0,
    batch: bool = False,
    unit_mode: bool = False,
    reconsume_times: int | None = 0,
    max_reconsume_times: int | None = None,
    default_topic: str = "TBW102",
    queues: int = 4,
) -> SendMessageRequestV2:
    return SendMessageRequestV2(
        producer_group="group",
        topic=topic,
        default_topic=default_topic,
        default_topic_queue_nums=queues,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=BORN_MS,
        flag=flag,
        properties=properties,
        reconsume_times=reconsume_times,
        unit_mode=unit_mode,
        max_reconsume_times=max_reconsume_times,
        batch=batch,
    )


def frame(
    code: RequestCode,
    header: Header,
    body: bytes = b"",
    *,
    opaque: int = 1,
    oneway: bool = False,
    version: int = VERSION,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    head = encode_frame(
        code=code,
        flag=FLAG_ONEWAY if oneway else 0,
        opaque=opaque,
        header=header,
        body_length=len(body),
        version=version,
        serialization=serialization,
    )
    return head + body


def send_frame(
    topic: str = TOPIC,
    body: bytes = b"body",
    *,
    opaque: int = 1,
    oneway: bool = False,
    version: int = VERSION,
    serialization: Serialization = Serialization.JSON,
    queue_id: int = 0,
    properties: str | None = None,
    sys_flag: int = 0,
    flag: int = 0,
    unit_mode: bool = False,
    reconsume_times: int | None = 0,
    max_reconsume_times: int | None = None,
    default_topic: str = "TBW102",
    queues: int = 4,
) -> bytes:
    """Return a send as a stock producer writes it."""
    header = send_header(
        topic,
        queue_id=queue_id,
        properties=properties,
        sys_flag=sys_flag,
        flag=flag,
        unit_mode=unit_mode,
        reconsume_times=reconsume_times,
        max_reconsume_times=max_reconsume_times,
        default_topic=default_topic,
        queues=queues,
    )
    return frame(
        RequestCode.SEND_MESSAGE_V2,
        header,
        body,
        opaque=opaque,
        oneway=oneway,
        version=version,
        serialization=serialization,
    )


def send_frame_v1(header: SendMessageRequestV2, body: bytes = b"body", *, opaque: int = 1) -> bytes:
    """Return a send under the names that old clients use."""
    v1: SendMessageRequest = header.to_v1()
    return frame(RequestCode.SEND_MESSAGE, v1, body, opaque=opaque)


def batch_frame(
    body: bytes,
    topic: str = TOPIC,
    *,
    queue_id: int = 0,
    properties: str | None = None,
    sys_flag: int = 0,
    opaque: int = 1,
    oneway: bool = False,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    header = send_header(
        topic, queue_id=queue_id, properties=properties, sys_flag=sys_flag, batch=True
    )
    return frame(
        RequestCode.SEND_BATCH_MESSAGE,
        header,
        body,
        opaque=opaque,
        oneway=oneway,
        serialization=serialization,
    )


def send_back_frame(
    offset: int,
    group: str = "group",
    *,
    delay_level: int = 0,
    max_reconsume_times: int | None = None,
    unit_mode: bool = False,
    version: int = VERSION,
    opaque: int = 1,
) -> bytes:
    header = ConsumerSendMsgBackRequest(
        offset=offset,
        group=group,
        delay_level=delay_level,
        max_reconsume_times=max_reconsume_times,
        unit_mode=unit_mode,
    )
    return frame(RequestCode.CONSUMER_SEND_MSG_BACK, header, opaque=opaque, version=version)


class SendBroker:
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
        self.store = broker.store
        self.core = broker.store._core
        self.served: Served
        self.limiter: trio.CapacityLimiter
        self.nursery: trio.Nursery

    def start_creation(self) -> None:
        """Begin to create topics that are sent to."""
        self.nursery.start_soon(self.broker.tables.creation.run)

    def attach(self, name: str = PRODUCER) -> Peer:
        return self.served.attach(name)

    async def send(self, sent: bytes) -> Frame:
        """Send one frame over a connection of its own and return the answer."""
        return await self.attach().request(sent)

    async def create_topic(self, topic: str = TOPIC, queues: int = 4) -> None:
        """Have a topic, in memory and in its file."""
        self.topics.create_on_send_back(topic, queues)
        await self.tables.topics_writer.save_now()

    async def make_queues(self, topic: str = TOPIC, queues: int = 4) -> None:
        """Make the files of queues: sends to them need not wait for that."""
        await self.store.make_queues((topic, queue_id) for queue_id in range(queues))

    async def settle(self, *, held: int = 0) -> None:
        """Wait until nothing happens any more but for threads that are held."""
        await settle(self.limiter, held=held)

    async def settle_topics(self) -> None:
        """Wait until new topics and queues have their files, and what waited for them is done."""
        await self.settle()
        while self.tables.topics_writer.is_unsaved:
            await self.tables.topics_writer.save_now()
            await self.settle()

    def topic(self, name: str = TOPIC) -> TopicConfig:
        topic = self.topics.get(name)
        assert topic is not None, f"there is no topic {name}"
        return topic

    def change_topic(self, name: str = TOPIC, **changes: object) -> None:
        """Let a topic have other settings."""
        self.topics.put(msgspec.structs.replace(self.topic(name), **changes))

    def update(self, **changes: str) -> None:
        """Change settings while the broker runs."""
        self.live.update(changes, now_ms=self.clock())

    def records(self, topic: str = TOPIC, queue_id: int = 0) -> list[StoredRecord]:
        """Return all messages of a queue."""
        found: list[StoredRecord] = []
        while views := self.store.reads.get(topic, queue_id, QueueOffset(len(found)), 32).records:
            found += (record for view in views for record in decode_records(view))
        return found

    def record(self, topic: str = TOPIC, queue_id: int = 0) -> StoredRecord:
        """Return the only message of a queue."""
        (record,) = self.records(topic, queue_id)
        return record

    def bodies(self, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]


@asynccontextmanager
async def send_broker(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    storage: MemoryStorage | None = None,
    clock: WallClock | None = None,
    creates_topics: bool = True,
    has_topic: bool = True,
) -> AsyncIterator[SendBroker]:
    """Serve a broker for the length of the block, without nameservers and without delivery.

    Topics are created by sending unless `creates_topics` says not yet.
    """
    clock = clock or WallClock()
    storage = storage if storage is not None else MemoryStorage(now_ms=clock)
    wanted = {
        **SMALL_STORE,
        "storePathRootDir": str(folder),
        "brokerIP1": BROKER_IP,
        "brokerIP2": BROKER_IP,
        "brokerName": "broker-a",
        **(settings or {}),
    }
    live = LiveConfig(load_broker_config(None, wanted, {}), now_ms=clock())
    store_host = pack_host(live.current.broker_ip1, live.current.listen_port)
    core = StoreCore(live.current.store, storage=storage, store_host=store_host, now_ms=clock)
    limiter = trio.CapacityLimiter(THREADS)
    store = MessageStore(core, limiter)
    tables = Tables(live.current, clock)
    identity = HaIdentity(bytes(16))
    broker = Broker(live, tables, store, identity, Origin(store_host, clock))
    kit = SendBroker(broker, tables, storage, clock)
    kit.limiter = limiter
    try:
        async with (
            trio.open_nursery() as nursery,
            serving(broker.table, listeners=[broker]) as kit.served,
        ):
            for job in store.jobs():
                nursery.start_soon(job)
            nursery.start_soon(tables.topics_writer.run, None)
            nursery.start_soon(broker.new_queues.run)
            nursery.start_soon(broker.large_batches.run)
            kit.nursery = nursery
            if creates_topics:
                kit.start_creation()
            if has_topic:
                await kit.create_topic()
            await kit.settle()
            yield kit
            nursery.cancel_scope.cancel()
    finally:
        core.release()
        store.end_waits()


def ext(answer: Frame) -> dict[str, str]:
    """Return the header fields of an answer."""
    assert answer.fields is not None, answer
    return answer.fields


def pairs(record: StoredRecord) -> dict[str, str]:
    """Return the properties of a record, which must not name one twice."""
    found = decode_properties(record.properties_bytes)
    assert record.properties_bytes.count(b"\x01") == len(found), record.properties_bytes
    return found


def put_work(broker: SendBroker, **fields: Any) -> int:  # noqa: ANN401 - any field of NewMessage
    """Store a message as a consumer reads it; return its physical offset."""
    settings: dict[str, Any] = {
        "topic": TOPIC,
        "queue_id": 2,
        "body": b"work",
        "properties": b"KEYS\x01k\x02TAGS\x01TagA",
        "born_ms": 77,
        "born_host": pack_host("10.1.1.1", 5),
    }
    (result,) = broker.store.append([NewMessage(**(settings | fields))])
    return result.physical_offset
