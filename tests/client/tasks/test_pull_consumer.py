"""Raw pulls: one call, one answer, one error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.consuming.pulls import PullStatus
from rmq.client.core.consuming.subscription_set import Sql
from rmq.client.tasks.pull_consumer import PullConsumer, pulling
from rmq.client.trio.opening import open_client, open_pull_consumer
from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    IllegalMessageError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
)
from rmq.model.names import retry_topic
from rmq.remoting.bodies import ConsumerRunningInfo, ConsumeType
from rmq.remoting.client import open_client as open_peer
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import GetConsumerRunningInfoRequest
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import (
    TOPIC,
    bodies,
    cancelled_at,
    numbered,
    place,
    put,
    queue,
    scripted_broker,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path


async def test_queues_are_read_from_where_the_caller_says(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=2)
        await put(it, queue(1), numbered(10))
        async with open_pull_consumer(it.nameserver, "g") as consumer:
            assert await consumer.fetch_queues(TOPIC) == (queue(0), queue(1))
            result = await consumer.pull(queue(1), 4, max_messages=3)
            assert result.status is PullStatus.FOUND
            assert bodies(result.messages) == numbered(3, first=4)
            assert (result.next_offset, result.min_offset, result.max_offset) == (7, 0, 10)
            nothing = await consumer.pull(queue(1), 10)
            assert (nothing.status, nothing.messages) == (PullStatus.NO_NEW, [])
            beyond = await consumer.pull(queue(1), 99)
            assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 10)


async def test_messages_are_filtered_by_tags_and_conditions(tmp_path: Path) -> None:
    async with cluster(tmp_path, enablePropertyFilter="true") as it:
        await it.create_topic(TOPIC, queues=1)
        for text in numbered(4):
            await put(it, queue(), [text], tag=f"t{text}", properties={"name": text})
        async with open_pull_consumer(it.nameserver, "g") as consumer:
            tagged = await consumer.pull(queue(), 0, "tm1 || tm3")
            assert bodies(tagged.messages) == ["m1", "m3"]
            named = await consumer.pull(queue(), 0, Sql("name = 'm2'"))
            assert bodies(named.messages) == ["m2"]
            none = await consumer.pull(queue(), 0, "nobody")
            assert (none.status, none.next_offset) == (PullStatus.NO_MATCH, 4)
            with pytest.raises(ConfigError, match="says nothing"):
                await consumer.pull(queue(), 0, "||")
            with pytest.raises(ResponseError, match="parse the consumer"):
                await consumer.pull(queue(), 0, Sql("name ="))


async def test_a_pull_may_wait_for_messages(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, trio.open_nursery() as nursery:
        await it.create_topic(TOPIC, queues=1)
        async with open_pull_consumer(it.nameserver, "g") as consumer:

            async def put_one() -> None:
                await until(lambda: len(it.brokers["broker-a"].pulls.holds))
                await put(it, queue(), ["late"])

            nursery.start_soon(put_one)
            result = await consumer.pull_waiting(queue(), 0)
            assert bodies(result.messages) == ["late"]


async def test_offsets_are_kept_and_found(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_pull_consumer(it.nameserver, "g") as consumer:
            assert await consumer.first_stored_at_ms(queue()) is None
            before_ms = time.time_ns() // 1_000_000
            await put(it, queue(), numbered(5))
            assert (await consumer.min_offset(queue()), await consumer.max_offset(queue())) == (
                0,
                5,
            )
            first_ms = await consumer.first_stored_at_ms(queue())
            assert first_ms is not None
            assert first_ms >= before_ms
            assert await consumer.offset_at(queue(), first_ms - 1) == 0
            await consumer.update_offset(queue(), 3)
            assert await consumer.fetch_offset(queue()) == 3
            await consumer.update_offset(queue(), 4, is_oneway=True)
            assert await consumer.fetch_offset(queue()) == 4


async def test_a_message_that_is_sent_back_comes_again_from_the_retry_topic(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, messageDelayLevel="0s 0s 0s") as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(2))
        async with open_pull_consumer(it.nameserver, "g") as consumer:
            first, second = (await consumer.pull(queue(), 0)).messages
            await consumer.send_back(first, 1)
            await consumer.send_back(second, -1)
            retry = queue(topic=retry_topic("g"))
            await until_there(consumer, retry.topic)
            (again,) = (await consumer.pull_waiting(retry, 0)).messages
            assert (again.topic, again.body, again.reconsume_times) == (TOPIC, b"m0", 1)
            dead = queue(topic="%DLQ%g")
            (given_up,) = (await consumer.pull_waiting(dead, 0)).messages
            assert given_up.body == b"m1"


async def until_there(consumer: PullConsumer, topic: str) -> None:
    """Wait until nameservers know of a topic."""
    with trio.fail_after(20):
        while True:
            try:
                await consumer.fetch_queues(topic)
            except NoRouteError:
                await trio.sleep(0.05)
            else:
                return


async def test_brokers_and_operators_know_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmq.client.tasks.client.FIRST_BEAT_S", 0.1)
    async with cluster(tmp_path) as it, open_peer() as peer:
        await it.create_topic(TOPIC, queues=1)
        async with open_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.fetch_queues(TOPIC)
            clients = it.brokers["broker-a"].clients
            await until(lambda: clients.consumer_group("g"))
            group = clients.consumer_group("g")
            assert group is not None
            assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
            (client_id,) = group.client_ids()
            assert client_id.endswith("@STREAM")
            answer = await peer.request(
                it.address(),
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequest(consumer_group="g", client_id=client_id),
            )
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert clients.consumer_group("g") is None


# --- bad input -------------------------------------------------------------------------------


async def test_calls_that_make_no_sense_say_so() -> None:
    with pytest.raises(IllegalMessageError, match="group"):
        async with open_pull_consumer("127.0.0.1:1", "no group"):
            pass
    async with open_pull_consumer("127.0.0.1:1", "g") as consumer:
        with pytest.raises(ConfigError, match="offset: -1 is below 0"):
            await consumer.pull(queue(), -1)
        with pytest.raises(ConfigError, match="max_messages: 0 is below 1"):
            await consumer.pull(queue(), 0, max_messages=0)
        with pytest.raises(ConfigError, match="suspend_s: 20 is not 0 or more, and below"):
            await consumer.pull(queue(), 0, suspend_s=20)
        with pytest.raises(ConfigError, match="offset: -1 is below 0"):
            await consumer.update_offset(queue(), -1)


async def test_nobody_there_is_said_with_what_was_tried() -> None:
    async with open_pull_consumer("127.0.0.1:1;127.0.0.1:2", "g") as consumer:
        for call in (consumer.min_offset, consumer.max_offset, consumer.fetch_offset):
            with pytest.raises(NoNameserverError) as caught:
                await call(queue())
            assert set(caught.value.attempts) == {"127.0.0.1:1", "127.0.0.1:2"}


async def test_topics_and_queues_that_do_not_exist_are_named(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_pull_consumer(it.nameserver, "g") as consumer:
            with pytest.raises(NoRouteError, match="topic Nowhere"):
                await consumer.fetch_queues("Nowhere")
            with pytest.raises(NoRouteError, match="topic Nowhere"):
                await consumer.pull(queue(topic="Nowhere"), 0)
            assert list(consumer.topics()) == [], "a topic that is not there is not kept fresh"
            with pytest.raises(NoRouteError, match="no broker broker-z is known"):
                await consumer.pull(queue(broker="broker-z"), 0)
            with pytest.raises(ResponseError):
                await consumer.pull(queue(9), 0)


async def test_a_broker_that_dies_mid_pull_is_told_of(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, trio.open_nursery() as nursery:
        await it.create_topic(TOPIC, queues=1)
        async with open_pull_consumer(it.nameserver, "g") as consumer:

            async def kill() -> None:
                await until(lambda: len(it.brokers["broker-a"].pulls.holds))
                await it.kill()
                killed.set()

            killed = trio.Event()
            nursery.start_soon(kill)
            with pytest.raises((ConnectFailedError, ConnectionLostError)):
                await consumer.pull_waiting(queue(), 0)
            await killed.wait()
            with pytest.raises((ConnectFailedError, ConnectionLostError)):
                await consumer.pull(queue(), 0)
            await it.start()
            assert (await consumer.pull(queue(), 0)).status is PullStatus.NO_NEW


async def test_garbage_and_silence_are_told_of() -> None:
    async with scripted_broker() as it, open_pull_consumer(it.address, "g") as consumer:
        it.on_pull = lambda request: request.reply(place(8), body=b"x" * 200)
        with pytest.raises(BadAnswerError, match="offset 7"):
            await consumer.pull(queue(), 7)
        it.on_pull = lambda request: request.reply(body=b"x")
        with pytest.raises(BadAnswerError, match="PULL_MESSAGE"):
            await consumer.pull(queue(), 7)
        it.on_pull = lambda request: request.defer()
        with pytest.raises(RequestTimeoutError, match=r"no answer within 0\.05 s"):
            await consumer.pull(queue(), 7, timeout_s=0.05)


async def test_wherever_it_is_cancelled_nothing_is_left_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(3))

        async def everything() -> None:
            async with open_pull_consumer(it.nameserver, "g") as consumer:
                await consumer.fetch_queues(TOPIC)
                result = await consumer.pull(queue(), 0)
                await consumer.update_offset(queue(), result.next_offset)

        step = 1
        with trio.fail_after(30):
            while not await cancelled_at(step, everything):
                step += 1
        assert step > 5
        assert it.brokers["broker-a"].offsets.offsets("g", TOPIC) == {0: 3}
        await until(lambda: not it.brokers["broker-a"].clients.consumer_groups)


async def test_a_closed_consumer_says_so_and_leaves_a_shared_client_running(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic(TOPIC, queues=1)
        async with pulling(client, "g") as consumer:
            await consumer.pull(queue(), 0)
        with pytest.raises(ClientClosedError, match="pull consumer of group g is closed"):
            await consumer.pull(queue(), 0)
        with pytest.raises(ClientClosedError):
            await consumer.fetch_queues(TOPIC)
        assert await client.route(TOPIC) is not None
