"""Every key of a RocketMQ 4.9.8 broker is known here, with its default; its sample files load."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from rmq.broker.config import BrokerRole, load_broker_config
from rmq.broker.config.schema import SCHEMA
from rmq.errors import ConfigError
from rmq.settings.schema import Effect, format_value

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.settings.schema import Setting

# The fields of the four classes that hold a broker's settings, with their defaults. A star is the
# annotation ImportantField, a question mark a default that depends on the machine; fields without
# a default are null. BrokerStartup makes the default of listenPort 10911.
JAVA_FIELDS: Final = """
# BrokerConfig
  rocketmqHome = ?
* namesrvAddr = ?
* brokerIP1 = ?
  brokerIP2 = ?
* brokerName = ?
* brokerClusterName = DefaultCluster
* brokerId = 0
  brokerPermission = 6
  defaultTopicQueueNums = 8
* autoCreateTopicEnable = true
  clusterTopicEnable = true
  brokerTopicEnable = true
* autoCreateSubscriptionGroup = true
  messageStorePlugIn = ""
* msgTraceTopicName = RMQ_SYS_TRACE_TOPIC
* traceTopicEnable = false
  sendMessageThreadPoolNums = ?
  putMessageFutureThreadPoolNums = ?
  pullMessageThreadPoolNums = ?
  processReplyMessageThreadPoolNums = ?
  queryMessageThreadPoolNums = ?
  adminBrokerThreadPoolNums = 16
  clientManageThreadPoolNums = 32
  consumerManageThreadPoolNums = 32
  heartbeatThreadPoolNums = ?
  endTransactionThreadPoolNums = ?
  flushConsumerOffsetInterval = 5000
  flushConsumerOffsetHistoryInterval = 60000
* rejectTransactionMessage = false
* fetchNamesrvAddrByAddressServer = false
  sendThreadPoolQueueCapacity = 10000
  putThreadPoolQueueCapacity = 10000
  pullThreadPoolQueueCapacity = 100000
  replyThreadPoolQueueCapacity = 10000
  queryThreadPoolQueueCapacity = 20000
  clientManagerThreadPoolQueueCapacity = 1000000
  consumerManagerThreadPoolQueueCapacity = 1000000
  heartbeatThreadPoolQueueCapacity = 50000
  endTransactionPoolQueueCapacity = 100000
  filterServerNums = 0
  longPollingEnable = true
  shortPollingTimeMills = 1000
  notifyConsumerIdsChangedEnable = true
  highSpeedMode = false
  commercialEnable = true
  commercialTimerCount = 1
  commercialTransCount = 1
  commercialBigCount = 1
  commercialBaseCount = 1
  transferMsgByHeap = true
  maxDelayTime = 40
  regionId = DefaultRegion
  registerBrokerTimeoutMills = 6000
  slaveReadEnable = false
  disableConsumeIfConsumerReadSlowly = false
  consumerFallbehindThreshold = 17179869184
  brokerFastFailureEnable = true
  waitTimeMillsInSendQueue = 200
  waitTimeMillsInPullQueue = 5000
  waitTimeMillsInHeartbeatQueue = 31000
  waitTimeMillsInTransactionQueue = 3000
  startAcceptSendRequestTimeStamp = 0
  traceOn = true
  enableCalcFilterBitMap = false
  expectConsumerNumUseFilter = 32
  maxErrorRateOfBloomFilter = 20
  filterDataCleanTimeSpan = 86400000
  filterSupportRetry = false
  enablePropertyFilter = false
  compressedRegister = false
  forceRegister = true
  registerNameServerPeriod = 30000
* transactionTimeOut = 6000
* transactionCheckMax = 15
* transactionCheckInterval = 60000
* aclEnable = false
  storeReplyMessageEnable = true
  enableDetailStat = true
  autoDeleteUnusedStats = false
  isolateLogEnable = false
  configBlackList = configBlackList;brokerConfigPath
# NettyServerConfig
  listenPort = 10911
  serverWorkerThreads = 8
  serverCallbackExecutorThreads = 0
  serverSelectorThreads = 3
  serverOnewaySemaphoreValue = 256
  serverAsyncSemaphoreValue = 64
  serverChannelMaxIdleTimeSeconds = 120
  serverSocketSndBufSize = 0
  serverSocketRcvBufSize = 0
  writeBufferHighWaterMark = 0
  writeBufferLowWaterMark = 0
  serverSocketBacklog = 1024
  serverPooledByteBufAllocatorEnable = true
  useEpollNativeSelector = false
# NettyClientConfig
  clientWorkerThreads = 4
  clientCallbackExecutorThreads = ?
  clientOnewaySemaphoreValue = 65535
  clientAsyncSemaphoreValue = 65535
  connectTimeoutMillis = 3000
  channelNotActiveInterval = 60000
  clientChannelMaxIdleTimeSeconds = 120
  clientSocketSndBufSize = 0
  clientSocketRcvBufSize = 0
  clientPooledByteBufAllocatorEnable = false
  clientCloseSocketIfTimeout = true
  useTLS = false
# MessageStoreConfig
* storePathRootDir = ?
* storePathCommitLog
* storePathDLedgerCommitLog
  readOnlyCommitLogStorePaths
  mappedFileSizeCommitLog = 1073741824
  mappedFileSizeConsumeQueue = 6000000
  enableConsumeQueueExt = false
  mappedFileSizeConsumeQueueExt = 50331648
  bitMapLengthConsumeQueueExt = 64
* flushIntervalCommitLog = 500
* commitIntervalCommitLog = 200
  useReentrantLockWhenPutMessage = true
* flushCommitLogTimed = true
  flushIntervalConsumeQueue = 1000
  cleanResourceInterval = 10000
  deleteCommitLogFilesInterval = 100
  deleteConsumeQueueFilesInterval = 100
  destroyMapedFileIntervalForcibly = 120000
  redeleteHangedFileInterval = 120000
* deleteWhen = 04
  diskMaxUsedSpaceRatio = 75
* fileReservedTime = 72
  putMsgIndexHightWater = 600000
  maxMessageSize = 4194304
  checkCRCOnRecover = true
  flushCommitLogLeastPages = 4
  commitCommitLogLeastPages = 4
  flushLeastPagesWhenWarmMapedFile = 4096
  flushConsumeQueueLeastPages = 2
  flushCommitLogThoroughInterval = 10000
  commitCommitLogThoroughInterval = 200
  flushConsumeQueueThoroughInterval = 60000
* maxTransferBytesOnMessageInMemory = 262144
* maxTransferCountOnMessageInMemory = 32
* maxTransferBytesOnMessageInDisk = 65536
* maxTransferCountOnMessageInDisk = 8
* accessMessageInMemoryMaxRatio = 40
* messageIndexEnable = true
  maxHashSlotNum = 5000000
  maxIndexNum = 20000000
  maxMsgsNumBatch = 64
* messageIndexSafe = false
  haListenPort = 10912
  haSendHeartbeatInterval = 5000
  haHousekeepingInterval = 20000
  haTransferBatchSize = 32768
* haMasterAddress
  haSlaveFallbehindMax = 268435456
* brokerRole = ASYNC_MASTER
* flushDiskType = ASYNC_FLUSH
  syncFlushTimeout = 5000
  slaveTimeout = 3000
  messageDelayLevel = 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
  flushDelayOffsetInterval = 10000
* cleanFileForciblyEnable = true
  warmMapedFileEnable = false
  offsetCheckInSlave = false
  debugLockEnable = false
  duplicationEnable = false
  diskFallRecorded = true
  osPageCacheBusyTimeOutMills = 1000
  defaultQueryMaxNum = 32
* transientStorePoolEnable = false
  transientStorePoolSize = 5
  fastFailIfNoBufferInStorePool = false
  enableDLegerCommitLog = false
  dLegerGroup
  dLegerPeers
  dLegerSelfId
  preferredLeaderId
  isEnableBatchPush = false
  enableScheduleMessageStats = true
  enableLmq = false
  enableMultiDispatch = false
  maxLmqConsumeQueueNum = 20000
  enableScheduleAsyncDeliver = false
  scheduleAsyncDeliverMaxPendingLimit = 2000
  scheduleAsyncDeliverMaxResendNum2Blocked = 3
"""

NOT_FIELDS: Final = {"rmqAddressServerDomain", "rmqAddressServerSubGroup", "enableBatchPush"}
"""Keys that BrokerStartup and a setter read, but that no field has the name of."""


class JavaField(NamedTuple):
    key: str
    default: str | None
    is_important: bool


def java_fields() -> list[JavaField]:
    lines = [line for line in JAVA_FIELDS.splitlines() if line and not line.startswith("#")]
    fields: list[JavaField] = []
    for line in lines:
        match = re.fullmatch(r"([* ]) (\w+)(?: = (.*))?", line)
        assert match is not None, line
        fields.append(JavaField(match[2], match[3] and match[3].strip('"'), match[1] == "*"))
    return fields


def test_every_field_of_the_java_classes_is_a_known_key_and_every_other_key_is_marked_as_ours() -> (
    None
):
    known = {field.key for field in java_fields()}
    assert len(known) == 185
    assert known <= set(SCHEMA.settings)
    other = {setting.key for setting in SCHEMA if setting.section not in ("system", "tls", "rmq")}
    assert other - known == NOT_FIELDS


def test_defaults_are_those_of_java() -> None:
    differing = {
        field.key: (field.default, SCHEMA[field.key].default)
        for field in java_fields()
        if field.default != "?" and (field.default or "") != format_value(SCHEMA[field.key].default)
    }
    assert differing == {}


def test_what_is_null_in_java_is_not_set_here() -> None:
    for field in java_fields():
        if field.default != "?":
            assert (field.default is None) == (SCHEMA[field.key].default is None), field.key


def test_defaults_that_depend_on_the_machine_are_described_and_set(tmp_path: Path) -> None:
    loaded = load_broker_config(None, {}, {"HOME": str(tmp_path), "NAMESRV_ADDR": "ns:9876"})
    for field in java_fields():
        if field.default == "?" and field.key != "rocketmqHome":
            assert SCHEMA[field.key].default_text, field.key
            assert loaded.values[field.key], field.key


def test_the_important_ones_are_those_of_java() -> None:
    assert {setting.key for setting in SCHEMA if setting.important} == {
        field.key for field in java_fields() if field.is_important
    }


def test_the_whole_file_that_a_java_broker_writes_after_an_update_loads(tmp_path: Path) -> None:
    text = "".join(
        f"{field.key}={field.default}\n"
        for field in java_fields()
        if field.default not in (None, "?")
    )
    path = tmp_path / "broker.conf"
    path.write_text(text)
    loaded = load_broker_config(path, {}, {"HOME": str(tmp_path)})
    assert loaded.warnings == ()
    assert loaded.values == load_broker_config(None, {}, {"HOME": str(tmp_path)}).values


@pytest.mark.parametrize(
    "setting",
    [setting for setting in SCHEMA if setting.default_text is None],
    ids=lambda setting: setting.key,
)
def test_the_default_of_a_setting_may_also_be_written_down(
    setting: Setting, tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"{setting.key} = {format_value(setting.default)}\n")
    loaded = load_broker_config(path, {}, {"HOME": str(tmp_path)})
    assert loaded.warnings == ()
    assert loaded.values == load_broker_config(None, {}, {"HOME": str(tmp_path)}).values


SAMPLE: Final = """
brokerClusterName = DefaultCluster
brokerName = {name}
brokerId = {id}
deleteWhen = 04
fileReservedTime = 48
brokerRole = {role}
flushDiskType = ASYNC_FLUSH
"""


@pytest.mark.parametrize("separator", [" = ", "="], ids=["with blanks", "without"])
@pytest.mark.parametrize(
    ("name", "broker_id", "role"),
    [
        pytest.param("broker-a", 0, BrokerRole.ASYNC_MASTER, id="broker.conf, 2m-2s-async master"),
        pytest.param("broker-a", 1, BrokerRole.SLAVE, id="2m-2s-async and 2m-2s-sync slave"),
        pytest.param("broker-b", 0, BrokerRole.SYNC_MASTER, id="2m-2s-sync master"),
        pytest.param("broker-trace", 0, BrokerRole.ASYNC_MASTER, id="2m-noslave trace"),
    ],
)
def test_sample_files_load(
    name: str, broker_id: int, role: BrokerRole, separator: str, tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    text = SAMPLE.format(name=name, id=broker_id, role=role.value)
    path.write_text(text.replace(" = ", separator))
    loaded = load_broker_config(path, {}, {"HOME": str(tmp_path)})
    assert loaded.warnings == ()
    config = loaded.config
    assert (config.broker_name, config.broker_id, config.role) == (name, broker_id, role)
    assert config.store.reserved_hours == 48


def test_the_dledger_samples_are_refused_with_a_clear_sentence(tmp_path: Path) -> None:
    path = tmp_path / "broker-n0.conf"
    path.write_text(
        "brokerClusterName = RaftCluster\n"
        "brokerName=RaftNode00\n"
        "listenPort=30911\n"
        "namesrvAddr=127.0.0.1:9876\n"
        "enableDLegerCommitLog=true\n"
        "dLegerGroup=RaftNode00\n"
        "dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913\n"
        "dLegerSelfId=n0\n"
        "sendMessageThreadPoolNums=16\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_broker_config(path, {}, {"HOME": str(tmp_path)})
    assert str(caught.value) == (
        f"{path}:5: enableDLegerCommitLog: true: DLedger is not supported; "
        "use brokerRole and slaves"
    )


def test_nothing_that_is_refused_could_be_meant_otherwise() -> None:
    for setting in SCHEMA:
        if setting.refused:
            assert setting.effect is Effect.IGNORED
            assert setting.default in (None, False, "")
