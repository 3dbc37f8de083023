"""Headers of look-ups: messages by key or address, and raw ConsumeQueue entries."""

from msgspec import field

from rmq.remoting.header import Header, Int32, Int64


class QueryMessageRequest(Header, frozen=True, kw_only=True):
    """12 QUERY_MESSAGE: messages of a topic that carry a key."""

    topic: str
    key: str
    max_num: Int32
    # Milliseconds, both included.
    begin_timestamp: Int64
    end_timestamp: Int64
    # Not in the Java class: clients add it to extFields by hand. Whether `key` is a unique message
    # id; the broker then uses a maximum of its own.
    unique_key_query: bool = field(default=False, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponse(Header, frozen=True, kw_only=True):
    """Answer to 12 QUERY_MESSAGE, with success and with QUERY_NOT_FOUND."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequest(Header, frozen=True, kw_only=True):
    """33 VIEW_MESSAGE_BY_ID: the one message at a physical offset."""

    offset: Int64


class QueryConsumeQueueRequest(Header, frozen=True, kw_only=True):
    """321 QUERY_CONSUME_QUEUE: `count` entries of a ConsumeQueue from `index` on."""

    # Not marked mandatory in Java, but no broker can answer without it.
    topic: str
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None
