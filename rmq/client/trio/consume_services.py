"""Which service settles the calls of a consumer's listener: by its configuration. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.client.trio.concurrent_service import ConcurrentService
from rmq.client.trio.orderly_service import OrderlyService

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.consuming.config import PushConsumerConfig
    from rmq.client.core.consuming.offset_store import OffsetTable
    from rmq.client.core.consuming.turns import Lane
    from rmq.client.trio.assigned_queue import AssignedQueue
    from rmq.client.trio.listener_pool import ConsumeService
    from rmq.client.trio.returning import Returning


def consume_service(
    config: PushConsumerConfig,
    offsets: OffsetTable,
    returning: Returning,
    *,
    relock: Callable[[AssignedQueue], None] | None,
    offer: Callable[[Lane[AssignedQueue]], None],
    after: Callable[[float, Callable[[], None]], None],
) -> ConsumeService:
    """Return the service of a consumer. See the two classes for what they are given."""
    if config.is_orderly:
        return OrderlyService(
            group=config.group,
            batch_max=config.batch_messages_max,
            retries_max=config.retries_max,
            suspend_s=config.suspend_queue_s,
            offsets=offsets,
            give_up=returning.give_up,
            relock=relock,
            offer=offer,
            after=after,
        )
    return ConcurrentService(
        group=config.group,
        batch_max=config.batch_messages_max,
        offsets=offsets,
        send_back=None if config.is_broadcast else returning.later,
        offer=offer,
        after=after,
    )
