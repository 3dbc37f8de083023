"""Which JSON body goes with which request code.

Not here, because they are no JSON: the batch of 320 (`batch`), the settings of 25, 26, 318 and 319
(`properties_text`), the messages of 10, 11, 12, 33, 39, 309, 310 and 324 to 326, and the compressed
form of 103 (`registration`). Codes without an entry have no body.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rmq.remoting.bodies.connections import (
    ConsumerConnection,
    ProducerConnection,
    ProducerTableInfo,
)
from rmq.remoting.bodies.consume_queue import QueryConsumeQueueResponseBody
from rmq.remoting.bodies.groups import (
    GetConsumerListByGroupResponseBody,
    GroupList,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rmq.remoting.bodies.ha import (
    HaDemoteBody,
    HaDigestsBody,
    HaPromoteBody,
    HaResyncBody,
    HaStatusBody,
    HaStepDownBody,
)
from rmq.remoting.bodies.heartbeat import HeartbeatData
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
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
)
from rmq.remoting.bodies.registration import RegisterBrokerBody
from rmq.remoting.bodies.routes import ClusterInfo, TopicRouteData
from rmq.remoting.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq.remoting.bodies.stats import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rmq.remoting.bodies.subscriptions import CheckClientRequestBody
from rmq.remoting.bodies.topics import DataVersion, TopicConfigSerializeWrapper, TopicList
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.remoting.bodies.base import Body

REQUEST_BODIES: Final[Mapping[RequestCode, type[Body]]] = MappingProxyType(
    {
        RequestCode.HEART_BEAT: HeartbeatData,
        RequestCode.LOCK_BATCH_MQ: LockBatchRequestBody,
        RequestCode.UNLOCK_BATCH_MQ: UnlockBatchRequestBody,
        RequestCode.CHECK_CLIENT_CONFIG: CheckClientRequestBody,
        RequestCode.REGISTER_BROKER: RegisterBrokerBody,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SubscriptionGroupConfig,
        # Sent as ResetOffsetBodyForC when a C++ client asked for the reset.
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsetBody,
        RequestCode.QUERY_DATA_VERSION: DataVersion,
    }
)
"""By the code of the request."""

RESPONSE_BODIES: Final[Mapping[RequestCode, type[Body]]] = MappingProxyType(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper,
        RequestCode.GET_BROKER_RUNTIME_INFO: KVTable,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: GetConsumerListByGroupResponseBody,
        RequestCode.LOCK_BATCH_MQ: LockBatchResponseBody,
        RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetSerializeWrapper,
        RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsetSerializeWrapper,
        RequestCode.REGISTER_BROKER: KVTable,
        RequestCode.GET_ROUTEINFO_BY_TOPIC: TopicRouteData,
        RequestCode.GET_BROKER_CLUSTER_INFO: ClusterInfo,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper,
        RequestCode.GET_TOPIC_STATS_INFO: TopicStatsTable,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: ConsumerConnection,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: ProducerConnection,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: TopicList,
        RequestCode.GET_CONSUME_STATS: ConsumeStats,
        RequestCode.GET_KVLIST_BY_NAMESPACE: KVTable,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: GetConsumerStatusBody,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsetBody,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: GetConsumerStatusBody,
        RequestCode.GET_TOPICS_BY_CLUSTER: TopicList,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: GroupList,
        RequestCode.QUERY_CONSUME_TIME_SPAN: QueryConsumeTimeSpanBody,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: TopicList,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: TopicList,
        RequestCode.GET_CONSUMER_RUNNING_INFO: ConsumerRunningInfo,
        RequestCode.QUERY_CORRECTION_OFFSET: QueryCorrectionOffsetBody,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: ConsumeMessageDirectlyResult,
        RequestCode.GET_UNIT_TOPIC_LIST: TopicList,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: TopicList,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: TopicList,
        RequestCode.VIEW_BROKER_STATS_DATA: BrokerStatsData,
        RequestCode.GET_BROKER_CONSUME_STATS: ConsumeStatsList,
        RequestCode.QUERY_CONSUME_QUEUE: QueryConsumeQueueResponseBody,
        RequestCode.QUERY_DATA_VERSION: DataVersion,
        RequestCode.GET_ALL_PRODUCER_INFO: ProducerTableInfo,
        RequestCode.HA_STATUS: HaStatusBody,
        RequestCode.HA_RENOUNCE: HaStatusBody,
        RequestCode.HA_PROMOTE: HaPromoteBody,
        RequestCode.HA_DEMOTE: HaDemoteBody,
        RequestCode.HA_RESYNC: HaResyncBody,
        RequestCode.HA_DIGESTS: HaDigestsBody,
        RequestCode.HA_STEP_DOWN: HaStepDownBody,
    }
)
"""By the code of the request that is answered, for answers with code SUCCESS."""
