"""What a master has promised to producers, and when it is kept. Sans-IO.

In async mode a message is answered when the master has it. In sync mode enough slaves in sync must
hold it; every send waits until its own deadline, and one report of a slave answers all sends it
covers. A switch of the mode takes effect at a definite offset, the end of the log at that moment:
what lies before is answered by the old rule, what comes after by the new one.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rmq.store.waits import WatermarkWaits

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rmq.ha.protocol.slaves import SlaveSet

T = TypeVar("T", bound="Hashable")


class ReplicationMode(enum.Enum):
    """What a send waits for."""

    ASYNC = "async"
    SYNC = "sync"


class Kept(enum.Enum):
    """How a promise ended."""

    REPLICATED = "replicated"
    TIMED_OUT = "timed out"
    NOT_AVAILABLE = "not available"
    """Too few slaves are in sync: nobody waited."""


class ModeSwitch(NamedTuple):
    """From this offset on the mode holds."""

    offset: int
    mode: ReplicationMode


class Promises(Generic[T]):
    """The sends that wait for slaves, by token."""

    def __init__(
        self, slaves: SlaveSet, mode: ReplicationMode, *, end: int, timeout_s: float
    ) -> None:
        self.timeout_s = timeout_s
        self.in_force = ModeSwitch(end, mode)
        self.visible = end
        """Up to where what was appended has been replicated, or did not have to be."""
        self._awaited_from = end
        """If anyone waits, then for something that ends behind this."""
        self._slaves = slaves
        self._waits: WatermarkWaits[T] = WatermarkWaits()

    def __len__(self) -> int:
        return len(self._waits)

    @property
    def mode(self) -> ReplicationMode:
        return self.in_force.mode

    @property
    def is_sync(self) -> bool:
        return self.in_force.mode is ReplicationMode.SYNC

    def refuses(self) -> bool:
        """Whether a send must not even be appended, because too few slaves are in sync."""
        return self.is_sync and self._slaves.in_sync_count < self._slaves.rules.minimum

    def switch(self, mode: ReplicationMode, end: int) -> ModeSwitch:
        """Change the mode from the end of the log on. Those who wait go on waiting."""
        if mode is not self.in_force.mode:
            self.settle_visible(end)
            self.in_force = ModeSwitch(end, mode)
            if mode is ReplicationMode.SYNC:
                self.visible = max(self.visible, end)
        return self.in_force

    def ask(self, end_offset: int, now: float, token: T) -> Kept | None:
        """Say what became of a message that ends at `end_offset` and was appended just now.

        None: `token` waits, and comes back from `settle` or `expire`.
        """
        if not self.is_sync or end_offset <= self.in_force.offset:
            return Kept.REPLICATED
        slaves = self._slaves
        if end_offset <= slaves.replicated:
            return Kept.REPLICATED
        if not slaves.is_enough:
            return Kept.NOT_AVAILABLE
        if not len(self._waits) or end_offset <= self._awaited_from:
            self._awaited_from = end_offset - 1
        self._waits.add(end_offset, now + self.timeout_s, token)
        return None

    def settle(self) -> list[T]:
        """Return those whose messages enough slaves hold by now."""
        replicated = self._slaves.replicated
        if replicated > self.visible:
            self.visible = replicated
        self._awaited_from = max(self._awaited_from, replicated)
        return self._waits.advance(replicated) if len(self._waits) else []

    def settle_visible(self, end: int) -> int:
        """Return up to where messages may be shown to consumers that must not see more."""
        if not self.is_sync:
            self.visible = max(self.visible, end)
        return self.visible

    def expire(self, now: float) -> list[T]:
        """Return those who have waited long enough."""
        return self._waits.expire(now)

    def awaited_from(self, end: int) -> int:
        """Return from where on a slave must hold the log so that its reports cover all who wait.

        Exact when someone came last; after sends have timed out it may be too low, never too high.
        """
        return min(self._awaited_from, end) if len(self._waits) else end

    def next_deadline(self) -> float | None:
        return self._waits.next_deadline()

    def forget(self, token: T) -> None:
        self._waits.discard(token)

    def give_up(self) -> list[T]:
        """Return everyone: this broker is no master any longer."""
        return self._waits.fail_all()
