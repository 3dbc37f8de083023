"""What a nameserver shows: from registrations and questions that it served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio.testing

from rmq.metrics.process import LogEvents
from rmq.nameserver import metrics as nameserver_metrics
from rmq.remoting.codes import ResponseCode
from tests.broker.metrics.metrics_kit import scraped
from tests.nameserver.kit import Running, ask_route, config_for, register, running, saying, topic

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.broker.metrics.metrics_kit import Series


def scrape(served: Running) -> dict[Series, float]:
    pages = served.nameserver._pages(LogEvents())
    return scraped(*pages.registry.scrape())


def value(found: dict[Series, float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset({"node_type": "namesrv", **labels}.items())))


async def test_brokers_and_questions_are_counted(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as served:
        found = scrape(served)
        assert value(found, "rocketmq_namesrv_ready") == 1
        assert value(found, "rocketmq_namesrv_brokers") == 0
        assert value(found, "rocketmq_namesrv_registrations_total", result="accepted") == 0
        peer = await served.dial()
        answer = await register(peer, saying("a", topics=(topic("T"), topic("U"))))
        assert answer.code == ResponseCode.SUCCESS
        await ask_route(peer, "T")
        await ask_route(peer, "none")
        found = scrape(served)
        for name, count in (("brokers", 1), ("broker_names", 1), ("clusters", 1), ("topics", 2)):
            assert value(found, f"rocketmq_namesrv_{name}") == count
        assert value(found, "rocketmq_namesrv_registrations_total", result="accepted") == 1
        assert value(found, "rocketmq_namesrv_registrations_total", result="refused") == 0
        assert value(found, "rocketmq_namesrv_route_requests_total", result="found") == 1
        assert value(found, "rocketmq_namesrv_route_requests_total", result="not_found") == 1
        assert value(found, "rocketmq_remoting_connections", listener="main") == 1
        [registered] = [
            dict(labels) for name, labels in found if name == "rocketmq_namesrv_broker_registered"
        ]
        assert registered["broker"] == "a"
        assert registered["broker_id"] == "0"
        await peer.aclose()
        while served.nameserver.routes.address_count:
            await trio.testing.wait_all_tasks_blocked(0.001)
        found = scrape(served)
        lost = value(found, "rocketmq_namesrv_broker_removals_total", reason="connection_lost")
        assert lost == 1
        assert value(found, "rocketmq_namesrv_brokers") == 0


async def test_brokers_with_ever_new_names_make_few_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nameserver_metrics, "REGISTERED_MAX", 2)
    async with running(config_for(tmp_path)) as served:
        peer = await served.dial()
        for number in range(4):
            await register(peer, saying(f'n"{number}', address=f"192.0.2.{number}:10911"))
        found = scrape(served)
        assert value(found, "rocketmq_namesrv_brokers") == 4
        assert sum(1 for name, _ in found if name == "rocketmq_namesrv_broker_registered") == 2
