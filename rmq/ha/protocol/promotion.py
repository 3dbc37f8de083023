"""Whether a slave may become master without losing a message that was acknowledged. Pure.

A message is acknowledged when its send was answered with SEND_OK. By what rule that was done, the
master has recorded before it did so (`in_sync_record`, `record_keeper`): with itself, on its slaves
and with nameservers. A slave may take over if

- it has a record, and a majority of the nameservers that keep it say that there is no later one, or
  give it the later one. What a nameserver says counts if it has at least what this slave has: one
  that has less was emptied, and may have known more;
- the latest record is sync and names this slave as it is now, and
- whatever was acknowledged must be here. If it were not, `needed` other members would hold it;
  those that answer hold no more than this one, and those that do not are too few.

Messages that a master acknowledged after another had taken its place are lost in any case; fencing
is for that. A stock master records nothing, so its slave is refused. Where the master is alive, a
hand-over (it steps down first) needs none of this, if the slave has followed no other master since;
nor does a broker that was master last. Both rest on the word of one master, which knows what it has
acknowledged itself. Promotions with `--accept-loss` can make two brokers master in one epoch. So
its word counts only if every record of that epoch that is known was written by this master.

Time passes between a question and the decision, and a master that hung may come back meanwhile. So
the slave follows no master from before it asks. The others renounce: what they hold when they
answer counts, and from then on they are members of another incarnation, on whom no master can count
without a record that names it. And a record that was written meanwhile is found by the first one of
the new epoch (`record_keeper`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.model.in_sync_record import newest, store_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmq.model.in_sync_record import InSyncRecord
    from rmq.model.offsets import PhysicalOffset

EVERYTHING: Final = "everything that was answered SEND_OK is here"


class HandOver(NamedTuple):
    """What a master answered that stepped down in favour of the candidate."""

    epoch: int
    end: PhysicalOffset
    """Where its log ended when it stopped writing."""
    master: str
    """Names its store; empty if it did not say that, and then the hand-over counts for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The slave that is to be promoted."""

    members: frozenset[str]
    """Its names in in-sync records: it still holds what it confirmed by each of them."""
    store: str
    """Names its store: so it is called as the master of a record."""
    epoch: int
    end: PhysicalOffset
    record: InSyncRecord | None
    """The last record it received."""
    follows_stock: bool = False
    was_last: bool = False
    """It was the last master of its epoch, and its log is as it was then."""
    hand_over: HandOver | None = None

    @property
    def is_handed_over(self) -> bool:
        """Whether its master stepped down for it, and it has followed no other master since.

        That can happen until the slave is suspended: the former master may be promoted again
        meanwhile, and goes on in a later epoch.
        """
        hand_over = self.hand_over
        return (
            hand_over is not None
            and bool(hand_over.master)
            and (hand_over.epoch, hand_over.end) == (self.epoch, self.end)
        )


class OtherSlave(NamedTuple):
    """Another slave of the same name; or a nameserver, which knows epochs but has no log."""

    address: str
    epoch: int | None
    """The last one it has heard of; None if it does not answer."""
    end: PhysicalOffset | None
    """Where its log ends; None if it does not answer, or has none."""
    members: frozenset[str] = frozenset()
    """Its names in in-sync records."""
    record: InSyncRecord | None = None
    """The last record it received."""
    hears_epochs: bool = True
    """Its last master sends epochs. A slave of a stock master, or one without a master since its
    start, may hold bytes of a later epoch than the last one it knows."""
    gave_way: bool = False
    """It was the master of its epoch, has stepped down, and its whole log is in this slave's log.
    """
    store: str = ""
    """Names its store: so it is called as the master of a record."""


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """The in-sync records that nameservers keep."""

    answers: Mapping[str, InSyncRecord | None] = field(default_factory=dict)
    """By nameserver; None: it keeps none. A nameserver that did not answer is missing."""

    def knowing(self, nameservers: Sequence[str], order: tuple[int, int]) -> int:
        """Return how many of these nameservers have a record of this order or later."""
        records = (self.answers.get(name) for name in nameservers)
        return sum(record is not None and record.order >= order for record in records)


class PromotionVerdict(NamedTuple):
    """Whether a slave may become master, and why or why not."""

    is_safe: bool
    reason: str


def latest_record(
    candidate: Candidate, kept: KeptRecords, others: Sequence[OtherSlave]
) -> InSyncRecord | None:
    """Return the latest record known to the candidate, a nameserver or another slave."""
    return newest(*_all_records(candidate, kept, others))


def masters_of(
    epoch: int, candidate: Candidate, kept: KeptRecords, others: Sequence[OtherSlave]
) -> frozenset[str]:
    """Return the stores of all masters of an epoch of whom a record is known."""
    records = _all_records(candidate, kept, others)
    return frozenset(record.master for record in records if record and record.epoch == epoch)


def _all_records(
    candidate: Candidate, kept: KeptRecords, others: Sequence[OtherSlave]
) -> list[InSyncRecord | None]:
    return [candidate.record, *kept.answers.values(), *(other.record for other in others)]


def decide(
    candidate: Candidate, kept: KeptRecords, others: Sequence[OtherSlave]
) -> PromotionVerdict:
    """Decide whether a slave holds all that was acknowledged.

    `others` are all slaves that anyone knows of, and what nameservers know of epochs: a slave may
    have followed a master that was no longer one.
    """
    epoch, own = candidate.epoch, candidate.record
    for other in others:
        if other.epoch is not None and other.epoch > epoch:
            return _no(
                f"{other.address} knows of a master of epoch {other.epoch}, this slave has followed"
                f" only one of {epoch}"
            )
    record = latest_record(candidate, kept, others)
    masters = masters_of(epoch, candidate, kept, others)
    hand_over = candidate.hand_over
    if hand_over is not None and candidate.is_handed_over:
        if record is None or record.epoch <= epoch:
            if masters <= {hand_over.master}:
                return PromotionVerdict(True, EVERYTHING)
            return _no(two_masters(epoch))
    elif any(masters <= {one} for one in _former_masters(candidate, others)) and _is_last_epoch(
        candidate, kept, others
    ):
        return PromotionVerdict(True, EVERYTHING)
    if not candidate.end:
        return _no("this slave holds nothing")
    if record is None or own is None:
        if candidate.follows_stock:
            return _no("a stock master does not tell what it has acknowledged")
        return _no("its master has not told it by what rule it acknowledges messages")
    if record.epoch != epoch:
        return _no(
            f"the last record of what was acknowledged is of epoch {record.epoch}, this slave has"
            f" followed a master of {epoch}"
        )
    doubt = _doubt_about_nameservers(record, own, kept)
    if doubt:
        return _no(doubt)
    if not record.is_sync:
        return _no("the master acknowledged messages without waiting for slaves (async)")
    if candidate.members.isdisjoint(record.members):
        return _no(_why_not_named(candidate, record))
    if not record.nameservers and record.rivals:
        return _no(
            f"{len(record.rivals)} other slaves may have become master by an earlier record, and"
            " there is no nameserver that would know"
        )
    return _compare(candidate, record, others)


def two_masters(epoch: int) -> str:
    """Return why the word of one master of an epoch is not enough."""
    return (
        f"another broker was master in epoch {epoch}, too, and what that one acknowledged may not"
        " be here"
    )


def _former_masters(candidate: Candidate, others: Sequence[OtherSlave]) -> frozenset[str]:
    """Return the stores that were master in the candidate's epoch and whose whole log it has."""
    stores = {other.store for other in others if other.gave_way and other.epoch == candidate.epoch}
    if candidate.was_last:
        stores.add(candidate.store)
    return frozenset(stores)


def _is_last_epoch(candidate: Candidate, kept: KeptRecords, others: Sequence[OtherSlave]) -> bool:
    """Return whether no broker can have been master in a later epoch than the candidate knows."""
    own, latest = candidate.record, latest_record(candidate, kept, others)
    if own is None or latest is None:
        return latest is None
    if latest.epoch > candidate.epoch:
        return False
    if own.nameservers:
        # The first record of a later epoch would be with most of them.
        return kept.knowing(own.nameservers, own.order) > len(own.nameservers) // 2
    seen = {store_of(name) for other in others if other.epoch is not None for name in other.members}
    seen |= {store_of(name) for name in candidate.members}
    # The slaves of an async master are not recorded; a master without members may have been
    # promoted by force, beside another one.
    return bool(own.native_members) and all(
        store_of(member) in seen for member in own.native_members
    )


def _doubt_about_nameservers(
    record: InSyncRecord, own: InSyncRecord, kept: KeptRecords
) -> str | None:
    for names in (own.nameservers, record.nameservers):
        known = kept.knowing(names, own.order)
        if names and known <= len(names) // 2:
            silent = [name for name in names if name not in kept.answers]
            empty = [name for name in names if name in kept.answers and not kept.answers[name]]
            why = f"{', '.join(silent)} did not answer" if silent else ""
            if empty:
                why += f"{'; ' if why else ''}{', '.join(empty)} has none"
            return (
                f"whether the master acknowledged messages without this slave is known to the"
                f" nameservers, and only {known} of {len(names)} told it:"
                f" {why or 'what they have is older than what this slave has'}"
            )
    return None


def _why_not_named(candidate: Candidate, record: InSyncRecord) -> str:
    stores = {store_of(member) for member in candidate.members}
    if any(store_of(member) in stores for member in record.members):
        return (
            "since the master last counted on this slave it was stopped without saving its log, or"
            " its log was cut, or it was put back from a backup: it may lack what it had confirmed"
        )
    others = f"{len(record.members)} other" if record.members else "no"
    return (
        f"the master acknowledged messages without this slave, which was not in sync; it counted on"
        f" {others} slave{'' if len(record.members) == 1 else 's'}"
    )


def _compare(
    candidate: Candidate, record: InSyncRecord, others: Sequence[OtherSlave]
) -> PromotionVerdict:
    """Compare this slave with the others that the master counted on."""
    epoch, end = candidate.epoch, candidate.end
    # What a slave of an earlier epoch has more was written by a master that has been replaced.
    comparable = [other for other in others if other.epoch == epoch or not other.hears_epochs]
    ahead = max(comparable, key=lambda other: other.end or 0, default=None)
    if ahead is not None and ahead.end is not None and ahead.end > end:
        return _no(f"{ahead.address} has {ahead.end - end} bytes more: promote that one")
    # One that is empty has lost what it may have confirmed: its disk was replaced.
    seen = set(candidate.members)
    for other in others:
        if other.epoch == epoch and other.end:
            seen |= other.members
    unseen = sum(member not in seen for member in record.members)
    if unseen >= record.needed:
        return _no(
            f"{unseen} of {len(record.members)} slaves in sync do not answer, and {record.needed}"
            " were enough to acknowledge a message"
        )
    return PromotionVerdict(True, EVERYTHING)


def _no(reason: str) -> PromotionVerdict:
    return PromotionVerdict(False, reason)
