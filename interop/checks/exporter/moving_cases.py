"""Cases while messages flow: every rate that the exporter shows is the rate of the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.checks.exporter.exporter_families import PUT_TIME_CLASSES
from interop.checks.exporter.exporter_session import READERS, REFUSERS, TOPIC
from interop.support.cases import expect, expect_true
from interop.support.cluster import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interop.checks.exporter.exporter_session import ExporterSession
    from interop.checks.exporter.stock_exporter import Scrape

PART: Final = "rates"
_MINUTE_WITHIN_S: Final = 150
_SHARE: Final = 0.25
"""How far a rate may be off: sampling is not exact, and the machine has other things to do."""
_PUTS_PER_BROKEN: Final = 3
"""A message that is refused twice waits, comes back and ends as a dead letter: each is stored."""


async def run_moving_cases(session: ExporterSession) -> None:
    for name, check in (
        ("producer_tps: what is sent to the topic", _producer),
        ("producer_message_size: its bytes in the log", _producer_bytes),
        ("consumer_tps, consumer_message_size: what a group reads", _consumer),
        ("broker_tps: what the broker stores; broker_qps: what is read from it", _broker),
        ("brokeruntime: tps of the last 10 s, of puts and of reads", _runtime),
        ("client_consume_ok_msg_tps, client_consumer_pull_tps, ..._rt", _client),
        ("send_back_nums, client_consume_fail_msg_tps: what a group refuses", _refusals),
    ):
        await session.eventually(PART, name, check)
    await session.eventually(
        PART,
        "brokeruntime_pmdt_...: the last whole minute, in 13 classes",
        _put_times,
        within_s=_MINUTE_WITHIN_S,
    )
    name = "brokeruntime: tps of the last minute, found and missed, and none yet of ten minutes"
    await session.eventually(PART, name, _runtime_minute)


def _producer(session: ExporterSession, seen: Scrape) -> None:
    _expect_near("tps", seen.value("rocketmq_producer_tps", **_topic(session)), session.flow.rate)


def _producer_bytes(session: ExporterSession, seen: Scrape) -> None:
    size = seen.value("rocketmq_producer_message_size", **_topic(session))
    _expect_near("bytes per second", size, session.flow.rate * session.flow.stored_bytes)


def _consumer(session: ExporterSession, seen: Scrape) -> None:
    labels = {**_topic(session), "group": READERS}
    rate = session.flow.rate
    _expect_near("tps", seen.value("rocketmq_consumer_tps", **labels), rate)
    size = seen.value("rocketmq_consumer_message_size", **labels)
    _expect_near("bytes per second", size, rate * session.flow.stored_bytes)


def _broker(session: ExporterSession, seen: Scrape) -> None:
    labels = _broker_labels(session)
    _expect_near("tps", seen.value("rocketmq_broker_tps", **labels), _puts(session))
    # The exporter reads, too: where each queue of each group is, to tell how old that is.
    expect_true(
        "qps of at least what the group reads",
        seen.value("rocketmq_broker_qps", **labels) >= session.flow.rate * (1 - _SHARE),
    )


def _runtime(session: ExporterSession, seen: Scrape) -> None:
    rate = session.flow.rate
    labels = {"brokerIP": session.master.address}
    _expect_near("puts", seen.value("rocketmq_brokeruntime_put_tps10", **labels), _puts(session))
    for what in ("gettransfered", "getfound", "gettotal"):
        value = seen.value(f"rocketmq_brokeruntime_{what}_tps10", **labels)
        expect_true(f"{what} of {rate:.2f} at least, not {value}", value >= rate * (1 - _SHARE))


def _runtime_minute(session: ExporterSession, seen: Scrape) -> None:
    def tps(what: str, seconds: int) -> float:
        labels = {"brokerIP": session.master.address}
        return seen.value(f"rocketmq_brokeruntime_{what}_tps{seconds}", **labels)

    _expect_near("puts", tps("put", 60), _puts(session))
    for what in ("gettransfered", "getfound", "gettotal"):
        least = session.flow.rate * (1 - _SHARE)
        expect_true(f"{what} of {least:.2f} at least", tps(what, 60) >= least)
    for seconds in (10, 60):
        found, missed = tps("getfound", seconds), tps("getmiss", seconds)
        # The rates of one answer are taken one after the other.
        _expect_near(f"all reads in {seconds} s", tps("gettotal", seconds), found + missed)
    for what in ("put", "gettransfered", "getfound", "getmiss", "gettotal"):
        expect(f"{what} in 600 s", tps(what, 600), 0)


def _client(session: ExporterSession, seen: Scrape) -> None:
    labels = {"group": READERS, "topic": TOPIC, "clientId": session.reader.client_id}
    for what in ("client_consume_ok_msg_tps", "client_consumer_pull_tps"):
        _expect_near(what, seen.value(f"rocketmq_{what}", **labels), session.flow.rate)
    for what in ("client_consume_rt", "client_consumer_pull_rt"):
        expect_true(f"{what} of 0 or more", seen.value(f"rocketmq_{what}", **labels) >= 0)
    expect("failures", seen.value("rocketmq_client_consume_fail_msg_count", **labels), 0)


def _refusals(session: ExporterSession, seen: Scrape) -> None:
    labels = {"group": REFUSERS, "topic": TOPIC}
    fails = seen.value("rocketmq_client_consume_fail_msg_tps", **labels)
    expect_true("a failure from time to time", fails > 0)
    sent_back = seen.value("rocketmq_send_back_nums", broker=session.master.name, **labels)
    # Each is sent back when it comes, and again when it comes back.
    most = 2 * session.flow.broken
    expect_true(f"1 to {most} sent back, not {sent_back}", 1 <= sent_back <= most)


def _put_times(session: ExporterSession, seen: Scrape) -> None:
    counts = [seen.value(name, brokerIP=session.master.address) for name in PUT_TIME_CLASSES]
    # We count how long sends took; a stock broker counts what it stores by itself, too.
    _expect_near("messages of a minute", sum(counts), 60 * _puts(session))


def _puts(session: ExporterSession) -> float:
    """Return how many messages are stored per second."""
    return session.flow.rate + _PUTS_PER_BROKEN * session.flow.broken_rate


def _topic(session: ExporterSession) -> Mapping[str, str]:
    return {"cluster": CLUSTER, "broker": session.master.name, "topic": TOPIC}


def _broker_labels(session: ExporterSession) -> Mapping[str, str]:
    master = session.master
    return {"cluster": CLUSTER, "broker": master.name, "brokerIP": master.address}


def _expect_near(what: str, value: float, wanted: float) -> None:
    near = abs(value - wanted) <= _SHARE * wanted
    expect_true(f"{what} near {wanted:.2f}, not {value:.2f}", near)
