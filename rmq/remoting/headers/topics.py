"""Headers about topics at a broker: create, delete, statistics and who consumes them.

Topics at the nameserver are in `nameserver`.
"""

from rmq.remoting.header import Header, Int32


class CreateTopicRequest(Header, frozen=True, kw_only=True):
    """17 UPDATE_AND_CREATE_TOPIC: create a topic or replace its settings."""

    topic: str
    # Marked mandatory in Java, but no broker reads it.
    default_topic: str | None = None
    read_queue_nums: Int32
    write_queue_nums: Int32
    # Permission bits: 4 read, 2 write, 1 inherit.
    perm: Int32
    # SINGLE_TAG or MULTI_TAG.
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False


class DeleteTopicRequest(Header, frozen=True, kw_only=True):
    """215 DELETE_TOPIC_IN_BROKER: forget a topic and drop its queues."""

    topic: str


class GetTopicStatsInfoRequest(Header, frozen=True, kw_only=True):
    """202 GET_TOPIC_STATS_INFO: offsets of every queue of a topic."""

    topic: str


class QueryTopicConsumeByWhoRequest(Header, frozen=True, kw_only=True):
    """300 QUERY_TOPIC_CONSUME_BY_WHO: the groups that consume a topic."""

    topic: str


class QueryConsumeTimeSpanRequest(Header, frozen=True, kw_only=True):
    """303 QUERY_CONSUME_TIME_SPAN: store times of each queue and how far a group is behind."""

    topic: str
    group: str
