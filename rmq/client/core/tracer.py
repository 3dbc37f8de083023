"""What producers and consumers tell a tracer: what became of each message. Pure.

A tracer is handed to a producer or consumer when it is opened. Its methods are called in the event
loop, on the path of every message: they take a note and return at once, and never raise. What they
are told is what message traces of stock clients hold (`Pub`, `SubBefore`, `SubAfter`,
`EndTransaction`); whether an event is worth a trace (regions, brokers with tracing off, failed
sends) is for the tracer to decide.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from rmq.client.core.messages import SendResult
from rmq.client.core.transaction_states import TransactionState
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.client.core.received import ReceivedMessage


class MessageKind(enum.IntEnum):
    """What kind of message was sent, numbered as traces number it."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3


class ConsumeCode(enum.IntEnum):
    """How a listener ended, numbered as traces number it."""

    SUCCESS = 0
    TIMED_OUT = 1
    RAISED = 2
    NONSENSE = 3
    """It returned what is no result (stock clients: null)."""
    LATER = 4


class Sent(msgspec.Struct, frozen=True):
    """A send is over, well or not. One-way sends are not told of: nobody knows what became of them.

    A batch is one event: `message_id` holds all ids joined by commas, tag and keys are none.
    """

    group: str
    topic: str
    message_id: str
    """The unique key."""
    tag: str | None
    keys: tuple[str, ...]
    address: str
    """The broker that was tried last; empty if none was found."""
    body_bytes: int
    """As sent: after compression."""
    kind: MessageKind
    started_at_ms: int
    """Wall clock."""
    took_ms: int
    outcome: SendResult | RmqError


class TransactionEnded(msgspec.Struct, frozen=True):
    """A producer told a broker what became of a transaction."""

    group: str
    topic: str
    message_id: str
    tag: str | None
    keys: tuple[str, ...]
    address: str
    transaction_id: str
    state: TransactionState
    is_from_check: bool
    """Whether the broker had asked."""
    ended_at_ms: int


class Tracer(Protocol):
    """Takes notes of messages."""

    def sent(self, event: Sent) -> None:
        """A message was sent, or could not be."""

    def transaction_ended(self, event: TransactionEnded) -> None:
        """A transaction was committed or rolled back, or its state is unknown."""

    def consuming(
        self, group: str, messages: Sequence[ReceivedMessage], *, started_at_ms: int
    ) -> str:
        """A listener is about to get these; return an id that goes with what comes of it."""

    def consumed(
        self,
        group: str,
        messages: Sequence[ReceivedMessage],
        *,
        request_id: str,
        ended_at_ms: int,
        took_ms: int,
        code: ConsumeCode,
    ) -> None:
        """The listener is done with these; `request_id` is what `consuming` returned."""
