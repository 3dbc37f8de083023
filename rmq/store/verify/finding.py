"""What a check of a store finds."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

from rmq.model.offsets import PhysicalOffset, QueueOffset

if TYPE_CHECKING:
    from pathlib import Path


class Severity(enum.Enum):
    """Whether a finding means that something is wrong."""

    ERROR = "error"
    NOTE = "note"
    """Nothing is lost: a broker leaves it like this, or repairs it when it starts."""


class Kind(enum.Enum):
    """What a finding is about."""

    SEGMENT = "segment"
    """A file of the log: missing, of another size, or none at all."""
    RECORD = "record"
    """Bytes of the log that are no sound record."""
    END = "end"
    """Where the log ends."""
    QUEUE = "queue"
    """The entries of a ConsumeQueue, or its files."""
    INDEX = "index"
    """The header, the slots or the entries of an index file."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found, and where."""

    severity: Severity
    kind: Kind
    path: str
    text: str
    physical_offset: PhysicalOffset | None = None
    queue_offset: QueueOffset | None = None

    def __str__(self) -> str:
        place = [self.path]
        if self.queue_offset is not None:
            place.append(f"queue offset {self.queue_offset}")
        if self.physical_offset is not None:
            place.append(f"physical offset {self.physical_offset}")
        return f"{self.severity.value}: {self.kind.value}: {', '.join(place)}: {self.text}"


class Findings:
    """Collects what several checks find until it is taken."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._found: list[Finding] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def take(self) -> list[Finding]:
        """Return what was found since the last time."""
        found, self._found = self._found, []
        return found

    def error(
        self,
        path: Path | str,
        text: str,
        *,
        physical_offset: PhysicalOffset | None = None,
        queue_offset: QueueOffset | None = None,
    ) -> None:
        self.add(Severity.ERROR, path, text, physical_offset, queue_offset)

    def note(
        self,
        path: Path | str,
        text: str,
        *,
        physical_offset: PhysicalOffset | None = None,
        queue_offset: QueueOffset | None = None,
    ) -> None:
        self.add(Severity.NOTE, path, text, physical_offset, queue_offset)

    def add(
        self,
        severity: Severity,
        path: Path | str,
        text: str,
        physical_offset: PhysicalOffset | None = None,
        queue_offset: QueueOffset | None = None,
    ) -> None:
        self._found.append(
            Finding(
                severity=severity,
                kind=self._kind,
                path=str(path),
                text=text,
                physical_offset=physical_offset,
                queue_offset=queue_offset,
            )
        )


class DamagedRanges:
    """Ranges of the log that are not sound records, with sound ones behind them."""

    def __init__(self) -> None:
        self._ranges: list[tuple[PhysicalOffset, PhysicalOffset]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, start: PhysicalOffset, stop: PhysicalOffset) -> None:
        self._ranges.append((start, stop))

    def __contains__(self, offset: PhysicalOffset) -> bool:
        return any(start <= offset < stop for start, stop in self._ranges)
