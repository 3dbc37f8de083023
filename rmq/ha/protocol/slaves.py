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


class Replica:
    """One connection of a slave, as far as its master knows.

    `flushed <= appended <= ` the end of what its link has sent: neither ever goes back on one
    connection, and a report of more is refused before it gets here (`MasterLink`).
    """

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
        """What of that is on its disk; `NOTHING` if it does not say."""
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


class ReplicaSet:
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
        self._connected: list[Replica] = []
        self._gone: dict[str, Replica] = {}

    def __iter__(self) -> Iterator[Replica]:
        """Those connected, in order of arrival."""
        return iter(self._connected)

    def __len__(self) -> int:
        return len(self._connected)

    @property
    def gone(self) -> list[Replica]:
        """Slaves that were here and are not now."""
        present = {replica.identity for replica in self._connected}
        return [replica for replica in self._gone.values() if replica.identity not in present]

    @property
    def needed(self) -> int:
        """How many slaves must hold a message, by the rules and by what is recorded."""
        return max(self.rules.needed, self.keeper.needed)

    @property
    def is_enough(self) -> bool:
        """Whether a message can be replicated as the rules want it."""
        return self.in_sync_count >= self.needed

    def join(self, replica: Replica, now: float) -> None:
        """A slave is connected; what it holds is told next."""
        replica.connected_at = replica.heard_at = now
        replica.mark_end, replica.mark_at = self.end, now
        if replica.is_native:
            self.supersede(replica.identity)
        self._connected.append(replica)

    def supersede(self, identity: str) -> None:
        """A native slave has called anew: nothing it said before counts any longer."""
        for replica in self._connected:
            if replica.identity == identity:
                replica.is_superseded = True
                replica.in_sync = False
        self._count()

    def leave(self, replica: Replica, now: float, why: str) -> None:
        """A slave is gone."""
        if replica not in self._connected:
            return
        self._connected.remove(replica)
        replica.in_sync = False
        replica.gone_at, replica.why_gone = now, why
        self._gone.pop(replica.identity, None)
        self._gone[replica.identity] = replica
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
        for replica in self._connected:
            if replica.appended >= before:
                # It had everything until this moment.
                replica.caught_up_at = now
                replica.mark_end, replica.mark_at = end, now

    def shrank(self, end: int) -> None:
        """The log was cut; nobody may be connected then."""
        assert not self._connected, "a log is cut only when nobody reads it"
        self.end = end

    def holds(self, replica: Replica, appended: int, flushed: int, now: float) -> None:
        """A slave says what it holds; the caller has checked that it can be true."""
        replica.heard_at = now
        if appended > replica.appended:
            replica.appended = appended
        if flushed > replica.flushed:
            replica.flushed = flushed
        assert replica.flushed <= replica.appended, (
            f"flushed {replica.flushed} <= appended {replica.appended} of slave {replica.name}"
        )
        if replica.appended >= replica.mark_end:
            # The mark is in the past; who holds all there is now was caught up just now.
            replica.caught_up_at = now if replica.appended >= self.end else replica.mark_at
            replica.mark_end, replica.mark_at = self.end, now
        self.refresh(now)

    def refresh(self, now: float) -> list[Replica]:
        """Decide anew who is in sync; return those for whom it changed."""
        rules, end = self.rules, self.end
        changed: list[Replica] = []
        for replica in self._connected:
            in_sync = (
                replica.appended != NOTHING
                and not replica.is_superseded
                and not replica.lacks_tables
                and (
                    replica.appended >= end
                    or (
                        now - replica.caught_up_at <= rules.lag_s_max
                        and end - replica.appended < rules.lag_bytes_max
                    )
                )
            )
            if in_sync != replica.in_sync:
                replica.in_sync = in_sync
                changed.append(replica)
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
                replica.flushed if counts_flushed else replica.appended
                for replica in self._connected
                if replica.in_sync and replica.member == member
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
        for replica in self._connected:
            if replica.in_sync and allows(replica.member):
                offset = replica.flushed if counts_flushed else replica.appended
                if offset == NOTHING:
                    # Of a stock slave nobody knows what is on its disk.
                    continue
                self.in_sync_most += 1
                if replica.is_native:
                    native.setdefault(replica.host, []).append(offset)
                else:
                    stock[replica.host] = max(offset, stock.get(replica.host, NOTHING))
        for host, offset in stock.items():
            beside = native.setdefault(host, [NOTHING])
            # It may be any of them; certain is only that one has as much as it has.
            beside.sort()
            beside[-1] = max(beside[-1], offset)
        return [offset for offsets in native.values() for offset in offsets]
