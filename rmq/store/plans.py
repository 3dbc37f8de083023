"""What blocks, cut out of the store so that a thread can do it: syncs, and deletions of files.

`StoreCore` plans the work of one moment, `run` does it, and `StoreCore` applies the result. A plan
contains everything it needs: the store may change meanwhile.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.errors import StorageError
from rmq.store.segments import is_segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.model.offsets import PhysicalOffset, QueueOffset
    from rmq.store.checkpoint import Checkpoint, Point, RecoveryPoints
    from rmq.store.consume_queue import ConsumeQueue
    from rmq.store.index_file import IndexFile
    from rmq.store.segments import Segment
    from rmq.store.storage import Storage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Segments to sync so that everything below an offset is on disk."""

    until: PhysicalOffset
    store_ms: int
    segments: tuple[Segment, ...]
    sync_errors: list[StorageError]
    """Shared by all plans: the system reports an error once, and then the next sync succeeds."""
    log_cuts: int
    """`CommitLog.cuts` at that time: what came in the place of what was cut is not synced."""

    def run(self) -> None:
        """Sync them. Blocks."""
        try:
            for segment in self.segments:
                segment.sync()
        except StorageError as exc:
            self.sync_errors.append(exc)
            raise


@dataclass(frozen=True, slots=True)
class PointPlan:
    """What to sync so that a recovery can begin at a point."""

    point: Point
    flush: FlushPlan
    queues: tuple[tuple[ConsumeQueue, QueueOffset, tuple[Segment, ...]], ...]
    index_files: tuple[IndexFile, ...]
    directories: tuple[Path, ...]
    """Those with files that were created since the last point."""
    storage: Storage
    points: RecoveryPoints
    checkpoint: Checkpoint
    queue_deletions: int
    """How many times queues had been deleted when the entries were counted."""

    def run(self) -> None:
        """Sync log, queues and index, then save the point. Blocks; one at a time."""
        self.flush.run()
        for _, _, segments in self.queues:
            for segment in segments:
                segment.sync()
        for file in self.index_files:
            file.sync()
        for directory in self.directories:
            try:
                self.storage.sync_directory(directory)
            except StorageError:
                # A topic that is deleted meanwhile needs it no longer.
                if self.storage.is_directory(directory):
                    raise
        if self.flush.sync_errors:
            raise self.flush.sync_errors[0]
        # In this order, see RecoveryPoints.matching.
        self.points.save(self.point)
        self.checkpoint.save(self.point.times)


@dataclass(frozen=True, slots=True)
class QueuesPlan:
    """Queues whose first files are made before they get entries."""

    queues: tuple[ConsumeQueue, ...]

    def run(self) -> StorageError | None:
        """Make the files. Blocks. Return why some could not be made, None if all were.

        Nothing is synced: until the next recovery point, which syncs their directories, a crash
        may take files and directories, and they are built again from the log.
        """
        try:
            for queue in self.queues:
                queue.make_first_file()
        except StorageError as exc:
            return exc
        return None


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """Queues that are no longer there, and whose folders were moved out of the way."""

    queues: tuple[ConsumeQueue, ...]
    folders: tuple[Path, ...]
    """Where they were moved to."""
    directories: tuple[Path, ...]
    """What has to be synced for that to last, in this order."""
    storage: Storage

    def run(self) -> None:
        """Make the deletion durable, then delete the files. Blocks.

        Files that are left, of a crash or a failure, are deleted when the store is opened.
        """
        for directory in self.directories:
            self.storage.sync_directory(directory)
        for queue in self.queues:
            queue.close()
        for folder in self.folders:
            delete_folder(self.storage, folder)


def delete_folder(storage: Storage, folder: Path) -> None:
    """Delete a folder of queues with all segments below it; files of others stay. Blocks."""
    for name in storage.names(folder):
        path = folder / name
        if storage.is_directory(path):
            delete_folder(storage, path)
        elif is_segment_name(name):
            storage.delete(path)
    if storage.is_directory(folder):
        if storage.names(folder):
            logger.warning("%s has other files than those of queues; they stay", folder)
        else:
            storage.delete(folder)


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """Segments that are no longer part of the log and whose files can go."""

    segments: tuple[Segment, ...]
    storage: Storage

    def run(self) -> None:
        """Delete the files. Blocks: removing a large file takes its time.

        One by one on disk: a power cut must not leave an older one without the next.
        """
        for segment in self.segments:
            segment.delete()
            self.storage.sync_directory(segment.path.parent)
