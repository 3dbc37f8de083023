"""Requests of this client that are in flight. Pure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.errors import ClientError
    from rmq.remoting.codes import RequestCode
    from rmq.remoting.command import Command

logger = logging.getLogger(__name__)


@final
class Call:
    """A request of this client that waits for its response."""

    __slots__ = ("code", "deadline", "on_outcome", "opaque", "outcome", "started_at", "timeout_s")

    def __init__(
        self,
        opaque: int,
        code: RequestCode,
        started_at: float,
        timeout_s: float,
        on_outcome: Callable[[Command | ClientError], None] | None,
    ) -> None:
        self.opaque = opaque
        self.code = code
        self.started_at = started_at
        self.timeout_s = timeout_s
        self.deadline = started_at + timeout_s
        self.on_outcome = on_outcome
        self.outcome: Command | ClientError | None = None
        """The response, or the error it failed with; None while the call is in flight."""

    def complete(self, outcome: Command | ClientError) -> None:
        """Give the call its outcome, once."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        if self.on_outcome is None:
            return
        try:
            self.on_outcome(outcome)
        except Exception:
            # The other calls of the connection must still be completed.
            logger.exception("callback for the response to %s raised", self.code.name)
