"""What is said between a test and the process that runs a client of the C++ library."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    PRODUCER = "producer"
    PUSH_CONSUMER = "push consumer"
    PULL_CONSUMER = "pull consumer"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a driver is to be. What comes after `send_timeout_ms` is for consumers."""

    role: Role
    nameservers: str
    group: str
    send_timeout_ms: int = 10_000
    """The library also waits that long for the answer of a broker that is gone."""
    topic: str = ""
    expression: str = "*"
    orderly: bool = False
    broadcasting: bool = False
    refusals: dict[str, int] = {}
    """How often the messages with these bodies fail before they are consumed."""
    reads_properties: tuple[str, ...] = ()
    """Properties of messages that it tells of."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send."""

    topic: str
    body: str
    tag: str = ""
    keys: str = ""
    delay_level: int = 0
    properties: dict[str, str] = {}
    shard: int = 0
    """Messages of the same shard go to the same queue, if they are sent in order."""


class SendMode(StrEnum):
    SYNC = "sync"
    ASYNC = "async"
    ONE_WAY = "one-way"
    ORDERED = "ordered"
    ONE_WAY_ORDERED = "one-way ordered"
    BATCH = "batch"


class Send(msgspec.Struct, frozen=True, tag="send"):
    """Send messages one after another, or as one batch."""

    mode: SendMode
    messages: list[Message]


class Pull(msgspec.Struct, frozen=True, tag="pull"):
    """Pull what all queues have since the last time."""

    batch: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Shut down and end."""


Order = Send | Pull | Stop


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """How sending one message, or one batch, ended."""

    status: str = ""
    """The name of the library's status; empty when nobody waited for an answer."""
    message_id: str = ""
    queue_offset: int = -1
    error: str = ""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a consumer saw it."""

    topic: str
    body: str
    tag: str
    keys: str
    message_id: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    born_ms: int
    stored_ms: int
    properties: dict[str, str]


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """The answer to an order; the first one says that the client has started."""

    sent: list[Sent] = []
    pulled: list[Received] = []
    error: str = ""


class Arrival(msgspec.Struct, frozen=True, kw_only=True, tag="arrival"):
    """A push consumer got a message."""

    message: Received
