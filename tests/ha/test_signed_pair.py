"""Nameserver, master and slave that refuse what is not signed: everything works between them.

The guard stands where access control does, on every port for requests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from rmq.broker import broker as broker_module
from rmq.nameserver import server as nameserver_module
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.server import RemotingServer
from rmq.remoting.signing import Credentials
from tests.ha.pair_kit import pair
from tests.remoting.signing_kit import SignatureGuard

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BROKERS: Final = Credentials(access_key="brokers", secret_key="12345678")
OPERATOR: Final = Credentials(access_key="operator", secret_key="87654321")


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> SignatureGuard:
    guard = SignatureGuard(BROKERS, OPERATOR)
    guarded: Callable[..., RemotingServer] = partial(RemotingServer, guard=guard)
    monkeypatch.setattr(broker_module, "RemotingServer", guarded)
    monkeypatch.setattr(nameserver_module, "RemotingServer", guarded)
    return guard


def credentials_file(folder: Path, credentials: Credentials = BROKERS) -> Path:
    # Beside the settings files of the pair, where brokers find it without being told.
    path = folder / "tools.yml"
    path.write_text(f"accessKey: {credentials.access_key}\nsecretKey: {credentials.secret_key}\n")
    return path


async def test_a_pair_replicates_and_changes_roles_with_signed_calls_only(
    tmp_path: Path, guard: SignatureGuard
) -> None:
    credentials_file(tmp_path)
    async with pair(tmp_path) as it:
        it.client.credentials = OPERATOR
        master, slave = await it.sync_pair()
        assert await it.send(master, 5) == [ResponseCode.SUCCESS] * 5
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await it.in_sync(slave)
        assert await it.send(slave, 5) == [ResponseCode.SUCCESS] * 5
        await it.equal(slave, master)
        assert len(await it.bodies(slave)) == 15
        it.client.credentials = None
        answer = await it.ask(slave, RequestCode.HA_STATUS)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        it.client.credentials = OPERATOR
    assert guard.refused == [RequestCode.HA_STATUS]
    asked = guard.admitted[BROKERS.access_key]
    assert asked >= {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_KV_CONFIG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.HA_STATUS,
        RequestCode.HA_STEP_DOWN,
    }, sorted(RequestCode(code).name for code in asked)


async def test_without_credentials_a_broker_is_not_listed(
    tmp_path: Path, guard: SignatureGuard
) -> None:
    async with pair(tmp_path) as it:
        it.client.credentials = OPERATOR
        await it.start("one", "SYNC_MASTER")
        cluster = await it.client.request(it.nameserver, RequestCode.GET_BROKER_CLUSTER_INFO)
        assert b"broker-a" not in (cluster.body or b"")
    assert RequestCode.REGISTER_BROKER in guard.refused
