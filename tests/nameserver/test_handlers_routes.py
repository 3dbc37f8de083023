"""Codes about brokers, topics and routes, over a connection: frames in, frames out."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from rmq.remoting.bodies.registration import body_crc32
from rmq.remoting.bodies.topics import DataVersion, TopicConfigSerializeWrapper
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.headers import (
    AddWritePermOfBrokerRequest,
    DeleteTopicFromNamesrvRequest,
    GetRouteInfoRequest,
    GetTopicsByClusterRequest,
    PutKvConfigRequest,
    QueryDataVersionRequest,
    UnregisterBrokerRequest,
    WipeWritePermOfBrokerRequest,
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
    topic,
)
from tests.remoting.server_kit import raw_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.nameserver.registration import Registration
    from rmq.remoting.header import Header
    from tests.remoting.server_kit import Frame, Peer

code = RequestCode


@pytest.fixture
async def nameserver(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(config_for(tmp_path)) as served:
        yield served


async def ask(peer: Peer, request_code: RequestCode, header: Header | None = None) -> Frame:
    answer = await peer.request(frame(request_code, header))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


async def names(peer: Peer, request_code: RequestCode, header: Header | None = None) -> set[str]:
    answer = await ask(peer, request_code, header)
    return set(json.loads(answer.body)["topicList"])


# ---- registering ---------------------------------------------------------------------------------


async def test_a_master_is_answered_with_no_fields_and_no_body(nameserver: Running) -> None:
    answer = await register(nameserver.attach(), saying(topics=["T"]))
    assert (answer.code, answer.fields, answer.body) == (ResponseCode.SUCCESS, {}, b"")
    assert answer.remark is None


async def test_a_slave_is_answered_with_its_masters_addresses(nameserver: Running) -> None:
    await register(nameserver.attach(), saying())
    answer = await register(nameserver.attach(), saying(broker_id=1, address=SLAVE))
    assert answer.fields == {"haServerAddr": f"{MASTER}0", "masterAddr": MASTER}


async def test_the_answer_carries_ordered_topics_once_there_were_any(nameserver: Running) -> None:
    peer = nameserver.attach()
    put = PutKvConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
    await ask(peer, code.PUT_KV_CONFIG, put)
    answer = await register(nameserver.attach(), saying())
    assert answer.body == b'{"table":{"T":"a:4"}}'


async def test_a_one_way_registration_counts_and_is_not_answered(nameserver: Running) -> None:
    peer = nameserver.attach()
    said = saying(topics=["T"])
    body = register_body(said).encode()
    await peer.send(frame(code.REGISTER_BROKER, register_header(said), body, oneway=True))
    answer = await ask_route(peer, "T")
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("serialization", Serialization)
async def test_both_header_serializations_register(
    nameserver: Running, serialization: Serialization
) -> None:
    peer = nameserver.attach()
    said = saying(topics=["T"])
    body = register_body(said).encode()
    header = register_header(said, crc32=body_crc32(body))
    await peer.send(frame(code.REGISTER_BROKER, header, body, serialization=serialization))
    answer = await peer.read()
    assert (answer.code, answer.serialization) == (ResponseCode.SUCCESS, serialization)
    assert (await ask_route(peer, "T")).code == ResponseCode.SUCCESS


async def test_the_compressed_form_brings_the_same_topics(nameserver: Running) -> None:
    peer = nameserver.attach()
    said = saying(topics=[topic("T", perm=4, queues=3), "U"], filter_servers=("f:1",))
    body = register_body(said).encode_compressed()
    header = register_header(said, compressed=True, crc32=body_crc32(body))
    answer = await peer.request(frame(code.REGISTER_BROKER, header, body))
    assert answer.code == ResponseCode.SUCCESS
    route = json.loads((await ask_route(peer, "T")).body)
    assert route["queueDatas"] == [
        {
            "brokerName": "a",
            "perm": 4,
            "readQueueNums": 3,
            "topicSysFlag": 0,
            "writeQueueNums": 3,
        }
    ]
    assert route["filterServerTable"] == {MASTER: ["f:1"]}


@pytest.mark.parametrize(
    ("version", "counts"),
    [pytest.param(36, True, id="3.0.10"), pytest.param(37, False, id="3.0.11")],
)
async def test_brokers_before_3_0_11_send_only_their_topics(
    nameserver: Running, version: int, counts: bool
) -> None:
    peer = nameserver.attach()
    said = saying(topics=["T"])
    body = TopicConfigSerializeWrapper(
        topic_config_table={"T": topic("T")}, data_version=said.data_version
    ).encode()
    answer = await peer.request(
        frame(code.REGISTER_BROKER, register_header(said), body, version=version)
    )
    assert answer.code == ResponseCode.SUCCESS
    # A later broker that sends such a body has, as far as anyone can tell, no topics.
    assert ((await ask_route(peer, "T")).code == ResponseCode.SUCCESS) == counts


@pytest.mark.parametrize("version", [36, 409])
async def test_a_registration_without_a_body_is_at_version_0(
    nameserver: Running, version: int
) -> None:
    peer = nameserver.attach()
    header = register_header(saying())
    answer = await peer.request(frame(code.REGISTER_BROKER, header, version=version))
    assert answer.code == ResponseCode.SUCCESS
    asked = QueryDataVersionRequest(broker_addr=MASTER)
    answer = await peer.request(
        frame(code.QUERY_DATA_VERSION, asked, b'{"counter":0,"timestamp":0}')
    )
    assert answer.fields == {"changed": "false"}


async def test_a_body_with_another_crc_is_refused(
    nameserver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    peer = nameserver.attach()
    said = saying(topics=["T"])
    body = register_body(said).encode()
    header = register_header(said, crc32=body_crc32(body) ^ 1)
    for sent in (body, b""):
        answer = await peer.request(frame(code.REGISTER_BROKER, header, sent))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert (await ask_route(peer, "T")).code == ResponseCode.TOPIC_NOT_EXIST
    assert "another CRC" in caplog.text


@pytest.mark.parametrize(
    ("body", "compressed", "version"),
    [
        pytest.param(b"{", False, 409, id="torn"),
        pytest.param(b"\x00\xff", False, 409, id="no text"),
        pytest.param(b"[1]", False, 409, id="a list"),
        pytest.param(
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"x"}}}}',
            False,
            409,
            id="wrong kind",
        ),
        pytest.param(b"{}", True, 409, id="not compressed"),
        pytest.param(b"x\x9c\x03\x00\x00\x00\x00\x01", True, 409, id="compressed nothing"),
        pytest.param(b"{", False, 36, id="old, torn"),
        pytest.param(b'{"topicConfigTable":{"T":{"perm":"x"}}}', False, 36, id="old, wrong kind"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused_without_a_traceback(
    nameserver: Running,
    caplog: pytest.LogCaptureFixture,
    body: bytes,
    compressed: bool,
    version: int,
) -> None:
    peer = nameserver.attach()
    header = register_header(saying(), compressed=compressed)
    answer = await peer.request(frame(code.REGISTER_BROKER, header, body, version=version))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("Failed to decode RegisterBrokerBody: ")
    assert nameserver.nameserver.statistics().brokers == 0
    assert not any(record.exc_info for record in caplog.records)


async def test_a_registration_that_lacks_a_field_is_told_which(nameserver: Running) -> None:
    peer = nameserver.attach()
    answer = await peer.request(
        raw_frame(b'{"code":103,"opaque":5,"extFields":{"brokerName":"a"}}')
    )
    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 5)
    assert answer.remark is not None
    assert "brokerAddr" in answer.remark


@pytest.mark.parametrize(
    "said", [saying(name=""), saying(address=""), saying(cluster="")], ids=["name", "addr", "cl"]
)
async def test_an_empty_name_is_refused(nameserver: Running, said: Registration) -> None:
    answer = await register(nameserver.attach(), said)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.endswith(" is empty")


async def test_coming_and_going_is_logged_once_not_at_every_registration(
    nameserver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmq.nameserver")
    peer = nameserver.attach()
    for _ in range(3):
        await register(peer, saying(topics=["T", "U"]))
    (line,) = (record for record in caplog.records if record.getMessage() == "broker registered")
    facts = vars(line)
    assert (facts["broker"], facts["id"], facts["address"]) == ("a", 0, MASTER)
    assert (facts["cluster"], facts["topics_changed"]) == (CLUSTER, 2)


async def test_unregistering_removes_the_broker_and_can_be_repeated(nameserver: Running) -> None:
    peer = nameserver.attach()
    await register(peer, saying(topics=["T"]))
    header = UnregisterBrokerRequest(
        broker_name="a", broker_addr=MASTER, cluster_name=CLUSTER, broker_id=0
    )
    for _ in range(2):
        answer = await peer.request(frame(code.UNREGISTER_BROKER, header))
        assert (answer.code, answer.fields, answer.body) == (ResponseCode.SUCCESS, None, b"")
    assert (await ask_route(peer, "T")).code == ResponseCode.TOPIC_NOT_EXIST


# ---- data versions -------------------------------------------------------------------------------


async def ask_version(peer: Peer, counter: int, address: str = MASTER) -> Frame:
    body = DataVersion(timestamp=1_000, counter=counter).encode()
    header = QueryDataVersionRequest(
        broker_addr=address, broker_name="a", cluster_name=CLUSTER, broker_id=0
    )
    return await peer.request(frame(code.QUERY_DATA_VERSION, header, body))


async def test_a_broker_learns_whether_its_version_is_the_one_known(nameserver: Running) -> None:
    peer = nameserver.attach()
    unknown = await ask_version(peer, 1)
    assert (unknown.code, unknown.fields, unknown.body) == (0, {"changed": "true"}, b"")
    await register(peer, saying(version=1))
    same = await ask_version(peer, 1)
    assert (same.fields, same.body) == (
        {"changed": "false"},
        b'{"counter":1,"timestamp":1000}',
    )
    other = await ask_version(peer, 2)
    assert (other.fields, other.body) == (
        {"changed": "true"},
        b'{"counter":1,"timestamp":1000}',
    )


@pytest.mark.parametrize("body", [b"", b"{", b"7"], ids=["none", "torn", "number"])
async def test_a_version_that_cannot_be_read_is_refused_without_a_traceback(
    nameserver: Running, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    header = QueryDataVersionRequest(broker_addr=MASTER)
    answer = await nameserver.attach().request(frame(code.QUERY_DATA_VERSION, header, body))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert not any(record.exc_info for record in caplog.records)


# ---- routes --------------------------------------------------------------------------------------

STANDARD = b'"brokerAddrs":{"0":"10.0.0.1:10911"}'
OLD = b'"brokerAddrs":{0:"10.0.0.1:10911"}'


@pytest.mark.parametrize(
    ("version", "accepts", "form"),
    [
        pytest.param(401, None, STANDARD, id="4.9.4"),
        pytest.param(409, None, STANDARD, id="4.9.8"),
        pytest.param(400, None, OLD, id="before 4.9.4"),
        pytest.param(0, None, OLD, id="no version"),
        pytest.param(400, False, OLD, id="does not ask for standard"),
        pytest.param(400, True, STANDARD, id="asks for standard"),
        pytest.param(409, False, STANDARD, id="new, does not ask"),
    ],
)
async def test_old_clients_get_the_old_form(
    nameserver: Running, version: int, accepts: bool | None, form: bytes
) -> None:
    peer = nameserver.attach()
    await register(peer, saying(topics=["T"]))
    header = GetRouteInfoRequest(topic="T", accept_standard_json_only=accepts)
    answer = await peer.request(frame(code.GET_ROUTEINFO_BY_TOPIC, header, version=version))
    assert (answer.code, answer.fields, answer.remark) == (ResponseCode.SUCCESS, None, None)
    assert form in answer.body


async def test_standard_json_is_ascii_with_escaped_slashes(nameserver: Running) -> None:
    peer = nameserver.attach()
    await register(peer, saying(name="brökér", address="[fe80::1/64]:1", topics=["T"]))
    assert b'"0":"[fe80::1\\/64]:1"' in (await ask_route(peer, "T")).body
    assert b'"brokerName":"br\\u00F6k\\u00E9r"' in (await ask_route(peer, "T")).body
    assert '"brokerName":"brökér"'.encode() in (await ask_route(peer, "T", version=1)).body


async def test_an_unknown_topic_is_told_with_the_remark_of_the_original(
    nameserver: Running,
) -> None:
    answer = await ask_route(nameserver.attach(), "Nowhere")
    assert (answer.code, answer.fields, answer.body) == (ResponseCode.TOPIC_NOT_EXIST, None, b"")
    assert answer.remark == (
        "No topic route info in name server for the topic: Nowhere"
        "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    )


@pytest.mark.parametrize("enabled", ["true", "false"])
async def test_a_route_tells_the_order_conf_only_where_that_is_enabled(
    tmp_path: Path, enabled: str
) -> None:
    async with running(config_for(tmp_path, orderMessageEnable=enabled)) as served:
        peer = served.attach()
        await register(peer, saying(topics=["T", "U"]))
        put = PutKvConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
        await ask(peer, code.PUT_KV_CONFIG, put)
        route = json.loads((await ask_route(peer, "T")).body)
        assert route.get("orderTopicConf") == ("a:4" if enabled == "true" else None)
        assert "orderTopicConf" not in json.loads((await ask_route(peer, "U")).body)
        changed = PutKvConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="T", value="a:8")
        await ask(peer, code.PUT_KV_CONFIG, changed)
        route = json.loads((await ask_route(peer, "T")).body)
        assert route.get("orderTopicConf") == ("a:8" if enabled == "true" else None)


# ---- clusters and lists --------------------------------------------------------------------------


async def test_cluster_info_has_bare_numbers_whatever_the_version(nameserver: Running) -> None:
    peer = nameserver.attach()
    await register(peer, saying())
    await register(nameserver.attach(), saying(broker_id=1, address=SLAVE))
    for version in (0, 409):
        answer = await peer.request(frame(code.GET_BROKER_CLUSTER_INFO, version=version))
        assert answer.body == (
            b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
            b'"brokerName":"a","cluster":"c"}},"clusterAddrTable":{"c":["a"]}}'
        )


async def test_topic_lists(nameserver: Running) -> None:
    peer = nameserver.attach()
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3}
    await register(peer, saying(topics=[topic(name, flag=flag) for name, flag in flags.items()]))
    await register(
        nameserver.attach(), saying(name="b", cluster="d", address=SLAVE, topics=["other"])
    )
    assert await names(peer, code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {*flags, "other"}
    of_cluster = GetTopicsByClusterRequest(cluster="d")
    assert await names(peer, code.GET_TOPICS_BY_CLUSTER, of_cluster) == {"other"}
    unknown = GetTopicsByClusterRequest(cluster="x")
    assert await names(peer, code.GET_TOPICS_BY_CLUSTER, unknown) == set()
    assert await names(peer, code.GET_UNIT_TOPIC_LIST) == {"unit", "both"}
    assert await names(peer, code.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"sub", "both"}
    assert await names(peer, code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"sub"}
    system = json.loads((await ask(peer, code.GET_SYSTEM_TOPIC_LIST_FROM_NS)).body)
    assert system["brokerAddr"] == MASTER
    assert set(system["topicList"]) == {"a", "b", "c", "d"}


async def test_lists_of_an_empty_nameserver_are_empty(nameserver: Running) -> None:
    peer = nameserver.attach()
    empty = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    assert (await ask(peer, code.GET_BROKER_CLUSTER_INFO)).body == empty
    for request_code in (
        code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        code.GET_UNIT_TOPIC_LIST,
    ):
        assert (await ask(peer, request_code)).body == b'{"topicList":[]}'


# ---- what operators change -----------------------------------------------------------------------


async def test_write_permission_is_wiped_and_given_back(nameserver: Running) -> None:
    peer = nameserver.attach()
    await register(peer, saying(topics=[topic("T", perm=7), "U"]))
    wiped = await ask(
        peer, code.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequest(broker_name="a")
    )
    assert wiped.fields == {"wipeTopicCount": "2"}
    assert b'"perm":5' in (await ask_route(peer, "T")).body
    assert b'"perm":4' in (await ask_route(peer, "U")).body
    added = await ask(
        peer, code.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequest(broker_name="a")
    )
    assert added.fields == {"addTopicCount": "2"}
    assert b'"perm":6' in (await ask_route(peer, "T")).body


async def test_an_unknown_broker_has_no_topics_to_change(nameserver: Running) -> None:
    header = WipeWritePermOfBrokerRequest(broker_name="x")
    answer = await ask(nameserver.attach(), code.WIPE_WRITE_PERM_OF_BROKER, header)
    assert answer.fields == {"wipeTopicCount": "0"}


@pytest.mark.parametrize("cluster", [None, "", CLUSTER], ids=["absent", "empty", "named"])
async def test_a_topic_is_deleted(nameserver: Running, cluster: str | None) -> None:
    peer = nameserver.attach()
    await register(peer, saying(topics=["T", "U"]))
    header = DeleteTopicFromNamesrvRequest(topic="T", cluster_name=cluster)
    for _ in range(2):  # a topic that is not there is deleted with success, too
        answer = await ask(peer, code.DELETE_TOPIC_IN_NAMESRV, header)
        assert (answer.fields, answer.body) == (None, b"")
    assert await names(peer, code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"U"}


async def test_a_topic_of_another_cluster_stays(nameserver: Running) -> None:
    peer = nameserver.attach()
    await register(peer, saying(topics=["T"]))
    header = DeleteTopicFromNamesrvRequest(topic="T", cluster_name="other")
    await ask(peer, code.DELETE_TOPIC_IN_NAMESRV, header)
    assert (await ask_route(peer, "T")).code == ResponseCode.SUCCESS


# ---- codes that are not served -------------------------------------------------------------------


@pytest.mark.parametrize("number", [10, 34, 107, 999_999, -1])
async def test_an_unknown_code_is_not_answered_at_all(nameserver: Running, number: int) -> None:
    peer = nameserver.attach()
    await peer.send(raw_frame(b'{"code":%d,"opaque":1}' % number))
    answer = await ask_route(peer, "T")
    assert (answer.code, answer.opaque) == (ResponseCode.TOPIC_NOT_EXIST, 0)
