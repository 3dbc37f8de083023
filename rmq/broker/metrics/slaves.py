"""Which slaves get series of their own, and under which labels. Sans-IO.

A slave gives its own name and address, and any host that reaches the replication port may give any.
Every new pair of labels is a new set of series that a Prometheus keeps for weeks, so they are
limited: in the number of slaves shown at a time, and in the rate of slaves never seen before.
Slaves that come back cost nothing. Those left out are counted, and are part of all sums.

Labels carry no port that changes with each connection: a stock slave, known by its connection only,
is shown by its host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.remoting.bodies import HaSlave

SHOWN_MAX: Final = 32
NEW_MAX: Final = 32
"""How many slaves never seen before are shown at once."""
NEW_PAUSE_S: Final = 600.0
"""After those, one more within this time."""
REMEMBERED_MAX: Final = 128
LABEL_CHARS_MAX: Final = 64
GONE_MS_MAX: Final = 24 * 3600 * 1000
"""How long a slave that is gone is shown."""


@dataclass(frozen=True, slots=True)
class ShownSlave:
    """A slave and its labels."""

    name: str
    address: str
    slave: HaSlave


@final
class SlaveChoice:
    """Chooses the slaves to show, and remembers which were."""

    def __init__(self, now: float) -> None:
        self._known: dict[tuple[str, str], int] = {}
        """The slaves that were shown, in the order they were last shown, each with its number."""
        self._shown_ever = 0
        self._new_left: float = NEW_MAX
        self._filled_at = now

    def choose(self, slaves: Iterable[HaSlave], now: float) -> list[ShownSlave]:
        """Return those to show: each pair of labels once, and the ones that matter first."""
        self._fill(now)
        shown: list[ShownSlave] = []
        for candidate in sorted(_candidates(slaves), key=self._rank):
            if len(shown) < SHOWN_MAX and self._admit((candidate.name, candidate.address)):
                shown.append(candidate)
        while len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        return shown

    def _rank(self, candidate: ShownSlave) -> tuple[bool, bool, int]:
        """In sync before connected before gone; then the longest connected, so that many new ones
        hide none of them.
        """
        slave = candidate.slave
        number = self._known.get((candidate.name, candidate.address), self._shown_ever)
        return not slave.in_sync, not slave.connected, number

    def _fill(self, now: float) -> None:
        self._new_left = min(NEW_MAX, self._new_left + (now - self._filled_at) / NEW_PAUSE_S)
        self._filled_at = now

    def _admit(self, labels: tuple[str, str]) -> bool:
        number = self._known.pop(labels, None)
        if number is None:
            if self._new_left < 1:
                return False
            self._new_left -= 1
            number = self._shown_ever
            self._shown_ever += 1
        self._known[labels] = number
        return True


def _candidates(slaves: Iterable[HaSlave]) -> list[ShownSlave]:
    """Return one for each pair of labels, without those that are long gone or back elsewhere."""
    best: dict[tuple[str, str], ShownSlave] = {}
    for slave in slaves:
        if not slave.connected and slave.heard_ms_ago > GONE_MS_MAX:
            continue
        labels = _labels(slave)
        other = best.get(labels)
        if other is None or _standing(slave) > _standing(other.slave):
            best[labels] = ShownSlave(*labels, slave)
    present = {shown.name for shown in best.values() if shown.slave.connected}
    return [shown for shown in best.values() if shown.slave.connected or shown.name not in present]


def _standing(slave: HaSlave) -> tuple[bool, bool, int]:
    return slave.in_sync, slave.connected, slave.appended


def _labels(slave: HaSlave) -> tuple[str, str]:
    if slave.native:
        return _plain(slave.name), _plain(slave.address)
    host = slave.address.rpartition(":")[0] or slave.address
    return _plain(host), _plain(host)


def _plain(text: str) -> str:
    """Cut a text of a peer to what can stand in a label, and on a screen."""
    cut = text[:LABEL_CHARS_MAX]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
