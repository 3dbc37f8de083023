"""Byte layouts of the replication link, declared with construct.

Everything is big-endian. Two dialects share one port:

Stock, RocketMQ 4.9.8's own. The slave sends `Report` again and again, first of all to say where to
begin; the master sends `Transfer`, each followed by `size` bytes of its CommitLog, none for a
heartbeat.

Native, between rmq brokers. The slave sends `PREAMBLE`, eight bytes that read as a negative report,
which no stock slave ever sends. The master answers with a `Down` frame CHALLENGE, the slave with an
`Up` frame HELLO, the master with WELCOME, and from then on DATA and RECORD flow down, ACK and
RECORDED up. Frames of either direction are a header of fixed size with a checksum, and a body; the
body of a master's frame has one, too. What native adds: who the slave is, proof that both know the
secret, whether their logs are the same, epochs, by what rule the master answers sends, what is
flushed, and when there is news about topics and offsets.

A stock master given the preamble finds no such offset in its log and only ever sends heartbeats
that repeat it: `SlaveLink` tells it from a native one by that, or by its silence.
"""

from __future__ import annotations

import enum
import io
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import construct
import msgspec
from construct import (
    Bytes,
    Int8ub,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    PascalString,
    Struct,
)

from rmq.errors import RemoteProtocolError
from rmq.model.crc import crc32
from rmq.packing import struct_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.model.offsets import PhysicalOffset

Report = Struct("offset" / Int64sb)
"""What a slave holds: the offset behind the last byte."""

Transfer = Struct("offset" / Int64sb, "size" / Int32sb)
"""`size` bytes of the log follow, from `offset` on."""

PREAMBLE: Final = b"\xffrmqHA\x00\x02"
"""What a native slave sends first; the last byte is the version of the dialect."""

Down = Struct(
    "kind" / Int8ub,
    "flags" / Int8ub,
    "needed" / Int8ub,
    "in_sync" / Int8ub,
    "size" / Int32ub,
    "offset" / Int64sb,
    "epoch" / Int64sb,
    "news" / Int32ub,
    "end" / Int64sb,
    "replicated" / Int64sb,
    "sent_ms" / Int64sb,
    "body_crc" / Int32ub,
    "crc" / Int32ub,
)
"""The header of all that a native master sends; `crc` is that of the bytes before it, `body_crc`
that of the body. That of bytes of the log is put in when they are in memory to be sent.
"""

Up = Struct(
    "kind" / Int8ub,
    "flags" / Int8ub,
    "unused" / Int16ub,
    "size" / Int32ub,
    "epoch" / Int64sb,
    "appended" / Int64sb,
    "flushed" / Int64sb,
    "echoed_ms" / Int64sb,
    "crc" / Int32ub,
)
"""The header of all that a native slave sends."""

NONCE_BYTES: Final = 16
ID_BYTES: Final = 16
MAC_BYTES: Final = 32
DIGEST_BYTES: Final = 32
BODY_BYTES_MAX: Final = 8 * 1024
"""Most bytes in the body of a handshake frame."""

_Text = PascalString(Int16ub, "utf8")

Challenge = Struct("version" / Int8ub, "needs_secret" / Int8ub, "nonce" / Bytes(NONCE_BYTES))

Hello = Struct(
    "version" / Int8ub,
    "catch_up" / Int8ub,
    "cluster" / _Text,
    "broker_name" / _Text,
    "broker_id" / Int64sb,
    "address" / _Text,
    "store_id" / Bytes(ID_BYTES),
    "incarnation" / Int64sb,
    "nonce" / Bytes(NONCE_BYTES),
    "epoch" / Int64sb,
    "segment_bytes" / Int64sb,
    "begin" / Int64sb,
    "end" / Int64sb,
    "flushed" / Int64sb,
    "tail_offset" / Int64sb,
    "tail_digest" / Bytes(DIGEST_BYTES),
    "mac" / Bytes(MAC_BYTES),
)

Welcome = Struct(
    "verdict" / Int8ub,
    "cluster" / _Text,
    "broker_name" / _Text,
    "address" / _Text,
    "store_id" / Bytes(ID_BYTES),
    "epoch" / Int64sb,
    "begin" / Int64sb,
    "end" / Int64sb,
    "start" / Int64sb,
    "reason" / _Text,
    "mac" / Bytes(MAC_BYTES),
)

REPORT: Final = struct_of(Report)
TRANSFER: Final = struct_of(Transfer)
DOWN: Final = struct_of(Down)
UP: Final = struct_of(Up)
_CRC: Final = struct_of(Struct("crc" / Int32ub))


class DownKind(enum.IntEnum):
    """What a master sends."""

    CHALLENGE = 1
    """`offset` is where the master's log begins: from there on logs can be compared."""
    WELCOME = 2
    DATA = 3
    """Bytes of the log; a heartbeat if there are none."""
    RECORD = 4
    """By what rule the master answers sends (`in_sync_record`)."""


class UpKind(enum.IntEnum):
    """What a slave sends."""

    HELLO = 1
    ACK = 2
    RECORDED = 3
    """A record is on this slave's disk: that of `epoch`, with the version in `appended`."""


class UpFlag(enum.IntFlag):
    """What a slave says about itself in each acknowledgement."""

    LACKS_TABLES = 1
    """It does not have the topics, groups and offsets of its master: it must not count."""


class DownFlag(enum.IntFlag):
    """What a master says about itself in each header."""

    SYNC = 1
    """Sends wait for slaves from some offset below `end` on."""
    YOU_ARE_IN_SYNC = 2
    """The slave that gets this counts."""
    WANTS_FLUSH = 4
    """Only what is flushed counts."""


class CatchUp(enum.IntEnum):
    """Where an empty slave wants to begin."""

    OLDEST = 0
    LAST_FILE = 1


class HelloVerdict(enum.IntEnum):
    """What a master says to a slave's HELLO."""

    START = 0
    """Go on: bytes from `start` on follow."""
    RESEED = 1
    """The master no longer has what the slave needs next: start over at `start`."""
    DIVERGED = 2
    """The slave's log is not the beginning of the master's."""
    STALE = 3
    """The slave has seen a later epoch than the master's."""
    REFUSED = 4


class DownHeader(NamedTuple):
    """A `Down` header, read."""

    kind: int
    flags: int
    needed: int
    in_sync: int
    size: int
    offset: PhysicalOffset
    epoch: int
    news: int
    end: PhysicalOffset
    replicated: PhysicalOffset
    sent_ms: int
    body_crc: int = 0


class UpHeader(NamedTuple):
    """An `Up` header, read."""

    kind: int
    flags: int
    unused: int
    size: int
    epoch: int
    appended: int
    flushed: int
    echoed_ms: int


class ChallengeBody(msgspec.Struct, frozen=True):
    """A `Challenge`, read."""

    version: int
    needs_secret: int
    nonce: bytes


class HelloBody(msgspec.Struct, frozen=True):
    """A `Hello`, read: who a slave is and what it has."""

    version: int
    catch_up: int
    cluster: str
    broker_name: str
    broker_id: int
    address: str
    """Where clients find it."""
    store_id: bytes
    """Names the store, for its whole life."""
    incarnation: int
    """Goes up when it may have lost what it held."""
    nonce: bytes
    epoch: int
    segment_bytes: int
    begin: int
    end: int
    flushed: int
    tail_offset: int
    tail_digest: bytes
    """SHA-256 of the log from `tail_offset` to `end`; of nothing if the log is empty."""
    mac: bytes = bytes(MAC_BYTES)


class WelcomeBody(msgspec.Struct, frozen=True):
    """A `Welcome`, read: the master's verdict on a slave."""

    verdict: int
    cluster: str
    broker_name: str
    address: str
    store_id: bytes
    epoch: int
    begin: int
    end: int
    start: int
    reason: str = ""
    mac: bytes = bytes(MAC_BYTES)


def pack_down(header: DownHeader) -> bytes:
    """Return a header with its checksum."""
    packed = DOWN.pack(*header, 0)[: -_CRC.size]
    return packed + _CRC.pack(crc32(packed))


def with_body_crc(packed: bytes, body: bytes | bytearray | memoryview) -> bytes:
    """Return a packed `Down` header with the checksum of the body that follows it."""
    packed = packed[: -2 * _CRC.size] + _CRC.pack(crc32(body))
    return packed + _CRC.pack(crc32(packed))


def pack_up(header: UpHeader) -> bytes:
    """Return a header with its checksum."""
    packed = UP.pack(*header, 0)[: -_CRC.size]
    return packed + _CRC.pack(crc32(packed))


def read_down(data: bytes | bytearray | memoryview) -> DownHeader:
    """Read a header; raise `RemoteProtocolError` if its checksum is wrong."""
    fields = DOWN.unpack(data)
    if crc32(data[: -_CRC.size]) != fields[-1]:
        raise RemoteProtocolError("the checksum of a replication header is wrong")
    return DownHeader._make(fields[:-1])


def read_up(data: bytes | bytearray | memoryview) -> UpHeader:
    """Read a header; raise `RemoteProtocolError` if its checksum is wrong."""
    fields = UP.unpack(data)
    if crc32(data[: -_CRC.size]) != fields[-1]:
        raise RemoteProtocolError("the checksum of a replication header is wrong")
    return UpHeader._make(fields[:-1])


def pack_body(declaration: construct.Struct, body: msgspec.Struct) -> bytes:
    """Return the bytes of a handshake body."""
    return bytes(declaration.build(msgspec.structs.asdict(body)))


def read_challenge(data: bytes) -> ChallengeBody:
    return ChallengeBody(**_fields(Challenge, data))


def read_hello(data: bytes) -> HelloBody:
    return HelloBody(**_fields(Hello, data))


def read_welcome(data: bytes) -> WelcomeBody:
    return WelcomeBody(**_fields(Welcome, data))


def _fields(declaration: construct.Struct, data: bytes) -> Mapping[str, Any]:
    try:
        stream = io.BytesIO(data)
        parsed = declaration.parse_stream(stream)
        length = stream.tell()
    except (construct.ConstructError, UnicodeDecodeError) as exc:
        raise RemoteProtocolError(f"a replication handshake cannot be read: {exc}") from None
    if length != len(data):
        raise RemoteProtocolError(
            f"a replication handshake has {len(data)} bytes, {length} are read"
        )
    return {name: value for name, value in parsed.items() if not name.startswith("_")}
