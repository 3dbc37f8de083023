"""What a client knows of the producers and consumers that share it. Pure.

A member says which topics it cares for and what a heartbeat says of it, and is told when a route
has changed. What brokers ask of members by themselves is in protocols of its own: a member that
has the methods gets the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.client.core.routes import TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.model.record import StoredRecord
    from rmq.remoting.bodies import (
        ConsumeMessageDirectlyResult,
        ConsumerData,
        ConsumerRunningInfo,
        ProducerData,
    )
    from rmq.remoting.headers import CheckTransactionStateRequest


class Member(Protocol):
    """A producer or a consumer of a group."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """Return the topics whose routes are kept fresh."""

    def presence(self) -> ProducerData | ConsumerData | None:
        """Return what a heartbeat says of it; None: nothing, not yet or not any longer."""

    def route_changed(self, route: TopicRoute) -> None:
        """A topic it cares for is somewhere else now, or there for the first time."""


@runtime_checkable
class TransactionMember(Protocol):
    """A producer that is asked about half messages (39)."""

    def check_transaction(
        self, address: str, header: CheckTransactionStateRequest, half: StoredRecord
    ) -> None:
        """A broker wants to know what became of a transaction. Must not block."""


@runtime_checkable
class ConsumerMember(Protocol):
    """A consumer that hears from brokers (40, 220, 221, 307, 309)."""

    def members_changed(self) -> None:
        """Consumers of the group came or went (40)."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator moved the group (220)."""

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return how far it has come (221)."""

    def running_info(self) -> ConsumerRunningInfo:
        """Return how it is (307)."""

    async def consume_directly(
        self, record: StoredRecord, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Consume one message now, for an operator (309)."""
