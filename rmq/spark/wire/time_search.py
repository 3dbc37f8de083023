"""The first message of a queue that was stored at a time or later. Pure.

Brokers search by time themselves, and answer with a message that was stored nearest to it: it may
be the one before, and of many with the same time it is any. So their answer is only where the
search here begins: from there it probes 1, 2, 4 and so on messages further, until it has passed the
place, and then halves. Each probe is a pull of one message.

The messages of a queue are taken to be in the order of their times, as they are unless the clock of
a broker was set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.client.core.consuming.offsets import offset_at
from rmq.client.core.consuming.pulls import pull
from rmq.errors import BadAnswerError
from rmq.remoting.bodies import SUBSCRIBE_ALL
from rmq.remoting.expressions import build_subscription

if TYPE_CHECKING:
    from collections.abc import Generator

    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address, RouteTable
    from rmq.model.queues import MessageQueue
    from rmq.spark.wire.planning import Span

PULL_TIMEOUT_S: Final = 10.0


def first_from(first: int, end: int, hint: int) -> Generator[int, bool, int]:
    """Search `first` to `end` for the first offset of which the answer is yes.

    Yields offsets and is sent whether their messages are late enough; all that follow one that is
    are, too. Returns `end` if none is. Takes at most twice as many probes as `end - first` has
    binary digits, and two more.
    """
    low, high = first, end
    if low >= high:
        return high
    place = min(max(hint, low), high - 1)
    step = 1
    if (yield place):
        high = place
        while low < high:
            place = max(low, high - step)
            step *= 2
            if not (yield place):
                low = place + 1
                break
            high = place
    else:
        low = place + 1
        while low < high:
            place = min(high - 1, low + step - 1)
            step *= 2
            if (yield place):
                high = place
                break
            low = place + 1
    while low < high:
        place = (low + high) // 2
        if (yield place):
            high = place
        else:
            low = place + 1
    return low


def offset_from(
    routes: RouteTable,
    queue: MessageQueue,
    broker: Address,
    *,
    span: Span,
    time_ms: int,
    group: str,
) -> Flow[int]:
    """Return the offset of the first message stored at `time_ms` or later; `span.end` if none."""
    if span.first >= span.end:
        return span.end
    hint = yield from offset_at(routes, queue, time_ms, broker=broker)
    search = first_from(span.first, span.end, hint)
    place = next(search)
    while True:
        stored_ms = yield from _stored_ms(routes, queue, broker, offset=place, group=group)
        try:
            place = search.send(stored_ms is not None and stored_ms >= time_ms)
        except StopIteration as end:
            found: int = end.value
            return found


def _stored_ms(
    routes: RouteTable, queue: MessageQueue, broker: Address, *, offset: int, group: str
) -> Flow[int | None]:
    """Return when a message was stored; None if it has been deleted meanwhile: it was old."""
    result = yield from pull(
        routes,
        queue,
        group=group,
        subscription=build_subscription(queue.topic, SUBSCRIBE_ALL),
        offset=offset,
        max_messages=1,
        suspend_s=0.0,
        sends_expression=True,
        broker_id=broker.broker_id,
        timeout_s=PULL_TIMEOUT_S,
        checks_crc=False,
    )
    if result.messages and result.messages[0].queue_offset == offset:
        return result.messages[0].stored_at_ms
    # A stock broker may still tell an offset as the first whose file of the queue it has deleted.
    if result.max_offset <= offset:
        raise BadAnswerError(
            broker.address,
            "PULL_MESSAGE",
            f"{queue} ends at offset {result.max_offset}, and had {offset} a moment ago",
        )
    return None
