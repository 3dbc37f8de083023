"""A broker with access control, and our own client with and without credentials."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client import Message, open_producer
from rmq.client.core.admin.accounts import Account
from rmq.client.core.config import ClientConfig
from rmq.client.trio.opening import open_admin, open_pull_consumer
from rmq.errors import BrokersFailedError, ConfigError, ResponseError, SendFailedError
from rmq.remoting.bodies import DataVersion
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateAccessConfigRequest,
    DeleteAccessConfigRequest,
    UpdateGlobalWhiteAddrsConfigRequest,
)
from rmq.remoting.signing import Credentials
from tests.access.access_kit import ADMIN, FORGER, USER, signed_frame
from tests.broker.broker_frames import frame
from tests.broker.broker_kit import live_broker, live_config, part_broker
from tests.client.cluster_kit import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.header import Header
    from tests.broker.broker_kit import LiveBroker
    from tests.client.cluster_kit import Cluster
    from tests.remoting.server_kit import Frame

ACL = """\
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- accessKey: the-user
  secretKey: user-secret
  defaultGroupPerm: SUB
  topicPerms: [Orders=PUB|SUB]
"""
GUESSED = Credentials(access_key=USER.access_key, secret_key="guessed-secret")


def settings(folder: Path, text: str = ACL) -> dict[str, str]:
    path = folder / "plain_acl.yml"
    path.write_text(text)
    path.chmod(0o600)
    return {"aclEnable": "true", "rocketmq.acl.plain.file": str(path)}


def as_who(it: Cluster, credentials: Credentials | None) -> ClientConfig:
    return ClientConfig(nameservers=it.nameserver, credentials=credentials)


async def test_our_client_works_with_an_account_and_not_without(tmp_path: Path) -> None:
    async with cluster(tmp_path, ("broker-a",), **settings(tmp_path)) as it:
        async with open_admin(as_who(it, ADMIN)) as admin:
            for topic in ("Orders", "Invoices"):
                await admin.create_topic(topic, queues=1)
        async with (
            open_producer(as_who(it, USER), "makers") as producer,
            trio.open_nursery() as sends,
        ):
            for number in range(15):  # together, so that headers are decoded in one pass
                sends.start_soon(producer.send, Message("Orders", b"%d" % number))
        async with open_producer(as_who(it, USER), "makers", retries=0) as producer:
            with pytest.raises(SendFailedError, match="No default permission for topic:Invoices"):
                await producer.send(Message("Invoices", b"x"))
        async with open_producer(as_who(it, GUESSED), "makers", retries=0) as producer:
            with pytest.raises(SendFailedError, match="Check signature failed"):
                await producer.send(Message("Orders", b"x"))
        async with open_pull_consumer(as_who(it, USER), "readers") as consumer:
            (queue,) = await consumer.fetch_queues("Orders")
            assert await consumer.max_offset(queue) == 15
            assert len((await consumer.pull(queue, 0)).messages) == 15
        async with open_pull_consumer(as_who(it, None), "readers") as consumer:
            with pytest.raises(ResponseError, match="No accessKey is configured"):
                await consumer.max_offset(queue)


async def test_accounts_are_managed_as_mqadmin_does(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, ("broker-a",), **settings(tmp_path)) as it,
        open_admin(as_who(it, ADMIN)) as admin,
    ):
        await admin.put_account(
            Account(
                access_key="newcomer",
                secret_key="newcomers",
                topic_permissions={"Orders": "PUB"},
            ),
            cluster="DefaultCluster",
        )
        newcomer = Credentials(access_key="newcomer", secret_key="newcomers")
        async with open_admin(as_who(it, newcomer)) as own:
            with pytest.raises(BrokersFailedError, match="Need admin permission"):
                await own.delete_account("the-admin", cluster="DefaultCluster")
            versions = await own.account_versions(it.address())
            assert versions.version.counter == 1
            await admin.delete_account("newcomer", cluster="DefaultCluster")
            with pytest.raises(ResponseError, match="No acl config for newcomer"):
                await own.account_versions(it.address())
        await admin.set_white_addresses(["127.0.0.1"], cluster="DefaultCluster")
        async with open_admin(as_who(it, None)) as unsigned:
            assert (await unsigned.account_versions(it.address())).version.counter == 3
    assert (tmp_path / "plain_acl.yml").stat().st_mode & 0o777 == 0o600


async def test_both_ports_are_guarded(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path / "store", settings(tmp_path))) as it:
        for port in (it.port, it.vip_port):
            for credentials, code in ((None, 1), (FORGER, 1), (USER, 0), (ADMIN, 0)):
                asked = signed_frame(credentials, RequestCode.GET_BROKER_RUNTIME_INFO)
                assert (await it.ask(asked, port=port)).code == code


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (None, r"there is no file of accounts: \S*plain_acl.yml does not exist"),
        ("accounts: [", r"plain_acl.yml: line 2 is not YAML"),
        ("accounts: []", r"plain_acl.yml: names no account and no address"),
    ],
)
async def test_a_broker_without_its_file_does_not_start(
    tmp_path: Path, text: str | None, wrong: str
) -> None:
    wanted = settings(tmp_path, text or "")
    if text is None:
        (tmp_path / "plain_acl.yml").unlink()
    with pytest.RaisesGroup(
        pytest.RaisesExc(ConfigError, match=wrong), flatten_subgroups=True, allow_unwrapped=True
    ):
        async with live_broker(live_config(tmp_path / "store", wanted)):
            pass
    assert not (tmp_path / "store").exists()


# --- 50 to 53 over frames ------------------------------------------------------------------------


async def ask(it: LiveBroker, code: RequestCode, header: Header | None = None) -> Frame:
    return await it.ask(signed_frame(ADMIN, code, header))


def an_account(
    access_key: str = "newcomer",
    *,
    topic_perms: str | None = None,
    white_remote_address: str | None = None,
) -> CreateAccessConfigRequest:
    return CreateAccessConfigRequest(
        access_key=access_key,
        secret_key="newcomers",
        topic_perms=topic_perms,
        white_remote_address=white_remote_address,
    )


async def test_requests_about_accounts_are_answered_as_stock_answers(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path / "store", settings(tmp_path))) as it:
        for header, remark in (
            (
                an_account("short"),
                "The accessKey=short and secretKey=*** cannot be null and length should longer"
                " than 6",
            ),
            (
                an_account(topic_perms="T=ALL"),
                "Parse resource permission error for T=ALL.\nThe expected permissions are 'SUB' or"
                " 'PUB' or 'SUB|PUB' or 'PUB|SUB'.",
            ),
            (
                an_account(white_remote_address="nowhere"),
                "Netaddress examine Exception netaddress is nowhere",
            ),
        ):
            answer = await ask(it, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
            assert (answer.code, answer.remark) == (209, remark)
        answer = await ask(it, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, an_account())
        assert (answer.code, answer.remark) == (0, None)
        answer = await ask(
            it, RequestCode.DELETE_ACL_CONFIG, DeleteAccessConfigRequest(access_key="x")
        )
        assert (answer.code, answer.remark) == (
            210,
            "The accesskey[x] corresponding to accessConfig has been deleted failed.",
        )
        elsewhere = UpdateGlobalWhiteAddrsConfigRequest(
            global_white_addrs="*", acl_file_full_path="/etc/passwd"
        )
        answer = await ask(it, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, elsewhere)
        assert (answer.code, answer.remark) == (
            211,
            "The globalWhiteAddresses[*] has been updated failed.",
        )
        answer = await ask(it, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.fields is not None
        path = str(tmp_path / "plain_acl.yml")
        version = DataVersion.decode(answer.fields["version"].encode())
        assert version.counter == 1
        by_path = json.loads(answer.fields["allAclFileVersion"])
        assert by_path == {
            path: {"counter": version.counter, "timestamp": version.timestamp},
        }
        told = {name: answer.fields[name] for name in ("brokerName", "brokerAddr", "clusterName")}
        assert told == {
            "brokerName": "broker-a",
            "brokerAddr": f"127.0.0.1:{it.port}",
            "clusterName": "DefaultCluster",
        }


async def test_without_access_control_there_is_nothing_to_manage(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as kit:
        for code, header, refused in (
            (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, an_account(), 209),
            (RequestCode.DELETE_ACL_CONFIG, DeleteAccessConfigRequest(access_key="x"), 210),
            (
                RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
                UpdateGlobalWhiteAddrsConfigRequest(global_white_addrs="*"),
                211,
            ),
            (RequestCode.GET_BROKER_CLUSTER_ACL_INFO, None, 1),
        ):
            answer = await kit.ask(frame(code, header))
            assert (answer.code, answer.remark) == (
                refused,
                "this broker has no access control: aclEnable is false",
            )
