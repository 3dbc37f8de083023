"""Captured requests of stock peers, sent again: our answers against those of a stock nameserver.

The run `cluster-start` begins with an empty nameserver, so everything it says follows from what it
was told. In the other runs brokers had told it things that were not captured; there a broker tells
ours what each captured answer says it knew, right before the request.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from rmq.remoting.bodies.routes import ClusterInfo, TopicRouteData
from rmq.remoting.bodies.topics import TopicConfig, TopicList
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import PutKvConfigRequest
from tests.nameserver.captures import Exchange, exchanges, runs
from tests.nameserver.kit import config_for, frame, register, running, saying, topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.nameserver.kit import Running
    from tests.remoting.server_kit import Frame, Peer

CLUSTER = "GoldenCluster"
BROKER = "broker-golden"
ADDRESSES = {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}
STOCK_VERSION = 407


def as_ours(answer: Frame) -> Frame:
    """What we should say: the same in every respect but the version, which is that of 4.9.8."""
    assert answer.version == STOCK_VERSION
    return dataclasses.replace(answer, version=409)


def comparable(answer: Frame) -> Frame:
    """Topic lists are sets: names of equal hash come in any order, in Java too."""
    if not answer.body.startswith(b'{"topicList":['):
        return answer
    names = sorted(json.loads(answer.body)["topicList"])
    return dataclasses.replace(answer, body=json.dumps(names).encode())


class Broker:
    """Tells a nameserver what the captured one must have known."""

    def __init__(self, nameserver: Running) -> None:
        self._peers = {broker_id: nameserver.attach() for broker_id in ADDRESSES}
        self._told: dict[str, TopicConfig] = {}
        self._version = 0

    async def tell(self, topics: Mapping[str, TopicConfig]) -> None:
        if self._version and topics.items() <= self._told.items():
            return
        self._told.update(topics)
        self._version += 1
        for broker_id, peer in self._peers.items():
            said = saying(
                BROKER,
                broker_id,
                ADDRESSES[broker_id],
                cluster=CLUSTER,
                version=self._version,
                topics=self._told.values(),
            )
            assert (await register(peer, said)).code == ResponseCode.SUCCESS


async def replay(nameserver: Running, run: str, broker: Broker | None = None) -> int:
    """Send what was sent, in order, over as many connections, and compare every answer."""
    peers: dict[int, Peer] = {}
    compared = 0
    for exchange in exchanges(run):
        peer = peers.get(exchange.connection)
        if peer is None:
            peer = peers[exchange.connection] = nameserver.attach(f"peer-{exchange.connection}")
        if broker is not None:
            await broker.tell(topics_known_by(exchange))
        await peer.send(exchange.request)
        if exchange.answer is not None:
            expected = comparable(as_ours(exchange.answer))
            assert comparable(await peer.read()) == expected, exchange.name
            compared += 1
    return compared


async def test_a_cluster_that_starts_gets_the_same_answers(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        assert await replay(nameserver, "cluster-start") == 11


@pytest.mark.parametrize("run", [name for name in runs() if name != "cluster-start"])
async def test_clients_and_mqadmin_get_the_same_answers(tmp_path: Path, run: str) -> None:
    asked = exchanges(run)
    async with running(config_for(tmp_path)) as nameserver:
        for header in values_known(asked):
            await nameserver.attach().request(frame(RequestCode.PUT_KV_CONFIG, header))
        assert await replay(nameserver, run, Broker(nameserver)) == len(asked)


def test_the_captures_are_what_these_tests_take_them_for() -> None:
    asked = {exchange.name for run in runs() for exchange in exchanges(run)}
    assert asked == {
        "REGISTER_BROKER",
        "GET_ROUTEINFO_BY_TOPIC",
        "GET_BROKER_CLUSTER_INFO",
        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
        "GET_KV_CONFIG",
        "DELETE_KV_CONFIG",
        "UPDATE_NAMESRV_CONFIG",
        "ADD_WRITE_PERM_OF_BROKER",
        "DELETE_TOPIC_IN_NAMESRV",
    }
    info = ClusterInfo.decode(
        next(
            exchange.answer.body
            for exchange in exchanges("mqadmin-08-clusterList")
            if exchange.name == "GET_BROKER_CLUSTER_INFO" and exchange.answer is not None
        )
    )
    assert info.broker_addr_table[BROKER].broker_addrs == ADDRESSES


def topics_known_by(exchange: Exchange) -> dict[str, TopicConfig]:
    """The topics that the captured nameserver must have known to say what it said."""
    answer = exchange.answer
    assert answer is not None
    if answer.code != ResponseCode.SUCCESS:
        return {}
    if exchange.name == "GET_ROUTEINFO_BY_TOPIC":
        name = exchange.field("topic")
        (queues,) = TopicRouteData.decode(answer.body).queue_datas
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=queues.read_queue_nums,
            write_queue_nums=queues.write_queue_nums,
            perm=queues.perm,
            topic_sys_flag=queues.topic_sys_flag,
        )
        return {name: config}
    if exchange.name == "GET_ALL_TOPIC_LIST_FROM_NAMESERVER":
        return {name: topic(name) for name in TopicList.decode(answer.body).topic_list}
    if exchange.name == "ADD_WRITE_PERM_OF_BROKER":
        assert answer.fields is not None
        numbers = range(int(answer.fields["addTopicCount"]))
        return {f"topic-{number}": topic(f"topic-{number}", perm=4) for number in numbers}
    return {}


def values_known(asked: tuple[Exchange, ...]) -> list[PutKvConfigRequest]:
    return [
        PutKvConfigRequest(
            namespace=exchange.field("namespace"),
            key=exchange.field("key"),
            value=exchange.answer.fields["value"],
        )
        for exchange in asked
        if exchange.name == "GET_KV_CONFIG" and exchange.answer and exchange.answer.fields
    ]
