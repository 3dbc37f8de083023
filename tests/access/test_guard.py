"""The guard in a server: every code, over frames, through the real dispatcher."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

import pytest

from rmq.access.needs import NEEDS
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.header import EmptyHeader
from rmq.remoting.protocol import RequestType
from tests.access.access_kit import (
    ADMIN,
    FORGER,
    STRANGER,
    USER,
    access_in,
    codes_for_servers,
    signed_frame,
)
from tests.access.test_rules import send
from tests.remoting.server_kit import serving

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import trio.testing

    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header
    from rmq.remoting.request import Request
    from rmq.remoting.signing import Credentials

SAYS = "org.apache.rocketmq.acl.common.AclException: "


class Seen:
    """A table that serves every code, and the codes that came through."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.table = HandlerTable()
        for code in codes_for_servers():
            self.table.add(RequestType(code=code), self.handle)

    def handle(self, request: Request[EmptyHeader]) -> None:
        self.codes.append(request.command.code)
        request.reply()


BODIES = {
    RequestCode.HEART_BEAT: b'{"clientID":"c","consumerDataSet":[{"groupName":"shut"}]}',
    RequestCode.LOCK_BATCH_MQ: b'{"clientId":"c","consumerGroup":"shut","mqSet":[]}',
    RequestCode.UNLOCK_BATCH_MQ: b'{"clientId":"c","consumerGroup":"shut","mqSet":[]}',
}
FORBIDDEN = {
    "topic": "Nothing",
    "b": "Nothing",
    "group": "shut",
    "consumerGroup": "shut",
    "_UNIQUE_KEY_QUERY": "true",
}
"""Fields and bodies that name only what the user may not touch."""


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        (None, "No accessKey is configured"),
        (STRANGER, "No acl config for stranger"),
        (FORGER, "Check signature failed for accessKey=the-admin"),
    ],
    ids=["unsigned", "unknown", "forged"],
)
async def test_no_code_is_served_without_an_account(
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    credentials: Credentials | None,
    reason: str,
    serialization: Serialization,
) -> None:
    seen = Seen()
    async with serving(seen.table, guard=access_in(tmp_path).guard) as served:
        peer = served.attach("192.0.2.7:40000")
        for code in codes_for_servers():
            body = BODIES.get(code, b"")
            answer = await peer.request(
                signed_frame(
                    credentials, code, None, body, extra=FORBIDDEN, serialization=serialization
                )
            )
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, SAYS + reason), code
    assert seen.codes == []


async def test_a_user_gets_no_further_than_its_permissions_and_an_admin_everywhere(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    seen = Seen()
    async with serving(seen.table, guard=access_in(tmp_path).guard) as served:
        peer = served.attach("192.0.2.7:40000")
        for code in codes_for_servers():
            need, body = NEEDS[code], BODIES.get(code, b"")
            answer = await peer.request(signed_frame(USER, code, None, body, extra=FORBIDDEN))
            if need.is_admin or need.resources is not None:
                assert answer.code == ResponseCode.SYSTEM_ERROR, code
                wanted = "Need admin permission for" if need.is_admin else "No default permission"
                assert (answer.remark or "").startswith(SAYS + wanted), code
            else:
                assert answer.code == ResponseCode.SUCCESS, code
            answer = await peer.request(signed_frame(ADMIN, code, None, body, extra=FORBIDDEN))
            assert answer.code == ResponseCode.SUCCESS, (code, answer.remark)
    assert set(seen.codes) == set(codes_for_servers())


async def test_a_oneway_request_that_is_refused_has_no_effect_and_no_answer(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    seen = Seen()
    async with serving(seen.table, guard=access_in(tmp_path).guard) as served:
        peer = served.attach("192.0.2.7:40000")
        await peer.send(signed_frame(FORGER, RequestCode.END_TRANSACTION, oneway=True))
        answer = await peer.request(signed_frame(ADMIN, RequestCode.HA_STATUS, opaque=2))
        assert (answer.opaque, answer.code) == (2, ResponseCode.SUCCESS)
    assert seen.codes == [RequestCode.HA_STATUS]


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
async def test_in_a_run_of_sends_each_is_checked_by_all_of_its_fields(
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    code: RequestCode,
    serialization: Serialization,
) -> None:
    # From the third on, the headers of a run are decoded in one pass that keeps known fields only.
    taken: list[str] = []

    def take(requests: Sequence[Request[Any]]) -> list[Header | None]:
        taken.extend(request.header.topic for request in requests)
        return [EmptyHeader() for _ in requests]

    table = HandlerTable()
    table.add_batch(RequestType(type(send("T")), code=code), take)
    frames = [
        signed_frame(
            FORGER if number % 4 == 3 else USER,
            code,
            send(f"Orders{'' if number % 3 else 'X'}"),
            b"%d" % number,
            opaque=number,
            extra={"unknown": str(number), "n": "broker-a"},
            serialization=serialization,
        )
        for number in range(12)
    ]
    async with serving(table, guard=access_in(tmp_path).guard) as served:
        peer = served.attach("192.0.2.7:40000")
        await peer.send(*frames)
        answers = {answer.opaque: answer for answer in await peer.read_many(len(frames))}
    allowed = {number for number in range(12) if number % 3 and number % 4 != 3}
    assert {number for number, answer in answers.items() if answer.code == 0} == allowed
    assert taken == ["Orders"] * len(allowed)


async def test_a_body_that_is_too_long_is_refused_before_it_is_hashed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    access, asked = access_in(tmp_path), list[int]()

    def guard(channel: Channel, command: Command) -> None:
        asked.append(len(command.body or b""))
        access.guard(channel, command)

    table = HandlerTable()
    code = RequestCode.HEART_BEAT
    table.add(RequestType(code=code), lambda request: request.reply(), body_bytes_max=100)
    async with serving(table, guard=guard) as served:
        peer = served.attach("192.0.2.7:40000")
        answer = await peer.request(signed_frame(ADMIN, code, None, b"x" * 101))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert asked == []
        answer = await peer.request(signed_frame(ADMIN, code, None, b'{"clientID":"c"}'))
        assert answer.code == ResponseCode.SUCCESS
        assert asked == [16]


async def test_refusals_are_logged_without_secrets_and_not_without_end(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Seen().table, guard=access_in(tmp_path).guard) as served:
        peer = served.attach("192.0.2.7:40000")
        frame = signed_frame(USER, RequestCode.SEND_MESSAGE_V2, None, extra={"b": "Nothing"})
        for _ in range(100):
            await peer.request(frame)
        long = signed_frame(None, RequestCode.HA_STATUS, extra={"AccessKey": "x" * 50_000})
        other = served.attach("192.0.2.8:40000")
        await other.request(long)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == (
        "refused SEND_MESSAGE_V2 (310) of 192.0.2.7:40000, access key the-user: No default"
        " permission for topic:Nothing"
    )
    assert 1 < len(lines) < 50
    assert max(map(len, lines)) < 600
    assert all("secret" not in line for line in lines)


async def test_a_signed_request_may_be_sent_again_as_in_4_9_8(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    # A signature covers fields and body: no time, no connection, and not the code. So who reads a
    # request on its way may repeat it, and use its signature for a request with the same fields.
    seen = Seen()
    listed, runtime = RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO
    read = signed_frame(ADMIN, listed)
    assert b"admin-secret" not in read
    async with serving(seen.table, guard=access_in(tmp_path).guard) as served:
        for port in (1, 2):
            peer = served.attach(f"192.0.2.{port}:40000")
            assert (await peer.request(read)).code == ResponseCode.SUCCESS
        other = signed_frame(ADMIN, runtime)
        assert signature_in(read) == signature_in(other)
        assert (await peer.request(other)).code == ResponseCode.SUCCESS
        changed = read.replace(b'"extFields":{', b'"extFields":{"topic":"Orders",')
        changed = resized(changed, len(changed) - len(read))
        answer = await peer.request(changed)
        assert "Check signature failed" in (answer.remark or "")
    assert seen.codes == [listed, listed, runtime]


def signature_in(frame: bytes) -> bytes:
    match = re.search(rb'"Signature":"([^"]+)"', frame)
    assert match is not None
    return match[1]


def resized(frame: bytes, by: int) -> bytes:
    """Return a frame whose lengths fit a header that has become longer."""
    length, header_length = struct.unpack_from(">ii", frame)
    return struct.pack(">ii", length + by, header_length + by) + frame[8:]
