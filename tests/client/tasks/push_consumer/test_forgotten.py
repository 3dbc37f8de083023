"""A broker that has forgotten a consumer hears of it again at once, not with the next heartbeat."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from rmq.client.core.config import ClientConfig
from rmq.client.trio.opening import open_push_consumer
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import TOPIC, no_new, put, queue, scripted_broker, until
from tests.client.push_kit import Collector, consumer

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.headers import PullMessageRequest
    from rmq.remoting.request import Request

FOREVER_S = 600.0
# At the start, when queues were dealt out, and a second after the start.
USUAL_HEARTBEATS = 3


@pytest.mark.parametrize(
    "code", [ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST]
)
async def test_it_is_told_when_it_says_so(code: ResponseCode) -> None:
    held: list[Request[PullMessageRequest]] = []

    def hold(request: Request[PullMessageRequest]) -> None:
        held.append(request)
        no_new(request)

    async with scripted_broker() as broker:
        broker.on_pull = hold
        config = ClientConfig(
            nameservers=broker.address, route_refresh_s=FOREVER_S, heartbeat_s=FOREVER_S
        )
        running = open_push_consumer(
            config, "readers", TOPIC, Collector(), rebalance_s=FOREVER_S, pull_pause_s=0.1
        )
        async with running:
            await until(lambda: held and len(broker.heartbeats()) == USUAL_HEARTBEATS)
            broker.on_pull = no_new
            held[0].reply(code=code, remark="never heard of it")
            await until(lambda: len(broker.heartbeats()) == USUAL_HEARTBEATS + 1)
            await until(lambda: len(broker.asked_for(RequestCode.PULL_MESSAGE)) == 2)


async def test_it_is_not_told_again_and_again() -> None:
    """Members that subscribe to different topics make brokers forget each other's all the time."""
    async with scripted_broker() as broker:
        broker.on_pull = partial(refuse_always, ResponseCode.SUBSCRIPTION_NOT_EXIST)
        config = ClientConfig(
            nameservers=broker.address, route_refresh_s=FOREVER_S, heartbeat_s=FOREVER_S
        )
        running = open_push_consumer(
            config, "readers", TOPIC, Collector(), rebalance_s=FOREVER_S, pull_pause_s=0.02
        )
        async with running:
            await until(lambda: len(broker.asked_for(RequestCode.PULL_MESSAGE)) >= 20)
            # The one a second after the start may be still to come.
            assert len(broker.heartbeats()) <= USUAL_HEARTBEATS + 1


def refuse_always(code: ResponseCode, request: Request[PullMessageRequest]) -> None:
    request.reply(code=code, remark="never heard of it")


async def test_a_broker_that_was_started_again_is_consumed_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        seen = Collector()
        never = ClientConfig(nameservers=it.nameserver, route_refresh_s=FOREVER_S)
        async with consumer(it, seen, client=never, rebalance_s=FOREVER_S, pull_pause_s=0.1):
            await put(it, queue(0), ["before"])
            await seen.wait("before")
            await it.kill()
            await it.start()
            await put(it, queue(0), ["after"])
            await seen.wait("after")
