"""A master that was deposed, over a connection: what it is told, and what it cannot disturb."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.headers import QueryDataVersionRequest, UnregisterBrokerRequest
from tests.nameserver.kit import (
    CLUSTER,
    MASTER,
    SLAVE,
    Running,
    ask_route,
    config_for,
    frame,
    register,
    register_body,
    register_header,
    running,
    saying,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.remoting.server_kit import Peer

OLD, NEW = MASTER, SLAVE


@pytest.fixture
async def nameserver(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(config_for(tmp_path)) as served:
        yield served


async def masters(peer: Peer) -> dict[int, str]:
    answer = await peer.request(frame(RequestCode.GET_BROKER_CLUSTER_INFO))
    return ClusterInfo.decode(answer.body).broker_addr_table["a"].broker_addrs


async def test_brokers_of_ours_are_told_the_epoch(nameserver: Running) -> None:
    answer = await register(nameserver.attach(), saying(epoch=3))
    assert answer.fields == {"epoch": "3"}
    answer = await register(nameserver.attach(), saying(broker_id=1, address=SLAVE, epoch=3))
    assert answer.fields == {"haServerAddr": f"{MASTER}0", "masterAddr": MASTER, "epoch": "3"}


async def test_stock_brokers_are_answered_as_a_stock_nameserver_does(nameserver: Running) -> None:
    assert (await register(nameserver.attach(), saying())).fields == {}
    answer = await register(nameserver.attach(), saying(broker_id=1, address=SLAVE))
    assert answer.fields == {"haServerAddr": f"{MASTER}0", "masterAddr": MASTER}


@pytest.mark.parametrize("serialization", Serialization)
async def test_a_deposed_master_is_told_by_whom(
    nameserver: Running, serialization: Serialization, caplog: pytest.LogCaptureFixture
) -> None:
    await register(nameserver.attach(), saying(address=OLD, epoch=1, topics=["T"]))
    with caplog.at_level(logging.WARNING, "rmq.nameserver"):
        await register(nameserver.attach(), saying(address=NEW, epoch=2, topics=["T"]))
        (taken,) = caplog.records
        assert (taken.message, taken.__dict__["deposed"]) == ("a new master", OLD)
        caplog.clear()
        said = saying(address=OLD, epoch=1, topics=["T"])
        peer = nameserver.attach()
        answer = await peer.request(
            frame(
                RequestCode.REGISTER_BROKER,
                register_header(said),
                register_body(said).encode(),
                serialization=serialization,
            )
        )
    assert (answer.code, answer.fields) == (ResponseCode.STALE_EPOCH, {"epoch": "2"})
    assert answer.serialization == serialization
    assert answer.remark is not None
    assert "epoch 2" in answer.remark
    assert NEW in answer.remark
    assert [record.message for record in caplog.records] == [answer.remark]
    assert await masters(peer) == {0: NEW}


async def test_a_deposed_master_cannot_disturb_the_new_one(nameserver: Running) -> None:
    old, new = nameserver.attach(), nameserver.attach()
    said = saying(address=OLD, epoch=1, topics=["T"])
    await register(old, said)
    await register(new, saying(address=NEW, epoch=2, topics=["T"]))

    asked = QueryDataVersionRequest(
        broker_name="a", broker_addr=OLD, cluster_name=CLUSTER, broker_id=0
    )
    answer = await old.request(
        frame(RequestCode.QUERY_DATA_VERSION, asked, said.data_version.encode())
    )
    assert answer.fields == {"changed": "true"}, "it would else not register again"
    goodbye = UnregisterBrokerRequest(
        broker_name="a", broker_addr=OLD, cluster_name=CLUSTER, broker_id=0
    )
    answer = await old.request(frame(RequestCode.UNREGISTER_BROKER, goodbye))
    assert answer.code == ResponseCode.SUCCESS
    await old.aclose()
    assert await masters(new) == {0: NEW}
    assert (await ask_route(new, "T")).code == ResponseCode.SUCCESS
