"""A broker that has what a stock broker had at some moment, and what clients then asked that one.

The golden log (tests/data/store) grew while the golden frames (tests/data/wire) were captured, so a
broker that is given the first records of it is in the state in which the captured one was asked.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.model.offsets import PhysicalOffset
from rmq.remoting.codes import FLAG_RESPONSE
from tests.broker.broker_kit import part_broker
from tests.remoting.frames import WIRE
from tests.remoting.server_kit import Frame, parse_frame
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker

SETTINGS: Final = {
    "brokerName": "broker-golden",
    "brokerClusterName": "GoldenCluster",
    "brokerIP1": "127.0.0.1",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "mappedFileSizeCommitLog": str(golden.SEGMENT_BYTES),
    "mappedFileSizeConsumeQueue": str(golden.QUEUE_SEGMENT_BYTES),
    "maxHashSlotNum": str(golden.INDEX_SLOTS),
    "maxIndexNum": str(golden.INDEX_ENTRIES),
}

BEFORE_PUSH: Final = 36
BEFORE_PULL: Final = 51
BEFORE_SQL: Final = 55
BEFORE_MQADMIN: Final = 84
"""How many records the log had when these clients ran; `mqadmin` ran 22 times."""


class Captured(msgspec.Struct, frozen=True, rename={"sender": "from", "at_ms": "ms"}):
    """One captured frame."""

    at_ms: float
    conn: int
    server: str
    sender: str
    kind: str
    opaque: int
    frame: bytes
    answers: str | None = None
    name: str | None = None

    @property
    def parsed(self) -> Frame:
        return parse_frame(self.frame)


@cache
def captured(run: str, server: str = "master") -> tuple[Captured, ...]:
    """Return what passed between one captured broker and its clients, in order."""
    decode = msgspec.json.Decoder(Captured).decode
    lines = (WIRE / f"{run}.jsonl").read_bytes().splitlines()
    return tuple(each for line in lines if (each := decode(line)).server == server)


def requests(run: str) -> list[tuple[Captured, Frame]]:
    """Return the requests of a run with the answers to them."""
    answers = {
        (each.conn, each.opaque): each.parsed
        for each in captured(run)
        if each.sender == "server" and each.parsed.flag & FLAG_RESPONSE
    }
    return [
        (each, answers[each.conn, each.opaque])
        for each in captured(run)
        if each.sender == "client" and (each.conn, each.opaque) in answers
    ]


def comparable(answer: Frame) -> tuple[object, ...]:
    """Return what must be equal: all but the version (the captured broker was a 4.9.7)."""
    remark = None if answer.remark == "not set any response code" else answer.remark
    return (answer.code, remark, answer.fields, answer.body)


@asynccontextmanager
async def golden_broker(
    folder: Path, records: int, settings: Mapping[str, str] | None = None
) -> AsyncIterator[PartBroker]:
    """Serve a broker whose log has the first so many records of the captured one."""
    async with part_broker(folder, {**SETTINGS, **(settings or {})}, has_topic=False) as broker:
        found = golden.records(golden.CLEAN_MASTER)[:records]
        core = broker.core
        core.append_raw(PhysicalOffset(0), b"".join(record.data for record in found))
        while core.dispatcher.catch_up():
            pass
        files = golden.files(golden.CLEAN_MASTER)
        broker.topics.load(files["config/topics.json"].decode())
        broker.groups.load(files["config/subscriptionGroup.json"].decode())
        broker.clock.ms = int.from_bytes(found[-1].data[56:64])
        yield broker
