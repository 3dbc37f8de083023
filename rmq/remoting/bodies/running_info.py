"""What a consumer tells about itself when a broker asks it on behalf of an admin tool."""

from enum import StrEnum

import msgspec

from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.base import Body
from rmq.remoting.bodies.subscriptions import SubscriptionData
from rmq.remoting.header import Int32, Int64


class ProcessQueueInfo(Body, frozen=True, kw_only=True):
    """The messages of one queue that the consumer has fetched. `droped` is the wire's spelling."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    droped: bool = False
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class ConsumeStatus(Body, frozen=True, kw_only=True):
    """How fast one topic is pulled and consumed: milliseconds, and messages per second."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(Body, frozen=True, kw_only=True):
    """The answer to 307, GET_CONSUMER_RUNNING_INFO. Java sorts the queues and the subscriptions."""

    properties: dict[str, str] = msgspec.field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = msgspec.field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = msgspec.field(default_factory=dict)
    """By topic."""
    jstack: str | None = None
    """The stacks of all threads, if they were asked for."""


class CMResult(StrEnum):
    """How a listener took a message."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body, frozen=True, kw_only=True):
    """The answer to 309, CONSUME_MESSAGE_DIRECTLY. `spent_time_mills` is the wire's spelling."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0
