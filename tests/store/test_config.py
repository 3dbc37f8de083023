"""The settings of a store: defaults, what is derived from them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from rmq.errors import ConfigError
from rmq.store.config import (
    DEFAULT_DELAY_LEVELS,
    GIB,
    KIB,
    MIB,
    FlushMode,
    StoreConfig,
    parse_delay_levels,
)

ROOT: Final = Path("store")


def test_the_defaults_are_those_of_rocketmq() -> None:
    config = StoreConfig(root=ROOT)
    assert config.commit_log_paths == (ROOT / "commitlog",)
    assert config.queues_path == ROOT / "consumequeue"
    assert config.index_path == ROOT / "index"
    assert config.segment_bytes == GIB
    assert config.queue_segment_bytes == 6_000_000
    assert (config.index_slots, config.index_entries) == (5_000_000, 20_000_000)
    assert config.message_bytes_max == 4 * MIB
    assert config.record_bytes_max == 4 * MIB + 64 * KIB
    assert config.flush_mode is FlushMode.ASYNC
    assert config.delete_hours == {4}
    assert (config.reserved_hours, config.memory_ratio) == (72, 0.40)
    assert (config.transfer_bytes_in_memory, config.transfer_count_in_memory) == (256 * KIB, 32)
    assert (config.transfer_bytes_on_disk, config.transfer_count_on_disk) == (64 * KIB, 8)


@pytest.mark.parametrize(
    ("given_bytes", "rounded"), [(1, 20), (20, 20), (21, 40), (6_000_000, 6_000_000)]
)
def test_a_queue_segment_holds_whole_entries(given_bytes: int, rounded: int) -> None:
    assert StoreConfig(root=ROOT, queue_segment_bytes=given_bytes).queue_segment_bytes == rounded


def test_the_log_may_lie_elsewhere() -> None:
    paths = (Path("a"), Path("b"))
    assert StoreConfig(root=ROOT, commit_log_paths=paths).commit_log_paths == paths


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"segment_bytes": 4 * KIB - 1}, "mappedFileSizeCommitLog"),
        ({"segment_bytes": 2 * GIB}, "mappedFileSizeCommitLog"),
        ({"queue_segment_bytes": 0}, "mappedFileSizeConsumeQueue"),
        ({"queue_segment_bytes": -20}, "mappedFileSizeConsumeQueue"),
        ({"index_slots": 0}, "maxHashSlotNum"),
        ({"index_slots": 2**31}, "maxHashSlotNum"),
        ({"index_entries": 1}, "maxIndexNum"),
        ({"index_entries": 2**31}, "maxIndexNum"),
        ({"message_bytes_max": 0}, "maxMessageSize"),
        ({"message_bytes_max": 2**31 - 64 * KIB}, "maxMessageSize"),
        ({"disk_used_ratio_max": 0.0}, "diskMaxUsedSpaceRatio"),
        ({"disk_used_ratio_max": 1.0}, "diskMaxUsedSpaceRatio"),
        ({"disk_clean_ratio": 0.0}, "rocketmq.broker.diskSpaceCleanForciblyRatio"),
        ({"disk_full_ratio": 0.80}, "rocketmq.broker.diskSpaceWarningLevelRatio"),
        ({"disk_full_ratio": 1.01}, "rocketmq.broker.diskSpaceWarningLevelRatio"),
        ({"delete_hours": frozenset({24})}, "deleteWhen"),
        ({"delete_hours": frozenset({-1})}, "deleteWhen"),
        ({"reserved_hours": -1}, "fileReservedTime"),
        ({"flush_interval_ms": 0}, "flushIntervalCommitLog"),
        ({"sync_flush_timeout_ms": -1}, "syncFlushTimeout"),
        ({"recovery_point_bytes": 0}, "recoveryPointBytes"),
        ({"transient_pool_size": 0}, "transientStorePoolSize"),
        ({"delete_batch_max": 0}, "deleteFileBatchMax"),
        ({"delay_levels": ""}, "messageDelayLevel"),
        ({"delay_levels": "1s 5"}, "messageDelayLevel"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_a_wrong_setting_is_named_as_in_the_file(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreConfig(root=ROOT, **changes)
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key}: ")


def test_a_transient_pool_contradicts_waiting_for_the_disk() -> None:
    with pytest.raises(ConfigError) as caught:
        StoreConfig(root=ROOT, transient_pool_enabled=True, flush_mode=FlushMode.SYNC)
    assert caught.value.key == "transientStorePoolEnable"
    assert "flushDiskType=ASYNC_FLUSH" in str(caught.value)
    assert StoreConfig(root=ROOT, transient_pool_enabled=True).transient_pool_size == 5


def test_delay_levels_are_read_with_their_units() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == (1_000, 300_000, 7_200_000, 86_400_000)
    assert parse_delay_levels("  1s   2s ") == (1_000, 2_000)
    assert len(parse_delay_levels(DEFAULT_DELAY_LEVELS)) == 18
    assert StoreConfig(root=ROOT, delay_levels="3s").delay_levels_ms == (3_000,)


@pytest.mark.parametrize("text", ["", "   ", "s", "1", "1x", "-1s", "1.5s", "s1", "1s,2s", "1 s"])
def test_what_is_no_delay_is_named(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_delay_levels(text)
    assert caught.value.key == "messageDelayLevel"


def test_settings_do_not_change() -> None:
    config = StoreConfig(root=ROOT)
    with pytest.raises(AttributeError):
        config.segment_bytes = 1  # type: ignore[misc]
