"""What the route table keeps of connections, brokers and broker names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, final

import msgspec

from rmq.model.names import MASTER_ID
from rmq.nameserver.registration import C
from rmq.remoting.bodies.routes import QueueData

if TYPE_CHECKING:
    from rmq.remoting.bodies.topics import DataVersion

ENTRIES_PER_STEP: Final = 256
"""How many entries of a table are touched in one step."""


@final
class Session(Generic[C]):
    """A connection over which brokers registered."""

    __slots__ = ("connection", "is_lost", "lives")

    def __init__(self, connection: C) -> None:
        self.connection = connection
        self.lives: dict[str, Live[C]] = {}
        """By address."""
        self.is_lost = False
        """All its brokers are gone with it."""


@final
class Live(Generic[C]):
    """A broker, master or slave, that registered."""

    __slots__ = (
        "address",
        "data_version",
        "filter_servers",
        "ha_address",
        "heard_at",
        "is_removed",
        "names",
        "registering",
        "registrations",
        "session",
    )

    def __init__(self, address: str, ha_address: str, now: float, session: Session[C]) -> None:
        self.address = address
        self.ha_address = ha_address
        self.heard_at = now
        self.session = session
        self.data_version: DataVersion | None = None
        """Of the last registration; None while its topics are being listed."""
        self.filter_servers: tuple[str, ...] = ()
        self.names: dict[str, None] = {}
        """The broker names under which it is listed."""
        self.registrations = 0
        """How many registrations brought topics."""
        self.registering = 0
        """How many of them are being listed."""
        self.is_removed = False

    @property
    def is_gone(self) -> bool:
        return self.is_removed or self.session.is_lost


# Not known to the collector of cycles, and so neither are the tables that hold nothing else, of
# which there is one for each topic: walking 60,000 of them took 30 ms. Nothing that a broker refers
# to refers to it.
class Broker(msgspec.Struct, Generic[C], eq=False, gc=False):
    """A broker name: its addresses by id, and its queues by topic."""

    name: str
    cluster: str
    """The first one it was in."""
    clusters: dict[str, None] = msgspec.field(default_factory=dict)
    lives: dict[int, Live[C]] = msgspec.field(default_factory=dict)
    queues: dict[str, QueueData] = msgspec.field(default_factory=dict)
    epoch: int = 0
    """The latest epoch of a master that is remembered."""
    said_epoch: int = 0
    """The epoch with which the last master registered."""
    is_removed: bool = False

    @property
    def listed_epoch(self) -> int:
        """The epoch of the listed master; 0 if there is none."""
        return self.said_epoch if MASTER_ID in self.lives else 0

    @property
    def is_alive(self) -> bool:
        """Whether any of its addresses is."""
        if not self.is_removed:
            for live in self.lives.values():
                if not live.is_gone:
                    return True
        return False

    def alive(self) -> dict[int, Live[C]]:
        """Return the addresses that are not gone."""
        if self.is_removed:
            return {}
        return {broker_id: live for broker_id, live in self.lives.items() if not live.is_gone}


@final
class Tables(Generic[C]):
    """The tables. What is gone may still be found in them, marked."""

    __slots__ = ("brokers", "clusters", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, Broker[C]]] = {}
        """By topic and broker name. A broker found here has the topic in its `queues`."""
        self.brokers: dict[str, Broker[C]] = {}
        self.clusters: dict[str, dict[str, None]] = {}
        """The broker names of each cluster."""
