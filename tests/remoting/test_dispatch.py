"""The handler table: the three kinds of handler, and when and how requests are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.errors import RefusedError
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import VERSION, RequestCode, ResponseCode, Serialization
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.header import EmptyHeader, Header
from rmq.remoting.protocol import Requests, RequestType
from tests.remoting.server_kit import (
    PULL,
    QUERY,
    SEND,
    Ask,
    Gate,
    Holder,
    Logs,
    Told,
    ask,
    echo,
    raw_frame,
    serving,
    table_with_ping,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.remoting.request import Request

    Act = Callable[[Request[Ask]], None]
    Add = Callable[[HandlerTable, Act], None]

JSON: Final = Serialization.JSON
BINARY: Final = Serialization.ROCKETMQ
both_serializations = pytest.mark.parametrize(
    "serialization", [pytest.param(JSON, id="json"), pytest.param(BINARY, id="binary")]
)

# ---- the kinds of handler ------------------------------------------------------------------------


def add_plain(table: HandlerTable, act: Act) -> None:
    table.add(RequestType(Ask, code=SEND), act)


def add_batch(table: HandlerTable, act: Act) -> None:
    def handle(requests: Sequence[Request[Ask]]) -> None:
        for request in requests:
            act(request)

    table.add_batch(RequestType(Ask, code=SEND), handle)


def add_coroutine(table: HandlerTable, act: Act) -> None:
    async def handle(request: Request[Ask]) -> None:
        await trio.lowlevel.checkpoint()
        act(request)

    table.add_async(RequestType(Ask, code=SEND), handle)


every_kind = pytest.mark.parametrize(
    "add",
    [
        pytest.param(add_plain, id="plain"),
        pytest.param(add_batch, id="batch"),
        pytest.param(add_coroutine, id="coroutine"),
    ],
)


@both_serializations
@every_kind
async def test_a_request_is_answered_in_its_own_serialization(
    add: Add, serialization: Serialization
) -> None:
    table = table_with_ping()
    add(table, echo)
    async with serving(table) as served:
        peer = served.attach()
        told = await peer.request(
            ask(SEND, 7, number=-3, text="größe", body=b"\x00body", serialization=serialization)
        )
    assert told.serialization == serialization
    assert (told.code, told.flag, told.opaque, told.remark) == (0, 1, 7, None)
    assert told.fields == {"number": "-3", "text": "größe"}
    assert told.body == b"\x00body"
    # What a stock server sends, whatever language the server is written in.
    assert told.language == ("JAVA" if serialization is JSON else 0)
    assert told.version == VERSION == 409


@both_serializations
async def test_headers_returned_by_a_batch_handler_are_the_answers(
    serialization: Serialization,
) -> None:
    def handle(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        return [Told(number=request.header.number * 2) for request in requests]

    table = table_with_ping()
    table.add_batch(RequestType(Ask, code=SEND), handle)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(*(ask(SEND, n, serialization=serialization) for n in range(3)))
        told = await peer.read_many(3)
    assert [(each.opaque, each.number) for each in told] == [(0, 0), (1, 2), (2, 4)]
    assert {each.serialization for each in told} == {serialization}


async def test_a_batch_handler_may_leave_some_answers_to_itself_and_defer_others() -> None:
    deferred: list[Request[Ask]] = []

    def handle(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        requests[1].reply(Told(number=100))
        requests[2].defer()
        deferred.append(requests[2])
        return [Told(number=0), None, None, Told(number=3)]

    table = table_with_ping()
    table.add_batch(RequestType(Ask, code=SEND), handle)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(*(ask(SEND, n) for n in range(4)))
        told = {frame.opaque: frame.number for frame in await peer.ping()}
        assert told == {0: 0, 1: 100, 3: 3}
        deferred[0].reply(Told(number=200))
        assert (await peer.read()).number == 200


async def test_consecutive_requests_of_one_code_come_together_and_leave_in_one_write() -> None:
    batches: list[list[int]] = []

    def handle(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        batches.append([request.header.number for request in requests])
        return [Told(number=request.header.number) for request in requests]

    table = table_with_ping()
    table.add_batch(RequestType(Ask, code=SEND), handle)
    table.add(RequestType(Ask, code=QUERY), echo)
    codes = [SEND, SEND, SEND, QUERY, SEND, SEND]
    async with serving(table) as served:
        peer, transport = served.attach_recorded()
        await peer.send(*(ask(code, n) for n, code in enumerate(codes)))
        assert await peer.read_numbers(6) == [0, 1, 2, 3, 4, 5]
    assert batches == [[0, 1, 2], [4, 5]]
    assert len(transport.writes) == 1


async def test_a_read_of_more_frames_than_a_batch_is_answered_batch_by_batch() -> None:
    batches: list[int] = []

    def handle(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        batches.append(len(requests))
        return [Told(number=request.header.number) for request in requests]

    table = table_with_ping()
    table.add_batch(RequestType(Ask, code=SEND), handle)
    async with serving(table, channel=ChannelConfig(batch_frames=4)) as served:
        peer, transport = served.attach_recorded()
        await peer.send(*(ask(SEND, n) for n in range(10)))
        assert await peer.read_numbers(10) == list(range(10))
    assert batches == [4, 4, 2]
    assert len(transport.writes) == 3


async def test_coroutines_answer_in_the_order_they_finish() -> None:
    gate = Gate()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(*(ask(QUERY, n) for n in range(4)))
        told = []
        for number in (2, 0, 3, 1):
            gate.let(number)
            told.append((await peer.read()).opaque)
    assert told == [2, 0, 3, 1]


async def test_a_plain_answer_overtakes_a_coroutine_that_waits() -> None:
    gate = Gate()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate)
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(QUERY, 1), ask(SEND, 2))
        assert (await peer.read()).opaque == 2
        gate.let(1)
        assert (await peer.read()).opaque == 1


# ---- answers that are not due --------------------------------------------------------------------


def reply(request: Request[Ask]) -> None:
    request.reply(Told(number=1))


def refuse(request: Request[Ask]) -> None:
    raise RefusedError(ResponseCode.NO_PERMISSION, "no")


def fail(request: Request[Ask]) -> None:
    raise ValueError("boom")


def ignore(request: Request[Ask]) -> None:
    """Neither answer nor defer."""


@every_kind
@pytest.mark.parametrize("act", [reply, refuse, fail, ignore])
async def test_a_one_way_request_is_never_answered(add: Add, act: Act) -> None:
    table = table_with_ping()
    add(table, act)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(SEND, 1, oneway=True))
        await wait_all_tasks_blocked()
        assert await peer.ping() == []
        assert served.group("admin").unanswered == 0


async def test_headers_returned_for_one_way_requests_are_not_sent() -> None:
    def handle(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        return [Told(number=request.header.number) for request in requests]

    table = table_with_ping()
    table.add_batch(RequestType(Ask, code=SEND), handle)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(SEND, 1, oneway=True), ask(SEND, 2), ask(SEND, 3, oneway=True))
        assert [frame.opaque for frame in await peer.ping()] == [2]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(ask(9_999, 1, oneway=True), id="unknown-code"),
        pytest.param(raw_frame(b'{"code":310,"flag":2,"opaque":1}'), id="missing-field"),
    ],
)
async def test_a_one_way_request_that_cannot_be_handled_is_not_answered_either(
    frame: bytes,
) -> None:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(frame)
        assert await peer.ping() == []


@every_kind
async def test_a_handler_that_neither_answers_nor_defers_sends_nothing(add: Add) -> None:
    table = table_with_ping()
    add(table, ignore)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(SEND, 1), ask(SEND, 2))
        await wait_all_tasks_blocked()
        assert await peer.ping() == []
        assert served.group("admin").unanswered == 0


# ---- deferred answers ----------------------------------------------------------------------------


@every_kind
async def test_a_deferred_request_is_answered_from_another_task(add: Add) -> None:
    holder = Holder()
    table = table_with_ping()
    add(table, holder)
    async with serving(table) as served, trio.open_nursery() as nursery:
        peer = served.attach()
        await peer.send(ask(SEND, 5))
        await wait_all_tasks_blocked()
        assert await peer.ping() == []
        assert served.group("admin").unanswered == 1

        async def complete() -> None:
            await trio.lowlevel.checkpoint()
            holder.requests[0].reply(Told(number=50), body=memoryview(b"later"))

        nursery.start_soon(complete)
        told = await peer.read()
        assert (told.opaque, told.number, told.body) == (5, 50, b"later")
        assert served.group("admin").unanswered == 0


async def test_deferred_answers_of_one_step_leave_in_one_write_per_connection() -> None:
    holder = Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    async with serving(table) as served:
        pairs = [served.attach_recorded(f"peer-{n}") for n in range(2)]
        for peer, _ in pairs:
            await peer.send(*(ask(PULL, n) for n in range(50)))
        await wait_all_tasks_blocked()
        assert len(holder.requests) == 100
        for request in holder.requests:
            request.reply(Told(number=request.header.number), body=b"x" * 100)
        for peer, _ in pairs:
            assert await peer.read_numbers(50) == list(range(50))
        assert [len(transport.writes) for _, transport in pairs] == [1, 1]


async def test_a_dropped_request_gets_no_answer_and_frees_its_place() -> None:
    holder = Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(PULL, 1))
        assert await peer.ping() == []
        (request,) = holder.requests
        request.drop()
        request.drop()
        assert served.group("admin").unanswered == 0
        assert await peer.ping() == []


@pytest.mark.parametrize("settle", ["reply", "refuse"])
async def test_answering_twice_is_an_error_and_sends_one_answer(settle: str) -> None:
    holder = Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(PULL, 1))
        assert await peer.ping() == []
        (request,) = holder.requests
        if settle == "reply":
            request.reply(Told(number=1))
        else:
            request.refuse(ResponseCode.SYSTEM_ERROR, "no")
        assert request.answered
        with pytest.raises(RuntimeError, match=r"PULL_MESSAGE \(11\) of peer answered twice"):
            request.reply(Told(number=2))
        with pytest.raises(RuntimeError, match="answered twice"):
            request.refuse(ResponseCode.SYSTEM_ERROR, "again")
        request.drop()
        assert [frame.opaque for frame in await peer.ping()] == [1]
        assert served.group("admin").unanswered == 0


@every_kind
async def test_a_handler_that_answers_twice_is_reported_and_its_first_answer_stands(
    add: Add, caplog: pytest.LogCaptureFixture
) -> None:
    def answer_twice(request: Request[Ask]) -> None:
        request.reply(Told(number=1))
        request.reply(Told(number=2))

    table = table_with_ping()
    add(table, answer_twice)
    async with serving(table) as served:
        peer = served.attach()
        assert (await peer.request(ask(SEND, 1))).number == 1
        await wait_all_tasks_blocked()
        assert await peer.ping() == []
    (line,) = Logs(caplog).lines
    assert "SEND_MESSAGE_V2" in line


async def test_an_answer_after_the_connection_died_is_harmless() -> None:
    holder, gate = Holder(), Gate()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    table.add_async(RequestType(Ask, code=QUERY), gate)
    async with serving(table) as served:
        peer, other = served.attach(), served.attach("other")
        await peer.send(ask(PULL, 1), ask(PULL, 2), ask(PULL, 3), ask(QUERY, 4))
        await wait_all_tasks_blocked()
        await peer.aclose()
        await wait_all_tasks_blocked()
        assert not peer.channel.is_open
        replied, refused, dropped = holder.requests
        replied.reply(Told(number=1), body=b"x" * 1_000)
        refused.refuse(ResponseCode.SYSTEM_ERROR, "no")
        dropped.drop()
        gate.let(4)
        await wait_all_tasks_blocked()
        assert served.group("admin").unanswered == 0
        assert peer.channel.outbox_bytes == 0
        assert await other.ping() == []


# ---- what an answer can carry --------------------------------------------------------------------


@both_serializations
async def test_an_answer_may_have_its_own_code_remark_and_undeclared_fields(
    serialization: Serialization,
) -> None:
    def handle(request: Request[Ask]) -> None:
        request.reply(
            Told(number=1),
            code=ResponseCode.FLUSH_DISK_TIMEOUT,
            remark="später",
            extra={"MSG_REGION": "R", "TRACE_ON": "true"},
        )

    table = HandlerTable()
    table.add(RequestType(Ask, code=SEND), handle)
    async with serving(table) as served:
        told = await served.attach().request(ask(SEND, 1, serialization=serialization))
    assert (told.code, told.remark, told.serialization) == (10, "später", serialization)
    assert told.fields == {"number": "1", "MSG_REGION": "R", "TRACE_ON": "true"}


async def test_an_answer_without_header_class_has_no_ext_fields_and_an_empty_one_has() -> None:
    def bare(request: Request[EmptyHeader]) -> None:
        request.reply()

    def empty(request: Request[EmptyHeader]) -> None:
        request.reply(EmptyHeader())

    table = HandlerTable()
    table.add(Requests.HEART_BEAT, bare)
    table.add(RequestType(code=RequestCode.UNREGISTER_CLIENT), empty)
    async with serving(table) as served:
        peer = served.attach()
        without = await peer.request(raw_frame(b'{"code":34,"flag":0,"opaque":1}'))
        with_empty = await peer.request(raw_frame(b'{"code":35,"flag":0,"opaque":2}'))
    assert (without.fields, with_empty.fields) == (None, {})


async def test_a_handler_sees_fields_and_body_as_they_came() -> None:
    seen: list[tuple[dict[str, str], bytes | None]] = []

    def look(request: Request[Ask]) -> None:
        seen.append((request.command.ext_fields, request.body))

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), look)
    header = b'{"code":310,"extFields":{"number":"1","ReqT":"0"},"flag":0,"opaque":1}'
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(raw_frame(header), raw_frame(header, b"b"))
        await peer.ping()
    assert seen == [({"number": "1", "ReqT": "0"}, None), ({"number": "1", "ReqT": "0"}, b"b")]


# ---- the table -----------------------------------------------------------------------------------


async def test_a_table_without_some_codes_serves_the_others() -> None:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    table.add(RequestType(Ask, code=PULL), echo)
    async with serving(table) as full, serving(table.without(PULL)) as fewer:
        peer = full.attach()
        assert (await peer.request(ask(PULL, 1))).code == ResponseCode.SUCCESS
        peer = fewer.attach()
        assert (await peer.request(ask(PULL, 1))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await peer.request(ask(SEND, 2))).code == ResponseCode.SUCCESS


def test_a_code_has_one_handler_only() -> None:
    table = HandlerTable()
    table.add(RequestType(Ask, code=SEND), echo)
    with pytest.raises(ValueError, match="SEND_MESSAGE_V2 has a handler already"):
        table.add_async(RequestType(Ask, code=SEND), Gate())


@pytest.mark.parametrize("bound", ["concurrency", "capacity", "per_connection"])
def test_a_group_without_room_is_refused(bound: str) -> None:
    bounds = {"concurrency": 1, "capacity": 1, "per_connection": 1, bound: 0}
    with pytest.raises(ValueError, match="group g: bounds must be at least 1"):
        HandlerGroup(
            name="g",
            concurrency=bounds["concurrency"],
            capacity=bounds["capacity"],
            per_connection=bounds["per_connection"],
        )
