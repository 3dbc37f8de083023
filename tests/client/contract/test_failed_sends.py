"""Sends that fail on the way: when and where they are tried again, with both clients."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from rmq.client.core.busy import is_busy
from rmq.client.core.messages import Message
from rmq.client.core.producing.delivery import BatchFailedError
from rmq.errors import (
    BadAnswerError,
    ConnectFailedError,
    ConnectionLostError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.batch import decode_batch
from rmq.remoting.codes import ResponseCode
from rmq.remoting.header import Header
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.messages import SendResult
    from rmq.remoting.command import Command
    from tests.client.blocking.scripted_cluster import Play
    from tests.client.blocking.scripted_peer import Link
    from tests.client.contract.sides import ProducerSide, Side

    Send = Callable[[ProducerSide], SendResult]

MESSAGE = Message(TOPIC, b"body")
QUEUE = MessageQueue(topic=TOPIC, broker_name="a", queue_id=1)

ANY_QUEUE: dict[str, Send] = {
    "single": lambda producer: producer.send(MESSAGE),
    "many": lambda producer: producer.send_many([MESSAGE])[0],
    "batch": lambda producer: producer.send_batch([MESSAGE, MESSAGE])[0],
}
ONE_QUEUE: dict[str, Send] = {
    "queue": lambda producer: producer.send(MESSAGE, queue=QUEUE),
    "ordered": lambda producer: producer.send_ordered(MESSAGE, "key"),
}
to_any_queue = pytest.mark.parametrize("send", ANY_QUEUE.values(), ids=ANY_QUEUE)
to_one_queue = pytest.mark.parametrize("send", ONE_QUEUE.values(), ids=ONE_QUEUE)
EVERY_WAY = ANY_QUEUE | ONE_QUEUE
every_way = pytest.mark.parametrize("send", EVERY_WAY.values(), ids=EVERY_WAY)


def at_once(case: Callable[[Send], None]) -> None:
    """Run a case that waits for a timeout with every way to send, in a thread each."""
    with ThreadPoolExecutor(len(EVERY_WAY)) as threads:
        cases = {name: threads.submit(case, send) for name, send in EVERY_WAY.items()}
    errors = {name: error for name, ended in cases.items() if (error := ended.exception())}
    for name, error in errors.items():
        error.add_note(f"with the way to send called {name}")
    if errors:
        raise BaseExceptionGroup("with some ways to send", list(errors.values()))


def lose(link: Link, request: Command) -> None:
    link.close()


def garbage(link: Link, request: Command) -> None:
    link.send(b"\xff" * 20)


def no_header(link: Link, request: Command) -> None:
    link.answer(request)


def silence(link: Link, request: Command) -> None:
    pass


# --- another broker ------------------------------------------------------------------------------


@to_any_queue
@pytest.mark.parametrize("failing", [lose, garbage, no_header], ids=lambda play: play.__name__)
def test_a_broker_that_fails_is_passed_over(side: Side, send: Send, failing: Play) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        cluster["a"].play = failing
        for _ in range(4):
            assert send(producer).queue.broker_name == "b"


@to_any_queue
def test_a_broker_that_cannot_be_reached_is_passed_over(side: Side, send: Send) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        cluster.addresses["a"] = closed
        for _ in range(4):
            assert send(producer).queue.broker_name == "b"


@to_any_queue
@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    ],
)
def test_a_refusal_that_another_broker_may_not_share_is_retried(
    side: Side, send: Send, code: ResponseCode
) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        cluster["a"].play = cluster["a"].refuse(code)
        for _ in range(2):
            assert send(producer).queue.broker_name == "b"


@to_any_queue
@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL + 999])
def test_a_refusal_that_every_broker_shares_is_not_retried(
    side: Side, send: Send, code: int
) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        for broker in cluster.brokers.values():
            broker.play = lambda link, request: link.answer(request, code=code, remark="no")
        with pytest.raises(SendFailedError, match="stored nowhere") as caught:
            send(producer)
    ((_, error),) = caught.value.attempts
    assert isinstance(error, ResponseError)
    assert (error.code, error.remark) == (code, "no")


@to_any_queue
@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL])
def test_a_busy_broker_is_told_of_at_once(side: Side, send: Send, code: ResponseCode) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        for broker in cluster.brokers.values():
            broker.play = broker.refuse(code)
        with pytest.raises(SendFailedError) as caught:
            send(producer)
    assert len(caught.value.attempts) == 1
    assert is_busy(caught.value)


@to_any_queue
def test_all_attempts_are_named_when_all_fail(side: Side, send: Send) -> None:
    with scripted_cluster("a", "b") as cluster, side.producer(cluster.nameserver) as producer:
        cluster["a"].play = cluster["a"].refuse(ResponseCode.SYSTEM_ERROR)
        cluster["b"].play = lose
        with pytest.raises(SendFailedError) as caught:
            send(producer)
    attempts = caught.value.attempts
    assert [name for name, _ in attempts] in (["a", "b", "a"], ["b", "a", "b"])
    kinds = {"a": ResponseError, "b": ConnectionLostError}
    assert all(isinstance(error, kinds[name]) for name, error in attempts)
    assert caught.value.may_be_stored


@to_any_queue
@pytest.mark.parametrize("retries", [0, 1])
def test_there_are_as_many_retries_as_are_configured(side: Side, send: Send, retries: int) -> None:
    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, retries=retries) as producer,
    ):
        cluster["a"].play = cluster["a"].refuse(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(SendFailedError) as caught:
            send(producer)
    assert len(caught.value.attempts) == 1 + retries
    assert not caught.value.may_be_stored


@to_one_queue
def test_to_one_queue_there_is_one_attempt(side: Side, send: Send) -> None:
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        cluster["a"].play = cluster["a"].refuse(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(SendFailedError) as caught:
            send(producer)
    assert len(caught.value.attempts) == 1


@to_any_queue
def test_an_answer_without_a_header_leaves_it_in_doubt(side: Side, send: Send) -> None:
    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, retries=0) as producer,
    ):
        cluster["a"].play = no_header
        with pytest.raises(SendFailedError) as caught:
            send(producer)
    ((_, error),) = caught.value.attempts
    assert isinstance(error, BadAnswerError)
    assert caught.value.may_be_stored


@to_any_queue
def test_on_demand_a_broker_that_failed_is_left_alone(side: Side, send: Send) -> None:
    with (
        scripted_cluster("a", "b") as cluster,
        side.producer(cluster.nameserver, avoids_slow_brokers=True) as producer,
    ):
        cluster["a"].play = cluster["a"].refuse(ResponseCode.SYSTEM_ERROR)
        for _ in range(8):
            assert send(producer).queue.broker_name == "b"
        peer = cluster["a"].peer
        assert peer is not None
        assert len([each for each in peer.requests if each.code in (310, 320)]) <= 1


# --- time ----------------------------------------------------------------------------------------


def test_a_silent_broker_takes_no_longer_than_the_timeout(side: Side) -> None:
    at_once(partial(silent_broker, side))


def silent_broker(side: Side, send: Send) -> None:
    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, send_timeout_s=0.5) as producer,
    ):
        producer.refresh_route(TOPIC)
        producer.beat()
        cluster["a"].play = silence
        started = time.monotonic()
        with pytest.raises(SendFailedError) as caught:
            send(producer)
        assert 0.4 < time.monotonic() - started < 5
    ((_, error),) = caught.value.attempts
    assert isinstance(error, RequestTimeoutError)
    assert caught.value.may_be_stored


@every_way
def test_a_topic_that_no_nameserver_knows_has_no_route(side: Side, send: Send) -> None:
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        cluster.routed = ()
        with pytest.raises(NoRouteError):
            send(producer)


@every_way
def test_without_a_nameserver_nothing_is_sent(side: Side, send: Send) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
    with side.producer(closed) as producer, pytest.raises(NoNameserverError):
        send(producer)


# --- masters that change -------------------------------------------------------------------------


@every_way
def test_a_former_master_is_waited_for(side: Side, send: Send) -> None:
    refusals = 0

    def refuse_some_times(link: Link, request: Command) -> None:
        nonlocal refusals
        if refusals == 3:
            cluster["a"].store(link, request)
            return
        refusals += 1
        link.answer(request, code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="a slave")

    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        cluster["a"].play = refuse_some_times
        assert send(producer).is_ok
        assert refusals == 3


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


@every_way
def test_a_master_that_a_former_one_names_is_tried(side: Side, send: Send) -> None:
    with (
        scripted_cluster("a", "promoted") as cluster,
        side.producer(cluster.nameserver) as producer,
    ):
        cluster.routed, cluster.slave_of = ("a",), {"a": "promoted"}
        cluster["a"].play = naming(cluster["promoted"].address)
        for count in (1, 2):
            assert send(producer).is_ok
            assert len(cluster["promoted"].stored) == count


@every_way
def test_an_address_that_no_nameserver_has_told_is_not_dialled(side: Side, send: Send) -> None:
    def name_it(link: Link, request: Command) -> None:
        naming(cluster["stranger"].address)(link, request)
        cluster["a"].play = cluster["a"].store

    with (
        scripted_cluster("a", "stranger") as cluster,
        side.producer(cluster.nameserver) as producer,
    ):
        cluster.routed = ("a",)
        cluster["a"].play = name_it
        assert send(producer).is_ok
        assert (len(cluster["a"].stored), cluster["stranger"].stored) == (1, [])


@every_way
def test_a_promoted_slave_is_found(side: Side, send: Send) -> None:
    def promote_soon() -> None:
        if cluster.asked == 4:
            cluster.slaves = frozenset()

    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        cluster.slaves, cluster.on_asked = frozenset({"a"}), promote_soon
        assert send(producer).is_ok
        assert len(cluster["a"].stored) == 1


def test_a_name_without_a_master_fails_in_time(side: Side) -> None:
    at_once(partial(name_without_a_master, side))


def name_without_a_master(side: Side, send: Send) -> None:
    # The time is over at the end of the pause from 0.75 to 1.25 s, no attempt is cut off.
    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, send_timeout_s=1.2) as producer,
    ):
        assert producer.send(MESSAGE).is_ok
        cluster["a"].play = cluster["a"].refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
        with pytest.raises(SendFailedError, match="1 attempt, it is stored nowhere"):
            send(producer)
        cluster.slaves = frozenset({"a"})
        producer.refresh_route(TOPIC)
        with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
            send(producer)
        cluster.slaves = frozenset()
        cluster["a"].play = cluster["a"].store
        assert send(producer).is_ok


def test_a_route_without_a_master_is_asked_for_with_pauses_until_the_time_is_over(
    side: Side,
) -> None:
    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, send_timeout_s=1.0) as producer,
    ):
        cluster.slaves = frozenset({"a"})
        started = time.monotonic()
        with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
            producer.send_ordered(MESSAGE, "key")
        assert 0.9 < time.monotonic() - started < 5
        # At once, again at once, and after 0.05, 0.1, 0.2 and 0.4 s; once more at the end.
        assert 3 <= cluster.asked <= 8


@to_any_queue
def test_a_lone_master_that_moved_is_found_again(side: Side, send: Send) -> None:
    with scripted_cluster("a", "moved") as cluster, side.producer(cluster.nameserver) as producer:
        cluster.routed = ("a",)
        assert send(producer).is_ok
        cluster["a"].play = lose
        cluster.addresses["a"] = cluster["moved"].address
        assert send(producer).is_ok
        assert len(cluster["moved"].stored) == 1


@to_one_queue
def test_a_broker_that_failed_for_good_is_looked_for_before_the_next_send(
    side: Side, send: Send
) -> None:
    with scripted_cluster("a", "moved") as cluster, side.producer(cluster.nameserver) as producer:
        cluster.routed = ("a",)
        assert send(producer).is_ok
        cluster["a"].play = lose
        cluster.addresses["a"] = cluster["moved"].address
        with pytest.raises(SendFailedError):
            send(producer)
        deadline = time.monotonic() + 20
        while not cluster["moved"].stored:
            assert time.monotonic() < deadline
            with suppress(SendFailedError):
                send(producer)


# --- batches in parts ----------------------------------------------------------------------------


def test_a_batch_of_which_a_part_failed_says_what_is_stored(side: Side) -> None:
    messages = [Message(TOPIC, b"%d" % number + b"x" * 400) for number in range(10)]

    def refuse_the_second(link: Link, request: Command) -> None:
        if bytes(decode_batch(request.body or b"")[0].body).startswith(b"4"):
            link.answer(request, code=ResponseCode.MESSAGE_ILLEGAL, remark="no")
        else:
            cluster["a"].store(link, request)

    with (
        scripted_cluster("a") as cluster,
        side.producer(cluster.nameserver, message_bytes_max=2000) as producer,
    ):
        cluster["a"].play = refuse_the_second
        with pytest.raises(BatchFailedError) as caught:
            producer.send_batch(messages)
    assert caught.value.unacknowledged[:4] == messages[4:8]
    assert len(caught.value.results) in (1, 2)
    assert [type(error) for _, error in caught.value.attempts] == [ResponseError]


def test_a_broker_that_cannot_be_reached_is_named(side: Side) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
    with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
        cluster.addresses["a"] = closed
        with pytest.raises(SendFailedError) as caught:
            producer.send(MESSAGE)
    name, error = caught.value.attempts[0]
    assert (name, type(error)) == ("a", ConnectFailedError)
    assert not caught.value.may_be_stored
