"""Settings of how a broker runs: its timers, bounds, statistics and connections.

Defaults are those of RocketMQ 4.9.8 BrokerConfig, NettyServerConfig, NettyClientConfig and
MessageStoreConfig; the section `rmq` holds what is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmq.remoting.fairness.shares import SHARE_MAX
from rmq.settings import metrics_port as metrics_port_rules
from rmq.settings.declaration import NOW, RESTART, check_name, setting, split_list
from rmq.settings.exposure import FileAccess
from rmq.settings.schema import LONG_MAX

DEFAULT_BLACK_LIST: Final = "configBlackList;brokerConfigPath"


def _split_keys(text: str) -> frozenset[str]:
    return frozenset(split_list(text))


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(split_list(text)))


@dataclass(frozen=True, kw_only=True)
class RunningSettings:
    """How the broker runs."""

    # --- what is written when ----------------------------------------------------------------

    flush_consumer_offset_interval_ms: int = setting(
        "flushConsumerOffsetInterval",
        5000,
        "Milliseconds between two writes of consumerOffset.json.",
        RESTART,
        minimum=1,
    )
    flush_delay_offset_interval_ms: int = setting(
        "flushDelayOffsetInterval",
        10_000,
        "Milliseconds between two writes of delayOffset.json.",
        RESTART,
        section="store",
        minimum=1,
        maximum=LONG_MAX,
    )

    # --- registration ------------------------------------------------------------------------

    register_period_ms: int = setting(
        "registerNameServerPeriod",
        30_000,
        "Milliseconds between two registrations; below 10000 counts as 10000, above 60000 as "
        "60000.",
        NOW,
        read=lambda period: max(10_000, min(int(period), 60_000)),
        unread=30_000,
    )
    register_timeout_ms: int = setting(
        "registerBrokerTimeoutMills",
        6000,
        "Milliseconds that a nameserver may take to answer a registration.",
        NOW,
        minimum=1,
    )
    force_register: bool = setting(
        "forceRegister", True, "Registers in every period, not only after a change.", NOW
    )
    compressed_register: bool = setting(
        "compressedRegister", False, "Registrations are compressed.", NOW
    )

    # --- transactions ------------------------------------------------------------------------

    transaction_timeout_ms: int = setting(
        "transactionTimeOut",
        6000,
        "Age in milliseconds from which an open transaction is asked about.",
        NOW,
        important=True,
        maximum=LONG_MAX,
    )
    transaction_check_max: int = setting(
        "transactionCheckMax",
        15,
        "Questions without an answer after which a transaction is given up.",
        NOW,
        important=True,
        minimum=1,
    )
    transaction_check_interval_ms: int = setting(
        "transactionCheckInterval",
        60_000,
        "Milliseconds between two rounds of questions about open transactions.",
        NOW,
        important=True,
        minimum=1,
        maximum=LONG_MAX,
    )

    # --- bounds of what waits ----------------------------------------------------------------

    send_queue_capacity: int = setting(
        "sendThreadPoolQueueCapacity", 10_000, "Sends that may be unanswered.", RESTART, minimum=1
    )
    pull_queue_capacity: int = setting(
        "pullThreadPoolQueueCapacity", 100_000, "Pulls that may be unanswered.", RESTART, minimum=1
    )
    reply_queue_capacity: int = setting(
        "replyThreadPoolQueueCapacity",
        10_000,
        "Answers to request messages that may be unanswered.",
        RESTART,
        minimum=1,
    )
    query_queue_capacity: int = setting(
        "queryThreadPoolQueueCapacity",
        20_000,
        "Queries that may be unanswered.",
        RESTART,
        minimum=1,
    )
    client_manager_queue_capacity: int = setting(
        "clientManagerThreadPoolQueueCapacity",
        1_000_000,
        "Requests to unregister clients or check their subscriptions that may be unanswered.",
        RESTART,
        minimum=1,
    )
    heartbeat_queue_capacity: int = setting(
        "heartbeatThreadPoolQueueCapacity",
        50_000,
        "Heartbeats that may be unanswered.",
        RESTART,
        minimum=1,
    )
    end_transaction_queue_capacity: int = setting(
        "endTransactionPoolQueueCapacity",
        100_000,
        "Ends of transactions that may be unanswered.",
        RESTART,
        minimum=1,
    )

    fast_failure: bool = setting(
        "brokerFastFailureEnable",
        True,
        "Requests that have waited too long are answered SYSTEM_BUSY instead of being served.",
        NOW,
    )
    send_wait_ms: int = setting(
        "waitTimeMillsInSendQueue",
        200,
        "Milliseconds that a send may have waited (brokerFastFailureEnable).",
        NOW,
        minimum=1,
        maximum=LONG_MAX,
    )
    pull_wait_ms: int = setting(
        "waitTimeMillsInPullQueue",
        5000,
        "Milliseconds that a pull may have waited to be looked at.",
        NOW,
        minimum=1,
        maximum=LONG_MAX,
    )
    heartbeat_wait_ms: int = setting(
        "waitTimeMillsInHeartbeatQueue",
        31_000,
        "Milliseconds that a heartbeat may have waited.",
        NOW,
        minimum=1,
        maximum=LONG_MAX,
    )
    transaction_wait_ms: int = setting(
        "waitTimeMillsInTransactionQueue",
        3000,
        "Milliseconds that the end of a transaction may have waited.",
        NOW,
        minimum=1,
        maximum=LONG_MAX,
    )

    # --- statistics --------------------------------------------------------------------------

    detailed_stats: bool = setting(
        "enableDetailStat", True, "Messages are also counted by queue.", RESTART
    )
    delete_unused_stats: bool = setting(
        "autoDeleteUnusedStats", False, "Figures of deleted topics and groups are dropped.", NOW
    )
    fall_recorded: bool = setting(
        "diskFallRecorded", True, "How far consumers are behind is recorded.", NOW, section="store"
    )

    # --- own calls ---------------------------------------------------------------------------

    credentials_file: Path | None = setting(
        "credentialsFile",
        None,
        "File with accessKey and secretKey (tools.yml of mqadmin), by which the broker signs its "
        "calls to nameservers, its master and its peers; read again when it changes.",
        RESTART,
        section="rmq",
        guarded=True,
        names_secret=True,
        read=lambda text: Path(text) if text else None,
        default_text="`tools.yml` beside the settings file or in `$ROCKETMQ_HOME/conf`, if there",
    )

    # --- connections -------------------------------------------------------------------------

    server_idle_timeout_s: int = setting(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "Seconds after which a silent connection of a client is closed.",
        RESTART,
        section="server",
        minimum=1,
    )
    server_backlog: int = setting(
        "serverSocketBacklog",
        1024,
        "Connections the system may hold until they are accepted.",
        RESTART,
        section="server",
        minimum=1,
    )
    host_share_max: int = setting(
        "hostShareMax",
        SHARE_MAX,
        "Largest percentage of connections, of unanswered requests and of held bytes that one host"
        " may have; 100: hosts are not told apart.",
        RESTART,
        section="rmq",
        minimum=1,
        maximum=100,
    )
    connect_timeout_ms: int = setting(
        "connectTimeoutMillis",
        3000,
        "Milliseconds that a nameserver or broker may take to accept a connection.",
        RESTART,
        section="client",
        minimum=1,
    )
    client_idle_timeout_s: int = setting(
        "clientChannelMaxIdleTimeSeconds",
        120,
        "Seconds after which a silent connection to a nameserver or broker is closed.",
        RESTART,
        section="client",
        minimum=1,
    )
    client_calls_max: int = setting(
        "clientAsyncSemaphoreValue",
        65_535,
        "Requests to one nameserver or broker that may be under way.",
        RESTART,
        section="client",
        minimum=1,
    )
    client_oneways_max: int = setting(
        "clientOnewaySemaphoreValue",
        65_535,
        "One-way requests to one nameserver or broker that may wait to be written.",
        RESTART,
        section="client",
        minimum=1,
    )

    # --- watching ----------------------------------------------------------------------------

    metrics_port: int = setting(
        "metricsPort",
        metrics_port_rules.UNSET,
        "Port for Prometheus and for probes (docs/metrics.md); -1: 5557, or none if another process"
        " has that; 0: none.",
        RESTART,
        section="rmq",
        minimum=metrics_port_rules.UNSET,
        maximum=65_535,
        guarded=True,
    )
    metrics_address: str = setting(
        "metricsAddress",
        "127.0.0.1",
        "Address that metricsPort is opened on; it has neither TLS nor a password.",
        RESTART,
        section="rmq",
        check=check_name("metricsAddress"),
        guarded=True,
    )
    metrics_queue_groups: tuple[str, ...] = setting(
        "metricsQueueGroups",
        (),
        "Consumer groups whose lag is shown per queue in every scrape, separated by semicolons.",
        NOW,
        read=_split_names,
        unread="",
        section="rmq",
    )

    # --- files -------------------------------------------------------------------------------

    store_file_access: FileAccess = setting(
        "storeFileAccess",
        FileAccess.OWNER,
        "Which users of the machine may read new files of the store: the one that runs the broker "
        "(owner), its group as well (group), or those that the umask allows (umask).",
        RESTART,
        read=FileAccess,
        unread=FileAccess.OWNER.value,
        choices=tuple(access.value for access in FileAccess),
        section="rmq",
        guarded=True,
    )

    # --- stopping and updating ---------------------------------------------------------------

    shutdown_drain_ms: int = setting(
        "shutdownDrainTime",
        3000,
        "Milliseconds that requests in hand have to end when the broker stops.",
        NOW,
        section="rmq",
    )
    config_black_list: frozenset[str] = setting(
        "configBlackList",
        _split_keys(DEFAULT_BLACK_LIST),
        "Keys that cannot be changed while the broker runs, separated by semicolons.",
        RESTART,
        read=_split_keys,
        unread=DEFAULT_BLACK_LIST,
    )
