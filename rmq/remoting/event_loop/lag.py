"""How late the event loop runs what is due: a histogram, and one line when it was held up. Pure.

A server does its work in steps, and a step that takes long delays all connections. A task that
sleeps until a time and notes how late it woke sees what a request sees that comes at that moment.
`rmq.remoting.event_loop.watch` has that task; here it is only counted. Times are seconds, given by
the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.counting.histogram import Histogram
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUNDS_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Upper bounds of the histogram; what is above the last is counted, too."""
HELD_UP_S: Final = 0.25
"""How late is worth a line in the log."""
LINE_INTERVAL_S: Final = 10.0
"""There is at most one line in this time."""

_NAMES: Final = {int(code): code.name for code in RequestCode}


class HeldUp(NamedTuple):
    """That the loop was held up, for the log."""

    line: str
    is_own: bool
    """Whether this process worked most of that time: else it waited for the machine."""


@final
class LoopLag:
    """How late the tasks of one event loop were."""

    def __init__(self) -> None:
        self.histogram = Histogram(BOUNDS_S)
        self.max_s = 0.0
        """The worst so far."""
        self._next_line_at = float("-inf")
        self._unsaid = 0
        self._unsaid_max_s = 0.0

    def note(
        self, lag_s: float, now_s: float, recent_codes: Sequence[int] = (), worked_s: float = 0.0
    ) -> HeldUp | None:
        """Count one observation; return what to log if a line is due.

        `recent_codes` are the requests served last, the newest at the end: one of them most likely
        took long. `worked_s` is the processor time that the loop has had meanwhile.
        """
        lag_s = max(0.0, lag_s)
        self.histogram.note(lag_s)
        self.max_s = max(self.max_s, lag_s)
        if lag_s <= HELD_UP_S:
            return None
        if now_s < self._next_line_at:
            self._unsaid += 1
            self._unsaid_max_s = max(self._unsaid_max_s, lag_s)
            return None
        self._next_line_at = now_s + LINE_INTERVAL_S
        earlier = ""
        if self._unsaid:
            earlier = (
                f"; {self._unsaid} times more since the last such line,"
                f" for up to {self._unsaid_max_s:.2f} s"
            )
        self._unsaid, self._unsaid_max_s = 0, 0.0
        is_own = 2 * worked_s >= lag_s
        why = (
            "a step of the event loop took long"
            if is_own
            else "the machine was busy, or a call of the event loop waited for it"
        )
        line = (
            f"all connections had to wait for {lag_s:.2f} s, with {worked_s:.2f} s of processor"
            f" time: {why}; served last: {_named(recent_codes)}{earlier}"
        )
        return HeldUp(line, is_own)


def _named(codes: Sequence[int]) -> str:
    """Return codes as text, the newest first."""
    named = [f"{_NAMES.get(code, 'request')} ({code})" for code in reversed(codes)]
    return ", ".join(named) or "none"
