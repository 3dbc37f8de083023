"""A master's view of its slaves: what each holds, which are in sync, what is replicated. Pure.

A slave counts while it is *in sync*: it is connected, had caught up with the end of the log at most
`lag_s_max` ago, lacks less than `lag_bytes_max`, and has the master's tables. A heartbeat keeps a
connection alive, but not a slave in sync: one that takes no bytes drops out after `lag_s_max`.

The replicated offset is the `needed`-th largest of the offsets that distinct slaves in sync hold,
counting only members of the in-sync record (`record_keeper`). Connections that may belong to one
slave count once: of several with one store id only the newest counts, because an older report may
no longer be true; and a stock connection counts as one with another of the same host, because a
slave may change its dialect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.ha.protocol.record_keeper import RecordKeeper
from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING: Final = PhysicalOffset(-1)
"""The replicated offset while too few slaves are in sync."""
REMEMBERED_MAX: Final = 32
"""How many disconnected slaves are kept for the status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncRules:
    """Which slaves count, and how many of them it takes."""

    needed: int = 1
    """This many slaves must hold a message before its send is answered."""
    minimum: int = 0
    """With fewer in sync, sends are refused."""
    lag_s_max: float = 15.0
    lag_bytes_max: int = 256 * 1024**2
    counts_flushed: bool = False
    """Only flushed bytes count. Stock slaves do not count then: they do not report flushes."""

    def __post_init__(self) -> None:
        if self.needed < 1:
            raise ValueError(f"{self.needed} slaves are needed, not 1 or more")


class SlaveProgress:
    """One connection of a slave, and how much of the log the slave holds.

    `flushed <= appended <=` the end of what its link has sent, and neither goes back on one
    connection: a report of more is refused before it gets here (`MasterLink`). A slave that reaches
    `mark_end` had caught up at `mark_at`, when the log ended there; only then is a new mark set.
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
        """Its name in in-sync records."""
        self.name = name
        """Its name in logs and status: brokerName:brokerId."""
        self.address = address
        """Its address for clients if it sent one, else that of its connection."""
        self.broker_id = broker_id
        self.is_native = is_native
        self.host = host
        """The host of its connection."""
        self.has_answered = not is_native
        """It has acknowledged the welcome; before that it may still refuse its master."""
        self.lacks_tables = False
        """It reports that its topics, groups or offsets are not current."""
        self.is_superseded = False
        """The same slave has a newer connection: this one no longer counts."""
        self.appended = NOTHING
        """End of what it holds, verified; `NOTHING` before its first report."""
        self.flushed = NOTHING
        """What of that is on its disk; `NOTHING` if it does not say."""
        self.in_sync = False
        self.caught_up_at = -math.inf
        """When it last held the whole log."""
        self.mark_end = PhysicalOffset(0)
        self.mark_at = 0.0
        """At `mark_at` the log ended at `mark_end`: a slave that holds it had caught up then."""
        self.connected_at = 0.0
        self.heard_at = 0.0
        self.gone_at: float | None = None
        self.why_gone = ""

    def lag_bytes(self, end: PhysicalOffset) -> int:
        """Return how many bytes it lacks: all of them before its first report."""
        return max(0, end - max(0, self.appended))

    def lag_s(self, end: PhysicalOffset, now: float) -> float:
        """Return for how long it has not held the whole log; infinite if it never did."""
        return 0.0 if self.appended >= end else max(0.0, now - self.caught_up_at)


class SlaveSet:
    """All slaves of one master."""

    def __init__(self, rules: InSyncRules, end: PhysicalOffset) -> None:
        self.rules = rules
        self.keeper = RecordKeeper(0, (), is_known=True)
        """Decides which slaves acknowledgements may rest on; this default allows all."""
        self.end = end
        """The end of the log."""
        self.replicated = NOTHING
        """Enough slaves in sync hold the log up to here; `NOTHING` if too few are in sync."""
        self.in_sync_count = 0
        """Lower bound of slaves in sync: connections that may be of one slave count once."""
        self.in_sync_most = 0
        """Upper bound of slaves in sync: any of them may hold what was confirmed."""
        self._connected: list[SlaveProgress] = []
        self._gone: dict[str, SlaveProgress] = {}

    def __iter__(self) -> Iterator[SlaveProgress]:
        """Iterate over connected slaves, in order of arrival."""
        return iter(self._connected)

    def __len__(self) -> int:
        return len(self._connected)

    @property
    def gone(self) -> list[SlaveProgress]:
        """Slaves that have disconnected and not come back."""
        present = {slave.identity for slave in self._connected}
        return [slave for slave in self._gone.values() if slave.identity not in present]

    def forget(self, slave: SlaveProgress) -> None:
        """Remember a slave that has disconnected no longer."""
        assert slave.gone_at is not None, f"{slave.name} is connected"
        self._gone.pop(slave.identity, None)

    @property
    def needed(self) -> int:
        """How many slaves must hold a message, by the rules and by the in-sync record."""
        return max(self.rules.needed, self.keeper.needed)

    @property
    def is_enough(self) -> bool:
        """Whether enough slaves are in sync to replicate a message."""
        return self.in_sync_count >= self.needed

    def join(self, slave: SlaveProgress, now: float) -> None:
        """Add a slave that has connected; `holds` reports next what it has."""
        slave.connected_at = slave.heard_at = now
        slave.mark_end, slave.mark_at = self.end, now
        if slave.is_native:
            self.supersede(slave.identity)
        self._connected.append(slave)

    def supersede(self, identity: str) -> None:
        """Ignore earlier connections of a native slave that has connected again."""
        for slave in self._connected:
            if slave.identity == identity:
                slave.is_superseded = True
                slave.in_sync = False
        self._count()

    def leave(self, slave: SlaveProgress, now: float, why: str) -> None:
        """Remove a slave whose connection has ended."""
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

    def grew(self, end: PhysicalOffset, now: float) -> None:
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

    def holds(
        self, slave: SlaveProgress, appended: PhysicalOffset, flushed: PhysicalOffset, now: float
    ) -> None:
        """Apply a slave's report; the caller has checked that it can be true."""
        slave.heard_at = now
        if appended > slave.appended:
            slave.appended = appended
        if flushed > slave.flushed:
            slave.flushed = flushed
        assert slave.flushed <= slave.appended, (
            f"flushed {slave.flushed} <= appended {slave.appended} of slave {slave.name}"
        )
        if slave.appended >= slave.mark_end:
            # The mark is in the past; a slave that holds the whole log has caught up just now.
            slave.caught_up_at = now if slave.appended >= self.end else slave.mark_at
            slave.mark_end, slave.mark_at = self.end, now
        self.refresh(now)

    def refresh(self, now: float) -> list[SlaveProgress]:
        """Update which slaves are in sync; return those for which it changed."""
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
        """Count again after the in-sync record has changed."""
        self._count()

    def holding(self, member: str) -> PhysicalOffset:
        """Return the offset that a member in sync holds; `NOTHING` if it is not in sync."""
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
            self.replicated = max(held) if needed == 1 else sorted(held, reverse=True)[needed - 1]

    def _held(self) -> list[PhysicalOffset]:
        """Return the offsets held by slaves in sync that are certainly distinct."""
        counts_flushed = self.rules.counts_flushed
        held: list[PhysicalOffset] = []
        has_stock = False
        allows = self.keeper.allows
        for slave in self._connected:
            if slave.in_sync and allows(slave.member):
                offset = slave.flushed if counts_flushed else slave.appended
                if offset == NOTHING:
                    # A stock slave does not report what is on its disk.
                    continue
                held.append(offset)
                has_stock |= not slave.is_native
        self.in_sync_most = len(held)
        return self._held_beside_stock() if has_stock else held

    def _held_beside_stock(self) -> list[PhysicalOffset]:
        """Return the same where a stock slave may be a native one of the same host."""
        counts_flushed, allows = self.rules.counts_flushed, self.keeper.allows
        native: dict[str, list[PhysicalOffset]] = {}
        stock: dict[str, PhysicalOffset] = {}
        for slave in self._connected:
            offset = slave.flushed if counts_flushed else slave.appended
            if not slave.in_sync or offset == NOTHING or not allows(slave.member):
                continue
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
