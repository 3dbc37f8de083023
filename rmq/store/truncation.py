"""Ends a log earlier than it does: its end, or all of it, turned out to be not the master's.

Cutting takes several steps on several files, and none of them may be the last one done. So what is
to be done is written down first (`request_truncation`, durably, in `<root>/truncation`), opening
the store does it, and the note goes when all of it is on disk. After a crash at any step the next
opening does it again, from the beginning.

The cut itself is a recovery: a recovery point is made for the new end, as if one had been saved
when the log ended there, and everything returns to it. Both slots of `recovery-point` have it
before the first byte of the log goes, so that no crash leaves a point behind the end of the log;
until then it is merely an old point, from which the whole log would be read.

    note, durable
    recover the store as it is; queues and index are complete
    point and checkpoint at the new end, durable (twice: both slots)
    queues and index back to the point; later segments deleted, the last one first; zeros behind
    the end; all of it durable
    another point there
    what refers to later offsets is set back (`on_cut` of the store), durable
    note deleted, durable

To drop a log as a whole nothing of it has to be sound: its segments are moved aside, for they may
be the only copy of something, and what is derived from them is deleted. Segments that were moved
aside before go then. The empty store is opened, and the rest is the same.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from rmq.errors import CorruptStoreError
from rmq.store.checkpoint import CheckpointTimes, Point
from rmq.store.index_file import NO_INDEX_STATE
from rmq.store.log_scan import boundary_before, stored_ms
from rmq.store.queue_table import is_legal_topic
from rmq.store.recovery import LastStop, Recovery
from rmq.store.segments import is_segment_name
from rmq.store.storage import DiskStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmq.model.offsets import PhysicalOffset
    from rmq.store.checkpoint import Checkpoint, RecoveryPoints
    from rmq.store.config import StoreConfig
    from rmq.store.dispatcher import Dispatcher, StoreFiles
    from rmq.store.log_scan import Boundary
    from rmq.store.storage import Storage

NOTE_NAME: Final = "truncation"
ASIDE: Final = "-set-aside-"
"""Between the name of a folder of segments and the time at which they were moved aside."""

logger = logging.getLogger(__name__)


class Truncation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is to be cut off, and why."""

    end: Annotated[int, msgspec.Meta(ge=0)] | None
    """The end of a record, where the log is to end; None drops the whole log."""
    reason: str
    at_ms: int
    """When it was asked for."""


def request_truncation(
    root: Path, truncation: Truncation, *, storage: Storage | None = None
) -> None:
    """Order the next opening of a store to cut its log, however this process ends. Blocks."""
    storage = storage if storage is not None else DiskStorage()
    storage.replace(root / NOTE_NAME, msgspec.json.encode(truncation))


def read_request(root: Path, storage: Storage) -> Truncation | None:
    """Return what is to be cut off; raise `CorruptStoreError` if it cannot be read."""
    path = root / NOTE_NAME
    if not storage.exists(path):
        return None
    # The process that wrote it may have been killed before it was on disk.
    storage.sync_directory(root)
    try:
        return msgspec.json.decode(storage.read(path), type=Truncation)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise CorruptStoreError(
            str(path),
            f"this is no request to cut the log: {exc}",
            hint="the end of the log may not be the master's: put the file right, or remove it"
            " and compare the store with its master",
        ) from exc


def forget_request(root: Path, storage: Storage) -> None:
    """Note, durably, that it is done. Before the log grows again: it would be cut again."""
    storage.delete(root / NOTE_NAME)
    storage.sync_directory(root)


def drop_log(config: StoreConfig, storage: Storage, at_ms: int) -> list[Path]:
    """Move the segments of a log aside and delete what is derived from them, durably.

    Return where they are now: folders beside the ones they were in, with the time in their names.
    """
    root = config.root
    for name in ("recovery-point", "checkpoint"):
        storage.delete(root / name)
    storage.sync_directory(root)
    aside = [
        folder
        for directory in config.commit_log_paths
        if (folder := _set_aside(storage, directory, at_ms)) is not None
    ]
    _delete_files(storage, config.index_path, str.isdecimal)
    for topic in filter(is_legal_topic, storage.names(config.queues_path)):
        folder = config.queues_path / topic
        if not storage.is_directory(folder):
            continue
        for queue_id in filter(str.isdecimal, storage.names(folder)):
            _delete_files(storage, folder / queue_id, is_segment_name)
            _delete_if_empty(storage, folder / queue_id)
        _delete_if_empty(storage, folder)
    return aside


class LogCut:
    """Cuts the log of a store that has just been recovered, and with it what is derived from it."""

    def __init__(
        self,
        files: StoreFiles,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        points: RecoveryPoints,
    ) -> None:
        self._files = files
        self._config = files.config
        self._log = files.log
        self._queues = files.queues
        self._index = files.index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._points = points

    def run(self, end: PhysicalOffset, now_ms: int) -> int:
        """End the log at `end`, which must be the end of a record; return how much is cut off."""
        log = self._log
        if end >= log.written:
            # A crash took what was not flushed, or the log was cut already.
            return 0
        boundary = self._boundary(end)
        cut = log.written - end
        point = self._point_at(boundary)
        self._save(point)
        self._dispatcher.store_ms = boundary.store_ms
        recovery = Recovery(
            self._files,
            self._dispatcher,
            self._checkpoint,
            LastStop(was_clean=False, point=point),
            now_ms=now_ms,
            log_end=end,
        )
        report = recovery.run()
        assert log.written == self._dispatcher.dispatched == end, (log.written, end)
        if not report.used_point:
            logger.warning("queues or index did not return to physical offset %d as they were", end)
        return cut

    def _boundary(self, end: PhysicalOffset) -> Boundary:
        log = self._log
        path = str(log.segments.directories[0])
        if end < log.min_offset:
            raise CorruptStoreError(
                path,
                f"it is to be cut here, but begins at {log.min_offset}",
                offset=end,
                hint="let the whole log be dropped, or remove"
                f" {self._config.root / NOTE_NAME} to keep it",
            )
        boundary = boundary_before(log, self._queues, end)
        if boundary.offset != end:
            raise CorruptStoreError(
                path,
                "it is to be cut here, but that is inside a record",
                offset=end,
                hint=f"a record ends at {boundary.offset}: put that into"
                f" {self._config.root / NOTE_NAME}, or remove the file to keep all",
            )
        return boundary

    def _point_at(self, boundary: Boundary) -> Point:
        end = boundary.offset
        index_name, index_state = "", NO_INDEX_STATE
        index_ms = 0
        if self._index is not None:
            index_name, index_state = self._index.state_below(
                end, lambda physical: stored_ms(self._log, physical)
            )
            # The index time of a checkpoint covers full files only.
            index_ms = max(
                (file.end_ms for file in self._index.files if file.path.name < index_name),
                default=0,
            )
        return Point(
            end,
            sum(queue.end_below(end) for queue in self._queues),
            CheckpointTimes(
                min(self._checkpoint.physical_ms, boundary.store_ms),
                min(self._checkpoint.queues_ms, boundary.store_ms),
                min(self._checkpoint.index_ms, index_ms),
            ),
            index_name,
            index_state,
        )

    def _save(self, point: Point) -> None:
        """Make every recovery from now on begin with this point."""
        self._points.mark_live(point.physical_offset, is_raw=False)
        self._points.save(point)
        # Until this, the point before counts, and behind it the log is whole still.
        self._checkpoint.take(point.times)
        self._checkpoint.save(point.times)
        self._points.save(point)


def _set_aside(storage: Storage, directory: Path, at_ms: int) -> Path | None:
    """Move the segments of a folder aside; done again, it goes on where it stopped."""
    prefix = f"{directory.name}{ASIDE}"
    aside = directory.with_name(f"{prefix}{at_ms}")
    for name in storage.names(directory.parent):
        if name.startswith(prefix) and name != aside.name:
            _delete_files(storage, directory.with_name(name), is_segment_name)
            _delete_if_empty(storage, directory.with_name(name))
    segments = [name for name in storage.names(directory) if is_segment_name(name)]
    if not segments:
        return aside if storage.is_directory(aside) else None
    storage.make_directory(aside)
    for name in segments:
        storage.move(directory / name, aside / name)
    storage.sync_directory(aside)
    storage.sync_directory(directory)
    return aside


def _delete_files(storage: Storage, directory: Path, is_ours: Callable[[str], bool]) -> None:
    names = [name for name in storage.names(directory) if is_ours(name)]
    for name in reversed(names):
        storage.delete(directory / name)
    if storage.is_directory(directory):
        storage.sync_directory(directory)


def _delete_if_empty(storage: Storage, directory: Path) -> None:
    if not storage.names(directory):
        storage.delete(directory)
        storage.sync_directory(directory.parent)
