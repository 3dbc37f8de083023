"""Which clients are connected to a broker, as admin tools ask for them."""

import msgspec

from rmq.remoting.bodies.base import Body
from rmq.remoting.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rmq.remoting.codes import LanguageCode
from rmq.remoting.header import Int32, Int64


class Connection(Body, frozen=True, kw_only=True):
    """One connected client."""

    client_id: str | None = None
    client_addr: str | None = None
    language: LanguageCode | None = None
    version: Int32 = 0


class ConsumerConnection(Body, frozen=True, kw_only=True):
    """The answer to 203, GET_CONSUMER_CONNECTION_LIST: the members of one group."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    """By topic."""
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body, frozen=True, kw_only=True):
    """The answer to 204, GET_PRODUCER_CONNECTION_LIST: the members of one group."""

    connection_set: tuple[Connection, ...] = ()


class ProducerInfo(Body, frozen=True, kw_only=True):
    """One connected producer, and when it was last heard of."""

    client_id: str | None = None
    remote_ip: str | None = msgspec.field(default=None, name="remoteIP")
    language: LanguageCode | None = None
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(Body, frozen=True, kw_only=True):
    """The answer to 328, GET_ALL_PRODUCER_INFO: all producers by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = msgspec.field(default_factory=dict)
