"""Request 34, HEART_BEAT: the producer and consumer groups of one client process."""

import msgspec

from rmq.remoting.bodies.base import Body
from rmq.remoting.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)


class ProducerData(Body, frozen=True, kw_only=True):
    """A producer group of the client."""

    group_name: str


class ConsumerData(Body, frozen=True, kw_only=True):
    """A consumer group of the client, with everything it subscribes to."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True, kw_only=True):
    """The body of HEART_BEAT."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
