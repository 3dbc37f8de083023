"""Nameserver, master and slave with access control: all works with accounts, nothing without.

Real sockets and files: the brokers find `plain_acl.yml` and `tools.yml` beside their settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.broker.replication import master_role
from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message
from rmq.client.trio.opening import open_producer
from rmq.errors import RmqError
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.signing import Credentials
from tests.ha.pair_kit import TOPIC, Pair, pair

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.broker.broker import Broker

BROKERS: Final = Credentials(access_key="the-brokers", secret_key="12345678")
OPERATOR: Final = Credentials(access_key="operator", secret_key="87654321")
USER: Final = Credentials(access_key="some-user", secret_key="24681357")
FORGER: Final = Credentials(access_key="operator", secret_key="a-wrong-guess")
ON: Final = {"aclEnable": "true"}
REQUESTS_OF_BROKERS: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.HA_STATUS,
)
CHANGES_OF_ROLES: Final = (
    RequestCode.HA_PROMOTE,
    RequestCode.HA_DEMOTE,
    RequestCode.HA_RESYNC,
    RequestCode.HA_DIGESTS,
    RequestCode.HA_STEP_DOWN,
    RequestCode.HA_FENCE,
    RequestCode.HA_RENOUNCE,
)
OF_NAMESERVERS: Final = (
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
)


def write_accounts(folder: Path, brokers: Credentials | None = BROKERS) -> None:
    """Write the accounts of all servers, and the keys of the brokers."""
    (folder / "plain_acl.yml").write_text(
        f"""\
accounts:
- accessKey: {BROKERS.access_key}
  secretKey: {BROKERS.secret_key}
  admin: true
- accessKey: {OPERATOR.access_key}
  secretKey: {OPERATOR.secret_key}
  admin: true
- accessKey: {USER.access_key}
  secretKey: {USER.secret_key}
  topicPerms: [{TOPIC}=PUB|SUB]
  groupPerms: [pair=SUB]
"""
    )
    if brokers is not None:
        (folder / "tools.yml").write_text(
            f"accessKey: {brokers.access_key}\nsecretKey: {brokers.secret_key}\n"
        )


async def sync_pair(it: Pair) -> tuple[Broker, Broker]:
    """Start a sync master and a slave that counts, both with access control."""
    it.client.credentials = OPERATOR
    master = await it.start("one", "SYNC_MASTER", ON)
    await it.create_topic(master)
    slave = await it.start("two", "SLAVE", ON)
    await it.in_sync(master)
    return master, slave


async def test_a_pair_serves_replicates_and_changes_roles(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    async with pair(tmp_path, "aclEnable=true\n") as it:
        master, slave = await sync_pair(it)
        it.client.credentials = USER
        assert await it.send(master, 5) == [ResponseCode.SUCCESS] * 5
        await it.settled(master)
        it.client.credentials = OPERATOR
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await it.in_sync(slave)
        it.client.credentials = USER
        assert await it.send(slave, 5) == [ResponseCode.SUCCESS] * 5
        await it.equal(slave, master)
        assert len(await it.bodies(slave)) == 10
        assert len(await it.bodies(master)) == 10
        config = ClientConfig(nameservers=it.nameserver, credentials=USER)
        async with open_producer(config, "pair-producers") as producer:
            assert (await producer.send(Message(TOPIC, b"by our client"))).is_ok


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        pytest.param(None, "No accessKey is configured", id="unsigned"),
        pytest.param(FORGER, "Check signature failed", id="forged"),
    ],
)
async def test_strangers_are_refused_on_each(
    tmp_path: Path, credentials: Credentials | None, reason: str
) -> None:
    write_accounts(tmp_path)
    async with pair(tmp_path, "aclEnable=true\n") as it:
        master, slave = await sync_pair(it)
        it.client.credentials = credentials
        for broker in (master, slave):
            for code in (*REQUESTS_OF_BROKERS, *CHANGES_OF_ROLES):
                answer = await it.ask(broker, code)
                assert answer.code == ResponseCode.SYSTEM_ERROR, code
                assert reason in (answer.remark or ""), code
        for code in OF_NAMESERVERS:
            answer = await it.client.request(it.nameserver, code)
            assert answer.code == ResponseCode.SYSTEM_ERROR, code
            assert reason in (answer.remark or ""), code
        assert await it.send(master, 1) == [ResponseCode.SYSTEM_ERROR]
        await refused_by_our_client(it, credentials, reason)


async def refused_by_our_client(it: Pair, credentials: Credentials | None, reason: str) -> None:
    """Check that our client says why, and what to do."""
    config = ClientConfig(nameservers=it.nameserver, credentials=credentials)
    async with open_producer(config, "pair-producers") as producer:
        with pytest.raises(RmqError, match=reason) as caught:
            await producer.send(Message(TOPIC, b"no"))
        assert caught.value.hint


async def test_an_account_without_admin_rights_changes_no_role(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    async with pair(tmp_path, "aclEnable=true\n") as it:
        master, slave = await sync_pair(it)
        it.client.credentials = USER
        for broker in (master, slave):
            for code in CHANGES_OF_ROLES:
                answer = await it.ask(broker, code)
                assert "Need admin permission" in (answer.remark or ""), code
            assert (await it.status(broker)).broker_name == "broker-a"
        answer = await it.client.request(it.nameserver, RequestCode.REGISTER_BROKER)
        assert "Need admin permission" in (answer.remark or "")


async def test_brokers_without_credentials_are_not_listed_and_get_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(master_role, "CONFIRM_S", 0.1)
    write_accounts(tmp_path, brokers=None)
    async with pair(tmp_path, "aclEnable=true\n") as it:
        it.client.credentials = OPERATOR
        master = await it.start("one", "ASYNC_MASTER", ON)
        await it.create_topic(master)
        cluster = await it.client.request(it.nameserver, RequestCode.GET_BROKER_CLUSTER_INFO)
        assert b"broker-a" not in (cluster.body or b"")
        follow = {"haMasterAddress": f"127.0.0.1:{master.live.current.ha_port}"}
        slave = await it.start("two", "SLAVE", {**ON, **follow})
        runner = slave.replication.slave
        assert runner is not None
        await it.until(lambda: runner.status.connects > 0, "the slave has connected")
        assert slave.topics.get(TOPIC) is None
        told = f"cannot register at nameserver {it.nameserver}: REGISTER_BROKER"
        assert told in caplog.text
        assert "No accessKey is configured (the request was not signed: " in caplog.text
