"""Those who speak to the replication port and are no slaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.ha.protocol import wire
from rmq.ha.protocol.wire import PREAMBLE, REPORT

if TYPE_CHECKING:
    import random

    from tests.ha.simulation.network import Connection


class Forger:
    """A machine that is no slave and says what it likes to the replication port."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.host = name
        self.incarnation = 0
        self.paused_until = 0.0
        self.is_up = True
        self.takes_bytes = True

    def bytes_arrived(self, connection: Connection, data: bytes) -> None:
        """Whatever a master says to it, it does not care."""

    def has_closed(self, connection: Connection) -> None:
        """Nor when it is turned away."""

    def has_room(self, connection: Connection) -> None:
        """Nor for more."""


def draw_forgery(chance: random.Random, end: int, epoch: int) -> tuple[bytes, bytes]:
    """Return what one says to a master whose log ends there: at first, and a while later."""
    first: bytes
    then = b""
    kind = chance.randrange(7)
    if kind == 0:
        first = REPORT.pack(end + chance.choice((1, 1000, 10**12)))
    elif kind == 1:
        first = REPORT.pack(-chance.randrange(1, 10**9))
    elif kind == 2:
        first = REPORT.pack(end)
        then = REPORT.pack(end + 10**6)
    elif kind == 3:
        first = PREAMBLE + chance.randbytes(chance.randrange(100))
    elif kind == 4:
        first = chance.randbytes(chance.randrange(1, 60))
        if first[0] < 0x80:
            # A first report that could be true is a stock slave's: nobody can tell.
            first = b"\x7f" + first
    elif kind == 5:
        header = wire.UpHeader(wire.UpKind.ACK, 0, 0, 0, epoch, end, end, 0)
        first = PREAMBLE + wire.pack_up(header)
    else:
        header = wire.UpHeader(wire.UpKind.HELLO, 0, 0, 2**31, 1, 0, 0, 0)
        first = PREAMBLE + wire.pack_up(header)
    return first, then
