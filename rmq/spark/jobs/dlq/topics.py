"""Which dead letters and retries a cluster has: topics of groups, and how far groups are in them.

Dead letters stay in their topic until retention deletes them, also when they were read. Of a retry
topic only what its group has not read yet is of interest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmq.client.blocking.admin import BlockingAdmin
from rmq.client.blocking.consumer import BlockingConsumer
from rmq.errors import ClientError, ConfigError, NoRouteError
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic, retry_topic
from rmq.settings.setting import nearest_word
from rmq.spark.jobs.topic_ranges import CONSUMER_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.client.core.config import ClientConfig
    from rmq.model.queues import MessageQueue


@dataclass(slots=True)
class DeadLetterQueues:
    """Where to read, by queue."""

    dead_starts: dict[MessageQueue, int] = field(default_factory=dict)
    dead_ends: dict[MessageQueue, int] = field(default_factory=dict)
    retry_starts: dict[MessageQueue, int] = field(default_factory=dict)
    """Where groups go on in their retry topics, as far as that is still there."""
    retry_ends: dict[MessageQueue, int] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    """The groups that have one or the other topic."""
    failures: list[str] = field(default_factory=list)
    """What could not be found out, and why."""


def find_queues(config: ClientConfig, group: str | None) -> DeadLetterQueues:
    """Return the queues of dead letters and retries of one group or of all.

    Raises `ConfigError` if no broker knows the group.
    """
    found = DeadLetterQueues()
    with BlockingAdmin(config) as admin:
        topics = set(admin.list_topics())
        groups = {
            topic.removeprefix(prefix)
            for topic in topics
            for prefix in (DLQ_PREFIX, RETRY_PREFIX)
            if topic.startswith(prefix)
        }
        if group is not None:
            if group not in groups:
                _require_group(admin, group, groups)
            groups &= {group}
        found.groups = tuple(sorted(groups))
        with BlockingConsumer(admin.client, CONSUMER_GROUP) as consumer:
            dead = _queues(consumer, (dlq_topic(each) for each in found.groups), topics)
            found.dead_starts = consumer.begin_offsets(dead)
            found.dead_ends = consumer.end_offsets(dead)
            for each in found.groups:
                if retry_topic(each) in topics:
                    _add_retries(admin, consumer, each, found)
    return found


def _queues(
    consumer: BlockingConsumer, wanted: Iterable[str], listed: set[str]
) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for topic in wanted:
        if topic in listed:
            try:
                queues += consumer.queues(topic)
            except NoRouteError:
                continue  # deleted since it was listed
    return queues


def _add_retries(
    admin: BlockingAdmin, consumer: BlockingConsumer, group: str, found: DeadLetterQueues
) -> None:
    topic = retry_topic(group)
    try:
        progress = admin.group_progress(group, topic=topic)
        behind = {
            queue: known
            for queue, known in progress.queues.items()
            if queue.topic == topic and known.lag > 0
        }
        firsts = consumer.begin_offsets(behind)
    except ClientError as exc:
        found.failures.append(f"how far group {group} is in {topic}: {exc}")
        return
    found.failures += [f"how far group {group} is: {failure}" for failure in progress.failures]
    for queue, known in behind.items():
        # Of a group that stopped long ago, retention has deleted what it goes on with.
        start = max(firsts[queue], known.consumer_offset)
        if start < known.broker_offset:
            found.retry_starts[queue] = start
            found.retry_ends[queue] = known.broker_offset


def _require_group(admin: BlockingAdmin, group: str, others: set[str]) -> None:
    """Raise `ConfigError` for a group without dead letters and retries that no broker knows."""
    known = admin.list_groups()
    if group in known.configs or known.failures:
        return
    near = nearest_word(group, {*known.configs, *others})
    raise ConfigError(
        "--group",
        f"no broker knows a group {group}",
        hint=f"did you mean {near}?" if near else None,
    )
