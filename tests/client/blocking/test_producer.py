"""The blocking producer on a real broker: single sends, batches, streams, and what it refuses."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest

from rmq.client.blocking import BlockingClient, BlockingConsumer, BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message, SendResult
from rmq.client.core.producing.config import ProducerConfig
from rmq.errors import (
    ClientClosedError,
    ConfigError,
    IllegalMessageError,
    NoNameserverError,
    NoRouteError,
)
from rmq.remoting.codes import Serialization

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.client.core.received import ReceivedMessage
    from tests.client.blocking.cluster_process import ProcessCluster

_topics = (f"Producing{number}" for number in itertools.count())


@pytest.fixture
def topic(shared_cluster: ProcessCluster) -> str:
    name = next(_topics)
    shared_cluster.create_topic(name, queues=3)
    return name


@pytest.fixture
def producer(shared_cluster: ProcessCluster) -> Iterator[BlockingProducer]:
    with BlockingProducer(shared_cluster.nameserver, "producers") as it:
        yield it


def stored(shared_cluster: ProcessCluster, topic: str, count: int) -> list[ReceivedMessage]:
    """Return all messages of a topic, once there are so many."""
    deadline = time.monotonic() + 20.0
    with BlockingConsumer(shared_cluster.nameserver, "readers") as consumer:
        while True:
            queues = consumer.queues(topic)
            ends = consumer.end_offsets(queues)
            if sum(ends.values()) >= count:
                return [
                    message
                    for queue, end in ends.items()
                    for message in consumer.read_range(queue, 0, end)
                ]
            assert time.monotonic() < deadline, ends
            consumer.client.connections.sleep(0.01)


def test_a_message_is_stored_with_all_that_it_carries(
    shared_cluster: ProcessCluster, producer: BlockingProducer, topic: str
) -> None:
    message = Message(topic, b"hello", tag="t", keys=("k1", "k2"), properties={"a": "b"}, flag=7)
    result = producer.send(message)
    assert result.is_ok
    (found,) = stored(shared_cluster, topic, 1)
    assert found.message_id == result.message_id
    assert found.offset_message_id == result.offset_message_id
    assert (found.queue, found.queue_offset) == (result.queue, result.queue_offset)
    assert (found.body, found.tag, found.keys, found.flag) == (b"hello", "t", ("k1", "k2"), 7)
    assert found.properties["a"] == "b"


def test_messages_go_round_and_to_the_queue_that_is_chosen(
    producer: BlockingProducer, topic: str
) -> None:
    message = Message(topic, b"x")
    queues = {producer.send(message).queue for _ in range(3)}
    assert len(queues) == 3
    chosen = producer.route(topic).writable[1]
    assert {producer.send(message, queue=chosen).queue for _ in range(3)} == {chosen}
    ordered = [producer.send_ordered(message, "customer 7") for _ in range(3)]
    assert len({result.queue for result in ordered}) == 1
    assert [result.queue_offset for result in ordered] == list(
        range(ordered[0].queue_offset, ordered[0].queue_offset + 3)
    )


def test_large_bodies_are_compressed(
    shared_cluster: ProcessCluster, producer: BlockingProducer, topic: str
) -> None:
    body = b"0123456789" * 100_000
    producer.send(Message(topic, body))
    (found,) = stored(shared_cluster, topic, 1)
    assert found.is_compressed
    assert len(found.raw_body) < 100_000
    assert found.body == body


def test_one_way_messages_have_left_when_the_call_returns(
    shared_cluster: ProcessCluster, topic: str
) -> None:
    with BlockingProducer(shared_cluster.nameserver, "producers") as producer:
        for number in range(20):
            producer.send_oneway(Message(topic, b"%d" % number))
    found = stored(shared_cluster, topic, 20)
    assert {message.body for message in found} == {b"%d" % number for number in range(20)}


def test_a_batch_is_split_by_size_and_stored_in_order(
    shared_cluster: ProcessCluster, topic: str
) -> None:
    config = ProducerConfig(group="producers", message_bytes_max=10_000)
    with BlockingProducer(shared_cluster.nameserver, config=config) as producer:
        messages = [Message(topic, b"%04d" % number * 500) for number in range(12)]
        results = producer.send_batch(messages)
        assert len(results) > 1
        ids = [each for result in results for each in result.message_id.split(",")]
    found = {message.message_id: message for message in stored(shared_cluster, topic, 12)}
    assert [found[each].body for each in ids] == [message.body for message in messages]


def test_many_messages_are_sent_in_order_with_their_results(
    shared_cluster: ProcessCluster, producer: BlockingProducer, topic: str
) -> None:
    messages = [Message(topic, b"%d" % number) for number in range(3000)]
    results = producer.send_many(messages, in_flight=100)
    found = {message.message_id: message.body for message in stored(shared_cluster, topic, 3000)}
    assert [found[result.message_id] for result in results] == [each.body for each in messages]
    assert len({result.message_id for result in results}) == 3000
    # Each queue got its messages in the order in which they were sent.
    for queue in producer.route(topic).writable:
        offsets = [result.queue_offset for result in results if result.queue == queue]
        assert offsets == sorted(offsets)
        assert len(offsets) == 1000


def test_results_come_while_messages_are_still_made(producer: BlockingProducer, topic: str) -> None:
    made = 0

    def messages() -> Iterator[Message]:
        nonlocal made
        for number in range(1000):
            made += 1
            yield Message(topic, b"%d" % number)

    behind = 0
    for count, result in enumerate(producer.send_stream(messages(), in_flight=10), start=1):
        assert isinstance(result, SendResult)
        behind = max(behind, made - count)
    assert made == count == 1000
    assert behind <= 10


def test_whoever_makes_messages_slowly_gets_results_all_the_same(
    shared_cluster: ProcessCluster, producer: BlockingProducer, topic: str
) -> None:
    results = 0

    def messages() -> Iterator[Message]:
        for number in range(8):
            # The message before this one is stored although nobody asks for its result.
            stored(shared_cluster, topic, number)
            yield Message(topic, b"%d" % number)

    for result in producer.send_stream(messages()):
        assert isinstance(result, SendResult)
        results += 1
    assert results == 8


def test_other_calls_go_on_between_results(producer: BlockingProducer, topic: str) -> None:
    messages = [Message(topic, b"x")] * 50
    for result in producer.send_stream(messages, in_flight=20):
        assert isinstance(result, SendResult)
        assert producer.send(messages[0]).is_ok


def test_a_stream_that_is_given_up_leaves_the_producer_usable(
    producer: BlockingProducer, topic: str
) -> None:
    stream = producer.send_stream([Message(topic, b"x")] * 500)
    next(stream)
    del stream
    assert producer.send(Message(topic, b"y")).is_ok


def test_messages_that_cannot_be_sent_are_told_in_their_place(
    shared_cluster: ProcessCluster, topic: str
) -> None:
    config = ProducerConfig(group="producers", message_bytes_max=100)
    with BlockingProducer(shared_cluster.nameserver, config=config) as producer:
        large = Message(topic, b"x" * 101)
        small = Message(topic, b"x")
        outcomes = list(producer.send_stream([small, large, small]))
        assert [type(outcome).__name__ for outcome in outcomes] == [
            "SendResult",
            "IllegalMessageError",
            "SendResult",
        ]
        with pytest.raises(IllegalMessageError, match="101 bytes"):
            producer.send(large)
        with pytest.raises(IllegalMessageError, match="101 bytes"):
            producer.send_many([small, large, small])
        with pytest.raises(IllegalMessageError):
            producer.send_batch([])


def test_a_topic_that_does_not_exist_is_created_by_the_first_message(
    producer: BlockingProducer,
) -> None:
    name = next(_topics)
    assert len(producer.send_many([Message(name, b"x")] * 10)) == 10


def test_the_binary_header_works_as_well(shared_cluster: ProcessCluster, topic: str) -> None:
    config = ClientConfig(
        nameservers=shared_cluster.nameserver, serialization=Serialization.ROCKETMQ
    )
    with BlockingProducer(config, "producers") as producer:
        producer.send(Message(topic, b"x", tag="ü"))
        assert len(producer.send_many([Message(topic, b"x")] * 100)) == 100


def test_a_client_can_be_shared(shared_cluster: ProcessCluster, topic: str) -> None:
    with BlockingClient(shared_cluster.nameserver) as client:
        with (
            BlockingProducer(client, "first") as first,
            BlockingProducer(client, "second") as second,
        ):
            assert first.send(Message(topic, b"x")).is_ok
            assert second.send(Message(topic, b"x")).is_ok
        assert client.is_open
        with pytest.raises(ClientClosedError):
            first.send(Message(topic, b"x"))
    with pytest.raises(ClientClosedError), BlockingProducer(client, "third"):
        pass


def test_what_makes_no_producer_is_refused(shared_cluster: ProcessCluster) -> None:
    config = ProducerConfig(group="g")
    with pytest.raises(ConfigError, match="group"):
        BlockingProducer(shared_cluster.nameserver)
    with pytest.raises(ConfigError, match="config"):
        BlockingProducer(shared_cluster.nameserver, "g", config=config)
    with pytest.raises(ConfigError, match="retries"):
        BlockingProducer(shared_cluster.nameserver, "g", retries=-1)
    with pytest.raises(ConfigError, match="nameservers"):
        BlockingProducer("", "g")
    with (
        BlockingProducer(shared_cluster.nameserver, "g") as producer,
        pytest.raises(ConfigError, match="in_flight"),
    ):
        producer.send_stream([], in_flight=0)


def test_nobody_is_there() -> None:
    message = Message("T", b"x")
    with BlockingProducer("127.0.0.1:1", "g") as producer:
        with pytest.raises(NoNameserverError):
            producer.send(message)
        with pytest.raises(NoNameserverError):
            producer.send_oneway(message)
        with pytest.raises(NoNameserverError):
            producer.send_many([message] * 3)
        outcomes = list(producer.send_stream([message] * 3))
        assert [type(outcome) for outcome in outcomes] == [NoNameserverError] * 3
    with pytest.raises(ClientClosedError):
        producer.send(message)
    with pytest.raises(ClientClosedError):
        producer.send_many([message])


def test_a_topic_that_takes_no_messages_says_so(shared_cluster: ProcessCluster) -> None:
    name = next(_topics)
    shared_cluster.create_topic(name, perm=4)
    with BlockingProducer(shared_cluster.nameserver, "g") as producer:
        with pytest.raises(NoRouteError, match="none of its queues takes messages"):
            producer.send(Message(name, b"x"))
        with pytest.raises(NoRouteError, match="none of its queues takes messages"):
            producer.send_many([Message(name, b"x")])
