"""Where the report gets how far groups are: from the brokers of a cluster, or from a store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rmq.client.blocking.admin import BlockingAdmin
from rmq.client.core.admin.groups import is_system_group
from rmq.errors import ClientError, NoRouteError
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX
from rmq.model.offsets import QueueOffset
from rmq.model.words import count_text
from rmq.spark.jobs.report.lag import QueueLag
from rmq.spark.jobs.report.store_topics import topic_queues
from rmq.spark.jobs.report.tables import NO_BROKER
from rmq.spark.jobs.store_offsets import group_offsets

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rmq.client.core.config import ClientConfig
    from rmq.model.queues import MessageQueue
    from rmq.store.reader import Reader

ASKED_MAX: Final = 5_000
"""How many queues are asked for their first unread message; the age of others is not known."""


@dataclass(slots=True)
class Progress:
    """How far groups are."""

    lags: list[QueueLag] = field(default_factory=list)
    queues: set[tuple[str, str, int]] = field(default_factory=set)
    """All queues that are known, by topic, broker and number."""
    failures: list[str] = field(default_factory=list)
    """What could not be found out, and why."""
    age_failures: list[str] = field(default_factory=list)
    """Why it is not known how old the first unread message of a group is."""
    queue_failures: list[str] = field(default_factory=list)
    """Why there may be queues without messages that `queues` does not have."""
    groups: int = 0
    has_groups: bool = True
    """Whether consumer offsets are known."""


class _Ageless:
    """Queues of which it is not known how old the first unread message is, by group and topic."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._reasons: dict[tuple[str, str], str] = {}

    def add(self, lag: QueueLag, reason: str) -> None:
        self._counts[lag.group, lag.topic] += 1
        self._reasons.setdefault((lag.group, lag.topic), reason)

    def texts(self) -> list[str]:
        """Return a sentence for each group and topic, with the first reason."""
        found = []
        for (group, topic), count in self._counts.items():
            where = f", in {count_text(count, 'queue')}" if count > 1 else ""
            reason = self._reasons[group, topic]
            found.append(f"age of what group {group} has not read of {topic}{where}: {reason}")
        return found


# --- clusters -----------------------------------------------------------------------------------


def cluster_progress(config: ClientConfig, topics: Collection[str]) -> Progress:
    """Ask the brokers; a broker that does not answer is a failure in the result."""
    found, ageless = Progress(), _Ageless()
    with BlockingAdmin(config) as admin:
        names = topics or sorted(set(admin.list_topics()) - set(admin.list_system_topics()))
        groups = _groups(admin, names, found)
        found.groups = len(groups)
        # Topics of groups have one queue, and are asked for where a group reads them.
        spread = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
        ranges = {topic: _first_offsets(admin, topic, found) for topic in spread}
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
                if lag.lag:
                    asked += 1
                    lag = replace(lag, unread_ms=_stored_ms(admin, queue, lag, ageless, asked))
                found.lags.append(lag)
    found.age_failures += ageless.texts()
    return found


def _groups(admin: BlockingAdmin, topics: Collection[str], found: Progress) -> list[str]:
    """Return all groups: those with settings, and those that only have offsets."""
    listed = admin.list_groups()
    found.failures += [f"{each.broker}: {each.error}" for each in listed.failures]
    groups = set(listed.configs)
    for topic in topics:
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
    """Return where the queues of a topic begin, and add them to those that are known."""
    try:
        stats = admin.topic_stats(topic)
    except NoRouteError:
        return {}  # deleted meanwhile
    except ClientError as error:
        found.failures.append(f"topic {topic}: {error}")
        return {}
    found.failures += [f"topic {topic}: {each.error}" for each in stats.failures]
    found.queues.update((topic, queue.broker_name, queue.queue_id) for queue in stats.queues)
    return {queue: known.min_offset for queue, known in stats.queues.items()}


def _stored_ms(
    admin: BlockingAdmin, queue: MessageQueue, lag: QueueLag, ageless: _Ageless, asked: int
) -> int | None:
    """Return when the first unread message that is still there was stored."""
    if asked > ASKED_MAX:
        reason = f"more than {ASKED_MAX:,} queues have unread messages, and no more are asked"
        ageless.add(lag, reason)
        return None
    start = max(lag.consumer_offset, lag.min_offset)
    try:
        message = admin.message_at(queue, start)
    except ClientError as error:
        ageless.add(lag, str(error))
        return None
    if message is None:
        ageless.add(lag, f"there is no message at {_place(lag, start)}")
        return None
    return message.stored_at_ms


# --- stores -------------------------------------------------------------------------------------


def store_progress(
    reader: Reader, root: Path, broker_name: str, topics: Collection[str]
) -> Progress:
    """Read what the broker of a store wrote down; groups are none if it wrote nothing."""
    found, ageless = Progress(), _Ageless()
    bounds = {(each.topic, each.queue_id): each for each in reader.queues()}
    name = broker_name or NO_BROKER
    queues = set(bounds)
    told = topic_queues(root)
    if told is None:
        reason = "there is no config/topics.json that can be read"
        found.queue_failures.append(f"which queues have no messages: {reason}")
    else:
        queues |= {(topic, number) for topic, count in told.items() for number in range(count)}
    found.queues = {
        (topic, name, queue_id) for topic, queue_id in queues if not topics or topic in topics
    }
    groups: set[str] = set()
    offsets_by_group = group_offsets(root)
    found.has_groups = offsets_by_group is not None
    for (topic, group), offsets in sorted((offsets_by_group or {}).items()):
        if is_system_group(group) or (topics and topic not in topics):
            continue
        groups.add(group)
        for queue_id, offset in sorted(offsets.items()):
            queue = bounds.get((topic, queue_id))
            if queue is None:
                continue
            lag = QueueLag(group, topic, name, queue_id, queue.min_offset, queue.max_offset, offset)
            if lag.lag:
                lag = replace(lag, unread_ms=_read_ms(reader, lag, ageless))
            found.lags.append(lag)
    found.groups = len(groups)
    found.age_failures += ageless.texts()
    return found


def _read_ms(reader: Reader, lag: QueueLag, ageless: _Ageless) -> int | None:
    start = QueueOffset(max(lag.consumer_offset, lag.min_offset))
    unread = reader.messages(lag.topic, lag.queue_id, start, start + 1, on_bad=lambda _: None)
    stored_ms = next((int(record.store_ms) for record in unread), None)
    if stored_ms is None:
        ageless.add(lag, f"the message at {_place(lag, start)} cannot be read")
    return stored_ms


def _place(lag: QueueLag, offset: int) -> str:
    return f"queue {lag.queue_id} offset {offset}"
