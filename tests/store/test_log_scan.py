"""Walking the log: which records come, where it ends, and what it says about the bytes there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.model import record_layout
from rmq.model.offsets import PhysicalOffset
from rmq.store.config import MIB
from rmq.store.log_scan import CHUNK_BYTES, LogScan
from rmq.testing.storage import MemoryStorage
from tests.store.built_records import build_record
from tests.store.store_kit import SEGMENT_BYTES, message_of_size, open_core, put, small_config

if TYPE_CHECKING:
    from rmq.store.append import AppendResult
    from rmq.store.core import StoreCore


@dataclass(frozen=True)
class Log:
    """A log with records, and where they lie."""

    core: StoreCore
    places: list[tuple[int, int]]

    def scan(
        self, start: int = 0, stop: int | None = None, *, verify_crc: bool = True
    ) -> tuple[list[tuple[int, int]], LogScan]:
        """Walk; return physical offset and size of what came, and the walk itself."""
        scan = LogScan(
            self.core.log.segments,
            PhysicalOffset(start),
            None if stop is None else PhysicalOffset(stop),
            verify_crc=verify_crc,
        )
        found: list[tuple[int, int]] = []
        for head in scan:
            found.append((head.physical_offset, head.size))
            assert scan.offset == head.physical_offset + head.size
        return found, scan

    def flip(self, offset: int, mask: int = 1) -> None:
        segment = self.core.log.segments.find(offset)
        assert segment is not None
        segment.buffer[offset - segment.first] ^= mask

    @property
    def end(self) -> int:
        return sum(self.places[-1])


def log_of(*sizes: int, segment_bytes: int = SEGMENT_BYTES) -> Log:
    core = open_core(MemoryStorage(), small_config(segment_bytes=segment_bytes))
    results: list[AppendResult] = [put(core, [message_of_size(size)])[0] for size in sizes]
    return Log(core, [(result.physical_offset, result.size) for result in results])


def test_all_records_come_in_order_across_segments() -> None:
    log = log_of(*[1000] * 25)
    found, scan = log.scan()
    assert found == log.places
    assert scan.offset == log.end
    assert scan.bad == "nothing was written here"


def test_an_empty_log_has_no_records() -> None:
    log = log_of(1000)
    found, scan = log.scan(0, 0)
    assert (found, scan.offset, scan.bad) == ([], 0, None)
    scan = LogScan(open_core(MemoryStorage()).log.segments, PhysicalOffset(0), verify_crc=True)
    assert (list(scan), scan.offset, scan.bad) == ([], 0, None)


def test_a_walk_may_begin_at_any_record_and_at_the_end() -> None:
    log = log_of(*[1000] * 10)
    for place, (start, _) in enumerate(log.places):
        assert log.scan(start)[0] == log.places[place:]
    assert log.scan(log.end)[0] == []
    assert log.scan(log.end, log.end)[1].bad is None


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 90, 91, 999])
def test_a_record_that_is_not_whole_yet_ends_the_walk_without_complaint(cut: int) -> None:
    log = log_of(1000, 1000, 1000)
    found, scan = log.scan(0, 2000 + cut)
    assert found == log.places[:2]
    assert (scan.offset, scan.bad) == (2000, None)


def test_a_walk_to_the_end_of_a_segment_passes_its_blank() -> None:
    log = log_of(5000, 5000)
    found, scan = log.scan(0, SEGMENT_BYTES)
    assert found == log.places[:1]
    assert (scan.offset, scan.bad) == (SEGMENT_BYTES, None)


def test_a_walk_into_a_blank_ends_before_it() -> None:
    log = log_of(5000, 5000)
    found, scan = log.scan(0, 6000)
    assert (len(found), scan.offset, scan.bad) == (1, 5000, None)


def test_a_log_may_end_with_a_blank() -> None:
    log = log_of(5000, 5000)
    log.core.log.segments.drop_from(SEGMENT_BYTES)
    found, scan = log.scan()
    assert (len(found), scan.offset, scan.bad) == (1, SEGMENT_BYTES, None)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([CHUNK_BYTES - 500, 1000, 1000], id="a record across two chunks"),
        pytest.param([CHUNK_BYTES - 4, 1000], id="a size across two chunks"),
        pytest.param([CHUNK_BYTES - 8, 1000], id="a prefix at the end of a chunk"),
        pytest.param([CHUNK_BYTES, 1000], id="as long as a chunk"),
        pytest.param([100, 3 * CHUNK_BYTES + 5, 100], id="longer than chunks"),
        pytest.param([CHUNK_BYTES // 3] * 10, id="many"),
    ],
)
def test_records_lie_across_the_pieces_that_are_read_at_once(sizes: list[int]) -> None:
    log = log_of(*sizes, segment_bytes=4 * MIB)
    found, scan = log.scan()
    assert found == log.places
    assert scan.offset == log.end


@pytest.mark.parametrize(
    ("place", "mask", "says"),
    [
        pytest.param(0, 0x80, "size -", id="a negative size"),
        pytest.param(0, 0x40, "with 7192 bytes left in the segment", id="a size beyond it"),
        pytest.param(3, 0x01, "is not the sum of its fields", id="a size off by one"),
        pytest.param(4, 0x01, "is not that of a message", id="the magic"),
        pytest.param(8, 0x01, "CRC of the body", id="the CRC"),
        pytest.param(28, 0x01, "the record says it is at physical offset", id="its offset"),
        pytest.param(35, 0x01, "the record says it is at physical offset", id="its offset, too"),
        pytest.param(39, 0x10, "in a record of", id="the born host's length"),
        pytest.param(39, 0x20, "in a record of", id="the store host's length"),
        pytest.param(84, 0x80, "body length -", id="a negative body length"),
        pytest.param(87, 0x01, "of its fields|in a record of", id="the body length"),
        pytest.param(500, 0x10, "CRC of the body", id="the body"),
        pytest.param(991, 0x80, "topic length", id="the topic length"),
        pytest.param(999, 0x01, "is not the sum of its fields", id="the length of the properties"),
    ],
)
def test_damage_ends_the_walk_where_the_record_begins(place: int, mask: int, says: str) -> None:
    log = log_of(1000, 1000, 1000)
    log.flip(1000 + place, mask)
    found, scan = log.scan()
    assert found == log.places[:1]
    assert scan.offset == 1000
    assert scan.bad is not None
    assert any(part in scan.bad for part in says.split("|")), scan.bad


def test_without_the_crc_damage_to_the_body_is_not_noticed() -> None:
    log = log_of(1000, 1000)
    log.flip(500)
    assert log.scan(verify_crc=False)[0] == log.places
    assert log.scan(verify_crc=True)[0] == []


@given(place=st.integers(0, 999), mask=st.integers(1, 255), data=st.data())
def test_damage_never_yields_a_record_that_reaches_out_of_the_log(
    place: int, mask: int, data: st.DataObject
) -> None:
    log = log_of(1000, 1000, 1000, 6000, 1000)
    log.flip(data.draw(st.sampled_from([start for start, _ in log.places])) + place, mask)
    found, scan = log.scan(0, log.end)
    assert found == [one for one in log.places if one in found] or scan.bad is not None
    assert all(start + size <= log.end for start, size in found)
    assert scan.offset <= log.end


def test_a_last_record_that_ends_in_a_zero_may_be_doubted() -> None:
    # Records without properties do end so; what follows them shows that they are whole.
    log = log_of(1000, 1000, 1000)
    scan = LogScan(log.core.log.segments, PhysicalOffset(0), verify_crc=True, doubt_last=True)
    assert len(list(scan)) == 2
    assert (scan.offset, scan.bad) == (
        2000,
        "the last record ends in a zero: the rest of it never came",
    )


def test_garbage_between_segments_is_told_of() -> None:
    log = log_of(5000, 5000)
    log.flip(5004)
    found, scan = log.scan()
    assert (len(found), scan.offset) == (1, 5000)
    assert "is not that of a message" in (scan.bad or "")


@pytest.mark.parametrize("left", [1, 4, 7])
def test_a_segment_that_ends_without_room_for_a_blank_is_told_of(left: int) -> None:
    core = open_core(MemoryStorage())
    record = build_record(body=b"x" * (SEGMENT_BYTES - left - 109), physical_offset=0)
    assert len(record) == SEGMENT_BYTES - left
    core.append_raw(PhysicalOffset(0), record.ljust(SEGMENT_BYTES, b"\xff"))
    scan = LogScan(core.log.segments, PhysicalOffset(0), verify_crc=True)
    assert len(list(scan)) == 1
    assert scan.offset == SEGMENT_BYTES - left
    assert scan.bad == f"only {left} bytes are left in the segment"


def test_a_record_says_what_dispatch_needs_to_know() -> None:
    core = open_core(MemoryStorage())
    record = build_record(physical_offset=0, sys_flag=0)
    core.append_raw(PhysicalOffset(0), record)
    (head,) = LogScan(
        core.log.segments, PhysicalOffset(0), PhysicalOffset(len(record)), verify_crc=True
    )
    fields = record_layout.Record.parse(record)
    assert head.size == len(record)
    assert (head.topic, head.properties) == (fields.topic, fields.properties)
    assert (head.queue_id, head.queue_offset, head.store_ms, head.sys_flag) == (
        fields.queue_id,
        fields.queue_offset,
        fields.store_ms,
        fields.sys_flag,
    )
