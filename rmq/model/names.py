"""Names that mean something to brokers and clients alike: prefixes and built-in topics."""

from __future__ import annotations

from typing import Final

MASTER_ID: Final = 0
"""The brokerId of the master of a name."""

RETRY_PREFIX: Final = "%RETRY%"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
"""What the topic of a cluster for replies to request messages ends in."""
DLQ_PREFIX: Final = "%DLQ%"

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The topic whose settings are the template of topics that a send creates."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Where delayed messages wait, one queue per level; its queue entries tell when a message is due
instead of its tag.
"""
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Gets half messages whose producer never committed or rolled them back."""

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
"""System topics of every broker; each adds those named after itself and its cluster."""
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""Every client has a producer of this group, by which it sends messages back."""


def retry_topic(group: str) -> str:
    """Return the topic that holds what a group is to get again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic that holds what a group has given up on."""
    return DLQ_PREFIX + group


NAMESERVERS_VARIABLE: Final = "NAMESRV_ADDR"
"""The environment variable with the addresses of the nameservers."""
