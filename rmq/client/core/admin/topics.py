"""Topics for admin tools: create, delete, list, where they are and what they hold. Pure.

As with mqadmin, a topic is created on every master of a cluster or on one broker, and deleted on
every master of a cluster and then at all nameservers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.nameservers import set_topic_order
from rmq.client.core.admin.targets import (
    TIMEOUT_S,
    change_each,
    cluster_groups,
    groups_for,
    groups_of,
    only_cluster,
    read_broker,
    read_each,
)
from rmq.client.core.flows import ask, expect
from rmq.client.core.messages import check_topic
from rmq.client.core.routes import Address
from rmq.errors import NoBrokerError, NoRouteError
from rmq.model.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, MASTER_ID, RETRY_PREFIX
from rmq.model.topic_flags import PERM_READ_WRITE
from rmq.remoting.bodies import (
    GroupList,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
    TopicRouteData,
    TopicStatsTable,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    DeleteTopicFromNamesrvRequest,
    DeleteTopicRequest,
    GetRouteInfoRequest,
    GetTopicsByClusterRequest,
    GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest,
)

if TYPE_CHECKING:
    from rmq.client.core.admin.targets import Failure, Group
    from rmq.client.core.flows import Answer, Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import TopicConfig

QUEUES: Final = 8
"""Queues of a topic that is created without saying how many, as mqadmin has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """What one queue holds."""

    min_offset: int
    """Of the first message that can be read."""
    max_offset: int
    """That the next message will get."""
    updated_at_ms: int
    """When its last message was stored, 0 if it never had one."""

    @property
    def count(self) -> int:
        """How many messages can be read, those that a filter drops included."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """What a topic holds."""

    topic: str
    queues: dict[MessageQueue, QueueRange]
    failures: tuple[Failure, ...]
    """Brokers whose queues are missing."""

    @property
    def count(self) -> int:
        """How many messages can be read."""
        return sum(queue.count for queue in self.queues.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroups:
    """Who consumes a topic."""

    groups: tuple[str, ...]
    failures: tuple[Failure, ...]


# --- lists ------------------------------------------------------------------------------------


def list_topics(nameservers: Nameservers, *, cluster: str | None = None) -> Flow[tuple[str, ...]]:
    """Return the names of all topics, or of those of a cluster."""
    if cluster is None:
        answer = yield from nameservers.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    else:
        header = GetTopicsByClusterRequest(cluster=cluster)
        answer = yield from nameservers.ask(RequestCode.GET_TOPICS_BY_CLUSTER, header)
    return tuple(sorted(expect(answer).body(TopicList).topic_list))


def list_system_topics(nameservers: Nameservers) -> Flow[tuple[str, ...]]:
    """Return the topics that brokers have by themselves, their names and clusters included."""
    answer = yield from nameservers.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    told = expect(answer).body(TopicList)
    names = set(told.topic_list)
    if told.broker_addr:
        names |= yield from broker_system_topics(nameservers, told.broker_addr)
    return tuple(sorted(names))


def broker_system_topics(nameservers: Nameservers, broker: str) -> Flow[frozenset[str]]:
    """Return the topics that one broker has by itself."""
    answer = yield from read_broker(
        nameservers,
        broker,
        lambda target: ask(
            target.address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, timeout_s=TIMEOUT_S
        ),
    )
    return answer.body(TopicList).topic_list


def topic_configs(
    nameservers: Nameservers, broker: str, *, only_own: bool = False
) -> Flow[dict[str, TopicConfig]]:
    """Return the settings of all topics of a broker.

    `only_own` leaves out those that brokers have by themselves, and those of retries and dead
    letters.
    """
    answer = yield from read_broker(
        nameservers,
        broker,
        lambda target: ask(target.address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=TIMEOUT_S),
    )
    table = answer.body(TopicConfigSerializeWrapper).topic_config_table
    if not only_own:
        return dict(sorted(table.items()))
    system = yield from broker_system_topics(nameservers, answer.ask.address)
    return {
        name: config
        for name, config in sorted(table.items())
        if name not in system and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    }


# --- where it is, what it holds ---------------------------------------------------------------


def topic_route(nameservers: Nameservers, topic: str) -> Flow[TopicRouteData]:
    """Return where a topic is, as nameservers tell it; raise `NoRouteError`."""
    answer = yield from nameservers.ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic)
    )
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        raise NoRouteError(answer.ask.address, topic, "no broker has it")
    return expect(answer).body(TopicRouteData)


def brokers_of_topic(nameservers: Nameservers, topic: str) -> Flow[list[Group]]:
    """Return the brokers of a topic by name."""
    route = yield from nameservers.route(topic)
    return groups_of(route.brokers)


def topic_clusters(nameservers: Nameservers, topic: str) -> Flow[tuple[str, ...]]:
    """Return the clusters that have a topic."""
    route = yield from topic_route(nameservers, topic)
    info = yield from nameservers.cluster()
    names = {broker.broker_name for broker in route.broker_datas}
    return tuple(
        sorted(cluster for cluster, members in info.cluster_addr_table.items() if members & names)
    )


def topic_stats(nameservers: Nameservers, topic: str) -> Flow[TopicStats]:
    """Return what every queue of a topic holds."""
    header = GetTopicStatsInfoRequest(topic=topic)

    def call(broker: Address) -> Flow[TopicStatsTable]:
        answer = yield from ask(
            broker.address, RequestCode.GET_TOPIC_STATS_INFO, header, timeout_s=TIMEOUT_S
        )
        return answer.body(TopicStatsTable)

    groups = yield from brokers_of_topic(nameservers, topic)
    tried = yield from read_each(f"what topic {topic} holds", groups, call, nameservers.slave_reads)
    queues = {
        queue: QueueRange(
            min_offset=told.min_offset,
            max_offset=told.max_offset,
            updated_at_ms=max(0, told.last_update_timestamp),
        )
        for _, table in tried.answers
        for queue, told in table.offset_table.items()
    }
    return TopicStats(topic=topic, queues=dict(sorted(queues.items())), failures=tried.failures)


def groups_of_topic(nameservers: Nameservers, topic: str) -> Flow[TopicGroups]:
    """Return the groups that consume a topic, or did."""
    header = QueryTopicConsumeByWhoRequest(topic=topic)

    def call(broker: Address) -> Flow[frozenset[str]]:
        answer = yield from ask(
            broker.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header, timeout_s=TIMEOUT_S
        )
        return answer.body(GroupList).group_list

    groups = yield from brokers_of_topic(nameservers, topic)
    tried = yield from read_each(f"groups of topic {topic}", groups, call, nameservers.slave_reads)
    names = {name for _, told in tried.answers for name in told}
    return TopicGroups(groups=tuple(sorted(names)), failures=tried.failures)


# --- changes ----------------------------------------------------------------------------------


def create_topic(
    nameservers: Nameservers,
    topic: str,
    *,
    queues: int = QUEUES,
    read_queues: int | None = None,
    perm: int = PERM_READ_WRITE,
    is_ordered: bool = False,
    unit_flags: int = 0,
    cluster: str | None = None,
    broker: str | None = None,
) -> Flow[tuple[Address, ...]]:
    """Create a topic, or replace its settings; return where.

    `cluster` means every master of it, `broker` one by name or address, neither of them the only
    cluster. `queues` take messages, `read_queues` (as many, if not given) are read. An ordered
    topic keeps its queues while a broker is away.
    """
    check_topic(topic)
    header = CreateTopicRequest(
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues if read_queues is None else read_queues,
        write_queue_nums=queues,
        perm=perm,
        topic_filter_type=TopicFilterType.SINGLE_TAG.value,
        topic_sys_flag=unit_flags,
        order=is_ordered,
    )
    groups = yield from groups_for(nameservers, cluster=cluster, broker=broker)
    done = yield from change_each(
        f"create topic {topic}", groups, lambda target: _put_topic(target, header)
    )
    masters = tuple(target for target, _ in done)
    if is_ordered:
        counts: dict[str, int] = {}
        for target in masters:
            counts[(yield from _name_of(nameservers, target))] = queues
        yield from set_topic_order(nameservers, topic, counts, is_whole=broker is None)
    return masters


def set_topic_permission(
    nameservers: Nameservers,
    topic: str,
    perm: int,
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> Flow[tuple[Address, ...]]:
    """Say whether a topic may be read (4) and written (2); return where.

    Without `cluster` and `broker`: everywhere it is. The rest of its settings stays.
    """
    route = yield from topic_route(nameservers, topic)
    wanted: set[str] | None = None
    if cluster is not None or broker is not None:
        groups = yield from groups_for(nameservers, cluster=cluster, broker=broker)
        wanted = {target.address for group in groups for target in group}
    addresses = {data.broker_name: data.broker_addrs for data in route.broker_datas}
    headers = {
        data.broker_name: CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=data.read_queue_nums,
            write_queue_nums=data.write_queue_nums,
            perm=perm,
            topic_filter_type=TopicFilterType.SINGLE_TAG.value,
            topic_sys_flag=data.topic_sys_flag,
        )
        for data in route.queue_datas
    }
    targets = groups_of(
        Address(name, number, address)
        for name in headers
        for number, address in addresses.get(name, {}).items()
        if wanted is None or address in wanted
    )
    if not targets:
        raise NoBrokerError(f"topic {topic}", f"it is not at {broker or cluster}")
    done = yield from change_each(
        f"permission {perm} for topic {topic}",
        targets,
        lambda target: _put_topic(target, headers[target.broker_name]),
    )
    return tuple(target for target, _ in done)


def delete_topic(
    nameservers: Nameservers, topic: str, *, cluster: str | None = None
) -> Flow[tuple[Address, ...]]:
    """Delete a topic on every master of a cluster, then at all nameservers; return where.

    Nameservers keep it as long as one of the masters does: it would be there, and not be found.
    """
    check_topic(topic)
    info = yield from nameservers.cluster()
    name = only_cluster(info) if cluster is None else cluster
    header = DeleteTopicRequest(topic=topic)
    what = f"delete topic {topic}"
    done = yield from change_each(
        what,
        cluster_groups(info, name),
        lambda target: ask(
            target.address, RequestCode.DELETE_TOPIC_IN_BROKER, header, timeout_s=TIMEOUT_S
        ),
    )
    forget = DeleteTopicFromNamesrvRequest(topic=topic, cluster_name=name)
    yield from change_each(
        what,
        [[Address("nameserver", MASTER_ID, address)] for address in nameservers.addresses],
        lambda target: ask(
            target.address, RequestCode.DELETE_TOPIC_IN_NAMESRV, forget, timeout_s=TIMEOUT_S
        ),
    )
    return tuple(target for target, _ in done)


def _put_topic(target: Address, header: CreateTopicRequest) -> Flow[Answer]:
    return ask(target.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_s=TIMEOUT_S)


def _name_of(nameservers: Nameservers, target: Address) -> Flow[str]:
    """Return the name of a broker that may have been given by its address."""
    if target.broker_name:
        return target.broker_name
    info = yield from nameservers.cluster()
    for name, data in info.broker_addr_table.items():
        if target.address in data.broker_addrs.values():
            return name
    raise NoBrokerError(f"broker {target.address}", "nameservers do not know it")


class TopicCalls:
    """The flows of this module that admin clients offer."""

    list_topics = AdminCall(list_topics)
    list_system_topics = AdminCall(list_system_topics)
    broker_system_topics = AdminCall(broker_system_topics)
    topic_configs = AdminCall(topic_configs)
    topic_route = AdminCall(topic_route)
    topic_clusters = AdminCall(topic_clusters)
    topic_stats = AdminCall(topic_stats)
    groups_of_topic = AdminCall(groups_of_topic)
    create_topic = AdminCall(create_topic)
    set_topic_permission = AdminCall(set_topic_permission)
    delete_topic = AdminCall(delete_topic)
