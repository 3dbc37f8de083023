"""Metrics of the store: room on the disks, files, syncs, deletions, and how it was opened."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final, final

from rmq.metrics.families import Catalogue
from rmq.store.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmq.broker.stats.store import StoreStats
    from rmq.metrics.families import Sheet
    from rmq.store.store import MessageStore

CATALOGUE: Final = Catalogue()
_gauge: Final = CATALOGUE.gauge
_counter: Final = CATALOGUE.counter

DISK_RATIO: Final = _gauge(
    "rocketmq_storage_disk_used_ratio",
    "How full the disk is, as the rules of the store go by it; of several, the emptiest.",
    "store",
)
DISK_FREE: Final = _gauge(
    "rocketmq_storage_disk_free_bytes", "Room on that disk that the broker may use.", "store"
)
DISK_SIZE: Final = _gauge("rocketmq_storage_disk_size_bytes", "Size of that disk.", "store")
DISK_LIMIT: Final = _gauge(
    "rocketmq_storage_disk_limit_ratio",
    "Settings: above reclaim, expired files go at once; above clean, all may; above full, "
    "messages are refused.",
    "limit",
)
FILES_BYTES: Final = _gauge("rocketmq_storage_files_bytes", "Size of the store's files.", "store")
SEGMENTS: Final = _gauge("rocketmq_storage_segments", "How many files the store has.", "store")
MAPPED_FILES: Final = _gauge(
    "rocketmq_storage_mapped_files", "Files mapped into memory; the kernel limits their number."
)
MAPPED_BYTES: Final = _gauge("rocketmq_storage_mapped_bytes", "Their size.")
DELETED: Final = _counter(
    "rocketmq_storage_deleted_files_total", "Files of the CommitLog that were deleted.", "reason"
)
FLUSH: Final = CATALOGUE.histogram(
    "rocketmq_storage_flush_latency_seconds", "How long syncs of the CommitLog took."
)
APPENDED: Final = _counter(
    "rocketmq_commitlog_appended_bytes_total", "Bytes by which the CommitLog has grown."
)
READ: Final = _counter(
    "rocketmq_storage_read_messages_total",
    "Messages read for consumers, by where they likely were.",
    "source",
)
RESERVE: Final = _gauge(
    "rocketmq_storage_message_reserve_seconds", "Age of the oldest message of the CommitLog."
)
RECOVERY: Final = _gauge(
    "rocketmq_storage_recovery_seconds", "How long it took to recover when the store was opened."
)
CLEAN: Final = _gauge(
    "rocketmq_storage_last_shutdown_clean", "0 if the store was not closed before it was opened."
)

_QUEUES_PER_STEP: Final = 1000


@final
class StorageMetrics:
    """Shows the state of a store."""

    catalogue: Final = CATALOGUE

    def __init__(
        self, store: MessageStore, stats: StoreStats, *, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._stats = stats
        self._now_ms = now_ms
        self._first_end = int(store.log.written)
        self._oldest: tuple[int, int] | None = None
        """Where the log begins, and when its first message was stored."""
        self._disks: list[tuple[str, float, int, int]] = []

    def refresh(self) -> None:
        """Ask how full the disks are. Blocks."""
        config = self._store.config
        logs = [_disk(self._store, path) for path in config.commit_log_paths]
        disks = (
            ("commitlog", min((disk for disk in logs if disk is not None), default=None)),
            ("consumequeue", _disk(self._store, config.queues_path)),
        )
        self._disks = [(store, *disk) for store, disk in disks if disk is not None]

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        store, stats, config = self._store, self._stats, self._store.config
        for name, ratio, free, size in self._disks:
            sheet.put(DISK_RATIO, ratio, name)
            sheet.put(DISK_FREE, free, name)
            sheet.put(DISK_SIZE, size, name)
        for limit, ratio in (
            ("reclaim", config.disk_used_ratio_max),
            ("clean", config.disk_clean_ratio),
            ("full", config.disk_full_ratio),
        ):
            sheet.put(DISK_LIMIT, ratio, limit)
        yield from self._put_files(sheet)
        for cause, count in store.deleted_segments.items():
            sheet.put(DELETED, count, cause.value)
        sheet.put_histogram(FLUSH, store.sync_durations)
        sheet.put(APPENDED, max(0, store.log.written - self._first_end))
        from_disk = stats.get_count_from_disk
        sheet.put(READ, stats.get_count - from_disk, "memory")
        sheet.put(READ, from_disk, "disk")
        self._put_oldest(sheet)
        sheet.put(RECOVERY, store.recovery.elapsed_s)
        sheet.put(CLEAN, store.recovery.was_clean)
        yield

    def _put_files(self, sheet: Sheet) -> Iterator[None]:
        store, config = self._store, self._store.config
        log_files = len(store.log.segments)
        queue_files = 0
        for number, queue in enumerate(list(store.queues), start=1):
            queue_files += len(queue.segments)
            if number % _QUEUES_PER_STEP == 0:
                yield
        index_files = store.statistics().index_files
        index_bytes = INDEX_HEADER_BYTES
        index_bytes += config.index_slots * INDEX_SLOT_BYTES
        index_bytes += config.index_entries * INDEX_ENTRY_BYTES
        files = {
            "commitlog": (log_files, log_files * config.segment_bytes),
            "consumequeue": (queue_files, queue_files * config.queue_segment_bytes),
            "index": (index_files, index_files * index_bytes),
        }
        for name, (count, size) in files.items():
            sheet.put(SEGMENTS, count, name)
            sheet.put(FILES_BYTES, size, name)
        sheet.put(MAPPED_FILES, sum(count for count, _ in files.values()))
        sheet.put(MAPPED_BYTES, sum(size for _, size in files.values()))

    def _put_oldest(self, sheet: Sheet) -> None:
        begin = int(self._store.log.min_offset)
        if self._oldest is None or self._oldest[0] != begin or self._oldest[1] < 0:
            # It is read once per file that is deleted: one page.
            self._oldest = (begin, self._store.reads.earliest_store_time_of_log())
        stored_ms = self._oldest[1]
        if stored_ms >= 0:
            sheet.put(RESERVE, max(0, self._now_ms() - stored_ms) / 1000)


def _disk(store: MessageStore, path: Path) -> tuple[float, int, int] | None:
    """Return how full a disk is, its room and its size; None if that cannot be known."""
    if not path.exists():
        # It is made with its first file.
        path = store.config.root
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    ratio = store.used_ratio(path)
    return None if ratio < 0 else (ratio, usage.free, usage.total)
