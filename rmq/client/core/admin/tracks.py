"""The fate of one message: which groups have consumed it, and what traces tell. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.clients import consumer_connections
from rmq.client.core.admin.groups import group_progress
from rmq.client.core.admin.messages import messages_by_key
from rmq.client.core.admin.topics import groups_of_topic
from rmq.client.core.trace import decode_traces
from rmq.errors import ClientError
from rmq.model.names import TRACE_TOPIC
from rmq.remoting.bodies import ConsumeType
from rmq.remoting.expressions import is_tag_type

if TYPE_CHECKING:
    from rmq.client.core.admin.clients import ConsumerConnections
    from rmq.client.core.admin.targets import Failure
    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.trace import Trace


class TrackKind(enum.Enum):
    """What a group has to do with a message, under the names that mqadmin prints."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    """The group is past it, and its tag is not subscribed to."""
    PULL = "PULL"
    """The application pulls: only it knows."""
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrack:
    """What one group has to do with a message."""

    group: str
    kind: TrackKind
    error: ClientError | None = None
    """Why it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTracks:
    """What all groups have to do with a message."""

    tracks: tuple[MessageTrack, ...]
    failures: tuple[Failure, ...]
    """Brokers that may know of more groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTraces:
    """What producers and consumers wrote of a message."""

    traces: tuple[tuple[Trace, str], ...]
    """Each with the address of the client that wrote it, in the order of their times."""
    failures: tuple[Failure, ...]


def message_tracks(nameservers: Nameservers, message: ReceivedMessage) -> Flow[MessageTracks]:
    """Return what the groups of its topic have to do with a message."""
    groups = yield from groups_of_topic(nameservers, message.topic)
    tracks: list[MessageTrack] = []
    for group in groups.groups:
        try:
            kind = yield from _kind(nameservers, group, message)
        except ClientError as exc:
            tracks.append(MessageTrack(group=group, kind=TrackKind.UNKNOWN, error=exc))
        else:
            tracks.append(MessageTrack(group=group, kind=kind))
    return MessageTracks(tracks=tuple(tracks), failures=groups.failures)


def _kind(nameservers: Nameservers, group: str, message: ReceivedMessage) -> Flow[TrackKind]:
    consumers = yield from consumer_connections(nameservers, group)
    if not consumers.is_online:
        return TrackKind.NOT_ONLINE
    if consumers.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return TrackKind.PULL
    progress = yield from group_progress(nameservers, group, topic=message.queue.topic)
    known = progress.queues.get(message.queue)
    if known is None:
        return TrackKind.UNKNOWN
    if known.consumer_offset <= message.queue_offset:
        return TrackKind.NOT_CONSUME_YET
    return TrackKind.CONSUMED if _takes(consumers, message) else TrackKind.CONSUMED_BUT_FILTERED


def _takes(consumers: ConsumerConnections, message: ReceivedMessage) -> bool:
    data = consumers.subscriptions.get(message.topic)
    if data is None or not is_tag_type(data.expression_type) or not data.tags_set:
        return True
    return message.tag in data.tags_set


def message_traces(
    nameservers: Nameservers, message_id: str, *, trace_topic: str = TRACE_TOPIC
) -> Flow[MessageTraces]:
    """Return what was traced of a message, by the id that its producer gave it."""
    found = yield from messages_by_key(nameservers, trace_topic, message_id)
    traces = [
        (trace, message.born_host.rpartition(":")[0])
        for message in found.messages
        if message.body_error is None
        for trace in decode_traces(message.body)
        if message_id in trace.message_id.split(",")
    ]
    return MessageTraces(
        traces=tuple(sorted(traces, key=lambda entry: entry[0].time_ms)),
        failures=found.failures,
    )


class TrackCalls:
    """The flows of this module that admin clients offer."""

    message_tracks = AdminCall(message_tracks)
    message_traces = AdminCall(message_traces)
