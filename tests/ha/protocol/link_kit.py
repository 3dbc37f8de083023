"""Both ends of a link on a desk: what one says is carried to the other by hand."""

from __future__ import annotations

from typing import Any, Final

from rmq.ha.protocol import wire
from rmq.ha.protocol.auth import sign_hello, sign_welcome
from rmq.ha.protocol.master import Master, MasterSettings
from rmq.ha.protocol.master_link import MasterLink
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.ha.protocol.slave_link import SlaveLink, SlaveSettings
from rmq.model.offsets import PhysicalOffset
from tests.ha.simulation.disk import SimLog

# ruff: noqa: ANN401 - settings and fields are put in by name

NONCE: Final = bytes(range(16))


def filled_log(size: int = 0) -> SimLog:
    """Return a log of at least so many bytes, on disk."""
    log, number = SimLog(), 0
    while log.end < size:
        number += 1
        log.append_record(number, 40)
    log.flush()
    return log


def master_of(
    log: SimLog, *, mode: ReplicationMode = ReplicationMode.SYNC, epoch: int = 1, **settings: Any
) -> Master[str]:
    chosen = MasterSettings(
        cluster="c", broker_name="b", address="m:10911", store_id=b"m" * 16, **settings
    )
    return Master(chosen, log, epoch=epoch, mode=mode, now=0.0)


def link_to(master: Master[str], *, now: float = 0.0) -> MasterLink:
    return MasterLink(master, "10.0.0.7", "10.0.0.7:4711", nonce=NONCE, now=now)


def slave_of(log: SimLog, *, is_native: bool = True, epoch: int = 1, **settings: Any) -> SlaveLink:
    chosen = SlaveSettings(
        cluster="c", broker_name="b", broker_id=1, address="s:10911", store_id=b"s" * 16, **settings
    )
    return SlaveLink(chosen, log, is_native=is_native, epoch=epoch, nonce=NONCE, now=0.0)


def hello_of(log: SimLog, **fields: Any) -> wire.HelloBody:
    """Return the hello of a slave with such a log, with other fields put in."""
    tail = max(log.begin, log.end - 64 * 1024)
    values: dict[str, Any] = {
        "version": 1,
        "catch_up": 0,
        "cluster": "c",
        "broker_name": "b",
        "broker_id": 1,
        "address": "s:10911",
        "store_id": b"s" * 16,
        "incarnation": 0,
        "nonce": NONCE,
        "epoch": 1,
        "segment_bytes": log.segment_bytes,
        "begin": log.begin,
        "end": log.end,
        "flushed": log.flushed,
        "tail_offset": tail,
        "tail_digest": log.digest(tail, log.end),
    }
    return wire.HelloBody(**(values | fields))


def packed_hello(hello: wire.HelloBody, secret: bytes = b"") -> bytes:
    body = wire.pack_body(wire.Hello, sign_hello(hello, secret, NONCE))
    header = wire.UpHeader(wire.UpKind.HELLO, 0, 0, len(body), hello.epoch, 0, 0, 0)
    return wire.pack_up(header) + body


def packed_ack(appended: int, flushed: int = 0, epoch: int = 1) -> bytes:
    return wire.pack_up(wire.UpHeader(wire.UpKind.ACK, 0, 0, 0, epoch, appended, flushed, 0))


def packed_down(kind: int, body: bytes, *, size: int | None = None, **fields: int) -> bytes:
    """Return a frame of a native master."""
    header = wire.DownHeader(
        kind=kind,
        flags=fields.get("flags", 0),
        needed=fields.get("needed", 1),
        in_sync=fields.get("in_sync", 0),
        size=len(body) if size is None else size,
        offset=PhysicalOffset(fields.get("offset", 0)),
        epoch=fields.get("epoch", 1),
        news=0,
        end=PhysicalOffset(fields.get("end", 0)),
        replicated=PhysicalOffset(fields.get("replicated", -1)),
        sent_ms=fields.get("sent_ms", 0),
    )
    return wire.with_body_crc(wire.pack_down(header), body) + body


def packed_challenge(*, needs_secret: int = 0, begin: int = 0) -> bytes:
    body = wire.pack_body(wire.Challenge, wire.ChallengeBody(1, needs_secret, NONCE))
    return packed_down(wire.DownKind.CHALLENGE, body, offset=begin)


def packed_welcome(
    verdict: wire.HelloVerdict,
    *,
    start: int = 0,
    epoch: int = 1,
    secret: bytes = b"",
    reason: str = "",
) -> bytes:
    welcome = wire.WelcomeBody(
        verdict, "c", "b", "m:10911", b"m" * 16, epoch, 0, 900, start, reason
    )
    body = wire.pack_body(wire.Welcome, sign_welcome(welcome, secret, NONCE))
    return packed_down(wire.DownKind.WELCOME, body, epoch=epoch)


def read_verdict(output: bytes) -> wire.WelcomeBody:
    """Read the last greeting a master has put out."""
    position, body = 0, b""
    while position < len(output):
        header = wire.read_down(output[position : position + wire.DOWN.size])
        position += wire.DOWN.size
        body = output[position : position + header.size]
        position += header.size
    return wire.read_welcome(body)
