"""Settings of the store, each with the key that it has in `broker.conf`.

Defaults are those of RocketMQ 4.9.8 MessageStoreConfig and, in the section `system`, of the system
properties a Java broker takes on its command line; the section `rmq` holds what is ours. Keys that
take effect now do so because the store is given the new `StoreConfig` as a whole.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.settings.declaration import NOW, RESTART, required_setting, setting
from rmq.settings.setting import INT_MAX
from rmq.store.layout import QUEUE_ENTRY_BYTES

if TYPE_CHECKING:
    from rmq.settings.setting import Value

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


def split_paths(text: Value) -> tuple[Path, ...]:
    """Read `storePathCommitLog`, directories separated by commas."""
    return tuple(Path(part.strip()) for part in str(text or "").split(",") if part.strip())


def _hours(text: str) -> frozenset[int]:
    """Read `deleteWhen`, hours separated by semicolons."""
    hours: set[int] = set()
    for part in text.split(";"):
        hour = part.strip()
        if not (hour.isascii() and hour.isdecimal() and len(hour) <= 2 and int(hour) < 24):
            raise ConfigError("deleteWhen", f"{hour!r} is not an hour between 00 and 23")
        hours.add(int(hour))
    return frozenset(hours)


def _share(percent: int) -> float:
    return percent / 100


def used_space_share(percent: int) -> float:
    """`diskMaxUsedSpaceRatio`, limited to 10 to 95 percent."""
    return max(10, min(percent, 95)) / 100


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreConfig:
    """Where a store is and how it behaves."""

    root: Path = required_setting(
        "storePathRootDir",
        "Directory of the store and of the tables the broker keeps.",
        RESTART,
        read=Path,
        unread=None,
        important=True,
        default_text="directory store in the user's home",
        guarded=True,
    )
    commit_log_paths: tuple[Path, ...] = setting(
        "storePathCommitLog",
        (),
        "Directories of CommitLog segments, several separated by commas.",
        RESTART,
        read=split_paths,
        unread=None,
        important=True,
        default_text="directory commitlog in storePathRootDir",
        guarded=True,
    )
    segment_bytes: int = setting(
        "mappedFileSizeCommitLog", GIB, "Bytes of a CommitLog segment.", RESTART, minimum=4096
    )
    queue_segment_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        300_000 * QUEUE_ENTRY_BYTES,
        "Bytes of a ConsumeQueue segment, rounded up to whole entries of 20 bytes.",
        RESTART,
        minimum=1,
        maximum=100_000_000 * QUEUE_ENTRY_BYTES,
    )
    index_enabled: bool = setting(
        "messageIndexEnable", True, "Messages can be queried by key.", RESTART, important=True
    )
    index_safe: bool = setting(
        "messageIndexSafe",
        False,
        "A recovery by a Java broker starts early enough to rebuild the index, too.",
        RESTART,
        important=True,
    )
    index_slots: int = setting(
        "maxHashSlotNum", 5_000_000, "Hash slots of an index file.", RESTART, minimum=1
    )
    index_entries: int = setting(
        "maxIndexNum", 20_000_000, "Keys in an index file.", RESTART, minimum=2
    )
    message_bytes_max: int = setting(
        "maxMessageSize",
        4 * MIB,
        "Most bytes of a message's body.",
        NOW,
        minimum=1,
        maximum=INT_MAX - 64 * 1024,
    )
    flush_mode: FlushMode = setting(
        "flushDiskType",
        FlushMode.ASYNC,
        "Whether a send is answered before its message is on disk (ASYNC_FLUSH) or after "
        "(SYNC_FLUSH).",
        NOW,
        read=FlushMode,
        unread="ASYNC_FLUSH",
        choices=tuple(mode.value for mode in FlushMode),
        important=True,
    )
    flush_interval_ms: int = setting(
        "flushIntervalCommitLog",
        500,
        "Milliseconds between two flushes in the background.",
        NOW,
        minimum=1,
        important=True,
    )
    flush_least_pages: int = setting(
        "flushCommitLogLeastPages",
        4,
        "Pages of 4 KiB that a flush in the background waits for.",
        NOW,
    )
    flush_thorough_interval_ms: int = setting(
        "flushCommitLogThoroughInterval",
        10_000,
        "Milliseconds after which a flush in the background waits for nothing.",
        NOW,
    )
    sync_flush_timeout_ms: int = setting(
        "syncFlushTimeout", 5_000, "Milliseconds that a send waits for the disk.", NOW, minimum=1
    )
    recovery_point_bytes: int = setting(
        "recoveryPointBytes",
        128 * MIB,
        "Bytes of log after which the queues and the index are synced, too; bounds what is read "
        "again after a crash.",
        NOW,
        section="rmq",
        minimum=1,
    )
    """Less makes recovery faster and writes the slots of the index more often. It replaces
    `flushIntervalConsumeQueue` and similar settings: what queues contain is in the log, too, and
    needs no flush of its own between two points.
    """
    recovery_point_interval_ms: int = setting(
        "recoveryPointInterval",
        10_000,
        "Milliseconds after which the queues and the index are synced, too.",
        NOW,
        section="rmq",
        minimum=1,
    )
    transient_pool_enabled: bool = setting(
        "transientStorePoolEnable",
        False,
        "Messages are written to locked memory first; only for masters with ASYNC_FLUSH.",
        RESTART,
        important=True,
    )
    transient_pool_size: int = setting(
        "transientStorePoolSize",
        5,
        "Segments in the memory of transientStorePoolEnable.",
        RESTART,
        minimum=1,
    )
    commit_interval_ms: int = setting(
        "commitIntervalCommitLog",
        200,
        "Milliseconds between two writes from that memory to segments (transientStorePoolEnable).",
        NOW,
        minimum=1,
        important=True,
    )
    warm_up: bool = setting(
        "warmMapedFileEnable",
        False,
        "A new segment is touched as a whole and locked in memory.",
        NOW,
    )
    check_crc_on_recover: bool = setting(
        "checkCRCOnRecover", True, "A recovery compares messages with their checksums.", RESTART
    )
    reserved_hours: int = setting(
        "fileReservedTime",
        72,
        "Hours that a segment is kept after its last write.",
        NOW,
        minimum=0,
        important=True,
    )
    delete_hours: frozenset[int] = setting(
        "deleteWhen",
        frozenset({4}),
        "Local hours in which expired segments are deleted, separated by semicolons.",
        NOW,
        read=_hours,
        unread="04",
        check=_hours,
        important=True,
    )
    disk_used_ratio_max: float = setting(
        "diskMaxUsedSpaceRatio",
        0.75,
        "Percent of the disk in use above which expired segments are deleted at any hour; below "
        "10 counts as 10, above 95 as 95.",
        NOW,
        read=used_space_share,
        unread=75,
        maximum=100,
    )
    disk_clean_ratio: float = setting(
        "rocketmq.broker.diskSpaceCleanForciblyRatio",
        0.85,
        "Share of the disk in use above which segments are deleted before their time.",
        NOW,
        section="system",
        minimum=0.01,
        maximum=1,
    )
    disk_full_ratio: float = setting(
        "rocketmq.broker.diskSpaceWarningLevelRatio",
        0.90,
        "Share of the disk in use above which sends are refused.",
        NOW,
        section="system",
        minimum=0.01,
        maximum=1,
    )
    clean_forcibly: bool = setting(
        "cleanFileForciblyEnable",
        True,
        "Segments may be deleted before their time.",
        NOW,
        important=True,
    )
    clean_interval_ms: int = setting(
        "cleanResourceInterval",
        10_000,
        "Milliseconds between two checks for files that can be deleted.",
        NOW,
        minimum=1,
    )
    delete_batch_max: int = setting(
        "deleteFileBatchMax", 10, "Segments deleted in one round.", NOW, section="rmq", minimum=1
    )
    memory_ratio: float = setting(
        "accessMessageInMemoryMaxRatio",
        0.40,
        "Percent of the machine's memory within which messages count as in memory.",
        NOW,
        read=_share,
        unread=40,
        maximum=100,
        important=True,
    )
    transfer_bytes_in_memory: int = setting(
        "maxTransferBytesOnMessageInMemory",
        256 * KIB,
        "Most bytes in the answer to a pull, from memory.",
        NOW,
        important=True,
    )
    transfer_count_in_memory: int = setting(
        "maxTransferCountOnMessageInMemory",
        32,
        "Most messages in the answer to a pull, from memory.",
        NOW,
        important=True,
    )
    transfer_bytes_on_disk: int = setting(
        "maxTransferBytesOnMessageInDisk",
        64 * KIB,
        "Most bytes in the answer to a pull, from disk.",
        NOW,
        important=True,
    )
    transfer_count_on_disk: int = setting(
        "maxTransferCountOnMessageInDisk",
        8,
        "Most messages in the answer to a pull, from disk.",
        NOW,
        important=True,
    )
    query_count_max: int = setting(
        "maxMsgsNumBatch", 64, "Most messages in the answer to a query by key.", NOW, minimum=1
    )
    delay_levels: str = setting(
        "messageDelayLevel",
        DEFAULT_DELAY_LEVELS,
        "Delays of the levels 1, 2 and so on, with the units s, m, h and d.",
        RESTART,
        check=parse_delay_levels,
    )
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
