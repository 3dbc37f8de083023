"""How many lines are logged per host: every host that can reach the port can cause log lines."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

LINES_MAX: Final = 20
"""Most lines about one host within `WINDOW_S`."""
WINDOW_S: Final = 60.0
HOSTS_MAX: Final = 1024
"""How many hosts are remembered, the most recent ones."""


class LineLimiter:
    """Limits log lines per host and time."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._hosts)

    def take(self, host: str, now: float) -> int | None:
        """Ask to log a line about `host`; None: the limit is reached.

        Else return how many lines were suppressed since the last one that was logged.
        """
        window = self._hosts.get(host)
        if window is None:
            self._hosts[host] = window = _Window(now)
            if len(self._hosts) > HOSTS_MAX:
                self._hosts.popitem(last=False)
        else:
            self._hosts.move_to_end(host)
        if now - window.since >= WINDOW_S:
            window.since, window.lines = now, 0
        if window.lines >= LINES_MAX:
            window.left_out += 1
            return None
        window.lines += 1
        left_out, window.left_out = window.left_out, 0
        return left_out


class _Window:
    """Lines about one host in the current window."""

    __slots__ = ("left_out", "lines", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.lines = 0
        self.left_out = 0
