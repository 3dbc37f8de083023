"""The parts of a broker that a master's role and a slave's both work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.broker.config import BrokerRole

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.broker.registration.registration import Registration
    from rmq.broker.replication.known_master import KnownMaster
    from rmq.broker.replication.master_tasks import MasterTasks
    from rmq.broker.replication.peers import Peers
    from rmq.broker.replication.saved_state import SavedState
    from rmq.broker.replication.visible_bound import VisibleBound
    from rmq.ha.store_log import StoreLog
    from rmq.store.store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleParts:
    """Parts that exist as long as the broker, whatever its role is."""

    live: LiveConfig
    store: MessageStore
    log: StoreLog
    saved: SavedState
    known: KnownMaster
    visible: VisibleBound
    registration: Registration
    master_tasks: MasterTasks
    peers: Peers

    @property
    def is_master(self) -> bool:
        """Whether this broker is configured as master."""
        return self.live.current.role is not BrokerRole.SLAVE
