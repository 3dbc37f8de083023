"""What brokers hear of members, and what they are answered, with both clients."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rmq.client.core.messages import Message
from rmq.remoting.bodies import (
    ConsumeFromWhere,
    ConsumerRunningInfo,
    ConsumeType,
    GetConsumerStatusBody,
    HeartbeatData,
    MessageModel,
)
from rmq.remoting.bodies.offsets import ResetOffsetBody
from rmq.remoting.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from rmq.remoting.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
    PushReplyMessageRequest,
    ResetOffsetRequest,
    UnregisterClientRequest,
)
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster
from tests.client.contract.sides import GROUP
from tests.client.contract.test_pulls import COUNT, QUEUE, Queue, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.command import Command
    from rmq.remoting.header import Header
    from tests.client.blocking.scripted_cluster import Broker, ScriptedCluster
    from tests.client.blocking.scripted_peer import Link
    from tests.client.contract.sides import ConsumerSide, Side


def heard(broker: Broker, code: RequestCode) -> list[Command]:
    assert broker.peer is not None
    return [request for request in broker.peer.requests if request.code == code]


def last_heartbeat(broker: Broker) -> HeartbeatData:
    return HeartbeatData.decode(heard(broker, RequestCode.HEART_BEAT)[-1].body)


# --- heartbeats and farewells --------------------------------------------------------------------


def test_a_producer_tells_masters_of_its_group(side: Side) -> None:
    with scripted_cluster("a", "slave") as cluster:
        cluster.routed, cluster.slave_of = ("a",), {"a": "slave"}
        with side.producer(cluster.nameserver) as producer:
            producer.send(Message(TOPIC, b"body"))
            producer.beat()
            data = last_heartbeat(cluster["a"])
            client_id = producer.client_id
        assert data.client_id == client_id
        groups = [member.group_name for member in data.producer_data_set]
        assert groups == [GROUP, "CLIENT_INNER_PRODUCER"]
        assert data.consumer_data_set == ()
        assert heard(cluster["slave"], RequestCode.HEART_BEAT) == []


def test_a_producer_says_good_bye(side: Side) -> None:
    with scripted_cluster("a") as cluster:
        with side.producer(cluster.nameserver) as producer:
            producer.send(Message(TOPIC, b"body"))
            producer.beat()
            client_id = producer.client_id
        (request,) = heard(cluster["a"], RequestCode.UNREGISTER_CLIENT)
    assert request.header(UnregisterClientRequest) == UnregisterClientRequest(
        client_id=client_id, producer_group=GROUP, consumer_group=None
    )


def test_a_consumer_tells_masters_and_slaves_and_says_good_bye(side: Side) -> None:
    queue, slave = Queue(), Queue()
    with scripted_cluster("a", "slave") as cluster:
        cluster.routed, cluster.slave_of = ("a",), {"a": "slave"}
        cluster["a"].play, cluster["slave"].play = queue.play, slave.play
        with side.consumer(cluster.nameserver) as consumer:
            consumer.refresh_route(TOPIC)
            consumer.beat()
            client_id = consumer.client_id
            for name in ("a", "slave"):
                data = last_heartbeat(cluster[name])
                assert data.client_id == client_id
                (member,) = data.consumer_data_set
                assert member.group_name == GROUP
                assert member.consume_type is ConsumeType.CONSUME_ACTIVELY
                assert member.message_model is MessageModel.CLUSTERING
                assert member.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
                groups = [each.group_name for each in data.producer_data_set]
                assert groups == ["CLIENT_INNER_PRODUCER"]
        for name in ("a", "slave"):
            (request,) = heard(cluster[name], RequestCode.UNREGISTER_CLIENT)
            assert request.header(UnregisterClientRequest) == UnregisterClientRequest(
                client_id=client_id, producer_group=None, consumer_group=GROUP
            )


def test_a_broker_that_does_not_answer_keeps_nobody_from_leaving(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("blocking", "tasks"):
        monkeypatch.setattr(f"rmq.client.{module}.client.LEAVE_S", 0.3)
    with scripted_cluster("a") as cluster:
        broker = cluster["a"]
        with side.producer(cluster.nameserver) as producer:
            producer.send(Message(TOPIC, b"body"))
            broker.serve = lambda link, request: None  # type: ignore[method-assign]
            assert broker.peer is not None
            broker.peer._play = broker.serve
        # Leaving has taken LEAVE_S at the most.
        assert len(heard(broker, RequestCode.UNREGISTER_CLIENT)) <= 1


# --- what brokers ask ----------------------------------------------------------------------------


class Asking(Queue):
    """A queue whose broker asks the client things."""

    def __init__(self) -> None:
        super().__init__()
        self.link: Link | None = None

    def play(self, link: Link, request: Command) -> None:
        self.link = link
        super().play(link, request)


@contextmanager
def asked(side: Side) -> Iterator[tuple[Asking, ScriptedCluster, ConsumerSide]]:
    """Run a consumer that has read its queue to the end."""
    queue = Asking()
    with scripted_cluster("a") as cluster:
        cluster["a"].play = queue.play
        with side.consumer(cluster.nameserver) as consumer:
            consumer.assign([QUEUE])
            read(consumer, COUNT)
            yield queue, cluster, consumer


def ask(
    it: tuple[Asking, ScriptedCluster, ConsumerSide],
    code: RequestCode,
    header: Header | None,
    *,
    body: bytes = b"",
) -> Command:
    """Ask the client something, and return what it answers."""
    queue, cluster, consumer = it
    assert queue.link is not None
    peer = cluster["a"].peer
    assert peer is not None
    queue.link.ask(code, header, body=body, opaque=4711)
    for _ in range(500):
        consumer.idle(0.01)
        for request in list(peer.requests):
            if request.opaque == 4711 and request.flag & FLAG_RESPONSE:
                return request
    raise AssertionError(f"no answer to {code.name}")


def test_brokers_are_told_how_far_a_consumer_is(side: Side) -> None:
    with asked(side) as it:
        it[2].commit()
        header = GetConsumerStatusRequest(topic=TOPIC, group=GROUP)
        answer = ask(it, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        assert answer.code == ResponseCode.SUCCESS
        status = GetConsumerStatusBody.decode(answer.body)
        assert status.message_queue_table == {QUEUE: COUNT}


def test_brokers_are_told_of_a_running_consumer(side: Side) -> None:
    with asked(side) as it:
        header = GetConsumerRunningInfoRequest(
            consumer_group=GROUP, client_id=it[2].client_id, jstack_enable=False
        )
        answer = ask(it, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.code == ResponseCode.SUCCESS
        info = ConsumerRunningInfo.decode(answer.body)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert info.properties["PROP_NAMESERVER_ADDR"].rstrip(";") == it[1].nameserver


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequest(topic=TOPIC, group="stranger"),
        ),
        (
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            GetConsumerRunningInfoRequest(
                consumer_group="stranger", client_id="c", jstack_enable=False
            ),
        ),
        (
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyRequest(
                consumer_group="stranger", client_id="c", msg_id="0" * 32, broker_name="a"
            ),
        ),
    ],
)
def test_a_group_that_has_no_member_here_is_said_to(
    side: Side, code: RequestCode, header: Header
) -> None:
    with asked(side) as it:
        answer = ask(it, code, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The Consumer Group <stranger> not exist in this consumer"


def test_a_consumer_without_a_listener_consumes_nothing_for_operators(side: Side) -> None:
    with asked(side) as it:
        header = ConsumeMessageDirectlyRequest(
            consumer_group=GROUP, client_id=it[2].client_id, msg_id="0" * 32, broker_name="a"
        )
        answer = ask(it, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_reply_that_nobody_waits_for_is_taken(side: Side) -> None:
    header = PushReplyMessageRequest(
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:1",
        store_timestamp=0,
        producer_group=GROUP,
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties="CORRELATION_ID\x01unknown",
    )
    with asked(side) as it:
        answer = ask(it, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body=b"late")
    assert answer.code == ResponseCode.SUCCESS


def test_a_request_that_no_client_serves_is_refused(side: Side) -> None:
    with asked(side) as it:
        answer = ask(it, RequestCode.SEND_MESSAGE, None)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_a_question_that_cannot_be_read_is_refused(side: Side) -> None:
    with asked(side) as it:
        answer = ask(it, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, None)
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_an_operator_moves_a_consumer(side: Side) -> None:
    with asked(side) as it:
        queue, _, consumer = it
        assert queue.link is not None
        body = ResetOffsetBody(offset_table={QUEUE: 95}).encode()
        header = ResetOffsetRequest(topic=TOPIC, group=GROUP, timestamp=0, is_force=True)
        queue.link.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body=body, is_oneway=True)
        assert read(consumer, 5) == list(range(95, COUNT))


@pytest.mark.parametrize("body", [b"", b"nonsense"])
def test_a_reset_that_cannot_be_read_moves_nobody(side: Side, body: bytes) -> None:
    with asked(side) as it:
        queue, _, consumer = it
        assert queue.link is not None
        header = ResetOffsetRequest(topic=TOPIC, group=GROUP, timestamp=0, is_force=True)
        queue.link.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body=body, is_oneway=True)
        assert consumer.poll(0.2) == []


def test_news_of_members_change_nothing_for_assigned_queues(side: Side) -> None:
    with asked(side) as it:
        queue, _, consumer = it
        assert queue.link is not None
        queue.link.ask(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            NotifyConsumerIdsChangedRequest(consumer_group=GROUP),
            is_oneway=True,
        )
        assert consumer.poll(0.2) == []
        consumer.seek(QUEUE, 99)
        assert read(consumer, 1) == [99]
