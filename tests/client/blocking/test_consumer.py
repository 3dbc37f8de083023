"""The blocking consumer on a real broker: polling, places, commits, and ranges of queues."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, TypeVar

import pytest

from rmq.client.blocking import (
    BlockingAdmin,
    BlockingClient,
    BlockingConsumer,
    BlockingConsumerConfig,
    BlockingProducer,
)
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.messages import Message
from rmq.client.core.received import decode_messages
from rmq.errors import (
    ClientClosedError,
    ConfigError,
    NoNameserverError,
    NoRouteError,
    NotAssignedError,
    OffsetOutOfRangeError,
)
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.client.core.received import ReceivedMessage
    from tests.client.blocking.cluster_process import ProcessCluster

T = TypeVar("T")

_numbers = itertools.count()
WAIT_S = 20.0


class Filled:
    """A topic with messages `0`, `1` and so on, dealt to its queues in turn."""

    def __init__(self, cluster: ProcessCluster, queues: int, messages: int) -> None:
        number = next(_numbers)
        self.cluster = cluster
        self.topic = f"Consuming{number}"
        self.group = f"group{number}"
        cluster.create_topic(self.topic, queues=queues)
        self.queues = tuple(
            MessageQueue(topic=self.topic, broker_name="broker-a", queue_id=queue_id)
            for queue_id in range(queues)
        )
        self.sent = 0
        if messages:
            self.send(messages)

    def send(self, count: int, tag: str | None = None) -> None:
        with BlockingProducer(self.cluster.nameserver, "fillers") as producer:
            for number in range(self.sent, self.sent + count):
                queue = self.queues[number % len(self.queues)]
                producer.send(Message(self.topic, b"%d" % number, tag=tag), queue=queue)
        self.sent += count

    def send_fast(self, count: int, body: bytes) -> None:
        """To a topic of one queue."""
        with BlockingProducer(self.cluster.nameserver, "fillers") as producer:
            producer.send_many([Message(self.topic, body)] * count)
        self.sent += count

    def consumer(self, **options: object) -> BlockingConsumer:
        options.setdefault("consume_from", ConsumeFrom.FIRST)
        return BlockingConsumer(self.cluster.nameserver, self.group, **options)  # type: ignore[arg-type]

    def committed(self) -> dict[int, int | None]:
        with self.consumer() as consumer:
            return {queue.queue_id: consumer.committed(queue) for queue in self.queues}


def filled(cluster: ProcessCluster, queues: int = 2, messages: int = 10) -> Filled:
    return Filled(cluster, queues, messages)


def bodies(messages: Sequence[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


def poll_all(consumer: BlockingConsumer, count: int, max_messages: int = 1000) -> list[int]:
    """Poll until so many messages have come."""
    deadline = time.monotonic() + WAIT_S
    found: list[int] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
        messages = consumer.poll(1.0, max_messages)
        assert len(messages) <= max_messages
        found += bodies(messages)
    return found


# --- polling ---------------------------------------------------------------------------------


def test_all_messages_of_the_assigned_queues_are_polled(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=3, messages=100)
    with it.consumer() as consumer:
        assert consumer.queues(it.topic) == it.queues
        consumer.assign(consumer.queues(it.topic))
        found = poll_all(consumer, 100, max_messages=7)
        assert sorted(found) == list(range(100))
        # Those of a queue are in order.
        for queue_id in range(3):
            of_queue = [number for number in found if number % 3 == queue_id]
            assert of_queue == sorted(of_queue)
        assert consumer.poll(0.05) == []
        it.send(3)
        assert sorted(poll_all(consumer, 3)) == [100, 101, 102]


def test_a_message_that_comes_while_a_poll_waits_ends_the_wait(
    shared_cluster: ProcessCluster,
) -> None:
    it = filled(shared_cluster, messages=0)
    with it.consumer() as consumer:
        consumer.assign(it.queues)
        assert consumer.poll(0.0) == []
        consumer.poll(0.05)
        # The broker holds the pulls now, and answers when there is something.
        it.send(1)
        started = time.monotonic()
        assert poll_all(consumer, 1) == [0]
        assert time.monotonic() - started < 5.0


def test_only_the_assigned_queues_are_read(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster)
    with it.consumer() as consumer:
        with pytest.raises(ConfigError, match="assign"):
            consumer.poll(0.0)
        consumer.assign(it.queues[:1])
        assert consumer.assignment == it.queues[:1]
        assert poll_all(consumer, 5) == [0, 2, 4, 6, 8]
        # A queue that stays assigned goes on where it was.
        consumer.assign(it.queues)
        assert poll_all(consumer, 5) == [1, 3, 5, 7, 9]
        consumer.assign(it.queues[1:])
        it.send(2)
        assert poll_all(consumer, 1) == [11]
        with pytest.raises(NotAssignedError):
            consumer.seek(it.queues[0], 0)


def test_a_paused_queue_is_left_alone(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster)
    with it.consumer() as consumer:
        consumer.assign(it.queues)
        consumer.pause(it.queues[0])
        assert poll_all(consumer, 5) == [1, 3, 5, 7, 9]
        assert consumer.poll(0.05) == []
        consumer.resume()
        consumer.pause(it.queues[1])
        assert poll_all(consumer, 5) == [0, 2, 4, 6, 8]


def test_tags_are_filtered(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1, messages=0)
    it.send(3, tag="a")
    it.send(3, tag="b")
    it.send(3, tag="c")
    (queue,) = it.queues
    with it.consumer() as consumer:
        consumer.assign(it.queues, "a || c")
        assert poll_all(consumer, 6) == [0, 1, 2, 6, 7, 8]
        consumer.assign(it.queues, {it.topic: "b"})
        consumer.seek(queue, 0)
        assert poll_all(consumer, 3) == [3, 4, 5]
        assert bodies(list(consumer.read_range(queue, 0, 9, "c"))) == [6, 7, 8]
        assert bodies(list(consumer.read_range(queue, 2, 5, "b || c"))) == [3, 4]
        with pytest.raises(ConfigError):
            consumer.assign(it.queues, "||")


def test_what_waits_to_be_polled_is_bounded(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1, messages=0)
    it.send_fast(500, b"1")
    with it.consumer(messages_max=50) as consumer:
        consumer.assign(it.queues)
        seen = 0
        while seen < 500:
            seen += len(consumer.poll(5.0, 10))
            consumer.client.connections.sleep(0.0)
            assert consumer._reading.buffer.statistics().messages <= 50 + 32


# --- places ----------------------------------------------------------------------------------


def test_places_are_found_and_gone_to(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=2, messages=20)
    first, second = it.queues
    with it.consumer() as consumer:
        assert consumer.begin_offsets(it.queues) == {first: 0, second: 0}
        assert consumer.end_offsets(it.queues) == {first: 10, second: 10}
        assert (consumer.begin_offset(first), consumer.end_offset(first)) == (0, 10)
        consumer.assign([first])
        assert consumer.position(first) is None
        consumer.seek(first, 7)
        assert consumer.position(first) == 7
        assert poll_all(consumer, 3) == [14, 16, 18]
        assert consumer.position(first) == 10
        consumer.seek_to_begin()
        messages = consumer.poll(WAIT_S, 3)
        assert bodies(messages) == [0, 2, 4]
        consumer.seek_to_end(first)
        assert consumer.poll(0.05) == []
        middle = messages[-1].stored_at_ms
        found = consumer.offset_at(first, middle)
        consumer.seek_to_time(middle)
        assert consumer.position(first) == found
        assert consumer.poll(WAIT_S)[0].queue_offset == found
        with pytest.raises(ConfigError):
            consumer.seek(first, -1)


def test_a_group_without_offsets_starts_where_it_is_told(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1, messages=5)
    (queue,) = it.queues
    # The broker itself answers 0 for young queues, so the places are asked for directly.
    with it.consumer(consume_from=ConsumeFrom.LAST) as consumer:
        consumer.assign(it.queues)
        consumer.seek_to_end()
        consumer.poll(0.05)
        it.send(1)
        assert poll_all(consumer, 1) == [5]
        consumer.commit()
        assert consumer.committed(queue) == 6


def test_an_offset_that_is_beyond_the_end_is_corrected(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1, messages=5)
    (queue,) = it.queues
    with it.consumer() as consumer:
        consumer.assign(it.queues)
        consumer.seek(queue, 100)
        assert consumer.poll(0.3) == []
        assert consumer.position(queue) == 5
        it.send(1)
        assert poll_all(consumer, 1) == [5]


# --- commits ---------------------------------------------------------------------------------


def test_what_was_polled_is_committed_when_the_block_ends(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster)
    with it.consumer() as consumer:
        consumer.assign(it.queues)
        poll_all(consumer, 10)
    assert it.committed() == {0: 5, 1: 5}


def test_what_was_polled_last_is_not_committed_after_an_error(
    shared_cluster: ProcessCluster,
) -> None:
    it = filled(shared_cluster, queues=1)
    with pytest.raises(ZeroDivisionError), it.consumer() as consumer:  # noqa: PT012
        consumer.assign(it.queues)
        assert bodies(consumer.poll(WAIT_S, 4)) == [0, 1, 2, 3]
        assert bodies(consumer.poll(WAIT_S, 4)) == [4, 5, 6, 7]
        _ = 1 // 0
    assert it.committed() == {0: 4}
    with it.consumer() as consumer:
        consumer.assign(it.queues)
        assert poll_all(consumer, 6) == [4, 5, 6, 7, 8, 9]


def test_commits_can_be_the_applications_business(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1)
    (queue,) = it.queues
    with it.consumer(commits_itself=False) as consumer:
        consumer.assign(it.queues)
        consumer.seek(queue, 1)
        consumer.poll(WAIT_S, 4)
        consumer.commit()
        assert consumer.committed(queue) == 5
        consumer.commit({queue: 3})
        poll_all(consumer, 5)
    assert it.committed() == {0: 3}


def test_while_messages_are_polled_they_are_committed_now_and_then(
    shared_cluster: ProcessCluster,
) -> None:
    it = filled(shared_cluster, queues=1)
    (queue,) = it.queues
    with it.consumer(commit_interval_s=0.01) as consumer, it.consumer() as other:
        consumer.assign(it.queues)
        assert len(consumer.poll(WAIT_S, 6)) == 6
        deadline = time.monotonic() + WAIT_S
        while other.committed(queue) != 6:
            assert time.monotonic() < deadline
            consumer.pause()
            consumer.poll(0.01)


# --- ranges ----------------------------------------------------------------------------------


def test_a_range_is_read_exactly(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1, messages=0)
    it.send(700)
    (queue,) = it.queues
    with it.consumer() as consumer:
        for start, end in ((0, 700), (0, 1), (699, 700), (5, 5), (31, 33), (100, 613)):
            found = bodies(list(consumer.read_range(queue, start, end)))
            assert found == list(range(start, end))
        batches = list(consumer.read_batches(queue, 10, 300))
        assert bodies(list(itertools.chain(*batches))) == list(range(10, 300))
        assert max(map(len, batches)) == 32
        assert consumer.committed(queue) in (0, None)


def test_ranges_of_several_queues_are_read_by_turns(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=2, messages=0)
    it.send(200)
    with it.consumer() as consumer:
        readers = [consumer.read_range(queue, 0, 100) for queue in it.queues]
        found = [int(message.body) for pair in zip(*readers, strict=True) for message in pair]
        assert found == list(range(200))


def test_messages_of_different_sizes_are_read_in_order(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1, messages=0)
    (queue,) = it.queues
    sizes = [1 + (number * 7919) % 60_000 for number in range(120)]
    with BlockingProducer(shared_cluster.nameserver, "fillers", compress_above=10**9) as producer:
        producer.send_many([Message(it.topic, b"x" * size) for size in sizes])
    with it.consumer() as consumer:
        messages = list(consumer.read_range(queue, 0, 120))
        assert [message.queue_offset for message in messages] == list(range(120))
        assert [len(message.body) for message in messages] == sizes


def test_pulls_of_a_range_can_be_had_as_they_came(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1, messages=0)
    it.send_fast(1000, b"7")
    (queue,) = it.queues
    with it.consumer(pull_messages_max=1000) as consumer:
        pulls = list(consumer.read_raw(queue, 100, 907))
        assert pulls[0].offset == 100
        assert pulls[-1].next_offset == 907
        assert [pull.next_offset for pull in pulls[:-1]] == [pull.offset for pull in pulls[1:]]
        for pull in pulls:
            messages = decode_messages(pull.body, queue)
            offsets = [message.queue_offset for message in messages]
            assert offsets == list(range(pull.offset, pull.next_offset))
        # However many are asked for, a broker gives out as many as it likes.
        assert {pull.next_offset - pull.offset for pull in pulls[:-1]} == {32}
        assert list(consumer.read_raw(queue, 5, 5)) == []
        with pytest.raises(ConfigError):
            consumer.read_raw(queue, 3, 2)
        with pytest.raises(OffsetOutOfRangeError):
            list(consumer.read_raw(queue, 990, 1001))


def test_pulls_as_they_came_go_beyond_the_end_and_by_hashes_of_tags(
    shared_cluster: ProcessCluster,
) -> None:
    it = filled(shared_cluster, queues=1, messages=0)
    # To Java, the hashes of these two are the same.
    for tag in ("Aa", "other", "BB"):
        it.send(40, tag=tag)
    (queue,) = it.queues
    with it.consumer(pull_messages_max=1000) as consumer:
        pulls = list(consumer.read_raw(queue, 0, 90, "BB"))
        found = [m for pull in pulls for m in decode_messages(pull.body, queue)]
        assert [message.tag for message in found[:40]] == ["Aa"] * 40
        assert {message.tag for message in found[40:]} == {"BB"}
        assert found[-1].queue_offset >= 90
        assert pulls[-1].next_offset > 90
        assert bodies(list(consumer.read_range(queue, 0, 90, "BB"))) == list(range(80, 90))


def test_a_range_that_is_not_there_is_an_error(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster, queues=1, messages=5)
    (queue,) = it.queues
    with it.consumer(pull_pause_s=0.01) as consumer:
        reader = consumer.read_range(queue, 3, 9)
        assert bodies([next(reader), next(reader)]) == [3, 4]
        with pytest.raises(OffsetOutOfRangeError) as caught:
            next(reader)
        assert (caught.value.asked, caught.value.first, caught.value.last) == (5, 0, 5)
        with pytest.raises(OffsetOutOfRangeError):
            list(consumer.read_range(queue, 50, 60))
        with pytest.raises(ConfigError):
            consumer.read_range(queue, 3, 2)
        with pytest.raises(ConfigError):
            consumer.read_range(queue, -1, 2)
        elsewhere = MessageQueue(topic=it.topic, broker_name="nobody", queue_id=0)
        with pytest.raises(NoRouteError):
            list(consumer.read_range(elsewhere, 0, 1))
        with pytest.raises(NoRouteError):
            consumer.end_offset(elsewhere)


def test_a_reader_that_is_given_up_leaves_the_consumer_usable(
    shared_cluster: ProcessCluster,
) -> None:
    it = filled(shared_cluster, queues=1, messages=0)
    it.send_fast(1000, b"7")
    (queue,) = it.queues
    with it.consumer() as consumer:
        next(consumer.read_range(queue, 0, 1000))
        assert sum(1 for _ in consumer.read_range(queue, 0, 1000)) == 1000


# --- life ------------------------------------------------------------------------------------


def test_a_client_can_be_shared(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster)
    with BlockingClient(shared_cluster.nameserver) as client:
        with BlockingConsumer(client, it.group, consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.assign(it.queues)
            poll_all(consumer, 10)
        assert client.is_open
    assert it.committed() == {0: 5, 1: 5}


def test_what_makes_no_consumer_is_refused(shared_cluster: ProcessCluster) -> None:
    address = shared_cluster.nameserver
    with pytest.raises(ConfigError, match="group"):
        BlockingConsumer(address)
    with pytest.raises(ConfigError, match="config"):
        BlockingConsumer(address, "g", config=BlockingConsumerConfig(group="g"))
    for options in (
        {"pull_messages_max": 0},
        {"poll_timeout_s": -1},
        {"pull_pause_s": 0},
        {"pull_timeout_s": 5},
        {"consume_from": ConsumeFrom.TIMESTAMP},
    ):
        with pytest.raises(ConfigError):
            BlockingConsumer(address, "g", **options)
    consumer = BlockingConsumer(address, "g")
    with pytest.raises(ClientClosedError):
        consumer.queues("T")
    with consumer, pytest.raises(NoRouteError):
        consumer.queues("NoSuchTopic")
    with consumer:
        consumer.assign([MessageQueue(topic="T", broker_name="b", queue_id=0)])
        with pytest.raises(ConfigError, match="max_messages"):
            consumer.poll(0.0, 0)


def test_nobody_is_there() -> None:
    queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
    with BlockingConsumer("127.0.0.1:1", "g") as consumer:
        with pytest.raises(NoNameserverError):
            consumer.queues("T")
        with pytest.raises(NoNameserverError):
            list(consumer.read_range(queue, 0, 1))
        consumer.assign([queue])
        with pytest.raises(NoNameserverError):
            consumer.poll(0.1)


@pytest.mark.parametrize("is_member", [True, False])
def test_brokers_are_told_of_members_only(shared_cluster: ProcessCluster, is_member: bool) -> None:
    it = filled(shared_cluster)
    with it.consumer(sends_heartbeats=is_member) as consumer:
        assert len(list(consumer.read_range(it.queues[0], 0, 5))) == 5
        consumer.client.beat()
        with BlockingAdmin(shared_cluster.nameserver) as admin:
            found = [each.client_id for each in admin.consumer_connections(it.group).connections]
        assert found == ([consumer.client.client_id] if is_member else [])


# --- operators -------------------------------------------------------------------------------


def while_polling(consumer: BlockingConsumer, question: Callable[[], T], found: list[int]) -> T:
    """Ask something in a thread while the consumer waits for messages, and so can answer."""
    answers: list[T] = []
    asking = threading.Thread(target=lambda: answers.append(question()))
    asking.start()
    deadline = time.monotonic() + WAIT_S
    while asking.is_alive():
        assert time.monotonic() < deadline
        found += bodies(consumer.poll(0.02))
    asking.join()
    (answer,) = answers
    return answer


def test_operators_are_answered_while_the_consumer_waits(shared_cluster: ProcessCluster) -> None:
    it = filled(shared_cluster)
    with it.consumer() as consumer, BlockingAdmin(shared_cluster.nameserver) as admin:
        consumer.assign(it.queues)
        poll_all(consumer, 10)
        consumer.commit()
        consumer.client.beat()
        client_id = consumer.client.client_id
        found: list[int] = []
        info = while_polling(consumer, lambda: admin.running_info(it.group, client_id), found)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        status = while_polling(consumer, lambda: admin.consumer_status(it.group, it.topic), found)
        assert status[client_id] == dict.fromkeys(it.queues, 5)
        # Moved back to the beginning, it reads everything again.
        assert found == []
        while_polling(consumer, lambda: admin.reset_offsets(it.group, it.topic, 0), found)
        found += poll_all(consumer, 10 - len(found))
        assert sorted(found) == list(range(10))
