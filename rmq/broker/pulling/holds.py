"""Pulls that wait for messages (long polling). Pure: time is an argument.

A pull that finds nothing new is held here until a message arrives that passes its filter, or its
deadline passes. Queues are watched only while pulls of them are held, so a message of other queues
costs nothing. Pulls that are woken by the messages of one step are answered together, after all of
them are stored: a batch wakes a consumer once. As in RocketMQ 4.9.8 PullRequestHoldService,
deadlines are checked every few seconds (`sweep`), not one by one: a pull without messages is
answered up to that much late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rmq.remoting.channel import Channel
    from rmq.remoting.headers import PullMessageRequest
    from rmq.remoting.request import Request
    from rmq.store.dispatcher import Dispatched
    from rmq.store.reads import MessageFilter


@final
class Hold:
    """One held pull."""

    __slots__ = ("deadline", "key", "matches_properties", "matches_tags_code", "offset", "request")

    def __init__(
        self,
        request: Request[PullMessageRequest],
        deadline: float,
        message_filter: MessageFilter | None,
    ) -> None:
        header = request.header
        self.request = request
        self.key = (header.topic, header.queue_id)
        self.offset = header.queue_offset
        self.deadline = deadline
        self.matches_tags_code = (
            None if message_filter is None else message_filter.matches_tags_code
        )
        self.matches_properties: Callable[[bytes], bool] | None = getattr(
            message_filter, "matches_properties", None
        )

    def wants(self, arrived: Dispatched) -> bool:
        """Tell whether a message that came in is one it waits for."""
        if arrived.queue_offset < self.offset:
            return False
        if self.matches_tags_code is not None and not self.matches_tags_code(arrived.tags_code):
            return False
        return self.matches_properties is None or self.matches_properties(arrived.properties)


@final
class PullHolds:
    """All held pulls of a broker."""

    def __init__(self, watch: Callable[[str, int, bool], None]) -> None:
        self._watch = watch
        """Called with topic, queue and whether its messages are of interest from now on."""
        # Ordered sets: thousands may wait for one queue, and each of them may leave alone.
        self._by_queue: dict[tuple[str, int], dict[Hold, None]] = {}
        self._by_channel: dict[Channel, set[Hold]] = {}
        self._woken: list[Hold] = []

    def __len__(self) -> int:
        """How many pulls are held."""
        return sum(map(len, self._by_channel.values()))

    @property
    def queues(self) -> int:
        """How many queues have held pulls."""
        return len(self._by_queue)

    @property
    def has_woken(self) -> bool:
        return bool(self._woken)

    def add(self, hold: Hold) -> None:
        waiting = self._by_queue.get(hold.key)
        if waiting is None:
            # First of all: a queue that cannot be watched must not be waited for.
            self._watch(*hold.key, True)
            self._by_queue[hold.key] = {hold: None}
        else:
            waiting[hold] = None
        channel = hold.request.channel
        if channel in self._by_channel:
            self._by_channel[channel].add(hold)
        else:
            self._by_channel[channel] = {hold}

    def arrived(self, message: Dispatched) -> None:
        """Wake the pulls that wait for a new message."""
        key = (message.topic, message.queue_id)
        waiting = self._by_queue.get(key)
        if waiting is not None:
            self._wake(key, [hold for hold in waiting if hold.wants(message)])

    def take_woken(self, count_max: int) -> list[Hold]:
        """Remove and return the woken pulls, the first woken first."""
        woken = self._woken[:count_max]
        del self._woken[:count_max]
        for hold in woken:
            self._leave(hold)
        return woken

    def sweep(self, now: float, max_offset: Callable[[str, int], int]) -> None:
        """Wake pulls whose deadline has passed or whose queue already has newer messages."""
        for key, waiting in list(self._by_queue.items()):
            end = max_offset(*key)
            self._wake(key, [hold for hold in waiting if hold.deadline <= now or hold.offset < end])

    def wake_topic(self, topic: str) -> None:
        """Wake all pulls of a topic, because it was changed or deleted."""
        self._wake_queues([key for key in self._by_queue if key[0] == topic])

    def wake_all(self) -> None:
        """Wake all pulls, because the broker stops."""
        self._wake_queues(list(self._by_queue))

    def forget(self, channel: Channel) -> list[Hold]:
        """Remove and return the pulls of a connection that is gone."""
        gone = self._by_channel.pop(channel, None)
        if not gone:
            return []
        for hold in gone:
            if hold in self._by_queue.get(hold.key, ()):
                self._remove(hold.key, (hold,))
        if self._woken:
            self._woken = [hold for hold in self._woken if hold not in gone]
        return list(gone)

    def _wake_queues(self, keys: list[tuple[str, int]]) -> None:
        for key in keys:
            self._wake(key, list(self._by_queue[key]))

    def _wake(self, key: tuple[str, int], woken: list[Hold]) -> None:
        if woken:
            self._woken += woken
            self._remove(key, woken)

    def _remove(self, key: tuple[str, int], holds: Collection[Hold]) -> None:
        waiting = self._by_queue[key]
        if len(holds) == len(waiting):
            del self._by_queue[key]
            self._watch(*key, False)
        else:
            for hold in holds:
                del waiting[hold]

    def _leave(self, hold: Hold) -> None:
        channel = hold.request.channel
        holds = self._by_channel.get(channel)
        if holds is not None:
            holds.discard(hold)
            if not holds:
                del self._by_channel[channel]
