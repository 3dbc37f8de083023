"""Headers of 11 PULL_MESSAGE, the busiest request of a consuming cluster."""

from typing import ClassVar

from msgspec import field

from rmq.remoting.header import Header, Int32, Int64


class PullMessageRequest(Header, frozen=True, kw_only=True):
    """11 PULL_MESSAGE: messages of one queue from an offset on, waiting for them if asked to."""

    declared_order: ClassVar[bool] = True

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    # Stored as the group's consumer offset when `sys_flag` says so.
    commit_offset: Int64
    suspend_timeout_millis: Int64
    # The filter expression; only looked at when `sys_flag` says it is there.
    subscription: str | None = None
    sub_version: Int64
    # TAG (also when absent or empty) or SQL92.
    expression_type: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class PullMessageResponse(Header, frozen=True, kw_only=True):
    """Answer to 11 PULL_MESSAGE when the code is success or PULL_NOT_FOUND,
    PULL_RETRY_IMMEDIATELY or PULL_OFFSET_MOVED. Other codes carry an `EmptyHeader`.
    """

    declared_order: ClassVar[bool] = True

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
