"""For tests of push consumers: listeners that remember, and looks into the broker."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.config import ConsumeFrom, PushConsumerConfig
from rmq.client.trio.opening import open_push_consumer
from tests.client.pull_kit import bodies, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Unpack

    from rmq.client.core.consuming.config import PushConsumerOptions
    from rmq.client.core.consuming.results import ListenerResult
    from rmq.client.core.consuming.subscription_set import Subscriptions
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.listener_pool import Listener
    from rmq.client.tasks.push_consumer import PushConsumer
    from tests.client.cluster_kit import Cluster

GROUP: Final = "readers"
ONE: Final = ("broker-a",)
QUICK_DELAYS: Final = {"messageDelayLevel": "0s 0s 0s 0s 0s 0s 0s 0s"}
"""Settings of a broker that delivers again what is sent back at once, whatever the level."""


class Collector:
    """A listener that remembers what it got, and returns what it is told to."""

    def __init__(self, *returned: object) -> None:
        """`returned` by its calls, one after the other; None once they are used up."""
        self.messages: list[ReceivedMessage] = []
        self._returned = list(returned)

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ListenerResult:
        self.messages += messages
        answer = self._returned.pop(0) if self._returned else None
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    @property
    def bodies(self) -> list[str]:
        return bodies(self.messages)

    @property
    def repeated(self) -> int:
        """How many messages came more often than once."""
        return sum(1 for count in Counter(self.bodies).values() if count > 1)

    async def wait(self, *texts: str) -> None:
        """Wait until all of these have come."""
        wanted = set(texts)
        await until(lambda: wanted.issubset(self.bodies))


@asynccontextmanager
async def consumer(
    it: Cluster,
    listener: Listener,
    subscriptions: Subscriptions = "Orders",
    *,
    group: str = GROUP,
    client: ClientConfig | None = None,
    **options: Unpack[PushConsumerOptions],
) -> AsyncIterator[PushConsumer]:
    """Run a consumer that starts with the first messages."""
    options.setdefault("consume_from", ConsumeFrom.FIRST)
    config = client or quick_client(it)
    async with open_push_consumer(config, group, subscriptions, listener, **options) as consumer:
        yield consumer


def quick_client(it: Cluster) -> ClientConfig:
    """Return a client that looks for new topics and brokers often."""
    return ClientConfig(nameservers=it.nameserver, route_refresh_s=0.2, request_timeout_s=2.0)


def quick(group: str = GROUP, **options: Unpack[PushConsumerOptions]) -> PushConsumerConfig:
    options.setdefault("consume_from", ConsumeFrom.FIRST)
    return PushConsumerConfig(group=group, **options)


def members(it: Cluster, group: str = GROUP, broker: str = "broker-a") -> tuple[str, ...]:
    """Return who is in a group, as a broker knows it."""
    found = it.brokers[broker].clients.consumer_group(group)
    return () if found is None else found.client_ids()


def committed(
    it: Cluster, topic: str = "Orders", group: str = GROUP, broker: str = "broker-a"
) -> dict[int, int]:
    """Return the offsets of a group by queue, as a broker knows them."""
    return dict(it.brokers[broker].offsets.offsets(group, topic))


async def wait_shared(queues: int, *consumers: PushConsumer) -> None:
    """Wait until each of so many queues, retry queues included, has one owner and all have some."""

    def is_shared() -> bool:
        held = [each.queues for each in consumers]
        owned = [queue for queues in held for queue in queues]
        return all(held) and len(owned) == len(set(owned)) == queues

    await until(is_shared)


async def die(it: PushConsumer) -> None:
    """Take from a consumer all that it would do at its end, as when its process is killed."""

    async def nothing(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    it.client.leave = nothing  # type: ignore[method-assign,assignment]
    it._assignment.close = nothing  # type: ignore[method-assign]
