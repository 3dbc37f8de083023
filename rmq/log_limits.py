"""Limits for log lines that peers can cause. Pure: no clock, no output.

A peer that sends a bad frame causes a line, and it can send a thousand of them in a second. So
lines have a kind (bad frame, refused request ...) and a source (the host of the peer), and both
have a limit within a window of time:

    lines = LimitedLog(logger)
    lines.log(logging.WARNING, "bad frame", host_of(peer), now, "closing connection of %s", peer)
    ...
    lines.summarize(now)    # now and then: says what was suppressed in windows that have ended

The line that follows on suppressed ones says how many they were, and so does `summarize`. What is
remembered is bounded: sources that were not heard of for long are forgotten, and the lines of a
forgotten one are still counted for its kind.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from types import TracebackType

    ExcInfo = (
        bool
        | BaseException
        | tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None]
        | None
    )

WINDOW_S: Final = 60.0
LINES_PER_SOURCE: Final = 20
"""Most lines of one kind about one source within a window."""
LINES_PER_KIND: Final = 200
"""Most lines of one kind within a window, whatever their sources."""
SOURCES_MAX: Final = 1024
"""How many pairs of kind and source are remembered, the most recent ones."""


def host_of(peer: str) -> str:
    """Return the host of `host:port`, which is what lines about peers are counted by."""
    host, separator, port = peer.rpartition(":")
    return host if separator and port.isdigit() else peer


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Lines that were not logged."""

    kind: str
    source: str | None
    """None: of several sources."""
    lines: int


@final
class LineLimits:
    """Decides which lines are logged, and counts the others."""

    def __init__(
        self,
        *,
        lines_per_source: int = LINES_PER_SOURCE,
        lines_per_kind: int = LINES_PER_KIND,
        window_s: float = WINDOW_S,
        sources_max: int = SOURCES_MAX,
    ) -> None:
        self._lines_per_source = lines_per_source
        self._lines_per_kind = lines_per_kind
        self._window_s = window_s
        self._sources_max = sources_max
        self._sources: OrderedDict[tuple[str, str], _Window] = OrderedDict()
        self._kinds: dict[str, _Window] = {}

    def __len__(self) -> int:
        """Return how many pairs of kind and source are remembered."""
        return len(self._sources)

    def take(self, kind: str, source: str, now: float) -> int | None:
        """Ask to log a line; None: a limit is reached, the line is counted and not logged.

        Else return how many lines like this were suppressed since the last one that was logged.
        """
        of_kind = self._kinds.get(kind)
        if of_kind is None:
            of_kind = self._kinds[kind] = _Window(now)
        of_source = self._of_source(kind, source, now)
        of_kind.move_to(now, self._window_s)
        of_source.move_to(now, self._window_s)
        if of_source.lines >= self._lines_per_source or of_kind.lines >= self._lines_per_kind:
            of_source.suppressed += 1
            return None
        of_kind.lines += 1
        of_source.lines += 1
        suppressed, of_source.suppressed = of_source.suppressed, 0
        return suppressed

    def take_suppressed(self, now: float) -> list[Suppressed]:
        """Return, once, what was suppressed in windows that have ended."""
        found: list[Suppressed] = []
        for (kind, source), window in self._sources.items():
            if window.suppressed and now - window.since >= self._window_s:
                found.append(Suppressed(kind, source, window.suppressed))
                window.suppressed = 0
        for kind, window in self._kinds.items():
            if window.suppressed and now - window.since >= self._window_s:
                found.append(Suppressed(kind, None, window.suppressed))
                window.suppressed = 0
        return found

    def _of_source(self, kind: str, source: str, now: float) -> _Window:
        key = (kind, source)
        window = self._sources.get(key)
        if window is not None:
            self._sources.move_to_end(key)
            return window
        self._sources[key] = window = _Window(now)
        if len(self._sources) > self._sources_max:
            (kind, _), forgotten = self._sources.popitem(last=False)
            self._kinds[kind].suppressed += forgotten.suppressed
        return window


@final
class LimitedLog:
    """A logger whose lines are limited by kind and source."""

    def __init__(self, logger: logging.Logger, limits: LineLimits | None = None) -> None:
        self._logger = logger
        self.limits = LineLimits() if limits is None else limits

    def log(
        self,
        level: int,
        kind: str,
        source: str,
        now: float,
        message: str,
        *args: object,
        exc_info: ExcInfo = None,
    ) -> None:
        """Log a line unless a limit is reached."""
        if not self._logger.isEnabledFor(level):
            return
        suppressed = self.limits.take(kind, source, now)
        if suppressed is None:
            return
        if suppressed:
            message += " (%d similar lines were suppressed)"
            args = (*args, suppressed)
        self._logger.log(level, message, *args, exc_info=exc_info)

    def warning(self, kind: str, source: str, now: float, message: str, *args: object) -> None:
        """Log a warning unless a limit is reached."""
        self.log(logging.WARNING, kind, source, now, message, *args)

    def summarize(self, now: float) -> None:
        """Log how many lines were suppressed in windows that have ended."""
        for each in self.limits.take_suppressed(now):
            about = "several hosts" if each.source is None else each.source
            self._logger.warning(
                "suppressed %d lines about %s, of the kind: %s", each.lines, about, each.kind
            )


@final
class _Window:
    """Lines in the current window."""

    __slots__ = ("lines", "since", "suppressed")

    def __init__(self, since: float) -> None:
        self.since = since
        self.lines = 0
        self.suppressed = 0

    def move_to(self, now: float, window_s: float) -> None:
        """Begin another window if this one has ended."""
        if now - self.since >= window_s:
            self.since, self.lines = now, 0
