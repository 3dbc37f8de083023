"""Which names a topic may have, and which of them belong to the broker itself.

The rules and the words for breaking them are those of RocketMQ 4.9.8's TopicValidator.
"""

from __future__ import annotations

import re
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

TOPIC_LENGTH_MAX: Final = 127

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

# Java does not take four of Python's spaces for blanks.
_BLANK: Final = re.compile(r"[^\S\x85\xa0\u2007\u202f]*")
_ILLEGAL: Final = re.compile(r"[^%|a-zA-Z0-9_-]")


def reply_topic(cluster_name: str) -> str:
    """Return the topic that carries the answers of request-reply in a cluster."""
    return cluster_name + REPLY_SUFFIX


def validate_topic(topic: str) -> str | None:
    """Return why a topic may not have this name, as the remark of the refusal; None if it may."""
    if _BLANK.fullmatch(topic):
        return "The specified topic is blank."
    if _ILLEGAL.search(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_LENGTH_MAX:
        return "The specified topic is longer than topic max length."
    return None


def is_send_forbidden(topic: str) -> bool:
    """Tell whether clients may not send to a topic."""
    return topic in SEND_FORBIDDEN_TOPICS
