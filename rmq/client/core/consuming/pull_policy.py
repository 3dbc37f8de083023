"""The rules of pulling, for all who pull again and again. Pure.

There are four loops, and each asks here what an answer or a failure means:

- `rmq.client.tasks.pull_loop`: push consumers.
- `rmq.client.tasks.pull_tasks`: lite pull consumers.
- `rmq.client.blocking.reading`: `poll` of blocking consumers.
- `rmq.client.blocking.ranges`: `read_range` of blocking consumers. A place that is not there is an
  error to it, where the others go on at the nearest one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq.client.core.consuming.pulls import PullStatus
from rmq.errors import (
    BadAnswerError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    NoRouteError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    ResponseError,
)
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from rmq.client.core.consuming.pulls import PullParts, PullResult
    from rmq.model.queues import MessageQueue

BUSY_PAUSE_S: Final = 0.02
"""Pause before the next pull from a broker that says that it is busy."""
IDLE_PAUSE_S: Final = 0.05
"""How long a queue is left alone whose broker does not wait for messages although it may."""
PUSH_IDLE_PAUSE_S: Final = 0.1
"""Likewise, by push consumers, which have many queues."""

LOST_BROKER: Final = (
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
    NoRouteError,
)
"""What a failed pull says if the broker may be somewhere else by now: its route is asked for."""


# --- failures ------------------------------------------------------------------------------------


def asks_for_pause(error: ClientError) -> bool:
    """Tell whether a broker wants to be left alone for `BUSY_PAUSE_S`, which is no failure.

    As in 4.9.8, other ways of being busy (`rmq.client.core.busy`) count as failures.
    """
    return isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL


def failure_level(before: ClientError | None, error: ClientError) -> int:
    """Return the level to log a failure at: it is told once for as long as it stays the same."""
    return logging.DEBUG if str(before) == str(error) else logging.WARNING


# --- answers -------------------------------------------------------------------------------------


def idle_pause_s(offset: int, result: PullResult, took_s: float) -> float:
    """Return how long to leave a queue alone whose pull from `offset` brought this."""
    stays = not result.messages and result.next_offset == offset
    return IDLE_PAUSE_S if stays and took_s < IDLE_PAUSE_S else 0.0


def check_found(peer: str, queue: MessageQueue, offset: int, next_offset: int) -> None:
    """Raise `BadAnswerError` for a pull that found messages and does not go on behind them."""
    if next_offset <= offset:
        # Taken at its word, it would give out the same messages for ever.
        raise bad_place(peer, queue, offset, f"goes on at offset {next_offset}")


def check_place(
    peer: str, queue: MessageQueue, offset: int, result: PullResult, *, is_slave: bool
) -> None:
    """Raise `BadAnswerError` for a place to go on at that is not to be believed."""
    next_offset = result.next_offset
    if next_offset < 0:
        raise bad_place(peer, queue, offset, f"goes on at offset {next_offset}")
    if result.status is PullStatus.OFFSET_ILLEGAL and is_slave and next_offset < offset:
        # A slave that lags behind is no reason to read again what was read already.
        raise bad_place(peer, queue, offset, f"ends at offset {next_offset} at a slave")


def moved_text(group: str, queue: MessageQueue, offset: int, result: PullResult) -> str:
    """Return what to log of a queue that has not got the offset that was asked for."""
    return (
        f"group {group}: {queue} has no offset {offset} but {result.min_offset} to"
        f" {result.max_offset}, so it is read from {result.next_offset} on"
    )


def check_range_place(
    peer: str, queue: MessageQueue, offset: int, parts: PullParts, *, slave_id: int | None
) -> None:
    """Raise if the answer to a pull of a range does not bring it on.

    A slave (`slave_id` is not None) that has not got the place may lag behind its master: then
    `ConnectionLostError` makes the master be asked. Raises `OffsetOutOfRangeError` for a place that
    the queue has not, and `BadAnswerError` for an answer that leads nowhere.
    """
    header = parts.header
    next_offset = header.next_begin_offset
    stands = next_offset <= offset
    # A stock broker may still tell an offset as the first whose file of the queue it has deleted:
    # it answers that nothing is new, and where the next file begins.
    is_gap = offset < next_offset <= header.max_offset
    has_nothing = parts.status is PullStatus.OFFSET_ILLEGAL or (
        parts.status is PullStatus.NO_NEW and not is_gap
    )
    if slave_id is not None and (has_nothing or stands or parts.status is PullStatus.NO_NEW):
        raise slave_lags(peer, slave_id, f"does not have offset {offset}")
    if has_nothing:
        raise OffsetOutOfRangeError(
            peer,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            offset,
            header.min_offset,
            header.max_offset,
        )
    check_found(peer, queue, offset, next_offset)


def slave_lags(peer: str, slave_id: int, why: str) -> ConnectionLostError:
    """Return what to raise if a slave lags behind: the master may know more."""
    return ConnectionLostError(peer, f"slave {slave_id} {why}")


def bad_place(peer: str, queue: MessageQueue, offset: int, what: str) -> BadAnswerError:
    """Return what to raise for an answer whose place makes no sense."""
    return BadAnswerError(
        peer, RequestCode.PULL_MESSAGE.name, f"{queue}, pulled from offset {offset}, {what}"
    )
