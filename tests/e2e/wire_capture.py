"""The captured runs (tests/data/wire) as rows that can be replayed, and requests with other fields.

The golden log (tests/data/store) was written while these runs were captured, which is how their
order is known, and the order in which requests that were under way at once were handled.
"""

from __future__ import annotations

import json
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from tests.remoting.frames import RUNS, WIRE, raw_frame
from tests.remoting.server_kit import Frame, parse_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MQADMIN: Final = tuple(run for run in RUNS if run.startswith("mqadmin-"))
"""In the order of their numbers. The odd numbers were not captured."""

STORING: Final = frozenset({"SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "CONSUMER_SEND_MSG_BACK"})


class Row(msgspec.Struct, frozen=True, dict=True, rename={"sender": "from"}):
    """One captured frame."""

    conn: int
    server: str
    """The one that was dialled: namesrv, master, master-vip or slave."""
    sender: str
    kind: str
    opaque: int
    frame: bytes
    name: str | None = None
    answers: str | None = None

    @property
    def is_from_client(self) -> bool:
        return self.sender == "client"

    @property
    def is_response(self) -> bool:
        return self.kind == "response"

    @property
    def request_name(self) -> str:
        """What is asked, also if this is the answer."""
        name = self.answers if self.is_response else self.name
        assert name is not None
        return name

    @property
    def key(self) -> tuple[int, int]:
        """The same for a request and the answer to it."""
        return self.conn, self.opaque

    @cached_property
    def parsed(self) -> Frame:
        return parse_frame(self.frame)

    @property
    def fields(self) -> dict[str, str]:
        return self.parsed.fields or {}


@cache
def rows(run: str) -> tuple[Row, ...]:
    """Return a run as it is to be replayed: in order, requests that store as they were handled."""
    decode = msgspec.json.Decoder(Row).decode
    found = [decode(line) for line in (WIRE / f"{run}.jsonl").read_bytes().splitlines()]
    return tuple(_as_handled(found))


@cache
def answers(run: str) -> Mapping[tuple[int, int], Frame]:
    """Return the answers of servers in a run."""
    return {row.key: row.parsed for row in rows(run) if row.is_response and not row.is_from_client}


def with_fields(frame: bytes, changes: Mapping[str, str]) -> bytes:
    """Return a request with other values of some header fields; its header has to be JSON."""
    parsed = parse_frame(frame)
    size = int.from_bytes(frame[5:8])
    header = json.loads(frame[8 : 8 + size])
    assert changes.keys() <= header["extFields"].keys(), changes
    header["extFields"].update(changes)
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return raw_frame(encoded, parsed.body)


def _as_handled(found: Sequence[Row]) -> list[Row]:
    """Swap requests that were under way at once if the broker stored the later one first.

    It answers in the order in which it stores.
    """
    order = list(found)
    answered_at = {row.key: at for at, row in enumerate(found) if row.is_response}
    asked_at = [
        at
        for at, row in enumerate(found)
        if row.is_from_client and row.name in STORING and row.key in answered_at
    ]
    for first, second in pairwise(asked_at):
        if second < answered_at[found[second].key] < answered_at[found[first].key]:
            order[first], order[second] = order[second], order[first]
    return order
