"""Which names a topic may have, and which of them belong to the broker itself.

The rules and the words for breaking them are those of RocketMQ 4.9.8's TopicValidator.
"""

from __future__ import annotations

import re
from typing import Final

from rmq.model.names import (
    AUTO_CREATE_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
)

BENCHMARK_TOPIC: Final = "BenchmarkTest"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where half messages end whose producer never said what became of them."""

TOPIC_LENGTH_MAX: Final = 127

ALWAYS_SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        TRANSACTION_CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""What is a system topic on every broker; each adds those named after it and its cluster."""

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

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

# Java does not take four of Python's spaces for blanks.
_BLANK: Final = re.compile(r"[^\S\x85\xa0\u2007\u202f]*")
_ILLEGAL: Final = re.compile(r"[^%|a-zA-Z0-9_-]")


def reply_topic(cluster_name: str) -> str:
    """Return the topic that carries the answers of request-reply in a cluster."""
    return f"{cluster_name}_REPLY_TOPIC"


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
