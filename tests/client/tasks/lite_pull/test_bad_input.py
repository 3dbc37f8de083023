"""Lite pull when something is wrong: nobody there, nonsense, deaths, cancellations, clocks."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.client.core.consuming.config import ConsumeFrom, LitePullConfig
from rmq.client.tasks.lite_pull import LitePullConsumer, lite_pulling
from rmq.client.trio.opening import open_client, open_lite_pull_consumer
from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ClientError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    NoNameserverError,
    NoRouteError,
    ResponseError,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import (
    TOPIC,
    bodies,
    cancelled_at,
    no_new,
    numbered,
    place,
    poll_all,
    put,
    queue,
    record,
    scripted_broker,
    until,
)
from tests.ha.pair_kit import TOPIC as PAIR_TOPIC
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.headers import PullMessageRequest
    from rmq.remoting.request import Request

FIRST = ConsumeFrom.FIRST


# --- nobody there ----------------------------------------------------------------------------


async def test_without_a_nameserver_nothing_hangs() -> None:
    with pytest.raises(ConfigError, match="no address is given"):
        async with open_lite_pull_consumer("", "g"):
            pass
    async with open_lite_pull_consumer("127.0.0.1:1", "g") as consumer:
        with pytest.raises(NoNameserverError, match=r"cannot connect to 127\.0\.0\.1:1"):
            await consumer.subscribe(TOPIC)
        with pytest.raises(NoNameserverError):
            await consumer.assign([queue()])
        assert await consumer.poll(0.01) == []


async def test_a_topic_that_does_not_exist_leaves_no_trace(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_lite_pull_consumer(it.nameserver, "g") as consumer:
        with pytest.raises(NoRouteError, match="topic Nowhere: no broker has it") as caught:
            await consumer.subscribe("Nowhere")
        assert caught.value.hint is not None
        with pytest.raises(NoRouteError):
            await consumer.queues("Nowhere")
        with pytest.raises(NoRouteError):
            await consumer.committed(queue(topic="Nowhere"))
        await it.create_topic(TOPIC, queues=1)
        await consumer.subscribe(TOPIC)
        assert consumer.assignment == (queue(),)


async def test_a_closed_consumer_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.subscribe(TOPIC)
        for call in (consumer.poll, consumer.commit, consumer.__anext__):
            with pytest.raises(ClientClosedError, match="lite pull consumer of group g is closed"):
                await call()
        with pytest.raises(ClientClosedError):
            await consumer.subscribe(TOPIC)
        with pytest.raises(ClientClosedError):
            consumer.pause([])


async def test_closing_ends_a_poll_that_waits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, trio.open_nursery() as nursery:
        await it.create_topic(TOPIC, queues=1)
        errors: list[ClientError] = []

        async def iterate(consumer: LitePullConsumer) -> None:
            try:
                async for _ in consumer:
                    pass
            except ClientClosedError as exc:
                errors.append(exc)

        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.subscribe(TOPIC)
            nursery.start_soon(iterate, consumer)
            await trio.testing.wait_all_tasks_blocked(0.01)
        await until(lambda: errors)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_closing_ends_a_subscription_that_is_under_way(is_shared: bool) -> None:
    async with scripted_broker() as it, trio.open_nursery() as nursery:
        held: list[Request[EmptyHeader]] = []
        it.on_heartbeat = held.append
        errors: list[ClientError] = []

        async def subscribe(consumer: LitePullConsumer) -> None:
            try:
                await consumer.subscribe(TOPIC)
            except ClientClosedError as exc:
                errors.append(exc)

        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(open_client(it.address))
            inner = await stack.enter_async_context(AsyncExitStack())
            consumer = await inner.enter_async_context(
                lite_pulling(client, LitePullConfig(group="g"))
                if is_shared
                else open_lite_pull_consumer(it.address, "g")
            )
            nursery.start_soon(subscribe, consumer)
            await until(lambda: held)
            await inner.aclose()
            for request in held:
                request.reply()
            await until(lambda: errors)
        assert consumer.assignment == ()


# --- brokers that die ------------------------------------------------------------------------


async def test_a_broker_that_dies_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=2)
        await put(it, queue(0), numbered(50))
        async with open_lite_pull_consumer(
            it.nameserver, "g", consume_from=FIRST, pull_pause_s=0.05
        ) as consumer:
            await consumer.subscribe(TOPIC)
            seen = bodies(await poll_all(consumer, 20, max_messages=20))
            await it.kill()
            await until(lambda: len(consumer.statistics().failures) == 2)
            for error in consumer.statistics().failures.values():
                assert isinstance(error, ConnectFailedError | ConnectionLostError | NoRouteError)
            seen += bodies(await consumer.poll(1, 5))
            assert seen == numbered(25), "what was read ahead is still there"
            await it.start()
            seen += bodies(await poll_all(consumer, 25))
            assert seen == numbered(50)
            await put(it, queue(1), ["after"])
            assert bodies(await poll_all(consumer, 1)) == ["after"]
            await until(lambda: not consumer.statistics().failures)
            assert consumer.assignment == (queue(0), queue(1))


async def test_other_brokers_go_on_when_one_dies(tmp_path: Path) -> None:
    async with cluster(tmp_path, ("broker-a", "broker-b")) as it:
        for name in list(it.brokers):
            await it.create_topic(TOPIC, queues=1, broker=name)
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC)
            assert len(consumer.assignment) == 2
            await it.kill("broker-b")
            await put(it, queue(), numbered(20))
            assert bodies(await poll_all(consumer, 20)) == numbered(20)


# --- brokers that answer nonsense ------------------------------------------------------------


async def fails_with(
    error: type[ClientError], text: str, answer: Callable[[Request[PullMessageRequest]], None]
) -> None:
    """A consumer says what is wrong with an answer, goes on, and takes the next sound one."""
    async with scripted_broker() as it:
        it.offsets[0] = 7
        it.on_pull = answer
        async with open_lite_pull_consumer(it.address, "g", pull_pause_s=0.02) as consumer:
            await consumer.subscribe(TOPIC)
            await until(lambda: consumer.statistics().failures)
            failure = consumer.statistics().failures[queue()]
            assert isinstance(failure, error)
            assert text in str(failure)
            assert await consumer.poll(0.01) == []
            assert await consumer.position(queue()) == 7

            def sound(request: Request[PullMessageRequest]) -> None:
                assert request.header.queue_offset == 7
                it.on_pull = no_new
                request.reply(place(8), body=record(7, "sound"))

            it.on_pull = sound
            assert bodies(await poll_all(consumer, 1)) == ["sound"]
            assert not consumer.statistics().failures
        assert it.offsets[0] == 8


async def test_a_body_that_is_no_message_is_refused() -> None:
    await fails_with(
        BadAnswerError, "offset 7", lambda request: request.reply(place(8), body=b"x" * 200)
    )


async def test_an_answer_without_a_header_is_refused() -> None:
    await fails_with(BadAnswerError, "PULL_MESSAGE", lambda request: request.reply(body=b"x"))


async def test_found_without_messages_is_refused() -> None:
    await fails_with(BadAnswerError, "none is there", lambda request: request.reply(place(8)))


async def test_an_answer_that_would_repeat_itself_for_ever_is_refused() -> None:
    await fails_with(
        BadAnswerError,
        "goes on at offset 7",
        lambda request: request.reply(place(7), body=record(7, "again")),
    )


async def test_an_offset_below_0_is_refused() -> None:
    await fails_with(
        BadAnswerError,
        "goes on at offset -1",
        lambda request: request.reply(place(-1), code=ResponseCode.PULL_OFFSET_MOVED),
    )


async def test_a_refusal_is_told() -> None:
    await fails_with(
        ResponseError,
        "the group is not allowed",
        lambda request: request.reply(
            code=ResponseCode.NO_PERMISSION, remark="the group is not allowed"
        ),
    )


async def test_a_connection_that_is_cut_mid_pull_is_made_again() -> None:
    await fails_with(
        ConnectionLostError, "closed", lambda request: request.channel.close("for the test")
    )


async def test_garbage_on_the_connection_ends_it() -> None:
    await fails_with(
        ConnectionLostError,
        "protocol error",
        lambda request: request.channel.send(b"\xff" * 64),
    )


async def test_what_is_sound_before_a_broken_record_is_handed_out() -> None:
    async with scripted_broker() as it:
        it.offsets[0] = 0

        def half_broken(request: Request[PullMessageRequest]) -> None:
            if request.header.queue_offset == 0:
                request.reply(place(4), body=record(0, "a") + record(1, "b") + b"\xff" * 200)
            elif request.header.queue_offset == 2:
                request.reply(place(4), body=b"\xff" * 200)
            else:
                no_new(request)

        it.on_pull = half_broken
        async with open_lite_pull_consumer(it.address, "g", pull_pause_s=0.02) as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await poll_all(consumer, 2)) == ["a", "b"]
            await until(lambda: consumer.statistics().failures)
            assert await consumer.position(queue()) == 2, "nothing is skipped"


async def test_a_place_that_is_gone_is_left_for_the_nearest_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted_broker() as it:
        it.offsets[0] = 7

        def moved(request: Request[PullMessageRequest]) -> None:
            if request.header.queue_offset == 7:
                request.reply(place(40), code=ResponseCode.PULL_OFFSET_MOVED)
            elif request.header.queue_offset == 40:
                request.reply(place(41), body=record(40, "m40"))
            else:
                no_new(request)

        it.on_pull = moved
        async with open_lite_pull_consumer(it.address, "g") as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await poll_all(consumer, 1)) == ["m40"]
    assert "has no offset 7 but 0 to 1000, so it is read from 40 on" in caplog.text


async def test_a_broker_that_does_not_hold_pulls_is_not_asked_without_end() -> None:
    async with scripted_broker() as it:
        it.on_pull = lambda request: request.reply(
            place(request.header.queue_offset), code=ResponseCode.PULL_NOT_FOUND
        )
        async with open_lite_pull_consumer(it.address, "g") as consumer:
            await consumer.subscribe(TOPIC)
            await consumer.poll(0.3)
        assert 2 <= len(it.asked_for(RequestCode.PULL_MESSAGE)) <= 10


async def test_a_busy_broker_is_asked_again_soon() -> None:
    async with scripted_broker() as it:
        it.offsets[0] = 0
        refused = 0

        def busy(request: Request[PullMessageRequest]) -> None:
            nonlocal refused
            refused += 1
            if refused < 4:
                request.reply(code=ResponseCode.FLOW_CONTROL, remark="busy")
            else:
                it.on_pull = no_new
                request.reply(place(1), body=record(0, "at last"))

        it.on_pull = busy
        async with open_lite_pull_consumer(it.address, "g", pull_pause_s=60) as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await poll_all(consumer, 1)) == ["at last"]


# --- cancellations and clocks ----------------------------------------------------------------


async def test_a_poll_that_is_cancelled_has_taken_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC)
            seen: list[str] = []
            with trio.fail_after(30):
                for number in range(40):
                    await put(it, queue(), [f"m{number}"])
                    while len(seen) <= number:
                        with trio.move_on_after(0.0005 * (1 + number % 5)):
                            seen += bodies(await consumer.poll(1, 3))
            assert seen == numbered(40)


async def test_wherever_it_is_cancelled_nothing_is_lost_or_left_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(30))
        offsets = it.brokers["broker-a"].offsets
        is_done = False
        step = 0
        while not is_done:
            step += 1
            group = f"g{step}"
            done_with = 0

            async def everything(group: str = group) -> None:
                nonlocal done_with
                async with open_lite_pull_consumer(
                    it.nameserver, group, consume_from=FIRST
                ) as consumer:
                    await consumer.subscribe(TOPIC)
                    while done_with < 10:
                        done_with += len(await consumer.poll(1, 5))
                    await consumer.commit()
                    await consumer.position(queue())
                    await consumer.seek(queue(), 10)
                    while done_with < 20:
                        done_with += len(await consumer.poll(1, 5))
                    await consumer.unsubscribe(TOPIC)

            with trio.fail_after(30):
                is_done = await cancelled_at(step, everything)
            assert offsets.offsets(group, TOPIC).get(0, 0) <= done_with
        assert step > 10
        assert offsets.offsets(f"g{step}", TOPIC) == {0: 20}
        await until(lambda: not it.brokers["broker-a"].clients.consumer_groups)


async def test_clocks_may_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    jump_ns = 0
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump_ns)
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_lite_pull_consumer(
            it.nameserver, "g", consume_from=FIRST, commit_interval_s=1
        ) as consumer:
            await consumer.subscribe(TOPIC)
            for number, hours in enumerate((-48, 48, -1)):
                jump_ns = hours * 3_600 * 10**9
                await put(it, queue(), [f"m{number}"])
                assert bodies(await poll_all(consumer, 1)) == [f"m{number}"]
                await consumer.subscribe(TOPIC, "*")
            offsets = it.brokers["broker-a"].offsets
            await consumer.poll(0)
            await until(lambda: offsets.offsets("g", TOPIC) == {0: 3})


async def test_a_consumer_on_a_shared_client_leaves_the_client_running(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(3))
        for _ in range(2):
            config = LitePullConfig(group="g", consume_from=FIRST, pull_messages_max=1)
            async with lite_pulling(client, config) as consumer:
                await consumer.subscribe(TOPIC)
                await poll_all(consumer, 1, max_messages=1)
        assert await client.route(TOPIC) is not None
        assert it.brokers["broker-a"].offsets.offsets("g", TOPIC) == {0: 2}


async def test_a_slave_serves_while_the_master_is_away(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("master", "SYNC_MASTER")
        slave = await it.start("slave", "SLAVE")
        await it.create_topic(master, PAIR_TOPIC)
        await it.in_sync(master)
        assert set(await it.send(master, 100)) == {ResponseCode.SUCCESS}
        await until(lambda: slave.topics.get(PAIR_TOPIC) is not None)
        async with open_lite_pull_consumer(
            it.nameserver, "g", consume_from=FIRST, queue_messages_max=5, pull_pause_s=0.1
        ) as consumer:
            await consumer.subscribe(PAIR_TOPIC)
            seen = bodies(await poll_all(consumer, 10, max_messages=10))
            await it.stop("master")
            seen += bodies(await poll_all(consumer, 90))
            assert len(set(seen)) == 100
            await consumer.commit()
            assert sum(slave.offsets.offsets("g", PAIR_TOPIC).values()) == 100
