"""Requests that are refused: by the server, by the guard, or by their handler. Refusals are in the
server's own serialization (JSON), whatever the request came in; only that of an unknown code is an
answer like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.errors import RefusedError
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import ResponseCode, Serialization
from rmq.remoting.protocol import RequestType
from tests.remoting.server_kit import (
    PULL,
    QUERY,
    SEND,
    Ask,
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

    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.header import Header
    from rmq.remoting.request import Request

    Act = Callable[[Request[Ask]], None]

JSON: Final = Serialization.JSON
BINARY: Final = Serialization.ROCKETMQ
both_serializations = pytest.mark.parametrize(
    "serialization", [pytest.param(JSON, id="json"), pytest.param(BINARY, id="binary")]
)
KINDS: Final = {"plain": SEND, "batch": PULL, "coroutine": QUERY}
every_kind = pytest.mark.parametrize("kind", list(KINDS))


def table_of(act: Act) -> HandlerTable:
    """Return a table that does the same under one code for each kind of handler."""

    def batch(requests: Sequence[Request[Ask]]) -> None:
        for request in requests:
            act(request)

    async def coroutine(request: Request[Ask]) -> None:
        await trio.lowlevel.checkpoint()
        act(request)

    table = table_with_ping()
    table.add(RequestType(Ask, code=KINDS["plain"]), act)
    table.add_batch(RequestType(Ask, code=KINDS["batch"]), batch)
    table.add_async(RequestType(Ask, code=KINDS["coroutine"]), coroutine)
    return table


# ---- by the server -------------------------------------------------------------------------------


@both_serializations
async def test_an_unknown_code_is_answered_and_the_connection_lives_on(
    serialization: Serialization, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as served:
        peer = served.attach()
        told = await peer.request(ask(9_999, -7, serialization=serialization))
        assert (told.code, told.flag, told.opaque) == (3, 1, -7)
        assert told.serialization == serialization
        assert told.remark == " request type 9999 not supported"
        assert not told.fields
        assert await peer.ping() == []
    assert Logs(caplog).lines == []


async def test_a_server_may_stay_silent_about_unknown_codes() -> None:
    async with serving(answer_unknown=False) as served:
        peer = served.attach()
        await peer.send(ask(9_999, 1), ask(9_998, 2))
        assert await peer.ping() == []


@every_kind
@both_serializations
async def test_a_missing_mandatory_field_is_named_in_the_answer(
    kind: str, serialization: Serialization
) -> None:
    if serialization is JSON:
        header = b'{"code":%d,"extFields":{"text":"t"},"flag":0,"opaque":5}' % KINDS[kind]
    else:
        header = KINDS[kind].to_bytes(2, "big") + bytes.fromhex("00 0199 00000005 00000000")
        header += (
            bytes.fromhex("00000000 0000000B 0004") + b"text" + bytes.fromhex("00000001") + b"t"
        )
    async with serving(table_of(echo)) as served:
        peer = served.attach()
        told = await peer.request(raw_frame(header, serialization=serialization))
        assert (told.code, told.opaque, told.serialization) == (1, 5, JSON)
        assert told.remark is not None
        assert "number" in told.remark
        assert (await peer.request(ask(KINDS[kind], 6))).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(b'{"number":"one"}', id="text"),
        pytest.param(b'{"number":"4294967296"}', id="over-32-bits"),
        pytest.param(b'{"number":"1.5"}', id="fraction"),
        pytest.param(b'{"number":null}', id="null"),
        pytest.param(b'{"number":[1]}', id="list"),
        pytest.param(b"null", id="no-fields"),
    ],
)
async def test_a_malformed_field_is_named_in_the_answer(fields: bytes) -> None:
    header = b'{"code":310,"extFields":%b,"flag":0,"opaque":5}' % fields
    async with serving(table_of(echo)) as served:
        peer = served.attach()
        told = await peer.request(raw_frame(header))
        assert told.code == ResponseCode.SYSTEM_ERROR
        assert told.remark is not None
        assert "number" in told.remark
        assert await peer.ping() == []


async def test_one_unreadable_header_leaves_the_rest_of_its_batch_alone() -> None:
    async with serving(table_of(echo)) as served:
        peer = served.attach()
        bad = raw_frame(b'{"code":11,"extFields":{"number":"x"},"flag":0,"opaque":2}')
        await peer.send(ask(PULL, 1), bad, ask(PULL, 3))
        told = {frame.opaque: frame.code for frame in await peer.ping()}
    assert told == {1: 0, 2: 1, 3: 0}


# ---- by the guard --------------------------------------------------------------------------------


@both_serializations
async def test_the_guard_decides_before_the_handler_does(
    serialization: Serialization, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[str, int]] = []

    def guard(channel: Channel, command: Command) -> None:
        asked.append((channel.peer, command.opaque))
        if command.ext_fields.get("text") == "stranger":
            raise RefusedError(ResponseCode.NO_PERMISSION, "not you")
        if command.ext_fields.get("text") == "riddle":
            raise KeyError("no such key")

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table, guard=guard) as served:
        peer = served.attach("client")
        texts = ["friend", "stranger", "riddle", None]
        await peer.send(
            *(ask(SEND, n, text=text, serialization=serialization) for n, text in enumerate(texts))
        )
        told = {frame.opaque: frame for frame in await peer.ping()}
    assert {opaque: frame.code for opaque, frame in told.items()} == {0: 0, 1: 16, 2: 1, 3: 0}
    assert told[1].remark == "not you"
    assert told[2].remark == "KeyError: 'no such key'"
    assert told[1].serialization == told[2].serialization == JSON
    assert asked[:4] == [("client", 0), ("client", 1), ("client", 2), ("client", 3)]
    (line,) = Logs(caplog).lines
    assert line == "guard failed on SEND_MESSAGE_V2 (310) of client"


async def test_what_the_guard_refuses_of_a_one_way_request_is_not_answered() -> None:
    def guard(_: Channel, command: Command) -> None:
        if command.code == SEND:
            raise RefusedError(ResponseCode.NO_PERMISSION, "no")

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table, guard=guard) as served:
        peer = served.attach()
        await peer.send(ask(SEND, 1, oneway=True))
        assert await peer.ping() == []


# ---- by the handler ------------------------------------------------------------------------------


@every_kind
@both_serializations
async def test_a_handler_that_refuses_chooses_code_and_remark(
    kind: str, serialization: Serialization, caplog: pytest.LogCaptureFixture
) -> None:
    def act(request: Request[Ask]) -> None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.header.text}] nö")

    async with serving(table_of(act)) as served:
        told = await served.attach().request(
            ask(KINDS[kind], 3, text="T", serialization=serialization)
        )
    assert (told.code, told.remark, told.opaque) == (17, "topic[T] nö", 3)
    assert told.serialization == JSON
    assert Logs(caplog).lines == []


@every_kind
@both_serializations
async def test_a_handler_that_raises_is_answered_for_and_logged_once(
    kind: str, serialization: Serialization, caplog: pytest.LogCaptureFixture
) -> None:
    def act(request: Request[Ask]) -> None:
        raise ValueError("boom")

    async with serving(table_of(act)) as served:
        peer, other = served.attach("guilty"), served.attach("other")
        told = await peer.request(ask(KINDS[kind], 3, serialization=serialization))
        assert (told.code, told.remark, told.opaque) == (1, "ValueError: boom", 3)
        assert told.serialization == JSON
        assert await peer.ping() == await other.ping() == []
    (line,) = Logs(caplog).lines
    assert line.startswith(f"handler of {KINDS[kind].name} ({KINDS[kind]}) from guilty failed")


@every_kind
async def test_a_handler_that_raises_after_it_deferred_is_logged_and_may_answer_yet(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    holder = Holder()

    def act(request: Request[Ask]) -> None:
        holder(request)
        raise ValueError("boom")

    async with serving(table_of(act)) as served:
        peer = served.attach()
        await peer.send(ask(KINDS[kind], 3))
        await wait_all_tasks_blocked()
        # Whoever it was deferred to would otherwise answer a second time.
        assert await peer.ping() == []
        holder.requests[0].reply(Told(number=3))
        assert (await peer.read()).number == 3
        assert served.group("admin").unanswered == 0
    assert len(Logs(caplog).lines) == 1


@every_kind
async def test_a_handler_that_raises_after_its_answer_is_logged_and_the_answer_stands(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def act(request: Request[Ask]) -> None:
        request.reply(Told(number=1))
        raise ValueError("boom")

    async with serving(table_of(act)) as served:
        peer = served.attach()
        assert (await peer.request(ask(KINDS[kind], 3))).number == 1
        await wait_all_tasks_blocked()
        assert await peer.ping() == []
    (line,) = Logs(caplog).lines
    assert KINDS[kind].name in line


@every_kind
@pytest.mark.parametrize(
    "error",
    [
        # A body quoted in full, say: the answer would be larger than the peer takes.
        pytest.param(ValueError("x" * 100_000), id="long-text"),
        pytest.param(RefusedError(ResponseCode.TOPIC_NOT_EXIST, "x" * 100_000), id="long-remark"),
        # File names that are not UTF-8 come as half surrogate pairs.
        pytest.param(ValueError("caf\udce9"), id="half-a-pair"),
        pytest.param(RefusedError(ResponseCode.TOPIC_NOT_EXIST, "caf\udce9"), id="half-in-remark"),
    ],
)
async def test_an_error_whose_text_the_wire_cannot_carry_is_answered_all_the_same(
    kind: str, error: Exception
) -> None:
    def act(request: Request[Ask]) -> None:
        if request.header.text == "bad":
            raise error
        echo(request)

    expected = error.code if isinstance(error, RefusedError) else ResponseCode.SYSTEM_ERROR
    async with serving(table_of(act), channel=ChannelConfig(frame_bytes_max=16_384)) as served:
        peer, other = served.attach("guilty"), served.attach("other")
        await peer.send(ask(KINDS[kind], 1, text="bad"), ask(KINDS[kind], 2))
        told = {frame.opaque: frame for frame in await peer.read_many(2)}
        assert (told[1].code, bool(told[1].remark)) == (expected, True)
        # A batch fails as a whole; the other kinds see one request at a time.
        assert told[2].code == (expected if kind == "batch" else ResponseCode.SUCCESS)
        assert await peer.ping() == await other.ping() == []


async def test_an_answer_that_is_too_large_becomes_an_error_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def act(request: Request[Ask]) -> None:
        request.reply(Told(number=1), body=bytes(request.header.number))

    async with serving(table_of(act), channel=ChannelConfig(frame_bytes_max=1_024)) as served:
        peer = served.attach("greedy")
        await peer.send(ask(SEND, 1, number=2_000), ask(SEND, 2, number=500))
        too_large, fitting = await peer.read_many(2)
        assert (too_large.opaque, too_large.code, too_large.body) == (1, 1, b"")
        assert too_large.remark is not None
        assert "limit of 1024" in too_large.remark
        assert (fitting.opaque, fitting.code, len(fitting.body)) == (2, 0, 500)
    (line,) = Logs(caplog).lines
    assert line.startswith("answer to SEND_MESSAGE_V2 (310) of greedy dropped: a frame of 2")


# ---- by a batch handler --------------------------------------------------------------------------


def batch_table(
    handler: Callable[[Sequence[Request[Ask]]], Sequence[Header | None] | None],
) -> HandlerTable:
    table = table_with_ping()
    table.add_batch(RequestType(Ask, code=SEND), handler)
    return table


async def test_a_failed_batch_is_answered_for_where_the_handler_has_not_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handle(requests: Sequence[Request[Ask]]) -> None:
        requests[0].reply(Told(number=100))
        requests[2].reply(Told(number=102))
        raise ValueError("disk full")

    async with serving(batch_table(handle)) as served:
        peer = served.attach("client")
        await peer.send(*(ask(SEND, n) for n in range(4)))
        told = {frame.opaque: frame for frame in await peer.ping()}
        assert {opaque: frame.code for opaque, frame in told.items()} == {0: 0, 1: 1, 2: 0, 3: 1}
        assert (told[0].number, told[2].number) == (100, 102)
        assert told[1].remark == told[3].remark == "ValueError: disk full"
    (line,) = Logs(caplog).lines
    assert "SEND_MESSAGE_V2" in line


async def test_a_batch_handler_that_miscounts_its_answers_fails_the_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handle(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        return [Told(number=1)] * (len(requests) + 1)

    async with serving(batch_table(handle)) as served:
        peer = served.attach()
        await peer.send(ask(SEND, 1), ask(SEND, 2))
        told = await peer.ping()
        assert [(frame.opaque, frame.code) for frame in told] == [(1, 1), (2, 1)]
        assert told[0].remark == "RuntimeError: 3 response headers for 2 requests"
    assert len(Logs(caplog).lines) == 1


@both_serializations
async def test_a_header_returned_for_an_answered_request_costs_no_other_its_answer(
    serialization: Serialization, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        requests[1].reply(Told(number=100))
        return [Told(number=request.header.number) for request in requests]

    async with serving(batch_table(handle)) as served:
        peer = served.attach()
        await peer.send(*(ask(SEND, n, serialization=serialization) for n in range(3)))
        told = {frame.opaque: frame for frame in await peer.ping()}
    assert set(told) == {0, 1, 2}
    assert (told[1].code, told[1].number) == (0, 100)
    assert len(Logs(caplog).lines) == 1


@both_serializations
async def test_one_answer_too_large_costs_no_other_of_its_batch_the_answer(
    serialization: Serialization,
) -> None:
    def handle(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        return [Told(number=n, text="x" * 2_000 * (n == 1)) for n in range(len(requests))]

    channel = ChannelConfig(frame_bytes_max=1_024)
    async with serving(batch_table(handle), channel=channel) as served:
        peer = served.attach()
        await peer.send(*(ask(SEND, n, serialization=serialization) for n in range(3)))
        told = {frame.opaque: frame.code for frame in await peer.ping()}
    assert told == {0: 0, 1: 1, 2: 0}
