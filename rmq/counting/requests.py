"""How often requests of a code were answered with what, and how long that took. Pure.

Counting is for the hot path: what came in one read and is answered at once is counted once.
"""

from __future__ import annotations

from typing import Final, final

from rmq.counting.histogram import LATENCY_BOUNDS_S, Histogram

HELD_BOUNDS_S: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)
"""For requests that wait for messages."""


@final
class CodeCounts:
    """What was answered to the requests of one code."""

    __slots__ = ("_codes", "dropped", "held", "latency", "successes")

    def __init__(self) -> None:
        self.successes = 0
        self.dropped = 0
        """Requests that got no answer, because there is none or their connection has ended."""
        self.latency = Histogram(LATENCY_BOUNDS_S)
        """From arrival to answer, in seconds."""
        self.held = Histogram(HELD_BOUNDS_S)
        """The same of requests that waited for what they asked for."""
        self._codes: dict[int, int] = {}

    def answered(self, code: int, took_s: float, times: int = 1) -> None:
        """Count answers, also those that are not sent because the request was one-way."""
        latency = self.latency
        if took_s <= latency.first:
            # What `note` does; this runs for every read of a connection.
            latency.counts[0] += times
            latency.sum += took_s * times
        else:
            latency.note(took_s, times)
        if code:
            self._codes[code] = self._codes.get(code, 0) + times
        else:
            self.successes += times

    def answered_held(self, code: int, took_s: float) -> None:
        """Count the answer to a request that waited for what it asked for."""
        self.held.note(took_s)
        self.refused(code)

    def refused(self, code: int, times: int = 1) -> None:
        """Count answers given before the request was served."""
        if code:
            self._codes[code] = self._codes.get(code, 0) + times
        else:
            self.successes += times

    def by_code(self) -> dict[int, int]:
        """Return how often it was answered with which code."""
        return {0: self.successes, **self._codes} if self.successes else dict(self._codes)
