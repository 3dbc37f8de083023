"""The replication link: damaged streams of both dialects into a master's end and a slave's end.

A stream is a sound conversation with one of three kinds of damage: fields with other values whose
frames are made right again, bytes that are changed, or bytes changed under a checksum that was
computed again. The peer may know the secret, and its log may be the same or another.

What must hold: an end raises nothing, puts out and keeps no more than a handshake, and ends with a
reason. A master counts nothing it did not send or compare. A slave appends only what continues its
log, reports only what it has and, where bytes were changed, what the master has; without the secret
it follows no order to start over, and hears none in bytes that were changed by chance.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.ha.protocol import wire
from rmq.ha.protocol.auth import sign_hello, sign_welcome
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.ha.protocol.slave_link import FRAME_BYTES_MAX, EndKind
from rmq.model.in_sync_record import InSyncRecord
from rmq.model.offsets import PhysicalOffset
from tests.fuzz.mutations import mutated_bytes
from tests.ha.protocol.link_kit import (
    NONCE,
    filled_log,
    hello_of,
    link_to,
    master_of,
    packed_challenge,
    slave_of,
)
from tests.ha.simulation.disk import SEGMENT_BYTES, SimLog

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from rmq.ha.protocol.master import Master
    from rmq.ha.protocol.master_link import MasterLink
    from rmq.ha.protocol.slave_link import SlaveLink

SECRET: Final = b"hush-hush"
WRONG_SECRET: Final = b"a guess"
OUTPUT_BYTES_MAX: Final = wire.DOWN.size + wire.BODY_BYTES_MAX
"""Most bytes in one frame of a greeting."""
_SIZES: Final = (0, 0, 400, 1500)
_GREETINGS_KEPT: Final = 4096


class _Damage:
    """How the stream of one input is damaged."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.in_fields = chance.random() < 0.5
        self.in_bytes = not self.in_fields and chance.random() < 0.7
        self.under_checksum = not self.in_fields and not self.in_bytes

    @property
    def is_by_accident(self) -> bool:
        """Nothing was changed that a checksum does not show."""
        return self.in_bytes

    def number(self, sound: int, *others: int) -> int:
        """Return a field of a frame: mostly the sound value."""
        if not self.in_fields or self.chance.random() < 0.85:
            return sound
        near = self.chance.choice((sound, *others)) + self.chance.choice((-1, 0, 1, SEGMENT_BYTES))
        rare = self.chance.choice((-(2**63), -1, 0, 1, 2**31, 2**63 - 1))
        return max(-(2**63), min(2**63 - 1, self.chance.choice((near, near, rare))))

    def small(self, sound: int, most: int) -> int:
        """Return a field that has no sign."""
        if not self.in_fields or self.chance.random() < 0.9:
            return sound
        return self.chance.choice((0, 1, 2, 3, 255, most)) & most

    def text(self, sound: str) -> str:
        if not self.in_fields or self.chance.random() < 0.93:
            return sound
        return self.chance.choice(("", "x", "a\0b\n", "é消息", "x" * 255, "n" * 7000))

    def bytes_of(self, sound: bytes) -> bytes:
        if not self.in_fields or self.chance.random() < 0.9:
            return sound
        return self.chance.choice((bytes(len(sound)), self.chance.randbytes(len(sound))))

    def frames(self, frames: list[bytes], again: Callable[[bytes], bytes]) -> list[bytes]:
        """Return frames in disorder, or with other bytes."""
        chance, frames = self.chance, list(frames)
        if self.in_fields and frames and chance.random() < 0.2:
            place = chance.randrange(len(frames))
            match chance.randrange(3):
                case 0:
                    del frames[place]
                case 1:
                    frames.insert(place, chance.choice(frames))
                case _:
                    chance.shuffle(frames)
        if self.under_checksum and frames:
            place = chance.randrange(len(frames))
            frames[place] = again(mutated_bytes(frames[place], chance))
        return frames

    def stream(self, frames: list[bytes]) -> bytes:
        stream = b"".join(frames)
        return mutated_bytes(stream, self.chance) if self.in_bytes else stream


def examine(chance: random.Random) -> str:
    """Feed one stream to one end."""
    if chance.random() < 0.5:
        return _examine_master(chance)
    return _examine_slave(chance)


# --- the master's end ------------------------------------------------------------------------


def _examine_master(chance: random.Random) -> str:
    log = _log_copy(chance.choice(_SIZES))
    if log.end > SEGMENT_BYTES and chance.random() < 0.2:
        log.expire(1)
    secret = chance.choice((b"", SECRET))
    key = chance.choice((secret, secret, WRONG_SECRET))
    master = master_of(
        log,
        mode=chance.choice(list(ReplicationMode)),
        epoch=chance.choice((1, 2)),
        secret=secret,
        takes_stock=chance.random() < 0.8,
    )
    awaited = log.end and chance.random() < 0.5 and master.pending_acks.ask(log.end, 0.0, "send")
    damage = _Damage(chance)
    is_native = chance.random() < 0.6
    held = chance.choice((0, log.end, log.end))
    is_other = held > 0 and chance.random() < 0.2
    frames = _from_slave(damage, master, log, key, held, is_native=is_native, is_other=is_other)
    stream = damage.stream(damage.frames(frames, _up_again))
    link = link_to(master)
    _talk_to_master(link, master, stream, chance)
    if secret and (key != secret or not is_native) and not damage.is_by_accident:
        assert link.slave is None, "a stranger is served"
    if link.slave is None:
        assert not len(master.slaves), "a slave that was never greeted is counted"
        assert master.slaves.replicated < 0, "bytes count that no slave holds"
    elif link.slave.is_native:
        # Without a secret nothing protects the body of a HELLO: it may say that the log is empty.
        is_trusted = bool(secret) and not damage.in_fields
        assert not (is_other and is_trusted), "a slave with another log is served"
    if awaited is None and master.pending_acks.release():
        assert master.slaves.replicated >= log.end, "a send is answered that no slave holds"
    link.closed(100.0)
    assert not len(master.slaves)
    assert link.end_reason
    return "master's end: " + ("refused" if link.slave is None else "served")


def _talk_to_master(
    link: MasterLink, master: Master[str], stream: bytes, chance: random.Random
) -> None:
    """Feed a stream as it may come in, and take what a server takes."""
    now, position, sent, verified = 0.0, 0, 0, -1
    end = master.log.end
    while position < len(stream) and link.end_reason is None:
        size = chance.choice((1, 8, 40, 300, len(stream)))
        link.receive(stream[position : position + size], now)
        position += size
        for frame in _frames_of(link.take_output()):
            assert len(frame) <= OUTPUT_BYTES_MAX, f"a greeting of {len(frame)} bytes"
        if link.slave is not None and verified < 0:
            verified = max(link.position, 0)
        for _ in range(chance.randrange(3)):
            chunk = link.next_chunk(now)
            if chunk is None:
                break
            assert chunk.offset == link.position
            assert 0 <= chunk.size <= SEGMENT_BYTES
            sent = max(sent, chunk.offset + chunk.size)
            assert sent <= end
            link.chunk_sent(chunk, now)
        if link.slave is not None:
            held = max(sent, verified)
            assert link.slave.flushed <= link.slave.appended <= held <= end, (
                f"{link.slave.appended} is counted, {held} was sent or compared"
            )
        assert master.slaves.replicated <= end
        now += chance.choice((0.0, 0.0, 1.0, 4.0))
        link.tick(now)
    before = (link.end_reason, master.slaves.replicated)
    if before[0] is not None:
        link.receive(stream, now)
        assert (link.end_reason, master.slaves.replicated) == before, "heard after its end"


def _frames_of(output: bytes) -> list[bytes]:
    frames = []
    while output:
        size = wire.DOWN.size + wire.read_down(output[: wire.DOWN.size]).size
        frames.append(output[:size])
        output = output[size:]
    return frames


def _from_slave(
    damage: _Damage,
    master: Master[str],
    log: SimLog,
    key: bytes,
    held: int,
    *,
    is_native: bool,
    is_other: bool,
) -> list[bytes]:
    """Return what a slave sends, frame by frame."""
    chance, end, epoch = damage.chance, log.end, master.epoch
    numbers = [held, *sorted(chance.choice((held, end)) for _ in range(chance.randrange(5)))]
    if not is_native:
        return [wire.REPORT.pack(damage.number(number, end)) for number in numbers]
    own = _log_copy(held, 1000 if is_other else 0)
    own.begin = PhysicalOffset(log.begin if own.end > log.begin else 0)
    hello = hello_of(own, epoch=epoch) if own.end else hello_of(own)
    changed: dict[str, object] = {
        name: damage.number(value, end, log.begin)
        for name, value in msgspec.structs.asdict(hello).items()
        if isinstance(value, int) and name not in ("version", "catch_up")
    }
    changed |= {
        name: damage.text(getattr(hello, name)) for name in ("cluster", "broker_name", "address")
    }
    changed |= {
        name: damage.bytes_of(getattr(hello, name)) for name in ("store_id", "nonce", "tail_digest")
    }
    changed["catch_up"] = damage.small(chance.choice((0, 1)), 255)
    body = _packed_hello(msgspec.structs.replace(hello, **changed), key)
    size = damage.small(len(body), 2**32 - 1)
    frames = [
        wire.PREAMBLE,
        wire.pack_up(wire.UpHeader(wire.UpKind.HELLO, 0, 0, size, epoch, 0, 0, 0)) + body,
    ]
    for number in numbers:
        kind = damage.small(chance.choice((2, 2, 2, 3)), 255)
        flags, flushed = damage.small(0, 255), damage.number(number, 0)
        header = wire.UpHeader(
            kind,
            flags,
            0,
            damage.small(0, 2**32 - 1),
            damage.number(epoch),
            damage.number(0 if kind == wire.UpKind.RECORDED else number, end),
            flushed,
            damage.number(0),
        )
        frames.append(wire.pack_up(header))
    return frames


def _up_again(frame: bytes) -> bytes:
    """Return a frame of a slave with a header checksum that is right again."""
    if len(frame) < wire.UP.size:
        return frame
    return (
        wire.pack_up(wire.UpHeader(*wire.UP.unpack(frame[: wire.UP.size])[:-1]))
        + (frame[wire.UP.size :])
    )


# --- the slave's end -------------------------------------------------------------------------


def _examine_slave(chance: random.Random) -> str:
    log = _log_copy(chance.choice((400, 1500)))
    own = _log_copy(chance.choice((0, 0, 400, 1500)))
    if own.end > log.end:
        own = _log_copy(400)
    secret = chance.choice((b"", SECRET))
    key = chance.choice((secret, secret, WRONG_SECRET))
    is_native = bool(secret) or chance.random() < 0.6
    damage = _Damage(chance)
    frames = _from_master(damage, log, own, key, is_native=is_native)
    stream = damage.stream(damage.frames(frames, _down_again))
    link = slave_of(own, is_native=is_native, secret=secret)
    start = own.end
    _talk_to_slave(link, own, log if damage.is_by_accident and is_native else None, stream, chance)
    is_stranger = secret != b"" and key != secret
    if is_stranger:
        assert not link.is_streaming, "bytes of a stranger are taken"
        assert own.end == start
    if link.ending is None:
        return "slave's end: open"
    kind = link.ending.kind
    if is_native and (is_stranger or damage.is_by_accident):
        assert kind not in (EndKind.RESEED, EndKind.STALE), f"an order of a stranger: {link.ending}"
    if kind is EndKind.DAMAGED:
        assert 0 <= link.ending.offset <= own.end, "it would cut elsewhere"
    return f"slave's end: {kind.value}"


def _talk_to_slave(
    link: SlaveLink,
    own: SimLog,
    sound: SimLog | None,
    stream: bytes,
    chance: random.Random,
) -> None:
    """Feed a stream as a receiver does; with `sound`, all that is reported has to be in there."""
    now, position, epoch = 0.0, 0, link.epoch
    while position < len(stream) and link.ending is None:
        data = stream[position : position + chance.choice((1, 8, 72, 300, len(stream)))]
        while data and link.ending is None:
            taken = link.receive(data, now)
            assert 0 <= taken <= len(data)
            data, position = data[taken:], position + taken
            moved = taken > 0
            if link.body_left and data and link.ending is None:
                moved = True
                assert link.body_left <= FRAME_BYTES_MAX
                if not own.end:
                    own.begin_at(link.frame_offset)
                assert link.frame_offset == own.end, "bytes that do not continue the log"
                piece = data[: link.body_left]
                own.append(piece)
                data, position = data[len(piece) :], position + len(piece)
                link.body_received(piece, now)
            if link.record is not None:
                moved = True
                link.record_saved(now)
            assert moved or not data or link.ending is not None, "it takes nothing and says nothing"
        if chance.random() < 0.5:
            own.flush()
        link.report(now)
        now += chance.choice((0.0, 0.0, 1.0, 6.0))
        link.tick(now)
        assert link.epoch >= epoch, "back to an earlier epoch"
        _check_reports(link, own, sound)


def _check_reports(link: SlaveLink, own: SimLog, sound: SimLog | None) -> None:
    output = link.take_output()
    assert len(output) <= 1 << 20
    if not link.is_native:
        for place in range(0, len(output), wire.REPORT.size):
            (held,) = wire.REPORT.unpack_from(output, place)
            assert 0 <= held <= own.end, f"it reports {held} of {own.end}"
        return
    output = output.removeprefix(wire.PREAMBLE)
    while output:
        header = wire.read_up(output[: wire.UP.size])
        output = output[wire.UP.size + header.size :]
        if header.kind != wire.UpKind.ACK:
            continue
        assert header.flushed <= header.appended <= own.end, f"it reports {header}, has {own.end}"
        assert header.flushed <= own.flushed, f"it reports {header}, flushed {own.flushed}"
        if sound is not None:
            start = own.base
            assert header.appended <= sound.end, "more than the master has"
            same = own.read(start, max(start, header.appended))
            assert sound.holds(start, same), "it reports bytes that its master does not have"


def _from_master(
    damage: _Damage, log: SimLog, own: SimLog, key: bytes, *, is_native: bool
) -> list[bytes]:
    """Return what a master sends to a slave with this log, frame by frame."""
    chance, start = damage.chance, own.end
    pieces: list[tuple[int, bytes]] = []
    position = start
    while position < log.end:
        size = min(chance.choice((1, 40, 200, 512)), log.end - position)
        pieces.append((position, log.read(position, position + size)))
        position += size
        if chance.random() < 0.3:
            pieces.append((position, b""))
    if not is_native:
        return [
            wire.TRANSFER.pack(
                damage.number(offset, log.end),
                max(-(2**31), min(2**31 - 1, damage.number(len(content)))),
            )
            + content
            for offset, content in pieces
        ]
    verdict = damage.small(0, 255)
    welcome = wire.WelcomeBody(
        verdict,
        damage.text("c"),
        damage.text("b"),
        damage.text("m:10911"),
        damage.bytes_of(b"m" * 16),
        damage.number(1),
        damage.number(0),
        damage.number(log.end),
        damage.number(start, log.end),
        damage.text(""),
    )
    body = _packed_welcome(welcome, key)
    frames = [
        _packed_challenge(1 if key else 0),
        _down(damage, wire.DownKind.WELCOME, body, 0, log.end),
    ]
    version = 0
    for offset, content in pieces:
        if chance.random() < 0.15:
            version += 1
            record = InSyncRecord(
                epoch=1, version=version, is_sync=True, needed=1, members=("x.0",)
            )
            told = record.encode(key, "b")
            if damage.in_fields and chance.random() < 0.2:
                told = mutated_bytes(told, chance)
            frames.append(_down(damage, wire.DownKind.RECORD, told, 0, log.end))
        frames.append(_down(damage, wire.DownKind.DATA, content, offset, log.end))
    return frames


def _down(damage: _Damage, kind: wire.DownKind, body: bytes, offset: int, end: int) -> bytes:
    header = wire.DownHeader(
        damage.small(kind, 255),
        damage.small(0, 255),
        damage.small(1, 255),
        damage.small(0, 255),
        damage.small(len(body), 2**32 - 1),
        PhysicalOffset(damage.number(offset, end)),
        damage.number(1),
        damage.small(0, 2**32 - 1),
        PhysicalOffset(damage.number(end)),
        PhysicalOffset(damage.number(-1, end)),
        damage.number(0),
    )
    return wire.with_body_crc(wire.pack_down(header), body) + body


def _down_again(frame: bytes) -> bytes:
    """Return a frame of a native master whose checksums are right again."""
    if len(frame) < wire.DOWN.size:
        return frame
    body = frame[wire.DOWN.size :]
    return wire.with_body_crc(frame[: wire.DOWN.size], body) + body


# --- greetings -------------------------------------------------------------------------------
# Most streams have one of a few: to pack them takes longer than what is examined.


@lru_cache(_GREETINGS_KEPT)
def _packed_hello(hello: wire.HelloBody, key: bytes) -> bytes:
    return wire.pack_body(wire.Hello, sign_hello(hello, key, NONCE))


@lru_cache(_GREETINGS_KEPT)
def _packed_welcome(welcome: wire.WelcomeBody, key: bytes) -> bytes:
    return wire.pack_body(wire.Welcome, sign_welcome(welcome, key, NONCE))


@cache
def _packed_challenge(needs_secret: int) -> bytes:
    return packed_challenge(needs_secret=needs_secret)


# --- logs ------------------------------------------------------------------------------------


@cache
def _log(size: int, first: int) -> SimLog:
    if not first:
        return filled_log(size)
    log = SimLog()
    while log.end < size:
        log.append_record(first + log.end, 40)
    return log


def _log_copy(size: int, first: int = 0) -> SimLog:
    """Return a log of so many bytes or some more, on disk; `first` makes another one."""
    log = SimLog()
    log.append(bytes(_log(size, first).data))
    log.flush()
    return log
