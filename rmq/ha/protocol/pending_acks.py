"""Sends whose acknowledgement waits for slaves. Pure: time is an argument.

In async mode a send is answered when the master has the message. In sync mode enough slaves in sync
must hold it; every send waits until its own deadline, and one report of a slave releases all sends
it covers. A change of the mode takes effect at the end of the log at that moment: sends before that
offset are answered by the old mode, sends after it by the new one.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rmq.model.offsets import PhysicalOffset
from rmq.store.waits import WatermarkWaits

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rmq.ha.protocol.slaves import SlaveSet

T = TypeVar("T", bound="Hashable")


class ReplicationMode(enum.Enum):
    """What a send waits for."""

    ASYNC = "async"
    SYNC = "sync"


class AckOutcome(enum.Enum):
    """Why a send no longer waits for slaves."""

    REPLICATED = "replicated"
    TIMED_OUT = "timed out"
    NOT_AVAILABLE = "not available"
    """Too few slaves are in sync, so the send did not wait."""


class ModeSwitch(NamedTuple):
    """The mode, and the offset from which it applies."""

    offset: PhysicalOffset
    mode: ReplicationMode


class PendingAcks(Generic[T]):
    """The sends that wait for slaves, by token."""

    def __init__(
        self, slaves: SlaveSet, mode: ReplicationMode, *, end: PhysicalOffset, timeout_s: float
    ) -> None:
        self.timeout_s = timeout_s
        self.in_force = ModeSwitch(end, mode)
        self.visible = end
        """The visible watermark: everything below it is replicated, or did not have to be."""
        self._awaited_from = end
        """Every waiting send ends behind this offset."""
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

    def switch(self, mode: ReplicationMode, end: PhysicalOffset) -> ModeSwitch:
        """Change the mode from `end` on, the end of the log. Waiting sends go on waiting."""
        if mode is not self.in_force.mode:
            self.advance_visible(end)
            self.in_force = ModeSwitch(end, mode)
            if mode is ReplicationMode.SYNC:
                self.visible = max(self.visible, end)
        return self.in_force

    def ask(self, end_offset: PhysicalOffset, now: float, token: T) -> AckOutcome | None:
        """Return the outcome for a message that ends at `end_offset` and was just appended.

        None: the send waits; `release`, `expire` or `give_up` returns its `token` later.
        """
        if not self.is_sync or end_offset <= self.in_force.offset:
            return AckOutcome.REPLICATED
        slaves = self._slaves
        if end_offset <= slaves.replicated:
            return AckOutcome.REPLICATED
        if not slaves.is_enough:
            return AckOutcome.NOT_AVAILABLE
        if not len(self._waits) or end_offset <= self._awaited_from:
            self._awaited_from = PhysicalOffset(end_offset - 1)
        self._waits.add(end_offset, now + self.timeout_s, token)
        return None

    def release(self) -> list[T]:
        """Advance the visible watermark; return the tokens of sends that enough slaves hold now."""
        replicated = self._slaves.replicated
        if replicated > self.visible:
            self.visible = replicated
        self._awaited_from = max(self._awaited_from, replicated)
        return self._waits.advance(replicated) if len(self._waits) else []

    def advance_visible(self, end: PhysicalOffset) -> PhysicalOffset:
        """Return the visible watermark; in async mode it moves to `end` first."""
        if not self.is_sync:
            self.visible = max(self.visible, end)
        return self.visible

    def expire(self, now: float) -> list[T]:
        """Return the tokens of sends whose deadline has passed."""
        return self._waits.expire(now)

    def awaited_from(self, end: PhysicalOffset) -> PhysicalOffset:
        """Return the offset from which a slave must hold the log to cover all waiting sends.

        Exact after the last `ask`; after sends have timed out it may be too low, never too high.
        """
        return min(self._awaited_from, end) if len(self._waits) else end

    def next_deadline(self) -> float | None:
        return self._waits.next_deadline()

    def forget(self, token: T) -> None:
        self._waits.discard(token)

    def give_up(self) -> list[T]:
        """Return all tokens: this broker is no longer master, or too few slaves are in sync."""
        return self._waits.fail_all()
