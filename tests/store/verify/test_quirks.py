"""Rarer states of stores: further queues, codes elsewhere, old records behind the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.store.layout import QUEUE_ENTRY
from rmq.store.reader import Reader
from rmq.store.verify import Verifier, verify
from rmq.store.verify.finding import Finding, Kind, Severity
from tests.patching import patch
from tests.store.golden import stores as golden
from tests.store.verify.test_index import record_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RECORDS: Final = golden.records(golden.CRASHED)
QUEUE_SEGMENT_BYTES: Final = 1200
SEGMENT_BYTES: Final = 64 * 1024


def errors(root: Path) -> list[Finding]:
    return [each for each in verify(Reader(root)) if each.severity is Severity.ERROR]


def write_store(root: Path, messages: Sequence[dict[str, str]], topic: str = "T") -> None:
    """Have a store with one message per set of properties, closed cleanly."""
    store = StoreCore(
        StoreConfig(
            root=root,
            segment_bytes=SEGMENT_BYTES,
            queue_segment_bytes=QUEUE_SEGMENT_BYTES,
            index_slots=100,
            index_entries=400,
        ),
        now_ms=iter(range(1_700_000_000_000, 1_800_000_000_000)).__next__,
    )
    for properties in messages:
        encoded = encode_properties(properties)
        store.append([NewMessage(topic=topic, queue_id=0, body=b"body", properties=encoded)])
    store.close()


# --- further queues ---------------------------------------------------------------------------


@pytest.fixture
def with_light_queue(tmp_path: Path) -> Path:
    """A store whose messages name further queues, see RocketMQ 4.9.8 ConsumeQueue."""
    write_store(
        tmp_path,
        [
            {
                "INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two",
                "INNER_MULTI_QUEUE_OFFSET": f"{number},{number + 7}",
                "TAGS": "TagA",
            }
            for number in range(30)
        ],
    )
    return tmp_path


def write_light_queue(root: Path, name: str) -> Path:
    entries = (root / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    path = root / "consumequeue" / name / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(entries)
    return path


def test_a_feature_that_is_turned_off_leaves_no_queues_and_no_findings(
    with_light_queue: Path,
) -> None:
    assert list(verify(Reader(with_light_queue))) == []


def test_entries_in_further_queues_are_checked_where_there_are_such_queues(
    with_light_queue: Path,
) -> None:
    path = write_light_queue(with_light_queue, "%LMQ%one")
    assert list(verify(Reader(with_light_queue))) == []
    patch(path, 12 * 20 + 19, b"\0")
    (error,) = errors(with_light_queue)
    assert (error.kind, error.path, error.queue_offset) == (Kind.QUEUE, str(path), 12)


# --- codes elsewhere --------------------------------------------------------------------------


def test_codes_in_the_extension_of_a_queue_are_noted_once(tmp_path: Path) -> None:
    """RocketMQ 4.9.8 ConsumeQueueExt keeps them; the entry has an address below all hashes."""
    write_store(tmp_path, [{"TAGS": "TagA"}] * 20)
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    for number in range(20):
        address = (-(2**63) + number * 32).to_bytes(8, signed=True)
        patch(path, number * 20 + 12, address)
    assert len(errors(tmp_path)) == 20
    (tmp_path / "consumequeue_ext" / "T" / "0").mkdir(parents=True)
    (note,) = verify(Reader(tmp_path))
    assert note.severity is Severity.NOTE
    assert "consumequeue_ext" in note.text


@pytest.mark.parametrize(
    ("level", "code"),
    [
        pytest.param("soon", 2598919, id="no number"),
        pytest.param("-1", 2598919, id="negative"),
        pytest.param("0", 2598919, id="zero"),
        pytest.param("3", 1_700_000_010_000, id="a level"),
        pytest.param("99", 1_700_007_200_000, id="beyond the last level"),
    ],
)
def test_the_level_of_a_delayed_message_decides_its_code(
    level: str, code: int, tmp_path: Path
) -> None:
    write_store(tmp_path, [{"TAGS": "TagA", "DELAY": level}], topic="SCHEDULE_TOPIC_XXXX")
    reader = Reader(tmp_path)
    (entry,) = reader.queue_entries("SCHEDULE_TOPIC_XXXX", 0)
    (record,) = reader.records()
    assert entry.tags_code == (code if code < 2**31 else code + record.store_ms - 1_700_000_000_000)
    assert list(verify(reader)) == []


# --- behind the end ---------------------------------------------------------------------------


def test_older_records_behind_the_end_are_what_a_recovery_cut_off(tmp_path: Path) -> None:
    """A stock recovery leaves them where they are; new ones are written over them one by one."""
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    place = RECORDS[1990]
    queue_id, queue_offset = int.from_bytes(place.data[12:16]), int.from_bytes(place.data[20:28])
    later_ms = 1794798251311
    record = record_at(place.physical_offset, queue_id, queue_offset, later_ms, "late")
    patch(root / "commitlog" / f"{786432:020d}", place.physical_offset - 786432, record)
    path = root / "consumequeue" / "GoldenFill" / str(queue_id) / f"{9600:020d}"
    entry = QUEUE_ENTRY.pack(place.physical_offset, len(record), 0)
    patch(path, queue_offset * 20 - 9600, entry)
    patch(root / "checkpoint", 8, later_ms.to_bytes(8))

    reader = Reader(root)
    end = place.physical_offset + len(record)
    assert reader.end_offset == end
    assert sum(1 for _ in reader.records()) == 1991
    assert sum(bounds.entry_count for bounds in reader.queues()) == 1991
    verifier = Verifier(reader)
    assert [each for each in verifier.run() if each.severity is Severity.ERROR] == []
    assert verifier.log_end == end


def test_a_log_that_ends_before_the_recovery_point_lost_something(tmp_path: Path) -> None:
    write_store(tmp_path, [{"KEYS": f"k{number}"} for number in range(50)])
    end = [record.physical_offset for record in Reader(tmp_path).records()][40]
    patch(tmp_path / "commitlog" / f"{0:020d}", end, bytes(SEGMENT_BYTES - end))
    found = errors(tmp_path)
    assert [(each.kind, each.physical_offset) for each in found] == [
        (Kind.END, end),
        (Kind.END, end),
    ]
    assert [each.path for each in found] == [
        str(tmp_path / "recovery-point"),
        str(tmp_path / "checkpoint"),
    ]


def test_a_segment_named_by_an_impossible_offset_is_found(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    (root / "commitlog" / f"{786432:020d}").rename(root / "commitlog" / f"{786433:020d}")
    kinds = {each.kind for each in errors(root)}
    assert Kind.SEGMENT in kinds


# --- a store that changes ---------------------------------------------------------------------


def test_what_expires_during_a_check_is_passed_over(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED_RECOVERED, tmp_path)
    verifier = Verifier(Reader(root), on_progress=lambda _: None)
    findings = verifier.run()
    (root / "commitlog" / f"{0:020d}").unlink()
    found = list(findings)
    assert [each.text for each in found if each.severity is Severity.ERROR] == []
    assert 0 < verifier.records < 2000
