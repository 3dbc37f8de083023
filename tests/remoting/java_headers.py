"""The header classes of RocketMQ 4.9.8 as facts: the Java class of each of ours and its fields.

A field is `name:type`, then `!` when it is marked `@CFNotNull` and `=value` when it is initialized,
in the order of the Java class; `bname`, where there is one, is inherited. Read off the Java
sources, not off our classes, so that tests can hold one against the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.remoting import headers

if TYPE_CHECKING:
    from rmq.remoting.header import Header

PACKAGE: Final = "org.apache.rocketmq.common.protocol.header"
BNAME_CLASS: Final = "org.apache.rocketmq.common.rpc.RpcRequestHeader"


class JavaField(NamedTuple):
    """A field of a Java header class."""

    declaring_class: str
    name: str
    type: str
    not_null: bool
    initial: str | None


class JavaHeader(NamedTuple):
    """A header class of ours and the fields of its counterpart, inherited ones last."""

    header: type[Header]
    fields: tuple[JavaField, ...]


def _java(header: type[Header], name: str, fields: str) -> JavaHeader:
    return JavaHeader(header, tuple(_field(f"{PACKAGE}.{name}", field) for field in fields.split()))


def _field(owner: str, text: str) -> JavaField:
    name, _, rest = text.partition(":")
    kind, _, initial = rest.partition("=")
    declaring_class = BNAME_CLASS if name == "bname" else owner
    return JavaField(declaring_class, name, kind.rstrip("!"), kind.endswith("!"), initial or None)


JAVA_HEADERS: Final = (
    _java(
        headers.CheckTransactionStateRequest,
        "CheckTransactionStateRequestHeader",
        "tranStateTableOffset:Long! commitLogOffset:Long! msgId:String transactionId:String "
        "offsetMsgId:String bname:String",
    ),
    _java(
        headers.CloneGroupOffsetRequest,
        "CloneGroupOffsetRequestHeader",
        "srcGroup:String! destGroup:String! topic:String offline:boolean",
    ),
    _java(
        headers.ConsumeMessageDirectlyRequest,
        "ConsumeMessageDirectlyResultRequestHeader",
        "consumerGroup:String! clientId:String msgId:String brokerName:String",
    ),
    _java(
        headers.ConsumerSendMsgBackRequest,
        "ConsumerSendMsgBackRequestHeader",
        "offset:Long! group:String! delayLevel:Integer! originMsgId:String originTopic:String "
        "unitMode:boolean=false maxReconsumeTimes:Integer bname:String",
    ),
    _java(
        headers.CreateAccessConfigRequest,
        "CreateAccessConfigRequestHeader",
        "accessKey:String! secretKey:String whiteRemoteAddress:String admin:boolean "
        "defaultTopicPerm:String defaultGroupPerm:String topicPerms:String groupPerms:String",
    ),
    _java(
        headers.CreateTopicRequest,
        "CreateTopicRequestHeader",
        "topic:String! defaultTopic:String! readQueueNums:Integer! writeQueueNums:Integer! "
        "perm:Integer! topicFilterType:String! topicSysFlag:Integer order:Boolean!=false",
    ),
    _java(
        headers.DeleteAccessConfigRequest, "DeleteAccessConfigRequestHeader", "accessKey:String!"
    ),
    _java(
        headers.DeleteSubscriptionGroupRequest,
        "DeleteSubscriptionGroupRequestHeader",
        "groupName:String! removeOffset:boolean",
    ),
    _java(headers.DeleteTopicRequest, "DeleteTopicRequestHeader", "topic:String!"),
    _java(
        headers.EndTransactionRequest,
        "EndTransactionRequestHeader",
        "producerGroup:String! tranStateTableOffset:Long! commitLogOffset:Long! "
        "commitOrRollback:Integer! fromTransactionCheck:Boolean=false msgId:String! "
        "transactionId:String bname:String",
    ),
    _java(
        headers.GetBrokerAclConfigResponse,
        "GetBrokerAclConfigResponseHeader",
        "version:String! allAclFileVersion:String brokerName:String! brokerAddr:String! "
        "clusterName:String!",
    ),
    _java(headers.GetBrokerConfigResponse, "GetBrokerConfigResponseHeader", "version:String!"),
    _java(
        headers.GetBrokerConsumeStatsRequest, "GetConsumeStatsInBrokerHeader", "isOrder:boolean!"
    ),
    _java(
        headers.GetConsumeStatsRequest,
        "GetConsumeStatsRequestHeader",
        "consumerGroup:String! topic:String",
    ),
    _java(
        headers.GetConsumerConnectionListRequest,
        "GetConsumerConnectionListRequestHeader",
        "consumerGroup:String!",
    ),
    _java(
        headers.GetConsumerListByGroupRequest,
        "GetConsumerListByGroupRequestHeader",
        "consumerGroup:String!",
    ),
    _java(
        headers.GetConsumerRunningInfoRequest,
        "GetConsumerRunningInfoRequestHeader",
        "consumerGroup:String! clientId:String! jstackEnable:boolean",
    ),
    _java(
        headers.GetConsumerStatusRequest,
        "GetConsumerStatusRequestHeader",
        "topic:String! group:String! clientAddr:String",
    ),
    _java(
        headers.GetEarliestMsgStoretimeRequest,
        "GetEarliestMsgStoretimeRequestHeader",
        "topic:String! queueId:Integer! bname:String",
    ),
    _java(
        headers.GetEarliestMsgStoretimeResponse,
        "GetEarliestMsgStoretimeResponseHeader",
        "timestamp:Long!",
    ),
    _java(
        headers.GetMaxOffsetRequest,
        "GetMaxOffsetRequestHeader",
        "topic:String! queueId:Integer! bname:String",
    ),
    _java(headers.GetMaxOffsetResponse, "GetMaxOffsetResponseHeader", "offset:Long!"),
    _java(
        headers.GetMinOffsetRequest,
        "GetMinOffsetRequestHeader",
        "topic:String! queueId:Integer! bname:String",
    ),
    _java(headers.GetMinOffsetResponse, "GetMinOffsetResponseHeader", "offset:Long!"),
    _java(
        headers.GetProducerConnectionListRequest,
        "GetProducerConnectionListRequestHeader",
        "producerGroup:String!",
    ),
    _java(headers.GetTopicStatsInfoRequest, "GetTopicStatsInfoRequestHeader", "topic:String!"),
    _java(headers.GetTopicsByClusterRequest, "GetTopicsByClusterRequestHeader", "cluster:String!"),
    _java(
        headers.NotifyConsumerIdsChangedRequest,
        "NotifyConsumerIdsChangedRequestHeader",
        "consumerGroup:String!",
    ),
    _java(
        headers.PullMessageRequest,
        "PullMessageRequestHeader",
        "consumerGroup:String! topic:String! queueId:Integer! queueOffset:Long! "
        "maxMsgNums:Integer! sysFlag:Integer! commitOffset:Long! suspendTimeoutMillis:Long! "
        "subscription:String subVersion:Long! expressionType:String bname:String",
    ),
    _java(
        headers.PullMessageResponse,
        "PullMessageResponseHeader",
        "suggestWhichBrokerId:Long! nextBeginOffset:Long! minOffset:Long! maxOffset:Long!",
    ),
    _java(
        headers.QueryConsumeQueueRequest,
        "QueryConsumeQueueRequestHeader",
        "topic:String queueId:int index:long count:int consumerGroup:String",
    ),
    _java(
        headers.QueryConsumeTimeSpanRequest,
        "QueryConsumeTimeSpanRequestHeader",
        "topic:String! group:String!",
    ),
    _java(
        headers.QueryConsumerOffsetRequest,
        "QueryConsumerOffsetRequestHeader",
        "consumerGroup:String! topic:String! queueId:Integer! bname:String",
    ),
    _java(headers.QueryConsumerOffsetResponse, "QueryConsumerOffsetResponseHeader", "offset:Long!"),
    _java(
        headers.QueryCorrectionOffsetRequest,
        "QueryCorrectionOffsetHeader",
        "filterGroups:String compareGroup:String! topic:String!",
    ),
    _java(
        headers.QueryMessageRequest,
        "QueryMessageRequestHeader",
        "topic:String! key:String! maxNum:Integer! beginTimestamp:Long! endTimestamp:Long!",
    ),
    _java(
        headers.QueryMessageResponse,
        "QueryMessageResponseHeader",
        "indexLastUpdateTimestamp:Long! indexLastUpdatePhyoffset:Long!",
    ),
    _java(
        headers.QueryTopicConsumeByWhoRequest,
        "QueryTopicConsumeByWhoRequestHeader",
        "topic:String!",
    ),
    _java(
        headers.PushReplyMessageRequest,
        "ReplyMessageRequestHeader",
        "producerGroup:String! topic:String! defaultTopic:String! "
        "defaultTopicQueueNums:Integer! queueId:Integer! sysFlag:Integer! bornTimestamp:Long! "
        "flag:Integer! properties:String reconsumeTimes:Integer unitMode:boolean=false "
        "bornHost:String! storeHost:String! storeTimestamp:long!",
    ),
    _java(
        headers.ResetOffsetRequest,
        "ResetOffsetRequestHeader",
        "topic:String! group:String! timestamp:long! isForce:boolean!",
    ),
    _java(
        headers.ResumeCheckHalfMessageRequest, "ResumeCheckHalfMessageRequestHeader", "msgId:String"
    ),
    _java(
        headers.SearchOffsetRequest,
        "SearchOffsetRequestHeader",
        "topic:String! queueId:Integer! timestamp:Long! bname:String",
    ),
    _java(headers.SearchOffsetResponse, "SearchOffsetResponseHeader", "offset:Long!"),
    _java(
        headers.SendMessageRequest,
        "SendMessageRequestHeader",
        "producerGroup:String! topic:String! defaultTopic:String! "
        "defaultTopicQueueNums:Integer! queueId:Integer! sysFlag:Integer! bornTimestamp:Long! "
        "flag:Integer! properties:String reconsumeTimes:Integer unitMode:boolean=false "
        "batch:boolean=false maxReconsumeTimes:Integer bname:String",
    ),
    _java(
        headers.SendMessageRequestV2,
        "SendMessageRequestHeaderV2",
        "a:String! b:String! c:String! d:Integer! e:Integer! f:Integer! g:Long! h:Integer! "
        "i:String j:Integer k:boolean l:Integer m:boolean n:String bname:String",
    ),
    _java(
        headers.SendMessageResponse,
        "SendMessageResponseHeader",
        "msgId:String! queueId:Integer! queueOffset:Long! transactionId:String",
    ),
    _java(
        headers.UnregisterClientRequest,
        "UnregisterClientRequestHeader",
        "clientID:String! producerGroup:String consumerGroup:String",
    ),
    _java(
        headers.UpdateConsumerOffsetRequest,
        "UpdateConsumerOffsetRequestHeader",
        "consumerGroup:String! topic:String! queueId:Integer! commitOffset:Long! bname:String",
    ),
    _java(
        headers.UpdateGlobalWhiteAddrsConfigRequest,
        "UpdateGlobalWhiteAddrsConfigRequestHeader",
        "globalWhiteAddrs:String! aclFileFullPath:String!",
    ),
    _java(
        headers.ViewBrokerStatsDataRequest,
        "ViewBrokerStatsDataRequestHeader",
        "statsName:String! statsKey:String!",
    ),
    _java(headers.ViewMessageRequest, "ViewMessageRequestHeader", "offset:Long!"),
    _java(
        headers.RegisterMessageFilterClassRequest,
        "filtersrv.RegisterMessageFilterClassRequestHeader",
        "consumerGroup:String! topic:String! className:String! classCRC:Integer!",
    ),
    _java(
        headers.AddWritePermOfBrokerRequest,
        "namesrv.AddWritePermOfBrokerRequestHeader",
        "brokerName:String!",
    ),
    _java(
        headers.AddWritePermOfBrokerResponse,
        "namesrv.AddWritePermOfBrokerResponseHeader",
        "addTopicCount:Integer!",
    ),
    _java(
        headers.DeleteKvConfigRequest,
        "namesrv.DeleteKVConfigRequestHeader",
        "namespace:String! key:String!",
    ),
    _java(
        headers.DeleteTopicFromNamesrvRequest,
        "namesrv.DeleteTopicFromNamesrvRequestHeader",
        "topic:String! clusterName:String",
    ),
    _java(
        headers.GetKvConfigRequest,
        "namesrv.GetKVConfigRequestHeader",
        "namespace:String! key:String!",
    ),
    _java(headers.GetKvConfigResponse, "namesrv.GetKVConfigResponseHeader", "value:String"),
    _java(
        headers.GetKvListByNamespaceRequest,
        "namesrv.GetKVListByNamespaceRequestHeader",
        "namespace:String!",
    ),
    _java(
        headers.GetRouteInfoRequest,
        "namesrv.GetRouteInfoRequestHeader",
        "topic:String! acceptStandardJsonOnly:Boolean",
    ),
    _java(
        headers.PutKvConfigRequest,
        "namesrv.PutKVConfigRequestHeader",
        "namespace:String! key:String! value:String!",
    ),
    _java(
        headers.QueryDataVersionRequest,
        "namesrv.QueryDataVersionRequestHeader",
        "brokerName:String! brokerAddr:String! clusterName:String! brokerId:Long!",
    ),
    _java(
        headers.QueryDataVersionResponse,
        "namesrv.QueryDataVersionResponseHeader",
        "changed:Boolean!",
    ),
    _java(
        headers.RegisterBrokerRequest,
        "namesrv.RegisterBrokerRequestHeader",
        "brokerName:String! brokerAddr:String! clusterName:String! haServerAddr:String! "
        "brokerId:Long! compressed:boolean bodyCrc32:Integer=0",
    ),
    _java(
        headers.RegisterBrokerResponse,
        "namesrv.RegisterBrokerResponseHeader",
        "haServerAddr:String masterAddr:String",
    ),
    _java(
        headers.UnregisterBrokerRequest,
        "namesrv.UnRegisterBrokerRequestHeader",
        "brokerName:String! brokerAddr:String! clusterName:String! brokerId:Long!",
    ),
    _java(
        headers.WipeWritePermOfBrokerRequest,
        "namesrv.WipeWritePermOfBrokerRequestHeader",
        "brokerName:String!",
    ),
    _java(
        headers.WipeWritePermOfBrokerResponse,
        "namesrv.WipeWritePermOfBrokerResponseHeader",
        "wipeTopicCount:Integer!",
    ),
)
