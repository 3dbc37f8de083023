"""The client on asyncio, where it is more than the same code on another loop."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trio

from rmq.client import aio
from rmq.client import open_producer as open_trio_producer
from rmq.client.aio import (
    ClientConfig,
    ConsumeFrom,
    Message,
    MessageModel,
    NoNameserverError,
    ReceivedMessage,
    TransactionState,
    WrongLoopError,
    open_admin,
    open_client,
    open_lite_pull_consumer,
    open_producer,
    open_pull_consumer,
    open_push_consumer,
    open_transaction_producer,
)
from rmq.client.aio.connection import Connection
from rmq.client.tasks.tracing import TraceRole
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster
from tests.client.blocking.scripted_peer import scripted_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from rmq.remoting.command import Command
    from rmq.testing.local_broker import LocalBroker
    from tests.client.blocking.scripted_peer import Link

T = TypeVar("T")
WAIT_S = 20.0


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a case in time, and see that it leaves nothing behind."""

    async def in_time() -> T:
        async with asyncio.timeout(WAIT_S):
            result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return result

    return asyncio.run(in_time(), debug=True)


def silent(link: Link, request: Command) -> None:
    """Answer nothing."""


# --- with a broker -------------------------------------------------------------------------------


def test_all_kinds_of_members_do_their_work(
    rmq_session_broker: LocalBroker, tmp_path: Path
) -> None:
    nameserver = rmq_session_broker.nameserver
    for topic in ("AioPushed", "AioAsked", "AioBooked"):
        rmq_session_broker.create_topic(topic)
    booked: list[str] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async def book(message: Message, _: object) -> TransactionState:
        booked.append(message.keys[0])
        return TransactionState.COMMIT

    async def main() -> None:
        pushed: asyncio.Queue[bytes] = asyncio.Queue()

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                pushed.put_nowait(message.body)

        async with (
            open_client(nameserver) as client,
            aio.producing(client, aio.ProducerConfig(group="aio-send")) as producer,
            open_push_consumer(
                nameserver,
                "aio-orderly",
                "AioPushed",
                listener,
                consume_from=ConsumeFrom.FIRST,
                is_orderly=True,
            ),
            open_push_consumer(
                nameserver,
                "aio-broadcast",
                "AioPushed",
                listener,
                consume_from=ConsumeFrom.FIRST,
                message_model=MessageModel.BROADCASTING,
                offset_folder=tmp_path,
            ),
        ):
            bodies = [b"%d" % number for number in range(20)]
            pending = [await producer.send_soon(Message("AioPushed", body)) for body in bodies[:10]]
            assert all([(await each.wait()).is_ok for each in pending])
            results = await asyncio.gather(
                *(producer.send(Message("AioPushed", body)) for body in bodies[10:])
            )
            assert all(result.is_ok for result in results)
            got = sorted([await pushed.get() for _ in range(40)])
            assert got == sorted(bodies * 2)

        async def answer(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                await replies.reply(message, message.body + b"!")

        async with (
            open_producer(nameserver, "aio-replies") as replies,
            open_push_consumer(
                nameserver, "aio-answer", "AioAsked", answer, consume_from=ConsumeFrom.FIRST
            ),
            open_producer(nameserver, "aio-ask") as asking,
        ):
            reply = await asking.request(Message("AioAsked", b"well"), timeout_s=10)
            assert reply.body == b"well!"

        async with open_transaction_producer(nameserver, "aio-book", check) as transactions:
            done = await transactions.send(Message("AioBooked", b"seat", keys="b-1"), book)
            assert done.state is TransactionState.COMMIT
        async with open_lite_pull_consumer(
            nameserver, "aio-lite", consume_from=ConsumeFrom.FIRST
        ) as consumer:
            await consumer.subscribe("AioBooked")
            assert [message.keys async for message in _first(consumer, 1)] == [("b-1",)]
        async with open_pull_consumer(nameserver, "aio-pull") as puller:
            counts = [
                len((await puller.pull(queue, 0)).messages)
                for queue in await puller.fetch_queues("AioPushed")
            ]
            assert sum(counts) == 20
        async with open_admin(nameserver) as admin:
            assert (await admin.topic_route("AioPushed")).queue_datas

    run(main)
    assert booked == ["b-1"]


async def _first(consumer: aio.LitePullConsumer, count: int) -> Any:  # noqa: ANN401
    async for message in consumer:
        yield message
        count -= 1
        if not count:
            return


def test_a_listener_sees_the_context_that_it_was_opened_in(
    rmq_session_broker: LocalBroker,
) -> None:
    rmq_session_broker.create_topic("AioContext")
    request_id = ContextVar("request_id", default="none")

    async def main() -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def listener(_: Sequence[ReceivedMessage]) -> None:
            seen.put_nowait(request_id.get())

        request_id.set("42")
        async with (
            open_push_consumer(
                rmq_session_broker.nameserver,
                "aio-context",
                "AioContext",
                listener,
                consume_from=ConsumeFrom.FIRST,
            ),
            open_producer(rmq_session_broker.nameserver, "aio-context") as producer,
        ):
            await producer.send(Message("AioContext", b"x"))
            assert await seen.get() == "42"

    run(main)


def test_traces_are_written(rmq_session_broker: LocalBroker) -> None:
    config = ClientConfig(nameservers=rmq_session_broker.nameserver, trace_topic="AioTraces")
    rmq_session_broker.create_topic("AioTraces")

    async def main() -> None:
        async with open_producer(config, "aio-traced") as producer:
            await producer.send(Message("AioTraced", b"x"))
        async with aio.opening.open_tracing(config, "aio-own", TraceRole.PRODUCE) as tracer:
            assert tracer.topic == "AioTraces"

    run(main)
    (trace,) = rmq_session_broker.messages("AioTraces")
    assert b"AioTraced" in trace.body


# --- life ----------------------------------------------------------------------------------------


def test_another_task_may_close_what_one_has_opened() -> None:
    with scripted_cluster("a") as cluster:

        async def main() -> None:
            opened = open_producer(cluster.nameserver, "g")
            producer = await asyncio.create_task(opened.open())
            assert (await producer.send(Message(TOPIC, b"x"))).is_ok
            with pytest.raises(RuntimeError, match="opened before"):
                await opened.open()
            await asyncio.create_task(opened.close())
            await opened.close()
            assert "closed" in repr(opened)
            with pytest.raises(aio.ClientClosedError):
                await producer.send(Message(TOPIC, b"x"))

        run(main)


def test_an_opening_that_fails_or_is_cancelled_leaves_nothing() -> None:
    async def listener(_: Sequence[ReceivedMessage]) -> None: ...

    async def main() -> None:
        with pytest.raises(NoNameserverError, match=r"cannot connect to 127\.0\.0\.1:1"):
            async with open_push_consumer("127.0.0.1:1", "g", TOPIC, listener):
                pytest.fail("it was opened")
        with scripted_peer(silent) as nameserver, pytest.raises(TimeoutError):
            async with (
                asyncio.timeout(0.05),
                open_push_consumer(nameserver.address, "g", TOPIC, listener),
            ):
                pytest.fail("it was opened")

    run(main)


def test_the_error_of_a_block_comes_out_as_itself() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with open_producer("127.0.0.1:1", "g"):
                raise ZeroDivisionError

    run(main)


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_send_that_is_cancelled_ends_at_once(how: str) -> None:
    with scripted_cluster("a") as cluster:
        cluster["a"].play = silent

        async def main() -> None:
            async with open_producer(cluster.nameserver, "g", send_timeout_s=WAIT_S) as producer:
                sends = [asyncio.create_task(producer.send(Message(TOPIC, b"x"))) for _ in range(3)]
                broker = cluster["a"].peer
                assert broker is not None
                await asyncio.to_thread(broker.wait_requests, 3)
                if how == "cancel":
                    for send in sends:
                        send.cancel()
                else:
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.01):
                            await producer.send(Message(TOPIC, b"late"))
                    for send in sends:
                        send.cancel("enough")
                results = await asyncio.gather(*sends, return_exceptions=True)
                assert all(isinstance(each, asyncio.CancelledError) for each in results)
                # The connection is as good as before.
                cluster["a"].play = cluster["a"].store
                assert (await producer.send(Message(TOPIC, b"then"))).is_ok
                assert broker.accepted == 1

        run(main)


def test_a_poll_that_is_cancelled_has_taken_no_message(rmq_session_broker: LocalBroker) -> None:
    nameserver = rmq_session_broker.nameserver
    rmq_session_broker.create_topic("AioPolled", queues=1)

    async def main() -> None:
        async with (
            open_producer(nameserver, "aio-polled") as producer,
            open_lite_pull_consumer(
                nameserver, "aio-polled", consume_from=ConsumeFrom.FIRST
            ) as consumer,
        ):
            await consumer.subscribe("AioPolled")
            for number in range(10):
                await producer.send(Message("AioPolled", b"%d" % number))
            got: list[bytes] = []
            while len(got) < 10:
                task = asyncio.create_task(consumer.poll(WAIT_S, 1))
                await asyncio.sleep(0)
                task.cancel()
                try:
                    got += [message.body for message in await task]
                except asyncio.CancelledError:
                    got += [message.body for message in await consumer.poll(WAIT_S, 1)]
            assert got == [b"%d" % number for number in range(10)]

    run(main)


def test_the_error_says_which_client_is_for_which_loop() -> None:
    async def on_asyncio() -> None:
        with pytest.raises(WrongLoopError, match=r"use rmq\.client\.aio"):
            async with open_trio_producer("127.0.0.1:1", "g"):
                pytest.fail("it was opened")

    async def on_trio() -> None:
        with pytest.raises(WrongLoopError, match=r"from trio use rmq\.client"):
            await open_producer("127.0.0.1:1", "g").open()

    run(on_asyncio)
    trio.run(on_trio)


# --- connections ---------------------------------------------------------------------------------


def test_a_server_that_is_no_nameserver_is_recognized(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(link: Link, request: Command) -> None:
        link.answer(request, code=3, remark=f" request type {request.code} not supported")

    def http(link: Link, request: Command) -> None:
        link.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def failure(address: str) -> str:
        async with open_producer(address, "g") as producer:
            with pytest.raises(NoNameserverError) as caught:
                await producer.send(Message(TOPIC, b"x"))
        return str(caught.value)

    with scripted_peer(refuse) as broker, scripted_peer(http) as metrics:

        async def main() -> None:
            assert "is that the port of a broker?" in await failure(broker.address)
            with caplog.at_level(logging.ERROR):
                assert "is this a port for metrics" in await failure(metrics.address)

        run(main)


def test_the_stacks_of_tasks_can_be_shown() -> None:
    async def main() -> None:
        async with open_client("127.0.0.1:1") as client:
            stacks = client.loop.stacks()
        assert "a client of rmq" in stacks
        assert "_keep_beating" in stacks
        assert Connection.__module__ not in stacks

    run(main)
