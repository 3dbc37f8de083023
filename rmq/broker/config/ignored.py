"""Keys of RocketMQ 4.9.8 that mean nothing here, so that every file of a Java broker can be read.

Most of them size thread pools, buffers or locks that do not exist here: they are accepted with a
warning. A few ask for a way of working that does not exist here: those are refused, because a
broker that quietly worked in another way would be worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.settings.schema import LONG_MAX, Effect, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmq.settings.schema import Value


@dataclass(frozen=True, slots=True)
class _Ignored:
    """Keys that have the same reason to mean nothing here."""

    section: str
    help: str
    defaults: Mapping[str, Value]
    important: frozenset[str] = frozenset()
    default_text: str | None = None


_IGNORED: Final = (
    _Ignored(
        "broker",
        "Threads of a Java broker; handlers share one thread here.",
        {
            "sendMessageThreadPoolNums": 0,
            "putMessageFutureThreadPoolNums": 0,
            "pullMessageThreadPoolNums": 0,
            "processReplyMessageThreadPoolNums": 0,
            "queryMessageThreadPoolNums": 0,
            "heartbeatThreadPoolNums": 0,
            "endTransactionThreadPoolNums": 0,
        },
        default_text="by number of processors",
    ),
    _Ignored(
        "broker",
        "Threads of a Java broker; handlers share one thread here.",
        {
            "adminBrokerThreadPoolNums": 16,
            "clientManageThreadPoolNums": 32,
            "consumerManageThreadPoolNums": 32,
        },
    ),
    _Ignored(
        "broker",
        "Queue of the threads that finish appends in Java.",
        {"putThreadPoolQueueCapacity": 10_000},
    ),
    _Ignored(
        "broker",
        "Requests about consumer offsets are answered as they are read: none of them waits.",
        {"consumerManagerThreadPoolQueueCapacity": 1_000_000},
    ),
    _Ignored(
        "broker",
        "Requests are served as they are read: none of them waits for a thread.",
        {
            "brokerFastFailureEnable": True,
            "waitTimeMillsInSendQueue": 200,
            "waitTimeMillsInPullQueue": 5000,
            "waitTimeMillsInHeartbeatQueue": 31_000,
            "waitTimeMillsInTransactionQueue": 3000,
        },
    ),
    _Ignored(
        "broker",
        "A message that comes again was chosen by its group before; it is not filtered again.",
        {"filterSupportRetry": False},
    ),
    _Ignored(
        "broker",
        "Not used by RocketMQ 4.9.8 either.",
        {
            "filterServerNums": 0,
            "flushConsumerOffsetHistoryInterval": 60_000,
            "highSpeedMode": False,
            "maxDelayTime": 40,
        },
    ),
    _Ignored(
        "broker",
        "Accounting for hooks that only a Java broker can load.",
        {
            "commercialEnable": True,
            "commercialTimerCount": 1,
            "commercialTransCount": 1,
            "commercialBigCount": 1,
            "commercialBaseCount": 1,
        },
    ),
    _Ignored(
        "broker",
        "Answers to pulls hold the stored bytes here, without a copy on the way.",
        {"transferMsgByHeap": True},
    ),
    _Ignored(
        "broker",
        "Precomputes the outcome of SQL filters; here they are always computed when needed.",
        {
            "enableCalcFilterBitMap": False,
            "expectConsumerNumUseFilter": 32,
            "maxErrorRateOfBloomFilter": 20,
            "filterDataCleanTimeSpan": 86_400_000,
        },
    ),
    _Ignored(
        "broker",
        "Nameservers are not asked for at an address server: set namesrvAddr.",
        {
            "fetchNamesrvAddrByAddressServer": False,
            "rmqAddressServerDomain": None,
            "rmqAddressServerSubGroup": None,
        },
        important=frozenset({"fetchNamesrvAddrByAddressServer"}),
    ),
    _Ignored(
        "broker",
        "Where Java writes its logs; ours go to standard error.",
        {"isolateLogEnable": False},
    ),
    _Ignored(
        "server",
        "Threads, locks and buffers of a Java server.",
        {
            "serverWorkerThreads": 8,
            "serverCallbackExecutorThreads": 0,
            "serverSelectorThreads": 3,
            "serverOnewaySemaphoreValue": 256,
            "serverAsyncSemaphoreValue": 64,
            "serverSocketSndBufSize": 0,
            "serverSocketRcvBufSize": 0,
            "writeBufferHighWaterMark": 0,
            "writeBufferLowWaterMark": 0,
            "serverPooledByteBufAllocatorEnable": True,
            "useEpollNativeSelector": False,
        },
    ),
    _Ignored(
        "client",
        "Threads of a Java client.",
        {"clientCallbackExecutorThreads": 0},
        default_text="by number of processors",
    ),
    _Ignored(
        "client",
        "Threads, timers and buffers of a Java client.",
        {
            "clientWorkerThreads": 4,
            "channelNotActiveInterval": 60_000,
            "clientSocketSndBufSize": 0,
            "clientSocketRcvBufSize": 0,
            "clientPooledByteBufAllocatorEnable": False,
            "clientCloseSocketIfTimeout": True,
        },
    ),
    _Ignored(
        "store",
        "The port for slaves is always listenPort + 1, as in RocketMQ 4.9.8.",
        {"haListenPort": 10912},
    ),
    _Ignored(
        "store",
        "Queues need no flush of their own here: recoveryPointBytes stands in its place.",
        {
            "flushIntervalConsumeQueue": 1000,
            "flushConsumeQueueLeastPages": 2,
            "flushConsumeQueueThoroughInterval": 60_000,
        },
    ),
    _Ignored(
        "store",
        "How Java locks, maps, flushes and deletes files.",
        {
            "useReentrantLockWhenPutMessage": True,
            "flushCommitLogTimed": True,
            "commitCommitLogLeastPages": 4,
            "commitCommitLogThoroughInterval": 200,
            "flushLeastPagesWhenWarmMapedFile": 4096,
            "deleteCommitLogFilesInterval": 100,
            "deleteConsumeQueueFilesInterval": 100,
            "destroyMapedFileIntervalForcibly": 120_000,
            "redeleteHangedFileInterval": 120_000,
            "fastFailIfNoBufferInStorePool": False,
            "debugLockEnable": False,
        },
        important=frozenset({"flushCommitLogTimed"}),
    ),
    _Ignored("store", "Not used by RocketMQ 4.9.8 either.", {"putMsgIndexHightWater": 600_000}),
    _Ignored(
        "store",
        "Sizes of what enableConsumeQueueExt, enableLmq and enableMultiDispatch bring.",
        {
            "mappedFileSizeConsumeQueueExt": 50_331_648,
            "bitMapLengthConsumeQueueExt": 64,
            "maxLmqConsumeQueueNum": 20_000,
        },
    ),
    _Ignored(
        "store",
        "Delivered delayed messages are always counted.",
        {"enableScheduleMessageStats": True},
    ),
    _Ignored(
        "store",
        "Threads that deliver delayed messages in Java.",
        {
            "enableScheduleAsyncDeliver": False,
            "scheduleAsyncDeliverMaxPendingLimit": 2000,
            "scheduleAsyncDeliverMaxResendNum2Blocked": 3,
        },
    ),
    _Ignored(
        "store",
        "Used with enableDLegerCommitLog only.",
        {
            "storePathDLedgerCommitLog": None,
            "dLegerGroup": None,
            "dLegerPeers": None,
            "dLegerSelfId": None,
            "preferredLeaderId": None,
            "isEnableBatchPush": False,
            "enableBatchPush": None,
        },
        important=frozenset({"storePathDLedgerCommitLog"}),
    ),
)

_REFUSED: Final[tuple[tuple[str, str, Value, str, str], ...]] = (
    (
        "broker",
        "messageStorePlugIn",
        "",
        "Java classes around the store.",
        "classes of Java cannot be loaded here",
    ),
    (
        "store",
        "readOnlyCommitLogStorePaths",
        None,
        "Further directories of CommitLog segments that are only read.",
        "directories that are only read are not supported, and their messages would be missing",
    ),
    (
        "store",
        "enableConsumeQueueExt",
        False,
        "Writes extensions of ConsumeQueue entries.",
        "extensions of ConsumeQueue entries are not supported",
    ),
    (
        "store",
        "duplicationEnable",
        False,
        "Dispatches only what another copy has confirmed.",
        "this way of duplication is not supported; use slaves",
    ),
    (
        "store",
        "enableDLegerCommitLog",
        False,
        "Elects masters with DLedger.",
        "DLedger is not supported; use brokerRole and slaves",
    ),
    (
        "store",
        "enableLmq",
        False,
        "Light message queues.",
        "light message queues are not supported",
    ),
    (
        "store",
        "enableMultiDispatch",
        False,
        "Puts a message into several queues.",
        "a message cannot be in several queues here",
    ),
)


def ignored_settings() -> Iterator[Setting]:
    """The settings of this module, in the order of their sections."""
    for group in _IGNORED:
        for key, default in group.defaults.items():
            yield Setting(
                key=key,
                default=default,
                help=group.help,
                effect=Effect.IGNORED,
                section=group.section,
                important=key in group.important,
                default_text=group.default_text,
                maximum=LONG_MAX,
            )
    for section, key, default, help, reason in _REFUSED:
        yield Setting(
            key=key,
            default=default,
            help=help,
            effect=Effect.IGNORED,
            section=section,
            refused=reason,
        )
