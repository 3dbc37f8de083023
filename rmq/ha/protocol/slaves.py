"""What a master knows of its slaves: who holds what, and who counts. Sans-IO.

A slave counts while it is *in sync*: it is connected, it had caught up with all there was not
longer than `lag_s_max` ago, lacks less than `lag_bytes_max`, and has the master's tables. A
heartbeat keeps a connection alive, but no slave in sync; one that takes no bytes is left out after
that time, whatever it says.

What is replicated is read from a vector: the `needed`-th largest of what distinct slaves in sync
hold, of those that an in-sync record names (`record_keeper`). Connections that may be of one slave
are counted as one: those of one store (`identity`), of which only the newest counts, since what an
older one said may no longer be so; and a stock one with one other of the same host, as a slave may
change its dialect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.ha.protocol.record_keeper import RecordKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING: Final = -1
"""The offset that is replicated when too few slaves are in sync."""
REMEMBERED_MAX: Final = 32
"""How many slaves that are gone are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncRules:
    """Which slaves count, and how many of them it takes."""

    needed: int = 1
    """So many slaves must hold a message before its send is answered."""
    minimum: int = 0
    """With fewer in sync, sends are refused."""
    lag_s_max: float = 15.0
    lag_bytes_max: int = 256 * 1024**2
    counts_flushed: bool = False
    """What a slave has not flushed does not count; nor do stock slaves, which do not say it."""

    def __post_init__(self) -> None:
        if self.needed < 1:
            raise ValueError(f"{self.needed} slaves are needed, not 1 or more")


class SlaveProgress:
    """One connection of a slave, as far as its master knows."""

    __slots__ = (
        "address",
        "appended",
        "broker_id",
        "caught_up_at",
        "connected_at",
        "flushed",
        "gone_at",
        "has_answered",
        "heard_at",
        "host",
        "identity",
        "in_sync",
        "is_native",
        "is_superseded",
        "lacks_tables",
        "mark_at",
        "mark_end",
        "member",
        "name",
        "why_gone",
    )

    def __init__(
        self,
        identity: str,
        name: str,
        address: str,
        *,
        broker_id: int | None,
        is_native: bool,
        host: str = "",
        member: str = "",
    ) -> None:
        self.identity = identity
        """Equal for connections that may be of the same slave."""
        self.member = member or identity
        """How in-sync records call it."""
        self.name = name
        """For people."""
        self.address = address
        """Where it listens for clients if it said so, else where its connection comes from."""
        self.broker_id = broker_id
        self.is_native = is_native
        self.host = host
        """Where its connection comes from."""
        self.has_answered = not is_native
        """It has taken up what it was told; before that it may still turn its master down."""
        self.lacks_tables = False
        """It says that topics, groups or offsets here are not there."""
        self.is_superseded = False
        """The same slave has connected anew: this connection counts no longer."""
        self.appended = NOTHING
        """What it holds, checked; `NOTHING` before it is known."""
        self.flushed = NOTHING
        self.in_sync = False
        self.caught_up_at = -math.inf
        """It last held all there was at this time."""
        self.mark_end = 0
        self.mark_at = 0.0
        """At `mark_at` the log ended at `mark_end`: who gets there was caught up then."""
        self.connected_at = 0.0
        self.heard_at = 0.0
        self.gone_at: float | None = None
        self.why_gone = ""

    def lag_bytes(self, end: int) -> int:
        """What it lacks; all of it before it is known what it holds."""
        return max(0, end - max(0, self.appended))

    def lag_s(self, end: int, now: float) -> float:
        """For how long it has not held all there is; infinite if it never did."""
        return 0.0 if self.appended >= end else max(0.0, now - self.caught_up_at)


class SlaveSet:
    """All slaves of one master."""

    def __init__(self, rules: InSyncRules, end: int) -> None:
        self.rules = rules
        self.keeper = RecordKeeper(0, (), is_known=True)
        """Knows which slaves answers may rest on; this one lets all of them count."""
        self.end = end
        """Where the log ends."""
        self.replicated = NOTHING
        """Up to where enough slaves in sync hold the log now; `NOTHING` if too few are in sync."""
        self.in_sync_count = 0
        """How many slaves in sync there are at least: connections that may be of one count once."""
        self.in_sync_most = 0
        """How many there are at most: any of them may be the one that holds what was confirmed."""
        self._connected: list[SlaveProgress] = []
        self._gone: dict[str, SlaveProgress] = {}

    def __iter__(self) -> Iterator[SlaveProgress]:
        """Those connected, in order of arrival."""
        return iter(self._connected)

    def __len__(self) -> int:
        return len(self._connected)

    @property
    def gone(self) -> list[SlaveProgress]:
        """Slaves that were here and are not now."""
        present = {slave.identity for slave in self._connected}
        return [slave for slave in self._gone.values() if slave.identity not in present]

    @property
    def needed(self) -> int:
        """How many slaves must hold a message, by the rules and by what is recorded."""
        return max(self.rules.needed, self.keeper.needed)

    @property
    def is_enough(self) -> bool:
        """Whether a message can be replicated as the rules want it."""
        return self.in_sync_count >= self.needed

    def join(self, slave: SlaveProgress, now: float) -> None:
        """A slave is connected; what it holds is told next."""
        slave.connected_at = slave.heard_at = now
        slave.mark_end, slave.mark_at = self.end, now
        if slave.is_native:
            self.supersede(slave.identity)
        self._connected.append(slave)

    def supersede(self, identity: str) -> None:
        """A native slave has called anew: nothing it said before counts any longer."""
        for slave in self._connected:
            if slave.identity == identity:
                slave.is_superseded = True
                slave.in_sync = False
        self._count()

    def leave(self, slave: SlaveProgress, now: float, why: str) -> None:
        """A slave is gone."""
        if slave not in self._connected:
            return
        self._connected.remove(slave)
        slave.in_sync = False
        slave.gone_at, slave.why_gone = now, why
        self._gone.pop(slave.identity, None)
        self._gone[slave.identity] = slave
        while len(self._gone) > REMEMBERED_MAX:
            del self._gone[next(iter(self._gone))]
        self._count()

    def forget_gone(self) -> None:
        """Forget slaves that are not connected."""
        self._gone.clear()

    def grew(self, end: int, now: float) -> None:
        """The log ends at `end` now."""
        before = self.end
        if end == before:
            return
        self.end = end
        for slave in self._connected:
            if slave.appended >= before:
                # It had everything until this moment.
                slave.caught_up_at = now
                slave.mark_end, slave.mark_at = end, now

    def shrank(self, end: int) -> None:
        """The log was cut; nobody may be connected then."""
        assert not self._connected, "a log is cut only when nobody reads it"
        self.end = end

    def holds(self, slave: SlaveProgress, appended: int, flushed: int, now: float) -> None:
        """A slave says what it holds; the caller has checked that it can be true."""
        slave.heard_at = now
        if appended > slave.appended:
            slave.appended = appended
        if flushed > slave.flushed:
            slave.flushed = flushed
        if slave.appended >= slave.mark_end:
            # The mark is in the past; who holds all there is now was caught up just now.
            slave.caught_up_at = now if slave.appended >= self.end else slave.mark_at
            slave.mark_end, slave.mark_at = self.end, now
        self.refresh(now)

    def refresh(self, now: float) -> list[SlaveProgress]:
        """Decide anew who is in sync; return those for whom it changed."""
        rules, end = self.rules, self.end
        changed: list[SlaveProgress] = []
        for slave in self._connected:
            in_sync = (
                slave.appended != NOTHING
                and not slave.is_superseded
                and not slave.lacks_tables
                and (
                    slave.appended >= end
                    or (
                        now - slave.caught_up_at <= rules.lag_s_max
                        and end - slave.appended < rules.lag_bytes_max
                    )
                )
            )
            if in_sync != slave.in_sync:
                slave.in_sync = in_sync
                changed.append(slave)
        self._count()
        return changed

    def recount(self) -> None:
        """What is recorded has changed."""
        self._count()

    def holding(self, member: str) -> int:
        """Return what a member in sync holds, as far as it counts; `NOTHING` if it is not."""
        counts_flushed = self.rules.counts_flushed
        return max(
            (
                slave.flushed if counts_flushed else slave.appended
                for slave in self._connected
                if slave.in_sync and slave.member == member
            ),
            default=NOTHING,
        )

    def _count(self) -> None:
        held = self._held()
        self.in_sync_count = len(held)
        needed = self.needed
        if len(held) < needed:
            self.replicated = NOTHING
        else:
            self.replicated = sorted(held, reverse=True)[needed - 1]

    def _held(self) -> list[int]:
        """Return what each of the slaves in sync holds that are certainly not the same."""
        counts_flushed = self.rules.counts_flushed
        self.in_sync_most = 0
        native: dict[str, list[int]] = {}
        stock: dict[str, int] = {}
        allows = self.keeper.allows
        for slave in self._connected:
            if slave.in_sync and allows(slave.member):
                offset = slave.flushed if counts_flushed else slave.appended
                if offset == NOTHING:
                    # Of a stock slave nobody knows what is on its disk.
                    continue
                self.in_sync_most += 1
                if slave.is_native:
                    native.setdefault(slave.host, []).append(offset)
                else:
                    stock[slave.host] = max(offset, stock.get(slave.host, NOTHING))
        for host, offset in stock.items():
            beside = native.setdefault(host, [NOTHING])
            # It may be any of them; certain is only that one has as much as it has.
            beside.sort()
            beside[-1] = max(beside[-1], offset)
        return [offset for offsets in native.values() for offset in offsets]
