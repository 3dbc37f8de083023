"""A stock slave's reports, as they were captured, get exactly what the stock master sent.

`tests/data/ha` holds both directions of one connection between a RocketMQ 4.9.7 SYNC_MASTER and its
slave, and when each piece was seen. The master's frames tell what was in its log and when it got
there; everything else has to come by itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.ha.protocol.wire import REPORT, TRANSFER, CatchUp
from rmq.model.offsets import PhysicalOffset
from tests.ha.protocol.kit_master import serving, settled, stock_slave
from tests.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import trio.testing

FOLDER: Final = DATA / "ha"
FROM_SLAVE: Final = (FOLDER / "slave-to-master.bin").read_bytes()
FROM_MASTER: Final = (FOLDER / "master-to-slave.bin").read_bytes()
SILENCE_S: Final = 5.0
"""A stock slave connects and then says nothing for so long."""


class Event(NamedTuple):
    """Something that happened on the connection."""

    ms: float
    from_slave: bytes
    """What the slave said, if it was the slave."""
    appended: tuple[int, bytes]
    """Else what had got into the master's log, and where."""


def times(name: str) -> list[tuple[int, float]]:
    lines = (FOLDER / f"{name}.times.jsonl").read_text().splitlines()
    return [(entry["offset"], entry["ms"]) for entry in map(json.loads, lines)]


def events() -> list[Event]:
    """Return both directions in the order in which they were seen."""
    found = [
        Event(ms, FROM_SLAVE[offset : offset + REPORT.size], (0, b""))
        for offset, ms in times("slave-to-master")
    ]
    seen_at = dict(times("master-to-slave"))
    found += [Event(seen_at[position], b"", (offset, body)) for position, offset, body in frames()]
    return sorted(found, key=lambda event: event.ms)


def frames() -> Iterator[tuple[int, int, bytes]]:
    """Return the master's frames: position in the capture, offset in the log, bytes."""
    position = 0
    while position < len(FROM_MASTER):
        offset, size = TRANSFER.unpack_from(FROM_MASTER, position)
        start = position + TRANSFER.size
        yield position, offset, FROM_MASTER[start : start + size]
        position = start + size


async def test_a_captured_slave_gets_the_bytes_of_the_captured_master(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    settings = {"catch_up": CatchUp.LAST_FILE}
    async with serving(tmp_path, settings=settings, store={"segment_bytes": 1 << 18}) as run:
        with stock_slave(run) as slave:
            await settled()
            got = bytearray()
            now_ms = events()[0].ms - SILENCE_S * 1000
            for event in events():
                mock_clock.jump((event.ms - now_ms) / 1000)
                now_ms = event.ms
                await settled()
                if event.from_slave:
                    await slave.say(event.from_slave)
                offset, data = event.appended
                if data:
                    run.store.append_raw(PhysicalOffset(offset), data)
                    run.server.pump()
                    await settled()
                got += slave.take()
            assert got == FROM_MASTER
            assert run.only_link.appended == run.log.end
            assert run.only_link.in_sync


def test_the_capture_has_heartbeats_and_data() -> None:
    sizes = [len(body) for _, _, body in frames()]
    assert sizes.count(0) > 5
    assert len(sizes) - sizes.count(0) > 10
