"""One typed header class for every request and response of RocketMQ 4.9.8, and of our own.

A class has the fields of its Java counterpart, in the order of the Java class unless a comment
says why not, under Python names: `consumer_group` is `consumerGroup` on the wire. Where the wire is
cryptic the name is not (`broker_name` for `bname`, words for the letters of the second send
request). Types are real ones; `Int32` and `Int64` refuse what a Java `int` and `long` cannot hold.
Fields of ours in a stock header come last, and are not sent where they say nothing.

A field without a default is one that Java marks as mandatory (`@CFNotNull`). Java only logs that
one is missing and mostly fails later; here reading the header fails and names the field. Fields
that the receiving side of 4.9.8 never reads, or checks for null, are optional here whatever their
mark, and Java primitives that may be left out have Java's defaults.

`rmq.remoting.protocol` says which class belongs to which request code. Bodies are not here, nor is
any knowledge of what a broker does with a field.
"""

from rmq.remoting.header import EmptyHeader
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
    SendMessageErrorResponse,
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

__all__ = [
    "AddWritePermOfBrokerRequest",
    "AddWritePermOfBrokerResponse",
    "CheckTransactionStateRequest",
    "CloneGroupOffsetRequest",
    "ConsumeMessageDirectlyRequest",
    "ConsumerSendMsgBackRequest",
    "CreateAccessConfigRequest",
    "CreateTopicRequest",
    "DeleteAccessConfigRequest",
    "DeleteKvConfigRequest",
    "DeleteSubscriptionGroupRequest",
    "DeleteTopicFromNamesrvRequest",
    "DeleteTopicRequest",
    "EmptyHeader",
    "EndTransactionRequest",
    "GetBrokerAclConfigResponse",
    "GetBrokerConfigResponse",
    "GetBrokerConsumeStatsRequest",
    "GetConsumeStatsRequest",
    "GetConsumerConnectionListRequest",
    "GetConsumerListByGroupRequest",
    "GetConsumerRunningInfoRequest",
    "GetConsumerStatusRequest",
    "GetEarliestMsgStoretimeRequest",
    "GetEarliestMsgStoretimeResponse",
    "GetKvConfigRequest",
    "GetKvConfigResponse",
    "GetKvListByNamespaceRequest",
    "GetMaxOffsetRequest",
    "GetMaxOffsetResponse",
    "GetMinOffsetRequest",
    "GetMinOffsetResponse",
    "GetProducerConnectionListRequest",
    "GetRouteInfoRequest",
    "GetTopicStatsInfoRequest",
    "GetTopicsByClusterRequest",
    "HaDemoteRequest",
    "HaDigestsRequest",
    "HaFenceRequest",
    "HaPromoteRequest",
    "HaRenounceRequest",
    "HaResyncRequest",
    "HaStepDownRequest",
    "NotifyConsumerIdsChangedRequest",
    "PullMessageRequest",
    "PullMessageResponse",
    "PushReplyMessageRequest",
    "PutKvConfigRequest",
    "QueryConsumeQueueRequest",
    "QueryConsumeTimeSpanRequest",
    "QueryConsumerOffsetRequest",
    "QueryConsumerOffsetResponse",
    "QueryCorrectionOffsetRequest",
    "QueryDataVersionRequest",
    "QueryDataVersionResponse",
    "QueryMessageRequest",
    "QueryMessageResponse",
    "QueryTopicConsumeByWhoRequest",
    "RegisterBrokerRequest",
    "RegisterBrokerResponse",
    "RegisterMessageFilterClassRequest",
    "ResetOffsetRequest",
    "ResumeCheckHalfMessageRequest",
    "SearchOffsetRequest",
    "SearchOffsetResponse",
    "SendMessageErrorResponse",
    "SendMessageRequest",
    "SendMessageRequestV2",
    "SendMessageResponse",
    "UnregisterBrokerRequest",
    "UnregisterClientRequest",
    "UpdateConsumerOffsetRequest",
    "UpdateGlobalWhiteAddrsConfigRequest",
    "ViewBrokerStatsDataRequest",
    "ViewMessageRequest",
    "WipeWritePermOfBrokerRequest",
    "WipeWritePermOfBrokerResponse",
]
