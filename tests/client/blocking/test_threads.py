"""Threads that share a client: all are served, none waits for what another one waits for."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from rmq.client.blocking import BlockingClient, BlockingConsumer, BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message
from rmq.errors import ClientClosedError, ConnectionLostError, SharedUseError
from rmq.model.queues import MessageQueue
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import PullMessageRequest
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.remoting.command import Command
    from tests.client.blocking.scripted_cluster import Broker
    from tests.client.blocking.scripted_peer import Link

THREADS = 8
SENDS = 40
WAIT_S = 20.0


class Held:
    """Makes a broker keep requests of a kind until they are let go."""

    def __init__(self, broker: Broker, code: RequestCode) -> None:
        self._broker = broker
        self._code = code
        self._links: list[tuple[Link, Command]] = []
        broker.play = self._play

    def _play(self, link: Link, request: Command) -> None:
        if request.code == self._code:
            self._links.append((link, request))
        else:
            self._broker.store(link, request)

    def wait(self, count: int = 1) -> None:
        assert self._broker.peer is not None
        self._broker.peer.wait_until(lambda: len(self._links) >= count)

    def let_go(self) -> None:
        for link, request in self._links:
            self._broker.store(link, request)


def config(nameserver: str) -> ClientConfig:
    return ClientConfig(nameservers=nameserver, heartbeat_s=60.0, route_refresh_s=60.0)


def sent_body(producer: BlockingProducer, body: bytes) -> bytes:
    assert producer.send(Message(TOPIC, body)).is_ok
    return body


def test_every_send_of_many_threads_is_stored_once_over_one_connection() -> None:
    with (
        scripted_cluster("a") as cluster,
        BlockingProducer(config(cluster.nameserver), "g") as producer,
        ThreadPoolExecutor(THREADS) as pool,
    ):

        def work(number: int) -> list[bytes]:
            singles = [sent_body(producer, b"%d %d" % (number, each)) for each in range(SENDS)]
            bodies = [b"%d many %d" % (number, each) for each in range(SENDS)]
            results = producer.send_many((Message(TOPIC, body) for body in bodies), in_flight=8)
            assert [result.is_ok for result in results] == [True] * SENDS
            return singles + bodies

        sent = [body for bodies in pool.map(work, range(THREADS)) for body in bodies]
        assert sorted(cluster["a"].stored) == sorted(sent)
        assert len(sent) == 2 * THREADS * SENDS
        peer = cluster["a"].peer
        assert peer is not None
        assert peer.accepted == 1


def test_a_thread_that_waits_does_not_keep_others_from_being_answered() -> None:
    with (
        scripted_cluster("a", "b") as cluster,
        BlockingClient(config(cluster.nameserver)) as client,
        BlockingProducer(client, "g") as producer,
        ThreadPoolExecutor(2) as pool,
    ):
        held = Held(cluster["a"], RequestCode.SEND_MESSAGE_V2)
        waiting = pool.submit(producer.send, Message(TOPIC, b"slow"), queue=queue_of("a"))
        held.wait()
        # The other one polls, with no word of this connection nor of this deadline.
        before = client.connections.now
        for number in range(3):
            message = Message(TOPIC, b"%d" % number)
            assert producer.send(message, queue=queue_of("b"), timeout_s=WAIT_S).is_ok
        assert not waiting.done()
        assert client.connections.now > before
        held.let_go()
        assert waiting.result(WAIT_S).is_ok
        assert cluster["b"].stored == [b"0", b"1", b"2"]


def test_the_thread_that_polls_for_all_may_leave_first() -> None:
    with (
        scripted_cluster("a", "b") as cluster,
        BlockingProducer(config(cluster.nameserver), "g") as producer,
        ThreadPoolExecutor(2) as pool,
    ):
        first = Held(cluster["a"], RequestCode.SEND_MESSAGE_V2)
        second = Held(cluster["b"], RequestCode.SEND_MESSAGE_V2)
        driving = pool.submit(producer.send, Message(TOPIC, b"1"), queue=queue_of("a"))
        first.wait()
        sleeping = pool.submit(producer.send, Message(TOPIC, b"2"), queue=queue_of("b"))
        second.wait()
        first.let_go()
        assert driving.result(WAIT_S).is_ok
        second.let_go()
        assert sleeping.result(WAIT_S).is_ok


def test_a_consumer_is_polled_by_one_thread_at_a_time() -> None:
    with (
        scripted_cluster("a") as cluster,
        BlockingConsumer(config(cluster.nameserver), "g", commits_itself=False) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        pulls = threading.Semaphore(0)

        def play(link: Link, request: Command) -> None:
            if request.code == RequestCode.PULL_MESSAGE:
                assert request.header(PullMessageRequest).topic == TOPIC
                pulls.release()

        cluster["a"].play = play
        consumer.assign([queue_of("a")])
        consumer.seek(queue_of("a"), 0)
        polling = pool.submit(consumer.poll, WAIT_S)
        assert pulls.acquire(timeout=WAIT_S)
        forbidden: list[Callable[[], object]] = [
            lambda: consumer.poll(0.0),
            consumer.commit,
            lambda: consumer.seek(queue_of("a"), 5),
            lambda: consumer.assign(()),
        ]
        for call in forbidden:
            with pytest.raises(SharedUseError, match="another thread"):
                call()
        # What hands out nothing and moves no place is for all.
        assert consumer.queues(TOPIC) == (queue_of("a"), queue_of("a", 1))
        consumer.close()
        with pytest.raises(ClientClosedError):
            polling.result(WAIT_S)


def test_closing_ends_what_other_threads_wait_for() -> None:
    with (
        scripted_cluster("a") as cluster,
        ThreadPoolExecutor(3) as pool,
    ):
        producer = BlockingProducer(config(cluster.nameserver), "g").open()
        held = Held(cluster["a"], RequestCode.SEND_MESSAGE_V2)
        waiting: list[Future[object]] = [
            pool.submit(producer.send, Message(TOPIC, b"x"), queue=queue_of("a")) for _ in range(3)
        ]
        held.wait(3)
        producer.close()
        for each in waiting:
            error = each.exception(WAIT_S)
            assert isinstance(error, ClientClosedError | ConnectionLostError) or (
                error is not None and "may be stored" in str(error)
            )


def test_a_child_that_is_forked_while_threads_send_goes_on_alone() -> None:
    with (
        scripted_cluster("a") as cluster,
        BlockingProducer(config(cluster.nameserver), "g") as producer,
        ThreadPoolExecutor(3) as pool,
    ):
        held = Held(cluster["a"], RequestCode.SEND_MESSAGE_V2)
        waiting = [
            pool.submit(producer.send, Message(TOPIC, b"parent"), queue=queue_of("a"))
            for _ in range(3)
        ]
        held.wait(3)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(int(WAIT_S))
                status = not producer.send_many([Message(TOPIC, b"child")])[0].is_ok
            finally:
                os._exit(status)
        held.wait(4)
        held.let_go()
        assert os.waitpid(child, 0)[1] == 0
        assert all(each.result(WAIT_S).is_ok for each in waiting)
        assert sorted(cluster["a"].stored) == [b"child", b"parent", b"parent", b"parent"]


def test_an_iterator_of_messages_may_use_the_producer_that_it_is_for() -> None:
    with (
        scripted_cluster("a") as cluster,
        BlockingProducer(config(cluster.nameserver), "g") as producer,
        ThreadPoolExecutor(1) as pool,
    ):

        def messages() -> list[Message]:
            return [Message(TOPIC, b"own")]

        def source() -> object:
            # Another thread sends meanwhile: it must not wait for this one.
            pool.submit(producer.send, Message(TOPIC, b"other")).result(WAIT_S)
            yield from messages()

        began = time.monotonic()
        assert len(producer.send_many(source())) == 1  # type: ignore[arg-type]
        assert time.monotonic() - began < WAIT_S
        assert cluster["a"].stored == [b"other", b"own"]


def queue_of(name: str, number: int = 0) -> MessageQueue:
    return MessageQueue(topic=TOPIC, broker_name=name, queue_id=number)
