"""Progress on standard error, if that is a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

_SHOW_S: Final = 0.5
_CLEAR: Final = "\r\x1b[K"


@final
class Progress:
    """One line that changes, with other lines in between."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._started = time.monotonic()
        self._line = ""

    async def run(self, count: Callable[[], int]) -> None:
        """Show a count and how fast it grows, until cancelled."""
        if not self.is_shown:
            return
        before, then = count(), time.monotonic()
        while True:
            await trio.sleep(_SHOW_S)
            now, done = time.monotonic(), count()
            rate = (done - before) / (now - then)
            before, then = done, now
            self._show(f"{done:,} {self.what}, {rate:,.0f} per second")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if sys.stderr is None:
            return
        if self._line:
            sys.stderr.write(_CLEAR)
        sys.stderr.write(f"{line}\n{self._line}")
        sys.stderr.flush()

    def end(self) -> None:
        """Erase the line that changes."""
        self._show("")

    def rate_text(self, count: int) -> str:
        """Return duration and average rate, as part of a sentence."""
        took_s = max(time.monotonic() - self._started, 1e-6)
        return f" in {took_s:.1f} s, {count / took_s:,.0f} per second"

    def _show(self, line: str) -> None:
        if self.is_shown and line != self._line:
            self._line = line
            sys.stderr.write(f"{_CLEAR}{line}")
            sys.stderr.flush()
