"""Settings of the message store: which key of `broker.conf` is which attribute of `StoreConfig`.

Defaults are those of RocketMQ 4.9.8 MessageStoreConfig and, in the section `system`, of the system
properties a Java broker takes on its command line; the section `rmq` holds what is ours. Keys that
take effect now do so because the store is given the new `StoreConfig` as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmq.errors import ConfigError
from rmq.settings.schema import INT_MAX, Effect, Setting
from rmq.store.config import DEFAULT_DELAY_LEVELS, FlushMode, StoreConfig, parse_delay_levels
from rmq.store.layout import QUEUE_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.settings.schema import Value, Values

NOW: Final = Effect.NOW
RESTART: Final = Effect.RESTART


@dataclass(frozen=True, slots=True)
class StoreKey:
    """A setting and the attribute of `StoreConfig` that it becomes."""

    attribute: str
    setting: Setting
    read: Callable[[Any], object] | None = None
    """Makes the attribute of the setting's value; None: they are the same."""


def store_config(values: Values) -> StoreConfig:
    """Make the store's settings of those of the broker."""
    given: dict[str, Any] = {}
    for each in STORE_KEYS:
        value = values[each.setting.key]
        given[each.attribute] = value if each.read is None else each.read(value)
    if not pool_is_possible(values):
        given["transient_pool_enabled"] = False
    return StoreConfig(**given)


def pool_is_possible(values: Values) -> bool:
    """A pool of buffers serves masters that do not wait for the disk, and nobody else."""
    return values["flushDiskType"] == "ASYNC_FLUSH" and values["brokerRole"] != "SLAVE"


def _row(
    attribute: str,
    key: str,
    default: Value,
    help: str,
    effect: Effect,
    *,
    read: Callable[[Any], object] | None = None,
    section: str = "store",
    minimum: float = 0,
    maximum: float = INT_MAX,
    choices: tuple[str, ...] = (),
    important: bool = False,
    default_text: str | None = None,
    check: Callable[[str], object] | None = None,
) -> StoreKey:
    setting = Setting(
        key=key,
        default=default,
        help=help,
        effect=effect,
        section=section,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        important=important,
        default_text=default_text,
        check=check,
    )
    return StoreKey(attribute, setting, read)


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
    """`diskMaxUsedSpaceRatio` as it counts: from 10 to 95 percent."""
    return max(10, min(percent, 95)) / 100


STORE_KEYS: Final = (
    _row(
        "root",
        "storePathRootDir",
        None,
        "Directory of the store and of the tables the broker keeps.",
        RESTART,
        read=Path,
        important=True,
        default_text="directory store in the user's home",
    ),
    _row(
        "commit_log_paths",
        "storePathCommitLog",
        None,
        "Directories of CommitLog segments, several separated by commas.",
        RESTART,
        read=split_paths,
        important=True,
        default_text="directory commitlog in storePathRootDir",
    ),
    _row(
        "segment_bytes",
        "mappedFileSizeCommitLog",
        1024**3,
        "Bytes of a CommitLog segment.",
        RESTART,
        minimum=4096,
    ),
    _row(
        "queue_segment_bytes",
        "mappedFileSizeConsumeQueue",
        300_000 * QUEUE_ENTRY_BYTES,
        "Bytes of a ConsumeQueue segment, rounded up to whole entries of 20 bytes.",
        RESTART,
        minimum=1,
        maximum=100_000_000 * QUEUE_ENTRY_BYTES,
    ),
    _row(
        "index_enabled",
        "messageIndexEnable",
        True,
        "Messages can be queried by key.",
        RESTART,
        important=True,
    ),
    _row(
        "index_safe",
        "messageIndexSafe",
        False,
        "A recovery by a Java broker starts early enough to rebuild the index, too.",
        RESTART,
        important=True,
    ),
    _row(
        "index_slots",
        "maxHashSlotNum",
        5_000_000,
        "Hash slots of an index file.",
        RESTART,
        minimum=1,
    ),
    _row("index_entries", "maxIndexNum", 20_000_000, "Keys in an index file.", RESTART, minimum=2),
    _row(
        "message_bytes_max",
        "maxMessageSize",
        4 * 1024**2,
        "Most bytes of a message's body.",
        NOW,
        minimum=1,
        maximum=INT_MAX - 64 * 1024,
    ),
    _row(
        "flush_mode",
        "flushDiskType",
        "ASYNC_FLUSH",
        "Whether a send is answered before its message is on disk (ASYNC_FLUSH) or after "
        "(SYNC_FLUSH).",
        NOW,
        read=FlushMode,
        choices=tuple(mode.value for mode in FlushMode),
        important=True,
    ),
    _row(
        "flush_interval_ms",
        "flushIntervalCommitLog",
        500,
        "Milliseconds between two flushes in the background.",
        NOW,
        minimum=1,
        important=True,
    ),
    _row(
        "flush_least_pages",
        "flushCommitLogLeastPages",
        4,
        "Pages of 4 KiB that a flush in the background waits for.",
        NOW,
    ),
    _row(
        "flush_thorough_interval_ms",
        "flushCommitLogThoroughInterval",
        10_000,
        "Milliseconds after which a flush in the background waits for nothing.",
        NOW,
    ),
    _row(
        "sync_flush_timeout_ms",
        "syncFlushTimeout",
        5000,
        "Milliseconds that a send waits for the disk.",
        NOW,
        minimum=1,
    ),
    _row(
        "recovery_point_bytes",
        "recoveryPointBytes",
        128 * 1024**2,
        "After so many bytes of log the queues and the index are synced, too; bounds what is read "
        "again after a crash.",
        NOW,
        section="rmq",
        minimum=1,
    ),
    _row(
        "recovery_point_interval_ms",
        "recoveryPointInterval",
        10_000,
        "Milliseconds after which the queues and the index are synced, too.",
        NOW,
        section="rmq",
        minimum=1,
    ),
    _row(
        "transient_pool_enabled",
        "transientStorePoolEnable",
        False,
        "Messages are written to locked memory first; only for masters with ASYNC_FLUSH.",
        RESTART,
        important=True,
    ),
    _row(
        "transient_pool_size",
        "transientStorePoolSize",
        5,
        "Segments in the memory of transientStorePoolEnable.",
        RESTART,
        minimum=1,
    ),
    _row(
        "commit_interval_ms",
        "commitIntervalCommitLog",
        200,
        "Milliseconds between two writes from that memory to segments (transientStorePoolEnable).",
        NOW,
        minimum=1,
        important=True,
    ),
    _row(
        "warm_up",
        "warmMapedFileEnable",
        False,
        "A new segment is touched as a whole and locked in memory.",
        NOW,
    ),
    _row(
        "check_crc_on_recover",
        "checkCRCOnRecover",
        True,
        "A recovery compares messages with their checksums.",
        RESTART,
    ),
    _row(
        "reserved_hours",
        "fileReservedTime",
        72,
        "Hours that a segment is kept after its last write.",
        NOW,
        minimum=0,
        important=True,
    ),
    _row(
        "delete_hours",
        "deleteWhen",
        "04",
        "Local hours in which expired segments are deleted, separated by semicolons.",
        NOW,
        read=_hours,
        check=_hours,
        important=True,
    ),
    _row(
        "disk_used_ratio_max",
        "diskMaxUsedSpaceRatio",
        75,
        "Percent of the disk in use above which expired segments are deleted at any hour; below "
        "10 counts as 10, above 95 as 95.",
        NOW,
        read=used_space_share,
        maximum=100,
    ),
    _row(
        "disk_clean_ratio",
        "rocketmq.broker.diskSpaceCleanForciblyRatio",
        0.85,
        "Share of the disk in use above which segments are deleted before their time.",
        NOW,
        section="system",
        minimum=0.01,
        maximum=1,
    ),
    _row(
        "disk_full_ratio",
        "rocketmq.broker.diskSpaceWarningLevelRatio",
        0.90,
        "Share of the disk in use above which sends are refused.",
        NOW,
        section="system",
        minimum=0.01,
        maximum=1,
    ),
    _row(
        "clean_forcibly",
        "cleanFileForciblyEnable",
        True,
        "Segments may be deleted before their time.",
        NOW,
        important=True,
    ),
    _row(
        "clean_interval_ms",
        "cleanResourceInterval",
        10_000,
        "Milliseconds between two looks for what can be deleted.",
        NOW,
        minimum=1,
    ),
    _row(
        "delete_batch_max",
        "deleteFileBatchMax",
        10,
        "Segments deleted in one round.",
        NOW,
        section="rmq",
        minimum=1,
    ),
    _row(
        "memory_ratio",
        "accessMessageInMemoryMaxRatio",
        40,
        "Percent of the machine's memory within which messages count as in memory.",
        NOW,
        read=_share,
        maximum=100,
        important=True,
    ),
    _row(
        "transfer_bytes_in_memory",
        "maxTransferBytesOnMessageInMemory",
        256 * 1024,
        "Most bytes in the answer to a pull, from memory.",
        NOW,
        important=True,
    ),
    _row(
        "transfer_count_in_memory",
        "maxTransferCountOnMessageInMemory",
        32,
        "Most messages in the answer to a pull, from memory.",
        NOW,
        important=True,
    ),
    _row(
        "transfer_bytes_on_disk",
        "maxTransferBytesOnMessageInDisk",
        64 * 1024,
        "Most bytes in the answer to a pull, from disk.",
        NOW,
        important=True,
    ),
    _row(
        "transfer_count_on_disk",
        "maxTransferCountOnMessageInDisk",
        8,
        "Most messages in the answer to a pull, from disk.",
        NOW,
        important=True,
    ),
    _row(
        "query_count_max",
        "maxMsgsNumBatch",
        64,
        "Most messages in the answer to a query by key.",
        NOW,
        minimum=1,
    ),
    _row(
        "delay_levels",
        "messageDelayLevel",
        DEFAULT_DELAY_LEVELS,
        "Delays of the levels 1, 2 and so on, with the units s, m, h and d.",
        RESTART,
        check=parse_delay_levels,
    ),
)
