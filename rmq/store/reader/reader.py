"""A read-only view of a store directory, for tools and for Spark.

A `Reader` opens files for reading and changes nothing: no lock is taken, no file is created, so it
works on a read-only file system, beside a running broker, and while old segments are deleted under
it. It is plain blocking code without trio, belongs to one thread, and pickles as the arguments it
was made from, so that a copy in another process opens the directory again.

What it guarantees: every record it returns lies whole below `end_offset`, has the right CRC and is
where it says it is; a message of a queue is the one with that queue offset. Anything else below the
end is a `CorruptStoreError`. What it does not know: whether the queues and the index have all
that is in the log. `rmq.store.verify` finds out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from rmq.errors import CorruptStoreError, StorageError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import KEY_SEPARATOR, KEYS, UNIQ_KEY, decode_text
from rmq.model.record import RecordHead, StoredRecord, parse_message_id
from rmq.store.key_hash import TopicKeys
from rmq.store.reader.end import find_end
from rmq.store.reader.files import (
    FileGoneError,
    FilePool,
    SegmentFile,
    list_files,
    translated,
)
from rmq.store.reader.index import IndexView, list_index
from rmq.store.reader.log import LogFiles
from rmq.store.reader.messages import QueueBounds, QueueReader
from rmq.store.reader.queue import QueueEntry, QueueFiles
from rmq.store.reader.state import StoreState, read_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from rmq.store.reader.log import OnBad


class Reader:
    """One store directory."""

    def __init__(
        self,
        root: Path,
        *,
        commit_log_paths: Sequence[Path] | None = None,
        segment_bytes: int | None = None,
        index_slots: int | None = None,
        index_entries: int | None = None,
    ) -> None:
        """Open the store in `root`.

        `commit_log_paths` are the directories of the log if it is not in `commitlog` of the root.
        The size of a segment is that of the files; how an index file is divided is found out or
        must be given, see `rmq.store.reader.index`.
        """
        self.root = root
        self._arguments = (root, commit_log_paths, segment_bytes, index_slots, index_entries)
        self._log_paths = tuple(commit_log_paths or (root / "commitlog",))
        _require_store(root, self._log_paths)
        self._files = FilePool()
        self._index_slots = index_slots
        self._index_entries = index_entries
        self._queues: dict[tuple[str, int], QueueReader] = {}
        self._index: list[IndexView] = []
        self._end: PhysicalOffset | None = None
        self.log = LogFiles(self._files, self._log_paths, segment_bytes)
        self.state: StoreState = read_state(root)
        """Who has the store open and how it was left; see `refresh`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, self._arguments

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; the reader opens them again if it is used."""
        self._files.close()

    def refresh(self) -> None:
        """Read the directory again: a running broker goes on writing and deleting."""
        self._files.close()
        self._queues.clear()
        self.log.refresh()
        self.state = read_state(self.root)
        self._end = None

    # --- the log ---------------------------------------------------------------------------

    @property
    def segments(self) -> list[SegmentFile]:
        """The files of the log."""
        return self.log.segments

    @property
    def segment_bytes(self) -> int:
        return self.log.segment_bytes

    @property
    def min_offset(self) -> PhysicalOffset:
        """The physical offset at which the log begins."""
        return PhysicalOffset(self.log.min_offset)

    @property
    def end_offset(self) -> PhysicalOffset:
        """The physical offset behind the last record that may be read.

        In a store that one of our brokers has open that is what it has flushed. Otherwise the log
        is read to the first byte that is no sound record, see `rmq.store.reader.end`. It stays what
        it was found to be until `refresh`.
        """
        if self._end is None:
            self._end = PhysicalOffset(find_end(self.log, self.state, self._has_entry))
        return self._end

    def _has_entry(self, head: RecordHead) -> bool:
        queue = self._queue(decode_text(head.topic), head.queue_id, head.physical_offset)
        return queue is not None and queue.has(head)

    def heads(
        self,
        start: PhysicalOffset | None = None,
        stop: PhysicalOffset | None = None,
        *,
        verify_crc: bool = False,
        on_bad: OnBad | None = None,
    ) -> Iterator[RecordHead]:
        """Yield the heads of the records in physical order; faster than `records`.

        The arguments are those of `records`. The CRC of the bodies is checked only if asked for.
        """
        bounds = self._bounds(start, stop)
        return self.log.heads(*bounds, verify_crc=verify_crc, on_bad=on_bad)

    def records(
        self,
        start: PhysicalOffset | None = None,
        stop: PhysicalOffset | None = None,
        *,
        on_bad: OnBad | None = None,
    ) -> Iterator[StoredRecord]:
        """Yield the records from physical offset `start` to `stop`, by default all.

        `start` must be where a record begins, or lie before the log; a record that does not end at
        `stop` or before is left out. Bytes that are no sound record raise `CorruptStoreError`; with
        `on_bad` the error is handed to that, and reading goes on with the next sound record.
        Segments that retention deletes before their turn are skipped.
        """
        return self.log.records(*self._bounds(start, stop), on_bad=on_bad)

    def _bounds(
        self, start: PhysicalOffset | None, stop: PhysicalOffset | None
    ) -> tuple[PhysicalOffset, PhysicalOffset]:
        first = self.min_offset if start is None else max(start, self.min_offset)
        return first, self.end_offset if stop is None else min(stop, self.end_offset)

    def record_at(self, physical_offset: PhysicalOffset) -> StoredRecord | None:
        """Return the record at a physical offset; None if it is not within the log."""
        return self.log.record_at(physical_offset, self.end_offset)

    def record_by_id(self, message_id: str) -> StoredRecord | None:
        """Return the record with an offset message id; None if the log does not have it.

        Raises `ValueError` if the text is no such id.
        """
        host, physical_offset = parse_message_id(message_id)
        record = self.record_at(physical_offset)
        return record if record is not None and record.store_host == host else None

    @property
    def first_store_ms(self) -> int | None:
        """When the first record was stored; None if there is none."""
        return next((head.store_ms for head in self.heads(on_bad=lambda _: None)), None)

    @property
    def last_store_ms(self) -> int | None:
        """When the last record was stored; None if there is none."""
        newest = PhysicalOffset(0)
        for bounds in self.queues():
            for entry in self.queue_entries(
                bounds.topic, bounds.queue_id, QueueOffset(bounds.max_offset - 1)
            ):
                newest = max(newest, entry.physical_offset)
        for segment in reversed(self.segments):
            heads = self.heads(max(PhysicalOffset(segment.first), newest), on_bad=lambda _: None)
            for last in deque(heads, maxlen=1):
                return last.store_ms
        return None

    # --- queues ----------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Return the topics that have a ConsumeQueue."""
        folder = self.root / "consumequeue"
        return [name for name, size in list_files(folder) if size is None]

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of a topic."""
        names = list_files(self.root / "consumequeue" / topic)
        return sorted(int(name) for name, size in names if size is None and _is_number(name))

    def queue(self, topic: str, queue_id: int) -> QueueBounds | None:
        """Return the bounds of a queue; None if there is no such queue."""
        queue = self._queue(topic, queue_id, self.end_offset)
        return None if queue is None else queue.bounds()

    def queues(self) -> Iterator[QueueBounds]:
        """Yield the bounds of all queues, by topic and number."""
        for topic in self.topics():
            for queue_id in self.queue_ids(topic):
                bounds = self.queue(topic, queue_id)
                if bounds is not None:
                    yield bounds

    def queue_entries(
        self,
        topic: str,
        queue_id: int,
        start: QueueOffset | None = None,
        stop: QueueOffset | None = None,
    ) -> Iterator[QueueEntry]:
        """Yield the entries of a queue from queue offset `start` to `stop`, by default all.

        Offsets that the queue does not have (yet, or any longer) are left out.
        """
        queue = self._queue(topic, queue_id, self.end_offset)
        return iter(()) if queue is None else queue.entries(start, stop)

    def messages(
        self,
        topic: str,
        queue_id: int,
        start: QueueOffset | None = None,
        stop: QueueOffset | None = None,
        *,
        on_bad: OnBad | None = None,
    ) -> Iterator[StoredRecord]:
        """Yield the messages of a queue from queue offset `start` to `stop`, by default all.

        Messages that retention deletes before their turn are skipped. An entry without a sound
        record that belongs to it raises `CorruptStoreError`, or is reported to `on_bad`.
        """
        queue = self._queue(topic, queue_id, self.end_offset)
        return iter(()) if queue is None else queue.messages(start, stop, on_bad)

    def queue_offset_by_time(self, topic: str, queue_id: int, store_ms: int) -> QueueOffset:
        """Return the queue offset of the message stored nearest to a time, as 4.9.8 chooses it.

        An exact hit if there is one; otherwise the nearer neighbour within one file of the queue,
        the earlier of two equally near. 0 if there is no message. A stock broker picks the file by
        its modification time; here the records tell, because copying a store loses that time.
        """
        queue = self._queue(topic, queue_id, self.end_offset)
        return QueueOffset(0) if queue is None else queue.offset_by_time(store_ms)

    def queue_files(self, topic: str, queue_id: int) -> QueueFiles:
        """Return the files of a queue, whether or not they exist, with all their entries."""
        folder = topic if _is_file_name(topic) else f"%{topic.encode().hex()}"
        directory = self.root / "consumequeue" / folder / str(queue_id)
        return QueueFiles(self._files, directory, topic, queue_id)

    def _queue(self, topic: str, queue_id: int, log_end: PhysicalOffset) -> QueueReader | None:
        known = self._queues.get((topic, queue_id))
        if known is None:
            files = self.queue_files(topic, queue_id)
            if not files.segments:
                return None
            known = QueueReader(files, self.log, log_end)
            if self._end is not None:
                self._queues[topic, queue_id] = known
        return known

    # --- the index -------------------------------------------------------------------------

    def index_files(self) -> list[IndexView]:
        """Return the index files, the oldest first."""
        views, _ = list_index(
            self._files, self.root / "index", self._index_slots, self._index_entries
        )
        # How a file is divided was found out once and stays so.
        known = {(view.path, view.size): view for view in self._index}
        self._index = [known.get((view.path, view.size), view) for view in views]
        return self._index

    def find(
        self, topic: str, key: str, *, begin_ms: int | None = None, end_ms: int | None = None
    ) -> Iterator[StoredRecord]:
        """Yield the records of a topic that carry a key, the newest first, each once.

        A key is one of the words of KEYS, or the unique key of the producer. `begin_ms` and
        `end_ms` bound the store time, both included.
        """
        key_hash = TopicKeys(topic).index_hash(key.encode("utf-8", "replace"))
        begin = begin_ms if begin_ms is not None else -(2**63)
        end = end_ms if end_ms is not None else 2**63 - 1
        previous = -1
        for view in reversed(self.index_files()):
            try:
                header = view.header
                if header.entry_count <= 1 or not header.begin_ms <= end or header.end_ms < begin:
                    continue
                offsets = list(view.find(key_hash))
            except FileGoneError:
                continue
            # Dispatching a record a second time adds its keys a second time.
            for offset in sorted(set(offsets), reverse=True):
                if offset == previous:
                    continue
                previous = offset
                record = self._indexed_record(offset)
                if (
                    record is not None
                    and record.topic == topic
                    and begin <= record.store_ms <= end
                    and has_key(record, key)
                ):
                    yield record

    def _indexed_record(self, offset: PhysicalOffset) -> StoredRecord | None:
        try:
            return self.record_at(offset)
        except CorruptStoreError:
            # After a crash a stock broker keeps index entries for records that are gone, so that
            # an entry without a record does not mean damage to the log.
            return None


def has_key(record: StoredRecord, key: str) -> bool:
    """Tell whether a record carries a key."""
    properties = record.properties
    return key == properties.get(UNIQ_KEY) or key in properties.get(KEYS, "").split(KEY_SEPARATOR)


def _is_file_name(topic: str) -> bool:
    """Tell whether a topic can be the name of a folder; one from a damaged record may not be."""
    return topic not in ("", ".", "..") and not set(topic) & {"/", "\0"}


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _reopen(
    root: Path,
    commit_log_paths: Sequence[Path] | None,
    segment_bytes: int | None,
    index_slots: int | None,
    index_entries: int | None,
) -> Reader:
    return Reader(
        root,
        commit_log_paths=commit_log_paths,
        segment_bytes=segment_bytes,
        index_slots=index_slots,
        index_entries=index_entries,
    )


def _require_store(root: Path, log_paths: tuple[Path, ...]) -> None:
    """Raise `StorageError` if there is no store."""
    # One that was just created has no log yet.
    traces = (*log_paths, root / "lock", root / "checkpoint")
    try:
        if not root.is_dir():
            reason = "it is not a directory" if root.exists() else "there is no such directory"
        elif not any(path.exists() for path in traces):
            reason = f"{' or '.join(map(str, log_paths))} is not there"
        else:
            return
    except OSError as exc:
        raise translated("open a store in", root, exc) from exc
    hint = "give the directory that holds commitlog, consumequeue and index (storePathRootDir)"
    raise StorageError("open a store in", str(root), reason, hint=hint)
