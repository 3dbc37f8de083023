"""Searching for the route of a topic, for callers that choose a queue before they send. Pure.

A send that finds no master waits in a line of its topic (`MasterWaits`). A caller that needs the
queues first has no send yet, so it waits by itself: it asks for the route again after pauses, until
there is a master or its time is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from rmq.client.core.producing.delivery import lookup_timed_out
from rmq.client.core.producing.master_waits import Pauses

if TYPE_CHECKING:
    from rmq.client.core.producing.master_waits import NoMasterError
    from rmq.errors import ClientError


@final
class RouteSearch:
    """One search for a route: how long to wait for a master, and how it fails.

    A driver asks for the route. If that raises `NoMasterError`, it pauses for what `no_master`
    returns and asks again. A driver that can end a request before its own timeout raises
    `timed_out` when `timeout_s` is over.
    """

    __slots__ = ("_asked", "_deadline", "_last_error", "_pauses", "_timeout_s", "_topic")

    def __init__(self, topic: str, *, asked: str, timeout_s: float, now: float) -> None:
        """`asked` has the addresses of the nameservers, for errors."""
        self._topic = topic
        self._asked = asked
        self._timeout_s = timeout_s
        self._deadline = now + timeout_s
        self._pauses = Pauses()
        self._last_error: NoMasterError | None = None

    def no_master(self, error: NoMasterError, now: float) -> float:
        """Return how long to pause before the next request; raise the error if there is no time."""
        self._last_error = error
        left_s = self._deadline - now
        if left_s <= 0:
            raise error
        return min(self._pauses.next_s(now), left_s)

    def timed_out(self) -> ClientError:
        """Return the error of a search whose time is over: what the last request ended with."""
        if self._last_error is not None:
            return self._last_error
        return lookup_timed_out(self._asked, self._topic, self._timeout_s)
