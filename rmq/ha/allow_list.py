"""Which addresses may replicate, and how many lines are logged per host.

`is_allowed` checks an address against networks. `LineLimiter` keeps the log readable: every host
that can reach the port can cause log lines, so their number per host is limited.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

LINES_MAX: Final = 20
"""Most lines about one host within `WINDOW_S`."""
WINDOW_S: Final = 60.0
HOSTS_MAX: Final = 1024
"""How many hosts are remembered, the most recent ones."""


def plain_host(host: str) -> str:
    """Return an address as people write it: IPv4 also where it came in through an IPv6 socket."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def is_allowed(networks: Sequence[Network], host: str) -> bool:
    """Return whether a peer may connect; without networks every peer may."""
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(plain_host(host))
    except ValueError:
        return False
    return any(address in network for network in networks)


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
