"""Where `rmq consume` begins and ends: `--from`, and what was there when it began."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.cli.common.usage import UsageError
from rmq.client.core.admin.groups import group_progress
from rmq.client.core.admin.offsets import max_offset, min_offset
from rmq.client.core.admin.targets import failed
from rmq.client.core.admin.topics import topic_stats
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.model.moments import parse_moment_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.lite_pull import LitePullConsumer
    from rmq.model.queues import MessageQueue


class Place(enum.Enum):
    """Where to begin."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """What `--from` says."""

    place: Place
    time_ms: int = 0

    @property
    def consume_from(self) -> ConsumeFrom:
        """The same for a group that has not begun yet."""
        return {
            Place.EARLIEST: ConsumeFrom.FIRST,
            Place.LATEST: ConsumeFrom.LAST,
            Place.TIME: ConsumeFrom.TIMESTAMP,
        }[self.place]

    @classmethod
    def parse(cls, text: str) -> Start:
        """Read `earliest`, `latest`, milliseconds since 1970, or a time as ISO 8601 has it.

        A time without an offset is local time. Raises `UsageError`.
        """
        if text in (Place.EARLIEST.value, Place.LATEST.value):
            return cls(Place(text))
        try:
            time_ms = parse_moment_ms(text)
        except ValueError as wrong:
            raise UsageError(f"--from is earliest, latest or a time: {wrong}") from None
        return cls(Place.TIME, time_ms)


@dataclass(frozen=True, slots=True)
class Span:
    """The messages that a queue had."""

    first: int
    end: int


def topic_spans(nameservers: Nameservers, topic: str) -> Flow[dict[MessageQueue, Span]]:
    """Return the offsets of each queue of a topic now.

    Raises `BrokersFailedError` if a broker does not answer: then it is not known when all was read.
    """
    route = yield from nameservers.route(topic)
    stats = yield from topic_stats(nameservers, topic)
    if stats.failures:
        raise failed(f"the offsets of topic {topic}", stats.failures)
    spans: dict[MessageQueue, Span] = {}
    for queue in route.readable:
        known = stats.queues.get(queue)
        if known is not None:
            spans[queue] = Span(known.min_offset, known.max_offset)
        else:
            # One that takes no more messages, and may hold some still.
            spans[queue] = Span(
                (yield from min_offset(nameservers, queue)),
                (yield from max_offset(nameservers, queue)),
            )
    return spans


async def move_to_start(
    consumer: LitePullConsumer, queues: Iterable[MessageQueue], start: Start
) -> None:
    """Make a consumer begin in these queues where `--from` says."""
    for queue in queues:
        if start.place is Place.EARLIEST:
            await consumer.seek_to_begin(queue)
        elif start.place is Place.LATEST:
            await consumer.seek_to_end(queue)
        else:
            await consumer.seek_to_time(queue, start.time_ms)


async def not_begun(
    client: Client, group: str, queues: Iterable[MessageQueue]
) -> list[MessageQueue]:
    """Return the queues that a group has no offset for.

    Brokers themselves say 0 of a group that has none, as long as a queue is young: it would begin
    there, whatever `--from` says. Queues of a broker that does not answer count as begun.
    """
    progress = await client.run(group_progress(client.nameservers, group))
    silent = {failure.broker.broker_name for failure in progress.failures}
    return [
        queue
        for queue in queues
        if queue not in progress.queues and queue.broker_name not in silent
    ]
