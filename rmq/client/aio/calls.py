"""Requests of an asyncio client that are in flight."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.aio.connection import Connection
    from rmq.errors import ClientError
    from rmq.remoting.command import Command

logger = logging.getLogger(__name__)


@final
class Call:
    """A request that waits for its response."""

    __slots__ = (
        "code",
        "connection",
        "is_complete",
        "on_outcome",
        "opaque",
        "sent_at",
        "timeout_s",
    )

    def __init__(
        self,
        connection: Connection,
        opaque: int,
        code: int,
        sent_at: float,
        timeout_s: float,
        on_outcome: Callable[[Command | ClientError], None],
    ) -> None:
        self.connection = connection
        self.opaque = opaque
        self.code = code
        self.sent_at = sent_at
        self.timeout_s = timeout_s
        self.on_outcome = on_outcome
        self.is_complete = False

    def complete(self, outcome: Command | ClientError) -> None:
        if self.is_complete:
            return
        self.is_complete = True
        # The heap of deadlines keeps the call for a while; its callback need not live as long.
        on_outcome, self.on_outcome = self.on_outcome, ignored
        try:
            on_outcome(outcome)
        except Exception:
            # The other calls must still be completed.
            logger.exception("callback for the response of %s raised", self.connection.peer)


def ignored(outcome: Command | ClientError) -> None:
    """Replaces the callback of a completed call."""
