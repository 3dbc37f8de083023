"""Settings of the store, each under the name it has in `broker.conf`.

Defaults are those of RocketMQ 4.9.8 MessageStoreConfig. What is ours says so.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.store.layout import QUEUE_ENTRY_BYTES

if TYPE_CHECKING:
    from pathlib import Path

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
PAGE_BYTES: Final = 4096

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_DELAY_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class FlushMode(enum.Enum):
    """`flushDiskType`: whether an append waits for the disk."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreConfig:
    """Where a store is and how it behaves."""

    root: Path
    """`storePathRootDir`."""
    commit_log_paths: tuple[Path, ...] = ()
    """`storePathCommitLog`, several separated by commas; default: `commitlog` in the root."""
    segment_bytes: int = GIB
    """`mappedFileSizeCommitLog`: size of a CommitLog segment."""
    queue_segment_bytes: int = 300_000 * QUEUE_ENTRY_BYTES
    """`mappedFileSizeConsumeQueue`: size of a ConsumeQueue segment, rounded up to whole entries."""
    index_enabled: bool = True
    """`messageIndexEnable`."""
    index_safe: bool = False
    """`messageIndexSafe`: a stock recovery starts early enough to rebuild the index too."""
    index_slots: int = 5_000_000
    """`maxHashSlotNum`."""
    index_entries: int = 20_000_000
    """`maxIndexNum`."""
    message_bytes_max: int = 4 * MIB
    """`maxMessageSize`: largest body; a whole record may have 64 KiB more."""

    flush_mode: FlushMode = FlushMode.ASYNC
    """`flushDiskType`."""
    flush_interval_ms: int = 500
    """`flushIntervalCommitLog`: pause between two flushes in the background."""
    flush_least_pages: int = 4
    """`flushCommitLogLeastPages`: a flush in the background waits for this many new pages."""
    flush_thorough_interval_ms: int = 10_000
    """`flushCommitLogThoroughInterval`: after this long a flush waits for nothing."""
    sync_flush_timeout_ms: int = 5_000
    """`syncFlushTimeout`: how long an append waits for the disk."""
    recovery_point_bytes: int = 128 * MIB
    """`recoveryPointBytes`, ours: after this much log the queues and the index are synced, too.

    It bounds what is read again after a crash. Less makes recovery faster and writes the slots of
    the index more often. It stands in the place of `flushIntervalConsumeQueue` and its kin: what
    queues hold is in the log, too, and needs no flush of its own between two points.
    """
    recovery_point_interval_ms: int = 10_000
    """`recoveryPointInterval`, ours: the same by time; an idle store has nothing to recover."""

    transient_pool_enabled: bool = False
    """`transientStorePoolEnable`: append to locked memory first; needs ASYNC_FLUSH."""
    transient_pool_size: int = 5
    """`transientStorePoolSize`: segments in the pool."""
    commit_interval_ms: int = 200
    """`commitIntervalCommitLog`: pause between two writes from the pool to the file."""
    warm_up: bool = False
    """`warmMapedFileEnable`: touch all of a new segment and lock it in memory."""

    check_crc_on_recover: bool = True
    """`checkCRCOnRecover`."""
    reserved_hours: int = 72
    """`fileReservedTime`: how long a segment is kept after its last write."""
    delete_hours: frozenset[int] = frozenset({4})
    """`deleteWhen`: local hours in which expired segments are deleted."""
    disk_used_ratio_max: float = 0.75
    """`diskMaxUsedSpaceRatio`: expired segments are deleted at any hour above this."""
    disk_clean_ratio: float = 0.85
    """`rocketmq.broker.diskSpaceCleanForciblyRatio`: segments go before their time above this."""
    disk_full_ratio: float = 0.90
    """`rocketmq.broker.diskSpaceWarningLevelRatio`: appends are refused above this."""
    clean_forcibly: bool = True
    """`cleanFileForciblyEnable`."""
    clean_interval_ms: int = 10_000
    """`cleanResourceInterval`."""
    delete_batch_max: int = 10
    """`deleteFileBatchMax`: segments deleted in one round."""

    memory_ratio: float = 0.40
    """`accessMessageInMemoryMaxRatio`: share of RAM within which messages count as in memory."""
    transfer_bytes_in_memory: int = 256 * KIB
    """`maxTransferBytesOnMessageInMemory`."""
    transfer_count_in_memory: int = 32
    """`maxTransferCountOnMessageInMemory`."""
    transfer_bytes_on_disk: int = 64 * KIB
    """`maxTransferBytesOnMessageInDisk`."""
    transfer_count_on_disk: int = 8
    """`maxTransferCountOnMessageInDisk`."""
    query_count_max: int = 64
    """`maxMsgsNumBatch`: most offsets one query of the index gives."""
    delay_levels: str = DEFAULT_DELAY_LEVELS
    """`messageDelayLevel`."""
    delay_levels_ms: tuple[int, ...] = field(init=False)
    """The delay of level 1, level 2 and so on."""

    def __post_init__(self) -> None:
        entries = -(-self.queue_segment_bytes // QUEUE_ENTRY_BYTES)
        object.__setattr__(self, "queue_segment_bytes", entries * QUEUE_ENTRY_BYTES)
        if not self.commit_log_paths:
            object.__setattr__(self, "commit_log_paths", (self.root / "commitlog",))
        object.__setattr__(self, "delay_levels_ms", parse_delay_levels(self.delay_levels))
        self._require("mappedFileSizeCommitLog", 4 * KIB <= self.segment_bytes <= 2 * GIB - 1)
        self._require("mappedFileSizeConsumeQueue", 0 < entries <= 100_000_000)
        self._require("maxHashSlotNum", 0 < self.index_slots < 2**31)
        self._require("maxIndexNum", 1 < self.index_entries < 2**31)
        self._require("maxMessageSize", 0 < self.message_bytes_max < 2**31 - 64 * KIB)
        self._require("diskMaxUsedSpaceRatio", 0 < self.disk_used_ratio_max < 1)
        self._require("rocketmq.broker.diskSpaceCleanForciblyRatio", 0 < self.disk_clean_ratio <= 1)
        self._require(
            "rocketmq.broker.diskSpaceWarningLevelRatio",
            self.disk_clean_ratio <= self.disk_full_ratio <= 1,
        )
        self._require("fileReservedTime", self.reserved_hours >= 0)
        self._require("deleteWhen", all(0 <= hour < 24 for hour in self.delete_hours))
        for key, value in (
            ("flushIntervalCommitLog", self.flush_interval_ms),
            ("syncFlushTimeout", self.sync_flush_timeout_ms),
            ("commitIntervalCommitLog", self.commit_interval_ms),
            ("cleanResourceInterval", self.clean_interval_ms),
            ("recoveryPointBytes", self.recovery_point_bytes),
            ("recoveryPointInterval", self.recovery_point_interval_ms),
            ("transientStorePoolSize", self.transient_pool_size),
            ("deleteFileBatchMax", self.delete_batch_max),
        ):
            self._require(key, value > 0)
        if self.transient_pool_enabled and self.flush_mode is FlushMode.SYNC:
            raise ConfigError(
                "transientStorePoolEnable",
                "needs flushDiskType=ASYNC_FLUSH: what is in the pool is not on disk",
            )

    @property
    def record_bytes_max(self) -> int:
        """The largest record; one must also fit into a segment together with the blank."""
        return self.message_bytes_max + 64 * KIB

    @property
    def queues_path(self) -> Path:
        return self.root / "consumequeue"

    @property
    def index_path(self) -> Path:
        return self.root / "index"

    def _require(self, key: str, holds: bool) -> None:
        if not holds:
            raise ConfigError(key, "is out of range", hint="see the settings table in the docs")


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Read `messageDelayLevel`, delays such as 1s 5m 2h 1d separated by blanks."""
    delays: list[int] = []
    for word in text.split():
        unit = _DELAY_UNITS_MS.get(word[-1:])
        if unit is None or not word[:-1].isdecimal():
            raise ConfigError("messageDelayLevel", f"{word!r} is not a delay such as 1s, 5m or 2h")
        delays.append(int(word[:-1]) * unit)
    if not delays:
        raise ConfigError("messageDelayLevel", "names no delay")
    return tuple(delays)
