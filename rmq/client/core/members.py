"""What a client knows of the producers and consumers that share it, and tells brokers. Pure.

A member says which topics it cares for and what a heartbeat says of it, and is told when a route
has changed. What brokers ask of members by themselves is in protocols of its own: a member that
has the methods gets the requests (`rmq.client.core.broker_requests`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

from rmq.model.names import INNER_PRODUCER_GROUP, MASTER_ID
from rmq.remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from rmq.remoting.headers import UnregisterClientRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmq.client.core.routes import Address, TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.model.record import StoredRecord
    from rmq.remoting.bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
    from rmq.remoting.headers import CheckTransactionStateRequest

FIRST_BEAT_S: Final = 1.0
"""The first heartbeat is sent this long after the start, as stock clients do."""
LEAVE_S: Final = 3.0
"""Timeout of unregistering at brokers."""


class Member(Protocol):
    """A producer or a consumer of a group."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """Return the topics whose routes are kept fresh."""

    def presence(self) -> ProducerData | ConsumerData | None:
        """Return its entry in heartbeats; None if it is not to be announced now."""

    def route_changed(self, route: TopicRoute) -> None:
        """Take the new route of one of its topics."""


@runtime_checkable
class TransactionMember(Protocol):
    """A producer that is asked about half messages (39)."""

    def check_transaction(
        self, address: str, header: CheckTransactionStateRequest, half: StoredRecord
    ) -> None:
        """Take a broker's question about the state of a transaction. Must not block."""


@runtime_checkable
class ReadingMember(Protocol):
    """A consumer whose place operators may ask for and move (220, 221, 307)."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Apply a reset of the group's offsets by an operator (220)."""

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumed offsets of a topic (221)."""

    def running_info(self) -> ConsumerRunningInfo:
        """Return the running info (307)."""


@runtime_checkable
class ConsumerMember(ReadingMember, Protocol):
    """A consumer that shares queues with its group, or has a listener (40, 309)."""

    def members_changed(self) -> None:
        """Consumers of the group came or went (40)."""

    async def consume_directly(
        self, record: StoredRecord, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Consume one message now, for an operator (309)."""


# --- what brokers are told -----------------------------------------------------------------------


class Heartbeat(NamedTuple):
    """One heartbeat: the members of a client, and the brokers that it goes to."""

    body: bytes
    brokers: Sequence[Address]


def heartbeat(
    client_id: str, members: Iterable[Member], brokers: Iterable[Address]
) -> Heartbeat | None:
    """Return the heartbeat of a client to the brokers that it knows; None: it has nothing to say.

    Slaves hear of consumers only.
    """
    present = [data for member in members if (data := member.presence()) is not None]
    if not present:
        return None
    consumers = tuple(data for data in present if isinstance(data, ConsumerData))
    producers = {data.group_name: data for data in present if isinstance(data, ProducerData)}
    producers.setdefault(INNER_PRODUCER_GROUP, ProducerData(group_name=INNER_PRODUCER_GROUP))
    said = HeartbeatData(
        client_id=client_id,
        producer_data_set=tuple(producers.values()),
        consumer_data_set=consumers,
    )
    addressed = [each for each in brokers if consumers or each.broker_id == MASTER_ID]
    return Heartbeat(said.encode(), addressed)


def farewell(client_id: str, member: Member) -> UnregisterClientRequest | None:
    """Return what brokers are told when a member leaves; None: they have not heard of it."""
    presence = member.presence()
    if presence is None:
        return None
    is_producer = isinstance(presence, ProducerData)
    return UnregisterClientRequest(
        client_id=client_id,
        producer_group=member.group if is_producer else None,
        consumer_group=None if is_producer else member.group,
    )
