"""The parts of a broker that serving a request about messages takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.broker.origin import Origin
    from rmq.broker.stats.broker import BrokerStats
    from rmq.broker.tables.saved import Tables
    from rmq.store.store import MessageStore


@dataclass(frozen=True, slots=True)
class ServingParts:
    """Settings, messages, tables and counters of one broker, whatever its role is.

    What is connected to it now (clients, slaves, the master) is not among them.
    """

    live: LiveConfig
    store: MessageStore
    tables: Tables
    stats: BrokerStats
    origin: Origin
