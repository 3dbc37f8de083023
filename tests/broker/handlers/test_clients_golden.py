"""Captured clients replayed: what a stock broker answered, ours must answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from rmq.remoting.bodies import LockBatchResponseBody
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode
from tests.broker.client_broker import client_broker
from tests.remoting.frames import WIRE
from tests.remoting.server_kit import parse_frame

if TYPE_CHECKING:
    from tests.remoting.server_kit import Frame

SERVED: Final = {
    code.name
    for code in (
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    )
}


class Captured(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """One line of a capture, as far as it is needed."""

    conn: int
    server: str
    sender: str
    code: int
    frame: bytes
    answers: str | None = None

    @property
    def name(self) -> str:
        return self.answers or RequestCode(self.code).name


def conversation(run: str, server: str) -> dict[int, list[Captured]]:
    """Return what passed between a captured broker and its clients, as far as it is served here."""
    decode = msgspec.json.Decoder(Captured).decode
    by_connection: dict[int, list[Captured]] = {}
    for line in (WIRE / f"{run}.jsonl").read_bytes().splitlines():
        each = decode(line)
        if each.server == server and each.name in SERVED:
            by_connection.setdefault(each.conn, []).append(each)
    return by_connection


def wire_form(each: Frame) -> tuple[object, ...]:
    """Return what must be equal: all but the version (the captured broker was a 4.9.7), the
    language and, in requests of the broker, the opaque.
    """
    opaque = -1 if each.flag & FLAG_ONEWAY else each.opaque
    body: object = each.body
    if each.body.startswith(b'{"lockOKMQSet"'):
        # A Java set, in the order of its hash codes.
        body = set(LockBatchResponseBody.decode(each.body).lock_ok_mq_set)
    return (opaque, each.code, each.flag, each.serialization, each.remark, each.fields, body)


def in_order(frames: list[Frame]) -> list[tuple[object, ...]]:
    """Return the wire forms by opaque: the captured broker answers from several threads."""
    return [wire_form(each) for each in sorted(frames, key=lambda each: (each.flag, each.opaque))]


@pytest.mark.parametrize("server", ["master", "slave"])
@pytest.mark.parametrize(
    "run", ["push", "broadcast", "orderly", "pull", "sql", "producer", "producer-binary"]
)
async def test_captured_clients_get_the_captured_answers(run: str, server: str) -> None:
    connections = conversation(run, server)
    assert connections
    settings = {"enablePropertyFilter": "true"}
    async with client_broker(settings, compile_filter=lambda kind, text: None) as broker:
        for conn, frames in connections.items():
            peer = broker.attach(f"connection {conn}")
            expected = [parse_frame(each.frame) for each in frames if each.sender == "server"]
            for each in frames:
                if each.sender == "client":
                    await peer.send(each.frame)
            got = await peer.read_many(len(expected))
            assert in_order(got) == in_order(expected)
            assert await peer.ping() == []
