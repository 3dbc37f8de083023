"""Cases after the flow: offsets, lag and totals are exact, whatever was sent, read and refused."""

from __future__ import annotations

import math
import shutil
import time
from typing import TYPE_CHECKING, Final

from interop.checks.exporter.exporter_session import (
    PRODUCERS,
    READ_FIRST,
    READERS,
    REFUSERS,
    STROLLERS,
    TOPIC,
)
from interop.support.cases import expect, expect_true
from interop.support.cluster import CLUSTER, Against

if TYPE_CHECKING:
    from interop.checks.exporter.exporter_session import ExporterSession
    from interop.checks.exporter.stock_exporter import Scrape

PART: Final = "state"
_CLUSTERING: Final = "1"
_LATENCY_OFF_MS: Final = 20_000
"""The exporter collects every two seconds, and keeps what it has for a while."""
_DISK_SHARE: Final = 0.02
_RATIO_OFF: Final = 0.05
"""Others write to the disk meanwhile; a broker looks at it from time to time."""
_POOLS: Final = {
    "rocketmq_brokeruntime_send_threadpoolqueue_capacity": 10_000,
    "rocketmq_brokeruntime_pull_threadpoolqueue_capacity": 100_000,
    "rocketmq_brokeruntime_query_threadpool_queue_capacity": 20_000,
}
_IDLE: Final = (
    "dispatch_behind_bytes",
    "remain_howmanydata_toflush",
    "send_threadpool_queue_size",
    "send_threadpoolqueue_headwait_timemills",
    "pull_threadpoolqueue_size",
    "pull_threadpoolqueue_headwait_timemills",
    "query_threadpoolqueue_size",
    "pagecache_lock_time_mills",
    "commitlog_minoffset",
    "dispatch_maxbuffer",
    "start_accept_sendrequest_time",
    "msg_puttotal_yesterdaymorning",
    "msg_gettotal_yesterdaymorning",
)
"""What is 0 in a young broker that has nothing to do."""


async def run_resting_cases(session: ExporterSession) -> None:
    for name, check in (
        ("producer_offset, topic_retry_offset, topic_dlq_offset", _topic_ends),
        ("group_diff: nothing left for those who read, all the flow for those who left", _lag),
        ("group_retrydiff: what was refused has come back", _retry_lag),
        ("consumer_offset: where each group is", _places),
        ("group_get_latency_by_storetime: age of the first message not read", _latency),
        ("group_count, producer_count: clients", _clients),
        ("broker_commitlog_diff: the slave has everything", _slave),
        ("brokeruntime: messages and bytes stored, and where the log ends", _totals),
        ("brokeruntime: messages given to consumers", _gets),
        ("brokeruntime: the first message and the start of the broker", _times),
        ("brokeruntime: the disk", _disk),
        ("brokeruntime: capacities of queues of requests", _capacities),
        ("brokeruntime: what is 0 at rest", _idle),
        ("brokeruntime: the longest put and read, percentiles, buffers", _longest),
    ):
        await session.eventually(PART, name, check)


def _topic_ends(session: ExporterSession, seen: Scrape) -> None:
    broker = {"cluster": CLUSTER, "broker": session.master.name}
    flow = session.flow
    expect("sent", seen.latest("rocketmq_producer_offset", topic=TOPIC, **broker), flow.sent)
    waited = seen.latest("rocketmq_producer_offset", topic="SCHEDULE_TOPIC_XXXX", **broker)
    expect("delayed", waited, flow.broken)
    retry = seen.latest("rocketmq_topic_retry_offset", topic=f"%RETRY%{REFUSERS}", **broker)
    expect("retried", retry, flow.broken)
    dead = seen.latest("rocketmq_topic_dlq_offset", group=REFUSERS, **broker)
    expect("dead letters", dead, flow.broken)


def _lag(session: ExporterSession, seen: Scrape) -> None:
    left = {READERS: 0, REFUSERS: 0, STROLLERS: session.flow.sent - READ_FIRST}
    for group, messages in left.items():
        online = "0" if group == STROLLERS else "1"
        labels = {"countOfOnlineConsumers": online, "msgModel": _CLUSTERING}
        lag = seen.value("rocketmq_group_diff", group=group, topic=TOPIC, **labels)
        expect(f"lag of the {group}", lag, messages)


def _retry_lag(session: ExporterSession, seen: Scrape) -> None:
    topic = f"%RETRY%{REFUSERS}"
    lag = seen.value("rocketmq_group_retrydiff", group=REFUSERS, topic=topic)
    expect("retries not consumed", lag, 0)


def _places(session: ExporterSession, seen: Scrape) -> None:
    broker = {"cluster": CLUSTER, "broker": session.master.name}
    sent = session.flow.sent
    for group, offset in ((READERS, sent), (REFUSERS, sent), (STROLLERS, READ_FIRST)):
        place = seen.value("rocketmq_consumer_offset", group=group, topic=TOPIC, **broker)
        expect(f"offsets of the {group}", place, offset)


def _latency(session: ExporterSession, seen: Scrape) -> None:
    family = "rocketmq_group_get_latency_by_storetime"
    expect("of the readers", seen.value(family, group=READERS, topic=TOPIC), 0)
    age_ms = time.time_ns() // 1_000_000 - session.flow.begun_ms
    shown_ms = seen.value(family, group=STROLLERS, topic=TOPIC)
    expect_true(
        f"the strollers' latency of {age_ms} ms, not {shown_ms:.0f}",
        0 <= age_ms - shown_ms <= _LATENCY_OFF_MS,
    )


def _clients(session: ExporterSession, seen: Scrape) -> None:
    for group, online in ((READERS, 1), (REFUSERS, 1), (STROLLERS, 0)):
        expect(group, seen.value("rocketmq_group_count", group=group), online)
    labels = {"cluster": CLUSTER, "broker": session.master.name}
    expect("producers", seen.value("rocketmq_producer_count", group=PRODUCERS, **labels), 1)


def _slave(session: ExporterSession, seen: Scrape) -> None:
    labels = {"brokerIP": session.slave.address, "broker": session.slave.name}
    diff = seen.value("rocketmq_broker_commitlog_diff", cluster=CLUSTER, **labels)
    expect("bytes that the slave lacks", diff, 0)


def _totals(session: ExporterSession, seen: Scrape) -> None:
    def value(ending: str) -> float:
        return _runtime(session, seen, ending)

    # Each broken one is stored again three times: to wait, to come back, as a dead letter.
    stored = session.flow.sent + 3 * session.flow.broken
    expect("messages today", value("msg_put_total_today_now"), stored)
    expect("messages", value("putmessage_times_total"), stored)
    expect("messages until this morning", value("msg_puttotal_todaymorning"), 0)
    end = value("commitlog_maxoffset")
    expect_true(
        "an end behind all that was sent",
        end >= session.flow.last_offset + session.flow.stored_bytes,
    )
    # All of them are in the first file of the log, without any padding.
    expect("bytes", value("put_message_size_total"), end)
    average = value("put_message_average_size")
    expect_true(f"{end / stored} bytes on average", abs(average - end / stored) < 0.01)


def _gets(session: ExporterSession, seen: Scrape) -> None:
    # The exporter reads, too.
    read = session.flow.sent + READ_FIRST + 2 * session.flow.broken
    total = _runtime(session, seen, "msg_gettotal_today_now")
    expect_true(f"{read} at least, not {total}", total >= read)
    expect("until this morning", _runtime(session, seen, "msg_gettotal_todaymorning"), 0)


def _times(session: ExporterSession, seen: Scrape) -> None:
    first_ms = _runtime(session, seen, "earliest_message_timestamp")
    # A stock broker does not know it before there are 8 MiB.
    known = session.flow.first_ms if session.against is Against.RMQ else -1
    expect("the first message", first_ms, known)
    (sample,) = seen.families["rocketmq_brokeruntime_commitlog_maxoffset"]
    age_ms = session.flow.first_ms - int(sample.labels["boottime"])
    expect_true(f"a start shortly before the first message, not {age_ms} ms", 0 < age_ms < 120_000)
    expect_true("a version", sample.labels["des"].startswith("V4_9_"))


def _disk(session: ExporterSession, seen: Scrape) -> None:
    usage = shutil.disk_usage(session.master.folder)
    for what, size in (("total", usage.total), ("free", usage.free)):
        shown = _runtime(session, seen, f"commitlogdir_capacity_{what}")
        expect_true(f"{what}: {size}, not {shown}", abs(shown - size) <= _DISK_SHARE * usage.total)
    # As `df` counts: some of what is free may be kept from this user.
    used = usage.used / (usage.used + usage.free)
    for what in ("commitlog", "consumequeue"):
        ratio = _runtime(session, seen, f"{what}_disk_ratio")
        expect_true(f"{what}: {used:.3f} used, not {ratio}", abs(ratio - used) <= _RATIO_OFF)


def _capacities(session: ExporterSession, seen: Scrape) -> None:
    for family, capacity in _POOLS.items():
        expect(family, seen.value(family, brokerIP=session.master.address), capacity)


def _idle(session: ExporterSession, seen: Scrape) -> None:
    for ending in _IDLE:
        expect(ending, _runtime(session, seen, ending), 0)


def _longest(session: ExporterSession, seen: Scrape) -> None:
    buffers = _runtime(session, seen, "remain_transientstore_buffer_numbs")
    expect("buffers, of which there are none", buffers, 2**31 - 1)
    put_ms = _runtime(session, seen, "putmessage_entire_time_max")
    expect_true(f"a longest put of less than 20 s, not {put_ms} ms", 0 <= put_ms < 20_000)
    get_ms = _runtime(session, seen, "getmessage_entire_time_max")
    expect_true(f"a longest read of less than 20 s, not {get_ms} ms", 0 <= get_ms < 20_000)
    p99, p999 = (_runtime(session, seen, f"put_latency_{ending}") for ending in ("99", "999"))
    # Ours are of classes of which none is wider than its longest times are long. Those of a stock
    # broker are numbers without meaning, at times of more than the longest put.
    most = 2 * put_ms + 1 if session.against is Against.RMQ else math.inf
    expect_true(f"{p99} <= {p999} <= {most}", p99 <= p999 <= most)


def _runtime(session: ExporterSession, seen: Scrape, ending: str) -> float:
    labels = {"cluster": CLUSTER, "brokerIP": session.master.address, "brokerHost": ""}
    return seen.value(f"rocketmq_brokeruntime_{ending}", **labels)
