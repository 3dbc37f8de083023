"""Settings of replication: what a master guarantees, and how master and slave communicate.

Defaults are those of RocketMQ 4.9.8 MessageStoreConfig; the section `rmq` holds what is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmq.errors import ConfigError
from rmq.settings.declaration import NOW, RESTART, check_host_port, check_name, setting
from rmq.settings.networks import Network, check_networks, read_networks
from rmq.settings.schema import LONG_MAX

SECRET_CHARS_MIN: Final = 16


def _check_secret(text: str) -> None:
    if text and len(text) < SECRET_CHARS_MIN:
        raise ConfigError("haSecret", f"must have at least {SECRET_CHARS_MIN} characters")


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """How messages get to slaves."""

    ha_master_address: str | None = setting(
        "haMasterAddress",
        None,
        "Where a slave finds its master, host:port; without it, where a nameserver says.",
        RESTART,
        check=check_host_port("haMasterAddress"),
        section="store",
        important=True,
        guarded=True,
    )
    ha_heartbeat_interval_ms: int = setting(
        "haSendHeartbeatInterval",
        5000,
        "Milliseconds after which an idle replication link carries a sign of life.",
        RESTART,
        section="store",
        minimum=1,
    )
    ha_idle_timeout_ms: int = setting(
        "haHousekeepingInterval",
        20_000,
        "Milliseconds after which a silent replication link is closed.",
        RESTART,
        section="store",
        minimum=1,
    )
    ha_batch_bytes: int = setting(
        "haTransferBatchSize",
        32 * 1024,
        "Most bytes in one chunk of replication.",
        RESTART,
        section="store",
        minimum=1,
    )
    ha_slave_lag_bytes_max: int = setting(
        "haSlaveFallbehindMax",
        256 * 1024**2,
        "A slave this many bytes behind counts as not available.",
        NOW,
        section="store",
    )
    slave_timeout_ms: int = setting(
        "slaveTimeout",
        3000,
        "Milliseconds that a send waits for a slave.",
        NOW,
        section="store",
        minimum=1,
    )

    # --- what is guaranteed ------------------------------------------------------------------

    in_sync_replicas: int = setting(
        "inSyncReplicas",
        1,
        "With SYNC_MASTER: how many slaves must hold a message before its send is answered.",
        NOW,
        section="rmq",
        minimum=1,
        maximum=32,
    )
    min_in_sync_replicas: int = setting(
        "minInSyncReplicas",
        0,
        "With SYNC_MASTER: with fewer slaves in sync, messages are refused before they are stored. "
        "0: they are stored, and the answer says SLAVE_NOT_AVAILABLE.",
        NOW,
        section="rmq",
        maximum=32,
    )
    expected_slaves: int = setting(
        "expectedSlaves",
        -1,
        "How many slaves the name is to have: with fewer, `rmq ha status` calls it not healthy. 0: "
        "a lone master is meant. -1: not told; one is expected, and none of those there were is to "
        "be missing.",
        NOW,
        section="rmq",
        minimum=-1,
        maximum=32,
    )
    ha_master_lease_ms: int = setting(
        "haMasterLease",
        0,
        "Milliseconds without a sign of life of most nameservers or of a slave in sync after which "
        "a master takes no more messages: another may be master by now. 0: it goes on.",
        NOW,
        section="rmq",
        maximum=3_600_000,
    )
    ha_lag_ms_max: int = setting(
        "haMaxTimeSlaveNotCatchup",
        15_000,
        "Milliseconds after which a slave that has not caught up is not in sync any longer.",
        NOW,
        section="rmq",
        minimum=1,
    )
    hide_unreplicated: bool = setting(
        "hideUnreplicated",
        False,
        "With SYNC_MASTER: consumers see a message only when enough slaves hold it.",
        RESTART,
        section="rmq",
    )
    ack_after_slave_flush: bool = setting(
        "ackAfterSlaveFlush",
        False,
        "A slave counts as holding a message only when it is on its disk.",
        NOW,
        section="rmq",
    )

    # --- catching up -------------------------------------------------------------------------

    ha_catch_up_from: str = setting(
        "haCatchUpFrom",
        "oldest",
        "Where a slave without messages begins: with the oldest there are, or with the last file "
        "only, as RocketMQ 4.9.8 does.",
        NOW,
        section="rmq",
        choices=("oldest", "last"),
    )
    ha_catch_up_rate: int = setting(
        "haCatchUpBytesPerSecond",
        0,
        "Bytes per second to all slaves together that are not in sync; 0 is without a limit.",
        NOW,
        section="rmq",
        maximum=LONG_MAX,
    )

    # --- protection of the link --------------------------------------------------------------

    ha_allowed: tuple[Network, ...] = setting(
        "haAllowedAddresses",
        (),
        "Addresses and networks from which slaves may connect, separated by semicolons; empty "
        "allows all.",
        NOW,
        read=read_networks,
        unread="",
        section="rmq",
        check=check_networks("haAllowedAddresses"),
        guarded=True,
    )
    ha_secret: str = setting(
        "haSecret",
        "",
        "What master and slaves must both know; with it, slaves of other makes are refused.",
        RESTART,
        section="rmq",
        check=_check_secret,
        secret=True,
    )
    ha_dialect: str = setting(
        "haDialect",
        "auto",
        "How a slave speaks to its master: as rmq does (native), as RocketMQ 4.9.8 does (stock), "
        "or the first of the two that the master understands (auto).",
        RESTART,
        section="rmq",
        choices=("auto", "native", "stock"),
        guarded=True,
    )
    ha_tls_mode: str = setting(
        "haTlsMode",
        "disabled",
        "Whether replication is encrypted: never (disabled), if the slave asks (permissive; a "
        "slave does), always (enforcing). Certificates are those of tls.server and tls.client.",
        RESTART,
        section="rmq",
        choices=("disabled", "permissive", "enforcing"),
        guarded=True,
    )
    ha_tls_master_name: str | None = setting(
        "haTlsMasterName",
        None,
        "With haTlsMode and tls.client.authServer: the host name that the certificate of a master "
        "must carry; without it, the address that the slave connects to.",
        RESTART,
        section="rmq",
        check=check_name("haTlsMasterName"),
        guarded=True,
    )
