"""What transactions need of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.store.append import AppendResult
    from rmq.store.reads import MessageReads
    from rmq.store.record import NewMessage


class Store(Protocol):
    """Appends and reads messages at once; waiting for the disk is not done here."""

    @property
    def reads(self) -> MessageReads: ...

    def append(self, messages: Sequence[NewMessage]) -> list[AppendResult]: ...
