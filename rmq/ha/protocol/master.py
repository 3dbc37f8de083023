"""State that all links of a master share: settings, log, slaves, pending acks, records. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rmq.ha.protocol.pending_acks import PendingAcks, ReplicationMode
from rmq.ha.protocol.slaves import InSyncRules, SlaveSet
from rmq.ha.protocol.throttle import TokenBucket
from rmq.ha.protocol.wire import CatchUp
from rmq.model.in_sync_record import store_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rmq.ha.protocol.log_view import LogView
    from rmq.ha.protocol.record_keeper import RecordKeeper
    from rmq.ha.protocol.slaves import SlaveProgress
    from rmq.model.in_sync_record import InSyncRecord
    from rmq.model.offsets import PhysicalOffset

ANSWER_S: Final = 1.0
"""How long a slave that has just connected has to acknowledge, before a record without it is made.
"""
DROP_S: Final = 5.0
"""A member that has been gone for this long is left out of the next in-sync record."""
STOCK_FRAME_BYTES_MAX: Final = 4 * 1024**2 - 64
"""A stock slave has a buffer of 4 MiB for a frame."""

T = TypeVar("T", bound="Hashable")


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings:
    """How a master treats its slaves."""

    cluster: str
    broker_name: str
    address: str
    """Where clients find it."""
    store_id: bytes
    """Names the store."""
    secret: bytes = field(default=b"", repr=False)
    """If there is one, only slaves that know it are served, and no stock ones."""
    takes_stock: bool = True
    catch_up: CatchUp = CatchUp.OLDEST
    """Where an empty stock slave begins; native ones say it themselves."""
    rules: InSyncRules = field(default_factory=InSyncRules)
    timeout_s: float = 3.0
    """How long a send waits for slaves."""
    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    handshake_s: float = 10.0
    """How long a connection may take to introduce itself."""
    frame_bytes: int = 512 * 1024
    stock_frame_bytes: int = 32 * 1024
    catch_up_bytes_per_s: int = 0
    """For all slaves that are not in sync together; 0 is without a limit."""


@dataclass(slots=True)
class LinkCounters:
    """What happened on the replication port since the start."""

    accepted: int = 0
    refused: int = 0
    """Connections that were turned away: wrong secret, wrong cluster, garbage."""
    forged: int = 0
    """Reports of bytes that were never sent."""
    diverged: int = 0
    silent: int = 0
    reseeded: int = 0
    timeouts: int = 0
    """Sends that no slave confirmed in time."""
    unavailable: int = 0
    """Sends that found too few slaves in sync."""


class Master(Generic[T]):
    """The state that links and sends share."""

    def __init__(
        self,
        settings: MasterSettings,
        log: LogView,
        *,
        epoch: int,
        mode: ReplicationMode,
        now: float,
        keeper: RecordKeeper | None = None,
    ) -> None:
        """`mode` is what the settings ask for; without a `keeper` it counts at once."""
        self.settings = settings
        self.log = log
        self.epoch = epoch
        self.mode = mode
        self.slaves = SlaveSet(settings.rules, log.end)
        if keeper is not None:
            self.slaves.keeper = keeper
        self.pending_acks: PendingAcks[T] = PendingAcks(
            self.slaves, self._mode_in_force(), end=log.end, timeout_s=settings.timeout_s
        )
        self._gone_at: dict[str, float] = {}
        """Since when members are not in sync."""
        self._met: set[str] = set()
        """Members whose logs were compared with this one."""
        self.bucket = TokenBucket(settings.catch_up_bytes_per_s, now)
        self.counters = LinkCounters()
        self.records_heard = 0
        """How many times slaves reported that a record is on their disk."""
        self.news = 0
        """Changes when topics, groups or offsets do, so that slaves copy them."""
        self.outdated_by: int | None = None
        """A slave has followed a master of this later epoch."""
        self.last_error: str | None = None

    def reconfigure(self, settings: MasterSettings, now: float) -> None:
        """Apply changed settings; links read them when they need them."""
        self.settings = settings
        self.slaves.rules = settings.rules
        self.pending_acks.timeout_s = settings.timeout_s
        self.bucket.set_rate(settings.catch_up_bytes_per_s, now)
        self.slaves.refresh(now)

    # --- what answers may rest on ------------------------------------------------------------

    @property
    def keeper(self) -> RecordKeeper:
        return self.slaves.keeper

    def _mode_in_force(self) -> ReplicationMode:
        """Return the mode that was asked for, or sync until async may be relied on."""
        is_async = self.mode is ReplicationMode.ASYNC and self.keeper.is_async
        return ReplicationMode.ASYNC if is_async else ReplicationMode.SYNC

    def want_mode(self, mode: ReplicationMode) -> None:
        """An operator wants another mode."""
        self.mode = mode
        self.apply_record()

    def apply_record(self) -> None:
        """Acknowledge sends by the record that counts now."""
        self.slaves.recount()
        self.pending_acks.switch(self._mode_in_force(), self.log.end)

    def want_record(self, nameservers: tuple[str, ...], now: float) -> None:
        """Tell the keeper which record fits the slaves that are in sync now."""
        keeper, slaves = self.keeper, self.slaves
        members: set[str] = set()
        for slave in slaves:
            if slave.in_sync:
                if slave.has_answered:
                    members.add(slave.member)
                elif now < slave.connected_at + ANSWER_S:
                    # It counts in a moment: a record without it would be obsolete at once.
                    return
        last = keeper.newest
        self._met |= members
        is_sync = self.mode is ReplicationMode.SYNC
        if keeper.is_said(is_sync, slaves.rules.needed, members, nameservers):
            self._gone_at.clear()
            self.pending_acks.advance_visible(self.log.end)
            return
        if keeper.is_renewing and is_sync and len(members) < slaves.rules.needed:
            # No send is answered meanwhile, and former members may still be promoted.
            return
        # A store that came back in another incarnation counts once.
        stores = {store_of(member) for member in members}
        recorded = frozenset(
            member
            for member in (() if last is None else last.members)
            if (member in members or store_of(member) not in stores)
            and (member in self._met or not keeper.is_renewing)
        )
        self._gone_at = {m: self._gone_at.get(m, now) for m in recorded - members}
        if len(members) >= slaves.rules.needed:
            # Not at once: a member that is back soon need not be recorded twice.
            recorded = frozenset(m for m, at in self._gone_at.items() if now < at + DROP_S)
        keeper.want(
            is_sync=is_sync,
            needed=slaves.rules.needed,
            members=recorded | members,
            nameservers=nameservers,
            acknowledged=self.pending_acks.advance_visible(self.log.end),
            held=slaves.holding,
        )

    def record_to_tell(self, told: tuple[int, int]) -> InSyncRecord | None:
        """Return the latest record, if it is later than the last one sent (`told`)."""
        record = self.keeper.newest
        return record if record is not None and record.order > told else None

    def recorded(self, slave: SlaveProgress, order: tuple[int, int]) -> None:
        """A slave has a record on its disk."""
        self.records_heard += 1
        if self.keeper.stored(slave.member, order):
            self.apply_record()

    def grew(self, now: float) -> None:
        """The log has grown."""
        self.slaves.grew(self.log.end, now)

    def is_held_by_all(self, end: PhysicalOffset) -> bool:
        """Whether all slaves in sync hold the log up to `end`."""
        return all(slave.appended >= end for slave in self.slaves if slave.in_sync)

    def announce(self) -> None:
        """Tell slaves that topics, groups or offsets have changed."""
        self.news = (self.news + 1) & 0xFFFFFFFF
