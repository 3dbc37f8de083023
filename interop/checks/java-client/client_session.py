"""What the cases of this check share: a cluster, a driver, one producer and one reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from interop.support.cluster import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interop.support.cluster import Broker, Cluster
    from interop.support.java_client import Driver, DriverKit, Producer
    from interop.support.java_consumers import PullConsumer
    from interop.support.java_messages import Queue
    from interop.support.results import Operations

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    # Levels 1 and 2 as they always are; retries, which begin at level 3, come soon.
    "messageDelayLevel": "1s 5s 1s 2s 3s",
}


@dataclass(frozen=True)
class ClientSession:
    """One broker with one nameserver, and stock clients that talk to them."""

    operations: Operations
    cluster: Cluster
    broker: Broker
    kit: DriverKit
    driver: Driver
    producer: Producer
    reader: PullConsumer

    async def create_topic(self, topic: str, *, queues: int = 4) -> list[Queue]:
        """Create a topic on every broker; return its queues."""
        await self.producer.create_topic(topic, queues=queues, key=CLUSTER)
        return await self.producer.queues(topic)
