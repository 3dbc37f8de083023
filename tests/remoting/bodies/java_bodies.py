"""The body classes of RocketMQ 4.9.8 as facts: the members of each, as Java writes and reads them.

A member is `name:type`, then `=value` when it is initialized, in the order of the Java class. Kinds
of maps, sets and lists are one each. `now` is the present time, `new` an object with defaults.
Read off the Java sources, not off our classes, so that tests can hold one against the other.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class JavaMember(NamedTuple):
    """A member of a Java body class."""

    name: str
    type: str
    initial: str | None


def _members(text: str) -> tuple[JavaMember, ...]:
    members: list[JavaMember] = []
    for member in text.split():
        name, _, rest = member.partition(":")
        kind, _, initial = rest.partition("=")
        members.append(JavaMember(name, kind, initial or None))
    return tuple(members)


_MEMBERS: Final = {
    "BrokerData": "cluster:String brokerName:String brokerAddrs:Map<long,String>",
    "BrokerStatsData": (
        "statsMinute:BrokerStatsItem statsHour:BrokerStatsItem statsDay:BrokerStatsItem"
    ),
    "BrokerStatsItem": "sum:long tps:double avgpt:double",
    "CheckClientRequestBody": "clientId:String group:String subscriptionData:SubscriptionData",
    "ClusterInfo": (
        "brokerAddrTable:Map<String,BrokerData> clusterAddrTable:Map<String,Set<String>>"
    ),
    "Connection": "clientId:String clientAddr:String language:LanguageCode version:int",
    "ConsumeMessageDirectlyResult": (
        "order:boolean=false autoCommit:boolean=true consumeResult:CMResult remark:String "
        "spentTimeMills:long"
    ),
    "ConsumeQueueData": (
        "physicOffset:long physicSize:int tagsCode:long extendDataJson:String bitMap:String "
        "eval:boolean msg:String"
    ),
    "ConsumeStats": "offsetTable:Map<MessageQueue,OffsetWrapper>=new consumeTps:double=0",
    "ConsumeStatsList": (
        "consumeStatsList:List<Map<String,List<ConsumeStats>>>=new brokerAddr:String totalDiff:long"
    ),
    "ConsumeStatus": (
        "pullRT:double pullTPS:double consumeRT:double consumeOKTPS:double "
        "consumeFailedTPS:double consumeFailedMsgs:long"
    ),
    "ConsumerConnection": (
        "connectionSet:Set<Connection>=new subscriptionTable:Map<String,SubscriptionData>=new "
        "consumeType:ConsumeType messageModel:MessageModel consumeFromWhere:ConsumeFromWhere"
    ),
    "ConsumerData": (
        "groupName:String consumeType:ConsumeType messageModel:MessageModel "
        "consumeFromWhere:ConsumeFromWhere subscriptionDataSet:Set<SubscriptionData>=new "
        "unitMode:boolean"
    ),
    "ConsumerOffsetSerializeWrapper": "offsetTable:Map<String,Map<int,long>>=new",
    "ConsumerRunningInfo": (
        "properties:Map<String,String>=new subscriptionSet:Set<SubscriptionData>=new "
        "mqTable:Map<MessageQueue,ProcessQueueInfo>=new statusTable:Map<String,ConsumeStatus>=new "
        "jstack:String"
    ),
    "DataVersion": "timestamp:long=now counter:long=0",
    "DelayOffsetSerializeWrapper": "offsetTable:Map<int,long>=new",
    "GetConsumerListByGroupResponseBody": "consumerIdList:List<String>",
    "GetConsumerStatusBody": (
        "messageQueueTable:Map<MessageQueue,long>=new "
        "consumerTable:Map<String,Map<MessageQueue,long>>=new"
    ),
    "GroupList": "groupList:Set<String>=new",
    "HeartbeatData": (
        "clientID:String producerDataSet:Set<ProducerData>=new "
        "consumerDataSet:Set<ConsumerData>=new"
    ),
    "KVTable": "table:Map<String,String>=new",
    "LockBatchRequestBody": "consumerGroup:String clientId:String mqSet:Set<MessageQueue>=new",
    "LockBatchResponseBody": "lockOKMQSet:Set<MessageQueue>=new",
    "MessageQueue": "topic:String brokerName:String queueId:int",
    "MessageQueueForC": "topic:String brokerName:String queueId:int offset:long",
    "OffsetMovedEvent": (
        "consumerGroup:String messageQueue:MessageQueue offsetRequest:long offsetNew:long"
    ),
    "OffsetWrapper": "brokerOffset:long consumerOffset:long lastTimestamp:long",
    "ProcessQueueInfo": (
        "commitOffset:long cachedMsgMinOffset:long cachedMsgMaxOffset:long cachedMsgCount:int "
        "cachedMsgSizeInMiB:int transactionMsgMinOffset:long transactionMsgMaxOffset:long "
        "transactionMsgCount:int locked:boolean tryUnlockTimes:long lastLockTimestamp:long "
        "droped:boolean lastPullTimestamp:long lastConsumeTimestamp:long"
    ),
    "ProducerConnection": "connectionSet:Set<Connection>=new",
    "ProducerData": "groupName:String",
    "ProducerInfo": (
        "clientId:String remoteIP:String language:LanguageCode version:int lastUpdateTimestamp:long"
    ),
    "ProducerTableInfo": "data:Map<String,List<ProducerInfo>>",
    "QueryConsumeQueueResponseBody": (
        "subscriptionData:SubscriptionData filterData:String queueData:List<ConsumeQueueData> "
        "maxQueueIndex:long minQueueIndex:long"
    ),
    "QueryConsumeTimeSpanBody": "consumeTimeSpanSet:List<QueueTimeSpan>=new",
    "QueryCorrectionOffsetBody": "correctionOffsets:Map<int,long>=new",
    "QueueData": (
        "brokerName:String readQueueNums:int writeQueueNums:int perm:int topicSysFlag:int"
    ),
    # The last three are getters only.
    "QueueTimeSpan": (
        "messageQueue:MessageQueue minTimeStamp:long maxTimeStamp:long consumeTimeStamp:long "
        "delayTime:long minTimeStampStr:String maxTimeStampStr:String consumeTimeStampStr:String"
    ),
    "RegisterBrokerBody": (
        "topicConfigSerializeWrapper:TopicConfigSerializeWrapper=new "
        "filterServerList:List<String>=new"
    ),
    "ResetOffsetBody": "offsetTable:Map<MessageQueue,long>",
    "ResetOffsetBodyForC": "offsetTable:List<MessageQueueForC>",
    # filterClassSource is never written.
    "SubscriptionData": (
        "classFilterMode:boolean=false topic:String subString:String tagsSet:Set<String>=new "
        "codeSet:Set<int>=new subVersion:long=now expressionType:String=TAG"
    ),
    "SubscriptionGroupConfig": (
        "groupName:String consumeEnable:boolean=true consumeFromMinEnable:boolean=true "
        "consumeBroadcastEnable:boolean=true retryQueueNums:int=1 retryMaxTimes:int=16 "
        "brokerId:long=0 whichBrokerWhenConsumeSlowly:long=1 "
        "notifyConsumerIdsChangedEnable:boolean=true"
    ),
    "SubscriptionGroupWrapper": (
        "subscriptionGroupTable:Map<String,SubscriptionGroupConfig>=new dataVersion:DataVersion=new"
    ),
    "TopicConfig": (
        "topicName:String readQueueNums:int=16 writeQueueNums:int=16 perm:int=6 "
        "topicFilterType:TopicFilterType=SINGLE_TAG topicSysFlag:int=0 order:boolean=false"
    ),
    "TopicConfigSerializeWrapper": (
        "topicConfigTable:Map<String,TopicConfig>=new dataVersion:DataVersion=new"
    ),
    "TopicList": "topicList:Set<String>=new brokerAddr:String",
    "TopicOffset": "minOffset:long maxOffset:long lastUpdateTimestamp:long",
    "TopicRouteData": (
        "orderTopicConf:String queueDatas:List<QueueData> brokerDatas:List<BrokerData> "
        "filterServerTable:Map<String,List<String>>"
    ),
    "TopicStatsTable": "offsetTable:Map<MessageQueue,TopicOffset>=new",
    "UnlockBatchRequestBody": "consumerGroup:String clientId:String mqSet:Set<MessageQueue>=new",
}

JAVA_BODIES: Final = {name: _members(text) for name, text in _MEMBERS.items()}

JAVA_ENUMS: Final = {
    "CMResult": "CR_SUCCESS CR_LATER CR_ROLLBACK CR_COMMIT CR_THROW_EXCEPTION CR_RETURN_NULL",
    "ConsumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST "
        "CONSUME_FROM_MIN_OFFSET CONSUME_FROM_MAX_OFFSET CONSUME_FROM_FIRST_OFFSET "
        "CONSUME_FROM_TIMESTAMP"
    ),
    "ConsumeType": "CONSUME_ACTIVELY CONSUME_PASSIVELY",
    "MessageModel": "BROADCASTING CLUSTERING",
    "TopicFilterType": "SINGLE_TAG MULTI_TAG",
}
