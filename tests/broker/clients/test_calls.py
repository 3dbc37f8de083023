"""Questions of the broker to its consumers, on behalf of admin tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.broker.clients import calls
from rmq.errors import RefusedError
from rmq.model.offsets import ConsumerOffset
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import GetConsumerStatusBody, ResetOffsetBody, TopicConfig
from rmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, ResponseCode
from rmq.remoting.command import encode_frame
from tests.broker.client_broker import client_broker
from tests.broker.clients.registry_kit import consumer, identity, open_channel, subscription
from tests.remoting.server_kit import answer
from tests.store.store_kit import START_MS, message, put

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from rmq.remoting.command import Command
    from tests.broker.client_broker import ClientBroker
    from tests.remoting.server_kit import Frame, Peer

TOPIC: Final = "T"
ON_T: Final = consumer("group", [subscription(TOPIC)])
RESET: Final = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
STATUS: Final = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT


def queue(queue_id: int, broker: ClientBroker) -> MessageQueue:
    name = broker.config.current.broker_name
    return MessageQueue(topic=TOPIC, broker_name=name, queue_id=queue_id)


def fill(broker: ClientBroker, committed: dict[int, int], messages: int = 5) -> None:
    """Create the topic with messages in each queue, and a group that has read some of them."""
    queues = len(committed)
    broker.topics.put(TopicConfig(topic_name=TOPIC, write_queue_nums=queues, read_queue_nums=8))
    for queue_id, offset in committed.items():
        put(broker.core, [message(n, topic=TOPIC, queue_id=queue_id) for n in range(messages)])
        broker.offsets.commit("host", "group", TOPIC, queue_id, ConsumerOffset(offset))


def refusal(caught: pytest.ExceptionInfo[RefusedError]) -> tuple[int, str]:
    return caught.value.code, caught.value.remark


# ---- resets --------------------------------------------------------------------------------------


async def test_every_consumer_is_told_where_to_go_on() -> None:
    async with client_broker() as broker:
        peers = [await broker.join(name, ON_T) for name in ("a", "b")]
        for peer in peers:
            await peer.ping()
        fill(broker, {0: 3, 1: 5})
        body = await broker.calls.reset_offset(TOPIC, "group", START_MS - 1_000)
        assert body.offset_table == {queue(0, broker): 0, queue(1, broker): 0}
        for peer in peers:
            (told,) = await peer.ping()
            assert (told.code, told.flag) == (RESET, FLAG_ONEWAY)
            assert told.fields == {
                "topic": TOPIC,
                "group": "group",
                "timestamp": str(START_MS - 1_000),
                "isForce": "false",
            }
            assert ResetOffsetBody.decode(told.body) == body


async def test_a_reset_to_the_end_moves_nobody_forward_unless_forced() -> None:
    async with client_broker() as broker:
        await broker.join("a", ON_T)
        fill(broker, {0: 3, 1: 5, 2: 7})
        kept = await broker.calls.reset_offset(TOPIC, "group", -1)
        assert list(kept.offset_table.values()) == [3, 5, 5]
        forced = await broker.calls.reset_offset(TOPIC, "group", -1, is_force=True)
        assert list(forced.offset_table.values()) == [5, 5, 5]


async def test_a_queue_without_messages_is_reset_to_its_begin() -> None:
    async with client_broker() as broker:
        await broker.join("a", ON_T)
        fill(broker, {0: 3}, messages=0)
        for timestamp_ms in (-1, START_MS):
            body = await broker.calls.reset_offset(TOPIC, "group", timestamp_ms, is_force=True)
            assert body.offset_table == {queue(0, broker): 0}


async def test_a_reset_for_cpp_sends_rows_and_answers_with_a_table() -> None:
    async with client_broker() as broker:
        peer = await broker.join("a", ON_T)
        fill(broker, {0: 3})
        body = await broker.calls.reset_offset(TOPIC, "group", -1, for_cpp=True)
        assert body.offset_table == {queue(0, broker): 3}
        (told,) = await peer.ping()
        name = broker.config.current.broker_name
        assert told.body == (
            b'{"offsetTable":[{"brokerName":"%s","offset":3,"queueId":0,"topic":"T"}]}'
            % name.encode()
        )


async def test_a_reset_of_an_unknown_topic_is_refused() -> None:
    async with client_broker() as broker:
        await broker.join("a", ON_T)
        with pytest.raises(RefusedError) as caught:
            await broker.calls.reset_offset("unknown", "group", -1)
        assert refusal(caught) == (
            1,
            "[reset-offset] reset offset failed, no topic in this broker. topic=unknown",
        )


async def test_a_reset_of_a_group_without_offsets_is_refused_before_anybody_is_told() -> None:
    async with client_broker() as broker:
        peer = await broker.join("a", ON_T)
        fill(broker, {0: 3})
        broker.topics.put(TopicConfig(topic_name=TOPIC, write_queue_nums=2, read_queue_nums=2))
        with pytest.raises(RefusedError) as caught:
            await broker.calls.reset_offset(TOPIC, "group", -1)
        assert refusal(caught) == (1, "THe consumer group <group> not exist")
        assert await peer.ping() == []


async def test_a_reset_needs_consumers() -> None:
    async with client_broker() as broker:
        fill(broker, {0: 3})
        with pytest.raises(RefusedError) as caught:
            await broker.calls.reset_offset(TOPIC, "group", 17)
        assert refusal(caught) == (
            ResponseCode.CONSUMER_NOT_ONLINE,
            "Consumer not online, so can not reset offset, Group: group Topic: T Timestamp: 17",
        )


async def test_one_consumer_that_is_too_old_keeps_all_from_being_told() -> None:
    async with client_broker() as broker:
        new = await broker.join("new", ON_T)
        await broker.join("old", ON_T, version=27)
        await new.ping()
        fill(broker, {0: 3})
        with pytest.raises(RefusedError) as caught:
            await broker.calls.reset_offset(TOPIC, "group", -1)
        assert refusal(caught) == (
            1,
            "the client does not support this feature. version=V3_0_6",
        )
        assert await new.ping() == []


async def test_a_consumer_that_cannot_be_told_does_not_keep_the_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client_broker() as broker:
        gone = open_channel("gone")
        gone.close("closed by the peer")
        broker.clients.register_consumer("group", gone, identity("gone"), ON_T, 0.0)
        peer = await broker.join("here", ON_T)
        fill(broker, {0: 3})
        await broker.calls.reset_offset(TOPIC, "group", -1)
        assert [told.code for told in await peer.ping()] == [RESET]
    assert "<gone gone in group> not told to reset offsets" in caplog.text


# ---- what consumers report -----------------------------------------------------------------------


async def serve_status(peer: Peer, table: dict[MessageQueue, int]) -> None:
    """Answer one question for offsets."""
    asked = await peer.read()
    assert asked.code == STATUS
    assert asked.fields == {"topic": TOPIC, "group": "group"}
    body = GetConsumerStatusBody(message_queue_table=table).encode()
    await peer.send(answer(asked.opaque, body=body))


async def test_all_consumers_are_asked_for_their_offsets() -> None:
    async with client_broker() as broker, trio.open_nursery() as nursery:
        first, second = await broker.join("a", ON_T), await broker.join("b", ON_T)
        await first.ping()
        nursery.start_soon(serve_status, first, {queue(0, broker): 3})
        nursery.start_soon(serve_status, second, {queue(1, broker): 4})
        body = await broker.calls.consumer_status(TOPIC, "group")
        assert body.consumer_table == {"a": {queue(0, broker): 3}, "b": {queue(1, broker): 4}}
        assert body.message_queue_table == {}


async def test_long_tables_are_read_and_tables_above_the_limit_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calls, "STATUS_BYTES_MAX", 20_000)
    async with client_broker() as broker, trio.open_nursery() as nursery:
        long = {queue(number, broker): number for number in range(200)}
        longer = {queue(number, broker): number for number in range(1_000)}
        first, second = await broker.join("long", ON_T), await broker.join("longer", ON_T)
        await first.ping()
        nursery.start_soon(serve_status, first, long)
        nursery.start_soon(serve_status, second, longer)
        body = await broker.calls.consumer_status(TOPIC, "group")
        assert body.consumer_table == {"long": long}
    assert "no consumer status of 1 of 2 members: <longer " in caplog.text
    assert "the limit is 20000" in caplog.text


@pytest.mark.parametrize("blank", ["", "  "])
async def test_a_blank_client_id_means_all_consumers(blank: str) -> None:
    async with client_broker() as broker, trio.open_nursery() as nursery:
        peer = await broker.join("a", ON_T)
        nursery.start_soon(serve_status, peer, {})
        body = await broker.calls.consumer_status(TOPIC, "group", blank)
        assert body.consumer_table == {"a": {}}


async def test_one_consumer_alone_is_asked_when_it_is_named() -> None:
    async with client_broker() as broker, trio.open_nursery() as nursery:
        first = await broker.join("a", ON_T)
        second = await broker.join("b", ON_T)
        await broker.join("old", ON_T, version=1)
        await first.ping()
        await second.ping()
        nursery.start_soon(serve_status, second, {queue(1, broker): 4})
        body = await broker.calls.consumer_status(TOPIC, "group", "b")
        assert body.consumer_table == {"b": {queue(1, broker): 4}}
        assert await first.ping() == []
        nobody = await broker.calls.consumer_status(TOPIC, "group", "unknown")
        assert nobody.consumer_table == {}


async def test_who_does_not_answer_in_time_is_left_out(autojump_clock: MockClock) -> None:
    async with client_broker() as broker, trio.open_nursery() as nursery:
        quick, _ = await broker.join("quick", ON_T), await broker.join("slow", ON_T)
        await quick.ping()
        nursery.start_soon(serve_status, quick, {queue(0, broker): 3})
        started = trio.current_time()
        body = await broker.calls.consumer_status(TOPIC, "group")
        assert body.consumer_table == {"quick": {queue(0, broker): 3}}
        assert trio.current_time() - started == pytest.approx(5.0)


@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(lambda asked: answer(asked.opaque, code=1), id="an-error"),
        pytest.param(lambda asked: answer(asked.opaque), id="no-body"),
        pytest.param(lambda asked: answer(asked.opaque, body=b"["), id="a-body-like-no-other"),
    ],
)
async def test_who_answers_without_a_table_is_left_out(respond: Callable[[Frame], bytes]) -> None:
    async def serve(peer: Peer) -> None:
        await peer.send(respond(await peer.read()))

    async with client_broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(serve, await broker.join("a", ON_T))
        body = await broker.calls.consumer_status(TOPIC, "group")
        assert body.consumer_table == {}


async def test_nobody_can_be_asked_in_a_group_without_consumers() -> None:
    async with client_broker() as broker:
        with pytest.raises(RefusedError) as caught:
            await broker.calls.consumer_status(TOPIC, "nobody")
        assert refusal(caught) == (1, "No Any Consumer online in the consumer group: [nobody]")


async def test_a_consumer_that_is_too_old_cannot_be_asked() -> None:
    async with client_broker() as broker:
        await broker.join("old", ON_T, version=0)
        with pytest.raises(RefusedError) as caught:
            await broker.calls.consumer_status(TOPIC, "group")
        assert refusal(caught) == (
            1,
            "the client does not support this feature. version=V3_0_0_SNAPSHOT",
        )


# ---- handed on -----------------------------------------------------------------------------------


async def test_a_request_is_handed_on_with_all_its_fields_and_the_answer_comes_back() -> None:
    fields = {"consumerGroup": "group", "clientId": "b", "jstackEnable": "true", "AccessKey": "k"}

    async def serve(peer: Peer) -> None:
        asked = await peer.read()
        assert (asked.code, asked.flag) == (RequestCode.GET_CONSUMER_RUNNING_INFO, 0)
        assert asked.fields == fields
        assert asked.body == b""
        head = encode_frame(
            code=1, flag=FLAG_RESPONSE, opaque=asked.opaque, remark="not now", body_length=2
        )
        await peer.send(head + b"{}")

    async with client_broker() as broker, trio.open_nursery() as nursery:
        first = await broker.join("a", ON_T)
        nursery.start_soon(serve, await broker.join("b", ON_T))
        answered = await broker.calls.running_info("group", "b", fields)
        assert (answered.code, answered.remark, answered.body) == (1, "not now", b"{}")
        assert [frame.code for frame in await first.ping()] == [
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        ]


async def test_a_message_is_handed_on_with_the_name_of_the_broker() -> None:
    fields = {"consumerGroup": "group", "clientId": "a", "msgId": "id"}

    async def serve(peer: Peer, broker_name: str) -> None:
        asked = await peer.read()
        assert asked.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
        assert asked.fields == fields | {"brokerName": broker_name}
        assert asked.body == b"record"
        await peer.send(answer(asked.opaque, body=b"{}"))

    async with client_broker() as broker, trio.open_nursery() as nursery:
        peer = await broker.join("a", ON_T)
        nursery.start_soon(serve, peer, broker.config.current.broker_name)
        record = memoryview(b"record")
        answered = await broker.calls.consume_directly("group", "a", fields, record)
        assert (answered.code, answered.body) == (0, b"{}")
        assert fields == {"consumerGroup": "group", "clientId": "a", "msgId": "id"}


def ask_running_info(broker: ClientBroker, client_id: str | None) -> Awaitable[Command]:
    return broker.calls.running_info("group", client_id, {})


def hand_message(broker: ClientBroker, client_id: str | None) -> Awaitable[Command]:
    return broker.calls.consume_directly("group", client_id, {}, b"record")


HandedOn = pytest.mark.parametrize("hand_on", [ask_running_info, hand_message])


@HandedOn
@pytest.mark.parametrize(("client_id", "shown"), [("b", "b"), (None, "null")])
async def test_nothing_is_handed_on_to_a_client_that_is_not_there(
    hand_on: Callable[[ClientBroker, str | None], Awaitable[Command]],
    client_id: str | None,
    shown: str,
) -> None:
    async with client_broker() as broker:
        for _ in range(2):
            with pytest.raises(RefusedError) as caught:
                await hand_on(broker, client_id)
            assert refusal(caught) == (1, f"The Consumer <group> <{shown}> not online")
            await broker.join("a", ON_T)


@HandedOn
@pytest.mark.parametrize(
    ("version", "name"), [(61, "V3_1_7"), (47, "V3_1_0"), (15, "V3_0_0_FINAL"), (-5, "-5")]
)
async def test_nothing_is_handed_on_to_a_client_that_is_too_old(
    hand_on: Callable[[ClientBroker, str | None], Awaitable[Command]], version: int, name: str
) -> None:
    async with client_broker() as broker:
        await broker.join("a", ON_T, version=version)
        with pytest.raises(RefusedError) as caught:
            await hand_on(broker, "a")
        assert refusal(caught) == (
            1,
            f"The Consumer <a> Version <{name}> too low to finish, please upgrade it to"
            " V3_1_8_SNAPSHOT",
        )


@HandedOn
async def test_a_client_of_the_first_version_that_can_is_asked(
    hand_on: Callable[[ClientBroker, str | None], Awaitable[Command]],
) -> None:
    async def serve(peer: Peer) -> None:
        await peer.send(answer((await peer.read()).opaque))

    async with client_broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(serve, await broker.join("a", ON_T, version=62))
        assert (await hand_on(broker, "a")).code == 0


@HandedOn
async def test_a_client_that_does_not_answer_is_waited_for_ten_seconds(
    hand_on: Callable[[ClientBroker, str | None], Awaitable[Command]], autojump_clock: MockClock
) -> None:
    async with client_broker() as broker:
        await broker.join("a", ON_T)
        started = trio.current_time()
        with pytest.raises(RefusedError) as caught:
            await hand_on(broker, "a")
        assert trio.current_time() - started == pytest.approx(10.0)
        code, remark = refusal(caught)
        assert code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert remark.startswith("consumer <group> <a> Timeout: ")


@HandedOn
async def test_a_client_that_leaves_while_it_is_asked_is_an_error(
    hand_on: Callable[[ClientBroker, str | None], Awaitable[Command]],
) -> None:
    async def leave(peer: Peer) -> None:
        await peer.read()
        await peer.aclose()

    async with client_broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(leave, await broker.join("a", ON_T))
        with pytest.raises(RefusedError) as caught:
            await hand_on(broker, "a")
        code, remark = refusal(caught)
        assert code == ResponseCode.SYSTEM_ERROR
        assert remark.startswith("invoke consumer <group> <a> Exception: ")
