"""A network of its own for a master and a slave, and a wire between them that can be made bad.

    network = build_network()      # the calling process has a network of its own from now on
    network.wire.set(delay_s=0.025)
    network.wire.set(is_cut=True)

Each broker lives in a network namespace. To the outside (nameserver, clients) it has a sound link;
the two reach each other only over the wire: packets are carried by a process that delays, loses or
drops them, each direction by its own rules. Nothing of it is seen outside, and it ends with the
process. It takes the right to make namespaces, `/dev/net/tun` and the tool `ip`; the schedulers of
the kernel (netem) are not needed.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.ha.processes.cluster import forks
from tests.ha.processes.surroundings import (
    CLONE_NEWNET,
    NotAllowedError,
    Surroundings,
    enter_network,
    unshare,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

OUTSIDE: Final = "10.9.0.254"
HOSTS: Final = ("10.9.0.1", "10.9.0.2")
MTU: Final = 1500
_WIRE: Final = "wire"
_TUNSETIFF: Final = 0x4004_54CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_PACKETS_MAX: Final = 256
"""How many packets of one side are taken before the other gets its turn."""
_QUEUE_BYTES_MAX: Final = 64 * 1024**2
_READY_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What becomes of packets in one direction."""

    delay_s: float = 0.0
    loss: float = 0.0
    """The share of packets that get lost."""
    is_cut: bool = False


class Wire:
    """The connection between the two; told from outside what to do."""

    def __init__(self, control: Connection) -> None:
        self._control = control

    def set(
        self,
        *,
        delay_s: float = 0.0,
        loss: float = 0.0,
        is_cut: bool = False,
        only_from: int | None = None,
    ) -> None:
        """Apply rules in both directions, or only to what one of the two sends.

        The other direction is sound then. Returns when it is so.
        """
        rules = Rules(delay_s=delay_s, loss=loss, is_cut=is_cut)
        both = [rules if only_from in (None, side) else Rules() for side in range(2)]
        self._control.send(both)
        self._control.recv()

    def heal(self) -> None:
        self.set()


@dataclass(frozen=True, slots=True)
class Network:
    """Where brokers live."""

    pids: tuple[int, int]
    wire: Wire

    def host(self, side: int) -> str:
        return HOSTS[side]

    def surroundings(self, side: int) -> Surroundings:
        return Surroundings(network_of=self.pids[side])


def build_network(mtu: int = MTU) -> Network:
    """Give the calling process a network of its own, with a wire in it; once per process.

    Raises NotAllowedError where that cannot be. No process may have been started before.
    """
    if shutil.which("ip") is None:
        raise NotAllowedError("there is no tool `ip`")
    unshare(CLONE_NEWNET)
    _ip("link set lo up")
    pids = tuple(_hold(side) for side in range(2))
    here, there = forks.Pipe()
    process = forks.Process(target=_carry, args=(there, pids), daemon=True)
    process.start()
    there.close()
    if not here.poll(_READY_S) or (failure := here.recv()) is not None:
        raise NotAllowedError(f"no wire: {failure}")
    for side, pid in enumerate(pids):
        inside = partial(_ip, pid=pid)
        _ip(f"link add side{side} type veth peer name out netns {pid}")
        _ip(f"addr add {OUTSIDE} peer {HOSTS[side]} dev side{side}")
        _ip(f"link set side{side} up")
        inside("link set lo up")
        inside(f"addr add {HOSTS[side]} peer {OUTSIDE} dev out")
        inside("link set out up")
        inside(f"addr add {HOSTS[side]} peer {HOSTS[1 - side]} dev {_WIRE}")
        inside(f"link set {_WIRE} mtu {mtu} txqueuelen 20000 up")
    return Network((pids[0], pids[1]), Wire(here))


def _ip(arguments: str, pid: int | None = None) -> None:
    try:
        done = subprocess.run(
            ["ip", *arguments.split()],
            preexec_fn=None if pid is None else partial(enter_network, pid),
            capture_output=True,
            check=False,
            text=True,
        )
    except subprocess.SubprocessError as exc:
        raise NotAllowedError(f"ip {arguments}: {exc}") from exc
    if done.returncode:
        raise NotAllowedError(f"ip {arguments}: {done.stderr.strip()}")


def _hold(side: int) -> int:
    """Start a process that has a network of its own; return its id."""
    here, there = forks.Pipe()
    process = forks.Process(target=_be_held, args=(there,), name=f"side {side}", daemon=True)
    process.start()
    there.close()
    if not here.poll(_READY_S) or (failure := here.recv()) is not None:
        raise NotAllowedError(f"no network for side {side}: {failure}")
    assert process.pid is not None
    return process.pid


def _be_held(control: Connection) -> None:
    try:
        Surroundings().take_on()
        unshare(CLONE_NEWNET)
    except NotAllowedError as exc:
        control.send(str(exc))
        return
    control.send(None)
    signal.pause()


def _carry(control: Connection, pids: tuple[int, int]) -> None:
    """Be the wire: carry packets until the other end of `control` is gone."""
    try:
        Surroundings().take_on()
        ends = []
        for pid in pids:
            enter_network(pid)
            ends.append(_open_tun())
    except (NotAllowedError, OSError) as exc:
        control.send(str(exc))
        return
    control.send(None)
    directions = [_Direction(ends[side], ends[1 - side]) for side in range(2)]
    while True:
        due = [direction.due for direction in directions if direction.due is not None]
        timeout_s = max(0.0, min(due) - time.monotonic()) if due else None
        readable = select.select([*ends, control.fileno()], [], [], timeout_s)[0]
        if control.fileno() in readable:
            try:
                for direction, rules in zip(directions, control.recv(), strict=True):
                    direction.rules = rules
            except EOFError:
                return
            control.send(None)
        for direction in directions:
            if direction.source in readable:
                direction.take()
            direction.deliver()


def _open_tun() -> int:
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", _WIRE.encode(), _IFF_TUN | _IFF_NO_PI))
    return end


class _Direction:
    """Packets from one side to the other."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.rules = Rules()
        self._target = target
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queue_bytes = 0
        self._rng = random.Random(498)

    @property
    def due(self) -> float | None:
        """When the next packet is to be delivered."""
        return self._queue[0][0] if self._queue else None

    def take(self) -> None:
        """Take what the side has sent, and do with it what the rules say."""
        rules = self.rules
        due = time.monotonic() + rules.delay_s
        for _ in range(_PACKETS_MAX):
            try:
                packet = os.read(self.source, 65_536)
            except BlockingIOError:
                return
            if rules.is_cut or (rules.loss and self._rng.random() < rules.loss):
                continue
            if self._queue_bytes < _QUEUE_BYTES_MAX:
                self._queue.append((due, packet))
                self._queue_bytes += len(packet)

    def deliver(self) -> None:
        """Hand over what has been on its way long enough."""
        now, queue = time.monotonic(), self._queue
        while queue and queue[0][0] <= now:
            packet = queue.popleft()[1]
            self._queue_bytes -= len(packet)
            if not self.rules.is_cut:
                # Lost if nobody is up there yet.
                with suppress(OSError):
                    os.write(self._target, packet)
