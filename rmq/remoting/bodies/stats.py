"""Figures of topics, groups and brokers, as admin tools ask for them."""

import msgspec

from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.base import Body
from rmq.remoting.header import Int64


class TopicOffset(Body, frozen=True, kw_only=True):
    """What one queue holds."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body, frozen=True, kw_only=True):
    """The answer to 202, GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = msgspec.field(default_factory=dict)


class OffsetWrapper(Body, frozen=True, kw_only=True):
    """How far a group has read one queue."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    """Store time of the last message consumed, 0 if there is none."""


class ConsumeStats(Body, frozen=True, kw_only=True):
    """The answer to 208, GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, OffsetWrapper] = msgspec.field(default_factory=dict)
    consume_tps: float = 0.0


class ConsumeStatsList(Body, frozen=True, kw_only=True):
    """The answer to 317, GET_BROKER_CONSUME_STATS: per group one `ConsumeStats` for each topic."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: Int64 = 0


class BrokerStatsItem(Body, frozen=True, kw_only=True):
    """One figure over one span of time."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True, kw_only=True):
    """The answer to 315, VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """From when to when the messages of one queue are, and how far behind a group is.

    The texts say the same as the numbers, in local time as `yyyy-MM-dd#HH:mm:ss:SSS`. Stock readers
    ignore them and make their own.
    """

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body, frozen=True, kw_only=True):
    """The answer to 303, QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()
