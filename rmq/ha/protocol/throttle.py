"""A token bucket: a rate in bytes per second, with a burst. Pure, time is an argument."""

from __future__ import annotations

import math
from typing import Final

BURST_S: Final = 0.1
"""How much of a second's worth may go at once."""
_BURST_MIN: Final = 64 * 1024


class TokenBucket:
    """A budget of bytes; all links that share a rate share one bucket."""

    def __init__(self, bytes_per_s: int, now: float) -> None:
        self._rate = 0
        self._tokens = 0.0
        self._filled_at = now
        self.waited_s = 0.0
        """The sum of all waits."""
        self.set_rate(bytes_per_s, now)

    @property
    def is_limited(self) -> bool:
        return self._rate > 0

    def set_rate(self, bytes_per_s: int, now: float) -> None:
        """Change the rate; 0 means no limit."""
        self._fill(now)
        self._rate = bytes_per_s
        self._tokens = min(self._tokens, self._burst)

    @property
    def _burst(self) -> float:
        return max(self._rate * BURST_S, _BURST_MIN)

    def allowed(self, now: float) -> float:
        """Return how many bytes may be sent now; infinite without a limit."""
        if not self._rate:
            return math.inf
        self._fill(now)
        return max(0.0, self._tokens)

    def take(self, size: int) -> None:
        """Take bytes that were sent out of the budget, which may become negative."""
        if self._rate:
            self._tokens -= size

    def wait_s(self, size: int) -> float:
        """Return how long it takes until `size` bytes, or a full burst, are allowed."""
        if not self._rate:
            return 0.0
        missing = min(float(size), self._burst) - self._tokens
        return max(0.0, missing / self._rate)

    def _fill(self, now: float) -> None:
        if self._rate:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
