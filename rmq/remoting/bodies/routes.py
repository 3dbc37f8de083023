"""Where topics live: the answers to GET_ROUTEINFO_BY_TOPIC (105), GET_BROKER_CLUSTER_INFO (106)."""

import msgspec

from rmq.remoting.bodies.base import Body
from rmq.remoting.header import Int32, Int64


class BrokerData(Body, frozen=True, kw_only=True):
    """The addresses of one broker group; id 0 is the master."""

    cluster: str | None = None
    broker_name: str
    broker_addrs: dict[Int64, str] = msgspec.field(default_factory=dict)


class QueueData(Body, frozen=True, kw_only=True):
    """How many queues a topic has on one broker group, and what may be done with them."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class TopicRouteData(Body, frozen=True, kw_only=True):
    """The route of one topic. Clients of version 401 and later get it encoded with `standard`."""

    order_topic_conf: str | None = None
    """Queues per broker of an ordered topic, as `broker-a:4;broker-b:4`."""
    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class ClusterInfo(Body, frozen=True, kw_only=True):
    """All broker groups, and which of them form a cluster. Never encoded with `standard`."""

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, frozenset[str]] = msgspec.field(default_factory=dict)
