"""Every request of RocketMQ 4.9.8, then our own: its code, headers and bodies, declared once.

A handler is registered for a declaration (`HandlerTable.add(Requests.GET_MAX_OFFSET, ...)`), which
says with which class the request's header is read; mypy compares it with the annotation of the
handler. Tests and fuzzers read `REQUESTS`.

Both headers: None means that no extFields are sent and `EmptyHeader` that `"extFields":{}` is.
What a response carries when the request failed is not here: mostly nothing. Requests that nothing
in 4.9.8 sends or serves have neither headers nor bodies.

Bodies are the JSON ones. Not here, because they are no JSON: the batch of 320 (`bodies.batch`), the
settings of 25, 26, 318 and 319 (`bodies.properties_text`), the messages of 10, 11, 12, 33, 39, 309,
310 and 324 to 326, and the compressed form of 103 (`bodies.registration`).

All files that a new request is written in are listed in docs/architecture.md, "Adding a request".
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, final, overload

from rmq.remoting import bodies, headers
from rmq.remoting.codes import RequestCode
from rmq.remoting.header import EmptyHeader, Header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.remoting.bodies import Body

H_co = TypeVar("H_co", bound=Header, covariant=True)


@final
class RequestType(Generic[H_co]):
    """What a request and its successful response carry, beside the code.

    A declaration in `Requests` is named like its code. Others, for tests, are given one.
    """

    __slots__ = ("body", "code", "header", "response_body", "response_header")

    code: RequestCode

    @overload
    def __init__(
        self: RequestType[EmptyHeader],
        header: None = None,
        response_header: type[Header] | None = None,
        *,
        body: type[Body] | None = None,
        response_body: type[Body] | None = None,
        code: RequestCode | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        header: type[H_co],
        response_header: type[Header] | None = None,
        *,
        body: type[Body] | None = None,
        response_body: type[Body] | None = None,
        code: RequestCode | None = None,
    ) -> None: ...

    def __init__(
        self,
        header: type[Header] | None = None,
        response_header: type[Header] | None = None,
        *,
        body: type[Body] | None = None,
        response_body: type[Body] | None = None,
        code: RequestCode | None = None,
    ) -> None:
        self.header = header
        self.response_header = response_header
        self.body = body
        self.response_body = response_body
        if code is not None:
            self.code = code

    def __set_name__(self, owner: type[Requests], name: str) -> None:
        self.code = RequestCode[name]

    @property
    def read_as(self) -> type[H_co]:
        """The class that a receiver reads the request's header with."""
        return cast("type[H_co]", self.header or EmptyHeader)


class Requests:
    """The declarations, in the order of `RequestCode`: request header, response header, bodies."""

    SEND_MESSAGE = RequestType(headers.SendMessageRequest, headers.SendMessageResponse)
    PULL_MESSAGE = RequestType(headers.PullMessageRequest, headers.PullMessageResponse)
    QUERY_MESSAGE = RequestType(headers.QueryMessageRequest, headers.QueryMessageResponse)
    QUERY_BROKER_OFFSET = RequestType()
    QUERY_CONSUMER_OFFSET = RequestType(
        headers.QueryConsumerOffsetRequest, headers.QueryConsumerOffsetResponse
    )
    UPDATE_CONSUMER_OFFSET = RequestType(headers.UpdateConsumerOffsetRequest, headers.EmptyHeader)
    UPDATE_AND_CREATE_TOPIC = RequestType(headers.CreateTopicRequest)
    GET_ALL_TOPIC_CONFIG = RequestType(
        response_header=headers.EmptyHeader, response_body=bodies.TopicConfigSerializeWrapper
    )
    GET_TOPIC_CONFIG_LIST = RequestType()
    GET_TOPIC_NAME_LIST = RequestType()
    UPDATE_BROKER_CONFIG = RequestType()
    GET_BROKER_CONFIG = RequestType(response_header=headers.GetBrokerConfigResponse)
    TRIGGER_DELETE_FILES = RequestType()
    GET_BROKER_RUNTIME_INFO = RequestType(response_body=bodies.KVTable)
    SEARCH_OFFSET_BY_TIMESTAMP = RequestType(
        headers.SearchOffsetRequest, headers.SearchOffsetResponse
    )
    GET_MAX_OFFSET = RequestType(headers.GetMaxOffsetRequest, headers.GetMaxOffsetResponse)
    GET_MIN_OFFSET = RequestType(headers.GetMinOffsetRequest, headers.GetMinOffsetResponse)
    GET_EARLIEST_MSG_STORETIME = RequestType(
        headers.GetEarliestMsgStoretimeRequest, headers.GetEarliestMsgStoretimeResponse
    )
    VIEW_MESSAGE_BY_ID = RequestType(headers.ViewMessageRequest)
    HEART_BEAT = RequestType(body=bodies.HeartbeatData)
    UNREGISTER_CLIENT = RequestType(headers.UnregisterClientRequest, headers.EmptyHeader)
    CONSUMER_SEND_MSG_BACK = RequestType(headers.ConsumerSendMsgBackRequest)
    END_TRANSACTION = RequestType(headers.EndTransactionRequest)
    GET_CONSUMER_LIST_BY_GROUP = RequestType(
        headers.GetConsumerListByGroupRequest,
        headers.EmptyHeader,
        response_body=bodies.GetConsumerListByGroupResponseBody,
    )
    CHECK_TRANSACTION_STATE = RequestType(headers.CheckTransactionStateRequest)
    NOTIFY_CONSUMER_IDS_CHANGED = RequestType(headers.NotifyConsumerIdsChangedRequest)
    LOCK_BATCH_MQ = RequestType(
        body=bodies.LockBatchRequestBody, response_body=bodies.LockBatchResponseBody
    )
    UNLOCK_BATCH_MQ = RequestType(body=bodies.UnlockBatchRequestBody)
    GET_ALL_CONSUMER_OFFSET = RequestType(response_body=bodies.ConsumerOffsetSerializeWrapper)
    GET_ALL_DELAY_OFFSET = RequestType(response_body=bodies.DelayOffsetSerializeWrapper)
    CHECK_CLIENT_CONFIG = RequestType(body=bodies.CheckClientRequestBody)
    UPDATE_AND_CREATE_ACL_CONFIG = RequestType(headers.CreateAccessConfigRequest)
    DELETE_ACL_CONFIG = RequestType(headers.DeleteAccessConfigRequest)
    GET_BROKER_CLUSTER_ACL_INFO = RequestType(response_header=headers.GetBrokerAclConfigResponse)
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = RequestType(headers.UpdateGlobalWhiteAddrsConfigRequest)
    PUT_KV_CONFIG = RequestType(headers.PutKvConfigRequest)
    GET_KV_CONFIG = RequestType(headers.GetKvConfigRequest, headers.GetKvConfigResponse)
    DELETE_KV_CONFIG = RequestType(headers.DeleteKvConfigRequest)
    REGISTER_BROKER = RequestType(
        headers.RegisterBrokerRequest,
        headers.RegisterBrokerResponse,
        body=bodies.RegisterBrokerBody,
        response_body=bodies.KVTable,
    )
    UNREGISTER_BROKER = RequestType(headers.UnregisterBrokerRequest)
    GET_ROUTEINFO_BY_TOPIC = RequestType(
        headers.GetRouteInfoRequest, response_body=bodies.TopicRouteData
    )
    GET_BROKER_CLUSTER_INFO = RequestType(response_body=bodies.ClusterInfo)
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = RequestType(body=bodies.SubscriptionGroupConfig)
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = RequestType(response_body=bodies.SubscriptionGroupWrapper)
    GET_TOPIC_STATS_INFO = RequestType(
        headers.GetTopicStatsInfoRequest, response_body=bodies.TopicStatsTable
    )
    GET_CONSUMER_CONNECTION_LIST = RequestType(
        headers.GetConsumerConnectionListRequest, response_body=bodies.ConsumerConnection
    )
    GET_PRODUCER_CONNECTION_LIST = RequestType(
        headers.GetProducerConnectionListRequest, response_body=bodies.ProducerConnection
    )
    WIPE_WRITE_PERM_OF_BROKER = RequestType(
        headers.WipeWritePermOfBrokerRequest, headers.WipeWritePermOfBrokerResponse
    )
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = RequestType(response_body=bodies.TopicList)
    DELETE_SUBSCRIPTIONGROUP = RequestType(headers.DeleteSubscriptionGroupRequest)
    GET_CONSUME_STATS = RequestType(
        headers.GetConsumeStatsRequest, response_body=bodies.ConsumeStats
    )
    SUSPEND_CONSUMER = RequestType()
    RESUME_CONSUMER = RequestType()
    RESET_CONSUMER_OFFSET_IN_CONSUMER = RequestType()
    RESET_CONSUMER_OFFSET_IN_BROKER = RequestType()
    ADJUST_CONSUMER_THREAD_POOL = RequestType()
    WHO_CONSUME_THE_MESSAGE = RequestType()
    DELETE_TOPIC_IN_BROKER = RequestType(headers.DeleteTopicRequest)
    DELETE_TOPIC_IN_NAMESRV = RequestType(headers.DeleteTopicFromNamesrvRequest)
    GET_KVLIST_BY_NAMESPACE = RequestType(
        headers.GetKvListByNamespaceRequest, response_body=bodies.KVTable
    )
    # Its body is ResetOffsetBodyForC when a C++ client asked for the reset.
    RESET_CONSUMER_CLIENT_OFFSET = RequestType(
        headers.ResetOffsetRequest, body=bodies.ResetOffsetBody
    )
    GET_CONSUMER_STATUS_FROM_CLIENT = RequestType(
        headers.GetConsumerStatusRequest, response_body=bodies.GetConsumerStatusBody
    )
    INVOKE_BROKER_TO_RESET_OFFSET = RequestType(
        headers.ResetOffsetRequest, response_body=bodies.ResetOffsetBody
    )
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = RequestType(
        headers.GetConsumerStatusRequest, response_body=bodies.GetConsumerStatusBody
    )
    GET_TOPICS_BY_CLUSTER = RequestType(
        headers.GetTopicsByClusterRequest, response_body=bodies.TopicList
    )
    QUERY_TOPIC_CONSUME_BY_WHO = RequestType(
        headers.QueryTopicConsumeByWhoRequest, response_body=bodies.GroupList
    )
    REGISTER_FILTER_SERVER = RequestType()
    REGISTER_MESSAGE_FILTER_CLASS = RequestType(headers.RegisterMessageFilterClassRequest)
    QUERY_CONSUME_TIME_SPAN = RequestType(
        headers.QueryConsumeTimeSpanRequest, response_body=bodies.QueryConsumeTimeSpanBody
    )
    GET_SYSTEM_TOPIC_LIST_FROM_NS = RequestType(response_body=bodies.TopicList)
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = RequestType(response_body=bodies.TopicList)
    CLEAN_EXPIRED_CONSUMEQUEUE = RequestType()
    GET_CONSUMER_RUNNING_INFO = RequestType(
        headers.GetConsumerRunningInfoRequest, response_body=bodies.ConsumerRunningInfo
    )
    QUERY_CORRECTION_OFFSET = RequestType(
        headers.QueryCorrectionOffsetRequest, response_body=bodies.QueryCorrectionOffsetBody
    )
    CONSUME_MESSAGE_DIRECTLY = RequestType(
        headers.ConsumeMessageDirectlyRequest, response_body=bodies.ConsumeMessageDirectlyResult
    )
    SEND_MESSAGE_V2 = RequestType(headers.SendMessageRequestV2, headers.SendMessageResponse)
    GET_UNIT_TOPIC_LIST = RequestType(response_body=bodies.TopicList)
    GET_HAS_UNIT_SUB_TOPIC_LIST = RequestType(response_body=bodies.TopicList)
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = RequestType(response_body=bodies.TopicList)
    CLONE_GROUP_OFFSET = RequestType(headers.CloneGroupOffsetRequest)
    VIEW_BROKER_STATS_DATA = RequestType(
        headers.ViewBrokerStatsDataRequest, response_body=bodies.BrokerStatsData
    )
    CLEAN_UNUSED_TOPIC = RequestType()
    GET_BROKER_CONSUME_STATS = RequestType(
        headers.GetBrokerConsumeStatsRequest, response_body=bodies.ConsumeStatsList
    )
    UPDATE_NAMESRV_CONFIG = RequestType()
    GET_NAMESRV_CONFIG = RequestType()
    SEND_BATCH_MESSAGE = RequestType(headers.SendMessageRequestV2, headers.SendMessageResponse)
    QUERY_CONSUME_QUEUE = RequestType(
        headers.QueryConsumeQueueRequest, response_body=bodies.QueryConsumeQueueResponseBody
    )
    QUERY_DATA_VERSION = RequestType(
        headers.QueryDataVersionRequest,
        headers.QueryDataVersionResponse,
        body=bodies.DataVersion,
        response_body=bodies.DataVersion,
    )
    RESUME_CHECK_HALF_MESSAGE = RequestType(headers.ResumeCheckHalfMessageRequest)
    SEND_REPLY_MESSAGE = RequestType(headers.SendMessageRequest, headers.SendMessageResponse)
    SEND_REPLY_MESSAGE_V2 = RequestType(headers.SendMessageRequestV2, headers.SendMessageResponse)
    PUSH_REPLY_MESSAGE_TO_CLIENT = RequestType(headers.PushReplyMessageRequest)
    ADD_WRITE_PERM_OF_BROKER = RequestType(
        headers.AddWritePermOfBrokerRequest, headers.AddWritePermOfBrokerResponse
    )
    GET_ALL_PRODUCER_INFO = RequestType(headers.EmptyHeader, response_body=bodies.ProducerTableInfo)
    DELETE_EXPIRED_COMMITLOG = RequestType()

    HA_STATUS = RequestType(headers.HaStatusRequest, response_body=bodies.HaStatusBody)
    HA_PROMOTE = RequestType(headers.HaPromoteRequest, response_body=bodies.HaPromoteBody)
    HA_DEMOTE = RequestType(headers.HaDemoteRequest, response_body=bodies.HaDemoteBody)
    HA_RESYNC = RequestType(headers.HaResyncRequest, response_body=bodies.HaResyncBody)
    HA_DIGESTS = RequestType(headers.HaDigestsRequest, response_body=bodies.HaDigestsBody)
    HA_STEP_DOWN = RequestType(headers.HaStepDownRequest, response_body=bodies.HaStepDownBody)
    HA_FENCE = RequestType(headers.HaFenceRequest)
    HA_RENOUNCE = RequestType(headers.HaRenounceRequest, response_body=bodies.HaStatusBody)
    HA_FORGET = RequestType(headers.HaForgetRequest, response_body=bodies.HaStatusBody)
    HA_RECORDS = RequestType(headers.HaRecordsRequest, headers.HaRecordsResponse)


REQUESTS: Final[Mapping[RequestCode, RequestType[Any]]] = MappingProxyType(
    {each.code: each for each in vars(Requests).values() if isinstance(each, RequestType)}
)
"""All declarations by code."""
