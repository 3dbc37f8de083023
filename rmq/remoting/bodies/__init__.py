"""Typed bodies of remoting commands, one class for every JSON body of RocketMQ 4.9.8 and of ours.

Classes have the names and members of their Java counterparts (those in `ha` have none), under
Python names for the members: `group_name` is `groupName` on the wire. `Body.decode` reads the bytes
of a command, `encode` writes them as a stock peer would.

Reading order: `base` (what all JSON bodies share), `reading` (how tolerantly they are read), then
the bodies by subject; `rmq.remoting.protocol` says which request has which. `batch`,
`properties_text` and the compressed form in `registration` are the bodies that are not JSON.
Nothing here does I/O or knows the time.
"""

from rmq.remoting.bodies.base import Body, BodyError
from rmq.remoting.bodies.batch import BatchError, BatchMessage, decode_batch, encode_batch
from rmq.remoting.bodies.connections import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rmq.remoting.bodies.consume_queue import ConsumeQueueData, QueryConsumeQueueResponseBody
from rmq.remoting.bodies.groups import (
    GetConsumerListByGroupResponseBody,
    GroupList,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rmq.remoting.bodies.ha import (
    HaDemoteBody,
    HaDigest,
    HaDigestsBody,
    HaMaster,
    HaPromoteBody,
    HaResyncBody,
    HaSlave,
    HaStatusBody,
    HaStepDownBody,
)
from rmq.remoting.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rmq.remoting.bodies.kv import KVTable
from rmq.remoting.bodies.locks import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rmq.remoting.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    MessageQueueForC,
    OffsetMovedEvent,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    decode_reset_offset,
)
from rmq.remoting.bodies.properties_text import format_properties, parse_properties
from rmq.remoting.bodies.registration import DECOMPRESSED_BYTES_MAX, RegisterBrokerBody, body_crc32
from rmq.remoting.bodies.routes import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rmq.remoting.bodies.running_info import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from rmq.remoting.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from rmq.remoting.bodies.subscriptions import (
    SUBSCRIBE_ALL,
    CheckClientRequestBody,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rmq.remoting.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
)

__all__ = [
    "DECOMPRESSED_BYTES_MAX",
    "SUBSCRIBE_ALL",
    "BatchError",
    "BatchMessage",
    "Body",
    "BodyError",
    "BrokerData",
    "BrokerStatsData",
    "BrokerStatsItem",
    "CMResult",
    "CheckClientRequestBody",
    "ClusterInfo",
    "Connection",
    "ConsumeFromWhere",
    "ConsumeMessageDirectlyResult",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerOffsetSerializeWrapper",
    "ConsumerRunningInfo",
    "DataVersion",
    "DelayOffsetSerializeWrapper",
    "GetConsumerListByGroupResponseBody",
    "GetConsumerStatusBody",
    "GroupList",
    "HaDemoteBody",
    "HaDigest",
    "HaDigestsBody",
    "HaMaster",
    "HaPromoteBody",
    "HaResyncBody",
    "HaSlave",
    "HaStatusBody",
    "HaStepDownBody",
    "HeartbeatData",
    "KVTable",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "MessageModel",
    "MessageQueueForC",
    "OffsetMovedEvent",
    "OffsetWrapper",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QueueData",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "ResetOffsetBody",
    "ResetOffsetBodyForC",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupWrapper",
    "TopicConfig",
    "TopicConfigSerializeWrapper",
    "TopicFilterType",
    "TopicList",
    "TopicOffset",
    "TopicRouteData",
    "TopicStatsTable",
    "UnlockBatchRequestBody",
    "body_crc32",
    "decode_batch",
    "decode_reset_offset",
    "encode_batch",
    "format_properties",
    "parse_properties",
]
