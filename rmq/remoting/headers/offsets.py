"""Headers about offsets: what a group has consumed, what a queue holds, and how to move a group."""

from msgspec import field

from rmq.remoting.header import Header, Int32, Int64


class QueryConsumerOffsetRequest(Header, frozen=True, kw_only=True):
    """14 QUERY_CONSUMER_OFFSET: where a group continues in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, name="bname")


class QueryConsumerOffsetResponse(Header, frozen=True, kw_only=True):
    """Answer to 14 QUERY_CONSUMER_OFFSET."""

    offset: Int64


class UpdateConsumerOffsetRequest(Header, frozen=True, kw_only=True):
    """15 UPDATE_CONSUMER_OFFSET: set where a group continues in a queue; often one-way."""

    consumer_group: str
    topic: str
    queue_id: Int32
    # Before `commit_offset`, with which it shares a hash bucket: Java's reflection has it first.
    broker_name: str | None = field(default=None, name="bname")
    commit_offset: Int64


class SearchOffsetRequest(Header, frozen=True, kw_only=True):
    """29 SEARCH_OFFSET_BY_TIMESTAMP: the queue offset stored nearest to a time."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    broker_name: str | None = field(default=None, name="bname")


class SearchOffsetResponse(Header, frozen=True, kw_only=True):
    """Answer to 29 SEARCH_OFFSET_BY_TIMESTAMP."""

    offset: Int64


class GetMaxOffsetRequest(Header, frozen=True, kw_only=True):
    """30 GET_MAX_OFFSET: the next queue offset to be written."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, name="bname")


class GetMaxOffsetResponse(Header, frozen=True, kw_only=True):
    """Answer to 30 GET_MAX_OFFSET."""

    offset: Int64


class GetMinOffsetRequest(Header, frozen=True, kw_only=True):
    """31 GET_MIN_OFFSET: the smallest queue offset that can still be read."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, name="bname")


class GetMinOffsetResponse(Header, frozen=True, kw_only=True):
    """Answer to 31 GET_MIN_OFFSET."""

    offset: Int64


class GetEarliestMsgStoretimeRequest(Header, frozen=True, kw_only=True):
    """32 GET_EARLIEST_MSG_STORETIME: when the first readable message of a queue was stored."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, name="bname")


class GetEarliestMsgStoretimeResponse(Header, frozen=True, kw_only=True):
    """Answer to 32 GET_EARLIEST_MSG_STORETIME: milliseconds, -1 when there is no message."""

    timestamp: Int64


class ResetOffsetRequest(Header, frozen=True, kw_only=True):
    """222 INVOKE_BROKER_TO_RESET_OFFSET, and 220 RESET_CONSUMER_CLIENT_OFFSET to each consumer."""

    topic: str
    group: str
    # Milliseconds; -1 means the end of each queue. Java takes a missing one for 0 and rewinds the
    # group to the beginning, which is never intended: here it is mandatory.
    timestamp: Int64
    is_force: bool = False


class QueryCorrectionOffsetRequest(Header, frozen=True, kw_only=True):
    """308 QUERY_CORRECTION_OFFSET: the smallest offsets of all groups, compared with one."""

    # Comma-separated groups to leave out.
    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequest(Header, frozen=True, kw_only=True):
    """314 CLONE_GROUP_OFFSET: let one group continue where another is."""

    src_group: str
    dest_group: str
    # All topics of the source group when absent or blank.
    topic: str | None = None
    offline: bool = False
