"""Producers while brokers die, hang, talk nonsense and come back; cancelled, closed, odd clocks."""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message, SendResult, SendStatus
from rmq.client.core.producing import delivery
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.core.producing.delivery import BatchFailedError
from rmq.client.tasks import pipeline
from rmq.client.tasks.producer import producing
from rmq.client.trio.loop import remoting_of
from rmq.client.trio.opening import open_client, open_producer
from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ConnectFailedError,
    ConnectionLostError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    RmqError,
    SendFailedError,
    TooManyRequestsError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.codes import ResponseCode
from tests.client.cluster_kit import cluster
from tests.client.producer_kit import (
    TOPIC,
    answer_never,
    answer_ok,
    answer_stored,
    bodies,
    odd_brokers,
    stored,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from rmq.client.tasks.producer import Producer
    from rmq.remoting.headers import SendMessageRequestV2
    from rmq.remoting.request import Request
    from tests.client.cluster_kit import Cluster

TWO: Final = ("broker-a", "broker-b")
SENDERS: Final = 16


def message(number: int) -> Message:
    return Message(TOPIC, f"m{number}".encode())


@asynccontextmanager
async def two_masters(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path, TWO) as it:
        for name in TWO:
            await it.create_topic(TOPIC, broker=name)
        yield it


# --- one of two masters dies under load ------------------------------------------------------


async def test_sends_go_on_when_a_master_dies_and_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    async with (
        two_masters(tmp_path) as it,
        open_producer(it.nameserver, "orders") as producer,
    ):
        acknowledged: list[str] = []
        slowest_s = 0.0
        count = 0
        is_over = False

        async def send() -> None:
            nonlocal count, slowest_s
            while not is_over:
                count += 1
                body = f"m{count}"
                started = trio.current_time()
                # Nothing is raised: each of them finds the other master in time.
                result = await producer.send(Message(TOPIC, body.encode()))
                slowest_s = max(slowest_s, trio.current_time() - started)
                assert result.is_ok
                acknowledged.append(body)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(SENDERS):
                    nursery.start_soon(send)
                await until(lambda: len(acknowledged) > 1000)
                await it.kill("broker-b")
                at_kill = len(acknowledged)
                # Until there is a new route, and nobody tries the dead master any longer.
                while {queue.broker_name for queue in await producer.queues(TOPIC)} == set(TWO):
                    await trio.lowlevel.checkpoint()
                await until(lambda: len(acknowledged) > at_kill + 1000)
                is_over = True
        assert slowest_s < producer.config.send_timeout_s
        await it.start("broker-b")
        found = set(bodies(await stored(it)))
        assert set(acknowledged) <= found


async def test_pipelined_sends_go_on_when_a_master_dies(tmp_path: Path) -> None:
    async with (
        two_masters(tmp_path) as it,
        open_producer(it.nameserver, "orders", pending_max=500) as producer,
    ):
        outcomes: dict[str, SendResult | RmqError] = {}
        count = 0
        with trio.fail_after(60):
            while count < 6000:
                if count == 3000:
                    await it.kill("broker-b")
                body = f"m{count}"
                count += 1
                while not producer._pipeline.has_room(8):
                    await producer._pipeline.wait_room(8)
                producer.submit(
                    Message(TOPIC, body.encode()),
                    lambda outcome, body=body: outcomes.update({body: outcome}),  # type: ignore[misc]
                )
                if count % 50 == 0:
                    await trio.lowlevel.checkpoint()
            await until(lambda: len(outcomes) == count)
        failed = {body: each for body, each in outcomes.items() if isinstance(each, RmqError)}
        assert not failed
        await it.start("broker-b")
        assert set(outcomes) <= set(bodies(await stored(it)))


async def test_a_master_that_is_back_is_used_again(tmp_path: Path) -> None:
    async with two_masters(tmp_path) as it:
        config = ClientConfig(nameservers=it.nameserver, route_refresh_s=0.1)
        async with open_producer(config, "orders") as producer:
            await producer.send(message(0))
            await it.kill("broker-b")
            for number in range(8):
                assert (await producer.send(message(number))).queue.broker_name == "broker-a"
            await it.start("broker-b")
            with trio.fail_after(20):
                while (await producer.send(message(9))).queue.broker_name != "broker-b":
                    pass


async def test_an_only_master_that_dies_is_told_of_and_works_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        await producer.send(message(0))
        await it.kill()
        with pytest.raises(SendFailedError, match="3 attempts") as caught:
            await producer.send(message(1))
        assert not caught.value.may_be_stored
        assert {broker for broker, _ in caught.value.attempts} == {"broker-a"}
        assert isinstance(caught.value.attempts[-1][1], ConnectFailedError)
        with pytest.raises(SendFailedError):
            await producer.send_batch([message(1), message(2)])
        with pytest.raises(ConnectFailedError):
            await producer.send_oneway(message(1))
        await it.start()
        assert (await producer.send(message(2))).is_ok
        assert sorted(bodies(await stored(it))) == ["m0", "m2"]


async def test_ordered_sends_are_not_moved_to_another_broker(tmp_path: Path) -> None:
    async with two_masters(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        queues = await producer.queues(TOPIC)
        theirs = next(queue for queue in queues if queue.broker_name == "broker-b")
        await producer.send_ordered(message(0), 1, lambda *_: theirs)
        await it.kill("broker-b")
        with pytest.raises(SendFailedError, match="1 attempt,") as caught:
            await producer.send_ordered(message(1), 1, lambda *_: theirs)
        assert [broker for broker, _ in caught.value.attempts] == ["broker-b"]
        await it.start("broker-b")
        with trio.fail_after(20):
            while True:
                try:
                    result = await producer.send_ordered(message(2), 1, lambda *_: theirs)
                except SendFailedError:
                    await producer.client.refresh_route(TOPIC)
                else:
                    break
        assert result.queue == theirs


# --- brokers that misbehave ------------------------------------------------------------------


def hang_up(name: str, request: Request[SendMessageRequestV2]) -> None:
    """Die with the message in hand."""
    request.channel.close("dies")


def talk_nonsense(name: str, request: Request[SendMessageRequestV2]) -> None:
    """Say that it is stored, and not where."""
    request.reply(code=ResponseCode.SUCCESS)


async def test_a_broker_that_dies_mid_send_leaves_it_in_doubt() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        it.on_send = hang_up
        with pytest.raises(SendFailedError, match="it may be stored nevertheless") as caught:
            await producer.send(message(0))
        assert len(it.sends) == 3
        assert caught.value.may_be_stored
        assert all(isinstance(error, ConnectionLostError) for _, error in caught.value.attempts)
        queue = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=1)
        with pytest.raises(SendFailedError, match="1 attempt,"):
            await producer.send(message(0), queue=queue)
        it.on_send = answer_ok
        assert (await producer.send(message(1))).is_ok


async def test_nonsense_is_told_as_such_and_retried_elsewhere() -> None:
    async with odd_brokers(TWO) as it, open_producer(it.nameserver, "orders") as producer:

        def one_is_odd(name: str, request: Request[SendMessageRequestV2]) -> None:
            (talk_nonsense if name == "broker-a" else answer_ok)(name, request)

        it.on_send = one_is_odd
        for _ in range(8):
            assert (await producer.send(message(0))).queue.broker_name == "broker-b"
        it.on_send = talk_nonsense
        with pytest.raises(SendFailedError, match="msgId") as caught:
            await producer.send(message(0))
        assert all(isinstance(error, BadAnswerError) for _, error in caught.value.attempts)
        assert caught.value.may_be_stored


async def test_bytes_that_are_no_frames_end_the_connection_and_the_send_goes_elsewhere() -> None:
    async def speak(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with (
        odd_brokers(TWO) as it,
        trio.open_nursery() as nursery,
        open_producer(it.nameserver, "orders") as producer,
    ):
        (listener,) = await nursery.start(partial(trio.serve_tcp, speak, 0, host="127.0.0.1"))
        it.addresses["broker-b"] = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        for number in range(8):
            assert (await producer.send(message(number))).queue.broker_name == "broker-a"
        queue = MessageQueue(topic=TOPIC, broker_name="broker-b", queue_id=1)
        with pytest.raises(SendFailedError, match="HTTP bytes"):
            await producer.send(message(9), queue=queue)
        nursery.cancel_scope.cancel()


async def test_an_address_that_is_none_is_told_as_such() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        it.addresses["broker-a"] = "nonsense"
        with pytest.raises(SendFailedError, match="'nonsense' is not host:port"):
            await producer.send(message(0))
        with pytest.raises(RmqError, match="'nonsense' is not host:port"):
            await producer.send_oneway(message(0))


async def test_a_broker_that_hangs_is_waited_for_one_timeout() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        it.on_send = answer_never
        started = trio.current_time()
        with pytest.raises(SendFailedError, match=r"no answer within 0\.\d+ s") as caught:
            await producer.send(message(0), timeout_s=0.2)
        assert 0.15 < trio.current_time() - started < 2
        ((_, error),) = caught.value.attempts
        assert isinstance(error, RequestTimeoutError)
        assert caught.value.may_be_stored


async def test_while_a_broker_hangs_its_successor_is_looked_for_and_gets_what_comes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "SILENCE_S", 0.01)
    monkeypatch.setattr(delivery, "REFRESH_INTERVAL_S", 0.01)
    async with (
        odd_brokers() as it,
        odd_brokers() as promoted,
        open_producer(it.nameserver, "orders") as producer,
    ):
        it.on_send = answer_never
        outcomes: list[SendResult | RmqError] = []
        producer.submit(message(0), outcomes.append, timeout_s=60)
        await until(lambda: it.routes_asked > 3)
        it.addresses["broker-a"] = promoted.nameserver
        asked = it.routes_asked
        await until(lambda: it.routes_asked > asked + 1)
        assert (await producer.send(message(1))).is_ok
        assert (len(it.sends), len(promoted.sends)) == (1, 1)
        assert outcomes == [], "the first may be stored where it was sent"
        for channel in it.channels:
            channel.close("it is gone for good")
        await until(lambda: outcomes)
        assert isinstance(outcomes[0], SendResult)
        assert len(promoted.sends) == 2


async def test_nameservers_that_hang_are_waited_for_one_timeout() -> None:
    # Connections are accepted by the kernel, and nobody serves them.
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    async with listener, open_producer(address, "orders", send_timeout_s=0.2) as producer:
        started = trio.current_time()
        for call in (producer.send, producer.send_oneway):
            with pytest.raises(RequestTimeoutError, match="no answer within"):
                await call(message(0))
        with pytest.raises(RequestTimeoutError, match=f"where topic {TOPIC} is"):
            await producer.send_ordered(message(0), "key")
        pending = await producer.send_soon(message(0))
        with pytest.raises(RequestTimeoutError, match=f"where topic {TOPIC} is"):
            await pending.wait()
        assert trio.current_time() - started < 5


async def test_a_broker_that_cannot_be_reached_is_waited_for_one_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No packet comes back at all, which only a far machine can do."""
    async with odd_brokers(TWO) as it, open_client(it.nameserver) as client:
        it.addresses["broker-b"] = "192.0.2.1:10911"
        original = client.channel_to

        async def channel_to(address: str) -> object:
            if address == "192.0.2.1:10911":
                await trio.sleep_forever()
            return await original(address)

        monkeypatch.setattr(client, "channel_to", channel_to)
        config = ProducerConfig(group="orders", send_timeout_s=0.2)
        async with producing(client, config) as producer:
            queue = MessageQueue(topic=TOPIC, broker_name="broker-b", queue_id=1)
            outcomes: list[SendResult | RmqError] = []
            # One after the other, each with its own time.
            for number in range(3):
                producer.submit(
                    message(number), outcomes.append, queue=queue, timeout_s=0.1 + 0.1 * number
                )
            await until(lambda: len(outcomes) == 3)
            for outcome in outcomes:
                assert isinstance(outcome, SendFailedError)
                assert isinstance(outcome.attempts[0][1], ConnectFailedError)
                assert not outcome.may_be_stored
            # The other one is not held up.
            near = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=1)
            assert (await producer.send(message(4), queue=near)).is_ok
            with pytest.raises(RequestTimeoutError):
                await producer.send_oneway(message(0), queue=queue)


async def test_a_connection_that_takes_no_more_requests_is_told_of() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        await producer.send(message(0))
        channel = remoting_of(producer.client).open_channel_to(it.nameserver)
        assert channel is not None
        channel.config = replace(channel.config, calls_max=1)
        it.on_send = answer_never
        await producer.send_soon(message(1), timeout_s=0.3)
        with pytest.raises(SendFailedError, match="1 requests are under way") as caught:
            await producer.send(message(2))
        assert all(isinstance(error, TooManyRequestsError) for _, error in caught.value.attempts)
        assert not caught.value.may_be_stored


async def test_a_no_is_retried_or_not_by_its_code() -> None:
    async with odd_brokers(TWO) as it, open_producer(it.nameserver, "orders") as producer:
        code = ResponseCode.SYSTEM_BUSY
        it.on_send = lambda name, request: request.reply(code=code, remark="busy")
        with pytest.raises(SendFailedError, match="1 attempt, it is stored nowhere") as caught:
            await producer.send(message(0))
        error = caught.value.attempts[0][1]
        assert isinstance(error, ResponseError)
        assert (error.code, error.remark) == (2, "busy")
        it.sends.clear()
        code = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendFailedError, match="3 attempts"):
            await producer.send(message(0))
        assert len({name for name, _ in it.sends[:2]}) == 2


# --- names without a master ------------------------------------------------------------------


def refuse_as_slave(name: str, request: Request[SendMessageRequestV2]) -> None:
    """Answer like a broker that is no master, or none any longer."""
    request.reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="a slave")


THEIR_QUEUE: Final = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=1)
SENDS: Final[dict[str, Callable[[Producer], Awaitable[object]]]] = {
    "send": lambda producer: producer.send(message(0)),
    "to a queue": lambda producer: producer.send(message(0), queue=THEIR_QUEUE),
    "ordered": lambda producer: producer.send_ordered(message(0), "key"),
    "batch": lambda producer: producer.send_batch([message(0), message(1)]),
}
any_send = pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)


@any_send
async def test_a_send_waits_until_its_broker_is_master_again(
    send: Callable[[Producer], Awaitable[object]],
) -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        await producer.prepare(TOPIC)
        it.on_send = refuse_as_slave

        def promote_after_some_refusals() -> None:
            if len(it.sends) == 3:
                it.on_send = answer_ok

        it.on_route_asked = promote_after_some_refusals
        await send(producer)
        assert len(it.sends) == 4


@any_send
async def test_a_send_waits_while_nameservers_know_slaves_only(
    send: Callable[[Producer], Awaitable[object]],
) -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        it.slaves = {"broker-a"}

        def promote_after_some_questions() -> None:
            if it.routes_asked == 4:
                it.slaves = set()

        it.on_route_asked = promote_after_some_questions
        await send(producer)
        assert len(it.sends) == 1, "no slave was sent anything"


async def test_a_send_in_flight_when_the_master_is_gone_waits_for_the_next_one() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        await producer.send(message(0))

        def die(name: str, request: Request[SendMessageRequestV2]) -> None:
            it.slaves, it.on_send = {"broker-a"}, answer_ok
            it.routes_asked = 0
            request.channel.close("dies")

        def promote_after_some_questions() -> None:
            if it.routes_asked == 4:
                it.slaves = set()

        it.on_send, it.on_route_asked = die, promote_after_some_questions
        assert (await producer.send(message(1))).is_ok
        assert len(it.sends) == 3


async def test_pipelined_sends_wait_for_a_master_together() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        await producer.prepare(TOPIC)
        it.on_send = refuse_as_slave
        pendings = [await producer.send_soon(message(number)) for number in range(100)]
        await until(lambda: len(it.sends) >= 200)
        it.on_send = answer_ok
        for pending in pendings:
            assert (await pending.wait()).is_ok
        assert it.routes_asked < 20, "one question serves all that wait"


@any_send
async def test_a_master_that_a_former_one_names_is_tried_if_its_address_is_known(
    send: Callable[[Producer], Awaitable[object]],
) -> None:
    async with (
        odd_brokers() as it,
        odd_brokers() as promoted,
        open_producer(it.nameserver, "orders") as producer,
    ):
        it.further = {"broker-a": {1: promoted.nameserver}}
        await producer.prepare(TOPIC)

        def name_it(name: str, request: Request[SendMessageRequestV2]) -> None:
            request.reply(
                code=ResponseCode.SERVICE_NOT_AVAILABLE, extra={"masterAddr": promoted.nameserver}
            )

        it.on_send = name_it
        await send(producer)
        await send(producer)
        assert len(it.sends) == 1, "others need not be refused first"
        assert len(promoted.sends) == 2
        # As soon as nameservers tell of a master, that one counts.
        it.further, it.on_send = {}, answer_ok
        await producer.client.refresh_route(TOPIC)
        await send(producer)
        assert (len(it.sends), len(promoted.sends)) == (2, 2)


async def test_a_master_that_was_named_and_is_none_is_left_for_the_one_that_is_listed() -> None:
    async with (
        odd_brokers() as it,
        odd_brokers() as named,
        open_producer(it.nameserver, "orders") as producer,
    ):
        it.further = {"broker-a": {1: named.nameserver}}
        await producer.prepare(TOPIC)

        def name_it(name: str, request: Request[SendMessageRequestV2]) -> None:
            request.reply(
                code=ResponseCode.SERVICE_NOT_AVAILABLE, extra={"masterAddr": named.nameserver}
            )
            it.on_send = answer_ok

        it.on_send, named.on_send = name_it, refuse_as_slave
        assert (await producer.send(message(0))).is_ok
        assert (len(it.sends), len(named.sends)) == (2, 1)
        # Nor is it when its connection is lost.
        it.on_send = name_it
        named.on_send = lambda _, request: request.channel.close("dies")
        assert (await producer.send(message(1))).is_ok
        assert (len(it.sends), len(named.sends)) == (4, 2)


async def test_an_address_that_no_nameserver_has_told_is_not_dialled() -> None:
    async with (
        odd_brokers() as it,
        odd_brokers() as stranger,
        open_producer(it.nameserver, "orders") as producer,
    ):

        def name_it(name: str, request: Request[SendMessageRequestV2]) -> None:
            request.reply(
                code=ResponseCode.SERVICE_NOT_AVAILABLE, extra={"masterAddr": stranger.nameserver}
            )
            it.on_send = answer_ok

        it.on_send = name_it
        assert (await producer.send(message(0))).is_ok
        assert (len(it.sends), stranger.sends) == (2, [])


async def test_a_name_that_gets_no_master_in_time_fails_the_send() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        await producer.prepare(TOPIC)
        it.on_send = refuse_as_slave
        with pytest.raises(SendFailedError, match="1 attempt, it is stored nowhere") as caught:
            await producer.send(message(0), timeout_s=0.3)
        (error,) = (error for _, error in caught.value.attempts)
        assert isinstance(error, ResponseError)
        assert error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        it.slaves = {"broker-a"}
        await producer.client.refresh_route(TOPIC)
        with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
            await producer.send(message(0), timeout_s=0.3)
        with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
            await producer.send_ordered(message(0), "key", timeout_s=0.3)
        it.slaves, it.on_send = set(), answer_ok
        assert (await producer.send(message(1))).is_ok


async def test_a_lone_master_that_is_gone_is_not_waited_for() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        it.addresses["broker-a"] = "127.0.0.1:1"
        with trio.fail_after(2), pytest.raises(SendFailedError, match="3 attempts"):
            await producer.send(message(0))


async def test_a_master_that_steps_down_is_not_left_alone_for_long() -> None:
    async with (
        odd_brokers(TWO) as it,
        open_producer(it.nameserver, "orders", avoids_slow_brokers=True) as producer,
    ):
        it.on_send = lambda name, request: (refuse_as_slave if name == "broker-a" else answer_ok)(
            name, request
        )
        while not any(name == "broker-a" for name, _ in it.sends):
            assert (await producer.send(message(0))).queue.broker_name == "broker-b"
        it.on_send = answer_ok
        with trio.fail_after(5):
            while (await producer.send(message(1))).queue.broker_name != "broker-a":
                pass


async def test_stored_but_not_as_well_as_it_should_be_is_a_result_or_retried() -> None:
    async with odd_brokers(TWO) as it:

        def badly(name: str, request: Request[SendMessageRequestV2]) -> None:
            code = ResponseCode.FLUSH_SLAVE_TIMEOUT if name == "broker-a" else 0
            answer_stored(request, code)

        it.on_send = badly
        async with open_producer(it.nameserver, "orders") as producer:
            statuses = {(await producer.send(message(0))).status for _ in range(8)}
            assert statuses == {SendStatus.OK, SendStatus.FLUSH_SLAVE_TIMEOUT}
        async with open_producer(it.nameserver, "orders", retries_when_not_ok=True) as producer:
            assert all([(await producer.send(message(0))).is_ok for _ in range(8)])


async def test_a_broker_that_failed_is_left_alone() -> None:
    async with (
        odd_brokers(TWO) as it,
        open_producer(it.nameserver, "orders", avoids_slow_brokers=True) as producer,
    ):

        def one_fails(name: str, request: Request[SendMessageRequestV2]) -> None:
            if name == "broker-a":
                request.reply(code=ResponseCode.SYSTEM_ERROR)
            else:
                answer_ok(name, request)

        it.on_send = one_fails
        for number in range(20):
            assert (await producer.send(message(number))).is_ok
        assert [name for name, _ in it.sends].count("broker-a") == 1


async def test_parts_of_a_batch_that_failed_are_told_beside_those_that_did_not() -> None:
    async with odd_brokers() as it:

        def some(name: str, request: Request[SendMessageRequestV2]) -> None:
            if len(it.sends) % 2:
                answer_ok(name, request)
            else:
                request.reply(code=ResponseCode.MESSAGE_ILLEGAL, remark="no")

        it.on_send = some
        async with open_producer(it.nameserver, "orders", message_bytes_max=150) as producer:
            with pytest.raises(BatchFailedError) as caught:
                await producer.send_batch([message(number) for number in range(6)])
        assert len(caught.value.results) == 3
        assert [each.body for each in caught.value.unacknowledged] == [b"m1", b"m3", b"m5"]


async def test_a_route_that_leads_nowhere_any_longer_is_told_as_such(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        await it.create_topic(TOPIC)
        await producer.send(message(0))
        await it.create_topic(TOPIC, perm=4)
        await producer.client.refresh_route(TOPIC)
        with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
            await producer.send(message(1))
        await it.create_topic(TOPIC, perm=6)
        assert (await producer.send(message(2))).is_ok


# --- cancelled and closed --------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(12))
async def test_a_send_cancelled_at_any_step_leaves_nothing_behind(
    tmp_path: Path, steps: int
) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        for send in (
            lambda: producer.send(message(0)),
            lambda: producer.send_ordered(message(0), "key"),
            lambda: producer.send_batch([message(0), message(1)]),
            lambda: producer.send_oneway(message(0)),
            lambda: producer.send_soon(message(0)),
            lambda: producer.prepare(TOPIC),
        ):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send)
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        await until(lambda: not producer._pipeline.under_way)
        # It works as before.
        assert (await producer.send(message(2))).is_ok


async def test_a_cancelled_send_does_not_count_any_longer() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        it.on_send = answer_never
        with trio.move_on_after(0.05):
            await producer.send(message(0))
        with trio.move_on_after(0.05):
            await producer.send_batch([message(0), message(1)])
        assert producer._pipeline.under_way == 0
        started = trio.current_time()
    # So leaving does not wait for it.
    assert trio.current_time() - started < 2


async def test_leaving_waits_for_sends_under_way_but_not_for_ever() -> None:
    async with odd_brokers() as it:
        it.on_send = answer_never
        outcomes: list[SendResult | RmqError] = []
        started = trio.current_time()
        async with open_producer(it.nameserver, "orders", send_timeout_s=0.3) as producer:
            for number in range(5):
                producer.submit(message(number), outcomes.append)
        assert 0.2 < trio.current_time() - started < 4
        assert len(outcomes) == 5
        assert all(isinstance(outcome, SendFailedError) for outcome in outcomes)


async def test_a_cancelled_producer_completes_all_and_leaves_no_task_and_no_socket() -> None:
    async with odd_brokers() as it:
        it.on_send = answer_never
        outcomes: list[SendResult | RmqError] = []
        tasks = trio.lowlevel.current_statistics().tasks_living
        sockets = _sockets()
        with trio.move_on_after(0.2):
            async with open_producer(it.nameserver, "orders") as producer:
                for number in range(5):
                    producer.submit(message(number), outcomes.append)
                # These wait in line for a route.
                await trio.lowlevel.checkpoint()
                producer.submit(Message("Other", b"x"), outcomes.append)
                await trio.sleep_forever()
        assert len(outcomes) == 6
        for outcome in outcomes:
            assert isinstance(outcome, SendFailedError)
            assert isinstance(outcome.attempts[-1][1], ClientClosedError)
            assert outcome.may_be_stored
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        await until(lambda: _sockets() <= sockets)


async def test_a_producer_cancelled_before_any_broker_was_found_says_it_is_closed() -> None:
    outcomes: list[SendResult | RmqError] = []
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener:
        with trio.move_on_after(0.1):
            async with open_producer(
                f"127.0.0.1:{listener.socket.getsockname()[1]}", "orders"
            ) as producer:
                producer.submit(message(0), outcomes.append)
                await trio.sleep_forever()
    (outcome,) = outcomes
    assert isinstance(outcome, ClientClosedError)


async def test_closing_while_others_send_tells_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, trio.open_nursery() as nursery:
        results: list[SendResult] = []
        closed = 0

        async def send(producer: Producer) -> None:
            nonlocal closed
            try:
                while True:
                    results.append(await producer.send(message(len(results))))
            except ClientClosedError:
                closed += 1

        async with open_producer(it.nameserver, "orders") as producer:
            for _ in range(8):
                nursery.start_soon(send, producer)
            await until(lambda: len(results) > 50)
        await until(lambda: closed == 8)
        assert len(await stored(it)) == len(results)


def _sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - what is listed may be gone at once
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")  # noqa: PTH115
        except OSError:
            continue
    return found


# --- clocks ----------------------------------------------------------------------------------


async def test_a_clock_that_jumps_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        real = time.time_ns
        ids = set()
        for jump_s in (0, 86_400 * 40, -86_400 * 40, 3600, -3600, -1):
            monkeypatch.setattr(time, "time_ns", lambda jump=jump_s: real() + jump * 10**9)
            started = trio.current_time()
            result = await producer.send(message(jump_s))
            assert result.is_ok
            assert trio.current_time() - started < 3
            ids.add(result.message_id)
            pending = await producer.send_soon(message(jump_s))
            assert (await pending.wait()).is_ok
        assert len(ids) == 6
