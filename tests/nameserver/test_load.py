"""A running nameserver with much to do: what others wait for, and what is bounded.

The clock of its slices is a counter: each step seems to take what one pass of the loop may spend.
So each pass does one, whatever the machine, and how long others wait is counted in steps.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.nameserver import broker_handlers
from rmq.nameserver.slices import BUDGET_S, JobQueue
from rmq.nameserver.table_entries import ENTRIES_PER_STEP
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    DeleteTopicFromNamesrvRequest,
    GetKvListByNamespaceRequest,
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
)
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.nameserver.registration import Registration
    from rmq.remoting.header import Header
    from tests.remoting.server_kit import Peer

MANY = [f"topic-{number}" for number in range(6_000)]


@pytest.fixture
async def nameserver(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(config_for(tmp_path)) as served:
        ticks = count()
        served.nameserver.slices._clock = lambda: next(ticks) * BUDGET_S
        yield served


def registration(said: Registration, *, opaque: int = 0) -> bytes:
    body = register_body(said).encode()
    return frame(RequestCode.REGISTER_BROKER, register_header(said), body, opaque=opaque)


async def put_topics(nameserver: Running, *registrations: Registration) -> None:
    for said in registrations:
        answer = await register(nameserver.attach(), said)
        assert answer.code == ResponseCode.SUCCESS


def crowd(nameserver: Running, peer: Peer, brokers: int) -> None:
    """Register many brokers over one connection, without their frames."""
    routes = nameserver.nameserver.routes
    for number in range(brokers):
        said = saying(f"b{number}", address=f"x:{number}", topics=["shared", f"t{number}"])
        finish(routes.register(said, peer.channel, 0.0))


async def begun(nameserver: Running, queue: JobQueue) -> None:
    """Wait until a job of the queue is under way."""
    while not nameserver.nameserver.slices.waiting(queue):
        await trio.lowlevel.checkpoint()


# ---- nobody waits for long -----------------------------------------------------------------------

HEAVY = {
    "206": (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, JobQueue.ANSWERS),
    "224": (
        RequestCode.GET_TOPICS_BY_CLUSTER,
        GetTopicsByClusterRequest(cluster=CLUSTER),
        JobQueue.ANSWERS,
    ),
    "311": (RequestCode.GET_UNIT_TOPIC_LIST, None, JobQueue.ANSWERS),
    "312": (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None, JobQueue.ANSWERS),
    "313": (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, JobQueue.ANSWERS),
    "205": (
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        WipeWritePermOfBrokerRequest(broker_name="big"),
        JobQueue.CHANGES,
    ),
}


@pytest.mark.parametrize("name", HEAVY)
async def test_a_request_about_many_topics_does_not_delay_others(
    nameserver: Running, name: str
) -> None:
    code, header, queue = HEAVY[name]
    await put_topics(
        nameserver, saying("big", topics=MANY), saying(address="y:1", topics=["probe"])
    )
    await ask_others_meanwhile(nameserver, code, header, queue)


@pytest.mark.parametrize(
    ("code", "queue"),
    [
        (RequestCode.GET_BROKER_CLUSTER_INFO, JobQueue.ANSWERS),
        (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, JobQueue.ANSWERS),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, JobQueue.ANSWERS),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, JobQueue.CHANGES),
    ],
    ids=lambda value: value.name,
)
async def test_a_request_about_many_brokers_does_not_delay_others(
    nameserver: Running, code: RequestCode, queue: JobQueue
) -> None:
    crowd(nameserver, nameserver.attach(), 5_000)
    await put_topics(nameserver, saying(address="y:1", topics=["probe"]))
    header = DeleteTopicFromNamesrvRequest(topic="shared")
    await ask_others_meanwhile(nameserver, code, header, queue)


async def ask_others_meanwhile(
    nameserver: Running, code: RequestCode, header: Header | None, queue: JobQueue
) -> None:
    """Ask something heavy, and see that another peer is answered between its slices."""
    slices = nameserver.nameserver.slices
    heavy, other = nameserver.attach(), nameserver.attach()
    await ask_route(other, "probe")
    before = slices.steps
    await heavy.send(frame(code, header))
    await begun(nameserver, queue)
    # A few passes of the loop lie between a question and its answer, over a memory stream.
    assert (await ask_route(other, "probe")).code == ResponseCode.SUCCESS
    assert 1 < slices.steps - before <= 20
    assert slices.waiting(queue)
    assert (await heavy.read()).code == ResponseCode.SUCCESS


async def test_a_registration_of_many_topics_delays_neither_questions_nor_short_registrations(
    nameserver: Running,
) -> None:
    slices = nameserver.nameserver.slices
    big, other = nameserver.attach(), nameserver.attach()
    await big.send(registration(saying("big", topics=MANY)))
    await begun(nameserver, JobQueue.LONG_CHANGES)
    answer = await register(other, saying("small", address="y:1", topics=["S"]))
    assert answer.code == ResponseCode.SUCCESS
    assert (await ask_route(other, "S")).code == ResponseCode.SUCCESS
    assert slices.waiting(JobQueue.LONG_CHANGES)
    assert (await big.read()).code == ResponseCode.SUCCESS
    topics = await other.request(frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert set(json.loads(topics.body)["topicList"]) == {*MANY, "S"}


async def test_a_hang_up_of_many_brokers_is_in_no_answer_and_is_cleaned_up_in_slices(
    nameserver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    slices = nameserver.nameserver.slices
    many, other = nameserver.attach(), nameserver.attach()
    crowd(nameserver, many, 5_000)
    await register(other, saying("stays", address="y:1", topics=["S"]))
    many.channel.close("gone")
    await begun(nameserver, JobQueue.CLEANING)
    assert (await ask_route(other, "t4999")).code == ResponseCode.TOPIC_NOT_EXIST
    assert slices.waiting(JobQueue.CLEANING)
    answer = await other.request(frame(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert set(json.loads(answer.body.replace(b"{0:", b'{"0":'))["brokerAddrTable"]) == {"stays"}
    while slices.waiting(JobQueue.CLEANING):
        await trio.lowlevel.checkpoint()
    assert slices.steps > 5_000 * 4 / ENTRIES_PER_STEP
    assert nameserver.nameserver.statistics().topics == 1
    removed = [record.getMessage() for record in caplog.records if "removed" in record.getMessage()]
    assert len(removed) == 21
    assert removed[-1] == "4980 more brokers removed with that connection"


async def test_a_long_kv_list_does_not_delay_others(nameserver: Running) -> None:
    peer = nameserver.attach()
    for number in range(10):
        header = PutKvConfigRequest(namespace="n", key=f"k{number}", value="v" * 40_000)
        assert (await peer.request(frame(RequestCode.PUT_KV_CONFIG, header))).code == 0
    await put_topics(nameserver, saying(address="y:1", topics=["probe"]))
    asked = GetKvListByNamespaceRequest(namespace="n")
    await ask_others_meanwhile(
        nameserver, RequestCode.GET_KVLIST_BY_NAMESPACE, asked, JobQueue.ANSWERS
    )


async def test_requests_that_wait_for_one_answer_share_it(nameserver: Running) -> None:
    slices = nameserver.nameserver.slices
    await put_topics(nameserver, saying("big", topics=MANY))
    asking = [nameserver.attach() for _ in range(20)]
    before = slices.steps
    for peer in asking:
        await peer.send(frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    bodies = {(await peer.read()).body for peer in asking}
    assert len(bodies) == 1
    alone = slices.steps - before
    await register(asking[0], saying("b", address="y:1", topics=["more"]))
    before = slices.steps
    await asking[0].request(frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert alone < (slices.steps - before) + 2 * len(asking)


# ---- in order, and given up ----------------------------------------------------------------------


async def test_requests_of_a_broker_are_carried_out_in_their_order(nameserver: Running) -> None:
    peer = nameserver.attach()
    long = saying("big", topics=MANY, version=1)
    goodbye = UnregisterBrokerRequest(
        broker_name="big", broker_addr=MASTER, cluster_name=CLUSTER, broker_id=0
    )
    again = saying("big", topics=["last"], version=2)
    await peer.send(
        registration(long, opaque=1)
        + frame(RequestCode.UNREGISTER_BROKER, goodbye, opaque=2)
        + registration(again, opaque=3)
    )
    assert [(await peer.read()).opaque for _ in range(3)] == [1, 2, 3]
    topics = await peer.request(frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert json.loads(topics.body)["topicList"] == ["last"]


async def test_a_registration_whose_connection_ends_leaves_nothing(nameserver: Running) -> None:
    big, other = nameserver.attach(), nameserver.attach()
    await big.send(registration(saying("big", topics=MANY)))
    while not nameserver.nameserver.statistics().topics:
        await trio.lowlevel.checkpoint()
    big.channel.close("gone")
    while nameserver.nameserver.slices.is_waiting:
        await trio.lowlevel.checkpoint()
    statistics = nameserver.nameserver.statistics()
    assert (statistics.brokers, statistics.topics) == (0, 0)
    topics = await other.request(frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert json.loads(topics.body) == {"topicList": []}


async def test_long_registrations_that_wait_are_bounded(
    nameserver: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = registration(saying("big", topics=MANY))
    monkeypatch.setattr(broker_handlers, "WAITING_BYTES_MAX", len(data) + 1_000)
    first, second = nameserver.attach(), nameserver.attach()
    # Only its end comes while the other is under way, which is not over before that.
    await second.send(data[:-1])
    await trio.testing.wait_all_tasks_blocked()
    await first.send(data)
    await begun(nameserver, JobQueue.LONG_CHANGES)
    await second.send(data[-1:])
    answer = await second.read()
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "of registrations are waiting" in str(answer.remark)
    assert (await first.read()).code == ResponseCode.SUCCESS
    # What was done is not counted any longer.
    assert (await second.request(data)).code == ResponseCode.SUCCESS


async def test_those_of_one_connection_are_bounded_as_well(
    nameserver: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = registration(saying("big", topics=MANY))
    monkeypatch.setattr(broker_handlers, "WAITING_BYTES_PER_CONNECTION", len(data) - 1_000)
    peer = nameserver.attach()
    answer = await peer.request(data)
    assert (answer.code, "of registrations are waiting" in str(answer.remark)) == (2, True)
    assert (await register(peer, saying(topics=["T"]))).code == ResponseCode.SUCCESS


# ---- strangers -----------------------------------------------------------------------------------

BROKER_PEER = "10.0.0.1:4711"
STRANGER = "203.0.113.9:4711"


async def leave(peer: Peer) -> int:
    header = UnregisterBrokerRequest(
        broker_name="a", broker_addr=MASTER, cluster_name=CLUSTER, broker_id=0
    )
    return (await peer.request(frame(RequestCode.UNREGISTER_BROKER, header))).code


async def test_a_broker_is_not_unregistered_from_another_host_while_it_is_connected(
    nameserver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    broker, stranger = nameserver.attach(BROKER_PEER), nameserver.attach(STRANGER)
    neighbour = nameserver.attach("10.0.0.1:5000")
    await register(broker, saying(topics=["T"]))
    assert await leave(stranger) == ResponseCode.NO_PERMISSION
    assert f"{MASTER} was not unregistered" in caplog.text
    assert (await ask_route(stranger, "T")).code == ResponseCode.SUCCESS
    assert await leave(neighbour) == ResponseCode.SUCCESS
    assert (await ask_route(stranger, "T")).code == ResponseCode.TOPIC_NOT_EXIST
    # What is not registered may be unregistered by everyone, as in 4.9.8.
    assert await leave(stranger) == ResponseCode.SUCCESS


async def test_asking_for_a_version_from_another_host_takes_no_broker_over(
    nameserver: Running,
) -> None:
    broker, stranger = nameserver.attach(BROKER_PEER), nameserver.attach(STRANGER)
    await register(broker, saying(topics=["T"]))
    header = QueryDataVersionRequest(broker_addr=MASTER)
    body = DataVersion(timestamp=1_000, counter=1).encode()
    answer = await stranger.request(frame(RequestCode.QUERY_DATA_VERSION, header, body))
    assert answer.fields == {"changed": "false"}
    stranger.channel.close("gone")
    await trio.testing.wait_all_tasks_blocked()
    assert (await ask_route(broker, "T")).code == ResponseCode.SUCCESS


async def test_what_one_host_does_wrong_is_logged_a_few_times_only(
    nameserver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = nameserver.attach(STRANGER)
    for _ in range(100):
        header = register_header(saying(address=SLAVE), crc32=1)
        answer = await stranger.request(frame(RequestCode.REGISTER_BROKER, header))
        assert answer.remark == "crc32 not match"
    lines = [record for record in caplog.records if "another CRC" in record.getMessage()]
    assert len(lines) == 20


async def test_brokers_that_come_and_go_all_the_time_are_logged_a_few_times_only(
    nameserver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        broker = nameserver.attach(STRANGER)
        await register(broker, saying(f"b{number}", address=f"x:{number}", topics=["T"]))
        broker.channel.close("gone")
        await trio.testing.wait_all_tasks_blocked()
    lines = [record for record in caplog.records if "broker removed" in record.getMessage()]
    assert len(lines) == 20


async def test_a_long_name_is_not_sent_back(nameserver: Running) -> None:
    answer = await ask_route(nameserver.attach(), "t" * 100_000)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert len(answer.remark or "") < 500
