"""What tests of the wire share: frames made by hand, and the captured ones (tests/data/wire)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rmq.remoting.frame import FrameDecoder
from rmq.remoting.layout import FRAME_BYTES_MAX, FRAME_PREFIX, SERIALIZATION_SHIFT
from tests.paths import DATA

if TYPE_CHECKING:
    from rmq.errors import RemoteProtocolError
    from rmq.remoting.command import Command

WIRE: Final = DATA / "wire"
RUNS: Final = sorted(path.stem for path in WIRE.glob("*.jsonl"))


class CapturedFrame(msgspec.Struct, frozen=True, rename={"body_length": "bodyLen"}):
    """One line of a capture: the frame, and what was recorded about it when it was captured."""

    kind: str
    code: int
    opaque: int
    ser: str
    remark: str | None
    ext: dict[str, str] | None
    body_length: int
    frame: bytes
    answers: str | None = None


@cache
def captured(run: str) -> tuple[CapturedFrame, ...]:
    decode = msgspec.json.Decoder(CapturedFrame).decode
    return tuple(decode(line) for line in (WIRE / f"{run}.jsonl").read_bytes().splitlines())


def all_captured() -> list[CapturedFrame]:
    return [frame for run in RUNS for frame in captured(run)]


def raw_frame(header: bytes, body: bytes = b"", serialization: int = 0) -> bytes:
    """Return a frame around any header, well-formed or not."""
    mark = serialization << SERIALIZATION_SHIFT | len(header)
    return FRAME_PREFIX.pack(4 + len(header) + len(body), mark) + header + body


class Received(NamedTuple):
    """What became of some bytes."""

    commands: list[Command]
    error: RemoteProtocolError | None
    held_bytes: int


def receive(*chunks: bytes, take: int = 1000, frame_bytes_max: int = FRAME_BYTES_MAX) -> Received:
    """Feed chunks to a decoder of their own, taking all there is after each, up to an error."""
    decoder = FrameDecoder(frame_bytes_max=frame_bytes_max)
    commands: list[Command] = []
    for chunk in chunks:
        decoder.feed(chunk)
        while taken := decoder.take(take):
            commands += taken
        if decoder.error is not None:
            break
    return Received(commands, decoder.error, decoder.held_bytes)


def receive_one(header: bytes, body: bytes = b"", serialization: int = 0) -> Command:
    """Return the command of a frame with this header; the error that refuses it is raised."""
    commands, error, held_bytes = receive(raw_frame(header, body, serialization))
    if error is not None:
        assert not commands
        raise error
    (command,) = commands
    assert held_bytes == 0
    return command


def one_by_one(data: bytes) -> list[bytes]:
    return [data[position : position + 1] for position in range(len(data))]
