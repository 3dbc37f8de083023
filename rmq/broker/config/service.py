"""Settings of a broker that its peers notice: its names and addresses, what clients may do.

Defaults are those of RocketMQ 4.9.8 BrokerConfig, NettyServerConfig and MessageStoreConfig; the
section `rmq` holds what is ours.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.errors import ConfigError
from rmq.settings.declaration import (
    NOW,
    RESTART,
    check_host_port,
    check_name,
    setting,
    split_list,
)
from rmq.settings.schema import LONG_MAX

if TYPE_CHECKING:
    from rmq.settings.schema import Effect, Value


class BrokerRole(enum.Enum):
    """`brokerRole`: the role of a broker among those of its name."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    """A send is answered when a slave has the message, too."""
    SLAVE = "SLAVE"


def _role_effect(old: Value, new: Value) -> Effect:
    """Two kinds of master differ in what a send waits for; a slave is another program."""
    return RESTART if old != new and "SLAVE" in (old, new) else NOW


def _check_permission(text: str) -> None:
    if int(text) & ~6:
        raise ConfigError("brokerPermission", f"{text} is not 0, 2 (write), 4 (read) or 6 (both)")


def _check_port(text: str) -> None:
    if int(text) and not 3 <= int(text) <= 65_534:
        raise ConfigError(
            "listenPort",
            f"{text} is not between 3 and 65534: the ports 2 below and 1 above are needed, too",
        )


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """What peers of the broker notice."""

    # --- names and addresses -----------------------------------------------------------------

    namesrv_addrs: tuple[str, ...] = setting(
        "namesrvAddr",
        (),
        "Nameservers to register with: host:port, several separated by semicolons.",
        NOW,
        read=split_list,
        check=check_host_port("namesrvAddr"),
        important=True,
        default_text="environment variable NAMESRV_ADDR",
        guarded=True,
    )
    broker_ip1: str = setting(
        "brokerIP1",
        "127.0.0.1",
        "Address that clients are told to connect to.",
        RESTART,
        read=str,
        check=check_name("brokerIP1"),
        important=True,
        default_text="address of this machine",
        guarded=True,
    )
    broker_ip2: str = setting(
        "brokerIP2",
        "127.0.0.1",
        "Address that slaves are told to connect to.",
        RESTART,
        read=str,
        check=check_name("brokerIP2"),
        default_text="address of this machine",
        guarded=True,
    )
    broker_name: str = setting(
        "brokerName",
        "DEFAULT_BROKER",
        "Name that a master shares with its slaves.",
        RESTART,
        read=str,
        check=check_name("brokerName"),
        important=True,
        default_text="name of this host",
    )
    cluster_name: str = setting(
        "brokerClusterName",
        "DefaultCluster",
        "Cluster the broker belongs to.",
        RESTART,
        check=check_name("brokerClusterName"),
        important=True,
    )
    broker_id: int = setting(
        "brokerId",
        0,
        "0 for a master, whatever is set; above 0 and different for each slave.",
        RESTART,
        important=True,
        maximum=LONG_MAX,
    )
    listen_port: int = setting(
        "listenPort",
        10911,
        "Port for clients; the port 2 below serves them, too, and the one above serves slaves. "
        "0 takes free ones.",
        RESTART,
        section="server",
        check=_check_port,
        guarded=True,
    )
    bind_address: str = setting(
        "bindAddress",
        "0.0.0.0",
        "Address the ports are opened on.",
        RESTART,
        section="rmq",
        check=check_name("bindAddress"),
        guarded=True,
    )
    role: BrokerRole = setting(
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        "Whether a send waits for a slave (SYNC_MASTER) or not (ASYNC_MASTER), or SLAVE. From one "
        "kind of master to the other takes effect now, to and from SLAVE after a restart.",
        NOW,
        read=BrokerRole,
        unread="ASYNC_MASTER",
        choices=tuple(role.value for role in BrokerRole),
        effect_between=_role_effect,
        section="store",
        important=True,
    )
    region_id: str = setting(
        "regionId", "DefaultRegion", "Region that answers to sends name, for message traces.", NOW
    )

    # --- topics and groups -------------------------------------------------------------------

    permission: int = setting(
        "brokerPermission",
        6,
        "What clients may do here: 6 all, 4 read, 2 write, 0 nothing.",
        NOW,
        check=_check_permission,
    )
    default_topic_queues: int = setting(
        "defaultTopicQueueNums",
        8,
        "Most queues a topic gets that is created by sending to it.",
        RESTART,
        minimum=1,
    )
    auto_create_topic: bool = setting(
        "autoCreateTopicEnable",
        True,
        "Sending to an unknown topic creates it.",
        NOW,
        important=True,
    )
    auto_create_group: bool = setting(
        "autoCreateSubscriptionGroup",
        True,
        "Consuming as an unknown group creates it.",
        NOW,
        important=True,
    )
    cluster_topic_enabled: bool = setting(
        "clusterTopicEnable", True, "There is a topic with the name of the cluster.", RESTART
    )
    broker_topic_enabled: bool = setting(
        "brokerTopicEnable", True, "There is a topic with the name of the broker.", RESTART
    )
    trace_topic_enabled: bool = setting(
        "traceTopicEnable",
        False,
        "The topic for message traces is created.",
        RESTART,
        important=True,
    )
    trace_topic_name: str = setting(
        "msgTraceTopicName",
        "RMQ_SYS_TRACE_TOPIC",
        "Name of the topic for message traces.",
        RESTART,
        check=check_name("msgTraceTopicName"),
        important=True,
    )
    trace_on: bool = setting("traceOn", True, "Clients may send message traces.", NOW)

    # --- access control ----------------------------------------------------------------------

    acl_enabled: bool = setting(
        "aclEnable",
        False,
        "Requests need an account, a signature and permissions, or an address on a white list: "
        "[access control](access.md).",
        RESTART,
        important=True,
        guarded=True,
    )
    acl_file: str | None = setting(
        "rocketmq.acl.plain.file",
        None,
        "The main file of access control, below rocketmqHome or beside the settings file unless "
        "its path is absolute.",
        RESTART,
        section="system",
        default_text="`conf/plain_acl.yml` below rocketmqHome, else `plain_acl.yml` beside the "
        "settings file",
        guarded=True,
    )
    rocketmq_home: str | None = setting(
        "rocketmqHome",
        None,
        "Directory of a Java installation: the file of access control is sought there first.",
        RESTART,
        guarded=True,
    )

    # --- send --------------------------------------------------------------------------------

    reject_transaction_messages: bool = setting(
        "rejectTransactionMessage",
        False,
        "Transactional messages are refused.",
        NOW,
        important=True,
    )
    start_accept_send_ms: int = setting(
        "startAcceptSendRequestTimeStamp",
        0,
        "Sends are refused before this time, milliseconds since 1970.",
        NOW,
        maximum=LONG_MAX,
    )
    page_cache_busy_timeout_ms: int = setting(
        "osPageCacheBusyTimeOutMills",
        1000,
        "Sends are refused while appending takes longer than this.",
        NOW,
        section="store",
        minimum=1,
        maximum=LONG_MAX,
    )
    store_reply_messages: bool = setting(
        "storeReplyMessageEnable", True, "Answers to request messages are stored, too.", NOW
    )

    # --- pull --------------------------------------------------------------------------------

    long_polling: bool = setting(
        "longPollingEnable", True, "A pull without new messages is held as long as it asks.", NOW
    )
    short_polling_ms: int = setting(
        "shortPollingTimeMills",
        1000,
        "Milliseconds that a pull is held when longPollingEnable is false.",
        NOW,
        minimum=1,
        maximum=LONG_MAX,
    )
    enable_property_filter: bool = setting(
        "enablePropertyFilter", False, "Consumers may filter with SQL expressions.", NOW
    )
    slave_read_enabled: bool = setting(
        "slaveReadEnable", False, "Consumers that are far behind are sent to a slave.", NOW
    )
    offset_check_in_slave: bool = setting(
        "offsetCheckInSlave",
        False,
        "A slave corrects offsets out of range, as a master does.",
        NOW,
        section="store",
    )
    disable_consume_if_slow: bool = setting(
        "disableConsumeIfConsumerReadSlowly",
        False,
        "Groups that are too far behind are no longer served.",
        NOW,
    )
    consumer_fallbehind_threshold: int = setting(
        "consumerFallbehindThreshold",
        16 * 1024**3,
        "Bytes behind that are too far for disableConsumeIfConsumerReadSlowly.",
        NOW,
        maximum=LONG_MAX,
    )
    default_query_max: int = setting(
        "defaultQueryMaxNum",
        32,
        "Messages that a query by unique key finds at most.",
        NOW,
        section="store",
        minimum=1,
    )

    # --- clients -----------------------------------------------------------------------------

    notify_consumer_ids_changed: bool = setting(
        "notifyConsumerIdsChangedEnable",
        True,
        "Consumers are told at once when their group changes.",
        NOW,
    )
    channel_expired_ms: int = setting(
        "channelExpiredTimeout",
        120_000,
        "Clients that sent no heartbeat for this many milliseconds are forgotten.",
        RESTART,
        section="rmq",
        minimum=1000,
    )
    lock_live_ms: int = setting(
        "rocketmq.broker.rebalance.lockMaxLiveTime",
        60_000,
        "A queue stays locked for this many milliseconds without renewal.",
        RESTART,
        section="system",
        minimum=1,
        maximum=LONG_MAX,
    )
