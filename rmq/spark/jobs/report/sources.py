"""Where the report gets how far groups are: from the brokers of a cluster, or from a store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rmq.client.admin_groups import is_system_group
from rmq.client.blocking.admin import BlockingAdmin
from rmq.errors import ClientError, NoRouteError
from rmq.spark.jobs.report.lag import QueueLag
from rmq.spark.jobs.report.tables import NO_BROKER
from rmq.spark.jobs.store_offsets import group_offsets

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rmq.client.config import ClientConfig
    from rmq.model.queues import MessageQueue
    from rmq.store.reader import Reader

ASKED_MAX: Final = 5_000
"""Of so many queues the first unread message is asked for; the age of others is not known."""


@dataclass(slots=True)
class Progress:
    """How far groups are."""

    lags: list[QueueLag] = field(default_factory=list)
    queues: set[tuple[str, str, int]] = field(default_factory=set)
    """All queues that are known, by topic, broker and number."""
    failures: list[str] = field(default_factory=list)
    """What could not be found out, and why."""
    groups: int = 0


def cluster_progress(config: ClientConfig, topics: Collection[str]) -> Progress:
    """Ask the brokers; a broker that does not answer is a failure in the result."""
    found = Progress()
    with BlockingAdmin(config) as admin:
        groups = _groups(admin, topics, found)
        found.groups = len(groups)
        ranges: dict[str, dict[MessageQueue, int]] = {}
        asked = 0
        for group in groups:
            try:
                progress = admin.group_progress(group)
            except ClientError as error:
                found.failures.append(f"group {group}: {error}")
                continue
            found.failures += [f"group {group}: {each.error}" for each in progress.failures]
            for queue, known in sorted(progress.queues.items()):
                if topics and queue.topic not in topics:
                    continue
                if queue.topic not in ranges:
                    ranges[queue.topic] = _first_offsets(admin, queue.topic, found)
                first = ranges[queue.topic].get(queue, 0)
                lag = QueueLag(
                    group=group,
                    topic=queue.topic,
                    broker_name=queue.broker_name,
                    queue_id=queue.queue_id,
                    min_offset=first,
                    max_offset=known.broker_offset,
                    consumer_offset=known.consumer_offset,
                )
                if lag.lag and asked < ASKED_MAX:
                    asked += 1
                    lag = replace(lag, unread_ms=_stored_ms(admin, queue, lag, found))
                found.lags.append(lag)
    return found


def _groups(admin: BlockingAdmin, topics: Collection[str], found: Progress) -> list[str]:
    """Return all groups: those with settings, and those that only have offsets."""
    listed = admin.list_groups()
    found.failures += [f"{each.broker}: {each.error}" for each in listed.failures]
    groups = set(listed.configs)
    for topic in topics or sorted(set(admin.list_topics()) - set(admin.list_system_topics())):
        try:
            readers = admin.groups_of_topic(topic)
        except NoRouteError:
            continue  # deleted meanwhile
        except ClientError as error:
            found.failures.append(f"groups of {topic}: {error}")
            continue
        found.failures += [f"groups of {topic}: {each.error}" for each in readers.failures]
        groups.update(readers.groups)
    return sorted(group for group in groups if not is_system_group(group))


def _first_offsets(admin: BlockingAdmin, topic: str, found: Progress) -> dict[MessageQueue, int]:
    try:
        stats = admin.topic_stats(topic)
    except ClientError as error:
        found.failures.append(f"topic {topic}: {error}")
        return {}
    found.failures += [f"topic {topic}: {each.error}" for each in stats.failures]
    found.queues.update((topic, queue.broker_name, queue.queue_id) for queue in stats.queues)
    return {queue: known.min_offset for queue, known in stats.queues.items()}


def _stored_ms(
    admin: BlockingAdmin, queue: MessageQueue, lag: QueueLag, found: Progress
) -> int | None:
    """Return when the first unread message that is still there was stored."""
    try:
        message = admin.message_at(queue, max(lag.consumer_offset, lag.min_offset))
    except ClientError as error:
        found.failures.append(f"first unread message of {queue.topic}: {error}")
        return None
    return None if message is None else message.stored_at_ms


def store_progress(
    reader: Reader, root: Path, broker_name: str, topics: Collection[str]
) -> Progress:
    """Read what the broker of a store wrote down; groups are none if it wrote nothing."""
    found = Progress()
    bounds = {(each.topic, each.queue_id): each for each in reader.queues()}
    name = broker_name or NO_BROKER
    found.queues = {
        (topic, name, queue_id) for topic, queue_id in bounds if not topics or topic in topics
    }
    groups: set[str] = set()
    for (topic, group), offsets in sorted((group_offsets(root) or {}).items()):
        if is_system_group(group) or (topics and topic not in topics):
            continue
        groups.add(group)
        for queue_id, offset in sorted(offsets.items()):
            queue = bounds.get((topic, queue_id))
            if queue is None:
                continue
            lag = QueueLag(group, topic, name, queue_id, queue.min_offset, queue.max_offset, offset)
            if lag.lag:
                lag = replace(lag, unread_ms=_read_ms(reader, lag))
            found.lags.append(lag)
    found.groups = len(groups)
    return found


def _read_ms(reader: Reader, lag: QueueLag) -> int | None:
    start = max(lag.consumer_offset, lag.min_offset)
    unread = reader.messages(lag.topic, lag.queue_id, start, start + 1, on_bad=lambda _: None)
    return next((int(record.store_ms) for record in unread), None)
