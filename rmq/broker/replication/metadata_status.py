"""How the tables of a slave compare with those of its master. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

CURRENT_S: Final = 30.0
"""A copy that is older is not current: three of the usual intervals."""
CURRENT_COPIES: Final = 3
"""Unless copying takes long: then this many times as long as it took."""
FAILURES_MAX: Final = 1
"""So many failures in a row may be chance: a master that is busy is asked again soon."""


class Table(enum.Enum):
    """What is copied."""

    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "consumer offsets"
    DELAYS = "delay offsets"


class TableStatus(NamedTuple):
    """How the copying of one table goes."""

    copied_at: float | None
    """When it was last like the master's, by the monotonic clock."""
    error: str | None
    """Why the last copy failed."""
    failures: int = 0
    """How many copies have failed since."""
    took_s: float = 0.0
    """How long the last one took that did not fail."""

    def why_not_current(self, now: float) -> str | None:
        """Return why the table does not count as the master's; None if it does."""
        if self.error is not None and (self.copied_at is None or self.failures > FAILURES_MAX):
            return f"not copied: {self.error}"
        if self.copied_at is None:
            return "not copied yet"
        age_s = now - self.copied_at
        if age_s > max(CURRENT_S, CURRENT_COPIES * self.took_s):
            return f"last copied {age_s:.0f} s ago"
        return None


class SyncStatus(NamedTuple):
    """How copying goes."""

    master: str | None
    """Who is asked; None: nobody."""
    tables: Mapping[Table, TableStatus]
    awaited_end: int | None
    """Where the log has to come to before the progress that was copied counts."""

    def why_not_current(self, now: float) -> str | None:
        """Return why this slave does not have its master's tables; None if it has."""
        if self.master is None:
            return "no master is known whose tables may be copied"
        for table, status in self.tables.items():
            reason = status.why_not_current(now)
            if reason is not None:
                return f"{table.value}: {reason}"
        return None
