"""Offsets: where a group is, where queues begin and end, and where to start."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from rmq.client.core.consuming.offsets import (
    ConsumeFrom,
    commit_offset,
    fetch_offset,
    first_start,
    first_stored_at_ms,
    max_offset,
    min_offset,
    offset_at,
    start_offset,
)
from rmq.client.trio.opening import open_client
from rmq.errors import (
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import ConsumeFromWhere
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from tests.client.broker_messages import store
from tests.client.cluster_kit import cluster
from tests.client.flow_kit import Script, reply, routes_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import RouteTable
    from rmq.remoting.header import Header
    from tests.client.flow_kit import Reply

QUEUE: Final = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)
RETRY: Final = MessageQueue(topic="%RETRY%g", broker_name="broker-a", queue_id=0)
ROUTES: Final = routes_of("T", {"broker-a": {0: "m:1", 1: "s:1"}})
NO_MASTER: Final = routes_of("T", {"broker-a": {2: "s:2", 1: "s:1"}})
NOBODY: Final = routes_of("T", {"broker-b": {0: "m:1"}})
NOT_FOUND: Final = reply(code=ResponseCode.QUERY_NOT_FOUND, remark="Not found")


# --- where a group is ------------------------------------------------------------------------


def test_the_offset_of_a_group_is_asked_of_the_master() -> None:
    script = Script(reply(QueryConsumerOffsetResponse(offset=42)))
    assert script.run(fetch_offset(ROUTES, "g", QUEUE)) == 42
    (ask,) = script.asks
    assert (ask.address, ask.code) == ("m:1", RequestCode.QUERY_CONSUMER_OFFSET)
    assert ask.timeout_s == 5.0
    assert ask.header == QueryConsumerOffsetRequest(
        consumer_group="g", topic="T", queue_id=1, broker_name="broker-a"
    )


def test_no_offset_is_none_and_not_0() -> None:
    assert Script(NOT_FOUND).run(fetch_offset(ROUTES, "g", QUEUE)) is None
    zero = reply(QueryConsumerOffsetResponse(offset=0))
    assert Script(zero).run(fetch_offset(ROUTES, "g", QUEUE)) == 0
    # What a stock client would call none as well.
    negative = reply(QueryConsumerOffsetResponse(offset=-1))
    assert Script(negative).run(fetch_offset(ROUTES, "g", QUEUE)) is None


def test_a_slave_is_asked_if_there_is_no_master() -> None:
    script = Script(NOT_FOUND)
    script.run(fetch_offset(NO_MASTER, "g", QUEUE))
    assert script.asks[0].address == "s:1"


def test_commits_are_one_way_unless_they_are_waited_for() -> None:
    header = UpdateConsumerOffsetRequest(
        consumer_group="g", topic="T", queue_id=1, broker_name="broker-a", commit_offset=7
    )
    script = Script()
    script.run(commit_offset(ROUTES, "g", QUEUE, 7))
    (tell,) = script.tells
    assert (tell.address, tell.code) == ("m:1", RequestCode.UPDATE_CONSUMER_OFFSET)
    assert tell.header == header
    script = Script(reply())
    script.run(commit_offset(ROUTES, "g", QUEUE, 7, is_oneway=False))
    assert not script.tells
    assert script.asks[0].header == header
    with pytest.raises(ResponseError):
        Script(reply(code=1)).run(commit_offset(ROUTES, "g", QUEUE, 7, is_oneway=False))


def test_commits_go_to_a_slave_if_there_is_no_master() -> None:
    script = Script()
    script.run(commit_offset(NO_MASTER, "g", QUEUE, 7))
    assert script.tells[0].address == "s:1"
    with pytest.raises(NoRouteError):
        Script().run(commit_offset(NOBODY, "g", QUEUE, 7))


# --- where queues begin and end --------------------------------------------------------------


def test_the_ends_of_a_queue_are_asked_of_its_master() -> None:
    script = Script(
        reply(GetMinOffsetResponse(offset=3)),
        reply(GetMaxOffsetResponse(offset=9)),
        reply(SearchOffsetResponse(offset=5)),
        reply(GetEarliestMsgStoretimeResponse(timestamp=1700)),
        reply(GetEarliestMsgStoretimeResponse(timestamp=-1)),
    )
    assert script.run(min_offset(ROUTES, QUEUE)) == 3
    assert script.run(max_offset(ROUTES, QUEUE)) == 9
    assert script.run(offset_at(ROUTES, QUEUE, 1700)) == 5
    assert script.run(first_stored_at_ms(ROUTES, QUEUE)) == 1700
    assert script.run(first_stored_at_ms(ROUTES, QUEUE)) is None
    assert {ask.address for ask in script.asks} == {"m:1"}
    assert [ask.code for ask in script.asks] == [
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    ]
    assert script.asks[0].header == GetMinOffsetRequest(
        topic="T", queue_id=1, broker_name="broker-a"
    )
    assert script.asks[1].header == GetMaxOffsetRequest(
        topic="T", queue_id=1, broker_name="broker-a"
    )
    assert script.asks[2].header == SearchOffsetRequest(
        topic="T", queue_id=1, timestamp=1700, broker_name="broker-a"
    )


def _by_time(routes: RouteTable, queue: MessageQueue) -> Flow[int]:
    return offset_at(routes, queue, 1700)


QUESTIONS: Final = [
    pytest.param(min_offset, GetMinOffsetResponse(offset=7), id="min"),
    pytest.param(max_offset, GetMaxOffsetResponse(offset=7), id="max"),
    pytest.param(_by_time, SearchOffsetResponse(offset=7), id="by time"),
    pytest.param(first_stored_at_ms, GetEarliestMsgStoretimeResponse(timestamp=7), id="earliest"),
]


@pytest.mark.parametrize(("flow", "answer"), QUESTIONS)
def test_a_slave_is_asked_when_there_is_no_master_or_it_cannot_be_reached(
    flow: Callable[[RouteTable, MessageQueue], Flow[int | None]], answer: Header
) -> None:
    script = Script(reply(answer))
    assert script.run(flow(NO_MASTER, QUEUE)) == 7
    assert [ask.address for ask in script.asks] == ["s:1"]
    for failure in (ConnectFailedError("m:1", "refused"), ConnectionLostError("m:1", "reset")):
        script = Script(failure, reply(answer))
        assert script.run(flow(ROUTES, QUEUE)) == 7
        assert [ask.address for ask in script.asks] == ["m:1", "s:1"]
    # The first slave is away, too.
    script = Script(ConnectFailedError("s:1", "refused"), reply(answer))
    assert script.run(flow(NO_MASTER, QUEUE)) == 7
    assert [ask.address for ask in script.asks] == ["s:1", "s:2"]


@pytest.mark.parametrize(("flow", "_answer"), QUESTIONS)
def test_what_a_master_answers_or_leaves_open_is_not_asked_of_a_slave(
    flow: Callable[[RouteTable, MessageQueue], Flow[int | None]], _answer: Header
) -> None:
    for failure in (reply(code=ResponseCode.SYSTEM_ERROR), RequestTimeoutError("m:1", "x", 3)):
        script = Script(failure)
        with pytest.raises(ClientError):
            script.run(flow(ROUTES, QUEUE))
        assert len(script.asks) == 1
    with pytest.raises(NoRouteError, match="no broker broker-a is known"):
        Script().run(flow(NOBODY, QUEUE))
    lost = ConnectFailedError("m:1", "refused")
    with pytest.raises(ConnectFailedError, match="m:1"):
        Script(lost, ConnectFailedError("s:1", "refused")).run(flow(ROUTES, QUEUE))


# --- where to start --------------------------------------------------------------------------

MAX: Final = reply(GetMaxOffsetResponse(offset=9))
SEARCHED: Final = reply(SearchOffsetResponse(offset=5))
Code = RequestCode


@pytest.mark.parametrize(
    ("consume_from", "queue", "answers", "start", "then"),
    [
        pytest.param(ConsumeFrom.FIRST, QUEUE, [], 0, None, id="first"),
        pytest.param(ConsumeFrom.FIRST, RETRY, [], 0, None, id="first, retry"),
        pytest.param(ConsumeFrom.LAST, QUEUE, [MAX], 9, Code.GET_MAX_OFFSET, id="last"),
        pytest.param(ConsumeFrom.LAST, RETRY, [], 0, None, id="last, retry"),
        pytest.param(
            ConsumeFrom.TIMESTAMP,
            QUEUE,
            [SEARCHED],
            5,
            Code.SEARCH_OFFSET_BY_TIMESTAMP,
            id="timestamp",
        ),
        pytest.param(
            ConsumeFrom.TIMESTAMP, RETRY, [MAX], 9, Code.GET_MAX_OFFSET, id="timestamp, retry"
        ),
    ],
)
def test_a_group_that_was_never_there_starts_where_it_is_told(
    consume_from: ConsumeFrom,
    queue: MessageQueue,
    answers: list[Reply],
    start: int,
    then: RequestCode | None,
) -> None:
    for flow, before in (
        (start_offset(ROUTES, "g", queue, consume_from, 1700), [NOT_FOUND]),
        (first_start(ROUTES, queue, consume_from, 1700), []),
    ):
        script = Script(*before, *answers)
        assert script.run(flow) == start
        script.assert_done()
        asked = [ask.code for ask in script.asks[len(before) :]]
        assert asked == ([] if then is None else [then])


@pytest.mark.parametrize("consume_from", ConsumeFrom)
@pytest.mark.parametrize("queue", [QUEUE, RETRY])
def test_a_group_that_was_there_goes_on(consume_from: ConsumeFrom, queue: MessageQueue) -> None:
    for offset in (0, 42):
        script = Script(reply(QueryConsumerOffsetResponse(offset=offset)))
        assert script.run(start_offset(ROUTES, "g", queue, consume_from, 1700)) == offset


@pytest.mark.parametrize("consume_from", ConsumeFrom)
@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(reply(code=ResponseCode.SYSTEM_ERROR), id="system error"),
        pytest.param(reply(code=ResponseCode.SYSTEM_BUSY), id="busy"),
        pytest.param(reply(code=ResponseCode.TOPIC_NOT_EXIST), id="no topic"),
        pytest.param(reply(code=ResponseCode.NO_PERMISSION), id="no permission"),
        pytest.param(reply(code=ResponseCode.PULL_NOT_FOUND), id="an answer to a pull"),
        pytest.param(reply(), id="no header"),
        pytest.param(ConnectionLostError("m:1", "reset"), id="lost"),
        pytest.param(RequestTimeoutError("m:1", "x", 5), id="timeout"),
    ],
)
def test_any_other_failure_is_no_place_to_start(
    consume_from: ConsumeFrom, failure: Reply | ClientError
) -> None:
    for queue in (QUEUE, RETRY):
        script = Script(failure)
        with pytest.raises(ClientError):
            script.run(start_offset(ROUTES, "g", queue, consume_from, 1700))
        assert len(script.asks) == 1, "nothing else is asked"


@pytest.mark.parametrize("consume_from", [ConsumeFrom.LAST, ConsumeFrom.TIMESTAMP])
def test_the_end_of_a_queue_that_cannot_be_asked_is_no_place_to_start(
    consume_from: ConsumeFrom,
) -> None:
    with pytest.raises(ResponseError):
        Script(NOT_FOUND, reply(code=1)).run(start_offset(ROUTES, "g", QUEUE, consume_from, 1))
    # A slave may not have heard yet where the group is: it would be sent past what it must read.
    with pytest.raises(NoRouteError, match="no master of broker broker-a is known"):
        Script(NOT_FOUND).run(start_offset(NO_MASTER, "g", QUEUE, consume_from, 1))


def test_heartbeats_have_names_for_it() -> None:
    assert ConsumeFrom.FIRST.wire is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert ConsumeFrom.LAST.wire is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert ConsumeFrom.TIMESTAMP.wire is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


# --- a real broker ---------------------------------------------------------------------------


async def test_offsets_of_a_real_broker(tmp_path: Path) -> None:
    queue = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=2)
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic("Orders")
        await client.route("Orders")
        routes = client.routes
        before_ms = time.time_ns() // 1_000_000
        assert await client.run(first_stored_at_ms(routes, queue)) is None
        for number in range(5):
            await client.run(store(it.address(), queue, b"%d" % number))
        assert await client.run(min_offset(routes, queue)) == 0
        assert await client.run(max_offset(routes, queue)) == 5
        first_ms = await client.run(first_stored_at_ms(routes, queue))
        assert first_ms is not None
        assert first_ms >= before_ms
        assert await client.run(offset_at(routes, queue, before_ms - 1000)) == 0
        # A young queue starts from 0 by the broker's word, whatever the consumer says.
        for consume_from in ConsumeFrom:
            assert await client.run(start_offset(routes, "g", queue, consume_from, 0)) == 0
        assert await client.run(first_start(routes, queue, ConsumeFrom.LAST)) == 5
        assert (
            await client.run(first_start(routes, queue, ConsumeFrom.TIMESTAMP, before_ms - 1)) == 0
        )
        await client.run(commit_offset(routes, "g", queue, 3, is_oneway=False))
        assert await client.run(fetch_offset(routes, "g", queue)) == 3
        assert await client.run(start_offset(routes, "g", queue, ConsumeFrom.FIRST)) == 3
        # One-way too: requests of a connection are handled in order.
        await client.run(commit_offset(routes, "g", queue, 4))
        assert await client.run(fetch_offset(routes, "g", queue)) == 4


async def test_a_broker_that_is_gone_is_no_place_to_start(tmp_path: Path) -> None:
    queue = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=2)
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic("Orders")
        await client.route("Orders")
        await it.kill()
        with pytest.raises(ClientError):
            await client.run(start_offset(client.routes, "g", queue, ConsumeFrom.FIRST))
