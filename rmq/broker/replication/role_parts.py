"""The parts of a broker that a master's role and a slave's both work with."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from rmq.broker.config import BrokerRole
from rmq.broker.replication.known_master import KnownMaster
from rmq.broker.replication.visible_bound import VisibleBound
from rmq.ha.store_log import StoreLog

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.broker.registration.registration import Registration
    from rmq.broker.replication.master_tasks import MasterTasks
    from rmq.broker.replication.peers import Peers
    from rmq.broker.replication.saved_state import SavedState
    from rmq.store.store import MessageStore


@final
class RoleParts:
    """Parts that exist as long as the broker, whatever its role is."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        saved: SavedState,
        registration: Registration,
        master_tasks: MasterTasks,
        peers: Peers,
    ) -> None:
        self.live = live
        self.store = store
        self.log = StoreLog(store)
        self.visible = VisibleBound(store)
        self.saved = saved
        self.known = KnownMaster(live)
        self.registration = registration
        self.master_tasks = master_tasks
        self.peers = peers

    @property
    def is_master(self) -> bool:
        """Whether this broker is configured as master."""
        return self.live.current.role is not BrokerRole.SLAVE
