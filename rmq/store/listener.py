"""Callbacks through which a running store informs and asks its broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.model.offsets import PhysicalOffset
    from rmq.store.dispatcher import Dispatched


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreListener:
    """Callables that a store keeps from `MessageStore.listen` on.

    Each is called in the step in which it happens, must not block and must not raise.
    """

    appended: Callable[[], None]
    """Messages were appended: once per call of `append`, `append_batch` or `append_entries`.

    Not called for bytes of a master's log.
    """
    dispatched: Callable[[Dispatched], None]
    """A record got an entry in a queue that is watched (`ConsumeQueue.is_watched`)."""
    copied: Callable[[int, int], None]
    """Called with how many records, of which size in all, were read back from the log and
    dispatched: a slave's, or a master's own that could not be dispatched when they were appended.
    """
    needed_from: Callable[[], PhysicalOffset]
    """Return the offset from which on slaves still need the log, its end if none does.

    Nothing behind it expires, unless the disk is so full that segments go before their time.
    """
