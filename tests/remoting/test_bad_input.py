"""What a peer may send by mistake or on purpose. Each has a defined answer, or ends that connection
with one log line; no other connection notices.
"""

from __future__ import annotations

import logging
import ssl
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmq.log_limits import LINES_PER_SOURCE
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import Serialization
from rmq.remoting.protocol import RequestType
from tests.remoting.server_kit import (
    PULL,
    QUERY,
    SEND,
    Ask,
    Events,
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
    from collections.abc import AsyncIterator

    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request
    from tests.remoting.server_kit import Served


def table_of_all_kinds() -> HandlerTable:
    def fail(request: Request[Ask]) -> None:
        raise ValueError("boom")

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    table.add(RequestType(Ask, code=QUERY), fail)
    return table


@asynccontextmanager
async def serving_a_bystander(
    caplog: pytest.LogCaptureFixture, *, channel: ChannelConfig | None = None
) -> AsyncIterator[tuple[Served, Events]]:
    """Run a server with a second connection that must not notice what the first one does."""
    caplog.set_level(logging.INFO)
    holder, events = Holder(), Events()
    table = table_of_all_kinds()
    table.add(RequestType(Ask, code=PULL), holder)
    async with serving(table, channel=channel, listeners=[events]) as served:
        bystander = await served.dial()
        # One request under way and half of another on the wire while the other peer misbehaves.
        frame = ask(SEND, 2, body=b"whole")
        await bystander.send(ask(PULL, 1), frame[:20])
        while not holder.requests:
            await wait_all_tasks_blocked()
        yield served, events
        await bystander.send(frame[20:])
        told = await bystander.read()
        assert (told.opaque, told.body) == (2, b"whole")
        holder.requests[0].reply(Told(number=1))
        assert (await bystander.read()).opaque == 1
        assert await bystander.ping() == []


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def binary_frame(header: bytes) -> bytes:
    return raw_frame(header, serialization=Serialization.ROCKETMQ)


BINARY_PREFIX = bytes.fromhex("0136 00 0199 00000001 00000000")
NESTED = b"[" * 20_000 + b"]" * 20_000

BROKEN = [
    pytest.param(struct.pack(">i", -1), "frame length -1", id="negative-length"),
    pytest.param(struct.pack(">i", -(2**31)), "frame length -2147483648", id="least-length"),
    pytest.param(struct.pack(">i", 0), "frame length 0", id="no-length"),
    pytest.param(struct.pack(">iI", 3, 0), "frame length 3", id="length-below-least"),
    pytest.param(struct.pack(">i", 2**31 - 1), "frame length 2147483647", id="absurd-length"),
    pytest.param(struct.pack(">iI", 16_777_213, 0), "16777213", id="one-byte-over-16-mib"),
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", "frame length 1195725856", id="http"),
    pytest.param(client_hello(), "TLS bytes on a plain connection", id="tls"),
    pytest.param(raw_frame(b"{}", serialization=2), "serialization 2", id="serialization-2"),
    pytest.param(raw_frame(b"{}", serialization=255), "serialization 255", id="serialization-255"),
    pytest.param(struct.pack(">iI", 10, 7) + b"{}1234", "header length 7", id="header-over-frame"),
    pytest.param(struct.pack(">iI", 4, 0xFFFFFF), "header length 16777215", id="header-only-says"),
    pytest.param(raw_frame(b""), "JSON", id="empty-json"),
    pytest.param(raw_frame(b'{"code":310,'), "JSON", id="cut-json"),
    pytest.param(raw_frame(b"[1,2]"), "JSON", id="json-list"),
    pytest.param(raw_frame(b"\xff\xfe\xfd"), "JSON", id="no-text-at-all"),
    pytest.param(raw_frame(b'{"code":"send"}'), "JSON", id="code-in-words"),
    pytest.param(raw_frame(b'{"code":310,"opaque":9999999999}'), "opaque", id="opaque-too-long"),
    pytest.param(raw_frame(b'{"code":310,"x":%b}' % NESTED), "JSON", id="nested-too-deep"),
    pytest.param(
        raw_frame(b'{"code":310,"extFields":{"number":%b}}' % NESTED), "JSON", id="nested-field"
    ),
    pytest.param(binary_frame(b""), "binary header", id="empty-binary"),
    pytest.param(binary_frame(BINARY_PREFIX), "binary header", id="cut-binary"),
    pytest.param(
        binary_frame(BINARY_PREFIX + struct.pack(">ii", -1, 0)), "text of -1", id="negative-remark"
    ),
    pytest.param(
        binary_frame(BINARY_PREFIX + struct.pack(">ii", 0, 99)), "99 bytes", id="fields-over-header"
    ),
    pytest.param(
        binary_frame(BINARY_PREFIX + struct.pack(">iihi", 0, 6, 0, -7)), "-7", id="negative-value"
    ),
    pytest.param(
        binary_frame(BINARY_PREFIX + struct.pack(">iih", 0, 2, 2)),
        "text of 2",
        id="key-over-fields",
    ),
]


# ---- the connection ends -------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "named"), BROKEN)
async def test_bytes_without_meaning_end_their_connection_with_one_log_line(
    data: bytes, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_a_bystander(caplog) as (served, events):
        peer = await served.dial()
        await peer.send(data)
        assert await peer.read_to_end() == []
        (reason,) = events.reasons
        assert reason.startswith("protocol error: ")
        (line,) = Logs(caplog).lines
        assert line.startswith("closing connection of 127.0.0.1:")
        assert named in line
        assert served.server.statistics().endpoint.held_bytes == 20


@pytest.mark.parametrize(("data", "named"), BROKEN[:4] + BROKEN[7:14] + BROKEN[-4:])
async def test_bytes_without_meaning_are_seen_as_such_however_they_are_cut(
    data: bytes, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_a_bystander(caplog) as (served, _):
        peer = served.attach("broken")
        for byte in data:
            if not peer.channel.is_open:
                break
            await peer.send(bytes([byte]))
            await wait_all_tasks_blocked()
        assert await peer.read_to_end() == []
        (line,) = Logs(caplog).lines
        assert line.startswith("closing connection of broken: ")
        assert named in line


@pytest.mark.parametrize("over", ["memory", "tcp"])
async def test_requests_before_the_broken_bytes_are_handled_and_answered(
    over: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_a_bystander(caplog) as (served, events):
        peer = served.attach() if over == "memory" else await served.dial()
        frames = [ask(SEND, number) for number in range(50)]
        await peer.send(*frames, struct.pack(">iI", -5, 0), *frames)
        told = await peer.read_to_end()
        assert [frame.opaque for frame in told] == list(range(50))
        assert len(events.reasons) == 1
        assert len(Logs(caplog).lines) == 1


async def test_a_peer_that_breaks_the_protocol_and_does_not_read_is_not_waited_for_long(
    autojump_clock: MockClock,
) -> None:
    events = Events()
    async with serving(table_of_all_kinds(), listeners=[events]) as served:
        peer, other = served.attach("deaf", lockstep=True), served.attach("other")
        await peer.send(ask(SEND, 1), struct.pack(">i", -5))
        await trio.sleep(29)
        assert events.reasons == []
        await trio.sleep(3)
        assert len(events.reasons) == 1
        assert await other.ping() == []


@pytest.mark.parametrize("over", ["memory", "tcp"])
@pytest.mark.parametrize("sent", [1, 4, 8, 40])
async def test_a_frame_cut_off_by_the_end_of_the_connection_is_one_log_line(
    sent: int, over: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_a_bystander(caplog) as (served, events):
        peer = served.attach() if over == "memory" else await served.dial()
        await peer.send(ask(SEND, 1), ask(SEND, 2)[:sent])
        assert (await peer.read()).opaque == 1
        await peer.aclose()
        while not events.reasons:
            await wait_all_tasks_blocked()
        assert len(Logs(caplog).lines) == 1


async def test_a_peer_that_leaves_between_frames_is_no_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving_a_bystander(caplog) as (served, events):
        peer = await served.dial()
        assert await peer.ping() == []
        await peer.aclose()
        while not events.reasons:
            await wait_all_tasks_blocked()
        assert events.reasons == ["closed by the peer"]
    assert Logs(caplog).lines == []


async def test_the_largest_frame_is_taken_and_one_byte_more_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = ChannelConfig(frame_bytes_max=1_024)
    async with serving_a_bystander(caplog, channel=config) as (served, _):
        peer = await served.dial()
        bare = len(ask(9_999, 1))
        largest = ask(9_999, 1, body=bytes(1_024 - bare))
        assert len(largest) == 1_024
        assert (await peer.request(largest)).code == 3
        await peer.send(ask(9_999, 1, body=bytes(1_025 - bare)))
        assert await peer.read_to_end() == []
        (line,) = Logs(caplog).lines
        assert "frame length 1021 is over the limit (1020)" in line


async def test_a_hundred_broken_connections_are_a_few_log_lines_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving_a_bystander(caplog) as (served, events):
        for number in range(100):
            peer = await served.dial()
            await peer.send(raw_frame(b"{", serialization=number % 3))
            assert await peer.read_to_end() == []
            await peer.aclose()
        assert len(events.reasons) == 100
        assert len(Logs(caplog).lines) == LINES_PER_SOURCE
        assert len(served.server.channels) == 1


# ---- the request is answered ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "code", "remark"),
    [
        pytest.param(
            b'{"code":310,"extFields":{"text":"t"},"flag":0,"opaque":9}',
            1,
            "number",
            id="missing-field",
        ),
        pytest.param(
            b'{"code":310,"extFields":{"number":"x"},"flag":0,"opaque":9}',
            1,
            "number",
            id="malformed-field",
        ),
        pytest.param(b'{"code":310,"flag":0,"opaque":9}', 1, "number", id="no-fields"),
        pytest.param(
            b'{"code":310,"extFields":[1],"flag":0,"opaque":9}',
            1,
            "not an object",
            id="fields-in-a-list",
        ),
        pytest.param(
            b'{"code":4242,"flag":0,"opaque":9}',
            3,
            " request type 4242 not supported",
            id="unknown-code",
        ),
        pytest.param(b'{"opaque":9}', 3, " request type 0 not supported", id="no-code"),
        pytest.param(b'{"code":-1,"opaque":9}', 3, " request type -1 not supported", id="negative"),
        pytest.param(
            b'{"code":12,"extFields":{"number":"1"},"flag":0,"opaque":9}',
            1,
            "ValueError: boom",
            id="handler-raises",
        ),
        pytest.param(
            b'{"code":310,"extFields":{"number":"1","text":"\xff\xfe"},"flag":0,"opaque":9}',
            0,
            "",
            id="broken-utf-8-in-a-field",
        ),
        pytest.param(
            b'{"code":4242,"flag":0,"opaque":9,"remark":"\xff"}',
            3,
            "4242",
            id="broken-utf-8-in-the-remark",
        ),
        pytest.param(
            b'{"code":310,"extFields":{"number":"1","text":"\\ud800"},"flag":0,"opaque":9}',
            0,
            "",
            id="half-a-surrogate-pair",
        ),
        pytest.param(
            b'{"code":4242,"flag":null,"language":"KLINGON","opaque":"9","version":null}',
            3,
            "4242",
            id="odd-members",
        ),
    ],
)
async def test_a_request_that_cannot_be_served_is_answered_and_the_connection_lives_on(
    header: bytes, code: int, remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_a_bystander(caplog) as (served, events):
        peer = await served.dial()
        told = await peer.request(raw_frame(header))
        assert (told.opaque, told.code) == (9, code)
        assert remark in (told.remark or "")
        assert (await peer.request(ask(SEND, 10))).code == 0
        assert events.reasons == []
        # Only what went wrong on our side is worth a line.
        assert len(Logs(caplog).lines) == ("boom" in remark)


async def test_members_of_our_own_that_a_peer_makes_up_do_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made_up = b'"~body":"aGVsbG8=","~serialization":1,"~binaryExt":{"number":"5"}'
    async with serving_a_bystander(caplog) as (served, _):
        peer = await served.dial()
        await peer.send(raw_frame(b'{"code":310,"opaque":7,"flag":0,%b}' % made_up), ask(SEND, 8))
        while (await peer.read()).opaque != 8:
            pass
