"""Who is next among connections that have requests left: hosts take turns, and their connections.

Pure. With turns by connection alone, a host would have as large a part of a busy server as it has
connections. So a host with a thousand connections that flood has the same part as one that has one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from rmq.remoting.channel import Channel

_FRAMES_OF_HOST: Final = 256
"""What a host may have handled in its turn, with one other host; the more hosts, the less."""
_FRAMES_OF_HOST_MIN: Final = 32


@final
class Turns:
    """Connections in the order of their turns."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, deque[Channel]] = OrderedDict()
        self._count = 0
        self._left = 0
        """Frames that the first host may still have handled in this turn; 0: it has not begun."""

    def __len__(self) -> int:
        return self._count

    @property
    def hosts(self) -> int:
        return len(self._hosts)

    def waiting_of(self, host: str) -> int:
        """Return how many connections of a host wait."""
        return len(self._hosts.get(host, ()))

    def append(self, channel: Channel) -> None:
        """Put a connection behind the others of its host."""
        waiting = self._hosts.get(channel.host)
        if waiting is None:
            self._hosts[channel.host] = deque((channel,))
        else:
            waiting.append(channel)
        self._count += 1

    def take(self) -> tuple[Channel, int]:
        """Return the next connection, and how many of its frames are to be handled now, as far as
        there are several hosts.
        """
        host, waiting = next(iter(self._hosts.items()))
        if self._left <= 0:
            self._left = max(_FRAMES_OF_HOST_MIN, 2 * _FRAMES_OF_HOST // len(self._hosts))
        share = max(1, self._left // len(waiting))
        channel = waiting.popleft()
        self._count -= 1
        if not waiting:
            del self._hosts[host]
            self._left = 0
        return channel, share

    def took(self, frames: int) -> None:
        """Count frames that were handled in a turn; when they are enough, the next host is next."""
        if self._left > 0:
            self._left -= frames
            if self._left <= 0:
                self._hosts.move_to_end(next(iter(self._hosts)))
