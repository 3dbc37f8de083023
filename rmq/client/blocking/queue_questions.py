"""Asks the brokers of several queues at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from rmq.errors import ConnectFailedError, ConnectionLostError, NoRouteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmq.client.blocking.client import BlockingClient
    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import RouteTable
    from rmq.model.queues import MessageQueue

T = TypeVar("T")

_LOST: Final = (ConnectFailedError, ConnectionLostError, NoRouteError)


def ask_of_queues(
    client: BlockingClient,
    queues: Iterable[MessageQueue],
    flow: Callable[[RouteTable, MessageQueue], Flow[T]],
) -> dict[MessageQueue, T]:
    """Return what a flow finds for each queue; a broker that is gone is found by a new route.

    The caller is inside the monitor.
    """
    wanted = list(queues)
    for topic in {queue.topic for queue in wanted}:
        client.route(topic)
    tasks = {queue: client.start(flow(client.routes, queue)) for queue in wanted}
    found: dict[MessageQueue, T] = {}
    refreshed: set[str] = set()
    for queue, task in tasks.items():
        try:
            found[queue] = client.wait(task)
        except _LOST:
            if queue.topic not in refreshed:
                refreshed.add(queue.topic)
                client.refresh_route(queue.topic)
            found[queue] = client.run(flow(client.routes, queue))
    return found
