"""The client's loop is asyncio: the one of the standard library, or uvloop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from rmq.client.aio.connections import Connections
from rmq.client.aio.stacks import task_stacks
from rmq.client.aio.waiting import Awaited, ParkingLot, PendingSend, Waiter
from rmq.errors import WrongLoopError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.broker_requests import BrokerRequests
    from rmq.client.core.config import ClientConfig
    from rmq.client.tasks.loop import ConnectionOwner, Loop


async def _checkpoint() -> None:
    await asyncio.sleep(0)


async def _no_checkpoint() -> None:
    """Do nothing: asyncio cancels a task where it waits, and nowhere else."""


@final
class AioLoop:
    """See `rmq.client.tasks.loop`."""

    awaited = Awaited
    waiter = Waiter
    pending_send = PendingSend
    parking_lot = ParkingLot
    checkpoint = staticmethod(_checkpoint)
    checkpoint_if_cancelled = staticmethod(_no_checkpoint)

    def check_running(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise WrongLoopError("asyncio") from None

    def clock(self) -> Callable[[], float]:
        return asyncio.get_running_loop().time

    def connections(
        self, config: ClientConfig, requests: BrokerRequests, owner: ConnectionOwner
    ) -> Connections:
        return Connections(config, requests, owner)

    def stacks(self) -> str:
        return task_stacks()


AIO: Loop = AioLoop()
