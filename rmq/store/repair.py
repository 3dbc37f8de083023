"""Gives up the end of a damaged log, at an operator's request (`rmq store cut`).

Opening a store refuses to cut the log where sound records follow the damage, because that loses
messages. When there is no slave and no backup to take the damaged segment from, this does it: what
is cut off is saved first, and the next start recovers what is left.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.errors import CorruptStoreError, StoreLockedError, StoreUnavailableError
from rmq.model.record import NOTHING_WRITTEN, BadRecordError, NeedMoreDataError, read_head
from rmq.model.record_layout import RECORD_PREFIX
from rmq.store.segments import Segment, Segments, is_segment_name
from rmq.store.storage import DiskStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmq.model.offsets import PhysicalOffset
    from rmq.store.storage import Storage

_COPY_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cut:
    """What was cut off."""

    offset: PhysicalOffset
    saved: Path
    saved_bytes: int
    segments_removed: int


def cut_log(
    root: Path,
    offset: PhysicalOffset,
    save_to: Path,
    *,
    commit_log_paths: Sequence[Path] = (),
    storage: Storage | None = None,
) -> Cut:
    """End the log of a store at `offset`, which must be where a record begins or should begin.

    The bytes from there on go to `save_to`, which must not exist. Queues are cut by the next start,
    and the index is built again by it.
    """
    storage = storage if storage is not None else DiskStorage()
    if storage.exists(save_to):
        raise StoreUnavailableError(
            f"{save_to} exists already", hint="name a file that does not exist yet"
        )
    with _locked(storage, root):
        segments = _load(storage, commit_log_paths or (root / "commitlog",))
        if not segments.first <= offset < segments.end:
            raise StoreUnavailableError(
                f"the log goes from {segments.first} to {segments.end}, not over {offset}",
                hint="`rmq store verify` names the offset of the damage",
            )
        _check_reachable(segments, offset)
        later = segments.from_offset(offset)
        saved_bytes = _save(storage, later, offset, save_to)
        # From here on the store is one that was not closed: the next start recovers it.
        storage.write(root / "abort", b"")
        storage.delete(root / "recovery-point")
        for name in storage.names(root / "index"):
            storage.delete(root / "index" / name)
        storage.sync_directory(root)
        removed = len(segments)
        segments.drop_from(later[0].first + 1)
        removed -= len(segments)
        later[0].file.clear_from(offset - later[0].first)
        segments.close()
    return Cut(offset, save_to, saved_bytes, removed)


@contextlib.contextmanager
def _locked(storage: Storage, root: Path) -> Iterator[None]:
    lock = storage.lock(root / "lock")
    if lock is None:
        raise StoreLockedError(str(root), hint="stop the broker first")
    try:
        yield
    finally:
        lock.release()


def _load(storage: Storage, directories: Sequence[Path]) -> Segments:
    sizes = {
        storage.size_of(directory / name)
        for directory in directories
        for name in storage.names(directory)
        if is_segment_name(name)
    }
    if not sizes:
        raise StoreUnavailableError(
            f"{directories[0]} has no segments", hint="give the root directory of a store"
        )
    segments = Segments(storage, directories, max(sizes))
    segments.load(size_key="mappedFileSizeCommitLog")
    segments.extend_last()
    return segments


def _check_reachable(segments: Segments, offset: PhysicalOffset) -> None:
    """Raise `CorruptStoreError` unless the records of the segment lead to `offset`."""
    segment = segments.find(offset)
    assert segment is not None
    position = 0
    while segment.first + position < offset:
        room = segment.size - position
        size = int.from_bytes(segment.buffer[position : position + 4], signed=True)
        end = position + max(min(size, room), RECORD_PREFIX.size)
        data = bytes(segment.buffer[position:end])
        try:
            head = read_head(data, 0, len(data), room, False)
        except (BadRecordError, NeedMoreDataError) as exc:
            reason = str(exc)
        else:
            position += head.size
            if head.size:
                continue
            reason = NOTHING_WRITTEN
        raise CorruptStoreError(
            str(segment.path),
            f"the records before {offset} end here: {reason}",
            offset=segment.first + position,
            hint=f"cut at {segment.first + position} or at the start of a record before it",
        )
    if segment.first + position != offset:
        raise CorruptStoreError(
            str(segment.path),
            "is inside a record",
            offset=offset,
            hint=f"a record ends at {segment.first + position}",
        )


def _save(
    storage: Storage, segments: Sequence[Segment], offset: PhysicalOffset, save_to: Path
) -> int:
    """Copy everything from `offset` on to a file of its own, durably."""
    total = segments[-1].end - offset
    file = storage.create(save_to, total)
    try:
        for segment in segments:
            start = max(offset - segment.first, 0)
            for position in range(start, segment.size, _COPY_BYTES):
                chunk = bytes(segment.buffer[position : position + _COPY_BYTES])
                if chunk.count(0) == len(chunk):
                    # The file is full of zeros already, and need not take room for them.
                    continue
                to = segment.first + position - offset
                file.reserve(to, to + len(chunk))
                file.buffer[to : to + len(chunk)] = chunk
        file.sync()
        storage.sync_directory(save_to.parent)
    finally:
        file.close()
    return total
