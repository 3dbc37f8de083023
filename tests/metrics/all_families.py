"""All families that brokers and nameservers declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.broker.metrics import clients, consumers, node, pending, replication, storage, traffic
from rmq.metrics import event_loop, process, registry, requests
from rmq.nameserver import metrics as nameserver

if TYPE_CHECKING:
    from rmq.metrics.families import Family

SHARED: Final[tuple[Family, ...]] = (
    *requests.CATALOGUE,
    *event_loop.CATALOGUE,
    *process.CATALOGUE,
    *registry.CATALOGUE,
)
OF_BROKER: Final[tuple[Family, ...]] = (
    *node.READY_CATALOGUE,
    *node.CATALOGUE,
    *replication.CATALOGUE,
    *traffic.CATALOGUE,
    *consumers.CATALOGUE,
    *clients.CATALOGUE,
    *storage.CATALOGUE,
    *pending.CATALOGUE,
)
OF_NAMESERVER: Final[tuple[Family, ...]] = tuple(nameserver.CATALOGUE)
ALL: Final = (*OF_BROKER, *OF_NAMESERVER, *SHARED)
