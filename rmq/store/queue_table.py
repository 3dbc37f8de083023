"""All ConsumeQueues of a store, by topic and queue id."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from rmq.errors import CorruptStoreError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import TOPIC_BYTES_MAX
from rmq.store.consume_queue import ConsumeQueue
from rmq.store.segments import is_segment_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from rmq.store.storage import Storage

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

logger = logging.getLogger(__name__)


def is_legal_topic(topic: str) -> bool:
    """Tell whether a topic may be stored: its name is also that of a directory."""
    return len(topic) <= TOPIC_BYTES_MAX and _TOPIC.fullmatch(topic) is not None


class QueueTable:
    """The queues there are; one comes into being with its first message."""

    def __init__(self, storage: Storage, directory: Path, segment_bytes: int) -> None:
        self.by_key: dict[tuple[str, int], ConsumeQueue] = {}
        self.by_field: dict[tuple[bytes, int], ConsumeQueue] = {}
        """The same by the topic as it is encoded in records, for reads of the log."""
        self.dirty: list[ConsumeQueue] = []
        """Queues that got entries since `take_dirty` was last called."""
        self.unsynced_directories: dict[Path, None] = {}
        """`Segments.unsynced_directories` of all queues."""
        self._storage = storage
        self._directory = directory
        self._segment_bytes = segment_bytes

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.by_key.get((topic, queue_id))

    def end_of(self, topic: str, queue_id: int) -> QueueOffset:
        """Return where a queue ends; 0 if there is none."""
        queue = self.by_key.get((topic, queue_id))
        return QueueOffset(0) if queue is None else queue.next_offset

    def open(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, a new one if there was none. Its files come with its first entry."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            queue = self.by_key[topic, queue_id] = ConsumeQueue(
                self._storage,
                self._directory / topic / str(queue_id),
                topic,
                queue_id,
                self._segment_bytes,
                unsynced_directories=self.unsynced_directories,
            )
            self.by_field[topic.encode(), queue_id] = queue
        return queue

    def has_file(self, topic: str, queue_id: int) -> bool:
        """Tell whether a queue is there and has a file for its next entry."""
        queue = self.by_key.get((topic, queue_id))
        return queue is not None and queue.has_file

    def load(self) -> list[ConsumeQueue]:
        """Find the queues on disk; return those whose files are no run and were removed.

        Everything in a queue is also in the log, so a queue with a hole is built again.
        """
        broken: list[ConsumeQueue] = []
        for topic in self._storage.names(self._directory):
            folder = self._directory / topic
            if not self._storage.is_directory(folder) or not is_legal_topic(topic):
                logger.warning("%s is no topic's directory; it is left alone", folder)
                continue
            for name in self._storage.names(folder):
                if not (name.isascii() and name.isdecimal() and str(int(name)) == name):
                    logger.warning("%s is no queue's directory; it is left alone", folder / name)
                    continue
                queue = self.open(topic, int(name))
                try:
                    queue.load()
                except CorruptStoreError as exc:
                    logger.error("%s; the queue is built again from the log", exc)
                    self._remove_files(folder / name)
                    broken.append(queue)
        return broken

    def _remove_files(self, folder: Path) -> None:
        for name in self._storage.names(folder):
            if is_segment_name(name):
                self._storage.delete(folder / name)

    def of_topics(self, topics: Collection[str]) -> list[ConsumeQueue]:
        """Return all queues of some topics."""
        return [queue for key, queue in self.by_key.items() if key[0] in topics]

    def folder_of(self, topic: str, queue_id: int | None = None) -> Path:
        """Return where the files of a queue are, or all of a topic."""
        folder = self._directory / topic
        return folder if queue_id is None else folder / str(queue_id)

    def forget(self, queues: Iterable[ConsumeQueue]) -> None:
        """Take queues out of the table; the caller deletes their files."""
        had_dirty = False
        for queue in queues:
            del self.by_key[queue.topic, queue.queue_id]
            del self.by_field[queue.topic.encode(), queue.queue_id]
            queue.retire()
            had_dirty = had_dirty or queue.is_dirty
        if had_dirty:
            self.dirty = [queue for queue in self.dirty if not queue.is_deleted]

    def delete_all(self) -> None:
        """Delete all queues and their files, one by one. Blocks."""
        queues = list(self)
        self.forget(queues)
        for queue in queues:
            queue.delete()
        for topic in dict.fromkeys(queue.topic for queue in queues):
            if not self._storage.names(folder := self.folder_of(topic)):
                self._storage.delete(folder)

    def mark_all_dirty(self) -> None:
        """Mark all queues as changed, because it is not known what of them is on disk."""
        for queue in self.by_key.values():
            queue.is_dirty = True
        self.dirty = list(self.by_key.values())

    def take_dirty(self) -> list[ConsumeQueue]:
        """Return the queues with new entries and begin a new list."""
        dirty, self.dirty = self.dirty, []
        for queue in dirty:
            queue.is_dirty = False
        return dirty

    @property
    def entry_total(self) -> int:
        """The sum of all queues' ends."""
        return sum(queue.next_offset for queue in self.by_key.values())

    @property
    def max_physical(self) -> PhysicalOffset:
        """The end of the last record that has an entry in any queue, -1 if none has."""
        ends = (queue.max_physical for queue in self.by_key.values())
        return max(ends, default=PhysicalOffset(-1))

    def close(self) -> None:
        for queue in self.by_key.values():
            queue.close()
