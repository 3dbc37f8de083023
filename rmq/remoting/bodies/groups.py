"""Consumer groups: their settings on a broker, and lists of names and members."""

import msgspec

from rmq.remoting.bodies.base import Body
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.header import Int32, Int64


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True):
    """One group on one broker; request 200, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    """The id of the broker to read from as a rule; 0 is the master."""
    which_broker_when_consume_slowly: Int64 = 1
    """The id of the broker to read from when the wanted messages are no longer in memory."""
    notify_consumer_ids_changed_enable: bool = True


class SubscriptionGroupWrapper(Body, frozen=True, kw_only=True):
    """All groups of a broker: the answer to 201, GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(
        default_factory=dict
    )
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class GroupList(Body, frozen=True, kw_only=True):
    """The answer to 300, QUERY_TOPIC_CONSUME_BY_WHO: the groups that consume a topic."""

    group_list: frozenset[str] = frozenset()


class GetConsumerListByGroupResponseBody(Body, frozen=True, kw_only=True):
    """The answer to 38, GET_CONSUMER_LIST_BY_GROUP: the ids of the clients in a group."""

    consumer_id_list: tuple[str, ...] = ()
