"""The producer with real brokers: every way of sending, what is stored, and what is refused."""

from __future__ import annotations

import gc
import logging
import pickle
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message, SendResult
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.core.producing.selection import by_hash
from rmq.client.core.trace import MessageKind
from rmq.client.tasks.pending import Pending
from rmq.client.tasks.producer import producing
from rmq.client.trio.loop import remoting_of
from rmq.client.trio.opening import open_client, open_producer
from rmq.errors import (
    ClientClosedError,
    IllegalMessageError,
    NoNameserverError,
    NoRouteError,
    RmqError,
    SendFailedError,
    TooManyRequestsError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.codes import Serialization
from rmq.remoting.signing import Credentials
from tests.client.cluster_kit import cluster
from tests.client.producer_kit import TOPIC, Notes, answer_ok, bodies, odd_brokers, stored, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage
    from rmq.remoting.headers import SendMessageRequestV2
    from rmq.remoting.request import Request


# --- every way of sending --------------------------------------------------------------------


@pytest.mark.parametrize("serialization", [Serialization.JSON, Serialization.ROCKETMQ])
async def test_a_message_arrives_with_all_it_has(
    tmp_path: Path, serialization: Serialization
) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC)
        config = ClientConfig(nameservers=it.nameserver, serialization=serialization)
        message = Message(
            TOPIC, "héllo".encode(), "new", ("k1", "k2"), 0, {"color": "blue"}, flag=7
        )
        async with open_producer(config, "orders") as producer:
            result = await producer.send(message)
        assert result.is_ok
        assert result.queue.broker_name == "broker-a"
        (found,) = await stored(it)
        assert (found.body, found.tag, found.keys, found.flag) == (
            message.body,
            "new",
            ("k1", "k2"),
            7,
        )
        assert found.properties["color"] == "blue"
        assert found.message_id == result.message_id
        assert found.offset_message_id == result.offset_message_id
        assert (found.queue, found.queue_offset) == (result.queue, result.queue_offset)


async def test_a_long_body_is_compressed_and_read_back(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        async with open_producer(it.nameserver, "orders") as producer:
            await producer.send(Message(TOPIC, b"long " * 2000))
        (found,) = await stored(it)
        assert found.is_compressed
        assert len(found.raw_body) < 200
        assert found.body == b"long " * 2000


async def test_messages_go_to_queues_in_turn(tmp_path: Path) -> None:
    async with cluster(tmp_path, ("broker-a", "broker-b")) as it:
        for name in it.brokers:
            await it.create_topic(TOPIC, queues=2, broker=name)
        async with open_producer(it.nameserver, "orders") as producer:
            queues = [(await producer.send(Message(TOPIC, b"x"))).queue for _ in range(8)]
            assert set(queues) == set(await producer.queues(TOPIC))
        assert queues[:4] == queues[4:]
        assert len(set(queues)) == 4


async def test_a_topic_is_created_by_the_first_send(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        await producer.send(Message("Brand-New", b"x"))
        assert bodies(await stored(it, "Brand-New")) == ["x"]


async def test_pipelined_sends_arrive_in_order_and_are_waited_for(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_producer(it.nameserver, "orders", pending_max=50) as producer:
            pendings = [
                await producer.send_soon(Message(TOPIC, f"m{number}".encode()))
                for number in range(500)
            ]
            assert (await pendings[0].wait()).queue_offset == 0
        # Leaving has waited for the rest.
        results = [pending.outcome for pending in pendings]
        assert [
            result.queue_offset for result in results if isinstance(result, SendResult)
        ] == list(range(500))
        assert bodies(await stored(it, queues=1)) == [f"m{number}" for number in range(500)]


async def test_submitted_sends_call_back_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        outcomes: list[SendResult | RmqError] = []
        async with open_producer(it.nameserver, "orders") as producer:
            # The route is not known yet: all of them wait in line for it.
            for number in range(100):
                producer.submit(Message(TOPIC, f"m{number}".encode()), outcomes.append)
            assert not outcomes
        assert len(outcomes) == 100
        assert all(isinstance(outcome, SendResult) for outcome in outcomes)
        assert sorted(bodies(await stored(it))) == sorted(f"m{number}" for number in range(100))


async def test_what_a_callback_raises_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        done: list[SendResult | RmqError] = []

        def fail(outcome: SendResult | RmqError) -> None:
            raise ValueError("callback is broken")

        with caplog.at_level(logging.ERROR):
            async with open_producer(it.nameserver, "orders") as producer:
                producer.submit(Message(TOPIC, b"1"), fail)
                producer.submit(Message(TOPIC, b"2"), done.append)
        assert len(done) == 1
        assert "callback is broken" in caplog.text
        assert len(await stored(it)) == 2


async def test_one_way_sends_arrive(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        queue = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
        async with open_producer(it.nameserver, "orders") as producer:
            await producer.send_oneway(Message(TOPIC, b"in turn"))
            await producer.send_oneway(Message(TOPIC, b"to a queue"), queue=queue)
            # One that is answered, behind them on the same connection.
            await producer.send(Message(TOPIC, b"last"))
        assert bodies(await stored(it, queues=1)) == ["in turn", "to a queue", "last"]


async def test_a_batch_is_stored_in_one_queue_in_order(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC)
        async with open_producer(it.nameserver, "orders") as producer:
            (result,) = await producer.send_batch(
                [Message(TOPIC, f"m{number}".encode(), tag="b") for number in range(20)]
            )
        found = await stored(it)
        assert bodies(found) == [f"m{number}" for number in range(20)]
        assert {message.queue for message in found} == {result.queue}
        assert ",".join(message.message_id for message in found) == result.message_id
        assert ",".join(message.offset_message_id for message in found) == result.offset_message_id


async def test_a_large_batch_is_sent_in_parts(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_producer(it.nameserver, "orders", message_bytes_max=3000) as producer:
            results = await producer.send_batch([Message(TOPIC, b"x" * 500) for _ in range(40)])
        # An entry takes 598 bytes at most.
        assert len(results) == 8
        assert sorted(result.queue_offset for result in results) == list(range(0, 40, 5))
        assert len(await stored(it, queues=1)) == 40


async def test_messages_of_a_key_go_to_one_queue_in_order(tmp_path: Path) -> None:
    async with cluster(tmp_path, ("broker-a", "broker-b")) as it:
        for name in it.brokers:
            await it.create_topic(TOPIC, broker=name)
        async with open_producer(it.nameserver, "orders") as producer:
            queues = await producer.queues(TOPIC)
            for number in range(30):
                key = f"order{number % 3}"
                message = Message(TOPIC, f"{key}: {number}".encode())
                result = await producer.send_ordered(message, key)
                assert result.queue == by_hash(queues, message, key)
            last = await producer.send_ordered(
                Message(TOPIC, b"own choice"), 7, lambda queues, _, key: queues[int(key)]
            )
            assert last.queue == queues[7]
        by_key: dict[str, list[int]] = {}
        for body in bodies(await stored(it)):
            key, _, number_text = body.partition(": ")
            if number_text:
                by_key.setdefault(key, []).append(int(number_text))
        assert by_key == {f"order{key}": list(range(key, 30, 3)) for key in range(3)}


async def test_what_a_selector_raises_is_raised_and_nothing_is_sent(tmp_path: Path) -> None:
    def broken(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
        raise KeyError(key)

    async with cluster(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        await it.create_topic(TOPIC)
        with pytest.raises(KeyError):
            await producer.send_ordered(Message(TOPIC, b"x"), 1, broken)
        with pytest.raises(IllegalMessageError, match="a queue of topic Other"):
            await producer.send_ordered(
                Message(TOPIC, b"x"),
                1,
                lambda *_: MessageQueue(topic="Other", broker_name="broker-a", queue_id=0),
            )
        assert not await stored(it)


async def test_a_delayed_message_waits_for_its_time(tmp_path: Path) -> None:
    async with cluster(tmp_path, messageDelayLevel="1s 2s") as it:
        await it.create_topic(TOPIC)
        async with open_producer(it.nameserver, "orders") as producer:
            await producer.send(Message(TOPIC, b"later", delay_level=1))
            await producer.send(Message(TOPIC, b"now"))
            assert bodies(await stored(it)) == ["now"]
            found: list[ReceivedMessage] = []
            with trio.fail_after(20):
                while len(found) < 2:
                    found = await stored(it)
        assert sorted(bodies(found)) == ["later", "now"]


async def test_two_producers_share_a_client_and_its_connection(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        async with (
            producing(client, ProducerConfig(group="one")) as one,
            producing(client, ProducerConfig(group="other")) as other,
        ):
            await one.send(Message(TOPIC, b"1"))
            await other.send(Message(TOPIC, b"2"))
            await client.beat()
            known = it.brokers["broker-a"].clients
            assert len(known.producer_channels("one")) == len(known.producer_channels("other")) == 1
            # The nameserver's and the broker's.
            assert remoting_of(client).statistics().connections == 2
        assert known.producer_channels("one") == known.producer_channels("other") == ()


async def test_a_new_broker_is_told_of_the_group_soon(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        # The client's first heartbeat is over: the next one is 30 s away.
        await client.beat()
        async with producing(client, ProducerConfig(group="orders")) as producer:
            await producer.send(Message(TOPIC, b"x"))
            known = it.brokers["broker-a"].clients
            await until(lambda: known.producer_channels("orders"))


# --- what is refused -------------------------------------------------------------------------


async def test_what_no_broker_would_take_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        large = Message(TOPIC, b"x" * (4 * 1024**2 + 1))
        for send in (producer.send, producer.send_soon, producer.send_oneway):
            with pytest.raises(IllegalMessageError, match="4194305 bytes"):
                await send(large)
        with pytest.raises(IllegalMessageError, match="4194305 bytes"):
            producer.submit(large, lambda outcome: None)
        with pytest.raises(IllegalMessageError, match="is empty"):
            Message(TOPIC, b"")
        with pytest.raises(IllegalMessageError, match="no messages"):
            await producer.send_batch([])
        with pytest.raises(IllegalMessageError, match="a queue of topic U"):
            await producer.send(
                Message(TOPIC, b"x"),
                queue=MessageQueue(topic="U", broker_name="broker-a", queue_id=0),
            )
        assert not it.sends


async def test_a_message_that_is_too_large_for_a_frame_is_refused() -> None:
    async with (
        odd_brokers() as it,
        open_producer(
            it.nameserver,
            "orders",
            message_bytes_max=32 * 1024**2,
            compress_above=64 * 1024**2,
        ) as producer,
    ):
        large = Message(TOPIC, b"x" * (17 * 1024**2))
        with pytest.raises(IllegalMessageError, match="over the limit"):
            await producer.send(large)
        with pytest.raises(IllegalMessageError, match="over the limit"):
            await producer.send_oneway(large)
        assert (await producer.send(Message(TOPIC, b"x"))).is_ok


async def test_a_broker_that_finds_it_too_large_says_so(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, maxMessageSize="1000") as it,
        open_producer(it.nameserver, "orders") as producer,
    ):
        with pytest.raises(SendFailedError, match="1 attempt, it is stored nowhere"):
            await producer.send(Message(TOPIC, bytes(range(256)) * 8))


async def test_nobody_there_is_said_with_what_was_tried() -> None:
    async with open_producer("127.0.0.1:1;127.0.0.1:2", "orders") as producer:
        outcomes: list[SendResult | RmqError] = []
        producer.submit(Message(TOPIC, b"x"), outcomes.append)
        with pytest.raises(NoNameserverError, match=r"127\.0\.0\.1:1") as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert set(caught.value.attempts) == {"127.0.0.1:1", "127.0.0.1:2"}
        with pytest.raises(NoNameserverError):
            await producer.send_batch([Message(TOPIC, b"x")])
        with pytest.raises(NoNameserverError):
            await producer.send_oneway(Message(TOPIC, b"x"))
        with pytest.raises(NoNameserverError):
            await producer.send_ordered(Message(TOPIC, b"x"), "key")
        await until(lambda: outcomes)
        assert isinstance(outcomes[0], NoNameserverError)


async def test_a_topic_that_nobody_has_and_nobody_makes_is_said_to_be(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, autoCreateTopicEnable="false") as it,
        open_producer(it.nameserver, "orders") as producer,
    ):
        with pytest.raises(NoRouteError, match="no broker has it") as caught:
            await producer.send(Message("Nowhere", b"x"))
        assert caught.value.topic == "Nowhere"
        pending = await producer.send_soon(Message("Nowhere", b"x"))
        with pytest.raises(NoRouteError):
            await pending.wait()
        # Once it is there, it is found.
        await it.create_topic("Nowhere")
        assert (await producer.send(Message("Nowhere", b"x"))).is_ok


async def test_a_nameserver_that_knows_nothing_is_said_to() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        it.knows_topics = False
        with pytest.raises(NoRouteError, match="no broker has it"):
            await producer.send(Message(TOPIC, b"x"))


async def test_a_topic_that_may_not_be_written_to_is_said_to_be(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        await it.create_topic(TOPIC, perm=4)
        with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
            await producer.send(Message(TOPIC, b"x"))


# --- bounds ----------------------------------------------------------------------------------


async def test_pipelined_sends_are_bounded_by_number_and_by_bytes() -> None:
    async with odd_brokers() as it:
        held: list[object] = []
        it.on_send = lambda name, request: (request.defer(), held.append(request))  # type: ignore[assignment, func-returns-value]
        async with open_producer(
            it.nameserver, "orders", pending_max=10, pending_bytes_max=4000, send_timeout_s=0.5
        ) as producer:
            outcomes: list[SendResult | RmqError] = []
            for _ in range(4):
                producer.submit(Message(TOPIC, b"x" * 1000), outcomes.append)
            with pytest.raises(TooManyRequestsError, match="4 pipelined sends"):
                producer.submit(Message(TOPIC, b"x"), outcomes.append)
            with trio.move_on_after(0.1) as scope:
                await producer.send_soon(Message(TOPIC, b"x"))
            assert scope.cancelled_caught
            # Room is made when they are over.
            await producer.send_soon(Message(TOPIC, b"x" * 3999))
            assert len(outcomes) == 4
        assert all(isinstance(outcome, SendFailedError) for outcome in outcomes)


async def test_one_message_may_go_whatever_its_size() -> None:
    async with (
        odd_brokers() as it,
        open_producer(
            it.nameserver, "orders", pending_bytes_max=10, compress_above=10**6
        ) as producer,
    ):
        pending = await producer.send_soon(Message(TOPIC, b"x" * 1000))
        other = await producer.send_soon(Message(TOPIC, b"y" * 1000))
        assert (await pending.wait()).is_ok
        assert (await other.wait()).is_ok


async def test_a_complete_send_lets_go_of_its_message() -> None:
    """Connections remember their calls for a while, and with them what was called back."""
    async with odd_brokers() as it, open_producer(it.nameserver, "orders") as producer:
        message = Message(TOPIC, b"x" * 1000)
        pendings = [await producer.send_soon(message) for _ in range(100)]
        for pending in pendings:
            await pending.wait()
        gc.collect()
        held = [each for each in gc.get_objects() if isinstance(each, Pending)]
        assert all(not each.outbound.body and each.message is None for each in held)


def test_settings_can_be_pickled() -> None:
    config = ProducerConfig(group="orders", retries=5)
    assert pickle.loads(pickle.dumps(config)) == config


async def test_requests_are_signed_for_brokers_that_ask_for_it() -> None:
    async with odd_brokers() as it:
        fields: list[dict[str, str]] = []

        def keep(name: str, request: Request[SendMessageRequestV2]) -> None:
            fields.append(request.command.ext_fields)
            answer_ok(name, request)

        it.on_send = keep
        credentials = Credentials(access_key="rocketmq2", secret_key="12345678")
        config = ClientConfig(nameservers=it.nameserver, credentials=credentials)
        async with open_producer(config, "orders") as producer:
            await producer.send(Message(TOPIC, b"x"))
            await producer.send_oneway(Message(TOPIC, b"x"))
            await producer.send(Message(TOPIC, b"last"))
        assert len(fields) == 3
        for each in fields:
            assert each["AccessKey"] == "rocketmq2"
            assert each["Signature"]


# --- traces ----------------------------------------------------------------------------------


async def test_a_tracer_is_told_of_every_send(tmp_path: Path) -> None:
    notes = Notes()
    async with (
        cluster(tmp_path) as it,
        open_producer(it.nameserver, "orders", tracer=notes) as producer,
    ):
        result = await producer.send(Message(TOPIC, b"x" * 5000, "new", ("k",)))
        await producer.send(Message(TOPIC, b"later", delay_level=1))
        await producer.send_batch([Message(TOPIC, b"1"), Message(TOPIC, b"2", "tag")])
        single, delayed, batch = notes.sends
        assert (single.group, single.topic, single.tag, single.keys) == (
            "orders",
            TOPIC,
            "new",
            ("k",),
        )
        assert (single.message_id, single.outcome) == (result.message_id, result)
        assert (single.address, single.kind) == (it.address(), MessageKind.NORMAL)
        assert single.body_bytes < 100
        assert 0 <= single.took_ms < 20_000
        assert delayed.kind is MessageKind.DELAYED
        assert (batch.tag, batch.keys, batch.message_id.count(",")) == (None, (), 1)
        await it.kill()
        with pytest.raises(SendFailedError):
            await producer.send(Message(TOPIC, b"x"))
        assert isinstance(notes.sends[-1].outcome, SendFailedError)


async def test_traces_are_written_if_the_config_names_a_topic(tmp_path: Path) -> None:
    async with cluster(tmp_path, traceTopicEnable="true") as it:
        config = ClientConfig(nameservers=it.nameserver, trace_topic="RMQ_SYS_TRACE_TOPIC")
        async with open_producer(config, "orders") as producer:
            result = await producer.send(Message(TOPIC, b"x", "new", ("k",)))
        (trace,) = await stored(it, "RMQ_SYS_TRACE_TOPIC", queues=1)
        assert trace.body.startswith(b"Pub\x01")
        assert result.message_id.encode() in trace.body


# --- closing ---------------------------------------------------------------------------------


async def test_a_closed_producer_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        async with producing(client, ProducerConfig(group="orders")) as producer:
            await producer.send(Message(TOPIC, b"x"))
        message = Message(TOPIC, b"x")
        for call in (producer.send, producer.send_soon, producer.send_oneway, producer.request):
            with pytest.raises(ClientClosedError, match="producer orders"):
                await call(message)
        with pytest.raises(ClientClosedError):
            await producer.send_batch([message])
        with pytest.raises(ClientClosedError):
            producer.submit(message, lambda outcome: None)
        with pytest.raises(ClientClosedError):
            await producer.prepare(TOPIC)
        assert repr(producer) == "<Producer orders: 0 sends under way>"


async def test_an_error_of_the_block_comes_out_as_itself(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        pendings = []

        async def fail() -> None:
            async with open_producer(it.nameserver, "orders") as producer:
                pendings.append(await producer.send_soon(Message(TOPIC, b"x")))
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await fail()
        # What was under way was waited for all the same.
        assert isinstance(pendings[0].outcome, SendResult)
