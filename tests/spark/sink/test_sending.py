"""Batches under way: how many, in which order, and what is said when brokers do not take them."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from rmq.client.blocking import BlockingConsumer, BlockingProducer
from rmq.client.core.messages import SendStatus
from rmq.client.core.producing.outbound import OutboundMessage
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import BrokerData, TopicRouteData
from rmq.remoting.bodies.batch import BatchMessage, decode_batch, encode_batch
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import SendMessageRequestV2
from rmq.spark.sink.encoding import Outgoing
from rmq.spark.sink.rate import TokenBucket
from rmq.spark.sink.sending import SINGLES, RowsNotSentError, Sender, SendLimits
from tests.client.blocking.cluster_process import process_cluster
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.client.core.producing.config import ProducerOptions
    from rmq.remoting.command import Command
    from tests.client.blocking.scripted_cluster import ScriptedCluster
    from tests.client.blocking.scripted_peer import Link

ROWS: Final = 3
OK: Final = frozenset((SendStatus.OK,))
LIMITS: Final = SendLimits(
    batches=4,
    batch_bytes=1024**2,
    accepted=OK,
    retries=2,
    busy_timeout_s=20.0,
    broker_timeout_s=20.0,
)
QUEUES: Final = [MessageQueue(topic=TOPIC, broker_name="a", queue_id=number) for number in range(2)]


def batch(
    number: int, *, topic: str = TOPIC, rows: int = ROWS, queue: MessageQueue | None = None
) -> Outgoing:
    """Return a batch of rows, whose bodies are their numbers."""
    first = number * rows
    messages = [BatchMessage(0, b"%d" % row, b"") for row in range(first, first + rows)]
    outbound = OutboundMessage(
        topic=topic,
        message_id="",
        properties="WAIT\x01true",
        body=encode_batch(messages),
        code=RequestCode.SEND_BATCH_MESSAGE,
        is_batch=True,
    )
    return Outgoing(outbound, rows, first, queue)


def stored_rows(cluster: ScriptedCluster, name: str = "a") -> list[int]:
    """Return the rows that a broker has, in its order."""
    return [int(each.body) for body in cluster[name].stored for each in decode_batch(body)]


@contextmanager
def sending(
    limits: SendLimits = LIMITS,
    *names: str,
    bucket: TokenBucket | None = None,
    options: ProducerOptions | None = None,
) -> Iterator[tuple[ScriptedCluster, Sender]]:
    with (
        scripted_cluster(*(names or ("a",))) as cluster,
        BlockingProducer(cluster.nameserver, "g", **(options or {})) as producer,
    ):
        yield cluster, Sender(producer, limits, bucket)


def send_all(sender: Sender, numbers: range) -> None:
    for number in numbers:
        sender.send(batch(number))


def queue_of(request: Command) -> int:
    return request.header(SendMessageRequestV2).queue_id


# --- how many ----------------------------------------------------------------------------------


def test_all_is_stored_and_no_more_is_under_way_than_allowed() -> None:
    held: list[tuple[Link, Command]] = []
    most = 0

    def hold(link: Link, request: Command) -> None:
        nonlocal most
        held.append((link, request))
        most = max(most, len(held))
        if len(held) == 4:
            for each in held:
                cluster["a"].store(*each)
            held.clear()

    with sending() as (cluster, sender):
        cluster["a"].play = hold
        for number in range(20):
            sender.send(batch(number))
        sender.finish()
        assert sender.confirmed == {TOPIC: 60}
        assert sorted(stored_rows(cluster)) == list(range(60))
        assert most == 4


def test_bytes_under_way_are_bounded_and_one_may_always_go() -> None:
    seen: list[int] = []
    made = 0

    def note(link: Link, request: Command) -> None:
        seen.append(made - len(seen))
        cluster["a"].store(link, request)

    size = len(batch(0).outbound.body)
    for bytes_max, most in ((2 * size + size // 2, 2), (1, 1)):
        with sending(LIMITS._replace(batch_bytes=bytes_max)) as (cluster, sender):
            seen.clear()
            made = 0
            cluster["a"].play = note
            for number in range(9):
                made = number + 1
                sender.send(batch(number))
            sender.finish()
            # One more is made, and waits.
            assert max(seen) <= most + 1


def test_messages_that_are_sent_alone_are_more_at_a_time() -> None:
    held: list[tuple[Link, Command]] = []

    def hold(link: Link, request: Command) -> None:
        held.append((link, request))
        if len(held) == SINGLES:
            for each in held:
                cluster["a"].store(*each)
            held.clear()

    outbound = OutboundMessage(topic=TOPIC, message_id="", properties="", body=b"x")
    with sending(LIMITS._replace(batches=1)) as (cluster, sender):
        cluster["a"].play = hold
        for number in range(3 * SINGLES):
            sender.send(Outgoing(outbound, 1, number, None))
        sender.finish()
        assert sender.confirmed == {TOPIC: 3 * SINGLES}


def test_what_was_sent_leaves_while_the_next_batch_is_made() -> None:
    with sending() as (cluster, sender):
        sender.send(batch(0))
        peer = cluster["a"].peer
        assert peer is not None
        sender.send(batch(1))
        peer.wait_until(lambda: len(cluster["a"].stored) >= 1)
        sender.finish()


# --- brokers that are busy -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy"),
        (ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy"),
        (ResponseCode.SYSTEM_ERROR, "[PC_SYNCHRONIZED]broker busy"),
        (ResponseCode.FLOW_CONTROL, None),
    ],
)
@pytest.mark.parametrize("queue", [None, QUEUES[0]], ids=["any queue", "one queue"])
def test_what_a_busy_broker_refuses_is_offered_again(
    code: ResponseCode, remark: str | None, queue: MessageQueue | None
) -> None:
    refused = 0

    def busy_at_first(link: Link, request: Command) -> None:
        nonlocal refused
        if refused < 3:
            refused += 1
            link.answer(request, code=code, remark=remark)
        else:
            cluster["a"].store(link, request)

    with sending() as (cluster, sender):
        cluster["a"].play = busy_at_first
        for number in range(8):
            sender.send(batch(number, queue=queue))
        sender.finish()
        assert sender.confirmed == {TOPIC: 24}
        rows = stored_rows(cluster)
        assert sorted(rows) == list(range(24))
        assert queue is None or rows == sorted(rows)


def test_a_broker_that_stays_busy_ends_the_task_in_time() -> None:
    with sending(LIMITS._replace(busy_timeout_s=0.3)) as (cluster, sender):
        sender.send(batch(0))
        sender.send(batch(1))
        while sender.confirmed.total() < 6:
            sender.send(batch(0))
        confirmed = sender.confirmed.total()
        broker = cluster["a"]
        broker.play = broker.refuse(ResponseCode.SYSTEM_BUSY)
        started = time.monotonic()
        with pytest.raises(RowsNotSentError) as caught:
            send_all(sender, range(2, 1000))
        assert time.monotonic() - started < 10
        text = str(caught.value)
        for part in (TOPIC, "answered code 2: says a", "busyTimeoutMs", "sends its rows again"):
            assert part in text
        assert caught.value.confirmed >= confirmed
        assert f"{caught.value.confirmed} rows of the task were stored" in text


# --- brokers that are away ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "losses"), [(None, 9), (QUEUES[0], 4)], ids=["any queue", "one queue"]
)
def test_a_broker_that_is_away_for_longer_than_all_attempts_is_waited_for(
    queue: MessageQueue | None, losses: int
) -> None:
    lost = 0

    def lose_many(link: Link, request: Command) -> None:
        nonlocal lost
        if lost < losses:
            lost += 1
            link.close()
        else:
            cluster["a"].store(link, request)

    with sending() as (cluster, sender):
        cluster["a"].play = lose_many
        for number in range(8):
            sender.send(batch(number, queue=queue))
        sender.finish()
        assert lost == losses
        assert sender.confirmed == {TOPIC: 24}
        rows = stored_rows(cluster)
        # Others that were on a connection when it was lost may be there twice.
        assert set(rows) == set(range(24))
        assert queue is None or rows == list(range(24))


@pytest.mark.parametrize("queue", [None, QUEUES[0]], ids=["any queue", "one queue"])
def test_a_topic_whose_master_is_gone_is_waited_for(queue: MessageQueue | None) -> None:
    """As in a failover: the nameserver knows the topic, and nobody takes messages for it."""
    with sending() as (cluster, sender):
        sender.send(batch(0, queue=queue))
        sender.finish()
        whole = cluster.route()
        slave_only = TopicRouteData(
            queue_datas=whole.queue_datas,
            broker_datas=(
                BrokerData(cluster="c", broker_name="a", broker_addrs={1: cluster["a"].address}),
            ),
        )

        def promoted_after_three() -> TopicRouteData:
            return slave_only if cluster.asked < asked + 3 else whole

        def stop_being_master(link: Link, request: Command) -> None:
            if cluster.asked < asked + 3:
                link.answer(request, code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="a slave")
            else:
                cluster["a"].store(link, request)

        asked = cluster.asked
        cluster.route = promoted_after_three  # type: ignore[method-assign]
        cluster["a"].play = stop_being_master
        sender._producer.client.refresh_route(TOPIC)
        sender.send(batch(1, queue=queue))
        sender.finish()
        assert stored_rows(cluster) == list(range(6))


@pytest.mark.parametrize("queue", [None, QUEUES[0]], ids=["any queue", "one queue"])
def test_a_broker_that_stays_away_ends_the_task_in_time(queue: MessageQueue | None) -> None:
    with sending(LIMITS._replace(broker_timeout_s=0.3)) as (cluster, sender):
        cluster["a"].play = lambda link, request: link.close()
        sender.send(batch(0, queue=queue))
        with pytest.raises(RowsNotSentError, match=r"connection to .* lost") as caught:
            sender.finish()
        assert "no broker has taken them for 0.3 s (brokerTimeoutMs)" in str(caught.value)
        peer = cluster["a"].peer
        assert peer is not None
        assert peer.accepted > 3


# --- failures ----------------------------------------------------------------------------------


def test_a_refusal_is_told_with_all_that_is_known() -> None:
    def picky(link: Link, request: Command) -> None:
        if b"15" in (request.body or b""):
            link.answer(request, code=ResponseCode.MESSAGE_ILLEGAL, remark="too large")
        else:
            cluster["a"].store(link, request)

    with sending() as (cluster, sender):
        cluster["a"].play = picky
        with pytest.raises(RowsNotSentError) as caught:
            send_all(sender, range(1000))
        error = caught.value
        assert error.topic == TOPIC
        text = str(error)
        assert "3 rows for topic Scripted, from row 15 of the task on" in text
        assert f"{cluster['a'].address}: answered code 13: too large" in text
        # Those under way were waited for, and all that is stored is told.
        assert error.confirmed == len(stored_rows(cluster)) == sender.confirmed.total()
        assert 15 <= error.confirmed < 40


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
def test_messages_that_are_stored_unsafely_count_only_if_that_is_accepted(
    code: ResponseCode,
) -> None:
    with sending() as (cluster, sender):
        cluster["a"].play = lambda link, request: cluster["a"].store(link, request, code)
        sender.send(batch(0))
        with pytest.raises(RowsNotSentError, match=f"{code.name}.*acceptStatus=stored"):
            sender.finish()
        assert sender.confirmed.total() == 0
    with sending(LIMITS._replace(accepted=frozenset(SendStatus))) as (cluster, sender):
        cluster["a"].play = lambda link, request: cluster["a"].store(link, request, code)
        sender.send(batch(0))
        sender.finish()
        assert sender.confirmed == {TOPIC: 3}


def test_a_topic_that_nobody_has_is_told_at_once() -> None:
    with sending() as (_, sender):
        sender.send(batch(0, topic="Unknown"))
        with pytest.raises(RowsNotSentError, match="topic Unknown"):
            sender.finish()


def test_another_broker_takes_what_one_cannot() -> None:
    def lose(link: Link, request: Command) -> None:
        link.close()

    with sending(LIMITS, "a", "b") as (cluster, sender):
        cluster["a"].play = lose
        for number in range(20):
            sender.send(batch(number))
        sender.finish()
        assert sorted(stored_rows(cluster, "b")) == list(range(60))


# --- sharding keys -------------------------------------------------------------------------------


def test_one_batch_of_a_queue_is_under_way_at_a_time() -> None:
    held: dict[int, tuple[Link, Command]] = {}

    def hold(link: Link, request: Command) -> None:
        number = queue_of(request)
        assert number not in held, "two of one queue at a time"
        held[number] = (link, request)
        if len(held) == 2:
            for each in held.values():
                cluster["a"].store(*each)
            held.clear()

    with sending() as (cluster, sender):
        cluster["a"].play = hold
        for number in range(20):
            sender.send(batch(number, queue=QUEUES[number % 2]))
        sender.finish()
        assert sorted(stored_rows(cluster)) == list(range(60))


def test_order_holds_when_a_batch_of_a_queue_is_sent_again() -> None:
    lost = 0

    def lose_some(link: Link, request: Command) -> None:
        nonlocal lost
        if lost < 2 and b"12" in (request.body or b""):
            lost += 1
            link.close()
        else:
            cluster["a"].store(link, request)

    with sending() as (cluster, sender):
        cluster["a"].play = lose_some
        for number in range(20):
            sender.send(batch(number, queue=QUEUES[0]))
        sender.finish()
        assert stored_rows(cluster) == list(range(60))
        assert lost == 2


def test_an_answer_that_stays_the_same_ends_the_task_after_some_attempts() -> None:
    with sending() as (cluster, sender):
        broker = cluster["a"]
        broker.play = broker.refuse(ResponseCode.SYSTEM_ERROR)
        sender.send(batch(0, queue=QUEUES[0]))
        with pytest.raises(RowsNotSentError, match="answered code 1: says a"):
            sender.finish()
        peer = broker.peer
        assert peer is not None
        sends = [each for each in peer.requests if each.code == RequestCode.SEND_BATCH_MESSAGE]
        assert len(sends) == 1 + LIMITS.retries


# --- the rate ------------------------------------------------------------------------------------


def test_a_limit_of_messages_per_second_is_kept() -> None:
    started = time.monotonic()
    with sending(bucket=TokenBucket(100, started)) as (_, sender):
        for number in range(10):
            sender.send(batch(number))
        # The first batch goes at once, and 27 more rows take 0.27 s.
        assert time.monotonic() - started >= 0.27
        sender.finish()
        assert sender.confirmed == {TOPIC: 30}


def test_a_task_is_done_only_when_the_limit_allows_the_next_message() -> None:
    """The task after it knows nothing of what this one has sent."""
    started = time.monotonic()
    with sending(bucket=TokenBucket(100, started)) as (_, sender):
        sender.send(batch(0, rows=30))
        sender.finish()
        assert time.monotonic() - started >= 0.3


def test_a_task_that_fails_keeps_the_limit_too() -> None:
    started = time.monotonic()
    with sending(bucket=TokenBucket(100, started)) as (cluster, sender):
        cluster["a"].play = cluster["a"].refuse(ResponseCode.MESSAGE_ILLEGAL)
        sender.send(batch(0, rows=30))
        with pytest.raises(RowsNotSentError):
            sender.finish()
        assert time.monotonic() - started >= 0.3


# --- real brokers --------------------------------------------------------------------------------


def test_a_broker_that_is_killed_midway_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    names = ("broker-a", "broker-b")
    with process_cluster(tmp_path, names) as cluster:
        for name in names:
            cluster.create_topic("Orders", queues=2, broker=name)
        with BlockingProducer(cluster.nameserver, "g") as producer:
            sender = Sender(producer, LIMITS)
            for number in range(400):
                if number == 200:
                    cluster.kill("broker-b")
                sender.send(batch(number, topic="Orders", rows=10))
            sender.finish()
        assert sender.confirmed == {"Orders": 4000}
        cluster.start("broker-b")
        found: list[int] = []
        with BlockingConsumer(cluster.nameserver, "readers") as consumer:
            ends = consumer.end_offsets(consumer.queues("Orders"))
            for queue, end in ends.items():
                found += [int(each.body) for each in consumer.read_range(queue, 0, end)]
    # What was under way at that moment may be there twice; nothing is missing.
    assert set(found) == set(range(4000))
    assert len(found) <= 4000 + LIMITS.batches * 10


def test_a_master_that_restarts_is_waited_for(tmp_path: Path) -> None:
    with process_cluster(tmp_path) as cluster:
        cluster.create_topic("Orders", queues=2)
        queues = [
            MessageQueue(topic="Orders", broker_name="broker-a", queue_id=each) for each in (0, 1)
        ]
        with BlockingProducer(cluster.nameserver, "g") as producer:
            sender = Sender(producer, LIMITS)
            restart = threading.Thread(target=cluster.start)
            for number in range(60):
                if number == 30:
                    cluster.stop()
                    restart.start()
                queue = queues[number % 3] if number % 3 < 2 else None
                sender.send(batch(number, topic="Orders", rows=10, queue=queue))
            sender.finish()
            restart.join()
        assert sender.confirmed == {"Orders": 600}
        found: list[int] = []
        with BlockingConsumer(cluster.nameserver, "readers") as consumer:
            for queue, end in consumer.end_offsets(consumer.queues("Orders")).items():
                found += [int(each.body) for each in consumer.read_range(queue, 0, end)]
    assert set(found) == set(range(600))
