"""Which broker of a name is asked. Sans-IO.

What changes something is the master's business. What is read may come from a slave, and does if
there is no master, or none that can be reached. (In RocketMQ 4.9.8 only the master tells where
queues begin and end.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmq.client.core.routes import MASTER_ID
from rmq.errors import ClientError, ConnectFailedError, ConnectionLostError, NoRouteError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address, RouteTable
    from rmq.client.core.slave_reads import SlaveReads
    from rmq.model.queues import MessageQueue

T = TypeVar("T")


def master_of(routes: RouteTable, queue: MessageQueue) -> Address:
    """Return the master that has a queue; raise `NoRouteError` if there is none now."""
    broker = routes.address_of(queue.broker_name)
    if broker is None or broker.broker_id != MASTER_ID:
        raise _no_broker(queue, f"no master of broker {queue.broker_name} is known")
    return broker


def readers_of(routes: RouteTable, queue: MessageQueue) -> Sequence[Address]:
    """Return the brokers that have a queue, the master first; raise `NoRouteError`."""
    brokers = routes.brokers_of(queue.broker_name)
    if not brokers:
        raise _no_broker(queue, f"no broker {queue.broker_name} is known")
    return brokers


def read_first(
    brokers: Sequence[Address], call: Callable[[Address], Flow[T]], reads: SlaveReads
) -> Flow[T]:
    """Call the first of the brokers of a name that can be reached: the master, if it can.

    Raises what the first one failed with if none can.
    """
    failure: ClientError | None = None
    for broker in brokers:
        try:
            result = yield from call(broker)
        except (ConnectFailedError, ConnectionLostError) as exc:
            failure = failure or exc
            continue
        note_reader(brokers, broker, reads)
        return result
    assert failure is not None, "nobody to ask"
    raise failure


def note_reader(brokers: Sequence[Address], reader: Address, reads: SlaveReads) -> None:
    """Take in which of the brokers of a name has answered what the master is asked first.

    A broker without a name was asked by its address: nobody else would have been.
    """
    if not reader.broker_name:
        return
    if reader.broker_id == MASTER_ID:
        reads.answered(reader.broker_name)
    else:
        first = brokers[0]
        reads.used(reader, first.address if first.broker_id == MASTER_ID else None)


def broker_of(routes: RouteTable, queue: MessageQueue, broker_id: int = MASTER_ID) -> Address:
    """Return the broker of this number that has a queue, or the next best one.

    That is the slave numbered one higher, then any, the master first. Raises `NoRouteError` if the
    name is not known at all.
    """
    broker = routes.address_of(queue.broker_name, broker_id)
    if broker is None:
        raise _no_broker(queue, f"no broker {queue.broker_name} is known")
    if broker.broker_id == broker_id:
        return broker
    if broker_id == MASTER_ID:
        routes.slave_reads.used(broker)
    else:
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
