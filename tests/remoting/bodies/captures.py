"""The bodies of the captured frames (tests/data/wire), with what they belong to."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rmq.remoting import layout
from rmq.remoting.codes import RequestCode
from rmq.remoting.protocol import REQUESTS
from tests.paths import DATA

if TYPE_CHECKING:
    from rmq.remoting.bodies import Body

WIRE: Final = DATA / "wire"


class CapturedBody(NamedTuple):
    """One captured body that is not empty."""

    run: str
    line: int
    is_response: bool
    code: RequestCode
    """Of the request, also if this is the answer."""
    ext: dict[str, str]
    data: bytes

    @property
    def body_class(self) -> type[Body] | None:
        declared = REQUESTS[self.code]
        return declared.response_body if self.is_response else declared.body

    @property
    def is_standard(self) -> bool:
        """Whether it was written as standard JSON; only nameservers do, and only for routes."""
        return self.code is RequestCode.GET_ROUTEINFO_BY_TOPIC


class _Line(msgspec.Struct):
    kind: str
    code: int
    frame: bytes
    ext: dict[str, str] | None = None
    answers: str | None = None


@cache
def captured_bodies() -> tuple[CapturedBody, ...]:
    decode_line = msgspec.json.Decoder(_Line).decode
    bodies: list[CapturedBody] = []
    for file in sorted(WIRE.glob("*.jsonl")):
        for number, text in enumerate(file.read_bytes().splitlines(), 1):
            line = decode_line(text)
            data = layout.Frame.parse(line.frame).body
            if data:
                code = RequestCode[line.answers] if line.answers else RequestCode(line.code)
                is_response = line.kind == "response"
                bodies.append(
                    CapturedBody(file.stem, number, is_response, code, line.ext or {}, data)
                )
    return tuple(bodies)


def captured_json_bodies() -> list[tuple[CapturedBody, type[Body]]]:
    """Return the captured bodies that have a class, with it."""
    return [(body, body.body_class) for body in captured_bodies() if body.body_class is not None]
