"""What the cases of this check share: a cluster, mqadmin, and clients for it to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from interop.support.cases import expect
from interop.support.java_messages import Outgoing, Queue
from interop.support.mqadmin import Mqadmin, expect_in
from interop.support.printed import table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from interop.support.cases import Case
    from interop.support.cluster import Broker, Cluster
    from interop.support.java_client import Driver, DriverKit, Producer
    from interop.support.java_consumers import PullConsumer
    from interop.support.java_messages import Sent
    from interop.support.results import Operations

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "autoCreateTopicEnable": "false",
    # So small that a few megabytes leave files behind that can be deleted.
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "maxMessageSize": str(256 << 10),
    "cleanResourceInterval": "1000",
}
DATA: Final = "Data"
WATCHERS: Final = "watchers"
"""A group that has consumed all of `DATA` and is online."""


@dataclass(frozen=True)
class AdminSession:
    """One broker with one nameserver, mqadmin, and a stock client."""

    operations: Operations
    cluster: Cluster
    broker: Broker
    kit: DriverKit
    tool: Driver
    driver: Driver
    producer: Producer
    reader: PullConsumer

    def operation(
        self, command: str, what: str, *, timeout_s: float = 60
    ) -> AbstractContextManager[Case]:
        return self.operations.operation(command, what, timeout_s=timeout_s)

    async def mqadmin(self, command: str, *arguments: str) -> str:
        """Return what a command printed; it must not have printed any trace of a failure."""
        return await Mqadmin(self.tool, self.cluster.nameserver).run(command, *arguments)

    async def refused(self, command: str, *arguments: str) -> str:
        """Return why a command failed, as it must."""
        return await Mqadmin(self.tool, self.cluster.nameserver).refused(command, *arguments)

    # ---- what many commands need -----------------------------------------------------------------

    async def create_topic(self, topic: str, *, queues: int = 4) -> list[Queue]:
        """Create a topic on the broker; return its queues."""
        number = str(queues)
        output = await self.mqadmin(
            "updateTopic", "-b", self.broker.address, "-t", topic, "-r", number, "-w", number
        )
        expect_in(f"create topic to {self.broker.address} success.", output)
        return [Queue(topic, self.broker.name, queue_id) for queue_id in range(queues)]

    async def route(self, topic: str) -> tuple[int, int, int]:
        """Return read queues, write queues and permission of a topic on the broker."""
        output = await self.mqadmin("topicRoute", "-t", topic, "-l")
        (row, _) = table(output, columns=6)
        return int(row[3]), int(row[4]), int(row[5])

    async def topics(self) -> set[str]:
        return set((await self.mqadmin("topicList")).split())

    async def progress(self, group: str, topic: str) -> dict[int, tuple[int, int]]:
        """Return broker offset and consumer offset by queue."""
        output = await self.mqadmin("consumerProgress", "-g", group)
        return {
            int(row[2]): (int(row[3]), int(row[4]))
            for row in table(output, columns=7)
            if row[0] == topic
        }

    async def consume_all(self, group: str, topic: str, count: int) -> None:
        """Have a group consume a topic and leave; the broker then knows how far it came."""
        async with self.driver.push_consumer(f"once-{group}", group=group, topic=topic) as once:
            await once.wait_received(count)


@dataclass(frozen=True)
class Data:
    """The messages of `DATA`."""

    messages: list[Outgoing]
    sent: list[Sent]

    def in_queue(self, queue_id: int) -> list[int]:
        """Return the numbers of the messages of a queue, in their order."""
        return [n for n, answer in enumerate(self.sent) if answer.queue.queue_id == queue_id]


async def send_data(session: AdminSession) -> Data:
    """Fill `DATA` with twenty messages, each tenth with TagB."""
    await session.create_topic(DATA)
    outgoing = [
        Outgoing(DATA, f"data {n}".encode(), "TagB" if n % 10 == 9 else "TagA", f"data-{n} all")
        for n in range(20)
    ]
    sent = await session.producer.send(*outgoing)
    for answer in sent:
        expect("status", answer.status, "SEND_OK")
    return Data(outgoing, sent)
