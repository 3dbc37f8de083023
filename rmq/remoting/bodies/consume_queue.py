"""The answer to 321, QUERY_CONSUME_QUEUE: raw entries of one ConsumeQueue."""

from rmq.remoting.bodies.base import Body
from rmq.remoting.bodies.subscriptions import SubscriptionData
from rmq.remoting.header import Int32, Int64


class ConsumeQueueData(Body, frozen=True, kw_only=True):
    """One entry, and whether the message passes the filter of the group asked for."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, frozen=True, kw_only=True):
    """The entries asked for, and the first and last there are."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueData, ...] = ()
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
