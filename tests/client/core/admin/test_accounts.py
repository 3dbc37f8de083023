"""Accounts: what is asked of whom. Our brokers have no accounts yet, so answers are made up."""

from __future__ import annotations

import pytest

from rmq.client.core.admin.accounts import (
    Account,
    account_versions,
    delete_account,
    put_account,
    set_white_addresses,
)
from rmq.client.core.nameservers import Nameservers
from rmq.errors import (
    BadAnswerError,
    BrokersFailedError,
    ConfigError,
    ConnectionLostError,
    NoBrokerError,
)
from rmq.remoting.bodies import BrokerData, ClusterInfo, DataVersion
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateAccessConfigRequest,
    DeleteAccessConfigRequest,
    GetBrokerAclConfigResponse,
    UpdateGlobalWhiteAddrsConfigRequest,
)
from tests.client.flow_kit import Script, reply

NAMESERVERS = Nameservers("n:1")
INFO = ClusterInfo(
    broker_addr_table={
        "b": BrokerData(broker_name="b", broker_addrs={0: "b:1", 1: "s:1"}),
    },
    cluster_addr_table={"c": frozenset({"b"})},
).encode()


def test_an_account_goes_to_masters_and_slaves() -> None:
    script = Script(reply(body=INFO), reply(), reply())
    account = Account(
        access_key="orders-key",
        secret_key="very-secret",
        topic_permissions={"Orders": "PUB|SUB", "Other": "DENY"},
        group_permissions={"billing": "SUB"},
    )
    done = script.run(put_account(NAMESERVERS, account))
    assert [target.address for target in done] == ["b:1", "s:1"]
    assert script.asks[1].code is RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    assert script.asks[1].header == CreateAccessConfigRequest(
        access_key="orders-key",
        secret_key="very-secret",
        topic_perms="Orders=PUB|SUB,Other=DENY",
        group_perms="billing=SUB",
    )
    assert "very-secret" not in repr(account)


def test_who_did_not_take_an_account_is_named() -> None:
    script = Script(
        reply(body=INFO),
        reply(code=ResponseCode.DELETE_ACL_CONFIG_FAILED, remark="no such account"),
        ConnectionLostError("s:1", "gone"),
    )
    with pytest.raises(BrokersFailedError, match="no such account") as caught:
        script.run(delete_account(NAMESERVERS, "orders-key"))
    assert [who for who, _ in caught.value.failures] == ["b at b:1", "b at s:1"]
    assert script.asks[1].header == DeleteAccessConfigRequest(access_key="orders-key")


def test_addresses_without_an_account() -> None:
    script = Script(reply())
    script.run(set_white_addresses(NAMESERVERS, ["10.0.0.*", "10.1.0.1"], broker="b:1"))
    assert script.asks[0].header == UpdateGlobalWhiteAddrsConfigRequest(
        global_white_addrs="10.0.0.*,10.1.0.1"
    )


def test_versions_of_accounts_are_read() -> None:
    def header(version: str) -> GetBrokerAclConfigResponse:
        return GetBrokerAclConfigResponse(
            version=version, broker_name="b", broker_addr="b:1", cluster_name="c"
        )

    script = Script(reply(header('{"counter":3,"timestamp":7}')))
    told = script.run(account_versions(NAMESERVERS, "b:1"))
    assert told.version == DataVersion(counter=3, timestamp=7)
    with pytest.raises(BadAnswerError, match="GET_BROKER_CLUSTER_ACL_INFO to b:1"):
        Script(reply(header("nonsense"))).run(account_versions(NAMESERVERS, "b:1"))


def test_keys_that_are_too_short_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="secret_key"):
        Account(access_key="orders-key", secret_key="short")


def test_there_must_be_a_cluster() -> None:
    empty = ClusterInfo().encode()
    with pytest.raises(NoBrokerError, match="nameservers know no broker"):
        Script(reply(body=empty)).run(delete_account(NAMESERVERS, "orders-key"))
    two = ClusterInfo(cluster_addr_table={"c": frozenset(), "d": frozenset()}).encode()
    with pytest.raises(NoBrokerError, match="there are c, d") as caught:
        Script(reply(body=two)).run(delete_account(NAMESERVERS, "orders-key"))
    assert caught.value.hint is not None
