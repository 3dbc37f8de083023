"""What the cases of this check share: a cluster, the stock client, and ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from our_messages import as_sent, ours

from interop.support.java_messages import Queue
from interop.support.mqadmin import Mqadmin
from interop.support.topics import create_topics
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.trio.opening import open_push_consumer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from inbox import Inbox

    from interop.support.cases import Case
    from interop.support.cluster import Against, Broker, Cluster
    from interop.support.java_client import Driver, DriverKit
    from interop.support.java_client import Producer as JavaProducer
    from interop.support.java_consumers import PullConsumer
    from interop.support.java_messages import Outgoing, Sent
    from interop.support.results import Operations
    from rmq.client.core.consuming.subscription_set import Subscriptions
    from rmq.client.tasks.producer import Producer
    from rmq.client.tasks.push_consumer import PushConsumer

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    # Levels 1 and 2 as they always are; retries, which begin at level 3, come soon.
    "messageDelayLevel": "1s 5s 1s 2s 3s",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
    # Refuse no sends because the machine is slow.
    "waitTimeMillsInSendQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
}


@dataclass(frozen=True)
class PythonSession:
    """One broker with one nameserver, stock clients and our own."""

    operations: Operations
    against: Against
    cluster: Cluster
    broker: Broker
    kit: DriverKit
    driver: Driver
    java: JavaProducer
    """A producer of the stock client."""
    reader: PullConsumer
    """A pull consumer of the stock client."""
    producer: Producer
    """A producer of ours."""

    @property
    def nameserver(self) -> str:
        return self.cluster.nameserver

    @property
    def mqadmin(self) -> Mqadmin:
        return Mqadmin(self.driver, self.cluster.nameserver)

    def operation(
        self, part: str, name: str, *, timeout_s: float = 60
    ) -> AbstractContextManager[Case]:
        return self.operations.operation(part, name, timeout_s=timeout_s)

    async def create_topic(self, topic: str, *, queues: int = 4) -> list[Queue]:
        """Create a topic on the broker; return its queues."""
        await create_topics(self.cluster, self.broker, {topic: queues})
        return [Queue(topic, self.broker.name, queue_id) for queue_id in range(queues)]

    def config(self, **options: Any) -> ClientConfig:  # noqa: ANN401 - whatever it has
        return ClientConfig(nameservers=self.nameserver, **options)

    async def send(self, *messages: Outgoing) -> list[Sent]:
        """Send messages with our producer, one after the other."""
        return [as_sent(await self.producer.send(ours(message))) for message in messages]

    def push_consumer(
        self,
        group: str,
        subscriptions: Subscriptions,
        inbox: Inbox,
        *,
        config: ClientConfig | None = None,
        **options: Any,  # noqa: ANN401 - whatever it has
    ) -> AbstractAsyncContextManager[PushConsumer]:
        """Run a push consumer of ours, from the beginning if its group is new."""
        options.setdefault("consume_from", ConsumeFrom.FIRST)
        return open_push_consumer(config or self.config(), group, subscriptions, inbox, **options)
