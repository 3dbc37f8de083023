"""Headers about connected clients: leaving, and asking which ones there are.

Heartbeats and queue locks have bodies only.
"""

from msgspec import field

from rmq.remoting.header import Header, Int32


class UnregisterClientRequest(Header, frozen=True, kw_only=True):
    """35 UNREGISTER_CLIENT: a client leaves a producer group or a consumer group."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequest(Header, frozen=True, kw_only=True):
    """38 GET_CONSUMER_LIST_BY_GROUP: the client ids a consumer shares its queues with."""

    consumer_group: str


class GetConsumerConnectionListRequest(Header, frozen=True, kw_only=True):
    """203 GET_CONSUMER_CONNECTION_LIST: who consumes in a group, and what."""

    consumer_group: str


class GetProducerConnectionListRequest(Header, frozen=True, kw_only=True):
    """204 GET_PRODUCER_CONNECTION_LIST: who produces in a group."""

    producer_group: str


class RegisterMessageFilterClassRequest(Header, frozen=True, kw_only=True):
    """302 REGISTER_MESSAGE_FILTER_CLASS: Java source of a filter, in class filter mode only.

    Consumers send it to filter servers, which 4.9.8 no longer has; brokers do not serve it.
    """

    consumer_group: str
    topic: str
    class_name: str
    class_crc: Int32 = field(name="classCRC")
