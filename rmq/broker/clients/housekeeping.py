"""Keeps the tables of connected clients true: connections that ended, clients that fell silent.

The trio glue of `ClientRegistry` and `QueueLocks`; what RocketMQ 4.9.8 ClientHousekeepingService
does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.steps import in_steps

if TYPE_CHECKING:
    from rmq.broker.clients.locks import QueueLocks
    from rmq.broker.clients.registry import ClientRegistry
    from rmq.remoting.channel import Channel

logger = logging.getLogger(__name__)

SCAN_INTERVAL_S: Final = 10.0
_MEMBERS_PER_STEP: Final = 32


@final
class ClientHousekeeping:
    """Removes clients that are gone. A `ConnectionListener` of the broker's servers."""

    def __init__(self, clients: ClientRegistry, locks: QueueLocks) -> None:
        self._clients = clients
        self._locks = locks

    def connection_opened(self, channel: Channel) -> None:
        """Do nothing: clients are registered by their first heartbeat."""

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self._clients.channel_closed(channel)

    def connection_idle(self, channel: Channel) -> None:
        """Do nothing: the endpoint closes idle connections."""

    async def run(self) -> None:
        """Remove silent clients and lapsed locks from time to time, until cancelled."""
        while True:
            await trio.sleep(SCAN_INTERVAL_S)
            now = trio.current_time()
            while self._clients.has_expired(now):
                for channel in self._clients.expire(now, _MEMBERS_PER_STEP):
                    logger.warning("closing connection of %s: no heartbeat in time", channel.peer)
                    channel.close("no heartbeat in time")
                await trio.lowlevel.checkpoint()
            await in_steps(self._locks.expiring(now))
