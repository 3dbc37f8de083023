"""A broker's state as text by key: the answer to GET_BROKER_RUNTIME_INFO.

Keys and texts are those of RocketMQ 4.9.8 (AdminBrokerProcessor.prepareRuntimeInfo,
StoreStatsService.getRuntimeInfo): `mqadmin brokerStatus` prints them, `mqadmin clusterList` and
rocketmq-exporter take the numbers out of them, the latter without a guard. Three texts differ:

- `putMessageDistributeTime` has its 13 classes from the start, not "null" for the first minute.
- `putLatency99` and `putLatency999` end at 10 s, where 4.9.8 says numbers without meaning.
- `earliestMessageTimeStamp` is known from the first message on, not only once there are 8 MiB.

The figures come as plain values; only `store_facts` asks a store, and the disk how full it is.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

import rmq
from rmq.broker.stats.store import RATE_SPANS_S, TIME_CLASSES
from rmq.model.java import double_text
from rmq.remoting.codes import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.broker.stats.store import RatesPerSecond, StoreStats
    from rmq.store.store import MessageStore

NO_POOL: Final = 2**31 - 1
"""What is said of the buffers left when there is no transient pool."""

_UNITS: Final = "KMGTPE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests of one kind that wait to be worked on."""

    waiting: int = 0
    capacity: int
    head_wait_ms: int = 0
    """How long the first of them has been waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """State of a store and its disks."""

    min_offset: int
    max_offset: int
    dispatch_lag_bytes: int
    flush_lag_bytes: int
    commit_lag_bytes: int | None
    """What is in the transient pool only; None without one."""
    pool_buffers_left: int
    earliest_ms: int
    log_used_ratios: Mapping[str, float]
    """How full the disk of each CommitLog path is, 0 to 1; -1 if it cannot be told."""
    queues_used_ratio: float
    disk_bytes: tuple[int, int] | None
    """All and free bytes of the disk of the store's root; None if they cannot be told."""


def runtime_info(
    *,
    stats: StoreStats,
    store: StoreFacts,
    now_ms: int,
    send: Load,
    pull: Load,
    query: Load,
    end_transaction: Load,
    delay_progress: Mapping[int, tuple[int, int]],
    accept_sends_from_ms: int = 0,
    append_stall_ms: int = 0,
) -> dict[str, str]:
    """Return the table of a broker.

    `delay_progress` has for each delay level in use what is delivered and the end of its queue.
    `append_stall_ms` is for how long the append under way has been keeping others from theirs.
    """
    return {
        **_throughput(stats, now_ms),
        **_store(store),
        **{
            f"scheduleMessageOffset_{level}": f"{delivered},{end}"
            for level, (delivered, end) in delay_progress.items()
        },
        "brokerVersionDesc": rmq.PROTOCOL_VERSION,
        "brokerVersion": str(VERSION),
        **_days(stats),
        "sendThreadPoolQueueSize": str(send.waiting),
        "sendThreadPoolQueueCapacity": str(send.capacity),
        "sendThreadPoolQueueHeadWaitTimeMills": str(send.head_wait_ms),
        "pullThreadPoolQueueSize": str(pull.waiting),
        "pullThreadPoolQueueCapacity": str(pull.capacity),
        "pullThreadPoolQueueHeadWaitTimeMills": str(pull.head_wait_ms),
        "queryThreadPoolQueueSize": str(query.waiting),
        "queryThreadPoolQueueCapacity": str(query.capacity),
        "queryThreadPoolQueueHeadWaitTimeMills": str(query.head_wait_ms),
        "EndTransactionQueueSize": str(end_transaction.waiting),
        "EndTransactionThreadPoolQueueCapacity": str(end_transaction.capacity),
        "pageCacheLockTimeMills": str(append_stall_ms),
        "startAcceptSendRequestTimeStamp": str(accept_sends_from_ms),
    }


def store_facts(store: MessageStore) -> StoreFacts:
    """Return the state of a store; asks the file system too, which is quick but not pure."""
    config, log = store.config, store.log
    has_pool = config.transient_pool_enabled
    # Each segment that is not wholly in the files yet occupies a buffer.
    in_pool = len(log.segments.from_offset(log.readable)) if has_pool else 0
    try:
        usage = shutil.disk_usage(config.root)
    except OSError:
        disk_bytes = None
    else:
        disk_bytes = (usage.total, usage.free)
    return StoreFacts(
        min_offset=log.min_offset,
        max_offset=log.readable,
        dispatch_lag_bytes=log.readable - store.dispatched,
        flush_lag_bytes=log.readable - log.flushed,
        commit_lag_bytes=log.uncommitted if has_pool else None,
        pool_buffers_left=max(0, config.transient_pool_size - in_pool) if has_pool else NO_POOL,
        earliest_ms=store.reads.earliest_store_time_of_log(),
        log_used_ratios={str(path): store.used_ratio(path) for path in config.commit_log_paths},
        queues_used_ratio=store.used_ratio(config.queues_path),
        disk_bytes=disk_bytes,
    )


def _throughput(stats: StoreStats, now_ms: int) -> dict[str, str]:
    # 4.9.8 divides by this number of messages, and shows it, so that there is never none.
    put_count = stats.put_count or 1
    rates = [stats.rate(span_s) for span_s in RATE_SPANS_S]
    classes = zip(TIME_CLASSES, stats.put_times_by_class, strict=True)
    return {
        "bootTimestamp": str(stats.boot_ms),
        "runtime": _age(now_ms - stats.boot_ms),
        "putMessageEntireTimeMax": str(int(stats.put_ms_max)),
        "putMessageTimesTotal": str(put_count),
        "putMessageFailedTimes": str(stats.put_failures),
        "putMessageSizeTotal": str(stats.put_size),
        "putMessageDistributeTime": "".join(f"{label}:{count} " for label, count in classes),
        "putMessageAverageSize": double_text(stats.put_size / put_count),
        # 4.9.8 has this key, but never anything to say under it.
        "dispatchMaxBuffer": "0",
        "getMessageEntireTimeMax": str(int(stats.get_ms_max)),
        "putTps": _rates_text([rate and rate.put for rate in rates]),
        "getFoundTps": _rates_text([rate and rate.found for rate in rates]),
        "getMissTps": _rates_text([rate and rate.missed for rate in rates]),
        "getTotalTps": _rates_text([_reads_per_second(rate) for rate in rates]),
        "getTransferedTps": _rates_text([rate and rate.transferred for rate in rates]),
        "putLatency99": _fixed(stats.put_ms_at(0.99), 2),
        "putLatency999": _fixed(stats.put_ms_at(0.999), 2),
    }


def _store(store: StoreFacts) -> dict[str, str]:
    ratios = store.log_used_ratios
    table = {
        **{f"commitLogDiskRatio_{path}": double_text(ratio) for path, ratio in ratios.items()},
        "commitLogDiskRatio": double_text(min(ratios.values())),
        "consumeQueueDiskRatio": double_text(store.queues_used_ratio),
        "commitLogMinOffset": str(store.min_offset),
        "commitLogMaxOffset": str(store.max_offset),
        "dispatchBehindBytes": str(store.dispatch_lag_bytes),
        "earliestMessageTimeStamp": str(store.earliest_ms),
        "remainTransientStoreBufferNumbs": str(store.pool_buffers_left),
        "remainHowManyDataToFlush": _bytes_text(store.flush_lag_bytes),
    }
    if store.commit_lag_bytes is not None:
        table["remainHowManyDataToCommit"] = _bytes_text(store.commit_lag_bytes)
    if store.disk_bytes is not None:
        total, free = map(_bytes_text, store.disk_bytes)
        table["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."
    return table


def _days(stats: StoreStats) -> dict[str, str]:
    mornings = stats.mornings
    return {
        "msgPutTotalYesterdayMorning": str(mornings.put_yesterday),
        "msgPutTotalTodayMorning": str(mornings.put_today),
        "msgPutTotalTodayNow": str(stats.put_count),
        "msgGetTotalYesterdayMorning": str(mornings.get_yesterday),
        "msgGetTotalTodayMorning": str(mornings.get_today),
        "msgGetTotalTodayNow": str(stats.get_count),
    }


def _reads_per_second(rate: RatesPerSecond | None) -> float:
    return 0.0 if rate is None else rate.found + rate.missed


def _rates_text(rates: list[float | None]) -> str:
    """Return the rates over 10 s, 1 min and 10 min; one that is not known yet is left empty."""
    return " ".join("" if rate is None else double_text(rate) for rate in rates)


def _age(age_ms: int) -> str:
    """Return how long that is, as java.text.MessageFormat writes it: with commas in thousands."""
    seconds = max(0, age_ms) // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _bytes_text(count: int) -> str:
    """Return a number of bytes in the largest unit it reaches, as 4.9.8 MixAll does."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{_fixed(count / 1024**power, 1)} {_UNITS[power - 1]}iB"


def _fixed(value: float, digits: int) -> str:
    """Return `%.<digits>f` of Java, which rounds halves away from zero where Python does not."""
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
