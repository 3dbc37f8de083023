"""Connections between virtual machines: ordered bytes, delayed, cut anywhere, or lost for good.

Each direction is a pipe with a window. Partitions are one-way and by machine: what is on its way
waits and arrives when they heal, as TCP sends it again; but a close that falls into one is never
heard of, which leaves the other end half open.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from rmq.ha.protocol.master_link import MasterLink
    from tests.ha.simulation.clock import Clock

WINDOW_BYTES: Final = 1200


class Machine(Protocol):
    """An end of connections."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def paused_until(self) -> float: ...
    @property
    def is_up(self) -> bool:
        """Whether its system answers at all."""

    @property
    def takes_bytes(self) -> bool:
        """Whether it reads what arrives; otherwise the window fills."""

    def bytes_arrived(self, connection: Connection, data: bytes) -> None: ...
    def has_closed(self, connection: Connection) -> None: ...
    def has_room(self, connection: Connection) -> None: ...


class Pipe:
    """One direction of a connection."""

    __slots__ = ("in_flight", "last_at", "queue", "source", "stalled", "target")

    def __init__(self, source: Machine, target: Machine) -> None:
        self.source = source
        self.target = target
        self.queue: deque[bytes] = deque()
        self.in_flight = 0
        self.last_at = 0.0
        self.stalled = 0
        """So many deliveries wait for a partition to heal."""

    @property
    def is_full(self) -> bool:
        return self.in_flight >= WINDOW_BYTES


class Connection:
    """Two pipes; `caller` dialled `callee`."""

    __slots__ = (
        "callee",
        "caller",
        "down",
        "is_broken",
        "is_fresh",
        "is_of_empty",
        "ledger",
        "master_link",
        "number",
        "offered",
        "open_at",
        "peak",
        "up",
    )

    def __init__(self, number: int, caller: Machine, callee: Machine) -> None:
        self.number = number
        self.caller = caller
        self.callee = callee
        self.up = Pipe(caller, callee)
        self.down = Pipe(callee, caller)
        self.open_at: dict[str, bool] = {"caller": True, "callee": True}
        self.is_broken = False
        """Nothing gets through any more, though an end may not know."""
        self.master_link: MasterLink | None = None
        """What the callee made of it."""
        self.ledger: tuple[int, bytearray] = (0, bytearray())
        """The callee's log as it was when it accepted: where it begins, and its bytes."""
        self.offered: tuple[tuple[object, ...], bool] | None = None
        """What the callee has sent all of, so that it has nothing to send now."""
        self.is_fresh = True
        """The callee has not said yes to its caller yet."""
        self.is_of_empty = False
        """The caller's log was empty when it dialled."""
        self.peak = 0
        """The most the caller's log has ever held during this connection."""

    def side_of(self, machine: Machine) -> str:
        return "caller" if machine is self.caller else "callee"

    def is_open(self, machine: Machine) -> bool:
        return self.open_at[self.side_of(machine)]

    def out_of(self, machine: Machine) -> Pipe:
        return self.up if machine is self.caller else self.down


class Network:
    """All connections."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.delay_s = 0.005
        self.blocked: dict[tuple[str, str], int] = {}
        """Machines between which nothing gets through, in this direction, and how many times."""
        self.connections: dict[int, Connection] = {}
        self._number = 0

    def connect(self, caller: Machine, callee: Machine) -> Connection:
        self._number += 1
        connection = Connection(self._number, caller, callee)
        self.connections[connection.number] = connection
        return connection

    def is_blocked(self, source: Machine, target: Machine) -> bool:
        return (source.name, target.name) in self.blocked

    def draw_delay(self) -> float:
        return self.delay_s * (0.5 + self.clock.chance.random())

    def send(self, connection: Connection, source: Machine, data: bytes) -> None:
        """Put bytes on the way; nobody hears of it if the other end is gone."""
        is_caller = source is connection.caller
        if not data or not connection.open_at["caller" if is_caller else "callee"]:
            return
        pipe = connection.up if is_caller else connection.down
        if connection.is_broken:
            pipe.in_flight += len(data)
            return
        chance = self.clock.chance
        if len(data) > 1 and chance.random() < 0.15:
            where = chance.randrange(1, len(data))
            self._put(connection, pipe, data[:where])
            data = data[where:]
        self._put(connection, pipe, data)

    def _put(self, connection: Connection, pipe: Pipe, piece: bytes) -> None:
        clock = self.clock
        pipe.queue.append(piece)
        pipe.in_flight += len(piece)
        # In order: nothing arrives before what was sent earlier.
        arrives_at = clock.now + self.delay_s * (0.5 + clock.chance.random())
        if arrives_at > pipe.last_at:
            pipe.last_at = arrives_at
        clock.at(pipe.last_at, self._deliver, (connection, pipe), pipe.target)

    def _deliver(self, connection: Connection, pipe: Pipe) -> None:
        if not pipe.queue:
            return
        target = pipe.target
        if not target.takes_bytes or (self.blocked and self.is_blocked(pipe.source, target)):
            pipe.stalled += 1
            return
        data = pipe.queue.popleft()
        was_full = pipe.is_full
        pipe.in_flight -= len(data)
        if connection.open_at["caller" if target is connection.caller else "callee"]:
            target.bytes_arrived(connection, data)
        elif target.is_up and connection.is_open(pipe.source):
            # It knows of no such connection, and says so.
            back = connection.out_of(pipe.target)
            self.clock.at(
                self.clock.now + self.draw_delay(),
                self._tell_closed,
                (connection, back),
                pipe.source,
            )
        if was_full and not pipe.is_full and connection.is_open(pipe.source):
            self.clock.at(self.clock.now, pipe.source.has_room, (connection,), pipe.source)

    def resume(self) -> None:
        """Deliver what waited, where it gets through now."""
        for connection in list(self.connections.values()):
            for pipe in (connection.up, connection.down):
                stalled, pipe.stalled = pipe.stalled, 0
                for _ in range(stalled):
                    self.clock.at(
                        self.clock.now + self.draw_delay(),
                        self._deliver,
                        (connection, pipe),
                        pipe.target,
                    )

    def close(self, connection: Connection, by: Machine, *, is_told: bool = True) -> None:
        """One end closes; the other hears of it behind what is on its way, if at all."""
        side = connection.side_of(by)
        if not connection.open_at[side]:
            return
        connection.open_at[side] = False
        pipe = connection.out_of(by)
        if is_told:
            pipe.last_at = max(pipe.last_at, self.clock.now + self.draw_delay())
            self.clock.at(pipe.last_at, self._tell_closed, (connection, pipe), pipe.target)
        self._forget_if_over(connection)

    def cut(self, connection: Connection, *, told: tuple[str, ...]) -> None:
        """Break a connection: of what is on its way some arrives, the last piece in part."""
        chance = self.clock.chance
        connection.is_broken = True
        for pipe in (connection.up, connection.down):
            kept = chance.randrange(len(pipe.queue) + 1)
            while len(pipe.queue) > kept:
                lost = pipe.queue.pop()
                if len(pipe.queue) == kept and len(lost) > 1 and chance.random() < 0.7:
                    pipe.queue.append(lost[: chance.randrange(1, len(lost))])
                    break
        for side, pipe in (("callee", connection.up), ("caller", connection.down)):
            if side in told:
                pipe.last_at = max(pipe.last_at, self.clock.now + self.draw_delay())
                self.clock.at(pipe.last_at, self._tell_closed, (connection, pipe), pipe.target)

    def _tell_closed(self, connection: Connection, pipe: Pipe) -> None:
        side = connection.side_of(pipe.target)
        if not connection.open_at[side] or self.is_blocked(pipe.source, pipe.target):
            return
        connection.open_at[side] = False
        pipe.target.has_closed(connection)
        self._forget_if_over(connection)

    def _forget_if_over(self, connection: Connection) -> None:
        if not any(connection.open_at.values()):
            self.connections.pop(connection.number, None)
