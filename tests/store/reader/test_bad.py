"""The reader on damaged stores: an error with path and offset, or the rest without the damage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.errors import CorruptStoreError, StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.store.layout import QUEUE_ENTRY
from rmq.store.reader import Reader
from tests.patching import patch
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

SECOND = f"{golden.SEGMENT_BYTES:020d}"


def segment_at(root: Path, offset: int) -> tuple[Path, int]:
    """Return the file of a physical offset and the position in it."""
    first = offset - offset % golden.SEGMENT_BYTES
    return root / "commitlog" / f"{first:020d}", offset - first


def damage(root: Path, offset: int, data: bytes) -> Path:
    path, position = segment_at(root, offset)
    patch(path, position, data)
    return path


RECORDS = golden.records(golden.CRASHED)
IN_THE_MIDDLE = RECORDS[900]
"""In the second of four segments."""


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        pytest.param(0, b"\0\0\0\x10", "size 16 with", id="size too small"),
        pytest.param(0, b"\x7f", "bytes left in the segment", id="size too large"),
        pytest.param(0, (455).to_bytes(4), "not the sum of its fields", id="size off"),
        pytest.param(4, b"\xff", "is not that of a message", id="magic"),
        pytest.param(28, b"\x01", "the record says it is at physical offset", id="offset"),
        pytest.param(84, b"\x7f", "body length", id="body length"),
        pytest.param(100, b"\xff", "CRC of the body", id="body"),
        pytest.param(0, bytes(64), "nothing was written here", id="zeros"),
    ],
)
def test_a_damaged_record_is_an_error_with_path_and_offset(
    at: int, data: bytes, reason: str, tmp_path: Path
) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    offset = IN_THE_MIDDLE.physical_offset
    path = damage(root, offset + at, data)
    reader = Reader(root)
    read: list[int] = []
    with pytest.raises(CorruptStoreError, match=reason) as caught:
        read.extend(record.physical_offset for record in reader.records())
    assert (caught.value.path, caught.value.offset) == (str(path), offset)
    assert read[-1] == RECORDS[899].physical_offset
    with pytest.raises(CorruptStoreError, match=reason):
        reader.record_at(PhysicalOffset(offset))


@pytest.mark.parametrize("at", [4, 28, 100])
def test_reading_goes_on_behind_damage_if_asked_to(at: int, tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    spoiled = [RECORDS[place].physical_offset for place in (0, 450, 451, 1200)]
    for offset in spoiled:
        damage(root, offset + at, b"\xff")
    bad: list[CorruptStoreError] = []
    read = [record.physical_offset for record in Reader(root).records(on_bad=bad.append)]
    expected = [
        record.physical_offset for record in RECORDS if record.physical_offset not in spoiled
    ]
    assert read == expected
    # Two in a row are reported where the first of them begins.
    assert [error.offset for error in bad] == [spoiled[0], spoiled[1], spoiled[3]]


def test_damage_at_the_end_of_a_segment_leads_to_the_next(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    last = max(each for each in RECORDS if each.physical_offset < golden.SEGMENT_BYTES)
    path, position = segment_at(root, last.physical_offset)
    patch(path, position, bytes(golden.SEGMENT_BYTES - position))
    bad: list[CorruptStoreError] = []
    read = [record.physical_offset for record in Reader(root).records(on_bad=bad.append)]
    assert read == [each.physical_offset for each in RECORDS if each is not last]
    assert [error.offset for error in bad] == [last.physical_offset]


def test_a_blank_of_the_wrong_length_does_not_hide_records(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    path = damage(root, IN_THE_MIDDLE.physical_offset, bytes.fromhex("000001C6CBD43194"))
    with pytest.raises(CorruptStoreError, match="a blank of 454 bytes where") as caught:
        list(Reader(root).records())
    assert (caught.value.path, caught.value.offset) == (str(path), IN_THE_MIDDLE.physical_offset)


def test_a_missing_segment_is_an_error_and_not_passed_over(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    (root / "commitlog" / SECOND).unlink()
    reader = Reader(root)
    with pytest.raises(CorruptStoreError, match="from 262144 on, are missing") as caught:
        list(reader.records())
    assert caught.value.offset == golden.SEGMENT_BYTES
    bad: list[CorruptStoreError] = []
    read = [record.physical_offset for record in reader.records(on_bad=bad.append)]
    assert read == [each.physical_offset for each in RECORDS if each.physical_offset // 262144 != 1]
    assert len(bad) == 1


def test_a_short_segment_is_an_error_where_it_ends(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    path = root / "commitlog" / SECOND
    os.truncate(path, 100_000)
    reader = Reader(root)
    assert reader.segment_bytes == golden.SEGMENT_BYTES
    with pytest.raises(CorruptStoreError, match="the file ends after 100000 bytes") as caught:
        list(reader.records())
    assert caught.value.path == str(path)
    assert caught.value.offset is not None
    assert caught.value.offset - golden.SEGMENT_BYTES <= 100_000


def test_other_files_in_the_log_are_left_alone(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED, tmp_path)
    (root / "commitlog" / "core.4711").write_bytes(b"dump")
    (root / "commitlog" / "lost+found").mkdir()
    (root / "consumequeue" / "GoldenFill" / "notes").mkdir()
    (root / "consumequeue" / "README").write_text("queues")
    reader = Reader(root)
    assert sum(1 for _ in reader.records()) == 2000
    assert reader.topics() == ["GoldenFill"]
    assert reader.queue_ids("GoldenFill") == [0, 1, 2, 3]


def test_the_end_of_a_clean_store_lies_behind_damage(tmp_path: Path) -> None:
    """Nobody may take the records behind it for gone because one of them cannot be read."""
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    in_last_segment = RECORDS[1900].physical_offset
    damage(root, in_last_segment + 100, b"\xff")
    reader = Reader(root)
    assert reader.end_offset == RECORDS[-1].physical_offset + len(RECORDS[-1].data)
    with pytest.raises(CorruptStoreError, match="CRC"):
        list(reader.records())
    assert sum(1 for _ in reader.records(on_bad=lambda _: None)) == 1999


def test_the_log_of_a_crashed_store_ends_at_the_first_bad_record(tmp_path: Path) -> None:
    """There a recovery ends it, too: what comes behind was not flushed in order."""
    root = golden.unpack(golden.CRASHED, tmp_path)
    damage(root, RECORDS[1900].physical_offset + 100, b"\xff")
    reader = Reader(root)
    assert reader.end_offset == RECORDS[1900].physical_offset
    assert sum(1 for _ in reader.records()) == 1900
    assert sum(bounds.entry_count for bounds in reader.queues()) == 1900


# --- queues -----------------------------------------------------------------------------------


def queue_entry(root: Path, queue_offset: int) -> tuple[Path, int]:
    """Return file and position of an entry of the first queue."""
    first = queue_offset // 60 * 1200
    path = root / "consumequeue" / "GoldenFill" / "0" / f"{first:020d}"
    return path, queue_offset * 20 - first


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        pytest.param((410, 411, 0), "has 411 bytes with offset 0 of queue 0", id="another message"),
        pytest.param((821, 411, 0), "of queue 1 of GoldenFill", id="another queue"),
        pytest.param((10**9, 411, 0), "has no record", id="beyond the log"),
        pytest.param((410, 3, 0), "has 411 bytes", id="less than a prefix"),
    ],
)
def test_an_entry_of_another_record_is_an_error(
    entry: tuple[int, int, int], found: str, tmp_path: Path
) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    path, position = queue_entry(root, 77)
    patch(path, position, QUEUE_ENTRY.pack(*entry))
    reader = Reader(root)
    with pytest.raises(CorruptStoreError, match=found) as caught:
        list(reader.messages("GoldenFill", 0))
    assert (caught.value.path, caught.value.offset) == (str(path), entry[0])
    bad: list[CorruptStoreError] = []
    read = [each.queue_offset for each in reader.messages("GoldenFill", 0, on_bad=bad.append)]
    assert read == [offset for offset in range(500) if offset != 77]
    assert len(bad) == 1


def test_an_entry_between_two_records_is_an_error_of_the_log_there(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    path, position = queue_entry(root, 77)
    patch(path, position, QUEUE_ENTRY.pack(411, 411, 0))
    with pytest.raises(CorruptStoreError) as caught:
        list(Reader(root).messages("GoldenFill", 0))
    assert caught.value.offset == 411


def test_a_missing_file_of_a_queue_is_an_error(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    queue_entry(root, 77)[0].unlink()
    with pytest.raises(CorruptStoreError, match="queue offset 60 is missing"):
        list(Reader(root).messages("GoldenFill", 0))


def test_entries_that_a_recovery_left_behind_do_not_count(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    path, position = queue_entry(root, 500)
    # One of a message of another queue, one that points between records, one beyond the log.
    stale = [(0, 410, 1), (77_777, 300, 2), (10**7, 300, 3)]
    patch(path, position, b"".join(QUEUE_ENTRY.pack(*entry) for entry in stale))
    reader = Reader(root)
    bounds = reader.queue("GoldenFill", 0)
    assert bounds is not None
    assert bounds.max_offset == 500
    assert sum(1 for _ in reader.messages("GoldenFill", 0)) == 500


# --- anything ---------------------------------------------------------------------------------


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    cuts=st.lists(
        st.tuples(
            st.integers(0, 879_000),
            st.one_of(st.binary(min_size=1, max_size=40), st.integers(1, 3000).map(bytes)),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_bytes_change_only_true_records_come_out(
    cuts: list[tuple[int, bytes]], tmp_path: Path
) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    for offset, data in cuts:
        path, position = segment_at(root, offset)
        patch(path, position, data[: golden.SEGMENT_BYTES - position])
    contents = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    reader = Reader(root)
    bad: list[CorruptStoreError] = []
    previous_end = 0
    for record in reader.records(on_bad=bad.append):
        offset = record.physical_offset
        assert previous_end <= offset <= reader.end_offset - record.size
        position = offset % golden.SEGMENT_BYTES
        stored = contents[f"{offset - position:020d}"][position : position + record.size]
        assert stored[4:8] == bytes.fromhex("DAA320A7")
        assert stored[28:36] == offset.to_bytes(8)
        assert record.body in stored
        previous_end = offset + record.size
    untouched = [
        record.physical_offset
        for record in RECORDS
        if all(
            offset + len(data) <= record.physical_offset
            or offset >= record.physical_offset + len(record.data)
            for offset, data in cuts
        )
        and record.physical_offset < reader.end_offset
    ]
    read = {record.physical_offset for record in reader.records(on_bad=lambda _: None)}
    assert [offset for offset in untouched if offset not in read] == []


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED, tmp_path)
    path = root / "commitlog" / SECOND
    path.unlink()
    path.symlink_to(path)  # opening it fails for root, too
    with pytest.raises(StorageError, match=f"cannot read the attributes of .*{SECOND}"):
        Reader(root)
