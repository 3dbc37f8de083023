"""The full check: sound stores have no errors, and every damage is found where it is."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from rmq.errors import ConfigError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.config import parse_delay_levels
from rmq.store.layout import FILLER_SIZE, QUEUE_ENTRY
from rmq.store.reader import Reader
from rmq.store.verify import Progress, Verifier, verify
from rmq.store.verify.finding import Finding, Kind, Severity
from tests.patching import patch
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

RECORDS: Final = golden.records(golden.CRASHED)
SECOND: Final = f"{golden.SEGMENT_BYTES:020d}"
MIDDLE: Final = RECORDS[900].physical_offset


def damage(root: Path, offset: int, data: bytes) -> Path:
    position = offset % golden.SEGMENT_BYTES
    path = root / "commitlog" / f"{offset - position:020d}"
    patch(path, position, data)
    return path


def queue_entry(root: Path, queue_id: int, queue_offset: int) -> tuple[Path, int]:
    first = queue_offset // 60 * 1200
    path = root / "consumequeue" / "GoldenFill" / str(queue_id) / f"{first:020d}"
    return path, queue_offset * 20 - first


def errors(root: Path) -> list[Finding]:
    return [each for each in verify(Reader(root)) if each.severity is Severity.ERROR]


def notes(root: Path) -> list[Finding]:
    found = list(verify(Reader(root)))
    assert [each for each in found if each.severity is not Severity.NOTE] == []
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of four segments that was closed cleanly."""
    return golden.unpack(golden.CRASHED_RECOVERED, tmp_path)


# --- what stock brokers leave -----------------------------------------------------------------


@pytest.mark.parametrize("store", [golden.CLEAN_MASTER, golden.CLEAN_SLAVE, golden.CRASHED])
def test_nothing_is_found_in_what_a_stock_broker_wrote(store: str, tmp_path: Path) -> None:
    assert list(verify(Reader(golden.unpack(store, tmp_path)))) == []


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        pytest.param(
            golden.CRASHED_RECOVERED,
            ["records whose keys were added twice: 1, at physical offset 878208"],
            id="crashed and recovered",
        ),
        pytest.param(
            golden.TORN,
            [
                "entries of records beyond the end of the log: 24, from physical offset 873623 to"
                " 878672",
                "the log ends here, and what follows is no record: size 454 is not the sum of its"
                " fields",
            ],
            id="torn",
        ),
        pytest.param(
            golden.TORN_RECOVERED,
            [
                "entries of records beyond the end of the log: 22, from physical offset 873623 to"
                " 878208",
                "the log ends here, and what follows is no record: size 454 is not the sum of its"
                " fields",
            ],
            id="torn and recovered",
        ),
    ],
)
def test_what_a_stock_broker_leaves_after_a_crash_is_no_error(
    store: str, expected: list[str], tmp_path: Path
) -> None:
    assert [note.text for note in notes(golden.unpack(store, tmp_path))] == expected


@pytest.mark.parametrize(
    ("store", "records", "index_entries"),
    [
        pytest.param(golden.CLEAN_MASTER, 685, 1357, id="clean"),
        pytest.param(golden.CRASHED, 2000, 4000, id="crashed"),
        pytest.param(golden.TORN_RECOVERED, 1988, 3998, id="torn"),
    ],
)
def test_everything_there_is_was_looked_at(
    store: str, records: int, index_entries: int, tmp_path: Path
) -> None:
    verifier = Verifier(Reader(golden.unpack(store, tmp_path)))
    assert [each for each in verifier.run() if each.severity is Severity.ERROR] == []
    assert (verifier.records, verifier.queue_entries) == (records, records)
    assert verifier.index_entries == index_entries
    assert verifier.queue_count == len(list(Reader(tmp_path / store).queues()))


def test_progress_is_told_in_bytes_of_the_log(root: Path) -> None:
    told: list[Progress] = []
    assert [*verify(Reader(root), on_progress=told.append)]
    (progress,) = told
    assert progress.records == 1024
    assert 0 < progress.done_bytes < progress.total_bytes == 4 * golden.SEGMENT_BYTES


# --- the log ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        pytest.param(0, b"\0\0\0\x10", "size 16 with", id="size"),
        pytest.param(4, b"\x7f", "is not that of a message", id="magic"),
        pytest.param(8, b"\x7f", "CRC of the body", id="crc"),
        pytest.param(28, b"\x01", "says it is at physical offset", id="physical offset"),
        pytest.param(36, b"\0\0\0\x20", "", id="sysFlag"),
        pytest.param(84, b"\0\0\xff\xff", "body length", id="body length"),
        pytest.param(120, b"\0", "CRC of the body", id="body"),
        pytest.param(0, bytes(91), "nothing was written here", id="zeros"),
    ],
)
def test_a_damaged_record_is_the_one_error_found(
    at: int, data: bytes, reason: str, root: Path
) -> None:
    path = damage(root, MIDDLE + at, data)
    (error,) = errors(root)
    assert (error.kind, error.path, error.physical_offset) == (Kind.RECORD, str(path), MIDDLE)
    assert reason in error.text
    assert error.text.endswith(f"; the log goes on at {RECORDS[901].physical_offset}")


@pytest.mark.parametrize(
    ("at", "data"),
    [
        pytest.param(12, b"\0\0\0\x07", id="queue id"),
        pytest.param(20, b"\0\0\0\0\0\0\x7f\x7f", id="queue offset"),
        pytest.param(36, b"\0\0\0\x04", id="made part of a transaction"),
    ],
)
def test_what_no_crc_covers_is_found_by_the_queues(at: int, data: bytes, root: Path) -> None:
    damage(root, MIDDLE + at, data)
    found = errors(root)
    assert {each.kind for each in found} == {Kind.QUEUE}
    assert any(each.physical_offset in (MIDDLE, RECORDS[904].physical_offset) for each in found), (
        found
    )


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        pytest.param(b"TAGS\x01Tag0", b"TAGS\x01Tag9", {Kind.QUEUE}, id="tag"),
        pytest.param(b"KEYS\x01k900", b"KEYS\x01k901", {Kind.INDEX}, id="key"),
        pytest.param(b"UNIQ_KEY\x01F", b"UNIQ_KEY\x01E", {Kind.INDEX}, id="unique key"),
        pytest.param(b"GoldenFill", b"GoldenFilm", {Kind.QUEUE, Kind.INDEX}, id="topic"),
    ],
)
def test_changed_words_are_found_by_queues_and_index(
    old: bytes, new: bytes, kinds: set[Kind], root: Path
) -> None:
    at = RECORDS[900].data.index(old)
    damage(root, MIDDLE + at, new)
    found = errors(root)
    assert {each.kind for each in found} == kinds
    assert any(each.physical_offset == MIDDLE for each in found)


def test_two_records_exchanged_are_found_in_both_places(root: Path) -> None:
    one, other = (
        RECORDS[900],
        next(each for each in RECORDS[901:] if len(each.data) == len(RECORDS[900].data)),
    )
    for place, record in ((one, other), (other, one)):
        damage(root, place.physical_offset, record.data)
    assert [(each.kind, each.physical_offset) for each in errors(root)] == [
        (Kind.RECORD, one.physical_offset),
        (Kind.RECORD, other.physical_offset),
    ]


def test_a_zeroed_page_is_one_error(root: Path) -> None:
    page = 97 * 4096
    lost = [
        each
        for each in RECORDS
        if each.physical_offset < page + 4096 and each.physical_offset + len(each.data) > page
    ]
    # The page begins in a body, so that the record before it is not mistaken for a sound one.
    assert 88 < page - lost[0].physical_offset < 200
    damage(root, page, bytes(4096))
    (error,) = errors(root)
    assert (error.kind, error.physical_offset) == (Kind.RECORD, lost[0].physical_offset)
    assert error.text.endswith(f"goes on at {lost[-1].physical_offset + len(lost[-1].data)}")


def test_a_missing_segment_is_found(root: Path) -> None:
    (root / "commitlog" / SECOND).unlink()
    (error,) = errors(root)
    assert (error.kind, error.physical_offset) == (Kind.RECORD, golden.SEGMENT_BYTES)
    assert "from 262144 on, are missing; the log goes on at 524288" in error.text


def test_a_cut_segment_is_found(root: Path) -> None:
    path = root / "commitlog" / SECOND
    os.truncate(path, 100_000)
    size, record = errors(root)
    assert (size.kind, size.path) == (Kind.SEGMENT, str(path))
    assert "100000 bytes, the others have 262144" in size.text
    assert (record.kind, record.path) == (Kind.RECORD, str(path))


def test_a_blank_of_another_length_is_found(root: Path) -> None:
    last = max(each for each in RECORDS if each.physical_offset < golden.SEGMENT_BYTES)
    end = last.physical_offset + len(last.data)
    damage(root, end, b"\0\0\0\x08")
    (error,) = errors(root)
    assert (error.kind, error.physical_offset) == (Kind.RECORD, end)
    assert "a blank of 8 bytes" in error.text


def test_a_lost_end_is_told_by_the_checkpoint(root: Path) -> None:
    """Without it a cut log would look like one that always ended there."""
    end = RECORDS[1990].physical_offset
    path = root / "commitlog" / f"{786432:020d}"
    patch(path, end - 786432, bytes(golden.SEGMENT_BYTES - (end - 786432)))
    (error,) = errors(root)
    assert (error.kind, error.physical_offset) == (Kind.END, end)
    assert error.path == str(root / "checkpoint")


def test_a_missing_last_segment_is_told_by_the_checkpoint(root: Path) -> None:
    (root / "commitlog" / f"{786432:020d}").unlink()
    (error,) = errors(root)
    assert error.kind is Kind.END


def test_a_file_that_is_no_segment_is_noted(root: Path) -> None:
    path = root / "commitlog" / "core.4711"
    path.write_bytes(b"")
    assert str(path) in [note.path for note in notes(root)]


def test_after_a_crash_the_log_may_end_before_sound_records(tmp_path: Path) -> None:
    """Pages reach the disk in any order; what was not flushed is cut by the recovery."""
    root = golden.unpack(golden.CRASHED, tmp_path)
    damage(root, RECORDS[1900].physical_offset, bytes(30))
    verifier = Verifier(Reader(root))
    assert [each for each in verifier.run() if each.severity is Severity.ERROR] == []
    assert verifier.log_end == RECORDS[1900].physical_offset


def test_after_a_crash_damage_to_what_was_flushed_is_an_error(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED, tmp_path)
    damage(root, RECORDS[1900].physical_offset, bytes(30))
    patch(root / "checkpoint", 0, (1794798151310).to_bytes(8))
    assert [(each.kind, each.physical_offset) for each in errors(root)] == [
        (Kind.RECORD, RECORDS[1900].physical_offset)
    ]


# --- queues -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        pytest.param(b"\0\0\0\0\0\0\0\x01", "physical offset 1,", id="offset"),
        pytest.param(b"\0\0\0\0\0\0\0\0\x7f", "bytes at physical offset 0", id="offset and size"),
        pytest.param(bytes(20), "1 record has no entry", id="zeros"),
    ],
)
def test_a_damaged_entry_is_the_one_error_found(entry: bytes, text: str, root: Path) -> None:
    path, position = queue_entry(root, 2, 77)
    patch(path, position, entry)
    (error,) = errors(root)
    assert (error.kind, error.path, error.queue_offset) == (Kind.QUEUE, str(path), 77)
    assert text in error.text


@pytest.mark.parametrize("at", [pytest.param(11, id="size"), pytest.param(19, id="tags code")])
def test_a_flipped_bit_of_an_entry_is_found(at: int, root: Path) -> None:
    path, position = queue_entry(root, 2, 77)
    byte = path.read_bytes()[position + at]
    patch(path, position + at, bytes([byte ^ 1]))
    (error,) = errors(root)
    assert (error.kind, error.path, error.queue_offset) == (Kind.QUEUE, str(path), 77)


def test_exchanged_entries_are_found_in_both_places(root: Path) -> None:
    (path, one), (_, other) = queue_entry(root, 2, 62), queue_entry(root, 2, 70)
    content = path.read_bytes()
    patch(path, one, content[other : other + 20])
    patch(path, other, content[one : one + 20])
    assert [(each.kind, each.queue_offset) for each in errors(root)] == [
        (Kind.QUEUE, 62),
        (Kind.QUEUE, 70),
    ]


def test_a_zeroed_range_of_entries_is_one_error(root: Path) -> None:
    path, position = queue_entry(root, 2, 65)
    patch(path, position, bytes(20 * 30))
    (error,) = errors(root)
    assert (error.kind, error.queue_offset) == (Kind.QUEUE, 65)
    assert error.text == "30 records have no entry"


def test_a_missing_file_of_a_queue_is_found(root: Path) -> None:
    path, _ = queue_entry(root, 2, 77)
    path.unlink()
    found = errors(root)
    assert [(each.kind, each.queue_offset) for each in found] == [
        (Kind.QUEUE, 60),
        (Kind.QUEUE, 60),
    ]
    assert found[0].text == "60 records have no entry"
    assert "are missing" in found[1].text


def test_a_cut_file_of_a_queue_is_found(root: Path) -> None:
    path, position = queue_entry(root, 2, 77)
    os.truncate(path, position + 7)
    texts = [each.text for each in errors(root)]
    assert "43 records have no entry" in texts
    assert f"{position + 7} bytes are not a whole number of entries" in texts


def test_a_missing_queue_is_found(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "GoldenFill" / "3")
    (error,) = errors(root)
    assert (error.kind, error.queue_offset, error.text) == (
        Kind.QUEUE,
        0,
        "500 records have no entry",
    )
    assert error.path == str(root / "consumequeue" / "GoldenFill" / "3")


def test_the_queues_of_a_deleted_topic_are_not_missed(root: Path) -> None:
    path = root / "config" / "topics.json"
    table = msgspec.json.decode(path.read_bytes())
    del table["topicConfigTable"]["GoldenFill"]
    path.write_bytes(msgspec.json.encode(table))
    shutil.rmtree(root / "consumequeue" / "GoldenFill")
    texts = [note.text for note in notes(root)]
    assert texts.count("500 records have no entry: the topic was deleted") == 4


def test_after_a_crash_entries_may_be_missing_at_the_end(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED, tmp_path)
    path, position = queue_entry(root, 2, 490)
    patch(path, position, bytes(1200 - position))
    (note,) = notes(root)
    assert (note.kind, note.queue_offset) == (Kind.QUEUE, 490)
    assert note.text == "10 records have no entry yet: it is added when a broker starts"


def test_entries_left_behind_by_a_recovery_are_noted(root: Path) -> None:
    path, position = queue_entry(root, 2, 500)
    patch(path, position, QUEUE_ENTRY.pack(4711, 300, 5) + QUEUE_ENTRY.pack(10**7, 300, 5))
    (note, _) = notes(root)
    assert (note.kind, note.queue_offset, note.physical_offset) == (Kind.QUEUE, 500, 4711)
    assert "left behind by a recovery" in note.text


def test_entries_for_nothing_in_a_queue_without_records_are_an_error(root: Path) -> None:
    folder = root / "consumequeue" / "Stray" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(QUEUE_ENTRY.pack(4711, 300, 5).ljust(1200, b"\0"))
    (error,) = errors(root)
    assert (error.kind, error.queue_offset, error.physical_offset) == (Kind.QUEUE, 0, 4711)


def test_expired_messages_and_fillers_are_not_missed(root: Path) -> None:
    """The log begins later than the queues, and one queue was begun again inside a file."""
    (root / "commitlog" / f"{0:020d}").unlink()
    path, _ = queue_entry(root, 2, 0)
    first = next(
        place
        for place, message in enumerate(
            each for each in golden.messages_of(golden.CRASHED) if each.queue_id == 2
        )
        if message.physical_offset >= golden.SEGMENT_BYTES
    )
    for offset in range(0, first // 60 * 60, 60):
        queue_entry(root, 2, offset)[0].unlink()
    path, position = queue_entry(root, 2, first)
    patch(path, 0, QUEUE_ENTRY.pack(0, FILLER_SIZE, 0) * (position // 20))
    assert {note.kind for note in notes(root)} == {Kind.INDEX}
    reader = Reader(root)
    bounds = reader.queue("GoldenFill", 2)
    assert bounds is not None
    assert (bounds.min_offset, bounds.max_offset) == (first, 500)
    # The same entries are an error as soon as they point into the log.
    patch(path, 0, QUEUE_ENTRY.pack(golden.SEGMENT_BYTES, 300, 0))
    (error,) = errors(root)
    assert (error.kind, error.queue_offset) == (Kind.QUEUE, first // 60 * 60)


def test_delay_levels_decide_the_code_of_delayed_messages(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CLEAN_MASTER, tmp_path))
    other = parse_delay_levels("1s 5s 11s 30s")
    found = list(verify(reader, delay_levels_ms=other))
    assert {(each.kind, each.severity) for each in found} == {(Kind.QUEUE, Severity.ERROR)}
    assert all("messageDelayLevel" in each.text for each in found)


def test_a_foreign_file_in_a_queue_is_noted(root: Path) -> None:
    path = root / "consumequeue" / "GoldenFill" / "2" / "notes"
    path.write_text("x")
    assert str(path) in [note.path for note in notes(root)]


def test_a_finding_reads_as_one_line_with_its_place() -> None:
    finding = Finding(
        severity=Severity.ERROR,
        kind=Kind.QUEUE,
        path="store/consumequeue/T/0/00",
        text="the tags code is 1",
        physical_offset=PhysicalOffset(4711),
        queue_offset=QueueOffset(3),
    )
    assert str(finding) == (
        "error: queue: store/consumequeue/T/0/00, queue offset 3, physical offset 4711:"
        " the tags code is 1"
    )


def test_an_index_that_nobody_can_read_must_be_described_or_left_out(root: Path) -> None:
    for path in (root / "index").iterdir():
        os.truncate(path, 42_048)
    with pytest.raises(ConfigError, match="maxHashSlotNum"):
        list(verify(Reader(root)))
    assert list(verify(Reader(root), check_index=False)) == []
