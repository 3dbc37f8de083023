"""What the tests of connected clients share: connections without a network, and heartbeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.testing import memory_stream_pair

from rmq.broker.clients.registry import ClientIdentity, ClientRegistry
from rmq.remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rmq.remoting.channel import Channel, ChannelConfig
from rmq.remoting.codes import VERSION, LanguageCode
from rmq.remoting.dispatch import Dispatcher, HandlerTable
from rmq.remoting.endpoint import Endpoint, EndpointConfig
from rmq.remoting.transport import StreamTransport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.broker.clients.registry import ConsumerGroupInfo


def open_channel(peer: str = "192.0.2.1:50000") -> Channel:
    """Return an open connection on which nothing ever moves."""
    endpoint = Endpoint(
        dispatcher=Dispatcher(HandlerTable()),
        config=EndpointConfig(channel=ChannelConfig()),
        language=LanguageCode.JAVA,
        dials=False,
    )
    endpoint.now = lambda: 0.0
    near, _ = memory_stream_pair()
    return Channel(StreamTransport(near, peer=peer), endpoint)


def identity(client_id: str = "client-1", *, version: int = VERSION) -> ClientIdentity:
    return ClientIdentity(client_id, LanguageCode.JAVA, version)


def subscription(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version)


def consumer(
    group: str = "group",
    subscriptions: Sequence[SubscriptionData] = (),
    *,
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    message_model: MessageModel = MessageModel.CLUSTERING,
) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type=consume_type,
        message_model=message_model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=tuple(subscriptions),
    )


class Notices:
    """Writes down what a registry tells: of which group, and who is in it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[str, ...]]] = []
        self.newcomers: list[str | None] = []

    def __call__(self, group: ConsumerGroupInfo, newcomer: Channel | None) -> None:
        self.seen.append((group.name, tuple(channel.peer for channel in group.channels)))
        self.newcomers.append(None if newcomer is None else newcomer.peer)

    def take(self) -> list[tuple[str, tuple[str, ...]]]:
        seen, self.seen = self.seen, []
        self.newcomers = []
        return seen


class Clients:
    """A registry and what it has told."""

    def __init__(self) -> None:
        self.notices = Notices()
        self.registry = ClientRegistry(self.notices)

    def consume(
        self,
        channel: Channel,
        group: str = "group",
        client_id: str | None = None,
        *subscriptions: SubscriptionData,
        now: float = 0.0,
        notify: bool = True,
    ) -> bool:
        """Register a consumer that is called like its connection unless told otherwise."""
        return self.registry.register_consumer(
            group,
            channel,
            identity(client_id or channel.peer),
            consumer(group, subscriptions),
            now,
            notify=notify,
        )

    def produce(
        self, channel: Channel, group: str = "group", client_id: str | None = None, now: float = 0.0
    ) -> bool:
        return self.registry.register_producer(
            group, channel, identity(client_id or channel.peer), now
        )
