"""Which names of topics belong to the broker itself, as in RocketMQ 4.9.8's TopicValidator."""

from __future__ import annotations

from typing import Final

from rmq.model.names import (
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    REPLY_SUFFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TRANSACTION_CHECK_MAX_TOPIC,
)

SEND_FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANSACTION_CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""What only the broker itself writes to."""


def reply_topic(cluster_name: str) -> str:
    """Return the topic that carries the answers of request-reply in a cluster."""
    return cluster_name + REPLY_SUFFIX


def is_send_forbidden(topic: str) -> bool:
    """Tell whether clients may not send to a topic."""
    return topic in SEND_FORBIDDEN_TOPICS
