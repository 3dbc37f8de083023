"""Pulls one queue, again and again, as long as the consumer has it.

A pull waits at the broker until there are messages. While too many messages of the queue are not
finished, nothing is pulled; the loop is woken when some are. While one is far behind those that
were pulled last, pulling slows down. A pull that fails is tried again after a second, so a broker
that is away, or answers nonsense, costs little and is found again. A broker that has forgotten the
consumer, after a restart or a lost connection, is told of it at once. (With 4.9.8 it hears of it
with the next heartbeat, up to 30 s later.)
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, final

import anyio

from rmq.client.core.consuming.pull_policy import (
    BUSY_PAUSE_S,
    PUSH_IDLE_PAUSE_S,
    asks_for_pause,
)
from rmq.client.core.consuming.pulls import PullStatus, pull
from rmq.errors import ClientError, ResponseError
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.consuming.config import PushConsumerConfig
    from rmq.client.core.consuming.offset_store import OffsetTable
    from rmq.client.core.consuming.pulls import PullResult
    from rmq.client.core.consuming.subscription_set import SubscriptionSet
    from rmq.client.core.consuming.turns import QueueTurn
    from rmq.client.tasks.assignment import AssignedQueue
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.status import ConsumeStatistics

logger = logging.getLogger(__name__)

SPREAD_S: Final = 0.05
"""How long a queue is left alone whose unfinished messages are far apart."""
PAUSE_CHECK_S: Final = 1.0
INTRODUCE_S: Final = 5.0
"""Brokers are told of the consumer no more often, beside heartbeats. Members of a group that
subscribe to different topics make brokers forget each other's again and again."""
_FORGOTTEN: Final = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)
_SAME_COMPLAINTS: Final = 60
"""A failure that repeats itself is logged once in this many times."""


@final
class Pulling:
    """What all pull loops of a consumer share."""

    def __init__(
        self,
        client: Client,
        config: PushConsumerConfig,
        subscriptions: SubscriptionSet,
        offsets: OffsetTable,
        statistics: ConsumeStatistics,
        *,
        offer: Callable[[QueueTurn[AssignedQueue]], None],
        offset_is_illegal: Callable[[AssignedQueue, int], None],
    ) -> None:
        """`offer` gives a queue its turn. `offset_is_illegal` is told of queues that have no such
        place as was asked for, and of the nearest one that they have; they are pulled no longer.
        """
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._statistics = statistics
        self._needs_lock = config.needs_lock
        self._offer = offer
        self._offset_is_illegal = offset_is_illegal
        self._resumed: anyio.Event | None = None
        self._introduced_at = -math.inf

    @property
    def is_paused(self) -> bool:
        return self._resumed is not None

    def pause(self) -> None:
        """Pull no more. What pulls under way bring is not taken, and pulled again later."""
        if self._resumed is None:
            self._resumed = anyio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    async def run(self, assigned: AssignedQueue) -> None:
        """Pull a queue until it is dropped, or its `pulling` scope is cancelled."""
        complaints = _Complaints(assigned)
        with assigned.pulling:
            while not assigned.process.is_dropped and not assigned.is_moving:
                assigned.process.last_pull_at = anyio.current_time()
                pause_s = await self._wait_allowed(assigned)
                if pause_s is None:
                    try:
                        pause_s = await self._pull(assigned)
                        complaints.clear()
                    except ClientError as exc:
                        complaints.hear(exc)
                        pause_s = self._pause_after(exc)
                if pause_s:
                    await anyio.sleep(pause_s)

    async def _wait_allowed(self, assigned: AssignedQueue) -> float | None:
        """Wait until the queue may be pulled; None: it may, else look again after so long."""
        if self._resumed is not None:
            with anyio.move_on_after(PAUSE_CHECK_S):
                await self._resumed.wait()
            return 0
        reason = assigned.blocked_by()
        if reason is not None:
            logger.debug("%s is not pulled: %s", assigned.queue, reason)
            await assigned.wait_room()
            return 0
        if assigned.is_spread_out:
            return SPREAD_S
        if self._needs_lock and not assigned.process.is_locked(anyio.current_time()):
            return self._config.pull_pause_s
        if assigned.queue.topic not in self._subscriptions:
            return self._config.pull_pause_s
        return None

    async def _pull(self, assigned: AssignedQueue) -> float:
        """Pull once; return how long to leave the queue alone then. Raises `ClientError`."""
        config, process, queue = self._config, assigned.process, assigned.queue
        subscription = self._subscriptions.get(queue.topic)
        assert subscription is not None, f"{queue} is pulled and not subscribed"
        began_at = anyio.current_time()
        offset = process.next_offset
        result = await self._client.run(
            pull(
                self._client.routes,
                queue,
                group=config.group,
                subscription=subscription,
                offset=offset,
                max_messages=config.pull_messages_max,
                suspend_s=config.pull_suspend_s,
                commit_offset=None if config.is_broadcast else self._offsets.get(queue),
                sends_expression=config.sends_expression,
                broker_id=assigned.broker_id,
                timeout_s=config.pull_timeout_s,
                checks_crc=config.checks_crc,
            )
        )
        if process.is_dropped or self._resumed is not None:
            return 0
        took_s = anyio.current_time() - began_at
        assigned.broker_id = result.suggested_broker_id
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return self._stop(assigned, result)
        count = process.put(result.messages, result.next_offset)
        if count:
            self._statistics.pulled(queue.topic, count, took_s)
            self._offer(assigned.turn)
            return config.pull_interval_s
        if not process.count:
            # What lies before the next pull is not for this consumer: it counts as finished.
            self._offsets.update(queue, process.commit_offset)
        if process.next_offset != offset:
            return config.pull_interval_s
        if result.status is not PullStatus.NO_NEW:
            logger.warning(
                "%s: a pull from offset %d brought nothing new and goes on at %d; it is tried again"
                " in %g s",
                queue,
                offset,
                result.next_offset,
                config.pull_pause_s,
            )
            return config.pull_pause_s
        return PUSH_IDLE_PAUSE_S if took_s < PUSH_IDLE_PAUSE_S else 0

    def _stop(self, assigned: AssignedQueue, result: PullResult) -> float:
        queue, offset = assigned.queue, assigned.process.next_offset
        if result.next_offset < 0 or result.next_offset == offset:
            logger.warning(
                "%s: offset %d is not there, and %d is to be asked for instead; it is tried again"
                " in %g s",
                queue,
                offset,
                result.next_offset,
                self._config.pull_pause_s,
            )
            return self._config.pull_pause_s
        logger.warning(
            "%s: offset %d is not there: it has %d to %d, and is read from %d",
            queue,
            offset,
            result.min_offset,
            result.max_offset,
            result.next_offset,
        )
        self._offset_is_illegal(assigned, result.next_offset)
        return 0

    def _pause_after(self, error: ClientError) -> float:
        if asks_for_pause(error):
            return BUSY_PAUSE_S
        if isinstance(error, ResponseError) and error.code in _FORGOTTEN:
            self._introduce()
        return self._config.pull_pause_s

    def _introduce(self) -> None:
        now = anyio.current_time()
        if now >= self._introduced_at + INTRODUCE_S:
            self._introduced_at = now
            self._client.beat_soon()


@final
class _Complaints:
    """Logs failures of one queue, but not the same one every second."""

    def __init__(self, assigned: AssignedQueue) -> None:
        self._assigned = assigned
        self._last = ""
        self._times = 0

    def clear(self) -> None:
        self._last = ""

    def hear(self, error: ClientError) -> None:
        text = str(error)
        if text != self._last:
            self._last, self._times = text, 0
        if self._times % _SAME_COMPLAINTS == 0:
            # Right after a heartbeat that is still on its way this is nothing to worry about.
            is_usual = (
                isinstance(error, ResponseError)
                and error.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
                and not self._times
            )
            logger.log(
                logging.INFO if is_usual else logging.WARNING,
                "%s could not be pulled: %s",
                self._assigned.queue,
                text,
            )
        self._times += 1
