"""Sends that fail on the way: on which broker they are tried again, and what is said in the end."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

from rmq.client.blocking import BlockingProducer
from rmq.client.core.messages import Message, SendResult, SendStatus
from rmq.client.core.producing.outbound import OutboundMessage
from rmq.errors import (
    ClientClosedError,
    ConnectFailedError,
    ConnectionLostError,
    IllegalMessageError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    RmqError,
    SendFailedError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import TopicRouteData
from rmq.remoting.bodies.batch import BatchMessage, decode_batch, encode_batch
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.header import Header
from rmq.remoting.headers import SendMessageRequestV2
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from rmq.client.core.producing.config import ProducerOptions
    from rmq.remoting.command import Command
    from tests.client.blocking.scripted_cluster import Play, ScriptedCluster
    from tests.client.blocking.scripted_peer import Link

MESSAGE = Message(TOPIC, b"body")

READY = OutboundMessage(
    topic=TOPIC,
    message_id="0" * 32,
    properties="WAIT\x01true",
    body=encode_batch([BatchMessage(0, b"first", b""), BatchMessage(7, b"second", b"a\x01b")]),
    code=RequestCode.SEND_BATCH_MESSAGE,
    is_batch=True,
)


def send_ready(producer: BlockingProducer, queue: MessageQueue | None = None) -> SendResult:
    """Send a batch that was encoded before, and wait for it."""
    send = producer.begin(READY, queue=queue)
    while send.outcome is None:
        producer.step()
    if isinstance(send.outcome, RmqError):
        raise send.outcome
    return send.outcome


SEND: dict[str, Callable[[BlockingProducer], SendResult]] = {
    "alone": lambda producer: producer.send(MESSAGE),
    "pipelined": lambda producer: producer.send_many([MESSAGE])[0],
    "ready made": send_ready,
}
either_way = pytest.mark.parametrize("send", SEND.values(), ids=SEND)
"""What `send` retries is retried in a pipeline, too."""
ready_made = pytest.mark.parametrize("send", [send_ready], ids=["ready made"])
"""The contract has the same case for the other ways to send, with both clients."""


@contextmanager
def open_producer(
    cluster: ScriptedCluster, **options: Unpack[ProducerOptions]
) -> Iterator[BlockingProducer]:
    with BlockingProducer(cluster.nameserver, "g", **options) as producer:
        yield producer


def lose(link: Link, request: Command) -> None:
    link.close()


def garbage(link: Link, request: Command) -> None:
    link.send(b"\xff" * 20)


def silence(link: Link, request: Command) -> None:
    pass


def no_header(link: Link, request: Command) -> None:
    link.answer(request)


@ready_made
@pytest.mark.parametrize("failing", [lose, garbage, no_header], ids=lambda play: play.__name__)
def test_a_broker_that_fails_is_passed_over(
    send: Callable[[BlockingProducer], SendResult], failing: Play
) -> None:
    with scripted_cluster("a", "b") as cluster, open_producer(cluster) as producer:
        cluster["a"].play = failing
        for _ in range(6):
            assert send(producer).queue.broker_name == "b"
        assert len(cluster["b"].stored) == 6


@ready_made
@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
    ],
)
def test_a_no_that_another_broker_may_not_say_is_not_the_last_word(
    send: Callable[[BlockingProducer], SendResult], code: ResponseCode
) -> None:
    with scripted_cluster("a", "b") as cluster, open_producer(cluster) as producer:
        cluster["a"].play = cluster["a"].refuse(code)
        for _ in range(4):
            assert send(producer).queue.broker_name == "b"


@ready_made
def test_a_no_that_every_broker_would_say_is_the_last_word(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with scripted_cluster("a", "b") as cluster, open_producer(cluster) as producer:
        for broker in cluster.brokers.values():
            broker.play = broker.refuse(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(SendFailedError, match="stored nowhere") as caught:
            send(producer)
        ((_, error),) = caught.value.attempts
        assert isinstance(error, ResponseError)
        assert error.code == ResponseCode.MESSAGE_ILLEGAL
        assert not caught.value.may_be_stored


@ready_made
def test_every_attempt_is_named_when_all_fail(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with scripted_cluster("a", "b") as cluster, open_producer(cluster) as producer:
        cluster["a"].play = cluster["b"].play = lose
        with pytest.raises(SendFailedError, match="3 attempts, it may be stored") as caught:
            send(producer)
        names = [name for name, _ in caught.value.attempts]
        assert sorted(names[:2]) == ["a", "b"]
        assert {type(error) for _, error in caught.value.attempts} == {ConnectionLostError}
        assert caught.value.may_be_stored


@ready_made
def test_retries_can_be_switched_off(send: Callable[[BlockingProducer], SendResult]) -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster, retries=0) as producer:
        cluster["a"].play = lose
        with pytest.raises(SendFailedError, match="1 attempt,"):
            send(producer)


@ready_made
def test_a_broker_that_says_nothing_takes_no_longer_than_the_timeout(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster, send_timeout_s=0.1) as producer:
        cluster["a"].play = silence
        with pytest.raises(SendFailedError) as caught:
            send(producer)
        assert isinstance(caught.value.attempts[0][1], RequestTimeoutError)
        assert caught.value.may_be_stored
        cluster["a"].play = cluster["a"].store
        assert send(producer).is_ok


@either_way
def test_a_broker_that_moved_is_found_again(send: Callable[[BlockingProducer], SendResult]) -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        with socket.create_server(("127.0.0.1", 0)) as server:
            cluster.addresses["a"] = f"127.0.0.1:{server.getsockname()[1]}"
        producer.route(TOPIC)
        cluster.addresses.clear()
        assert send(producer).is_ok
        assert cluster.asked == 2


@either_way
def test_a_route_without_a_master_is_an_attempt_that_failed(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        with socket.create_server(("127.0.0.1", 0)) as server:
            cluster.addresses["a"] = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SendFailedError, match="stored nowhere") as caught:
            send(producer)
        assert {type(error) for _, error in caught.value.attempts} == {ConnectFailedError}


@either_way
def test_a_queue_whose_broker_is_away_is_passed_over(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        # An ordered topic keeps its queues while a broker is away.
        known = cluster.route()
        ordered = TopicRouteData(
            order_topic_conf="a:2;gone:2",
            queue_datas=known.queue_datas,
            broker_datas=known.broker_datas,
        )
        cluster.route = lambda: ordered  # type: ignore[method-assign]
        for _ in range(4):
            assert send(producer).queue.broker_name == "a"


# --- waiting for a master ----------------------------------------------------------------------

QUEUE = MessageQueue(topic=TOPIC, broker_name="a", queue_id=1)
TO_A_NAME: dict[str, Callable[[BlockingProducer], SendResult]] = {
    "ready made": send_ready,
    "ready made, to a queue": lambda producer: send_ready(producer, QUEUE),
}
"""The contract has the same cases for the other ways to send, with both clients."""
ready_made_to_a_name = pytest.mark.parametrize("send", TO_A_NAME.values(), ids=TO_A_NAME)


@ready_made_to_a_name
def test_a_broker_that_is_no_master_any_longer_is_waited_for(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    refusals = 0

    def refuse_some_times(link: Link, request: Command) -> None:
        nonlocal refusals
        if refusals == 3:
            cluster["a"].store(link, request)
            return
        refusals += 1
        link.answer(request, code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="a slave")

    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        cluster["a"].play = refuse_some_times
        assert send(producer).is_ok
        assert cluster.asked == 1 + 3, "its route is asked for each time"


class Names(Header, frozen=True, kw_only=True):
    """What a broker adds to a refusal if it knows the master."""

    master_addr: str


def naming(address: str) -> Play:
    """Return a play that refuses a message and names the master."""

    def play(link: Link, request: Command) -> None:
        link.answer(
            request, code=ResponseCode.SERVICE_NOT_AVAILABLE, header=Names(master_addr=address)
        )

    return play


@ready_made_to_a_name
def test_a_master_that_a_former_one_names_is_tried_if_its_address_is_known(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with scripted_cluster("a", "promoted") as cluster, open_producer(cluster) as producer:
        cluster.routed, cluster.slave_of = ("a",), {"a": "promoted"}
        cluster["a"].play = naming(cluster["promoted"].address)
        for count in (1, 2):
            assert send(producer).is_ok
            assert len(cluster["promoted"].stored) == count
        # One that is none, too, is left for the one that is listed.
        cluster["promoted"].play = cluster["promoted"].refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
        cluster["a"].play = cluster["a"].store
        assert send(producer).is_ok
        assert (len(cluster["a"].stored), len(cluster["promoted"].stored)) == (1, 2)


@ready_made_to_a_name
def test_an_address_that_no_nameserver_has_told_is_not_dialled(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with scripted_cluster("a", "stranger") as cluster, open_producer(cluster) as producer:
        cluster.routed = ("a",)

        def name_it(link: Link, request: Command) -> None:
            naming(cluster["stranger"].address)(link, request)
            cluster["a"].play = cluster["a"].store

        cluster["a"].play = name_it
        assert send(producer).is_ok
        assert (len(cluster["a"].stored), cluster["stranger"].stored) == (1, [])


@ready_made_to_a_name
def test_a_promoted_slave_is_found_and_no_slave_is_sent_anything(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    def promote_soon() -> None:
        if cluster.asked == 4:
            cluster.slaves = frozenset()

    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        cluster.slaves, cluster.on_asked = frozenset({"a"}), promote_soon
        assert send(producer).is_ok
        assert len(cluster["a"].stored) == 1


@either_way
def test_a_send_in_flight_when_the_master_is_gone_waits_for_the_next_one(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    def die(link: Link, request: Command) -> None:
        cluster.slaves, cluster.asked = frozenset({"a"}), 0
        cluster["a"].play = cluster["a"].store
        link.close()

    def promote_soon() -> None:
        if cluster.asked == 4:
            cluster.slaves = frozenset()

    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        assert send(producer).is_ok
        cluster["a"].play, cluster.on_asked = die, promote_soon
        assert send(producer).is_ok
        assert len(cluster["a"].stored) == 2


@ready_made_to_a_name
def test_a_name_that_gets_no_master_in_time_fails_the_send(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster, send_timeout_s=0.3) as producer:
        producer.route(TOPIC)
        cluster["a"].play = cluster["a"].refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
        started = time.monotonic()
        with pytest.raises(SendFailedError, match="1 attempt, it is stored nowhere"):
            send(producer)
        cluster.slaves = frozenset({"a"})
        producer.client.refresh_route(TOPIC)
        with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
            send(producer)
        assert 0.5 < time.monotonic() - started < 5
        cluster.slaves = frozenset()
        cluster["a"].play = cluster["a"].store
        assert send(producer).is_ok


def test_a_message_that_no_frame_can_carry_is_refused() -> None:
    options: ProducerOptions = {"message_bytes_max": 2**30, "compress_above": 2**30}
    large = Message(TOPIC, b"x" * (17 * 1024**2))
    with scripted_cluster("a") as cluster, open_producer(cluster, **options) as producer:
        with pytest.raises(IllegalMessageError, match="over the limit"):
            producer.send(large)
        with pytest.raises(IllegalMessageError, match="over the limit"):
            producer.send_many([large])
        assert producer.send(MESSAGE).is_ok


@either_way
def test_a_message_that_is_not_flushed_in_time_is_stored(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    def slow_disk(link: Link, request: Command) -> None:
        cluster["a"].store(link, request, ResponseCode.FLUSH_DISK_TIMEOUT)

    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        cluster["a"].play = slow_disk
        assert send(producer).status is SendStatus.FLUSH_DISK_TIMEOUT


@either_way
def test_on_demand_it_is_sent_again_to_another_broker(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    def no_slave(link: Link, request: Command) -> None:
        cluster["a"].store(link, request, ResponseCode.SLAVE_NOT_AVAILABLE)

    with (
        scripted_cluster("a", "b") as cluster,
        open_producer(cluster, retries_when_not_ok=True) as producer,
    ):
        cluster["a"].play = no_slave
        for _ in range(4):
            result = send(producer)
            assert (result.status, result.queue.broker_name) == (SendStatus.OK, "b")
        cluster["b"].play = lose
        assert send(producer).status is SendStatus.SLAVE_NOT_AVAILABLE


@either_way
def test_a_broker_that_failed_is_left_alone_if_that_is_wanted(
    send: Callable[[BlockingProducer], SendResult],
) -> None:
    with (
        scripted_cluster("a", "b") as cluster,
        open_producer(cluster, avoids_slow_brokers=True) as producer,
    ):
        cluster["a"].play = lose
        for _ in range(20):
            assert send(producer).queue.broker_name == "b"
        assert cluster["a"].peer is not None
        assert cluster["a"].peer.accepted <= 2


def test_messages_under_way_are_bounded() -> None:
    held: list[tuple[Link, Command]] = []
    most = 0

    def hold(link: Link, request: Command) -> None:
        nonlocal most
        held.append((link, request))
        most = max(most, len(held))
        if len(held) == 7:
            for each in held:
                cluster["a"].store(*each)
            held.clear()

    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        cluster["a"].play = hold
        assert len(producer.send_many([MESSAGE] * 70, in_flight=7)) == 70
        assert most == 7


def test_bodies_under_way_are_bounded() -> None:
    seen: list[int] = []

    def note(link: Link, request: Command) -> None:
        seen.append(made - len(seen))
        cluster["a"].store(link, request)

    made = 0

    def messages() -> Iterator[Message]:
        nonlocal made
        for _ in range(40):
            made += 1
            yield Message(TOPIC, b"x" * 1000)

    with (
        scripted_cluster("a") as cluster,
        open_producer(cluster, pending_bytes_max=4000) as producer,
    ):
        cluster["a"].play = note
        assert len(producer.send_many(messages(), in_flight=100)) == 40
        assert max(seen) <= 4


def test_one_failure_stops_a_run_of_messages_after_those_under_way() -> None:
    def picky(link: Link, request: Command) -> None:
        if request.body == b"7":
            link.answer(request, code=ResponseCode.MESSAGE_ILLEGAL)
        else:
            cluster["a"].store(link, request)

    messages = [Message(TOPIC, b"%d" % number) for number in range(100)]
    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        cluster["a"].play = picky
        with pytest.raises(SendFailedError):
            producer.send_many(messages, in_flight=5)
        assert 7 <= len(cluster["a"].stored) < 20
        outcomes = list(producer.send_stream(messages, in_flight=5))
        failed = [number for number, each in enumerate(outcomes) if isinstance(each, RmqError)]
        assert failed == [7]


def test_a_producer_that_is_closed_in_the_middle_of_a_stream_ends_it() -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        stream = producer.send_stream([MESSAGE] * 1000, in_flight=10)
        next(stream)
        producer.close()
        with pytest.raises(ClientClosedError):
            list(stream)


# --- what is encoded already -----------------------------------------------------------------


def test_a_batch_that_is_ready_is_sent_as_it_is() -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        result = send_ready(producer)
        assert (result.message_id, result.queue.topic) == (READY.message_id, TOPIC)
        assert [message.body for message in decode_batch(cluster["a"].stored[0])] == [
            b"first",
            b"second",
        ]
        assert cluster["a"].peer is not None
        (request,) = (
            each
            for each in cluster["a"].peer.requests
            if each.code == RequestCode.SEND_BATCH_MESSAGE
        )
        header = request.header(SendMessageRequestV2)
        assert (header.batch, header.properties) == (True, READY.properties)


def test_many_that_are_ready_are_under_way_at_once() -> None:
    held: list[tuple[Link, Command]] = []

    def hold(link: Link, request: Command) -> None:
        held.append((link, request))
        if len(held) == 5:
            for each in reversed(held):
                cluster["a"].store(*each)

    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        cluster["a"].play = hold
        sends = [producer.begin(READY) for _ in range(5)]
        while any(send.outcome is None for send in sends):
            producer.step()
        queues = set()
        for send in sends:
            assert isinstance(send.outcome, SendResult)
            queues.add(send.outcome.queue.queue_id)
        assert queues == {0, 1}


def test_a_chosen_queue_is_tried_once_and_its_broker_looked_for() -> None:
    queue = MessageQueue(topic=TOPIC, broker_name="a", queue_id=1)
    with scripted_cluster("a", "b") as cluster, open_producer(cluster) as producer:
        with socket.create_server(("127.0.0.1", 0)) as server:
            cluster.addresses["a"] = f"127.0.0.1:{server.getsockname()[1]}"
        producer.route(TOPIC)
        cluster.addresses.clear()
        with pytest.raises(SendFailedError, match="1 attempt,"):
            send_ready(producer, queue)
        while cluster.asked < 2:
            producer.step(time.monotonic() + 0.01)
        producer.step(time.monotonic() + 0.05)
        assert send_ready(producer, queue).queue == queue
        assert not cluster["b"].stored


def test_a_send_that_has_failed_for_good_has_its_broker_looked_for() -> None:
    """Whoever offers the message again finds the broker where it is then."""
    with scripted_cluster("a") as cluster, open_producer(cluster, retries=0) as producer:
        with socket.create_server(("127.0.0.1", 0)) as server:
            cluster.addresses["a"] = f"127.0.0.1:{server.getsockname()[1]}"
        producer.route(TOPIC)
        cluster.addresses.clear()
        with pytest.raises(SendFailedError, match="1 attempt,"):
            send_ready(producer)
        assert producer.client.keeping._refreshing, "nobody asks where the broker is"
        while producer.client.keeping._refreshing:
            producer.step(time.monotonic() + 0.01)
        assert send_ready(producer).is_ok


def test_a_step_ends_in_time_when_nothing_is_under_way() -> None:
    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        producer.step(time.monotonic())
        send_ready(producer)
        producer.step(time.monotonic())
    with pytest.raises(ClientClosedError):
        producer.step(time.monotonic())
    with pytest.raises(ClientClosedError):
        producer.begin(READY)


def test_what_is_ready_for_an_unknown_topic_says_so() -> None:
    other = msgspec.structs.replace(READY, topic="Unknown")
    with scripted_cluster("a") as cluster, open_producer(cluster) as producer:
        assert isinstance(producer.begin(other).outcome, NoRouteError)
