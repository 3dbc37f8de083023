"""From where a nameserver takes changes, over connections and a real dispatcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from rmq.errors import ConfigError
from rmq.model.in_sync_record import NAMESPACE as IN_SYNC_NAMESPACE
from rmq.model.in_sync_record import InSyncRecord
from rmq.nameserver.address_rules import BROKER_CODES, OPERATOR_CODES
from rmq.nameserver.server import Nameserver
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    AddWritePermOfBrokerRequest,
    DeleteKvConfigRequest,
    DeleteTopicFromNamesrvRequest,
    GetKvConfigRequest,
    PutKvConfigRequest,
    QueryDataVersionRequest,
    UnregisterBrokerRequest,
    WipeWritePermOfBrokerRequest,
)
from tests.nameserver.kit import (
    CLUSTER,
    MASTER,
    SLAVE,
    ask_route,
    config_for,
    frame,
    register,
    register_header,
    running,
    saying,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.header import Header

BROKER: Final = "10.0.1.5:40000"
OPERATOR: Final = "10.0.2.6:40000"
STRANGER: Final = "203.0.113.9:40000"
PEERS: Final = {"broker": BROKER, "operator": OPERATOR, "stranger": STRANGER}

BROKERS_ONLY: Final = {"registrationAllowedAddresses": "10.0.1.0/24"}
OPERATORS_ONLY: Final = {"adminAllowedAddresses": "10.0.2.6;10.0.3.0/24"}

RECORD: Final = InSyncRecord(epoch=1, version=1, is_sync=False).encode(b"", "a").decode()


class Asked(NamedTuple):
    """A request that changes something."""

    code: RequestCode
    header: Header | None
    body: bytes = b""


REGISTER: Final = Asked(RequestCode.REGISTER_BROKER, register_header(saying()))
FROM_BROKERS: Final = {
    "register": REGISTER,
    "unregister": Asked(
        RequestCode.UNREGISTER_BROKER,
        UnregisterBrokerRequest(
            broker_name="x", broker_addr=SLAVE, cluster_name=CLUSTER, broker_id=0
        ),
    ),
    "data version": Asked(
        RequestCode.QUERY_DATA_VERSION,
        QueryDataVersionRequest(broker_addr=MASTER),
        DataVersion().encode(),
    ),
    "record": Asked(
        RequestCode.PUT_KV_CONFIG,
        PutKvConfigRequest(namespace=IN_SYNC_NAMESPACE, key="a", value=RECORD),
    ),
}
FROM_OPERATORS: Final = {
    "put": Asked(RequestCode.PUT_KV_CONFIG, PutKvConfigRequest(namespace="n", key="k", value="v")),
    "delete": Asked(RequestCode.DELETE_KV_CONFIG, DeleteKvConfigRequest(namespace="n", key="k")),
    "settings": Asked(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\n"),
    "wipe": Asked(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequest(broker_name="a")
    ),
    "add": Asked(
        RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequest(broker_name="a")
    ),
    "topic": Asked(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequest(topic="T")),
}
DELETE_RECORD: Final = {
    "delete record": Asked(
        RequestCode.DELETE_KV_CONFIG, DeleteKvConfigRequest(namespace=IN_SYNC_NAMESPACE, key="a")
    )
}
EVERYTHING: Final = FROM_BROKERS | FROM_OPERATORS | DELETE_RECORD


async def refused(tmp_path: Path, peer: str, settings: dict[str, str]) -> set[str]:
    """Which of all changes a peer may not make."""
    found: set[str] = set()
    async with running(config_for(tmp_path, **settings)) as nameserver:
        connection = nameserver.attach(PEERS[peer])
        for name, asked in EVERYTHING.items():
            answer = await connection.request(frame(asked.code, asked.header, asked.body))
            if answer.code == ResponseCode.NO_PERMISSION:
                found.add(name)
                assert "does not allow it" in (answer.remark or "")
            else:
                assert answer.code == ResponseCode.SUCCESS, (name, answer.remark)
        # Questions are everybody's.
        answer = await ask_route(connection, "T")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        header = GetKvConfigRequest(namespace="no", key="such")
        answer = await connection.request(frame(RequestCode.GET_KV_CONFIG, header))
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
    return found


@pytest.mark.parametrize(
    ("peer", "settings", "expected"),
    [
        ("stranger", {}, {}),
        ("stranger", BROKERS_ONLY, FROM_BROKERS | DELETE_RECORD),
        ("broker", BROKERS_ONLY, {}),
        ("stranger", OPERATORS_ONLY, FROM_OPERATORS | DELETE_RECORD),
        ("operator", OPERATORS_ONLY, {}),
        ("stranger", BROKERS_ONLY | OPERATORS_ONLY, EVERYTHING),
        ("broker", BROKERS_ONLY | OPERATORS_ONLY, FROM_OPERATORS | DELETE_RECORD),
        ("operator", BROKERS_ONLY | OPERATORS_ONLY, FROM_BROKERS),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value) or "all",
)
async def test_changes_are_taken_from_where_the_settings_allow(
    tmp_path: Path, peer: str, settings: dict[str, str], expected: dict[str, Asked]
) -> None:
    assert await refused(tmp_path, peer, settings) == set(expected)


def test_every_code_that_changes_something_has_a_rule(tmp_path: Path) -> None:
    reads = {
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.GET_NAMESRV_CONFIG,
    }
    served = set(Nameserver(config_for(tmp_path)).table.entries)
    assert served - reads == BROKER_CODES | OPERATOR_CODES


async def test_a_stranger_can_neither_replace_a_master_nor_unregister_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config_for(tmp_path, **BROKERS_ONLY)) as nameserver:
        broker, stranger = nameserver.attach(BROKER), nameserver.attach(STRANGER)
        assert (await register(broker, saying(topics=["T"]))).code == ResponseCode.SUCCESS
        before = (await ask_route(stranger, "T")).body
        # As itself, as another address of the name, and of a later epoch.
        for said in (saying(), saying(address=SLAVE), saying(address=SLAVE, epoch=7)):
            answer = await register(stranger, said)
            assert (answer.code, answer.remark) == (
                ResponseCode.NO_PERMISSION,
                "REGISTER_BROKER (103) is not taken from 203.0.113.9: the nameserver's setting"
                " registrationAllowedAddresses does not allow it",
            )
        goodbye = UnregisterBrokerRequest(
            broker_name="a", broker_addr=MASTER, cluster_name=CLUSTER, broker_id=0
        )
        answer = await stranger.request(frame(RequestCode.UNREGISTER_BROKER, goodbye))
        assert answer.code == ResponseCode.NO_PERMISSION
        stranger.channel.close("gone")
        assert (await ask_route(broker, "T")).body == before
    assert "refused REGISTER_BROKER (103) of 203.0.113.9" in caplog.text


async def test_refusals_are_logged_a_few_times_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config_for(tmp_path, **BROKERS_ONLY)) as nameserver:
        stranger = nameserver.attach(STRANGER)
        for _ in range(50):
            await register(stranger, saying())
    assert caplog.text.count("refused REGISTER_BROKER") == 20


@pytest.mark.parametrize("key", ["registrationAllowedAddresses", "adminAllowedAddresses"])
async def test_the_lists_cannot_be_changed_by_a_request(tmp_path: Path, key: str) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        body = f"{key}=0.0.0.0/0\n".encode()
        answer = await nameserver.attach(BROKER).request(
            frame(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
        )
    assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("peer", ["[fd00::1]:4711", "[::ffff:10.0.1.7]:4711"])
async def test_ipv6_peers_are_judged_by_their_address(tmp_path: Path, peer: str) -> None:
    settings = {"registrationAllowedAddresses": "10.0.1.0/24;fd00::/8"}
    async with running(config_for(tmp_path, **settings)) as nameserver:
        assert (await register(nameserver.attach(peer), saying())).code == ResponseCode.SUCCESS


def test_a_list_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"registrationAllowedAddresses.*'everywhere' is no"):
        config_for(tmp_path, registrationAllowedAddresses="everywhere")
