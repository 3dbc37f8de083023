"""When a message that is in the log may be acknowledged.

With ASYNC_FLUSH at once, with SYNC_FLUSH when it is on disk. One callback serves all messages that
were appended together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from rmq.store.append import AppendStatus
from rmq.store.config import FlushMode
from rmq.store.flusher import FlushOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.store.store import MessageStore


@final
class Acknowledger:
    """Knows what acknowledgements wait for."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def is_immediate(self) -> bool:
        """Whether what is appended may be acknowledged without waiting."""
        return self._store.core.config.flush_mode is FlushMode.ASYNC

    def when_safe(self, end_offset: int, callback: Callable[[AppendStatus], None]) -> None:
        """Call back with PUT_OK once the log is safe up to `end_offset`, or with why it is not."""

        def flushed(outcome: FlushOutcome) -> None:
            callback(
                AppendStatus.PUT_OK
                if outcome is FlushOutcome.FLUSHED
                else AppendStatus.FLUSH_DISK_TIMEOUT
            )

        self._store.when_flushed(end_offset, flushed)
