"""Forks, worker processes and interrupts."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

import rmq
from rmq.client.blocking import BlockingClient, BlockingConsumer, BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.messages import Message, SendResult
from rmq.errors import ClientClosedError, ConnectionLostError
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import UnregisterClientRequest
from tests.client.blocking import workers
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.blocking.cluster_process import ProcessCluster

T = TypeVar("T")
WAIT_S = 60.0


def in_child(function: Callable[[], T]) -> T:
    """Run a function in a fork of this process, and return its result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            signal.alarm(int(WAIT_S))
            with os.fdopen(writing, "wb") as out:
                out.write(pickle.dumps(function()))
            status = 0
        except BaseException:  # noqa: BLE001 - it must not get out of the child
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as source:
        said = source.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with status {status}"
    result: T = pickle.loads(said)
    return result


# --- forks -----------------------------------------------------------------------------------


def test_parent_and_child_send_with_the_same_producer(shared_cluster: ProcessCluster) -> None:
    topic = "ForkedSends"
    shared_cluster.create_topic(topic)
    messages = [Message(topic, b"x")] * 200
    with BlockingProducer(shared_cluster.nameserver, "g") as producer:
        before = [result.message_id for result in producer.send_many(messages)]
        parent_id = producer.client.client_id

        def child() -> tuple[str, list[str]]:
            results = producer.send_many(messages)
            results.append(producer.send(messages[0]))
            client_id = producer.client.client_id
            producer.close()
            return client_id, [result.message_id for result in results]

        child_id, in_it = in_child(child)
        after = [result.message_id for result in producer.send_many(messages)]
        assert producer.client.client_id == parent_id
    assert child_id != parent_id
    ids = before + in_it + after
    assert len(set(ids)) == len(ids) == 601


def test_a_child_never_touches_the_connections_of_its_parent() -> None:
    with scripted_cluster("a") as cluster:
        config = ClientConfig(nameservers=cluster.nameserver, heartbeat_s=0.001)
        peer = cluster["a"].peer
        assert peer is not None
        with BlockingProducer(config, "g") as producer:
            producer.send(Message(TOPIC, b"parent"))
            producer.client.beat()
            accepted = peer.accepted
            open_before = set(Path("/proc/self/fd").iterdir())

            def child() -> set[Path]:
                # Its copies are closed at once, so that the parent's close is seen by brokers.
                left = set(Path("/proc/self/fd").iterdir()) & open_before
                producer.close()
                return open_before - left

            assert len(in_child(child)) >= 2
            # Leaving without a use, the child had nothing to say for its parent.
            assert peer.accepted == accepted
            codes = [request.code for request in peer.requests]
            assert RequestCode.UNREGISTER_CLIENT not in codes

            def sending_child() -> bool:
                return producer.send(Message(TOPIC, b"child")).is_ok

            assert in_child(sending_child)
            assert peer.accepted == accepted + 1
            producer.send(Message(TOPIC, b"parent"))
            assert peer.accepted == accepted + 1
        (left,) = [
            request.header(UnregisterClientRequest)
            for request in peer.requests
            if request.code == RequestCode.UNREGISTER_CLIENT
        ]
        assert left.producer_group == "g"
        assert cluster["a"].stored == [b"parent", b"child", b"parent"]


def test_a_stream_of_sends_stays_with_the_parent(shared_cluster: ProcessCluster) -> None:
    shared_cluster.create_topic("ForkedStream")
    messages = [Message("ForkedStream", b"x")] * 1000
    with BlockingProducer(shared_cluster.nameserver, "g") as producer:
        stream = producer.send_stream(messages, in_flight=50)
        results = [next(stream) for _ in range(100)]

        def child() -> str:
            try:
                for _ in stream:
                    pass
            except ClientClosedError as exc:
                return str(exc)
            return "sent"

        assert "forked" in in_child(child)
        results += stream
        assert all(isinstance(result, SendResult) for result in results)
        assert len(results) == 1000
    with BlockingConsumer(shared_cluster.nameserver, "g") as consumer:
        ends = consumer.end_offsets(consumer.queues("ForkedStream"))
        assert sum(ends.values()) == 1000


def test_reading_goes_on_in_both(shared_cluster: ProcessCluster) -> None:
    topic = "ForkedReads"
    shared_cluster.create_topic(topic, queues=1)
    with BlockingProducer(shared_cluster.nameserver, "g") as producer:
        producer.send_many([Message(topic, b"%d" % number) for number in range(2000)])
    with BlockingConsumer(
        shared_cluster.nameserver, "forked", consume_from=ConsumeFrom.FIRST
    ) as consumer:
        (queue,) = consumer.queues(topic)
        reader = consumer.read_range(queue, 0, 2000)
        first = [int(next(reader).body) for _ in range(100)]

        def rest() -> list[int]:
            return [int(message.body) for message in reader]

        assert in_child(rest) == rest() == list(range(100, 2000))
        assert first == list(range(100))

        consumer.assign([queue])
        assert len(consumer.poll(10.0, 10)) == 10

        def poll_one() -> tuple[int, int | None]:
            (message,) = consumer.poll(10.0, 1)
            committed = consumer.committed(queue)
            consumer.close()
            return int(message.body), committed

        number, committed = in_child(poll_one)
        assert number == 10
        assert committed == 0
        # The child has committed what it polled itself.
        assert consumer.committed(queue) == 11
        assert int(consumer.poll(10.0, 1)[0].body) == 10


def test_a_flow_that_was_under_way_at_a_fork_has_failed_in_the_child(
    shared_cluster: ProcessCluster,
) -> None:
    with BlockingClient(shared_cluster.nameserver) as client:
        task = client.start(client.nameservers.route("TBW102"))

        def child() -> str:
            assert task.is_done
            with pytest.raises(ConnectionLostError, match="forked"):
                client.wait(task)
            return client.route("TBW102").topic

        assert in_child(child) == "TBW102"
        assert client.wait(task).topic == "TBW102"


# --- worker processes ------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_get_producers_and_consumers_from_elsewhere(
    shared_cluster: ProcessCluster, method: str
) -> None:
    topic = f"Workers-{method}"
    shared_cluster.create_topic(topic, queues=1)
    producer = BlockingProducer(shared_cluster.nameserver, "g")
    consumer = BlockingConsumer(shared_cluster.nameserver, "g")
    with consumer:
        (queue,) = consumer.queues(topic)
    context = multiprocessing.get_context(method)
    with context.Pool(3) as pool:
        parts = [(producer, topic, start, start + 100) for start in range(0, 600, 100)]
        ids = [each for part in pool.starmap(workers.send_part, parts, 1) for each in part]
        assert len(set(ids)) == 600
        ranges = [(consumer, queue, start, start + 200) for start in range(0, 600, 200)]
        bodies = [each for part in pool.starmap(workers.read_part, ranges, 1) for each in part]
        pool.close()
        pool.join()
    assert sorted(map(int, bodies)) == list(range(600))


# --- interrupts ------------------------------------------------------------------------------


def test_ctrl_c_commits_and_leaves(shared_cluster: ProcessCluster) -> None:
    topic = "Interrupted"
    shared_cluster.create_topic(topic, queues=1)
    with BlockingProducer(shared_cluster.nameserver, "g") as producer:
        producer.send_many([Message(topic, b"x")] * 10)
    script = f"""
        from rmq.client.blocking import BlockingConsumer
        from rmq.client.core.consuming.offsets import ConsumeFrom

        try:
            with BlockingConsumer(
                {shared_cluster.nameserver!r}, "interrupted", consume_from=ConsumeFrom.FIRST
            ) as consumer:
                consumer.assign(consumer.queues({topic!r}))
                seen = 0
                while seen < 10:
                    seen += len(consumer.poll(10.0))
                # What was polled is done with.
                consumer.poll(0.0)
                print("waiting", flush=True)
                consumer.poll(60.0)
        except KeyboardInterrupt:
            print("left", flush=True)
    """
    said = interrupt(script)
    assert said == b"left\n"
    with BlockingConsumer(shared_cluster.nameserver, "interrupted") as consumer:
        (queue,) = consumer.queues(topic)
        assert consumer.committed(queue) == 10


def test_ctrl_c_ends_a_send_to_a_broker_that_says_nothing() -> None:
    with scripted_cluster("a") as cluster:
        cluster["a"].play = lambda link, request: None
        script = f"""
            from rmq.client.blocking import BlockingProducer
            from rmq.client.core.messages import Message

            message = Message({TOPIC!r}, b"x")
            try:
                with BlockingProducer(
                    {cluster.nameserver!r}, "g", send_timeout_s=60.0
                ) as producer:
                    print("waiting", flush=True)
                    producer.send_many([message] * 100)
            except KeyboardInterrupt:
                print("left", flush=True)
        """
        assert cluster["a"].peer is not None
        assert interrupt(script, lambda: cluster["a"].peer.wait_requests(1)) == b"left\n"  # type: ignore[union-attr]


_HEARS_CTRL_C = """
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
"""
"""A process that was started in the background of a shell ignores the signal otherwise."""


def interrupt(script: str, is_time: Callable[[], object] = lambda: None) -> bytes:
    """Run a script until it says that it waits, interrupt it, and return what it says then."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HEARS_CTRL_C + textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(rmq.__file__).parents[1])},
    )
    guard = threading.Timer(WAIT_S, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        is_time()
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait(WAIT_S) == 0
        return said
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
