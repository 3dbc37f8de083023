"""What `rmq store inspect` shows about a store, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from rmq.cli.common.shown import shown, time_text
from rmq.errors import CorruptStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.store.reader import Reader
    from rmq.store.reader.index import IndexView
    from rmq.store.reader.state import StoreState


class QueueReport(msgspec.Struct, rename="camel"):
    """One queue."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    entries: int


class IndexReport(msgspec.Struct, rename="camel"):
    """One index file; the fields of its header, or what is wrong with it."""

    name: str
    entries: int = 0
    slots_used: int = 0
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    problem: str | None = None

    @classmethod
    def of(cls, view: IndexView) -> IndexReport:
        try:
            header = view.header
        except CorruptStoreError as bad:
            return cls(name=view.path.name, problem=bad.reason)
        return cls(
            name=view.path.name,
            entries=max(header.entry_count - 1, 0),
            slots_used=header.slots_used,
            begin_timestamp=header.begin_ms,
            end_timestamp=header.end_ms,
            begin_physical_offset=header.begin_offset,
            end_physical_offset=header.end_offset,
        )


class CheckpointReport(msgspec.Struct, rename="camel"):
    """The times in `checkpoint`."""

    physical_timestamp: int
    queues_timestamp: int
    index_timestamp: int


class StoreReport(msgspec.Struct, rename="camel"):
    """One store."""

    path: str
    state: str
    """`open`, `closed` or `crashed`."""
    process_id: int | None
    """Of the broker that has it open, if that can be told."""
    segments: int
    segment_bytes: int
    min_physical_offset: int
    max_physical_offset: int
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    flushed_physical_offset: int | None
    """As the broker reports that has the store open."""
    recovery_physical_offset: int | None
    """Where a recovery begins to read, if one of our brokers wrote the store last."""
    checkpoint: CheckpointReport | None
    queues: list[QueueReport]
    index: list[IndexReport]

    @classmethod
    def of(cls, reader: Reader) -> StoreReport:
        state = reader.state
        point, checkpoint = state.recovery_point, state.checkpoint
        return cls(
            path=str(reader.root),
            state=_state_of(state),
            process_id=state.lock_holder.pid if state.lock_holder is not None else None,
            segments=len(reader.segments),
            segment_bytes=reader.segment_bytes,
            min_physical_offset=reader.min_offset,
            max_physical_offset=reader.end_offset,
            first_store_timestamp=reader.first_store_ms,
            last_store_timestamp=reader.last_store_ms,
            flushed_physical_offset=state.live_flushed,
            recovery_physical_offset=point.physical_offset if point is not None else None,
            checkpoint=CheckpointReport(*checkpoint) if checkpoint is not None else None,
            queues=[QueueReport(*bounds, bounds.entry_count) for bounds in reader.queues()],
            index=[IndexReport.of(view) for view in reader.index_files()],
        )

    def as_json(self) -> str:
        return json.dumps(msgspec.to_builtins(self), indent=2)

    def as_text(self) -> str:
        lines = [*_table(self._facts())]
        if self.queues:
            rows = [
                (shown(each.topic), each.queue_id, each.min_offset, each.max_offset, each.entries)
                for each in self.queues
            ]
            lines += ["", *_table([("topic", "queue", "min", "max", "messages"), *rows])]
        if self.index:
            titles = ("index file", "keys", "slots", "from", "to", "physical offsets")
            lines += ["", *_table([titles, *map(_index_row, self.index)])]
        return "\n".join(lines)

    def _facts(self) -> list[tuple[str, object]]:
        facts: list[tuple[str, object]] = [
            ("store", shown(self.path)),
            ("state", self._state_text()),
            ("log", f"{self.segments} segments of {self.segment_bytes} bytes"),
            ("offsets", f"{self.min_physical_offset} to {self.max_physical_offset}"),
        ]
        if self.first_store_timestamp is not None and self.last_store_timestamp is not None:
            first, last = time_text(self.first_store_timestamp), self.last_store_timestamp
            facts.append(("stored", f"{first} to {time_text(last)}"))
        if self.flushed_physical_offset is not None:
            facts.append(("flushed", f"up to {self.flushed_physical_offset}"))
        if self.checkpoint is not None:
            names, times = ("log", "queues", "index"), msgspec.structs.astuple(self.checkpoint)
            known = [
                f"{name} {time_text(time)}" for name, time in zip(names, times, strict=True) if time
            ]
            facts.append(("checkpoint", ", ".join(known) or "no time yet"))
        if self.recovery_physical_offset is not None:
            facts.append(("recovery", f"begins at {self.recovery_physical_offset}"))
        facts.append(("messages", str(sum(each.entries for each in self.queues))))
        return facts

    def _state_text(self) -> str:
        if self.state == "open":
            who = f"process {self.process_id}" if self.process_id is not None else "another process"
            return f"open in {who}"
        if self.state == "closed":
            return "closed cleanly"
        return "not closed cleanly; a broker recovers it when it starts"


def _state_of(state: StoreState) -> str:
    if state.is_live:
        return "open"
    return "crashed" if state.is_abort_present else "closed"


def _index_row(each: IndexReport) -> tuple[object, ...]:
    if each.problem is not None:
        return (shown(each.name), "", "", each.problem, "", "")
    return (
        shown(each.name),
        each.entries,
        each.slots_used,
        time_text(each.begin_timestamp),
        time_text(each.end_timestamp),
        f"{each.begin_physical_offset} to {each.end_physical_offset}",
    )


def _table(rows: Sequence[tuple[object, ...]]) -> list[str]:
    """Return rows as lines with aligned columns, numbers to the right."""
    widths = [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            str(cell).rjust(width) if isinstance(cell, int) else str(cell).ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
