"""Which broker of a name is asked. Pure.

The rules are those of RocketMQ 4.9.8 MQClientInstance: what changes or tells the end of a queue is
the master's business; what is read may come from a slave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.client.routes import MASTER_ID
from rmq.errors import NoRouteError

if TYPE_CHECKING:
    from rmq.client.routes import Address, RouteTable
    from rmq.model.queues import MessageQueue


def master_of(routes: RouteTable, queue: MessageQueue) -> Address:
    """Return the master that has a queue; raise `NoRouteError` if there is none now."""
    broker = routes.address_of(queue.broker_name)
    if broker is None or broker.broker_id != MASTER_ID:
        raise _no_broker(queue, f"no master of broker {queue.broker_name} is known")
    return broker


def broker_of(routes: RouteTable, queue: MessageQueue, broker_id: int = MASTER_ID) -> Address:
    """Return the broker of this number that has a queue, or the next best one.

    That is the slave numbered one higher, then any, the master first. Raises `NoRouteError` if the
    name is not known at all.
    """
    broker = routes.address_of(queue.broker_name, broker_id)
    if broker is None:
        raise _no_broker(queue, f"no broker {queue.broker_name} is known")
    if broker.broker_id != broker_id and broker_id != MASTER_ID:
        neighbour = routes.address_of(queue.broker_name, broker_id + 1)
        if neighbour is not None and neighbour.broker_id == broker_id + 1:
            return neighbour
    return broker


def _no_broker(queue: MessageQueue, reason: str) -> NoRouteError:
    return NoRouteError(
        "the routes known here",
        queue.topic,
        reason,
        hint="ask for the topic's route again: the broker may be back, or gone for good",
    )
