"""Groups of request codes and their bounds.

Every code belongs to a group (send, pull, query ...), and a group has bounds of its own: how many
coroutines run, how many requests are unanswered in all, and how many of them may be one
connection's, or one host's. Waiting requests of a group are served in turn by connection, so that
one client's thousand queries do not hold up another's one.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from rmq.remoting.fairness.shares import HostShares

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.remoting.channel import Channel
    from rmq.remoting.request import Request


_REQUESTS_OF_HOST_MIN: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerGroup:
    """Bounds that a group of request codes has to itself."""

    name: str
    concurrency: int
    """How many coroutine handlers run at a time."""
    capacity: int
    """How many requests may be unanswered; one more is answered SYSTEM_BUSY."""
    per_connection: int
    """How many of them may be one connection's."""
    slows_down: bool = True
    """What happens at `per_connection`: the connection is read no further until an answer is out
    (True), or the request is answered SYSTEM_BUSY (False; for requests that rest unanswered on
    purpose, such as held pulls).
    """

    wait_max_s: float = math.inf
    """Requests that have waited longer are answered SYSTEM_BUSY instead of being handled."""

    def __post_init__(self) -> None:
        if min(self.concurrency, self.capacity, self.per_connection) < 1:
            raise ValueError(f"group {self.name}: bounds must be at least 1")


# Capacities are those of the queues of 4.9.8's thread pools; its pools have no bound per
# connection.
SEND: Final = HandlerGroup(name="send", concurrency=64, capacity=10_000, per_connection=5_000)
PULL: Final = HandlerGroup(
    name="pull", concurrency=64, capacity=100_000, per_connection=50_000, slows_down=False
)
QUERY: Final = HandlerGroup(name="query", concurrency=8, capacity=20_000, per_connection=1_000)
ADMIN: Final = HandlerGroup(name="admin", concurrency=16, capacity=10_000, per_connection=1_000)
CLIENT_MANAGEMENT: Final = HandlerGroup(
    name="client_management", concurrency=32, capacity=100_000, per_connection=1_000
)
HEARTBEAT: Final = HandlerGroup(
    name="heartbeat", concurrency=16, capacity=50_000, per_connection=1_000
)


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """A snapshot of one group, for metrics."""

    name: str
    unanswered: int
    waiting: int
    running: int
    refused: int
    """Requests answered SYSTEM_BUSY since the start."""


@final
class GroupState:
    """The requests of one group that are not answered yet."""

    def __init__(self, group: HandlerGroup, host_share_max: int = 100) -> None:
        self.group = group
        self._hosts = HostShares(
            group.capacity, floor=_REQUESTS_OF_HOST_MIN, share_max=host_share_max
        )
        self.wait_max_s = group.wait_max_s
        """May change while it is used."""
        self.unanswered = 0
        self.running = 0
        self.refused = 0
        self.refused_old = 0
        """Those of them that had waited too long; there was no room for the others."""
        self.on_all_answered: Callable[[], None] | None = None
        # Below this no bound can be hit, neither the group's nor a connection's.
        self._comfortable = self._hosts.comfortable
        if not group.slows_down:
            self._comfortable = min(self._comfortable, group.per_connection)
        self._by_channel: dict[Channel, int] = {}
        self._turns: deque[Channel] = deque()
        self._waiting: dict[
            Channel, deque[tuple[Request[Any], Callable[..., Awaitable[None]]]]
        ] = {}

    def statistics(self) -> GroupStatistics:
        return GroupStatistics(
            name=self.group.name,
            unanswered=self.unanswered,
            waiting=sum(map(len, self._waiting.values())),
            running=self.running,
            refused=self.refused,
        )

    def crowded_by(self, count: int) -> bool:
        """Return, fast, whether `count` more requests might exceed a bound."""
        return self.unanswered + count > self._comfortable

    def room_for(self, channel: Channel) -> int:
        """Return how many more requests of this connection can be accepted."""
        room = self._hosts.room_for(channel.host)
        if not self.group.slows_down:
            room = min(room, self.group.per_connection - self._by_channel.get(channel, 0))
        return max(0, room)

    def count(self, channel: Channel, more: int = 1) -> None:
        """Count requests of a connection that are not answered yet."""
        self.unanswered += more
        self._hosts.change(channel.host, more)
        before = self._by_channel.get(channel, 0)
        self._by_channel[channel] = mine = before + more
        if before < self.group.per_connection <= mine and self.group.slows_down:
            channel.pause()

    def uncount(self, channel: Channel, fewer: int = 1) -> None:
        """Count as many of them no longer."""
        self.unanswered -= fewer
        self._hosts.change(channel.host, -fewer)
        before = self._by_channel[channel]
        mine = before - fewer
        if mine:
            self._by_channel[channel] = mine
        else:
            del self._by_channel[channel]
        if mine < self.group.per_connection <= before and self.group.slows_down:
            channel.resume()
        if self.unanswered == 0 and self.on_all_answered is not None:
            self.on_all_answered()

    def put(self, request: Request[Any], handler: Callable[..., Awaitable[None]]) -> None:
        waiting = self._waiting.get(request.channel)
        if waiting is None:
            waiting = self._waiting[request.channel] = deque()
            self._turns.append(request.channel)
        waiting.append((request, handler))

    def take_older(self, than: float) -> list[Request[Any]]:
        """Return the waiting requests that arrived before a time, and have them wait no longer."""
        found: list[Request[Any]] = []
        for channel in list(self._turns):
            waiting = self._waiting[channel]
            while waiting and waiting[0][0].since < than:
                found.append(waiting.popleft()[0])
            if not waiting:
                del self._waiting[channel]
                self._turns.remove(channel)
        return found

    def take(self) -> tuple[Request[Any], Callable[..., Awaitable[None]]] | None:
        """Return the next request; connections take turns."""
        if not self._turns:
            return None
        channel = self._turns.popleft()
        waiting = self._waiting[channel]
        taken = waiting.popleft()
        if waiting:
            self._turns.append(channel)
        else:
            del self._waiting[channel]
        return taken

    def forget(self, channel: Channel) -> list[Request[Any]]:
        waiting = self._waiting.pop(channel, None)
        if waiting is None:
            return []
        self._turns.remove(channel)
        return [request for request, _ in waiting]
