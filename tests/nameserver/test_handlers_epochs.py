"""A master that was deposed, over a connection: what it is told, and what it cannot disturb."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from rmq.model.in_sync_record import NAMESPACE, InSyncRecord
from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.headers import (
    PutKvConfigRequest,
    QueryDataVersionRequest,
    UnregisterBrokerRequest,
)
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

    from tests.remoting.server_kit import Frame, Peer

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
    with caplog.at_level(logging.INFO, "rmq.nameserver"):
        await register(nameserver.attach(), saying(address=NEW, epoch=2, topics=["T"]))
        (taken,) = (each for each in caplog.records if "deposed" in each.__dict__)
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
    assert [record.message for record in caplog.records] == [f"{answer.remark} (from peer)"]
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


async def put_record(peer: Peer, epoch: int, version: int = 1) -> Frame:
    value = InSyncRecord(epoch=epoch, version=version, is_sync=False).encode(b"", "a").decode()
    header = PutKvConfigRequest(namespace=NAMESPACE, key="a", value=value)
    return await peer.request(frame(RequestCode.PUT_KV_CONFIG, header))


@pytest.mark.parametrize("has_record", [True, False], ids=["record", "no record"])
@pytest.mark.parametrize("address", [OLD, NEW], ids=["the master's address", "its own address"])
@pytest.mark.parametrize("ahead", [1, 2**62 - 1], ids=["one ahead", "far ahead"])
async def test_a_forged_registration_changes_nothing_that_lasts(
    nameserver: Running,
    has_record: bool,
    address: str,
    ahead: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    master, slave, forger = nameserver.attach(), nameserver.attach(), nameserver.attach()
    said = saying(address=OLD, epoch=1, topics=["T"])
    await register(master, said)
    await register(slave, saying(broker_id=1, address="10.0.0.3:10911", epoch=1))
    if has_record:
        await put_record(master, 1)
    with caplog.at_level(logging.WARNING, "rmq.nameserver"):
        answer = await register(forger, saying(address=address, epoch=1 + ahead))
    if ahead > 1:
        # This code makes nobody believe that there is another master.
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert [record.message for record in caplog.records] == [f"{answer.remark} (from peer)"]
    else:
        assert answer.code == ResponseCode.SUCCESS
    await forger.aclose()
    await wait_all_tasks_blocked()
    # A master brings its record, if it is not there.
    assert (await put_record(master, 1, 2)).code == ResponseCode.SUCCESS
    answer = await register(master, said)
    assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, {"epoch": "1"})
    assert await masters(slave) == {0: OLD, 1: "10.0.0.3:10911"}
    assert (await ask_route(slave, "T")).code == ResponseCode.SUCCESS


async def test_a_deposed_master_is_kept_out_by_the_record_after_a_restart(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as served:
        await put_record(served.attach(), 2)
    async with running(config_for(tmp_path)) as served:
        answer = await register(served.attach(), saying(address=OLD, epoch=1))
        assert (answer.code, answer.fields) == (ResponseCode.STALE_EPOCH, {"epoch": "2"})
        assert (await register(served.attach(), saying(address=NEW, epoch=2))).code == 0
