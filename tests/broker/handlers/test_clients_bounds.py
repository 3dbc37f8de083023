"""Requests about clients that are long, or name what cannot be: bounds, steps and legal names."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
import trio

from rmq.broker.handlers.clients import (
    CLIENT_GROUPS_MAX,
    CLIENT_SUBSCRIPTIONS_MAX,
    HEARTBEAT_BYTES_MAX,
    LOCK_BYTES_MAX,
)
from rmq.log_limits import LINES_PER_SOURCE
from rmq.model.name_rules import CLIENT_ID_CHARS_MAX
from rmq.model.names import retry_topic
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionGroupConfig,
    UnlockBatchRequestBody,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.client_broker import ClientBroker, client_broker, frame, heartbeat
from tests.broker.clients.registry_kit import consumer, subscription

if TYPE_CHECKING:
    from tests.remoting.server_kit import Frame, Peer

HEART_BEAT: Final = RequestCode.HEART_BEAT
ILLEGAL: Final = (
    "a b",
    "../../x",
    "a\x00b",
    "a\nb",
    "a.b",
    "a@b",
    "a/b",
    "gruppe-ä",
    "\uff11\uff12",
    "",
    " ",
    "g" * 256,
    "g" * 10_000,
)


async def answer_of(peer: Peer, request: bytes) -> Frame:
    """Send a request; return its answer, without the notices that come before it."""
    await peer.send(request)
    while (frame := await peer.read()).flag != 1:
        pass
    return frame


def most_at_once(sizes: list[int]) -> int:
    """Return by how much a size grew at most from one pass of the event loop to the next."""
    return max(after - before for before, after in pairwise(sizes))


def state_of(broker: ClientBroker) -> tuple[set[str], set[str], int, int]:
    return (
        set(broker.groups.names()),
        set(broker.topics.names()),
        len(broker.locks),
        broker.clients.statistics().consumer_groups,
    )


# ---- heartbeats in steps -------------------------------------------------------------------------


async def test_new_groups_are_made_some_in_each_pass_of_the_loop() -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        groups = [consumer(f"group-{number}") for number in range(500)]
        await peer.send(heartbeat("a", *groups))
        made: list[int] = []
        joined: list[int] = []
        while len(broker.clients.consumer_groups) < 500:
            made.append(len(broker.groups))
            joined.append(len(broker.clients.consumer_groups))
            await trio.lowlevel.checkpoint()
        # Two steps, should one come at the end of a pass and the next at the begin of its own.
        assert most_at_once(made) <= 2 * 8
        assert most_at_once(joined) <= 2 * 31
        assert (await answer_of(peer, heartbeat("a", opaque=2))).code == 0
        assert broker.topics.get(retry_topic("group-499")) is not None


async def test_a_connection_that_ends_within_its_heartbeat_leaves_no_member() -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        await peer.send(heartbeat("a", *(consumer(f"group-{number}") for number in range(1_000))))
        while not broker.clients.consumer_groups:
            await trio.lowlevel.checkpoint()
        await peer.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert broker.clients.statistics().connections == 0
        assert len(broker.clients.consumer_groups) == 0


async def test_a_connection_is_in_so_many_groups_and_no_more() -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        most = tuple(f"p-{number}" for number in range(CLIENT_GROUPS_MAX))
        assert (await answer_of(peer, heartbeat("a", producers=most))).code == 0
        assert (await answer_of(peer, heartbeat("a", producers=most))).code == 0
        refused = await answer_of(peer, heartbeat("a", producers=("one-more",)))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark == "2001 groups on one connection, which is above the limit of 2000"
        assert broker.clients.producer_group("one-more") is None
        assert (
            await answer_of(broker.attach("b"), heartbeat("b", producers=("one-more",)))
        ).code == 0


async def test_more_groups_or_subscriptions_than_any_client_has_are_refused_as_a_whole() -> None:
    async with client_broker() as broker:
        before = state_of(broker)
        peer = broker.attach("a")
        groups = [consumer(f"group-{number}") for number in range(CLIENT_GROUPS_MAX + 1)]
        assert (await answer_of(peer, heartbeat("a", *groups))).code == 1
        body = b'{"clientID":"a","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[%b]}]}'
        topics = b",".join(b'{"topic":"T"}' for _ in range(CLIENT_SUBSCRIPTIONS_MAX + 1))
        refused = await answer_of(peer, frame(HEART_BEAT, body=body % topics))
        assert refused.remark == (
            "10001 subscriptions in one heartbeat, which is above the limit of 10000"
        )
        assert state_of(broker) == before


@pytest.mark.parametrize(
    ("code", "most"),
    [
        (RequestCode.HEART_BEAT, HEARTBEAT_BYTES_MAX),
        (RequestCode.LOCK_BATCH_MQ, LOCK_BYTES_MAX),
        (RequestCode.UNLOCK_BATCH_MQ, LOCK_BYTES_MAX),
        (RequestCode.CHECK_CLIENT_CONFIG, 256 * 1024),
    ],
)
async def test_a_body_that_no_client_sends_is_refused_unread(code: RequestCode, most: int) -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        refused = await answer_of(peer, frame(code, body=b"[" * (most + 1)))
        assert refused.code == 1
        assert refused.remark == (
            f"the body of {code.name} ({code}) has {most + 1} bytes, the limit is {most}"
        )


async def test_an_id_longer_than_any_is_refused() -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        longest = "i" * CLIENT_ID_CHARS_MAX
        assert (await answer_of(peer, heartbeat(longest, producers=("p",)))).code == 0
        refused = await answer_of(peer, heartbeat(longest + "i", producers=("q",)))
        assert refused.remark == "a client id of 1025 characters is above the limit of 1024"
        assert broker.clients.producer_group("q") is None
        body = LockBatchRequestBody(consumer_group="g", client_id=longest + "i", mq_set=queues(1))
        assert (await peer.request(frame(RequestCode.LOCK_BATCH_MQ, body=body.encode()))).code == 1
        assert len(broker.locks) == 0


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ILLEGAL)
async def test_nothing_is_made_of_a_group_whose_name_cannot_be(name: str) -> None:
    async with client_broker() as broker:
        groups, topics, _, _ = state_of(broker)
        peer = broker.attach("a")
        request = heartbeat("a", consumer(name), consumer("good"), producers=(name, "p"))
        answer = await answer_of(peer, request)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("the specified group")
        # The other groups of the client work as if it had said nothing else.
        after = state_of(broker)
        assert after[0] - groups == {"good"}
        assert after[1] - topics == {"%RETRY%good"}
        assert set(broker.clients.consumer_groups) == {"good"}
        assert set(broker.clients.producer_groups) == {"p"}
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            body = LockBatchRequestBody(consumer_group=name, client_id="a", mq_set=queues(3))
            await peer.request(frame(code, body=body.encode()))
        assert len(broker.locks) == 0


async def test_a_group_of_such_a_name_from_an_older_broker_is_served() -> None:
    async with client_broker() as broker:
        broker.groups.put(SubscriptionGroupConfig(group_name="a.b"))
        peer = broker.attach("a")
        assert (await answer_of(peer, heartbeat("a", consumer("a.b")))).code == 0
        assert broker.group("a.b").client_ids() == ("a",)


@pytest.mark.parametrize("topic", ["a b", "../../x", "a\x00b", "", "t" * 263])
async def test_subscriptions_to_topics_that_cannot_be_are_left_out(topic: str) -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        data = consumer("group", [subscription(topic), subscription("%RETRY%" + "g" * 255)])
        assert (await answer_of(peer, heartbeat("a", data))).code == 0
        assert set(broker.group().subscriptions) == {"%RETRY%" + "g" * 255}


@pytest.mark.parametrize("topic", ["a b", "../../x", "a\x00b", "", "t" * 263])
async def test_queues_of_topics_that_cannot_be_are_not_locked(topic: str) -> None:
    async with client_broker() as broker:
        bad = MessageQueue(topic=topic, broker_name="b", queue_id=0)
        long = MessageQueue(topic="T", broker_name="b" * 256, queue_id=0)
        body = LockBatchRequestBody(
            consumer_group="group", client_id="a", mq_set=(bad, *queues(2), long)
        )
        answer = await broker.attach().request(frame(RequestCode.LOCK_BATCH_MQ, body=body.encode()))
        assert LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == queues(2)
        assert len(broker.locks) == 2


# ---- locks in steps ------------------------------------------------------------------------------


def queues(count: int) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic="T", broker_name="broker-a", queue_id=number) for number in range(count)
    )


async def test_many_queues_are_locked_some_in_each_pass_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "rmq")
    async with client_broker() as broker:
        peer, other = broker.attach("a"), broker.attach("b")
        body = LockBatchRequestBody(consumer_group="group", client_id="a", mq_set=queues(10_000))
        await peer.send(frame(RequestCode.LOCK_BATCH_MQ, body=body.encode()))
        sizes = [0]
        while sizes[-1] < 10_000:
            await trio.lowlevel.checkpoint()
            sizes.append(len(broker.locks))
        assert most_at_once(sizes) <= 2 * 500
        assert LockBatchResponseBody.decode((await peer.read()).body).lock_ok_mq_set == queues(
            10_000
        )
        await peer.request(frame(RequestCode.LOCK_BATCH_MQ, body=body.encode()))
        theirs = msgspec.structs.replace(body, client_id="b")
        answer = await other.request(frame(RequestCode.LOCK_BATCH_MQ, body=theirs.encode()))
        assert answer.body == b'{"lockOKMQSet":[]}'
        unlock = UnlockBatchRequestBody(
            consumer_group="group", client_id="a", mq_set=queues(10_000)
        )
        await peer.request(frame(RequestCode.UNLOCK_BATCH_MQ, body=unlock.encode()))
        assert len(broker.locks) == 0
    lines = [record.getMessage() for record in caplog.records if "locked" in record.getMessage()]
    assert lines == [
        "group group: a locked 10000 queues",
        "group group: b locked not 10000 others, queue 0 of T for one: it is locked by a",
        "group group: a unlocked 10000 queues",
    ]


async def test_what_one_host_says_in_heartbeats_and_locks_is_logged_a_few_times_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "rmq")
    async with client_broker() as broker:
        peer = broker.attach("10.0.0.9:40000")
        await answer_of(peer, heartbeat("a", producers=tuple(f"p-{n}" for n in range(100))))
        for number in range(100):
            await answer_of(peer, heartbeat("a", consumer("a b")))
            body = LockBatchRequestBody(
                consumer_group=f"g-{number}", client_id="a", mq_set=queues(1)
            )
            await peer.request(frame(RequestCode.LOCK_BATCH_MQ, body=body.encode()))
        other = broker.attach("10.0.0.8:40000")
        await answer_of(other, heartbeat("b", producers=("p-0",)))
    lines = [record.getMessage() for record in caplog.records]
    for words in ("new producer a ", "not all groups taken", "a locked"):
        assert len([line for line in lines if words in line]) == LINES_PER_SOURCE, words
    assert len([line for line in lines if "new producer b " in line]) == 1
