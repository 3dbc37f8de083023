"""The settings of `rmq.ha` from those of the broker. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.broker.config import BrokerRole
from rmq.ha.protocol.master import MasterSettings
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.ha.protocol.slave_link import SlaveSettings
from rmq.ha.protocol.slaves import InSyncRules
from rmq.ha.protocol.wire import CatchUp

if TYPE_CHECKING:
    from rmq.broker.config import BrokerConfig
    from rmq.ha.identity import HaIdentity

_CATCH_UP: Final = {"oldest": CatchUp.OLDEST, "last": CatchUp.LAST_FILE}


def mode_of(role: BrokerRole) -> ReplicationMode:
    """Return the replication mode of a master role."""
    return ReplicationMode.SYNC if role is BrokerRole.SYNC_MASTER else ReplicationMode.ASYNC


def master_settings(config: BrokerConfig, identity: HaIdentity) -> MasterSettings:
    """Return the settings of a master."""
    return MasterSettings(
        cluster=config.cluster_name,
        broker_name=config.broker_name,
        address=config.address,
        store_id=identity.store_id,
        secret=config.ha_secret.encode(),
        catch_up=_CATCH_UP[config.ha_catch_up_from],
        rules=InSyncRules(
            needed=config.in_sync_replicas,
            minimum=config.min_in_sync_replicas,
            lag_s_max=config.ha_lag_ms_max / 1000,
            lag_bytes_max=config.ha_slave_lag_bytes_max,
            counts_flushed=config.ack_after_slave_flush,
        ),
        timeout_s=config.slave_timeout_ms / 1000,
        heartbeat_s=config.ha_heartbeat_interval_ms / 1000,
        silence_s=config.ha_idle_timeout_ms / 1000,
        stock_frame_bytes=config.ha_batch_bytes,
        catch_up_bytes_per_s=config.ha_catch_up_rate,
    )


def slave_settings(config: BrokerConfig, identity: HaIdentity) -> SlaveSettings:
    """Return the settings of a slave."""
    return SlaveSettings(
        cluster=config.cluster_name,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        address=config.address,
        store_id=identity.store_id,
        incarnation=identity.incarnation,
        secret=config.ha_secret.encode(),
        catch_up=_CATCH_UP[config.ha_catch_up_from],
        heartbeat_s=config.ha_heartbeat_interval_ms / 1000,
        silence_s=config.ha_idle_timeout_ms / 1000,
    )
