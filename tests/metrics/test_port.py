"""Which port metrics are served on, and what happens when it is taken."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.broker.metrics.serving import BrokerMetrics
from rmq.errors import ListenError
from rmq.metrics.port import start_metrics
from rmq.metrics.process import LEVELS, LogEvents, LogMetrics
from rmq.nameserver.server import Nameserver
from rmq.settings import metrics_port
from tests.broker.broker_kit import free_port, live_broker, live_config
from tests.broker.metrics.metrics_kit import collected, pages_of, scraped, value
from tests.metrics.test_server import get, serving
from tests.nameserver.kit import config_for

if TYPE_CHECKING:
    from pathlib import Path

HERE = "127.0.0.1"


async def started(port: int, default: int) -> str | None:
    async with trio.open_nursery() as nursery:
        where = await start_metrics(nursery, HERE, port, default, pages_of())
        nursery.cancel_scope.cancel()
    return where


async def test_a_port_that_is_set_must_be_free() -> None:
    async with serving() as taken, trio.open_nursery() as nursery:
        with pytest.raises(ListenError, match=f"{HERE}:{taken}"):
            await start_metrics(nursery, HERE, taken, 0, pages_of())


async def test_the_usual_port_is_done_without_if_another_process_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as taken:
        with caplog.at_level(logging.WARNING):
            assert await started(metrics_port.UNSET, taken) is None
    [record] = caplog.records
    assert record.getMessage() == (
        f"no metrics are served: cannot listen on {HERE}:{taken}: Address already in use; set"
        " metricsPort to a free port, or to 0 for none"
    )


async def test_zero_is_none_and_so_is_no_usual_port() -> None:
    assert await started(0, 5557) is None
    assert await started(metrics_port.UNSET, 0) is None


async def test_a_broker_serves_what_it_does_and_whether_it_is_ready(tmp_path: Path) -> None:
    port = free_port()
    async with live_broker(live_config(tmp_path, {"metricsPort": str(port)})):
        answer = await get(port, "/metrics")
        found = scraped(answer.headers["content-type"], answer.body)
        names = {name for name, _ in found}
        assert {"rocketmq_broker_role", "rocketmq_topic_number", "python_info"} <= names
        assert [n for (name, _), n in found.items() if name == "rocketmq_broker_ready"] == [1]
        assert [
            number
            for (name, labels), number in found.items()
            if name == "rocketmq_storage_disk_free_bytes" and number > 0
        ]
        assert (await get(port, "/readyz")).status == 200


async def test_a_nameserver_serves_what_it_lists(tmp_path: Path) -> None:
    port = free_port()
    nameserver = Nameserver(config_for(tmp_path, metricsPort=str(port)))
    async with trio.open_nursery() as nursery:
        await nursery.start(nameserver.run)
        answer = await get(port, "/metrics")
        found = scraped(answer.headers["content-type"], answer.body)
        one = frozenset({("node_type", "namesrv")})
        assert found["rocketmq_namesrv_ready", one] == 1
        assert found["rocketmq_namesrv_brokers", one] == 0
        assert (await get(port, "/readyz")).status == 200
        nameserver.stop()
    assert "process_resident_memory_bytes" in {name for name, _ in found}


def test_lines_of_the_log_are_counted_by_their_level() -> None:
    logger = logging.getLogger("rmq.test")
    with LogEvents() as events:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, 50, 35, 1):
            logger.handle(logging.LogRecord("rmq.test", level, "", 0, "", (), None))
        found = collected(LogMetrics(events, lambda: {"default": (2, 40)}))
    logger.handle(logging.LogRecord("rmq.test", logging.ERROR, "", 0, "", (), None))
    counts = [value(found, "rocketmq_log_events_total", level=level) for level in LEVELS]
    assert counts == [2, 1, 2, 1, 1]
    assert value(found, "rocketmq_worker_threads_busy", pool="default") == 2


async def test_before_the_store_is_open_a_broker_says_that_it_recovers(tmp_path: Path) -> None:
    metrics = BrokerMetrics(live_config(tmp_path), LogEvents())
    found = scraped(*metrics.registry.scrape())
    ready = {
        dict(labels).get("reason", "ready"): number
        for (name, labels), number in found.items()
        if name in ("rocketmq_broker_ready", "rocketmq_broker_unready")
    }
    assert ready.pop("ready") == 0
    assert [reason for reason, number in ready.items() if number] == ["recovering"]
    assert metrics.pages.unready() == ["recovering: the store is being opened"]
    assert ("process_cpu_seconds_total", frozenset[tuple[str, str]]()) in found
