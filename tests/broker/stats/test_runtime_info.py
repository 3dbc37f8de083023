"""The runtime info of a broker against what stock brokers said (tests/data/wire)."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from rmq.broker.stats.runtime_info import NO_POOL, Load, StoreFacts, runtime_info, store_facts
from rmq.broker.stats.store import StoreStats
from rmq.remoting.bodies import KVTable
from rmq.remoting.codes import RequestCode
from rmq.store.storage import DiskStorage
from rmq.store.store import MessageStore
from rmq.testing.storage import MemoryStorage
from tests.remoting.bodies.captures import CapturedBody, captured_bodies
from tests.store.store_kit import (
    SEGMENT_BYTES,
    START_MS,
    fill_segments,
    open_core,
    put_numbered,
    small_config,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.store.core import StoreCore

BOOT_MS: Final = 1_794_797_222_423
TODAY: Final = date(2026, 11, 16)

STORE: Final = StoreFacts(
    min_offset=0,
    max_offset=22_191,
    dispatch_lag_bytes=0,
    flush_lag_bytes=0,
    commit_lag_bytes=None,
    pool_buffers_left=NO_POOL,
    earliest_ms=-1,
    log_used_ratios={"/store/commitlog": 0.13},
    queues_used_ratio=0.13,
    disk_bytes=(270_582_939_648, 85_466_578_124),
)


def old_stats(seconds: int = 610) -> StoreStats:
    """Return the counts of a store that was sampled so many times, about every second."""
    stats = StoreStats(BOOT_MS)
    for second in range(seconds + 1):
        stats.sample(second * 1001, TODAY)
        if second % 7 == 0:
            stats.put(1, 264)
            stats.put_took(second % 5)
            stats.get(3, 7)
            stats.get(0)
    return stats


def info(
    stats: StoreStats | None = None,
    *,
    delay_progress: dict[int, tuple[int, int]] | None = None,
    now_ms: int = BOOT_MS,
    **store: Any,  # noqa: ANN401 - any member of StoreFacts
) -> dict[str, str]:
    return runtime_info(
        stats=stats or StoreStats(BOOT_MS),
        store=replace(STORE, **store),
        now_ms=now_ms,
        send=Load(waiting=1, capacity=10_000, head_wait_ms=2),
        pull=Load(waiting=3, capacity=100_000, head_wait_ms=4),
        query=Load(waiting=5, capacity=20_000, head_wait_ms=6),
        end_transaction=Load(waiting=7, capacity=100_000),
        delay_progress=delay_progress or {},
        accept_sends_from_ms=8,
        append_stall_ms=9,
    )


# --- captures -----------------------------------------------------------------------------------


def captured() -> list[CapturedBody]:
    return [
        body
        for body in captured_bodies()
        if body.is_response and body.code is RequestCode.GET_BROKER_RUNTIME_INFO
    ]


_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+(?:E-?\d+)?)?")


def shape_of(text: str) -> str:
    """Return a pattern of texts with other numbers of the same kind: whole ones, or decimals."""
    parts: list[str] = []
    end = 0
    for number in _NUMBER.finditer(text):
        kind = r"-?\d+\.\d+(?:E-?\d+)?" if "." in number[0] else r"-?\d+"
        parts += [re.escape(text[end : number.start()]), kind]
        end = number.end()
    return "".join(parts) + re.escape(text[end:])


def test_there_are_captures() -> None:
    assert [body.run for body in captured()] == [
        "mqadmin-08-clusterList",
        "mqadmin-08-clusterList",
        "mqadmin-10-brokerStatus",
    ]


@pytest.mark.parametrize("body", captured(), ids=lambda body: f"{body.run}-{body.line}")
def test_keys_and_forms_are_those_of_a_stock_broker(body: CapturedBody) -> None:
    theirs = KVTable.decode(body.data).table
    path = next(key.partition("_")[2] for key in theirs if key.startswith("commitLogDiskRatio_"))
    levels = [int(key[-1]) for key in theirs if key.startswith("scheduleMessageOffset_")]
    is_old = theirs["putTps"].count(".") == 3
    ours = info(
        old_stats(610 if is_old else 599),
        delay_progress=dict.fromkeys(levels, (3, 3)),
        log_used_ratios={path: 0.13},
    )
    assert ours.keys() == theirs.keys()
    odd = {
        key: (ours[key], text)
        for key, text in theirs.items()
        if re.fullmatch(shape_of(text), ours[key]) is None
    }
    assert odd == {}


def test_the_forms_tell_a_wrong_text_from_a_right_one() -> None:
    shape = shape_of("0.0 12 V4_9_7 ")
    assert re.fullmatch(shape, "1.5E-4 -1 V4_9_8 ")
    for wrong in ("0 12 V4_9_7 ", "0.0 12.0 V4_9_7 ", "0.0 12 V4_9_7", "0.0 12 v4_9_7 "):
        assert re.fullmatch(shape, wrong) is None


def test_the_captured_totals_give_the_captured_average() -> None:
    stats = StoreStats(BOOT_MS)
    stats.put(84, 22_191)
    assert info(stats)["putMessageAverageSize"] == "264.17857142857144"


# --- what is in it ------------------------------------------------------------------------------


def test_every_figure_is_under_its_key() -> None:
    stats = StoreStats(BOOT_MS)
    stats.sample(0, TODAY)
    stats.put(30, 6000)
    stats.get(20, 3.7)
    stats.sample(1000, TODAY.replace(day=17))
    stats.put(10, 4000)
    stats.put_failed(2)
    stats.put_took(17.2, 100)
    stats.get(5)
    stats.get(0)
    stats.sample(60_000, TODAY.replace(day=18))
    stats.put(1, 50)
    stats.get(1)
    ours = info(
        stats,
        now_ms=BOOT_MS + 90_061_999,
        delay_progress={1: (3, 5), 18: (0, 2)},
        min_offset=100,
        max_offset=200,
        dispatch_lag_bytes=30,
        flush_lag_bytes=40,
        commit_lag_bytes=50,
        pool_buffers_left=4,
        earliest_ms=77,
        log_used_ratios={"/a": 0.5, "/b": 0.25},
        queues_used_ratio=-1.0,
        disk_bytes=(2048, 1024),
    )
    assert ours == {
        "bootTimestamp": str(BOOT_MS),
        "runtime": "[ 1 days, 1 hours, 1 minutes, 1 seconds ]",
        "putMessageEntireTimeMax": "17",
        "putMessageTimesTotal": "41",
        "putMessageFailedTimes": "2",
        "putMessageSizeTotal": "10050",
        "putMessageDistributeTime": "[<=0ms]:0 [0~10ms]:0 [10~50ms]:100 [50~100ms]:0 [100~200ms]:0 "
        "[200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 ",
        "putMessageAverageSize": "245.1219512195122",
        "dispatchMaxBuffer": "0",
        "getMessageEntireTimeMax": "3",
        "putTps": "  ",
        "getFoundTps": "  ",
        "getMissTps": "  ",
        "getTotalTps": "0.0 0.0 0.0",
        "getTransferedTps": "  ",
        "putLatency99": "17.99",
        "putLatency999": "17.99",
        "commitLogDiskRatio": "0.25",
        "commitLogDiskRatio_/a": "0.5",
        "commitLogDiskRatio_/b": "0.25",
        "consumeQueueDiskRatio": "-1.0",
        "scheduleMessageOffset_1": "3,5",
        "scheduleMessageOffset_18": "0,2",
        "commitLogMinOffset": "100",
        "commitLogMaxOffset": "200",
        "brokerVersionDesc": "V4_9_8",
        "brokerVersion": "409",
        "msgPutTotalYesterdayMorning": "30",
        "msgPutTotalTodayMorning": "40",
        "msgPutTotalTodayNow": "41",
        "msgGetTotalYesterdayMorning": "20",
        "msgGetTotalTodayMorning": "25",
        "msgGetTotalTodayNow": "26",
        "sendThreadPoolQueueSize": "1",
        "sendThreadPoolQueueCapacity": "10000",
        "sendThreadPoolQueueHeadWaitTimeMills": "2",
        "pullThreadPoolQueueSize": "3",
        "pullThreadPoolQueueCapacity": "100000",
        "pullThreadPoolQueueHeadWaitTimeMills": "4",
        "queryThreadPoolQueueSize": "5",
        "queryThreadPoolQueueCapacity": "20000",
        "queryThreadPoolQueueHeadWaitTimeMills": "6",
        "EndTransactionQueueSize": "7",
        "EndTransactionThreadPoolQueueCapacity": "100000",
        "dispatchBehindBytes": "30",
        "pageCacheLockTimeMills": "9",
        "earliestMessageTimeStamp": "77",
        "startAcceptSendRequestTimeStamp": "8",
        "remainTransientStoreBufferNumbs": "4",
        "remainHowManyDataToCommit": "50 B",
        "remainHowManyDataToFlush": "40 B",
        "commitLogDirCapacity": "Total : 2.0 KiB, Free : 1.0 KiB.",
    }


@pytest.mark.parametrize(
    ("seconds", "put", "total"),
    [
        pytest.param(0, "  ", "0.0 0.0 0.0", id="just-started"),
        pytest.param(10, "1.0  ", "2.0 0.0 0.0", id="10-s"),
        pytest.param(60, "1.0 1.0 ", "2.0 2.0 0.0", id="a-minute"),
        pytest.param(600, "1.0 1.0 1.0", "2.0 2.0 2.0", id="10-minutes"),
    ],
)
def test_rates_are_left_empty_until_they_are_known_but_the_sum_of_reads_is_not(
    seconds: int, put: str, total: str
) -> None:
    stats = StoreStats(BOOT_MS)
    for second in range(seconds + 1):
        stats.sample(second * 1000, TODAY)
        stats.put(1, 100)
        stats.get(1)
        stats.get(0)
    ours = info(stats)
    assert ours["putTps"] == ours["getFoundTps"] == ours["getMissTps"] == put
    assert ours["getTransferedTps"] == put
    assert ours["getTotalTps"] == total


def test_a_store_that_took_nothing_yet_says_one_message_as_java_does() -> None:
    ours = info()
    assert ours["putMessageTimesTotal"] == "1"
    assert ours["putMessageAverageSize"] == "0.0"
    assert ours["msgPutTotalTodayNow"] == "0"
    assert ours["putMessageDistributeTime"].count(":0 ") == 13


@pytest.mark.parametrize(
    ("count", "text"),
    [
        pytest.param(0, "0 B", id="nothing"),
        pytest.param(1023, "1023 B", id="bytes"),
        pytest.param(1024, "1.0 KiB", id="one-unit"),
        pytest.param(1280, "1.3 KiB", id="half-is-rounded-up"),
        pytest.param(1024**2 - 1, "1024.0 KiB", id="almost-the-next-unit"),
        pytest.param(1024**2, "1.0 MiB", id="next-unit"),
        pytest.param(270_582_939_648, "252.0 GiB", id="captured"),
        pytest.param(5 * 1024**4, "5.0 TiB", id="tera"),
        pytest.param(2**63 - 1, "8.0 EiB", id="largest"),
        pytest.param(2**80, "1048576.0 EiB", id="beyond-all-units"),
    ],
)
def test_bytes_are_written_in_their_largest_unit(count: int, text: str) -> None:
    assert info(flush_lag_bytes=count)["remainHowManyDataToFlush"] == text


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        pytest.param(0, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]", id="start"),
        pytest.param(610_999, "[ 0 days, 0 hours, 10 minutes, 10 seconds ]", id="captured"),
        pytest.param(1234 * 86_400_000, "[ 1,234 days, 0 hours, 0 minutes, 0 seconds ]", id="old"),
        pytest.param(-5000, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]", id="clock-went-back"),
    ],
)
def test_age_is_written_in_days_to_seconds(age_ms: int, text: str) -> None:
    assert info(now_ms=BOOT_MS + age_ms)["runtime"] == text


def test_what_only_some_brokers_can_tell_is_left_out_by_others() -> None:
    ours = info(disk_bytes=None)
    assert "commitLogDirCapacity" not in ours
    assert "remainHowManyDataToCommit" not in ours


# --- a store asked ------------------------------------------------------------------------------


def facts_of(core: StoreCore) -> StoreFacts:
    return store_facts(MessageStore(core, trio.CapacityLimiter(1)))


def test_a_store_is_asked_for_its_state() -> None:
    storage = MemoryStorage()
    storage.reported_used_ratio = 0.42
    core = open_core(storage)
    fill_segments(core, 3)
    core.flush()
    flushed = core.log.written
    put_numbered(core, [1, 2])
    facts = facts_of(core)
    assert facts.min_offset == 0
    assert facts.max_offset == core.log.written > 2 * SEGMENT_BYTES
    assert facts.flush_lag_bytes == core.log.written - flushed > 0
    assert facts.dispatch_lag_bytes == 0
    assert facts.earliest_ms == START_MS
    assert facts.log_used_ratios == {"store/commitlog": 0.42}
    assert facts.queues_used_ratio == 0.42
    assert facts.commit_lag_bytes is None
    assert facts.pool_buffers_left == NO_POOL
    # A store in memory has no directory whose disk could be asked.
    assert facts.disk_bytes is None
    core.close()


def test_an_empty_store_has_no_first_message() -> None:
    core = open_core(MemoryStorage())
    facts = facts_of(core)
    assert (facts.min_offset, facts.max_offset, facts.earliest_ms) == (0, 0, -1)
    core.close()


def test_a_store_with_a_pool_tells_what_is_in_it_only() -> None:
    config = small_config(transient_pool_enabled=True, transient_pool_size=5)
    core = open_core(MemoryStorage(), config)
    put_numbered(core, range(3))
    facts = facts_of(core)
    assert facts.commit_lag_bytes == core.log.written > 0
    assert facts.max_offset == 0
    assert facts.pool_buffers_left == 4
    core.log.commit()
    facts = facts_of(core)
    assert facts.commit_lag_bytes == 0
    assert facts.max_offset == core.log.written
    core.close()


def test_the_disk_of_a_real_store_is_measured(tmp_path: Path) -> None:
    core = open_core(DiskStorage(), small_config(tmp_path))
    # Before the first message there is no directory to measure, and stock brokers say so as well.
    assert facts_of(core).log_used_ratios == {str(tmp_path / "commitlog"): -1.0}
    put_numbered(core, [1])
    facts = facts_of(core)
    assert facts.disk_bytes is not None
    total, free = facts.disk_bytes
    assert 0 < free <= total
    assert 0 <= facts.log_used_ratios[str(tmp_path / "commitlog")] <= 1
    assert 0 <= facts.queues_used_ratio <= 1
    core.close()
