"""What can be wrong with an SQL92 expression, and with a message it is evaluated for."""

from __future__ import annotations

from rmq.errors import RmqError


class SqlSyntaxError(RmqError):
    """An expression cannot be read, compares what cannot be compared, or is over a limit."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"malformed SQL expression at character {position}: {reason}")
        self.reason = reason
        self.position = position
        """Where in the text, counted from 0; its length when the text ends too early."""


class EvaluationError(Exception):
    """A condition cannot be decided for a message, which does not match then."""
