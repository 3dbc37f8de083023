"""Topics: their settings on a broker, the version of those, and lists of names."""

from enum import StrEnum

import msgspec

from rmq.remoting.bodies.base import Body
from rmq.remoting.header import Int32, Int64


class DataVersion(Body, frozen=True, kw_only=True):
    """The version of a table; versions are equal only if both members are.

    Request and answer of 322, QUERY_DATA_VERSION, and part of the tables themselves. A version
    that was not sent is 0 here and therefore differs from every real one; Java makes it the time of
    reading, to the same end.
    """

    timestamp: Int64 = 0
    """Milliseconds of the last change."""
    counter: Int64 = 0


class TopicFilterType(StrEnum):
    """Whether a message may have several tags; nothing depends on it any more."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


# Nothing in it can be part of a cycle, and there may be 100,000 for the collector to walk.
class TopicConfig(Body, frozen=True, kw_only=True, gc=False):
    """One topic on one broker."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: TopicFilterType | None = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False


class TopicConfigSerializeWrapper(Body, frozen=True, kw_only=True):
    """All topics of a broker: the answer to 21, GET_ALL_TOPIC_CONFIG, and part of registrations.

    It is the whole body of REGISTER_BROKER from brokers below version 37.
    """

    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TopicList(Body, frozen=True, kw_only=True):
    """Names of topics: the answer to 206, 224, 304, 305, 311, 312 and 313."""

    topic_list: frozenset[str] = frozenset()
    broker_addr: str | None = None
    """A nameserver puts the address of some broker here in its answer to 304."""
