"""Up to which offset consumers may read, with hideUnreplicated. Pure.

What is not on enough slaves may be lost in a failover, so a master hides it. A former master goes
on hiding that part until its next master has it, too, or it was cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from rmq.ha.protocol.pending_acks import PendingAcks
    from rmq.model.offsets import PhysicalOffset
    from rmq.store.store import MessageStore


@final
class VisibleBound:
    """Sets the bound in the store of one broker."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._pending_acks: PendingAcks[Any] | None = None
        """As a master."""
        self._hidden_from: PhysicalOffset | None = None
        """A former master hides messages from this offset on."""

    def begin(self, pending_acks: PendingAcks[Any], *, hides: bool) -> None:
        """This broker is master from now on; `hides`: consumers see only what is replicated."""
        self._pending_acks = pending_acks
        if hides:
            self._hidden_from = None
            self._store.set_visible_bound(self._end)

    def end(self) -> None:
        """This broker is master no longer: what is hidden stays so."""
        if self._store.has_visible_bound:
            self._hidden_from = self._end()
        self._pending_acks = None

    def show_all(self) -> None:
        """Let consumers read everything: the log is equal to the master's."""
        if self._hidden_from is not None:
            self._hidden_from = None
            self._store.set_visible_bound(None)

    def _end(self) -> PhysicalOffset:
        log = self._store.log
        if self._pending_acks is not None:
            return self._pending_acks.advance_visible(log.written)
        return log.readable if self._hidden_from is None else self._hidden_from
