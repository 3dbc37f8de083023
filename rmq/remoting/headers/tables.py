"""Which header class each of the 95 requests of 4.9.8 has, and each success answer; then our own.

In both columns `None` means that no extFields are sent and `EmptyHeader` that `"extFields":{}` is.
Requests that nothing in 4.9.8 sends or serves have neither. What an answer carries when the request
failed is not here: mostly nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rmq.remoting.codes import RequestCode
from rmq.remoting.header import EmptyHeader, Header
from rmq.remoting.headers.acl import (
    CreateAccessConfigRequest,
    DeleteAccessConfigRequest,
    GetBrokerAclConfigResponse,
    UpdateGlobalWhiteAddrsConfigRequest,
)
from rmq.remoting.headers.broker_admin import (
    GetBrokerConfigResponse,
    ViewBrokerStatsDataRequest,
)
from rmq.remoting.headers.callbacks import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
    PushReplyMessageRequest,
)
from rmq.remoting.headers.clients import (
    GetConsumerConnectionListRequest,
    GetConsumerListByGroupRequest,
    GetProducerConnectionListRequest,
    RegisterMessageFilterClassRequest,
    UnregisterClientRequest,
)
from rmq.remoting.headers.groups import (
    DeleteSubscriptionGroupRequest,
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
)
from rmq.remoting.headers.ha import (
    HaDemoteRequest,
    HaDigestsRequest,
    HaFenceRequest,
    HaPromoteRequest,
    HaRenounceRequest,
    HaResyncRequest,
    HaStepDownRequest,
)
from rmq.remoting.headers.nameserver import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    DeleteKvConfigRequest,
    DeleteTopicFromNamesrvRequest,
    GetKvConfigRequest,
    GetKvConfigResponse,
    GetKvListByNamespaceRequest,
    GetRouteInfoRequest,
    GetTopicsByClusterRequest,
    PutKvConfigRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from rmq.remoting.headers.offsets import (
    CloneGroupOffsetRequest,
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    QueryCorrectionOffsetRequest,
    ResetOffsetRequest,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from rmq.remoting.headers.pull import (
    PullMessageRequest,
    PullMessageResponse,
)
from rmq.remoting.headers.queries import (
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from rmq.remoting.headers.send import (
    ConsumerSendMsgBackRequest,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.remoting.headers.topics import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetTopicStatsInfoRequest,
    QueryConsumeTimeSpanRequest,
    QueryTopicConsumeByWhoRequest,
)
from rmq.remoting.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    ResumeCheckHalfMessageRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_Entry = tuple[type[Header] | None, type[Header] | None]

# Request, success answer.
_HEADERS: Final[dict[RequestCode, _Entry]] = {
    RequestCode.SEND_MESSAGE: (SendMessageRequest, SendMessageResponse),
    RequestCode.PULL_MESSAGE: (PullMessageRequest, PullMessageResponse),
    RequestCode.QUERY_MESSAGE: (QueryMessageRequest, QueryMessageResponse),
    RequestCode.QUERY_BROKER_OFFSET: (None, None),
    RequestCode.QUERY_CONSUMER_OFFSET: (QueryConsumerOffsetRequest, QueryConsumerOffsetResponse),
    RequestCode.UPDATE_CONSUMER_OFFSET: (UpdateConsumerOffsetRequest, EmptyHeader),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (CreateTopicRequest, None),
    RequestCode.GET_ALL_TOPIC_CONFIG: (None, EmptyHeader),
    RequestCode.GET_TOPIC_CONFIG_LIST: (None, None),
    RequestCode.GET_TOPIC_NAME_LIST: (None, None),
    RequestCode.UPDATE_BROKER_CONFIG: (None, None),
    RequestCode.GET_BROKER_CONFIG: (None, GetBrokerConfigResponse),
    RequestCode.TRIGGER_DELETE_FILES: (None, None),
    RequestCode.GET_BROKER_RUNTIME_INFO: (None, None),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (SearchOffsetRequest, SearchOffsetResponse),
    RequestCode.GET_MAX_OFFSET: (GetMaxOffsetRequest, GetMaxOffsetResponse),
    RequestCode.GET_MIN_OFFSET: (GetMinOffsetRequest, GetMinOffsetResponse),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (
        GetEarliestMsgStoretimeRequest,
        GetEarliestMsgStoretimeResponse,
    ),
    RequestCode.VIEW_MESSAGE_BY_ID: (ViewMessageRequest, None),
    RequestCode.HEART_BEAT: (None, None),
    RequestCode.UNREGISTER_CLIENT: (UnregisterClientRequest, EmptyHeader),
    RequestCode.CONSUMER_SEND_MSG_BACK: (ConsumerSendMsgBackRequest, None),
    RequestCode.END_TRANSACTION: (EndTransactionRequest, None),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (GetConsumerListByGroupRequest, EmptyHeader),
    RequestCode.CHECK_TRANSACTION_STATE: (CheckTransactionStateRequest, None),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: (NotifyConsumerIdsChangedRequest, None),
    RequestCode.LOCK_BATCH_MQ: (None, None),
    RequestCode.UNLOCK_BATCH_MQ: (None, None),
    RequestCode.GET_ALL_CONSUMER_OFFSET: (None, None),
    RequestCode.GET_ALL_DELAY_OFFSET: (None, None),
    RequestCode.CHECK_CLIENT_CONFIG: (None, None),
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: (CreateAccessConfigRequest, None),
    RequestCode.DELETE_ACL_CONFIG: (DeleteAccessConfigRequest, None),
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: (None, GetBrokerAclConfigResponse),
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (UpdateGlobalWhiteAddrsConfigRequest, None),
    RequestCode.PUT_KV_CONFIG: (PutKvConfigRequest, None),
    RequestCode.GET_KV_CONFIG: (GetKvConfigRequest, GetKvConfigResponse),
    RequestCode.DELETE_KV_CONFIG: (DeleteKvConfigRequest, None),
    RequestCode.REGISTER_BROKER: (RegisterBrokerRequest, RegisterBrokerResponse),
    RequestCode.UNREGISTER_BROKER: (UnregisterBrokerRequest, None),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (GetRouteInfoRequest, None),
    RequestCode.GET_BROKER_CLUSTER_INFO: (None, None),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (None, None),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (None, None),
    RequestCode.GET_TOPIC_STATS_INFO: (GetTopicStatsInfoRequest, None),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (GetConsumerConnectionListRequest, None),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: (GetProducerConnectionListRequest, None),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: (
        WipeWritePermOfBrokerRequest,
        WipeWritePermOfBrokerResponse,
    ),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (None, None),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (DeleteSubscriptionGroupRequest, None),
    RequestCode.GET_CONSUME_STATS: (GetConsumeStatsRequest, None),
    RequestCode.SUSPEND_CONSUMER: (None, None),
    RequestCode.RESUME_CONSUMER: (None, None),
    RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER: (None, None),
    RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER: (None, None),
    RequestCode.ADJUST_CONSUMER_THREAD_POOL: (None, None),
    RequestCode.WHO_CONSUME_THE_MESSAGE: (None, None),
    RequestCode.DELETE_TOPIC_IN_BROKER: (DeleteTopicRequest, None),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (DeleteTopicFromNamesrvRequest, None),
    RequestCode.GET_KVLIST_BY_NAMESPACE: (GetKvListByNamespaceRequest, None),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: (ResetOffsetRequest, None),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: (GetConsumerStatusRequest, None),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (ResetOffsetRequest, None),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (GetConsumerStatusRequest, None),
    RequestCode.GET_TOPICS_BY_CLUSTER: (GetTopicsByClusterRequest, None),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (QueryTopicConsumeByWhoRequest, None),
    RequestCode.REGISTER_FILTER_SERVER: (None, None),
    RequestCode.REGISTER_MESSAGE_FILTER_CLASS: (RegisterMessageFilterClassRequest, None),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (QueryConsumeTimeSpanRequest, None),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: (None, None),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (None, None),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: (None, None),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (GetConsumerRunningInfoRequest, None),
    RequestCode.QUERY_CORRECTION_OFFSET: (QueryCorrectionOffsetRequest, None),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (ConsumeMessageDirectlyRequest, None),
    RequestCode.SEND_MESSAGE_V2: (SendMessageRequestV2, SendMessageResponse),
    RequestCode.GET_UNIT_TOPIC_LIST: (None, None),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (None, None),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (None, None),
    RequestCode.CLONE_GROUP_OFFSET: (CloneGroupOffsetRequest, None),
    RequestCode.VIEW_BROKER_STATS_DATA: (ViewBrokerStatsDataRequest, None),
    RequestCode.CLEAN_UNUSED_TOPIC: (None, None),
    RequestCode.GET_BROKER_CONSUME_STATS: (GetBrokerConsumeStatsRequest, None),
    RequestCode.UPDATE_NAMESRV_CONFIG: (None, None),
    RequestCode.GET_NAMESRV_CONFIG: (None, None),
    RequestCode.SEND_BATCH_MESSAGE: (SendMessageRequestV2, SendMessageResponse),
    RequestCode.QUERY_CONSUME_QUEUE: (QueryConsumeQueueRequest, None),
    RequestCode.QUERY_DATA_VERSION: (QueryDataVersionRequest, QueryDataVersionResponse),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (ResumeCheckHalfMessageRequest, None),
    RequestCode.SEND_REPLY_MESSAGE: (SendMessageRequest, SendMessageResponse),
    RequestCode.SEND_REPLY_MESSAGE_V2: (SendMessageRequestV2, SendMessageResponse),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: (PushReplyMessageRequest, None),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: (
        AddWritePermOfBrokerRequest,
        AddWritePermOfBrokerResponse,
    ),
    RequestCode.GET_ALL_PRODUCER_INFO: (EmptyHeader, None),
    RequestCode.DELETE_EXPIRED_COMMITLOG: (None, None),
    RequestCode.HA_STATUS: (None, None),
    RequestCode.HA_PROMOTE: (HaPromoteRequest, None),
    RequestCode.HA_DEMOTE: (HaDemoteRequest, None),
    RequestCode.HA_RESYNC: (HaResyncRequest, None),
    RequestCode.HA_DIGESTS: (HaDigestsRequest, None),
    RequestCode.HA_STEP_DOWN: (HaStepDownRequest, None),
    RequestCode.HA_FENCE: (HaFenceRequest, None),
    RequestCode.HA_RENOUNCE: (HaRenounceRequest, None),
}

REQUEST_HEADERS: Final[Mapping[RequestCode, type[Header] | None]] = MappingProxyType(
    {code: request for code, (request, _) in _HEADERS.items()}
)
"""The header class of a request."""

RESPONSE_HEADERS: Final[Mapping[RequestCode, type[Header] | None]] = MappingProxyType(
    {code: response for code, (_, response) in _HEADERS.items()}
)
"""The header class of the success answer to a request."""
