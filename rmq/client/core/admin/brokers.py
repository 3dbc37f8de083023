"""Brokers for admin tools: which there are, their settings, figures and cleaning up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.nameservers import read_settings
from rmq.client.core.admin.targets import (
    TIMEOUT_S,
    change_all,
    cluster_groups,
    find_broker,
    groups_for,
    read_broker,
)
from rmq.client.core.flows import ask
from rmq.remoting.bodies import (
    BrokerStatsData,
    ClusterInfo,
    KVTable,
    QueryConsumeQueueResponseBody,
    format_properties,
)
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import QueryConsumeQueueRequest, ViewBrokerStatsDataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.routes import Address
    from rmq.model.queues import MessageQueue

_ENTRIES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """What a broker tells of itself, as text; and the figures most asked for."""

    table: dict[str, str]

    @property
    def version(self) -> str:
        """Of the protocol, as `V4_9_8`."""
        return self.table.get("brokerVersionDesc", "")

    @property
    def sends_per_second(self) -> float:
        """Messages stored, over the last 10 s."""
        return _first_number(self.table.get("putTps", ""))

    @property
    def reads_per_second(self) -> float:
        """Messages given to consumers, over the last 10 s."""
        return _first_number(self.table.get("getTransferedTps", ""))

    @property
    def log_start(self) -> int:
        """Where the CommitLog begins."""
        return int(_first_number(self.table.get("commitLogMinOffset", "")))

    @property
    def log_end(self) -> int:
        """Where the CommitLog ends."""
        return int(_first_number(self.table.get("commitLogMaxOffset", "")))


def cluster_info(nameservers: Nameservers) -> Flow[ClusterInfo]:
    """Return all brokers and clusters."""
    return nameservers.cluster()


def list_brokers(
    nameservers: Nameservers, *, cluster: str | None = None
) -> Flow[tuple[Address, ...]]:
    """Return all brokers, or those of a cluster: masters and slaves."""
    info = yield from nameservers.cluster()
    return tuple(broker for group in cluster_groups(info, cluster) for broker in group)


# --- one broker -------------------------------------------------------------------------------


def broker_config(nameservers: Nameservers, broker: str) -> Flow[dict[str, str]]:
    """Return all settings of a broker."""
    target = yield from find_broker(nameservers, broker)
    answer = yield from ask(target.address, RequestCode.GET_BROKER_CONFIG, timeout_s=TIMEOUT_S)
    return read_settings(answer)


def update_broker_config(
    nameservers: Nameservers, broker: str, settings: Mapping[str, str]
) -> Flow[str | None]:
    """Change settings of a running broker; return its remark, such as what waits for a restart."""
    target = yield from find_broker(nameservers, broker)
    answer = yield from ask(
        target.address,
        RequestCode.UPDATE_BROKER_CONFIG,
        body=format_properties(settings),
        timeout_s=TIMEOUT_S,
    )
    return answer.command.remark


def runtime_info(nameservers: Nameservers, broker: str) -> Flow[RuntimeInfo]:
    """Return what a broker tells of itself."""
    target = yield from find_broker(nameservers, broker)
    answer = yield from ask(
        target.address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_s=TIMEOUT_S
    )
    return RuntimeInfo(table=answer.body(KVTable).table)


def broker_statistic(
    nameservers: Nameservers, broker: str, name: str, key: str
) -> Flow[BrokerStatsData]:
    """Return one figure of a broker over the last minute, hour and day.

    `name` is `TOPIC_PUT_NUMS`, `GROUP_GET_NUMS` and the like, `key` a topic, `topic@group`,
    `topic@queueId` or a cluster, as the figure has it.
    """
    target = yield from find_broker(nameservers, broker)
    answer = yield from ask(
        target.address,
        RequestCode.VIEW_BROKER_STATS_DATA,
        ViewBrokerStatsDataRequest(stats_name=name, stats_key=key),
        timeout_s=TIMEOUT_S,
    )
    return answer.body(BrokerStatsData)


def consume_queue(
    nameservers: Nameservers,
    queue: MessageQueue,
    offset: int,
    *,
    count: int = _ENTRIES,
    group: str | None = None,
) -> Flow[QueryConsumeQueueResponseBody]:
    """Return raw entries of a queue, and what the filter of a group makes of them."""
    header = QueryConsumeQueueRequest(
        topic=queue.topic,
        queue_id=queue.queue_id,
        index=offset,
        count=count,
        consumer_group=group,
    )
    answer = yield from read_broker(
        nameservers,
        queue.broker_name,
        lambda target: ask(
            target.address, RequestCode.QUERY_CONSUME_QUEUE, header, timeout_s=TIMEOUT_S
        ),
    )
    if not answer.command.body:
        # An offset that the queue does not have.
        return QueryConsumeQueueResponseBody()
    return answer.body(QueryConsumeQueueResponseBody)


# --- cleaning up ------------------------------------------------------------------------------


def clean_expired_queues(
    nameservers: Nameservers, *, cluster: str | None = None, broker: str | None = None
) -> Flow[tuple[Address, ...]]:
    """Delete queues all of whose messages have expired; return where."""
    return _clean(nameservers, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, broker)


def clean_unused_topics(
    nameservers: Nameservers, *, cluster: str | None = None, broker: str | None = None
) -> Flow[tuple[Address, ...]]:
    """Delete queues of topics that are no more; return where."""
    return _clean(nameservers, RequestCode.CLEAN_UNUSED_TOPIC, cluster, broker)


def delete_expired_logs(
    nameservers: Nameservers, *, cluster: str | None = None, broker: str | None = None
) -> Flow[tuple[Address, ...]]:
    """Delete files of the CommitLog that have expired, at whatever hour; return where."""
    return _clean(nameservers, RequestCode.DELETE_EXPIRED_COMMITLOG, cluster, broker)


def _clean(
    nameservers: Nameservers, code: RequestCode, cluster: str | None, broker: str | None
) -> Flow[tuple[Address, ...]]:
    """Ask masters and slaves: each has files of its own."""
    if cluster is None and broker is None:
        targets = yield from list_brokers(nameservers)
    else:
        groups = yield from groups_for(nameservers, cluster=cluster, broker=broker)
        targets = tuple(one for group in groups for one in group)
    done = yield from change_all(
        code.name, targets, lambda target: ask(target.address, code, timeout_s=TIMEOUT_S)
    )
    return tuple(target for target, _ in done)


def _first_number(text: str) -> float:
    """Return the first of several numbers, 0 if there is none: a broker may be too young."""
    parts = text.split()
    try:
        return float(parts[0]) if parts else 0.0
    except ValueError:
        return 0.0


class BrokerCalls:
    """The flows of this module that admin clients offer."""

    cluster_info = AdminCall(cluster_info)
    list_brokers = AdminCall(list_brokers)
    broker_config = AdminCall(broker_config)
    update_broker_config = AdminCall(update_broker_config)
    runtime_info = AdminCall(runtime_info)
    broker_statistic = AdminCall(broker_statistic)
    consume_queue = AdminCall(consume_queue)
    clean_expired_queues = AdminCall(clean_expired_queues)
    clean_unused_topics = AdminCall(clean_unused_topics)
    delete_expired_logs = AdminCall(delete_expired_logs)
