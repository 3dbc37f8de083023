"""Keeps a master's in-sync records: it relies on a change only after recording it. Pure.

    keeper.want(...)                      the record that fits the slaves in sync now
    keeper.to_save                        a record that has to be written to this disk next
    keeper.saved(record)                  it is on disk; now `newest` may be sent to others
    keeper.stored(place, order)           a nameserver or a slave has it on its disk
    keeper.allows(member), keeper.needed  what acknowledgements may rest on now
    keeper.is_async                       they may rest on the master alone

A record counts when no slave can decide by an older one any more. A slave that decides by an older
record is one of its members, and asks a majority of the nameservers that keep it. So for each
earlier record, a later one must be with a majority of its nameservers, or with all of its members.
It must also be with members that are named for the first time. The first record of an epoch needs a
majority in any case, where there are nameservers, so that a master of an earlier epoch learns that
it was replaced. Where there are no nameservers, a record names its rivals, the members of earlier
records that may not know it, and those must have it, too: a new master knows only that record.
Until then acknowledgements have to satisfy the old and the new record.

An epoch begins with a decision (`promotion`) by the latest record that was known then. While the
decision was taken, the former master may have come back and recorded another rule. Its record and
the first one of the new epoch both need a majority of nameservers, so one of these has seen both: a
new master that finds a record unknown to its decision has to withdraw (`met`). It has written
nothing in its epoch by then (`has_begun`), so that its log is still the beginning of the former
master's.

A record of the same epoch by another master is never replaced: the next decision has to find
it (`promotion`). A promotion that an operator forces relies on no earlier record, and so on no
majority of nameservers, and another broker may have begun the same epoch. So nothing counts before
each nameserver was asked to keep the first record, whether or not it answered. If one of them keeps
a record of the same epoch by another master, that one was first: the forced one is fenced, and its
operator has to promote it again, by a later epoch.

A master that is fenced records nothing and relies on no slave: on a nameserver that was emptied,
its record would take the place of the one that fenced it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from rmq.model.in_sync_record import InSyncRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmq.model.offsets import PhysicalOffset


ASKED_MAX: Final = 256
"""For this many members `allows` caches its result."""


@final
class RecordKeeper:
    """The records of one master in one epoch."""

    def __init__(
        self,
        epoch: int,
        records: Iterable[InSyncRecord],
        *,
        member: str = "",
        master: str = "",
        is_known: bool,
        is_forced: bool = False,
        renews: bool = False,
    ) -> None:
        """`records` are those that a slave may still decide by, the oldest first.

        `member` is this master's name when it was a slave, `master` names its store. With
        `is_known` there are no other records. With `is_forced` an operator has accepted that
        others may decide by them: they do not count. With `renews` this master was stopped without
        saving its log, and may write other bytes at offsets that it has used before, which slaves
        may hold. So it relies only on records made since, and `want` names only slaves that have
        compared their logs with its own since.
        """
        self.epoch = epoch
        self.is_known = is_known
        records = tuple(records)
        self._member = member
        self._master = master
        self._chain: list[InSyncRecord] = [] if is_forced else list(records)
        own = [record for record in self._chain if record.epoch == epoch]
        self._version = max((record.version for record in own), default=0)
        self._wanted: InSyncRecord | None = None
        self._saved: InSyncRecord | None = own[-1] if own else None
        self._stored: dict[str, tuple[int, int]] = {}
        """The latest record that each place is known to have."""
        self._lives: dict[str, int] = {}
        """The latest incarnation of each store."""
        self._allowed: dict[str, bool] = {}
        """Results of `allows` since the last change: it is called for each acknowledgement."""
        self._needed = 0
        self._past = (epoch, self._version if renews else 0)
        """The last record of this epoch from before the log may have lost something."""
        self._decided_by = max(
            (record.order for record in records if record.epoch < epoch), default=(0, 0)
        )
        """The latest record of earlier epochs when this one began."""
        self.overtaken_by: InSyncRecord | None = None
        """A record that was unknown when this epoch began: the epoch has to be withdrawn."""
        self._is_fenced = False
        self._is_claiming = is_forced
        """Not all nameservers were asked yet whether another master has this epoch."""
        self._asked: set[str] = set()
        """Nameservers that were, while that matters."""
        if self._saved is not None:
            self.stored(member, self._saved.order)
        self._note_change()

    # --- what answers may rest on ------------------------------------------------------------

    @property
    def newest(self) -> InSyncRecord | None:
        """The record that slaves and nameservers should have; None before one is on this disk."""
        return self._saved

    @property
    def confirmed(self) -> InSyncRecord | None:
        """The record that counts; None while there is none of this epoch."""
        first = self._chain[0] if self._chain and not self._is_claiming else None
        return first if first is not None and self._is_of_today(first) else None

    @property
    def chain(self) -> tuple[InSyncRecord, ...]:
        """All records that a slave may still decide by, to be saved."""
        return tuple(self._chain)

    @property
    def is_confirmed(self) -> bool:
        """Whether the wanted record counts."""
        confirmed = self.confirmed
        return len(self._chain) == 1 and confirmed is not None and self._wanted is None

    def _is_of_today(self, record: InSyncRecord) -> bool:
        return record.epoch == self.epoch and record.order > self._past

    def _is_blocked(self) -> bool:
        """Return whether this master is fenced, or slaves may decide by records of before."""
        return (
            self.overtaken_by is not None
            or self._is_fenced
            or self._is_claiming
            or not self.is_known
            or not all(self._is_of_today(record) for record in self._chain)
        )

    @property
    def is_renewing(self) -> bool:
        """Whether all records of this epoch are from before the restart."""
        return self._past[1] > 0 and not any(self._is_of_today(each) for each in self._chain)

    @property
    def is_pending(self) -> bool:
        """Whether this epoch may still have to be withdrawn.

        Until most nameservers have its first record, no slave may follow: a slave that has adopted
        an epoch cannot go back, its master can.
        """
        return self.overtaken_by is not None or any(
            record.epoch != self.epoch and record.nameservers for record in self._chain
        )

    @property
    def has_begun(self) -> bool:
        """Whether this master may write.

        What is written in an epoch that is withdrawn is in no other log. Then the end of this log
        says nothing about what it has of the former master's.
        """
        return not self.is_pending and not self._is_claiming

    def allows(self, member: str) -> bool:
        """Return whether an acknowledgement may rest on what this member holds."""
        allowed = self._allowed.get(member)
        if allowed is None:
            allowed = not self._is_blocked() and all(each.allows(member) for each in self._chain)
            if len(self._allowed) >= ASKED_MAX:
                self._allowed.clear()
            self._allowed[member] = allowed
        return allowed

    @property
    def needed(self) -> int:
        """How many members must hold a message, by all records that still matter."""
        return self._needed

    def _note_change(self) -> None:
        """Clear what was derived from the records: they have changed."""
        self._allowed.clear()
        self._needed = max((each.needed for each in self._chain if each.is_sync), default=0)

    @property
    def is_async(self) -> bool:
        """Whether acknowledgements may rest on the master alone."""
        return not self._is_blocked() and not any(record.is_sync for record in self._chain)

    # --- changes -----------------------------------------------------------------------------

    @property
    def is_fenced(self) -> bool:
        """Whether another broker has a later epoch."""
        return self._is_fenced

    @is_fenced.setter
    def is_fenced(self, value: bool) -> None:
        self._is_fenced = value
        self._note_change()

    def learned(self, records: Iterable[InSyncRecord]) -> None:
        """Add the records that nameservers keep: now all are known."""
        known = {record.order for record in self._chain}
        self._chain = sorted(
            [*self._chain, *(record for record in records if record.order not in known)],
            key=lambda record: record.order,
        )
        own = [record.version for record in self._chain if record.epoch == self.epoch]
        self._version = max(self._version, *own, 0)
        self.is_known = True
        self._note_change()

    def met(self, record: InSyncRecord | None) -> bool:
        """Judge the record that a nameserver keeps; return whether this epoch's may replace it.

        Only an epoch that has not begun can be overtaken. A nameserver with an older record than
        the one that was decided by has lost data, and may have known a later one.
        """
        is_taken = (
            record is not None and record.epoch == self.epoch and record.master != self._master
        )
        if not self.is_pending:
            if is_taken and self._is_claiming:
                self.is_fenced = True
            return not is_taken
        if record is None or record.order < self._decided_by:
            return False
        if record.epoch < self.epoch:
            is_unknown = record.order > self._decided_by
        else:
            is_unknown = record.epoch > self.epoch or is_taken
        if is_unknown:
            self.overtaken_by = record
            self._note_change()
        return not is_unknown

    def is_said(
        self, is_sync: bool, needed: int, members: set[str], nameservers: tuple[str, ...]
    ) -> bool:
        """Return whether the record that counts says just this: then there is nothing to `want`."""
        if self._wanted is not None or len(self._chain) != 1:
            return False
        record = self._chain[0]
        return (
            record is self._saved
            and record.is_sync is is_sync
            and (not is_sync or (record.needed == needed and set(record.members) == members))
            and not record.rivals
            and record.master == self._master
            and record.nameservers == tuple(sorted(nameservers))
            and self._is_of_today(record)
        )

    def asked(self, nameserver: str) -> bool:
        """Note that a nameserver was asked to keep a record, whatever came of it.

        Return whether a forced epoch begins by that.
        """
        if self._is_claiming:
            self._asked.add(nameserver)
        return self._end_claim()

    def _end_claim(self) -> bool:
        saved = self._saved
        if not self._is_claiming or self._is_fenced:
            return False
        if saved is None or not self._asked.issuperset(saved.nameservers):
            return False
        self._is_claiming = False
        self._note_change()
        return True

    def want(
        self,
        *,
        is_sync: bool,
        needed: int,
        members: frozenset[str],
        nameservers: tuple[str, ...],
        acknowledged: PhysicalOffset,
        held: Callable[[str], PhysicalOffset],
    ) -> None:
        """Propose the record that fits now.

        Everything below `acknowledged` has been answered, and `held` returns what a member holds.
        A record that is not true yet is not made: `needed` members have to hold all that was
        answered.
        """
        if not self.is_known or self._is_fenced or self.overtaken_by is not None:
            return
        wanted = InSyncRecord(
            epoch=self.epoch,
            version=self._version + 1,
            is_sync=is_sync,
            needed=needed if is_sync else 0,
            members=tuple(sorted(members)) if is_sync else (),
            nameservers=tuple(sorted(nameservers)),
            rivals=() if nameservers else self._rivals(members),
            master=self._master,
        )
        last = self._wanted or (self._chain[-1] if self._chain else None)
        if last is not None and self._is_of_today(last) and wanted.says_same(last):
            return
        if self._wanted is not None:
            # A record is being saved; the caller proposes again when it is.
            return
        if is_sync and not self._is_true(wanted, acknowledged, held):
            if last is not None:
                return
            # The first record: with too few slaves it names none, so that there is one.
            wanted = msgspec.structs.replace(wanted, members=(), rivals=())
        self._wanted = wanted

    def _rivals(self, members: frozenset[str]) -> tuple[str, ...]:
        """Return the other stores that may be promoted by a record that still matters."""
        named = {member for record in self._chain for member in record.native_members}
        for record in self._chain:
            named.update(self._unheard_rivals(record))
        return tuple(sorted(named - members - {self._member}))

    def _unheard_rivals(self, record: InSyncRecord) -> list[str]:
        """Return the rivals of a record that may still decide by an earlier one."""
        return [rival for rival in record.rivals if not self._has_all((rival,), record.order)]

    def _is_true(
        self,
        wanted: InSyncRecord,
        acknowledged: PhysicalOffset,
        held: Callable[[str], PhysicalOffset],
    ) -> bool:
        """Return whether `needed` members hold all that was answered.

        By a record with fewer members nothing is answered SEND_OK, and any of them is promoted:
        all of them have to hold it.
        """
        last = self._chain[-1] if self._chain else None
        if not wanted.members:
            # It names no member, so no slave is promoted by it.
            return True
        if (
            last is not None
            and last.epoch == self.epoch
            and last.is_sync
            and len(last.members) >= last.needed
            and set(last.members) <= set(wanted.members)
            and wanted.needed <= last.needed
        ):
            # All members of the last record are members still, and held all that was answered: a
            # record with fewer of them than it needs says nothing about that.
            return all(record.is_sync for record in self._chain)
        ends = sorted((held(member) for member in wanted.members), reverse=True)
        return ends[min(wanted.needed, len(ends)) - 1] >= acknowledged

    @property
    def to_save(self) -> InSyncRecord | None:
        """The record that has to be on this disk before it is sent to anyone."""
        return self._wanted

    def saved(self, record: InSyncRecord) -> None:
        """Note that a record is on this disk: it may be sent to others."""
        assert record is self._wanted, (record, self._wanted)
        self._wanted = None
        self._saved = record
        self._version = record.version
        self._chain.append(record)
        self._note_change()
        self._end_claim()
        self.stored(self._member, record.order)

    def stored(self, place: str, order: tuple[int, int]) -> bool:
        """Note that a nameserver or member has a record; return whether a new one counts now."""
        if order <= self._stored.get(place, (0, 0)):
            return False
        self._stored[place] = order
        store, _, life = place.rpartition(".")
        if life.isdecimal():
            self._lives[store] = max(int(life), self._lives.get(store, 0))
        return self._drop_superseded()

    def forgot(self, place: str) -> None:
        """Note that a nameserver or member has lost its record."""
        self._stored.pop(place, None)

    def places_without(self, places: Iterable[str]) -> list[str]:
        """Return those of `places` that lack the latest record."""
        if self._saved is None:
            return []
        order = self._saved.order
        return [place for place in places if self._stored.get(place, (0, 0)) < order]

    def _drop_superseded(self) -> bool:
        """Drop earlier records if no slave can decide by them any more."""
        last = self._chain[-1] if self._chain else None
        if last is None or last is not self._saved or len(self._chain) == 1:
            return False
        if self.overtaken_by is not None:
            return False
        earlier = self._chain[:-1]
        old_members = {member for record in earlier for member in record.native_members}
        news = [member for member in last.native_members if member not in old_members]
        if not self._has_all(news, last.order):
            return False
        if not all(self._is_overcome(record, last.order) for record in earlier):
            return False
        self._chain = [last]
        self._note_change()
        return True

    def _is_overcome(self, record: InSyncRecord, order: tuple[int, int]) -> bool:
        """Return whether no slave can decide by a record because all can see a later one."""
        names = record.nameservers
        with_it = sum(self._stored.get(name, (0, 0)) >= order for name in names)
        if names and with_it > len(names) // 2:
            return True
        if names and record.epoch != self.epoch:
            # The master of that epoch must be able to learn that it was replaced, too.
            return False
        if self._unheard_rivals(record):
            return False
        return not record.is_sync or self._has_all(record.native_members, order)

    def _has_all(self, members: Iterable[str], order: tuple[int, int]) -> bool:
        return all(self._stored.get(self._now(member), (0, 0)) >= order for member in members)

    def _now(self, member: str) -> str:
        """Return the latest incarnation of a member: as an earlier one it decides nothing."""
        store, _, life = member.rpartition(".")
        if store in self._lives and life.isdecimal():
            return f"{store}.{max(int(life), self._lives[store])}"
        return member
