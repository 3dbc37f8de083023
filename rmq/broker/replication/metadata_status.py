"""Whether the tables that a slave copies are current. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

CURRENT_S: Final = 30.0
"""A copy that is older than this is not current: three of the usual intervals."""
CURRENT_COPIES: Final = 3
"""If copying takes long, the limit is this many times as long as the last copy took."""
FAILURES_MAX: Final = 1
"""This many failures in a row are tolerated: a busy master is asked again soon."""


class Table(enum.Enum):
    """The tables that a slave copies."""

    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "consumer offsets"
    DELAYS = "delay offsets"


class TableStatus(NamedTuple):
    """State of the copy of one table."""

    copied_at: float | None
    """When it was last equal to the master's, on the monotonic clock."""
    error: str | None
    """Why the last copy failed."""
    failures: int = 0
    """How many copies have failed since."""
    took_s: float = 0.0
    """How long the last successful copy took."""

    def why_not_current(self, now: float) -> str | None:
        """Return why the table is not current; None if it is."""
        if self.error is not None and (self.copied_at is None or self.failures > FAILURES_MAX):
            return f"not copied: {self.error}"
        if self.copied_at is None:
            return "not copied yet"
        age_s = now - self.copied_at
        if age_s > max(CURRENT_S, CURRENT_COPIES * self.took_s):
            return f"last copied {age_s:.0f} s ago"
        return None


class SyncStatus(NamedTuple):
    """State of all copies."""

    master: str | None
    """The broker that tables are copied from."""
    tables: Mapping[Table, TableStatus]
    awaited_end: int | None
    """The end that the log has to reach before the copied progress is applied."""

    def why_not_current(self, now: float) -> str | None:
        """Return why this slave's tables are not current; None if they are."""
        if self.master is None:
            return "no master is known whose tables may be copied"
        for table, status in self.tables.items():
            reason = status.why_not_current(now)
            if reason is not None:
                return f"{table.value}: {reason}"
        return None
