"""What is sent, and what is said of it: the same with both clients."""

from __future__ import annotations

import uuid
import zlib
from typing import TYPE_CHECKING

import pytest

from rmq.client.core.messages import Message, SendStatus
from rmq.client.core.producing.outbound import COMPRESSED_BY_ZLIB
from rmq.errors import ClientClosedError, IllegalMessageError
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.batch import decode_batch
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import SendMessageRequestV2
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster
from tests.client.contract.sides import GROUP

if TYPE_CHECKING:
    from rmq.client.core.received import ReceivedMessage
    from rmq.remoting.command import Command
    from tests.client.blocking.cluster_process import ProcessCluster
    from tests.client.blocking.scripted_cluster import Broker, ScriptedCluster
    from tests.client.contract.sides import Side


def sends_to(broker: Broker) -> list[Command]:
    """Return the sends that a broker got."""
    assert broker.peer is not None
    codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    return [request for request in broker.peer.requests if request.code in codes]


def only_send(cluster: ScriptedCluster) -> tuple[SendMessageRequestV2, bytes]:
    """Return header and body of the only send to broker a."""
    (request,) = sends_to(cluster["a"])
    return request.header(SendMessageRequestV2), request.body or b""


def properties_of(header: SendMessageRequestV2) -> dict[str, str]:
    pairs = (header.properties or "").rstrip("\x02").split("\x02")
    return dict(pair.split("\x01", 1) for pair in pairs)


# --- bytes ---------------------------------------------------------------------------------------


def test_a_message_is_written_with_all_it_has(side: Side) -> None:
    message = Message(
        TOPIC,
        b"body",
        tag="paid",
        keys=("k1", "k2"),
        properties={"colour": "red"},
        flag=7,
        waits_stored=False,
    )
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        result = producer.send(message)
        header, body = only_send(cluster)
    assert body == b"body"
    assert (header.producer_group, header.topic, header.flag) == (GROUP, TOPIC, 7)
    assert (header.sys_flag, header.batch, header.unit_mode) == (0, False, False)
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert (header.reconsume_times, header.broker_name) == (0, "a")
    properties = properties_of(header)
    assert properties.pop("UNIQ_KEY") == result.message_id
    assert properties == {"TAGS": "paid", "KEYS": "k1 k2", "WAIT": "false", "colour": "red"}
    assert (result.status, result.queue.broker_name) == (SendStatus.OK, "a")
    assert (result.queue.queue_id, result.queue_offset) == (header.queue_id, 0)


def test_a_delay_level_is_a_property(side: Side) -> None:
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        producer.send(Message(TOPIC, b"later", delay_level=3))
        header, _ = only_send(cluster)
    assert properties_of(header)["DELAY"] == "3"


def test_a_large_body_is_compressed_and_a_small_one_is_not(side: Side) -> None:
    large = b"x" * 4096
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        producer.send(Message(TOPIC, large))
        producer.send(Message(TOPIC, large[1:]))
        compressed, plain = sends_to(cluster["a"])
    assert compressed.header(SendMessageRequestV2).sys_flag == COMPRESSED_BY_ZLIB
    assert zlib.decompress(compressed.body or b"") == large
    assert plain.header(SendMessageRequestV2).sys_flag == 0
    assert plain.body == large[1:]


def test_a_batch_is_one_request(side: Side) -> None:
    messages = [Message(TOPIC, b"%d" % number, tag="t", flag=number) for number in range(3)]
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        (result,) = producer.send_batch(messages)
        (request,) = sends_to(cluster["a"])
        header, body = only_send(cluster)
    assert request.code == RequestCode.SEND_BATCH_MESSAGE
    assert header.batch
    inside = decode_batch(body)
    assert [(each.flag, bytes(each.body)) for each in inside] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert len(result.message_id.split(",")) == 3


def test_a_batch_that_is_too_large_is_sent_in_parts(side: Side) -> None:
    messages = [Message(TOPIC, b"x" * 400) for _ in range(10)]
    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, message_bytes_max=2000) as producer,
    ):
        results = producer.send_batch(messages)
        parts = [decode_batch(request.body or b"") for request in sends_to(cluster["a"])]
    assert len(results) == len(parts) == 3
    assert sorted(map(len, parts)) == [2, 4, 4]


def test_a_one_way_send_has_no_answer(side: Side) -> None:
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        producer.send_oneway(Message(TOPIC, b"gone"))
        peer = cluster["a"].peer
        assert peer is not None
        peer.wait_until(lambda: bool(cluster["a"].stored))
        (request,) = sends_to(cluster["a"])
    assert request.is_oneway
    assert request.body == b"gone"


# --- queues --------------------------------------------------------------------------------------


def test_messages_go_to_the_queues_of_all_brokers_in_turn(side: Side) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        results = [producer.send(Message(TOPIC, b"%d" % number)) for number in range(8)]
    used = [(result.queue.broker_name, result.queue.queue_id) for result in results]
    assert len(set(used[:4])) == 4
    assert used[:4] == used[4:]


def test_a_chosen_queue_is_used(side: Side) -> None:
    queue = MessageQueue(topic=TOPIC, broker_name="b", queue_id=1)
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        for _ in range(3):
            assert producer.send(Message(TOPIC, b"body"), queue=queue).queue == queue
        assert len(cluster["b"].stored) == 3


def test_a_queue_of_another_topic_is_refused(side: Side) -> None:
    queue = MessageQueue(topic="Other", broker_name="a", queue_id=0)
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        with pytest.raises(IllegalMessageError, match="queue of topic Other"):
            producer.send(Message(TOPIC, b"body"), queue=queue)
        assert cluster["a"].stored == []


def test_a_sharding_key_has_the_same_queue_with_both_clients(side: Side) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        used = [
            producer.send_ordered(Message(TOPIC, b"body"), key).queue
            for key in ("order-1", "order-2", "order-3", "order-1")
        ]
    names = [(queue.broker_name, queue.queue_id) for queue in used]
    assert names[0] == names[3]
    assert names[:3] == [("b", 0), ("a", 1), ("a", 0)]


# --- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_what_is_stored_badly_is_a_result(
    side: Side, code: ResponseCode, status: SendStatus
) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        for broker in cluster.brokers.values():
            broker.play = lambda link, request, at=broker: at.store(link, request, code)  # type: ignore[misc]
        assert producer.send(Message(TOPIC, b"body")).status is status
        assert sum(len(broker.stored) for broker in cluster.brokers.values()) == 1


def test_on_demand_what_is_stored_badly_is_sent_to_another_broker(side: Side) -> None:
    with (
        scripted_cluster("a", "b") as cluster,
        side.producer(cluster.nameserver, retries_when_not_ok=True) as producer,
    ):
        bad = cluster["a"]
        bad.play = lambda link, request: bad.store(link, request, ResponseCode.FLUSH_DISK_TIMEOUT)
        for _ in range(4):
            result = producer.send(Message(TOPIC, b"body"))
            assert (result.status, result.queue.broker_name) == (SendStatus.OK, "b")


def test_many_messages_have_their_results_in_order(side: Side) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        results = producer.send_many([Message(TOPIC, b"%d" % number) for number in range(100)])
        assert len({result.message_id for result in results}) == 100
        stored = cluster["a"].stored + cluster["b"].stored
    assert sorted(map(int, stored)) == list(range(100))


def test_what_no_frame_can_carry_is_refused(side: Side) -> None:
    options = {"message_bytes_max": 2**30, "compress_above": 2**30}
    large = Message(TOPIC, b"x" * (17 * 1024**2))
    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, **options) as producer,  # type: ignore[arg-type]
        pytest.raises(IllegalMessageError),
    ):
        producer.send(large)


def test_a_body_above_the_limit_is_refused(side: Side) -> None:
    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, message_bytes_max=10) as producer,
    ):
        with pytest.raises(IllegalMessageError):
            producer.send(Message(TOPIC, b"x" * 11))
        assert cluster["a"].stored == []


def test_a_closed_producer_says_so(side: Side) -> None:
    with scripted_cluster("a") as cluster:
        with side.producer(cluster.nameserver) as producer:
            producer.send(Message(TOPIC, b"body"))
        with pytest.raises(ClientClosedError):
            producer.send(Message(TOPIC, b"body"))


# --- with a broker -------------------------------------------------------------------------------


def test_what_is_sent_is_read_back(side: Side, real_cluster: ProcessCluster) -> None:
    topic = f"Contract{uuid.uuid4().hex[:8]}"
    real_cluster.create_topic(topic, queues=1)
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    messages = [
        Message(topic, b"plain", tag="t", keys=("k",), properties={"a": "b"}, flag=3),
        Message(topic, b"compressed" * 1000),
        *(Message(topic, b"batch%d" % number) for number in range(3)),
    ]
    with side.producer(real_cluster.nameserver) as producer:
        results = producer.send_many(messages[:2])
        (batch,) = producer.send_batch(messages[2:])
    assert [result.queue_offset for result in (*results, batch)] == [0, 1, 2]
    found: list[ReceivedMessage] = []
    with side.consumer(real_cluster.nameserver, group=f"g{topic}") as consumer:
        consumer.assign([queue])
        while len(found) < 5:
            found += consumer.poll(5.0)
    assert [message.body for message in found] == [message.body for message in messages]
    first = found[0]
    assert (first.tag, first.keys, first.flag) == ("t", ("k",), 3)
    assert first.properties["a"] == "b"
    assert [message.queue_offset for message in found] == [0, 1, 2, 3, 4]
    assert [message.message_id for message in found[:2]] == [each.message_id for each in results]


def test_a_topic_is_created_by_the_first_send(side: Side, real_cluster: ProcessCluster) -> None:
    topic = f"Created{uuid.uuid4().hex[:8]}"
    with side.producer(real_cluster.nameserver, default_queues=3) as producer:
        assert producer.send(Message(topic, b"first")).is_ok
    real_cluster.wait_for_route(topic)
