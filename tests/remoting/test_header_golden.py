"""Our header classes against frames captured from stock processes (tests/data/wire).

Every captured frame is read into the class that the tables name and written again from it: the
bytes must be the captured ones, so names, types, defaults, field order and the difference between
no header and an empty one are all those of the original.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.command import Command, encode_frame
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.header import EmptyHeader, Header
from rmq.remoting.protocol import REQUESTS
from tests.paths import DATA

if TYPE_CHECKING:
    from pathlib import Path

WIRE: Final = DATA / "wire"
FILES: Final = sorted(WIRE.glob("*.jsonl"))

UNDECLARED: Final = {"ReqT"}
"""Fields that no class declares: a client hook puts this one on any request."""

FILLED: Final[dict[RequestCode, set[int]]] = {
    RequestCode.PULL_MESSAGE: {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    },
    RequestCode.QUERY_MESSAGE: {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND},
}
"""Answers whose header is filled; success only for every other request."""


class Captured(msgspec.Struct, frozen=True):
    """One line of a capture, as far as it is needed."""

    kind: str
    code: int
    frame: bytes
    answers: str | None = None

    @property
    def request_code(self) -> RequestCode:
        return RequestCode(self.code) if self.answers is None else RequestCode[self.answers]

    def header_class(self) -> type[Header] | None:
        """What a frame with this code carries, from the declarations alone."""
        code = self.request_code
        if self.kind != "response":
            return REQUESTS[code].header
        success_class = REQUESTS[code].response_header
        if self.code in FILLED.get(code, {ResponseCode.SUCCESS}):
            return success_class
        # The original makes the header object before it knows that it will fail.
        return None if success_class is None else EmptyHeader

    def decode(self) -> Command:
        decoder = FrameDecoder()
        decoder.feed(self.frame)
        (command,) = decoder.take(2)
        assert decoder.error is None
        assert decoder.held_bytes == 0
        return command


@cache
def captured_in(path: Path) -> tuple[Captured, ...]:
    decode = msgspec.json.Decoder(Captured).decode
    return tuple(decode(line) for line in path.read_bytes().splitlines())


def all_captured() -> list[Captured]:
    return [captured for path in FILES for captured in captured_in(path)]


def declared_names(header_class: type[Header] | None) -> set[str]:
    if header_class is None:
        return set()
    return {info.encode_name for info in msgspec.structs.fields(header_class)}


def write_again(command: Command, header_class: type[Header] | None) -> bytes:
    """Encode what the typed header holds, and the fields that no class declares."""
    declared = declared_names(header_class)
    assert command.language is not None
    body = command.body or b""
    prefix = encode_frame(
        code=command.code,
        flag=command.flag,
        opaque=command.opaque,
        header=None if header_class is None else command.header(header_class),
        extra={name: v for name, v in command.ext_fields.items() if name not in declared},
        remark=command.remark,
        body_length=len(body),
        serialization=command.serialization,
        language=command.language,
        version=command.version,
    )
    return prefix + body


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_every_captured_frame_is_written_again_byte_for_byte(path: Path) -> None:
    for number, captured in enumerate(captured_in(path), 1):
        command = captured.decode()
        assert write_again(command, captured.header_class()) == captured.frame, (
            f"{path.name}:{number} {captured.request_code.name}"
        )


def test_every_captured_field_is_declared_or_known_to_be_undeclared() -> None:
    undeclared = set()
    for captured in all_captured():
        names = set(captured.decode().ext_fields)
        undeclared |= names - declared_names(captured.header_class())
    assert undeclared == UNDECLARED


def test_captures_exercise_what_they_always_did() -> None:
    """Pins the reach of the test above: a file that goes missing must not pass unnoticed."""
    everything = all_captured()
    requests = {c.request_code for c in everything if c.kind != "response"}
    answered = {c.request_code for c in everything if c.kind == "response"}
    classes = {c.header_class() for c in everything} - {None}
    with_class = [c for c in everything if c.header_class() is not None]
    assert (len(everything), len(with_class)) == (1002, 717)
    assert (len(requests), len(answered), len(classes)) == (46, 42, 40)
