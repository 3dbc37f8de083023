"""Metrics of a master and a slave that run, as a Prometheus gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rmq.broker.metrics.serving import BrokerMetrics
from rmq.metrics.process import LogEvents
from rmq.metrics.server import serve_metrics
from rmq.model.clock import system_ms
from rmq.remoting.codes import ResponseCode
from tests.broker.metrics.metrics_kit import ones, scraped
from tests.ha.pair_kit import pair
from tests.metrics.test_server import get

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.broker.broker import Broker
    from tests.broker.metrics.metrics_kit import Series


async def scrape(broker: Broker) -> dict[Series, float]:
    """What a broker shows over HTTP."""
    metrics = BrokerMetrics(broker.live, LogEvents())
    metrics.show(broker, system_ms)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_metrics, "127.0.0.1", 0, metrics.pages)
        answer = await get(port, "/metrics")
        nursery.cancel_scope.cancel()
    assert answer.status == 200
    return scraped(answer.headers["content-type"], answer.body)


def only(found: dict[Series, float], name: str, **wanted: str) -> float:
    """The value of the one series of this name that has these labels, among others."""
    [value] = [
        value
        for (found_name, labels), value in found.items()
        if found_name == name and wanted.items() <= dict(labels).items()
    ]
    return value


async def test_a_pair_shows_its_replication_and_what_is_missing_without_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 20) == [ResponseCode.SUCCESS] * 20
        await it.equal(master, slave)
        await it.until(
            lambda: master.role_change.status().replicated == master.store.log.written,
            "all is confirmed",
        )

        of_master, of_slave = await scrape(master), await scrape(slave)
        end = int(master.store.log.written)
        assert end > 0
        assert ones(of_master, "rocketmq_broker_role", "role") == ["sync_master"]
        assert ones(of_slave, "rocketmq_broker_role", "role") == ["slave"]
        assert ones(of_slave, "rocketmq_ha_slave_state", "state") == ["streaming"]
        for found in (of_master, of_slave):
            assert only(found, "rocketmq_commitlog_max_offset_bytes") == end
            assert only(found, "rocketmq_broker_epoch") == master.replication.identity.epoch
            assert only(found, "process_resident_memory_bytes") > 0
        assert only(of_master, "rocketmq_commitlog_replicated_offset_bytes") == end
        assert only(of_master, "rocketmq_ha_in_sync_slaves") == 1
        assert only(of_master, "rocketmq_ha_unprotected_bytes") == 0
        assert only(of_master, "rocketmq_ha_slave_in_sync", address=slave.address) == 1
        assert only(of_master, "rocketmq_ha_replication_lag_bytes", address=slave.address) == 0
        assert only(of_master, "rocketmq_put_results_total", status="PUT_OK") == 20
        assert only(of_master, "rocketmq_put_stage_seconds_count", stage="append") == 20
        assert only(of_master, "rocketmq_put_stage_seconds_count", stage="replicate") == 20
        assert only(of_master, "rocketmq_put_latency_seconds_count") == 20
        assert only(of_slave, "rocketmq_commitlog_appended_bytes_total") == 0
        for found in (of_master, of_slave):
            assert only(found, "rocketmq_broker_ready") == 1
        assert only(of_slave, "rocketmq_slave_metadata_sync_timestamp_seconds", kind="topics") > 0
        assert only(of_slave, "rocketmq_ha_master_connected") == 1
        assert only(of_slave, "rocketmq_ha_lag_behind_master_bytes") == 0

        await it.stop("two")
        await it.until(
            lambda: not master.role_change.status().slaves[0].connected, "the slave is gone"
        )
        for _ in range(3):
            assert await it.send(master, 1) == [ResponseCode.SLAVE_NOT_AVAILABLE]
        found = await scrape(master)
        assert only(found, "rocketmq_ha_in_sync_slaves") == 0
        assert only(found, "rocketmq_ha_slave_connected", address=slave.address) == 0
        behind = int(master.store.log.written) - end
        assert only(found, "rocketmq_ha_unprotected_bytes") == behind > 0
        assert (
            only(found, "rocketmq_ha_unreplicated_sends_total", status="SLAVE_NOT_AVAILABLE") == 3
        )
