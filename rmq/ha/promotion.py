"""Whether a slave may become master without losing a message that was acknowledged. Pure.

A message is acknowledged when its send was answered with SEND_OK under the mode in force: in async
mode as soon as the master had it, in sync mode when `needed` slaves in sync had it.

What a slave can know of that, its master told it in the last header it got (`MasterView`): the
mode, how many slaves count and how many of them a send waits for, whether this slave is one of
them, and an offset behind which nothing had been acknowledged until then. It may take over if

- the master was sync and counted this slave,
- the slave holds all that can have been acknowledged before that header, and
- whatever was acknowledged after it must be here, too. If it were not, `needed` other slaves would
  hold it; those that answer hold no more than this one, and those that do not are too few.

What it cannot know is what its master did after that header. If, cut off from this slave, it was
switched to async or to a smaller number of slaves, or counted slaves that came later and that
nobody knows of now, it may have acknowledged messages that this slave never saw. Messages that a
master acknowledged after another had taken its place are lost in any case; fencing is for that.
A stock master tells nothing of all this, and a slave that was restarted has not heard it yet: both
are refused. Where the master is alive, a hand-over (it steps down first) needs none of this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.ha.slave_link import MasterView


@dataclass(frozen=True, slots=True, kw_only=True)
class LastMaster:
    """What a slave was last told by its master."""

    is_known: bool = False
    """It was told anything, since it was started."""
    is_native: bool = False
    is_sync: bool = False
    is_in_sync: bool = False
    """The master counted this slave."""
    needed: int = 0
    in_sync: int = 0
    """How many slaves it counted at most, this one included."""
    replicated: int = -1
    """It had acknowledged nothing behind this."""

    @classmethod
    def of(cls, view: MasterView | None) -> LastMaster:
        """Return what `view` says; None stands for a slave that has heard of no master."""
        if view is None:
            return cls()
        return cls(
            # Each header of a native master says how many slaves it needs, at least one.
            is_known=view.needed > 0 if view.is_native else view.end > 0,
            is_native=view.is_native,
            is_sync=view.is_sync,
            is_in_sync=view.is_in_sync,
            needed=view.needed,
            in_sync=view.in_sync,
            replicated=view.replicated,
        )


class OtherSlave(NamedTuple):
    """Another slave of the same name; or a nameserver, which knows epochs but has no log."""

    address: str
    epoch: int | None
    """The last one it has heard of; None if it does not answer."""
    end: int | None
    """Where its log ends; None if it does not answer, or has none."""
    is_in_sync: bool | None = None
    """What it was last told about itself, if that is known."""
    hears_epochs: bool = True
    """Its last master tells epochs. A slave of a stock link, or one that has heard of no master
    since it was started, may hold bytes of a later epoch than the last one it knows."""


class Verdict(NamedTuple):
    """Whether a slave may become master, and why or why not."""

    is_safe: bool
    reason: str


def decide(last: LastMaster, *, epoch: int, end: int, others: Sequence[OtherSlave]) -> Verdict:
    """Decide whether a slave holds all that was acknowledged, as far as can be known.

    `epoch` and `end` are its own; `others` are all slaves that anyone knows of, and what
    nameservers know of epochs: a slave may have followed a master that was no longer one.
    """
    for other in others:
        if other.epoch is not None and other.epoch > epoch:
            return _no(
                f"{other.address} knows of a master of epoch {other.epoch}, this slave has followed"
                f" only one of {epoch}"
            )
    if not last.is_known:
        return _no("it has heard nothing of its master since it was started")
    if not last.is_native:
        return _no("a stock master does not tell what it has acknowledged")
    if not last.is_sync:
        return _no("the master acknowledged messages without waiting for slaves (async)")
    if not last.is_in_sync:
        return _no("the master acknowledged messages without this slave, which was not in sync")
    if end < last.replicated:
        return _no(
            f"this slave ends at {end}, and the master may have acknowledged messages up to"
            f" {last.replicated}"
        )
    answered = [other for other in others if other.epoch == epoch and other.end is not None]
    # What a slave of an earlier epoch has more was written by a master that has been replaced.
    comparable = [other for other in others if other.epoch == epoch or not other.hears_epochs]
    ahead = max(comparable, key=lambda other: other.end or 0, default=None)
    if ahead is not None and ahead.end is not None and ahead.end > end:
        return _no(f"{ahead.address} has {ahead.end - end} bytes more: promote that one")
    # One that is empty has lost what it may have confirmed: its disk was replaced.
    sound = [other for other in answered if other.end]
    unseen = _unseen(last.in_sync - 1, sound, others)
    if unseen >= last.needed:
        return _no(
            f"{unseen} of {last.in_sync} slaves in sync do not answer, and {last.needed} were"
            " enough to acknowledge a message"
        )
    return Verdict(True, "all that the master acknowledged is here")


def _unseen(counted: int, answered: Sequence[OtherSlave], others: Sequence[OtherSlave]) -> int:
    """Return how many of `counted` other slaves in sync may hold more without anyone knowing."""
    seen = sum(other.is_in_sync is not False for other in answered)
    silent = sum(other.epoch is None for other in others)
    return max(counted - seen, min(counted, silent))


def _no(reason: str) -> Verdict:
    return Verdict(False, reason)
