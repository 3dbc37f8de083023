"""The client's loop is trio."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from rmq.client.core.messages import SendResult
from rmq.client.trio.broker_requests import handler_table
from rmq.client.trio.stacks import task_stacks
from rmq.errors import WrongLoopError
from rmq.remoting.awaited import Awaited, Waiter
from rmq.remoting.client import ClientConfig as RemotingConfig
from rmq.remoting.client import RemotingClient
from rmq.remoting.tls_config import client_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.broker_requests import BrokerRequests
    from rmq.client.core.config import ClientConfig
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.loop import ConnectionOwner, Loop
    from rmq.remoting.channel import Channel


@final
class PendingSend(Waiter[SendResult]):
    """A pipelined send: `await pending.wait()` returns its result or raises its error."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<PendingSend {'under way' if self.outcome is None else self.outcome!r}>"


@final
class TrioLoop:
    """See `rmq.client.tasks.loop`."""

    awaited = Awaited
    waiter = Waiter
    pending_send = PendingSend
    parking_lot = trio.lowlevel.ParkingLot
    checkpoint = staticmethod(trio.lowlevel.checkpoint)
    checkpoint_if_cancelled = staticmethod(trio.lowlevel.checkpoint_if_cancelled)

    def check_running(self) -> None:
        if not trio.lowlevel.in_trio_run():
            raise WrongLoopError("trio")

    def clock(self) -> Callable[[], float]:
        return trio.lowlevel.current_clock().current_time

    def connections(
        self, config: ClientConfig, requests: BrokerRequests, owner: ConnectionOwner
    ) -> RemotingClient:
        return RemotingClient(
            RemotingConfig(
                connect_timeout_s=config.connect_timeout_s,
                serialization=config.serialization,
                busy_wait_s=config.busy_wait_s,
            ),
            table=handler_table(requests),
            listeners=[_Listener(owner)],
            tls_context=None if config.tls is None else client_context(config.tls),
            credentials=config.credentials,
        )

    def stacks(self) -> str:
        return task_stacks()


@final
class _Listener:
    """Tells the owner of connections what it wants to know."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner

    def connection_opened(self, channel: Channel) -> None:
        self._owner.channel_opened(channel)

    def connection_closed(self, channel: Channel, reason: str) -> None:
        """The next request makes the connection again."""

    def connection_idle(self, channel: Channel) -> None:
        """Heartbeats keep connections busy; one that is idle is not needed."""


TRIO: Loop = TrioLoop()


def remoting_of(client: Client) -> RemotingClient:
    """Return the connections of a client on trio, for requests that only rmq has."""
    remoting = client.remoting
    if not isinstance(remoting, RemotingClient):
        raise WrongLoopError("trio")
    return remoting
