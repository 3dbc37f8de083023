"""Looking whether a peer has sent something, before sleeping until it has.

In sync mode every send waits until a slave was woken, and its master after it. With one send at a
time that is most of what it takes: 0.54 ms, and 0.26 ms if both ends look for a moment. With many
under way nobody sleeps for long, and looking would only take time from them.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, final

import trio

from rmq.remoting.busy_wait import BusyWait, give_way

if TYPE_CHECKING:
    import socket


@final
class Lookout:
    """Looks at one socket. Other tasks run between two looks."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._busy_wait = BusyWait()

    async def look(self) -> bool:
        """Look for a moment, if that is worth it; tell whether there is something to read.

        Raises `trio.ClosedResourceError` if the socket is closed meanwhile.
        """
        busy_wait = self._busy_wait
        if not busy_wait.is_worth_it():
            return False
        until = time.perf_counter() + busy_wait.limit_s
        while True:
            await trio.lowlevel.checkpoint()
            if self._socket.fileno() < 0:
                raise trio.ClosedResourceError("another task closed the connection")
            if self._poll.poll(0):
                busy_wait.found()
                return True
            if time.perf_counter() >= until:
                busy_wait.missed()
                return False
            give_way()
