"""Brokers that die, come back, talk nonsense or have too much to do, while they are read."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rmq.client.blocking import BlockingConsumer, BlockingProducer, client
from rmq.client.blocking import routes as routes_module
from rmq.client.blocking.connections import Connections
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.messages import Message, SendResult
from rmq.errors import (
    BadAnswerError,
    BrokersFailedError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    ResponseError,
    RmqError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import TopicRouteData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from tests.client.blocking.cluster_process import process_cluster
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.command import Command
    from tests.client.blocking.cluster_process import ProcessCluster
    from tests.client.blocking.scripted_cluster import Play, ScriptedCluster
    from tests.client.blocking.scripted_peer import Link

QUEUE = MessageQueue(topic=TOPIC, broker_name="a", queue_id=0)
COUNT = 200


# --- a broker that is played -------------------------------------------------------------------


def record(offset: int) -> bytes:
    """Return the record of a message whose body is its offset."""
    return build_record(
        topic=TOPIC.encode(), queue_offset=offset, physical_offset=offset * 100, body=b"%d" % offset
    )


class Queue:
    """Serves pulls of one queue with 200 messages, and fails when and as it is told to."""

    def __init__(self) -> None:
        self.failures: dict[int, Play] = {}
        """What to do at the pull of this number, the first is 0."""
        self.pulls: list[int] = []

    def play(self, link: Link, request: Command) -> None:
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            link.answer(request, header=QueryConsumerOffsetResponse(offset=0))
        elif request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            link.answer(request, code=ResponseCode.SYSTEM_ERROR, remark="not today")
        elif request.code == RequestCode.PULL_MESSAGE:
            offset = request.header(PullMessageRequest).queue_offset
            self.pulls.append(offset)
            failure = self.failures.get(len(self.pulls) - 1)
            (failure or self.answer)(link, request)

    def answer(self, link: Link, request: Command) -> None:
        asked = request.header(PullMessageRequest)
        start, end = asked.queue_offset, min(asked.queue_offset + asked.max_msg_nums, COUNT)
        if start >= COUNT:
            link.answer(request, code=ResponseCode.PULL_NOT_FOUND, header=places(start))
        else:
            body = b"".join(map(record, range(start, end)))
            link.answer(request, header=places(end), body=body)


def places(next_offset: int, *, broker_id: int = 0) -> PullMessageResponse:
    return PullMessageResponse(
        suggest_which_broker_id=broker_id,
        next_begin_offset=next_offset,
        min_offset=0,
        max_offset=COUNT,
    )


@contextmanager
def played(**options: object) -> Iterator[tuple[Queue, ScriptedCluster, BlockingConsumer]]:
    options = {"pull_pause_s": 0.02, "consume_from": ConsumeFrom.FIRST, **options}
    queue = Queue()
    with scripted_cluster("a") as cluster:
        cluster["a"].play = queue.play
        with BlockingConsumer(cluster.nameserver, "g", **options) as consumer:  # type: ignore[arg-type]
            yield queue, cluster, consumer


def lose(link: Link, request: Command) -> None:
    link.close()


def garbage(link: Link, request: Command) -> None:
    link.send(b"\xff" * 20)


def silence(link: Link, request: Command) -> None:
    pass


def busy(link: Link, request: Command) -> None:
    link.answer(request, code=ResponseCode.FLOW_CONTROL, remark="busy")


def overloaded(link: Link, request: Command) -> None:
    """Answer like a broker of 4.9 whose queue of requests is too long."""
    remark = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"
    link.answer(request, code=ResponseCode.SYSTEM_BUSY, remark=remark)


def refuse(link: Link, request: Command) -> None:
    link.answer(request, code=ResponseCode.NO_PERMISSION, remark="no")


def no_messages(link: Link, request: Command) -> None:
    link.answer(request, header=places(request.header(PullMessageRequest).queue_offset + 1))


def no_places(link: Link, request: Command) -> None:
    link.answer(request, body=record(0))


def bad_records(link: Link, request: Command) -> None:
    link.answer(request, header=places(32), body=b"\x00" * 200)


def cut_record(link: Link, request: Command) -> None:
    start = request.header(PullMessageRequest).queue_offset
    body = record(start) + record(start + 1) + record(start + 2)[:-9]
    link.answer(request, header=places(start + 3), body=body)


def standing(link: Link, request: Command) -> None:
    start = request.header(PullMessageRequest).queue_offset
    link.answer(request, header=places(start), body=record(start))


def numbers(consumer: BlockingConsumer, start: int = 0, end: int = COUNT) -> list[int]:
    return [int(message.body) for message in consumer.read_range(QUEUE, start, end)]


@pytest.mark.parametrize(
    "failing", [lose, garbage, busy, overloaded], ids=lambda play: play.__name__
)
def test_a_range_is_read_on_after_a_failure(failing: Play) -> None:
    with played() as (queue, _, consumer):
        for number in (0, 3, 4, 9):
            queue.failures[number] = failing
        assert numbers(consumer) == list(range(COUNT))


@pytest.mark.parametrize(
    "failing", [lose, garbage, busy, overloaded], ids=lambda play: play.__name__
)
def test_pulls_of_a_range_go_on_after_a_failure(failing: Play) -> None:
    with played() as (queue, _, consumer):
        for number in (0, 3, 4, 9):
            queue.failures[number] = failing
        pulls = list(consumer.read_raw(QUEUE, 0, COUNT))
        assert b"".join(pull.body for pull in pulls) == b"".join(map(record, range(COUNT)))
        assert [pull.offset for pull in pulls] == list(range(0, COUNT, 32))


def test_an_empty_answer_says_why_and_where_to_go_on() -> None:
    def removed(link: Link, request: Command) -> None:
        link.answer(
            request,
            code=ResponseCode.PULL_RETRY_IMMEDIATELY,
            header=places(150),
            remark="MESSAGE_WAS_REMOVING",
        )

    with played() as (queue, _, consumer):
        queue.failures[1] = removed
        pulls = list(consumer.read_raw(QUEUE, 0, COUNT))
        assert [pull[:2] for pull in pulls] == [(0, 32), (32, 150), (150, 182), (182, 200)]
        assert pulls[1].body == b""
        assert pulls[1].remark == "MESSAGE_WAS_REMOVING"


def test_a_range_is_read_on_after_a_silent_connection() -> None:
    with played(pull_now_timeout_s=0.1) as (queue, _, consumer):
        queue.failures[2] = silence
        assert numbers(consumer) == list(range(COUNT))


def test_a_range_is_given_up_when_nothing_helps() -> None:
    with played(pull_retries=2) as (queue, cluster, consumer):
        queue.failures.update(dict.fromkeys(range(1, 1000), lose))
        reader = consumer.read_range(QUEUE, 0, COUNT)
        assert [int(next(reader).body) for _ in range(32)] == list(range(32))
        with pytest.raises(ConnectionLostError):
            next(reader)
        queue.failures.clear()
        assert cluster["a"].peer is not None
        cluster["a"].peer.close()
        with pytest.raises(ConnectFailedError):
            numbers(consumer)


def test_a_busy_broker_is_asked_ever_more_seldom_and_given_up_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(Connections, "sleep", lambda _self, seconds: pauses.append(seconds))
    with played(pull_pause_s=0.1, pull_retries=2) as (queue, _, consumer):
        queue.failures.update(dict.fromkeys((*range(1, 5), *range(6, 50)), overloaded))
        reader = consumer.read_raw(QUEUE, 0, COUNT)
        assert [next(reader).offset for _ in range(2)] == [0, 32]
        grown = [0.02, 0.04, 0.08]
        assert pauses == [*grown, 0.1], "shorter ones do not count as retries"
        pauses.clear()
        with pytest.raises(ResponseError, match="TIMEOUT_CLEAN_QUEUE"):
            next(reader)
        assert pauses == [*grown, 0.1, 0.1]
        assert queue.pulls.count(64) == 6


def test_a_range_that_takes_long_keeps_its_route(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Routes that nobody uses are forgotten after a minute; this one is used."""
    later_s = 0.0
    for module in (client, routes_module):
        monkeypatch.setattr(module, "_monotonic", lambda: time.monotonic() + later_s)
    with played(pull_retries=0, pull_messages_max=1) as (queue, cluster, consumer):
        found = []
        for message in consumer.read_range(QUEUE, 0, 40):
            found.append(int(message.body))
            # The reader of these messages takes its time.
            later_s += 100.0
        assert found == list(range(40))
        assert queue.pulls == list(range(40)), "nothing was pulled in vain"
        assert cluster.asked > 2, "and the route is kept fresh"
    assert not caplog.records


@pytest.mark.parametrize(
    ("failing", "error"),
    [(refuse, ResponseError), (no_messages, BadAnswerError), (no_places, BadAnswerError),
     (bad_records, BadAnswerError), (standing, BadAnswerError)],
    ids=lambda each: each.__name__,
)  # fmt: skip
def test_an_answer_that_makes_no_sense_is_a_typed_error(
    failing: Play, error: type[ClientError]
) -> None:
    with played() as (queue, _, consumer):
        queue.failures.update(dict.fromkeys(range(2, 50), failing))
        reader = consumer.read_range(QUEUE, 0, COUNT)
        assert [int(next(reader).body) for _ in range(64)] == list(range(64))
        with pytest.raises(error):
            next(reader)
        queue.failures.clear()
        assert numbers(consumer, 64, 70) == list(range(64, 70))


def test_what_is_sound_before_a_bad_record_is_handed_out() -> None:
    with played() as (queue, _, consumer):
        queue.failures[2] = cut_record
        assert numbers(consumer) == list(range(COUNT))


def test_a_broker_that_gives_out_other_numbers_of_messages_is_read_in_order() -> None:
    def few(link: Link, request: Command) -> None:
        start = request.header(PullMessageRequest).queue_offset
        end = min(COUNT, start + 1 + len(queue.pulls) % 5)
        link.answer(request, header=places(end), body=b"".join(map(record, range(start, end))))

    with played() as (queue, _, consumer):
        queue.failures.update(dict.fromkeys(range(1000), few))
        assert numbers(consumer) == list(range(COUNT))
        # Next to nothing was pulled in vain.
        assert len(queue.pulls) < 1.2 * len(set(queue.pulls))


def lags(link: Link, request: Command) -> None:
    link.answer(request, code=ResponseCode.PULL_OFFSET_MOVED, header=places(0))


def has_moved(link: Link, request: Command) -> None:
    """Answer like a slave that does not check offsets (offsetCheckInSlave)."""
    start = request.header(PullMessageRequest).queue_offset
    link.answer(request, code=ResponseCode.PULL_RETRY_IMMEDIATELY, header=places(start))


def has_no_topic(link: Link, request: Command) -> None:
    """Answer like a slave that has not heard of a new topic yet."""
    link.answer(request, code=ResponseCode.TOPIC_NOT_EXIST, remark="topic[Scripted] not exist")


@pytest.mark.parametrize("lagging", [lags, has_moved, has_no_topic], ids=lambda play: play.__name__)
def test_a_slave_is_read_when_the_master_says_so_and_left_when_it_lags(lagging: Play) -> None:
    with scripted_cluster("a", "slave") as cluster:
        master, slave = Queue(), Queue()
        cluster["a"].play, cluster["slave"].play = master.play, slave.play

        def to_slave(link: Link, request: Command) -> None:
            start = request.header(PullMessageRequest).queue_offset
            body = b"".join(map(record, range(start, start + 32)))
            link.answer(request, header=places(start + 32, broker_id=1), body=body)

        def stays(link: Link, request: Command) -> None:
            start = request.header(PullMessageRequest).queue_offset
            body = b"".join(map(record, range(start, start + 10)))
            link.answer(request, header=places(start + 10, broker_id=1), body=body)

        master.failures[0] = to_slave
        slave.failures.update({0: stays, 1: stays, **dict.fromkeys(range(2, 20), lagging)})
        route = cluster.route()
        both = TopicRouteData(
            queue_datas=route.queue_datas[:1],
            broker_datas=(
                type(route.broker_datas[0])(
                    cluster="c",
                    broker_name="a",
                    broker_addrs={0: cluster["a"].address, 1: cluster["slave"].address},
                ),
            ),
        )
        cluster.route = lambda: both  # type: ignore[method-assign]
        with BlockingConsumer(cluster.nameserver, "g", pull_pause_s=0.01) as consumer:
            assert numbers(consumer) == list(range(COUNT))
            assert slave.pulls
            # A master that does not have it either is the last word.
            with pytest.raises(OffsetOutOfRangeError):
                numbers(consumer, COUNT, COUNT + 1)


# --- polls -------------------------------------------------------------------------------------


def poll_numbers(consumer: BlockingConsumer, count: int) -> list[int]:
    deadline = time.monotonic() + 20.0
    found: list[int] = []
    while len(found) < count:
        assert time.monotonic() < deadline
        found += [int(message.body) for message in consumer.poll(5.0)]
    return found


@pytest.mark.parametrize(
    "failing",
    [lose, garbage, busy, refuse, no_messages, bad_records, standing],
    ids=lambda play: play.__name__,
)
def test_polling_goes_on_after_a_failure(failing: Play) -> None:
    with played(commits_itself=False) as (queue, _, consumer):
        for number in (0, 2, 5):
            queue.failures[number] = failing
        consumer.assign([QUEUE])
        assert poll_numbers(consumer, COUNT) == list(range(COUNT))


def test_a_poll_that_found_nothing_because_nothing_can_be_read_says_so() -> None:
    with played(commits_itself=False) as (queue, _, consumer):
        queue.failures.update(dict.fromkeys(range(1000), refuse))
        consumer.assign([QUEUE])
        with pytest.raises(ResponseError) as caught:
            consumer.poll(0.1)
        assert caught.value.code == ResponseCode.NO_PERMISSION
        queue.failures.clear()
        assert poll_numbers(consumer, COUNT) == list(range(COUNT))


def test_a_broker_that_answers_pulls_at_once_is_not_asked_in_a_tight_loop() -> None:
    with played(commits_itself=False) as (queue, _, consumer):
        consumer.assign([QUEUE])
        consumer.seek(QUEUE, COUNT)
        assert consumer.poll(0.3) == []
        assert 1 <= len(queue.pulls) <= 10


def test_a_topic_without_a_route_does_not_keep_others_from_being_committed() -> None:
    committed: list[int] = []

    def take(link: Link, request: Command) -> None:
        committed.append(request.header(UpdateConsumerOffsetRequest).commit_offset)
        link.answer(request)

    with played() as (_, cluster, consumer):
        cluster["a"].play = take
        gone = MessageQueue(topic="Gone", broker_name="a", queue_id=0)
        with pytest.raises(BrokersFailedError, match="topic Gone: no broker has it") as caught:
            consumer.commit({gone: 7, QUEUE: 5})
        assert caught.value.done == ("Scripted a 0",)
        assert committed == [5]


def test_commits_that_fail_are_told() -> None:
    with played() as (_, _, consumer):
        consumer.assign([QUEUE])
        assert poll_numbers(consumer, COUNT)
        with pytest.raises(BrokersFailedError, match="not today") as caught:
            consumer.commit()
        assert caught.value.done == ()


def test_a_broker_that_says_nothing_takes_no_longer_than_its_time() -> None:
    with played() as (_, cluster, consumer):
        cluster["a"].play = silence
        consumer.client.runner.timeout_s = 0.05
        with pytest.raises(RequestTimeoutError):
            consumer.end_offset(QUEUE)


# --- real brokers ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with process_cluster(tmp_path_factory.mktemp("pair"), ("broker-a", "broker-b")) as it:
        yield it


def all_bodies(pair: ProcessCluster, topic: str) -> set[bytes]:
    with BlockingConsumer(pair.nameserver, "readers") as consumer:
        queues = consumer.queues(topic)
        return {
            message.body
            for queue, end in consumer.end_offsets(queues).items()
            for message in consumer.read_range(queue, 0, end)
        }


def test_no_acknowledged_message_is_lost_when_a_broker_is_killed_under_load(
    pair: ProcessCluster,
) -> None:
    for name in ("broker-a", "broker-b"):
        pair.create_topic("Outage", broker=name)
    messages = (Message("Outage", b"%d" % number) for number in range(6000))
    acknowledged: list[bytes] = []
    failed: list[RmqError] = []
    with BlockingProducer(pair.nameserver, "g", retries=4) as producer:
        for number, outcome in enumerate(producer.send_stream(messages, in_flight=200)):
            if isinstance(outcome, SendResult):
                acknowledged.append(b"%d" % number)
            else:
                failed.append(outcome)
            if number == 1500:
                pair.kill("broker-b")
            elif number == 4500:
                pair.start("broker-b")
    assert not failed
    assert len(acknowledged) == 6000
    assert all_bodies(pair, "Outage") >= set(acknowledged)


def test_polling_and_reading_go_on_when_a_broker_was_away(pair: ProcessCluster) -> None:
    pair.create_topic("Away", queues=1)
    with BlockingProducer(pair.nameserver, "g") as producer:
        producer.send_many([Message("Away", b"%d" % number) for number in range(1000)])
    with BlockingConsumer(
        pair.nameserver, "g", consume_from=ConsumeFrom.FIRST, pull_pause_s=0.05, pull_retries=1000
    ) as consumer:
        (queue,) = consumer.queues("Away")
        consumer.assign([queue])
        polled = [int(message.body) for message in consumer.poll(10.0, 10)]
        reader = consumer.read_range(queue, 0, 1000)
        read = [int(next(reader).body)]
        pair.kill("broker-a")
        starting = threading.Thread(target=pair.start, args=("broker-a",))
        starting.start()
        try:
            read += [int(message.body) for message in reader]
            polled += poll_numbers(consumer, 990)
        finally:
            starting.join()
    assert read == list(range(1000))
    assert polled == list(range(1000))
