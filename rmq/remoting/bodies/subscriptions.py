"""What a consumer group subscribes to, as heartbeats carry it and admin answers repeat it."""

from enum import StrEnum
from typing import Final

from rmq.remoting.bodies.base import Body
from rmq.remoting.header import Int32, Int64

SUBSCRIBE_ALL: Final = "*"
"""The `sub_string` that takes every message."""


class ConsumeType(StrEnum):
    """Who decides when messages are fetched."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    """The application pulls."""
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    """The client pulls and pushes to a listener."""


class MessageModel(StrEnum):
    """Whether every member of a group gets every message, or they share them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without a stored offset starts."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body, frozen=True, kw_only=True):
    """One topic of a subscription. Both sides compare `sub_version` to notice a change."""

    class_filter_mode: bool = False
    topic: str
    sub_string: str | None = None
    """The expression: tags joined by `||`, an SQL92 condition, or `SUBSCRIBE_ALL`."""
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[Int32] = frozenset()
    """The Java hash codes of the tags, which the broker compares instead of the tags."""
    sub_version: Int64 = 0
    """Milliseconds, set by who subscribes (when it is missing Java takes the time of reading)."""
    expression_type: str | None = "TAG"
    """`TAG` or `SQL92`; brokers take None for `TAG`."""


class CheckClientRequestBody(Body, frozen=True, kw_only=True):
    """Request 46, CHECK_CLIENT_CONFIG: can the broker filter by this expression?"""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
