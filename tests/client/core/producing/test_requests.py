"""Requests and replies: between two clients through a broker, too late, to nobody, and bounded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.client.core.messages import Message
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.core.producing.requests import Replies, reply_message, reply_to, request_properties
from rmq.client.core.producing.unique_keys import UniqueKeys
from rmq.client.tasks.producer import producing
from rmq.client.tasks.request_reply import replies_of
from rmq.client.trio.loop import remoting_of
from rmq.client.trio.opening import open_client, open_producer
from rmq.errors import (
    IllegalMessageError,
    NoRouteError,
    RequestTimeoutError,
    SendFailedError,
    TooManyRequestsError,
)
from rmq.model.java import hash_map_order
from rmq.model.properties import decode_properties
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import PushReplyMessageRequest
from tests.client.cluster_kit import cluster
from tests.client.producer_kit import TOPIC, odd_brokers, stored, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmq.client.core.producing.outbound import OutboundMessage
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.producer import Producer
    from tests.client.cluster_kit import Cluster

NOW_MS: Final = 1_700_000_000_000


def pushed(properties: str | None, *, sys_flag: int = 0, **fields: str) -> PushReplyMessageRequest:
    return PushReplyMessageRequest(
        topic="DefaultCluster_REPLY_TOPIC",
        properties=properties,
        queue_id=3,
        sys_flag=sys_flag,
        born_timestamp=NOW_MS - 5,
        flag=9,
        store_timestamp=NOW_MS,
        born_host=fields.get("born_host", "10.0.0.9:40000"),
        store_host=fields.get("store_host", "10.0.0.1:10911"),
    )


# --- pure ------------------------------------------------------------------------------------


def test_a_request_says_who_asks_and_until_when() -> None:
    one, other = request_properties("10.0.0.9@1", 3.0), request_properties("10.0.0.9@1", 0.0001)
    assert (one["REPLY_TO_CLIENT"], one["TTL"], other["TTL"]) == ("10.0.0.9@1", "3000", "1")
    assert one["CORRELATION_ID"] != other["CORRELATION_ID"]
    assert len(one["CORRELATION_ID"]) == 36


def test_a_reply_is_handed_to_whoever_waits_for_it_once() -> None:
    replies = Replies(now_ms=lambda: NOW_MS)
    got: list[ReceivedMessage] = []
    replies.expect("c1", got.append)
    replies.expect("c2", lambda reply: pytest.fail("not theirs"))
    replies(pushed("MSG_TYPE\x01reply\x02CORRELATION_ID\x01c1"), b"yes")
    replies(pushed("MSG_TYPE\x01reply\x02CORRELATION_ID\x01c1"), b"again")
    replies(pushed("CORRELATION_ID\x01unknown"), b"too late")
    replies(pushed(None), b"of nobody")
    (reply,) = got
    assert (reply.body, reply.topic, reply.flag) == (b"yes", "DefaultCluster_REPLY_TOPIC", 9)
    assert (reply.born_host, reply.store_host) == ("10.0.0.9:40000", "10.0.0.1:10911")
    assert (reply.born_at_ms, reply.stored_at_ms) == (NOW_MS - 5, NOW_MS)
    assert reply.properties["ARRIVE_TIME"] == str(NOW_MS)
    assert len(replies) == 1
    replies.give_up("c2")
    replies.give_up("c2")
    assert len(replies) == 0


def test_waiting_requests_are_bounded() -> None:
    replies = Replies(now_ms=lambda: NOW_MS, requests_max=2)
    replies.expect("c1", print)
    replies.expect("c2", print)
    with pytest.raises(TooManyRequestsError, match="2 requests wait for a reply"):
        replies.expect("c3", print)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.9:40000", "10.0.0.9:40000"),
        ("/10.0.0.9:40000", "10.0.0.9:40000"),
        ("[fd00::2]:40000", "[fd00::2]:40000"),
        ("nonsense", "0.0.0.0:0"),
        ("name:1", "0.0.0.0:0"),
        ("", "0.0.0.0:0"),
    ],
)
def test_hosts_of_a_reply_are_read_as_far_as_they_can_be(host: str, expected: str) -> None:
    reply = reply_message(pushed("A\x01B\x02", born_host=host), b"x", now_ms=NOW_MS)
    assert reply.born_host == expected
    assert reply.body == b"x"
    assert reply.properties == {"A": "B", "ARRIVE_TIME": str(NOW_MS)}


def _request(properties: str) -> ReceivedMessage:
    return reply_message(pushed(properties), b"what?", now_ms=NOW_MS)


def _reply_to(request: ReceivedMessage, body: bytes) -> OutboundMessage:
    return reply_to(
        request,
        body,
        unique_keys=UniqueKeys(bytes(4), 1, 2),
        now_ms=NOW_MS,
        compress_above=4096,
        compress_level=5,
        bytes_max=10_000,
    )


ASKED: Final = (
    "CLUSTER\x01C\x02CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01client\x02TTL\x013000\x02KEYS\x01k"
)


def test_a_reply_names_what_it_answers_and_nothing_else() -> None:
    outbound = _reply_to(_request(ASKED), b"because")
    assert outbound.topic == "C_REPLY_TOPIC"
    assert (outbound.code, outbound.body) == (RequestCode.SEND_REPLY_MESSAGE_V2, b"because")
    properties = decode_properties(outbound.properties.encode())
    assert properties == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c1",
        "REPLY_TO_CLIENT": "client",
        "TTL": "3000",
        "UNIQ_KEY": outbound.message_id,
    }
    inserted = ["MSG_TYPE", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "UNIQ_KEY"]
    assert list(properties) == hash_map_order(inserted)
    assert _reply_to(_request(ASKED), b"x" * 5000).sys_flag == 0x301


@pytest.mark.parametrize(
    ("properties", "body", "reason"),
    [
        pytest.param("CLUSTER\x01C\x02KEYS\x01k", b"x", "is no request", id="not-asked"),
        pytest.param(ASKED.replace("CLUSTER", "X"), b"x", "is no request", id="no-cluster"),
        pytest.param(ASKED, b"", "is empty", id="empty"),
        pytest.param(ASKED, b"x" * 10_001, "10001 bytes", id="large"),
    ],
)
def test_what_cannot_be_a_reply_is_refused(properties: str, body: bytes, reason: str) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        _reply_to(_request(properties), body)


# --- through a broker ------------------------------------------------------------------------


async def _answer(
    it: Cluster, producer: Producer, answers: Callable[[ReceivedMessage], bytes], count: int
) -> None:
    """Answer requests as they come; a consumer of the simplest kind."""
    seen: set[str] = set()
    while len(seen) < count:
        for request in await stored(it):
            if request.message_id not in seen:
                seen.add(request.message_id)
                result = await producer.reply(request, answers(request))
                assert result.is_ok


@pytest.mark.parametrize("masters", [("broker-a",), ("broker-a", "broker-b")])
async def test_a_request_is_answered_by_another_client(
    tmp_path: Path, masters: tuple[str, ...]
) -> None:
    async with (
        cluster(tmp_path, masters) as it,
        open_producer(it.nameserver, "asking") as asking,
        open_producer(it.nameserver, "answering") as answering,
        trio.open_nursery() as nursery,
    ):
        for name in masters:
            await it.create_topic(TOPIC, broker=name)
        count = 4 * len(masters)
        nursery.start_soon(_answer, it, answering, lambda request: b"re: " + request.body, count)
        with trio.fail_after(30):
            for number in range(count):
                reply = await asking.request(
                    Message(TOPIC, f"q{number}".encode(), keys=("k",)), timeout_s=10
                )
                assert reply.body == f"re: q{number}".encode()
                assert reply.topic == "DefaultCluster_REPLY_TOPIC"
                assert reply.properties["MSG_TYPE"] == "reply"
        assert not replies_of(asking.client)


async def test_a_long_reply_is_compressed_on_the_way(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        open_producer(it.nameserver, "asking") as asking,
        open_producer(it.nameserver, "answering") as answering,
        trio.open_nursery() as nursery,
    ):
        await it.create_topic(TOPIC)
        nursery.start_soon(_answer, it, answering, lambda _: b"long " * 2000, 1)
        reply = await asking.request(Message(TOPIC, b"q"), timeout_s=10)
        assert reply.is_compressed
        assert reply.body == b"long " * 2000


async def test_no_reply_in_time_is_said_and_a_late_one_is_dropped(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        open_producer(it.nameserver, "asking") as asking,
        open_producer(it.nameserver, "answering") as answering,
    ):
        started = trio.current_time()
        with pytest.raises(RequestTimeoutError, match=f"a request to topic {TOPIC}: no answer"):
            await asking.request(Message(TOPIC, b"q"), timeout_s=0.3)
        assert trio.current_time() - started < 3
        assert not replies_of(asking.client)
        # The message is there, and can be answered; nobody minds.
        (request,) = await stored(it)
        assert (await answering.reply(request, b"late")).is_ok


async def test_a_client_that_is_gone_cannot_be_answered(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "answering") as answering:
        async with open_producer(it.nameserver, "asking") as asking:
            with pytest.raises(RequestTimeoutError):
                await asking.request(Message(TOPIC, b"q"), timeout_s=0.3)
        (request,) = await stored(it)
        with pytest.raises(SendFailedError, match="SEND_REPLY_MESSAGE_V2"):
            await answering.reply(request, b"too late")


async def test_a_reply_goes_to_any_broker_if_that_of_the_request_is_not_known(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "answering") as answering:
        request = _request(ASKED.replace("CLUSTER\x01C", "CLUSTER\x01DefaultCluster"))
        assert request.queue.broker_name == ""
        with pytest.raises(SendFailedError, match="3 attempts"):
            await answering.reply(request, b"nobody asked")


async def test_what_was_not_asked_cannot_be_answered(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_producer(it.nameserver, "orders") as producer:
        await producer.send(Message(TOPIC, b"no question"))
        (message,) = await stored(it)
        with pytest.raises(IllegalMessageError, match="is no request"):
            await producer.reply(message, b"x")


async def test_a_request_that_cannot_be_sent_says_why(tmp_path: Path) -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "asking") as asking:
        it.on_send = lambda name, request: request.reply(code=13, remark="no")
        with pytest.raises(SendFailedError, match="no"):
            await asking.request(Message(TOPIC, b"q"))
        it.knows_topics = False
        with pytest.raises(NoRouteError):
            await asking.request(Message("Other", b"q"))
        assert not replies_of(asking.client)


async def test_a_cancelled_request_is_forgotten() -> None:
    async with odd_brokers() as it, open_producer(it.nameserver, "asking") as asking:
        with trio.move_on_after(0.2):
            await asking.request(Message(TOPIC, b"q"), timeout_s=10)
        assert it.sends
        assert not replies_of(asking.client)
        assert asking._pipeline.under_way == 0


async def test_producers_of_one_client_ask_side_by_side(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        open_client(it.nameserver) as client,
        producing(client, ProducerConfig(group="one")) as one,
        producing(client, ProducerConfig(group="other")) as other,
        open_producer(it.nameserver, "answering") as answering,
        trio.open_nursery() as nursery,
    ):
        await it.create_topic(TOPIC)
        nursery.start_soon(_answer, it, answering, lambda request: request.body * 2, 20)
        answers: list[bytes] = []

        async def ask(producer: Producer, number: int) -> None:
            reply = await producer.request(Message(TOPIC, b"%d" % number), timeout_s=10)
            assert reply.body == b"%d" % number * 2
            answers.append(reply.body)

        for number in range(20):
            nursery.start_soon(ask, (one, other)[number % 2], number)
        await until(lambda: len(answers) == 20)


async def test_after_a_broken_connection_the_broker_learns_who_asks_again(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        open_producer(it.nameserver, "asking") as asking,
        open_producer(it.nameserver, "answering") as answering,
        trio.open_nursery() as nursery,
    ):
        await it.create_topic(TOPIC)
        nursery.start_soon(_answer, it, answering, lambda _: b"yes", 2)
        assert (await asking.request(Message(TOPIC, b"1"), timeout_s=10)).body == b"yes"
        remoting_of(asking.client).close_channel(it.address())
        assert (await asking.request(Message(TOPIC, b"2"), timeout_s=10)).body == b"yes"


async def test_a_clock_that_jumps_while_a_reply_is_waited_for_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    async with (
        cluster(tmp_path) as it,
        open_producer(it.nameserver, "asking") as asking,
        open_producer(it.nameserver, "answering") as answering,
        trio.open_nursery() as nursery,
    ):
        await it.create_topic(TOPIC)

        def answer(request: ReceivedMessage) -> bytes:
            monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
            return b"yes"

        nursery.start_soon(_answer, it, answering, answer, 1)
        assert (await asking.request(Message(TOPIC, b"1"), timeout_s=10)).body == b"yes"
