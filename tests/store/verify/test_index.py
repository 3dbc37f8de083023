"""The check of the index: damage to it is found, what stock brokers do to it is not damage."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Final

import pytest

from rmq.model.java import string_hash
from rmq.model.record_layout import RECORD_HEADS
from rmq.store.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
    QUEUE_ENTRY,
)
from rmq.store.reader import Reader
from rmq.store.verify import verify
from rmq.store.verify.finding import Finding, Kind, Severity
from tests.patching import patch
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES_AT: Final = INDEX_HEADER_BYTES + golden.INDEX_SLOTS * INDEX_SLOT_BYTES
RECORDS: Final = golden.records(golden.CRASHED)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that was closed cleanly; its index has two full files and one with four entries."""
    return golden.unpack(golden.CRASHED_RECOVERED, tmp_path)


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def entry_at(number: int) -> int:
    return ENTRIES_AT + number * INDEX_ENTRY_BYTES


def read_entry(path: Path, number: int) -> tuple[int, int, int, int]:
    key_hash, physical, seconds, previous = INDEX_ENTRY.unpack_from(
        path.read_bytes(), entry_at(number)
    )
    return key_hash, physical, seconds, previous


def errors(root: Path) -> list[Finding]:
    return [each for each in verify(Reader(root)) if each.severity is Severity.ERROR]


def notes(root: Path) -> list[str]:
    found = list(verify(Reader(root)))
    assert [each for each in found if each.severity is not Severity.NOTE] == []
    return [each.text for each in found]


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 700, 1999])
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(3, id="hash"),
        pytest.param(6, id="offset by far"),
        pytest.param(11, id="offset by little"),
        pytest.param(15, id="seconds"),
        pytest.param(18, id="link"),
    ],
)
def test_a_flipped_bit_in_an_entry_is_found(number: int, at: int, root: Path) -> None:
    path = index_files(root)[1]
    physical = read_entry(path, number)[1]
    byte = path.read_bytes()[entry_at(number) + at]
    patch(path, entry_at(number) + at, bytes([byte ^ 1]))
    found = errors(root)
    assert found
    assert {each.kind for each in found} == {Kind.INDEX}
    assert {each.path for each in found} <= set(map(str, index_files(root)))
    assert any(
        f"index entry {number}" in each.text or each.physical_offset == physical for each in found
    ), found


@pytest.mark.parametrize(
    ("field", "text"),
    [
        pytest.param(0, "the header begins at time", id="begin time"),
        pytest.param(1, "the header ends at time", id="end time"),
        pytest.param(2, "the header begins at physical offset", id="begin offset"),
        pytest.param(3, "the header ends at physical offset", id="end offset"),
        pytest.param(4, "slots in use", id="slots in use"),
    ],
)
@pytest.mark.parametrize("change", [1, -1])
def test_a_wrong_header_is_found(field: int, text: str, change: int, root: Path) -> None:
    path = index_files(root)[1]
    header = list(INDEX_HEADER.unpack_from(path.read_bytes()))
    header[field] += change
    patch(path, 0, INDEX_HEADER.pack(*header))
    found = errors(root)
    assert {(each.kind, each.path) for each in found} == {(Kind.INDEX, str(path))}
    assert any(text in each.text for each in found)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        pytest.param(1500, "there is one more with number 1500", id="too small"),
        pytest.param(2001, "there is room for 2000", id="more than fit"),
        pytest.param(1, "says 1 entries, but", id="none"),
        pytest.param(0, "says 0 entries, but", id="zero"),
        pytest.param(-7, "says -7 entries, but", id="negative"),
    ],
)
def test_a_wrong_count_is_found(count: int, text: str, root: Path) -> None:
    path = index_files(root)[1]
    patch(path, 36, count.to_bytes(4, signed=True))
    found = errors(root)
    assert any(text in each.text and each.path == str(path) for each in found), found


def test_a_slot_that_leads_elsewhere_is_found(root: Path) -> None:
    path = index_files(root)[0]
    at = INDEX_HEADER_BYTES + 17 * INDEX_SLOT_BYTES
    (newest,) = INDEX_SLOT.unpack_from(path.read_bytes(), at)
    patch(path, at, INDEX_SLOT.pack(newest - 1))
    (error,) = errors(root)
    assert (error.kind, error.path) == (Kind.INDEX, str(path))
    assert error.text == f"slot 17 leads to entry {newest - 1}, its newest is {newest}"


def test_exchanged_entries_are_found(root: Path) -> None:
    path = index_files(root)[0]
    one, other = read_entry(path, 300), read_entry(path, 400)
    patch(path, entry_at(300), INDEX_ENTRY.pack(*other))
    patch(path, entry_at(400), INDEX_ENTRY.pack(*one))
    texts = [each.text for each in errors(root)]
    assert any("index entry 300 is out of order" in text for text in texts)
    assert any("index entry 400 is out of order" in text for text in texts)


def test_zeroed_entries_are_found_and_what_is_missing_for_them(root: Path) -> None:
    path = index_files(root)[0]
    offsets = [read_entry(path, number)[1] for number in range(500, 510)]
    patch(path, entry_at(500), bytes(10 * INDEX_ENTRY_BYTES))
    missing, empty = errors(root)
    assert missing.physical_offset == offsets[0]
    assert missing.text == (
        f"keys that are not in the index: 10, from physical offset {offsets[0]} to {offsets[-1]}"
    )
    assert empty.text == "10 entries are empty, from number 500 to 509"


def test_a_cut_file_is_found(root: Path) -> None:
    path = index_files(root)[1]
    os.truncate(path, 30_000)
    found = errors(root)
    assert [(each.kind, each.path) for each in found] == [(Kind.INDEX, str(path))]
    assert found[0].text == "30000 bytes, other index files have 42040"


def test_a_file_without_a_header_is_found(root: Path) -> None:
    path = index_files(root)[1]
    path.write_bytes(b"short")
    (error,) = errors(root)
    assert (error.kind, error.path) == (Kind.INDEX, str(path))


# --- what stock brokers do --------------------------------------------------------------------


def test_keys_of_a_file_that_was_dropped_after_a_crash_are_noted(root: Path) -> None:
    """RocketMQ 4.9.8 IndexService drops files newer than the checkpoint, here the middle one."""
    index_files(root)[1].unlink()
    (gap, *_) = notes(root)
    # Of the first record one key is in the file before.
    assert gap == (
        "keys, between two index files that are not in the index: 1997, from physical offset"
        " 438006 to 877745"
    )


def test_keys_from_before_the_first_file_are_noted(root: Path) -> None:
    for path in index_files(root)[:2]:
        path.unlink()
    (gap,) = notes(root)
    assert gap == (
        "keys, older than the index that are not in the index: 3996, from physical offset 0 to"
        " 877745"
    )


def test_keys_that_are_newer_than_the_index_are_noted(root: Path) -> None:
    for path in index_files(root)[1:]:
        path.unlink()
    (gap,) = notes(root)
    assert "newer than the index" in gap


def test_a_store_without_an_index_is_noted_once(root: Path) -> None:
    for path in index_files(root):
        path.unlink()
    (gap,) = notes(root)
    assert gap == (
        "keys, newer than the index that are not in the index: 4000, from physical offset 0 to"
        " 878672"
    )


def test_an_entry_linked_to_itself_is_noted(root: Path) -> None:
    path = index_files(root)[0]
    key_hash, physical, seconds, _ = read_entry(path, 700)
    patch(path, entry_at(700), INDEX_ENTRY.pack(key_hash, physical, seconds, 700))
    assert any(text.startswith("index entry 700 is linked to 700") for text in notes(root))


def test_a_file_that_was_never_written_is_noted(root: Path) -> None:
    (root / "index" / "20301231235959999").write_bytes(b"")
    assert any("never written" in text for text in notes(root))


def test_what_was_added_when_the_broker_was_killed_is_beyond_the_header(tmp_path: Path) -> None:
    """Slots and entries may be ahead of the header then; a recovery goes back to it."""
    root = golden.unpack(golden.CRASHED, tmp_path)
    path = index_files(root)[2]
    header = list(INDEX_HEADER.unpack_from(path.read_bytes()))
    patch(path, 0, INDEX_HEADER.pack(*header[:4], 1, 2))
    assert notes(root) == [
        "keys, newer than the index that are not in the index: 1, at physical offset 878672"
    ]


def record_at(offset: int, queue_id: int, queue_offset: int, store_ms: int, key: str) -> bytes:
    """Return a record of GoldenFill as a broker would have appended it."""
    body, topic = b"written later", b"GoldenFill"
    properties = f"KEYS\x01{key}".encode()
    head = RECORD_HEADS[0]
    size = head.size + len(body) + 1 + len(topic) + 2 + len(properties)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    fixed = head.pack(
        *(size, -626843481, crc, queue_id, 0, queue_offset, offset, 0, store_ms, bytes(8)),
        *(store_ms, bytes(8), 0, 0, len(body)),
    )
    lengths = len(topic).to_bytes(1), len(properties).to_bytes(2)
    return b"".join((fixed, body, lengths[0], topic, lengths[1], properties))


class AppendedAfterRecovery:
    """The torn store, recovered by a stock broker, with messages that it appended since.

    They lie where the torn ones were. As RocketMQ 4.9.8 IndexService does, those below the end of
    the last index file are not indexed, and the old entries stay.
    """

    FIRST: Final = RECORDS[1988].physical_offset
    STALE_END: Final = 878208

    def __init__(self, root: Path, count: int, *, later_ms: int) -> None:
        self.root = root
        self.offsets: list[int] = []
        self._offset = self.FIRST
        self._store_ms = 1794798151302 + later_ms
        for number in range(count):
            self._append(number % 4, 497 + number // 4, f"late{number}")
        patch(root / "checkpoint", 8, self._store_ms.to_bytes(8))

    def _append(self, queue_id: int, queue_offset: int, key: str) -> None:
        offset = self._offset
        record = record_at(offset, queue_id, queue_offset, self._store_ms, key)
        patch(self.root / "commitlog" / f"{786432:020d}", offset - 786432, record)
        first = queue_offset // 60 * 1200
        path = self.root / "consumequeue" / "GoldenFill" / str(queue_id) / f"{first:020d}"
        if not path.exists():
            path.write_bytes(bytes(1200))
        patch(path, queue_offset * 20 - first, QUEUE_ENTRY.pack(offset, len(record), 0))
        if offset >= self.STALE_END:
            self._index(offset, key)
        self.offsets.append(offset)
        self._offset += len(record)

    def _index(self, offset: int, key: str) -> None:
        path = index_files(self.root)[2]
        data = path.read_bytes()
        header = list(INDEX_HEADER.unpack_from(data))
        number = max(header[5], 1)
        key_hash = abs(string_hash(f"GoldenFill#{key}"))
        slot_at = INDEX_HEADER_BYTES + key_hash % 500 * INDEX_SLOT_BYTES
        (previous,) = INDEX_SLOT.unpack_from(data, slot_at)
        seconds = max(self._store_ms - header[0], 0) // 1000
        patch(path, entry_at(number), INDEX_ENTRY.pack(key_hash, offset, seconds, previous))
        patch(path, slot_at, INDEX_SLOT.pack(number))
        if number == 1:
            header[0], header[2] = self._store_ms, offset
        header[1], header[3] = self._store_ms, offset
        patch(path, 0, INDEX_HEADER.pack(*header[:4], header[4] + (previous == 0), number + 1))


def test_records_written_over_ones_that_were_cut_off_are_noted(tmp_path: Path) -> None:
    root = golden.unpack(golden.TORN_RECOVERED, tmp_path)
    appended = AppendedAfterRecovery(root, 60, later_ms=20_000)
    assert appended.offsets[-1] > appended.STALE_END
    found = notes(root)
    unindexed = [offset for offset in appended.offsets if offset < appended.STALE_END]
    noted = [text for text in found if "written over records cut off" in text]
    assert sum(int(text.split(": ")[1].split(",")[0]) for text in noted) == len(unindexed)
    (stale,) = (text for text in found if text.startswith("entries of records that a recovery"))
    assert stale == (
        "entries of records that a recovery cut off: 22, from physical offset 873623 to 878208"
    )


def test_entries_that_fit_no_record_of_their_own_time_are_damage(tmp_path: Path) -> None:
    """The same bytes, but the records are no later than the entries that do not fit them."""
    root = golden.unpack(golden.TORN_RECOVERED, tmp_path)
    AppendedAfterRecovery(root, 60, later_ms=0)
    found = errors(root)
    assert {each.kind for each in found} == {Kind.INDEX}
    assert sum("index entry" in each.text for each in found) == 22
