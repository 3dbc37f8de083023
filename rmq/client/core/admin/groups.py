"""Consumer groups for admin tools: settings, how far they are, and who is in them. Pure.

Whom to ask about a group: the brokers of a topic it reads if one is named, else those of its retry
topic, which consumers make when they come. A group without one (pull consumers have none) is asked
for everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.targets import (
    SLOW_S,
    TIMEOUT_S,
    change_each,
    cluster_groups,
    find_brokers,
    groups_for,
    groups_of,
    read_broker,
    read_each,
)
from rmq.client.core.admin.topics import brokers_of_topic, delete_topic
from rmq.client.core.flows import Ask, ask, expect
from rmq.client.core.messages import check_group
from rmq.errors import NoRouteError
from rmq.model.names import SYSTEM_GROUP_PREFIX, dlq_topic, retry_topic
from rmq.remoting.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeTimeSpanBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import (
    DeleteSubscriptionGroupRequest,
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
    QueryConsumeTimeSpanRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.client.core.admin.targets import Failure, Group
    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.routes import Address
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import QueueTimeSpan

SYSTEM_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "SCHEDULE_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "DEFAULT_PRODUCER",
        "DEFAULT_CONSUMER",
    }
)
"""Groups that brokers and stock tools have by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Consumer groups and their settings."""

    configs: dict[str, dict[str, SubscriptionGroupConfig]]
    """By name, then by broker."""
    failures: tuple[Failure, ...]
    """Brokers whose groups are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """How far a group has read one queue."""

    broker_offset: int
    """That the next message will get."""
    consumer_offset: int
    """Where the group goes on."""
    consumed_at_ms: int
    """When the last message that it has consumed was stored, 0 if there is none."""

    @property
    def lag(self) -> int:
        """How many messages it has not read yet."""
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """How far a group has read."""

    group: str
    queues: dict[MessageQueue, QueueProgress]
    per_second: float
    """Messages it reads now."""
    failures: tuple[Failure, ...]
    """Brokers whose queues are missing."""

    @property
    def lag(self) -> int:
        """How many messages it has not read yet, in all queues that are known."""
        return sum(queue.lag for queue in self.queues.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """From when to when the messages of each queue are, and how far behind a group is in time."""

    queues: dict[MessageQueue, QueueTimeSpan]
    failures: tuple[Failure, ...]


def is_system_group(group: str) -> bool:
    """Tell whether brokers or stock tools have a group by themselves."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def brokers_of_group(
    nameservers: Nameservers, group: str, topic: str | None = None
) -> Flow[list[Group]]:
    """Return the brokers that know of a group, by name."""
    try:
        route = yield from nameservers.route(retry_topic(group) if topic is None else topic)
    except NoRouteError:
        if topic is not None:
            raise
        info = yield from nameservers.cluster()
        return cluster_groups(info, None)
    return groups_of(route.brokers)


# --- settings ---------------------------------------------------------------------------------


def list_groups(
    nameservers: Nameservers,
    *,
    cluster: str | None = None,
    broker: str | None = None,
    with_system: bool = False,
) -> Flow[Groups]:
    """Return the groups of a cluster, of a broker, or of all brokers there are."""
    if cluster is None and broker is None:
        info = yield from nameservers.cluster()
        groups = cluster_groups(info, None)
    elif cluster is None and broker is not None:
        groups = [(yield from find_brokers(nameservers, broker))]
    else:
        groups = yield from groups_for(nameservers, cluster=cluster, broker=broker)

    def call(target: Address) -> Flow[SubscriptionGroupWrapper]:
        answer = yield from ask(
            target.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout_s=TIMEOUT_S
        )
        return answer.body(SubscriptionGroupWrapper)

    tried = yield from read_each("groups", groups, call, nameservers.slave_reads)
    configs: dict[str, dict[str, SubscriptionGroupConfig]] = {}
    for target, table in tried.answers:
        for name, config in table.subscription_group_table.items():
            if with_system or not is_system_group(name):
                configs.setdefault(name, {})[target.broker_name or target.address] = config
    return Groups(configs=dict(sorted(configs.items())), failures=tried.failures)


def create_group(
    nameservers: Nameservers,
    group: SubscriptionGroupConfig | str,
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> Flow[tuple[Address, ...]]:
    """Create a group, or replace its settings; return where. A name means default settings."""
    config = SubscriptionGroupConfig(group_name=group) if isinstance(group, str) else group
    check_group(config.group_name)
    groups = yield from groups_for(nameservers, cluster=cluster, broker=broker)
    body = config.encode()
    done = yield from change_each(
        f"create group {config.group_name}",
        groups,
        lambda target: ask(
            target.address,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=body,
            timeout_s=TIMEOUT_S,
        ),
    )
    return tuple(target for target, _ in done)


def delete_group(
    nameservers: Nameservers,
    group: str,
    *,
    removes_offsets: bool = False,
    cluster: str | None = None,
    broker: str | None = None,
) -> Flow[tuple[Address, ...]]:
    """Delete a group; return where.

    If a whole cluster is to forget it, what it has not managed goes, too: the topics of its retries
    and of its dead letters.
    """
    header = DeleteSubscriptionGroupRequest(group_name=group, remove_offset=removes_offsets)
    groups = yield from groups_for(nameservers, cluster=cluster, broker=broker)
    done = yield from change_each(
        f"delete group {group}",
        groups,
        lambda target: ask(
            target.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header, timeout_s=TIMEOUT_S
        ),
    )
    if broker is None:
        for topic in (retry_topic(group), dlq_topic(group)):
            yield from delete_topic(nameservers, topic, cluster=cluster)
    return tuple(target for target, _ in done)


# --- how far they are -------------------------------------------------------------------------


def group_progress(
    nameservers: Nameservers, group: str, *, topic: str | None = None
) -> Flow[GroupProgress]:
    """Return how far a group has read each queue, of one topic or of all it has offsets for."""
    groups = yield from brokers_of_group(nameservers, group, topic)
    tried = yield from read_each(
        f"progress of group {group}",
        groups,
        lambda target: consume_stats(target.address, group, topic),
        nameservers.slave_reads,
    )
    return _progress_of(group, (stats for _, stats in tried.answers), tried.failures)


def broker_progress(
    nameservers: Nameservers, broker: str, *, only_ordered: bool = False
) -> Flow[dict[str, GroupProgress]]:
    """Return how far every group has read, at one broker."""
    header = GetBrokerConsumeStatsRequest(is_order=only_ordered)
    answer = yield from read_broker(
        nameservers,
        broker,
        lambda target: ask(
            target.address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_s=SLOW_S
        ),
    )
    return {
        group: _progress_of(group, stats, ())
        for entry in answer.body(ConsumeStatsList).consume_stats_list
        for group, stats in sorted(entry.items())
    }


def broker_times(broker: str, group: str, topic: str) -> Flow[QueryConsumeTimeSpanBody]:
    """Return how far behind a group is in time, for each queue of a topic at one broker."""
    header = QueryConsumeTimeSpanRequest(topic=topic, group=group)
    answer = yield from ask(
        broker, RequestCode.QUERY_CONSUME_TIME_SPAN, header, timeout_s=TIMEOUT_S
    )
    return answer.body(QueryConsumeTimeSpanBody)


def group_times(nameservers: Nameservers, group: str, topic: str) -> Flow[GroupTimes]:
    """Return how far behind a group is in time, for each queue of a topic."""

    def call(target: Address) -> Flow[QueryConsumeTimeSpanBody]:
        return broker_times(target.address, group, topic)

    groups = yield from brokers_of_topic(nameservers, topic)
    tried = yield from read_each(
        f"times of group {group} in {topic}", groups, call, nameservers.slave_reads
    )
    spans = [span for _, body in tried.answers for span in body.consume_time_span_set]
    return GroupTimes(
        queues={
            span.message_queue: span for span in sorted(spans, key=lambda span: span.message_queue)
        },
        failures=tried.failures,
    )


def consume_stats(address: str, group: str, topic: str | None) -> Flow[ConsumeStats]:
    """Return how far a group has read at one broker."""
    header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
    answer = yield Ask(address, RequestCode.GET_CONSUME_STATS, header, None, SLOW_S)
    return expect(answer).body(ConsumeStats)


def _progress_of(
    group: str, stats: Iterable[ConsumeStats], failures: tuple[Failure, ...]
) -> GroupProgress:
    queues: dict[MessageQueue, QueueProgress] = {}
    per_second = 0.0
    for told in stats:
        per_second += told.consume_tps
        for queue, offsets in told.offset_table.items():
            queues[queue] = QueueProgress(
                broker_offset=offsets.broker_offset,
                consumer_offset=offsets.consumer_offset,
                consumed_at_ms=offsets.last_timestamp,
            )
    return GroupProgress(
        group=group,
        queues=dict(sorted(queues.items())),
        per_second=per_second,
        failures=failures,
    )


class GroupCalls:
    """The flows of this module that admin clients offer."""

    list_groups = AdminCall(list_groups)
    create_group = AdminCall(create_group)
    delete_group = AdminCall(delete_group)
    group_progress = AdminCall(group_progress)
    broker_progress = AdminCall(broker_progress)
    group_times = AdminCall(group_times)
