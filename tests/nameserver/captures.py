"""What stock clients and brokers asked a stock nameserver, and what it said (tests/data/wire)."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import msgspec

from tests.paths import DATA
from tests.remoting.server_kit import Frame, parse_frame

WIRE: Final = DATA / "wire"


class Exchange(NamedTuple):
    """A request, as its bytes, and the answer to it."""

    connection: int
    name: str
    request: bytes
    answer: Frame | None
    """None for a one-way request."""

    def field(self, name: str) -> str:
        """A header field of the request."""
        fields = parse_frame(self.request).fields
        assert fields is not None, f"{self.name} has no fields"
        return fields[name]


class _Line(msgspec.Struct, rename={"sender": "from"}):
    conn: int
    server: str
    sender: str
    kind: str
    opaque: int
    frame: bytes
    name: str | None = None


@cache
def exchanges(run: str) -> tuple[Exchange, ...]:
    """Return what went between a nameserver and others in a run, in order of the requests."""
    decode = msgspec.json.Decoder(_Line).decode
    lines = [decode(text) for text in (WIRE / f"{run}.jsonl").read_bytes().splitlines()]
    lines = [line for line in lines if line.server == "namesrv"]
    answers = {
        (line.conn, line.opaque): parse_frame(line.frame)
        for line in lines
        if line.sender == "server"
    }
    return tuple(
        Exchange(line.conn, line.name or "", line.frame, answers.get((line.conn, line.opaque)))
        for line in lines
        if line.sender == "client"
    )


def runs() -> list[str]:
    """Return the runs in which a nameserver was asked anything."""
    names = sorted(path.stem for path in WIRE.glob("*.jsonl"))
    return [name for name in names if exchanges(name)]
