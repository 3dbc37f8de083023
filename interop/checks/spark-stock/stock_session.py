"""What the cases of this check share: stock servers, stock clients, ours, and Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio
from seen_rows import our_row, stock_row

from interop.support.cluster import CLUSTER
from interop.support.java_messages import Queue
from interop.support.mqadmin import Mqadmin
from interop.support.topics import create_topics, max_offset
from interop.support.waiting import wait_until
from rmq.client.blocking import BlockingConsumer, BlockingProducer
from rmq.client.core.messages import Message
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from spark_side import SparkSide

    from interop.support.cases import Case
    from interop.support.cluster import Broker, Cluster
    from interop.support.java_client import Driver
    from interop.support.java_client import Producer as JavaProducer
    from interop.support.java_consumers import PullConsumer
    from interop.support.java_messages import Outgoing
    from interop.support.results import Operations

    Row = dict[str, Any]

SEGMENT_BYTES: Final = 4 << 20
"""So small that the messages of this check fill several."""
BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "maxMessageSize": str(2 << 20),
    # Retries, which begin at level 3, come soon.
    "messageDelayLevel": "1s 5s 1s 2s 3s",
    # Refuse no sends because the machine is slow.
    "waitTimeMillsInSendQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
}
FIRST: Final = "SparkFirst"
_BATCH: Final = 500
_VISIBLE_WITHIN_S: Final = 20


@dataclass(frozen=True)
class StockSession:
    """Two masters under one nameserver; most topics are on the first one only."""

    operations: Operations
    cluster: Cluster
    broker: Broker
    other: Broker
    driver: Driver
    java: JavaProducer
    """A producer of the stock client."""
    reader: PullConsumer
    """A pull consumer of the stock client."""
    spark: SparkSide
    folder: Path
    """For tables and checkpoints."""

    @property
    def nameserver(self) -> str:
        return self.cluster.nameserver

    @property
    def mqadmin(self) -> Mqadmin:
        return Mqadmin(self.driver, self.cluster.nameserver)

    @property
    def store(self) -> Path:
        """The store directory of the first broker."""
        return self.broker.folder / "store"

    def operation(
        self, part: str, name: str, *, timeout_s: float = 120
    ) -> AbstractContextManager[Case]:
        return self.operations.operation(part, name, timeout_s=timeout_s)

    async def create_topic(self, topic: str, *, queues: int = 4) -> list[Queue]:
        """Create a topic on the first broker; return its queues."""
        await create_topics(self.cluster, self.broker, {topic: queues})
        return [Queue(topic, self.broker.name, queue_id) for queue_id in range(queues)]

    async def fill_first(self) -> None:
        """Store a message of a topic that is deleted then: the first one in the log.

        When its segment is gone, a stock broker gives out other bytes in its place (it reads
        physical offset 0 in the first segment that is left), which is no message.
        """
        await self.create_topic(FIRST, queues=1)
        await self.fill(FIRST, [b"first"])
        await self.wait_visible(FIRST, [1])
        await self.mqadmin.run("deleteTopic", "-c", CLUSTER, "-t", FIRST)

    async def fill(self, topic: str, bodies: Sequence[bytes], queue_id: int = 0) -> None:
        """Send plain messages to one queue of the first broker, with our client, many at once."""
        queue = MessageQueue(topic=topic, broker_name=self.broker.name, queue_id=queue_id)

        def send() -> None:
            with BlockingProducer(self.nameserver, "py-fillers") as producer:
                for first in range(0, len(bodies), _BATCH):
                    batch = [Message(topic, body) for body in bodies[first : first + _BATCH]]
                    producer.send_batch(batch, queue=queue)

        await trio.to_thread.run_sync(send)

    async def wait_visible(self, topic: str, counts: Sequence[int]) -> None:
        """Wait until the queues of a topic on the first broker end at these offsets."""

        async def are_visible() -> bool:
            ends = [await max_offset(self.broker, topic, queue) for queue in range(len(counts))]
            return ends == list(counts)

        await wait_until(f"{counts} in {topic}", are_visible, timeout_s=_VISIBLE_WITHIN_S)

    async def stock_rows(self, *topics: str, count: int = 0) -> list[Row]:
        """Return what the stock client reads, all of at least `count` messages."""
        rows: list[Row] = []
        for topic in topics:
            at_least = count if len(topics) == 1 else 0
            read = await self.reader.read_topic(topic, count=at_least)
            rows += [stock_row(message) for message in read]
        return rows

    async def our_rows(self, *topics: str) -> list[Row]:
        """Return what our blocking client reads."""

        def read() -> list[Row]:
            with BlockingConsumer(self.nameserver, "py-readers") as consumer:
                return [
                    our_row(message)
                    for topic in topics
                    for queue in consumer.queues(topic)
                    for message in consumer.read_range(
                        queue, consumer.begin_offset(queue), consumer.end_offset(queue)
                    )
                ]

        return await trio.to_thread.run_sync(read)


def as_messages(outgoing: Sequence[Outgoing]) -> list[Message]:
    """Return messages as our producer takes them."""
    return [
        Message(
            message.topic,
            message.body,
            tag=message.tags,
            keys=tuple(message.keys.split()) if message.keys else (),
            delay_level=message.delay_level or 0,
            properties=dict(message.properties),
        )
        for message in outgoing
    ]
