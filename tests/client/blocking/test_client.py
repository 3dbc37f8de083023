"""The blocking client: routes, nameservers, heartbeats, pickles, and what it imports."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rmq
from rmq.client.blocking import (
    BlockingAdmin,
    BlockingClient,
    BlockingConsumer,
    BlockingConsumerConfig,
    BlockingProducer,
)
from rmq.client.blocking import client as client_module
from rmq.client.blocking import routes as routes_module
from rmq.client.core.admin.clients import consumer_connections, producer_connections
from rmq.client.core.broker_requests import BrokerRequests, Reply
from rmq.client.core.config import ClientConfig
from rmq.client.core.flows import ask
from rmq.client.core.messages import Message
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.tasks.admin import AdminClient
from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ClientError,
    NoNameserverError,
    NoRouteError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import (
    BrokerData,
    ConsumerData,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ProducerData,
    QueueData,
    ResetOffsetBody,
    TopicRouteData,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.command import decode_header, encode_frame
from rmq.remoting.headers import (
    CheckTransactionStateRequest,
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
    PushReplyMessageRequest,
    ResetOffsetRequest,
)
from rmq.remoting.signing import Credentials
from rmq.remoting.tls_config import TlsClientConfig
from tests.client.blocking.scripted_peer import Link, scripted_peer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.client.core.routes import TopicRoute
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header
    from tests.client.blocking.cluster_process import ProcessCluster

NOWHERE = "127.0.0.1:1"


def test_nothing_of_it_imports_trio() -> None:
    code = (
        "import sys, rmq.client.blocking, rmq.client.core.messages\n"
        "found = [name for name in sys.modules if name.split('.')[0] == 'trio']\n"
        "assert not found, found\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(rmq.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)


# --- routes ----------------------------------------------------------------------------------


class Member:
    """Somebody who cares for a topic."""

    group = "members"

    def __init__(self, *topics: str) -> None:
        self._topics = topics
        self.changed: list[str] = []

    def topics(self) -> Iterable[str]:
        return self._topics

    def presence(self) -> ProducerData | ConsumerData | None:
        return ProducerData(group_name=self.group)

    def route_changed(self, route: TopicRoute) -> None:
        self.changed.append(route.topic)


def route_data(queues: int, address: str = "127.0.0.1:9") -> TopicRouteData:
    return TopicRouteData(
        queue_datas=(
            QueueData(broker_name="b", read_queue_nums=queues, write_queue_nums=queues, perm=6),
        ),
        broker_datas=(BrokerData(cluster="c", broker_name="b", broker_addrs={0: address}),),
    )


def test_a_route_is_found_and_kept(shared_cluster: ProcessCluster) -> None:
    shared_cluster.create_topic("ClientRoutes", queues=3)
    with BlockingClient(shared_cluster.nameserver) as client:
        route = client.route("ClientRoutes")
        assert [queue.queue_id for queue in route.writable] == [0, 1, 2]
        assert client.route("ClientRoutes") is route
        assert client.route_to_send("ClientRoutes", 4) is route


def test_a_topic_that_a_send_would_create_has_the_route_of_the_template(
    shared_cluster: ProcessCluster,
) -> None:
    with BlockingClient(shared_cluster.nameserver) as client:
        with pytest.raises(NoRouteError, match="no broker has it"):
            client.route("ClientUnknown")
        assert len(client.route_to_send("ClientUnknown", 4).writable) == 4


def test_the_next_nameserver_is_asked_when_one_does_not_answer(
    shared_cluster: ProcessCluster,
) -> None:
    shared_cluster.create_topic("ClientFailover")
    for first in (
        f"{NOWHERE};{shared_cluster.nameserver}",
        f"{shared_cluster.nameserver};{NOWHERE}",
    ):
        with BlockingClient(first) as client:
            assert client.route("ClientFailover").writable


def test_no_nameserver_answers() -> None:
    with BlockingClient(f"{NOWHERE};127.0.0.1:2") as client:
        with pytest.raises(NoNameserverError) as caught:
            client.route("T")
        assert set(caught.value.attempts) == {NOWHERE, "127.0.0.1:2"}


class Nameserver:
    """Answers with as many queues as it has been asked for routes, or not at all."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_dumb = False

    def play(self, link: Link, request: Command) -> None:
        self.asked += 1
        if self.is_dumb:
            link.close()
        else:
            link.answer(request, body=route_data(self.asked).encode())


class Clock:
    """The clock of routes and heartbeats, which a test can set forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0.0
        for module in (client_module, routes_module):
            monkeypatch.setattr(module, "_monotonic", self.now)

    def now(self) -> float:
        return time.monotonic() + self._ahead_s

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def wait_asked(client: BlockingClient, server: Nameserver, times: int) -> None:
    """Let the client wait for something until a nameserver has been asked so often, and heard."""
    deadline = time.monotonic() + 10.0
    while server.asked < times or client.keeping._refreshing:
        assert time.monotonic() < deadline
        client.connections.sleep(0.005)
        client.tick()


def test_an_old_route_is_used_while_a_new_one_is_asked_for(clock: Clock) -> None:
    server = Nameserver()
    with scripted_peer(server.play) as peer, BlockingClient(peer.address) as client:
        member = Member("T")
        client.join(member)
        assert len(client.route("T").writable) == 1
        clock.advance(29.0)
        assert len(client.route("T").writable) == 1
        assert not client.keeping._refreshing
        clock.advance(2.0)
        # Not waited for, but asked for.
        assert len(client.route("T").writable) == 1
        wait_asked(client, server, 2)
        assert len(client.route("T").writable) == 2
        assert member.changed == ["T", "T"]
        clock.advance(31.0)
        client.keeping.keep("T")
        wait_asked(client, server, 3)
        clock.advance(31.0)
        assert client.keeping.known_to_send("T", 4) is client.routes.get("T")
        wait_asked(client, server, 4)
        assert len(client.route("T").writable) == 4


def test_a_route_that_nobody_used_for_long_is_waited_for(clock: Clock) -> None:
    server = Nameserver()
    with scripted_peer(server.play) as peer, BlockingClient(peer.address) as client:
        client.join(Member("T"))
        client.route("T")
        clock.advance(61.0)
        assert len(client.route("T").writable) == 2
        # If it cannot be had, the old one is better than none, and it is not asked for each time.
        server.is_dumb = True
        clock.advance(61.0)
        assert len(client.route("T").writable) == 2
        assert len(client.route("T").writable) == 2
        assert server.asked == 3


def test_a_route_that_nobody_wants_is_forgotten(clock: Clock) -> None:
    server = Nameserver()
    with scripted_peer(server.play) as peer, BlockingClient(peer.address) as client:
        client.route("T")
        client.tick()
        clock.advance(61.0)
        client.tick()
        assert client.routes.get("T") is None


def test_a_nameserver_that_talks_nonsense_gives_a_typed_error() -> None:
    def play(link: Link, request: Command) -> None:
        link.answer(request, body=b"{nonsense")

    with (
        scripted_peer(play) as peer,
        BlockingClient(peer.address) as client,
        pytest.raises(BadAnswerError),
    ):
        client.route("T")


# --- life ------------------------------------------------------------------------------------


def test_a_closed_client_says_so_and_can_be_opened_again(shared_cluster: ProcessCluster) -> None:
    client = BlockingClient(shared_cluster.nameserver)
    with pytest.raises(ClientClosedError):
        client.route("TBW102")
    with pytest.raises(ClientClosedError):
        client.run(ask(NOWHERE, RequestCode.HEART_BEAT))
    with pytest.raises(ClientClosedError):
        client.start(ask(NOWHERE, RequestCode.HEART_BEAT))
    with client:
        assert client.open() is client
        first = client.client_id
        client.route("TBW102")
    client.close()
    with client:
        assert client.client_id != first
        client.route("TBW102")


def test_configurations_and_closed_clients_can_be_pickled(shared_cluster: ProcessCluster) -> None:
    config = ClientConfig(
        nameservers=shared_cluster.nameserver,
        credentials=Credentials(access_key="a", secret_key="b"),
        tls=TlsClientConfig(),
    )
    producer_config = ProducerConfig(group="p", retries=1)
    consumer_config = BlockingConsumerConfig(group="c", messages_max=7)
    for value in (config, producer_config, consumer_config):
        assert pickle.loads(pickle.dumps(value)) == value
    client = pickle.loads(pickle.dumps(BlockingClient(config)))
    assert client.config == config
    producer = BlockingProducer(config, config=producer_config)
    again = pickle.loads(pickle.dumps(producer))
    assert (again.config, again.client.config) == (producer_config, config)
    consumer = pickle.loads(pickle.dumps(BlockingConsumer(config, config=consumer_config)))
    assert (consumer.config, consumer.client.config) == (consumer_config, config)
    admin = pickle.loads(pickle.dumps(BlockingAdmin(config)))
    assert admin.client.config == config


def test_what_was_closed_can_be_pickled_and_used_elsewhere(shared_cluster: ProcessCluster) -> None:
    producer = BlockingProducer(shared_cluster.nameserver, "pickled")
    message = Message("ClientPickled", b"x")
    with producer:
        producer.send(message)
        with pytest.raises(TypeError, match="open producer"):
            pickle.dumps(producer)
        with pytest.raises(TypeError, match="open client"):
            pickle.dumps(producer.client)
    with pickle.loads(pickle.dumps(producer)) as copy:
        assert copy.send(message).is_ok
    with producer:
        assert producer.send(message).is_ok
    consumer = BlockingConsumer(shared_cluster.nameserver, "pickled")
    with consumer, pytest.raises(TypeError, match="open consumer"):
        pickle.dumps(consumer)
    with pickle.loads(pickle.dumps(consumer)) as copy:
        assert copy.queues("ClientPickled")
    with BlockingAdmin(shared_cluster.nameserver) as admin, pytest.raises(TypeError, match="admin"):
        pickle.dumps(admin)


# --- heartbeats ------------------------------------------------------------------------------


def test_brokers_hear_of_members_and_of_their_leaving(shared_cluster: ProcessCluster) -> None:
    shared_cluster.create_topic("ClientBeats")
    admin = BlockingAdmin(shared_cluster.nameserver)
    config = ClientConfig(nameservers=shared_cluster.nameserver, heartbeat_s=0.02)
    with (
        admin,
        BlockingProducer(config, "beating-producers") as producer,
        BlockingConsumer(config, "beating-consumers") as consumer,
    ):
        # Heartbeats go out by themselves while something else is waited for.
        deadline = time.monotonic() + 10.0
        producers: tuple[str | None, ...] = ()
        consumers: tuple[str | None, ...] = ()
        while not (producers and consumers):
            assert time.monotonic() < deadline
            producer.send(Message("ClientBeats", b"x"))
            consumer.end_offsets(consumer.queues("ClientBeats"))
            producers = producers_of(admin, "beating-producers", "ClientBeats")
            consumers = consumers_of(admin, "beating-consumers")
        assert producers == (producer.client.client_id,)
        assert consumers == (consumer.client.client_id,)
        consumer.close()
        assert not consumers_of(admin, "beating-consumers")
        producer.close()
        assert not producers_of(admin, "beating-producers", "ClientBeats")


def producers_of(admin: BlockingAdmin, group: str, topic: str) -> tuple[str | None, ...]:
    try:
        found = admin.run(producer_connections(admin.client.nameservers, group, topic))
    except ClientError:
        return ()
    return tuple(each.client_id for each in found.connections)


def consumers_of(admin: BlockingAdmin, group: str) -> tuple[str | None, ...]:
    try:
        found = admin.run(consumer_connections(admin.client.nameservers, group))
    except ClientError:
        return ()
    return tuple(each.client_id for each in found.connections)


# --- what brokers ask ------------------------------------------------------------------------


class Reader(Member):
    """A consumer that answers brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.reset: list[tuple[str, dict[MessageQueue, int]]] = []

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.reset.append((topic, dict(offsets)))

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {MessageQueue(topic=topic, broker_name="b", queue_id=1): 9}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"a": "b"})


def asked(code: int, header: Header | None = None, body: bytes | None = None) -> Command:
    frame = encode_frame(code=code, header=header)
    command = decode_header(frame[8:], 0)
    command.body = body
    return command


def answer_broker(members: list[Member], peer: str, command: Command) -> Reply | None:
    return BrokerRequests(lambda: members).answer(peer, command)


def test_brokers_are_answered_for_the_group_they_ask_about() -> None:
    reader = Reader()
    queue = MessageQueue(topic="T", broker_name="b", queue_id=1)

    status = answer_broker(
        [reader],
        NOWHERE,
        asked(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequest(topic="T", group="members"),
        ),
    )
    assert status is not None
    assert GetConsumerStatusBody.decode(status.body).message_queue_table == {queue: 9}
    info = answer_broker(
        [reader],
        NOWHERE,
        asked(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            GetConsumerRunningInfoRequest(consumer_group="members", client_id="x"),
        ),
    )
    assert info is not None
    assert ConsumerRunningInfo.decode(info.body).properties == {"a": "b"}
    reset = ResetOffsetRequest(topic="T", group="members", timestamp=1)
    body = ResetOffsetBody(offset_table={queue: 4}).encode()
    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert answer_broker([reader], NOWHERE, asked(code, reset, body)) is None
    assert reader.reset == [("T", {queue: 4})]
    assert answer_broker([], NOWHERE, asked(code, reset, body)) is None


@pytest.mark.parametrize(
    ("code", "header", "answer"),
    [
        (
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            NotifyConsumerIdsChangedRequest(consumer_group="g"),
            None,
        ),
        (
            RequestCode.CHECK_TRANSACTION_STATE,
            CheckTransactionStateRequest(tran_state_table_offset=0, commit_log_offset=0),
            None,
        ),
        (
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            PushReplyMessageRequest(topic="T", queue_id=0, sys_flag=0, born_timestamp=0, flag=0),
            ResponseCode.SUCCESS,
        ),
        (RequestCode.SEND_MESSAGE, None, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        # No header where one is needed.
        (RequestCode.GET_CONSUMER_RUNNING_INFO, None, ResponseCode.SYSTEM_ERROR),
        (
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyRequest(consumer_group="g"),
            ResponseCode.SYSTEM_ERROR,
        ),
        (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequest(topic="T", group="unknown"),
            ResponseCode.SYSTEM_ERROR,
        ),
        (
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            GetConsumerRunningInfoRequest(consumer_group="unknown", client_id="x"),
            ResponseCode.SYSTEM_ERROR,
        ),
    ],
)
def test_what_nobody_here_can_serve_is_answered_as_stock_clients_do(
    code: RequestCode, header: Header | None, answer: ResponseCode | None
) -> None:
    reply = answer_broker([Member()], NOWHERE, asked(code, header))
    assert (None if reply is None else reply.code) == answer


# --- admin -----------------------------------------------------------------------------------


def test_the_admin_client_has_what_that_of_trio_has() -> None:
    public = {name for name in dir(AdminClient) if not name.startswith("_")}
    own = {name for name in dir(BlockingAdmin) if not name.startswith("_")}
    assert public - own == set()
    assert own - public == {"close", "open"}


def test_topics_are_made_and_seen(shared_cluster: ProcessCluster) -> None:
    with BlockingAdmin(shared_cluster.nameserver) as admin:
        admin.create_topic("ClientAdmin", queues=5)
        assert "ClientAdmin" in admin.list_topics()
        (queues,) = admin.topic_route("ClientAdmin").queue_datas
        assert queues.write_queue_nums == 5
        with BlockingAdmin(admin.client) as shared:
            assert shared.list_brokers()
        assert admin.client.is_open
