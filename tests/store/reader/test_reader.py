"""The reader on stores that a stock broker wrote: every message is there, and nothing else."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rmq.errors import StorageError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.reader import Reader
from rmq.store.reader.body import plain_body
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.model.record import StoredRecord
    from tests.store.golden.stores import GoldenMessage


@pytest.fixture(params=golden.STORES)
def store(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def same(record: StoredRecord, message: GoldenMessage) -> bool:
    body = plain_body(record)
    assert body is not None
    return (
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.size,
        record.properties.get("UNIQ_KEY", record.message_id),
        record.born_ms,
        record.store_ms,
        record.sys_flag,
        record.flag,
        record.body_crc,
        record.reconsume_times,
        record.prepared_offset,
        len(body),
        hashlib.sha256(body).hexdigest(),
        record.properties,
    ) == (
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.size,
        message.message_id,
        message.born_ms,
        message.store_ms,
        message.sys_flag,
        message.flag,
        message.body_crc,
        message.reconsume_times,
        message.prepared_offset,
        message.body_length,
        message.body_sha256,
        message.properties,
    )


def test_every_message_a_java_client_read_is_read_equal(store: str, tmp_path: Path) -> None:
    reader = Reader(golden.unpack(store, tmp_path))
    expected = golden.messages_of(store)
    queues = sorted({(message.topic, message.queue_id) for message in expected})
    read = [record for queue in queues for record in reader.messages(*queue)]
    assert len(read) == len(expected)
    by_place = sorted(expected, key=lambda each: (each.topic, each.queue_id, each.queue_offset))
    assert [
        place for place, pair in enumerate(zip(read, by_place, strict=True)) if not same(*pair)
    ] == []


def test_the_log_holds_every_sound_record_and_no_other(store: str, tmp_path: Path) -> None:
    reader = Reader(golden.unpack(store, tmp_path))
    expected = golden.sound_records(store)
    last = expected[-1]
    assert [record.physical_offset for record in reader.records()] == [
        record.physical_offset for record in expected
    ]
    assert [head.physical_offset for head in reader.heads(verify_crc=True)] == [
        record.physical_offset for record in expected
    ]
    assert (reader.min_offset, reader.end_offset) == (0, last.physical_offset + len(last.data))
    assert reader.segment_bytes == golden.SEGMENT_BYTES


def test_records_of_a_range_begin_at_its_start_and_end_before_its_stop(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CRASHED, tmp_path))
    offsets = [record.physical_offset for record in golden.records(golden.CRASHED)]
    start, stop = offsets[600], offsets[640]
    assert [
        head.physical_offset for head in reader.heads(PhysicalOffset(start), PhysicalOffset(stop))
    ] == offsets[600:640]
    # A record that goes on behind the stop is not part of the range.
    assert [
        each.physical_offset
        for each in reader.records(PhysicalOffset(start), PhysicalOffset(stop - 1))
    ] == offsets[600:639]
    assert [
        each.physical_offset
        for each in reader.records(PhysicalOffset(offsets[-2]), PhysicalOffset(2**62))
    ] == offsets[-2:]
    assert list(reader.records(PhysicalOffset(stop), PhysicalOffset(start))) == []


@pytest.mark.parametrize(
    ("store", "counts"),
    [
        pytest.param(golden.CRASHED, {0: 500, 1: 500, 2: 500, 3: 500}, id="crashed"),
        # Twelve entries of records that are gone are still in the files.
        pytest.param(golden.TORN, {0: 497, 1: 497, 2: 497, 3: 497}, id="torn"),
        pytest.param(golden.TORN_RECOVERED, {0: 497, 1: 497, 2: 497, 3: 497}, id="recovered"),
    ],
)
def test_queues_end_where_the_log_has_their_last_record(
    store: str, counts: dict[int, int], tmp_path: Path
) -> None:
    reader = Reader(golden.unpack(store, tmp_path))
    bounds = list(reader.queues())
    assert {each.queue_id: each.max_offset for each in bounds} == counts
    assert {each.topic for each in bounds} == {"GoldenFill"} == set(reader.topics())
    assert [each.min_offset for each in bounds] == [0, 0, 0, 0]
    assert [each.entry_count for each in bounds] == list(counts.values())


def test_entries_tell_place_size_and_tag_of_their_records(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CLEAN_MASTER, tmp_path))
    for bounds in reader.queues():
        entries = list(reader.queue_entries(bounds.topic, bounds.queue_id))
        records = list(reader.messages(bounds.topic, bounds.queue_id))
        assert [(entry.queue_offset, entry.physical_offset, entry.size) for entry in entries] == [
            (record.queue_offset, record.physical_offset, record.size) for record in records
        ]
        if bounds.topic != "SCHEDULE_TOPIC_XXXX":
            assert [entry.tags_code for entry in entries] == [each.tags_code for each in records]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        pytest.param(None, None, range(150), id="all"),
        pytest.param(QueueOffset(10), QueueOffset(13), range(10, 13), id="inside one file"),
        pytest.param(QueueOffset(58), QueueOffset(63), range(58, 63), id="across two files"),
        pytest.param(QueueOffset(148), None, range(148, 150), id="to the end"),
        pytest.param(QueueOffset(-5), QueueOffset(2), range(2), id="from before the begin"),
        pytest.param(QueueOffset(150), QueueOffset(200), range(0), id="behind the end"),
        pytest.param(QueueOffset(7), QueueOffset(7), range(0), id="empty"),
    ],
)
def test_a_range_of_a_queue_is_what_the_queue_has_of_it(
    start: QueueOffset | None, stop: QueueOffset | None, expected: range, tmp_path: Path
) -> None:
    reader = Reader(golden.unpack(golden.CLEAN_MASTER, tmp_path))
    entries = reader.queue_entries("GoldenFill", 1, start, stop)
    assert [entry.queue_offset for entry in entries] == list(expected)
    messages = reader.messages("GoldenFill", 1, start, stop)
    assert [message.queue_offset for message in messages] == list(expected)


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [
        pytest.param("GoldenFill", 9, id="queue"),
        pytest.param("NoSuchTopic", 0, id="topic"),
        pytest.param("../commitlog", 0, id="a path"),
        pytest.param("nul\0", 0, id="no name of a file"),
    ],
)
def test_a_queue_that_is_not_there_has_nothing(topic: str, queue_id: int, tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CLEAN_MASTER, tmp_path))
    assert reader.queue(topic, queue_id) is None
    assert list(reader.messages(topic, queue_id)) == []
    assert list(reader.queue_entries(topic, queue_id)) == []
    assert reader.queue_offset_by_time(topic, queue_id, 0) == 0


def test_one_record_is_found_by_its_offset_and_by_its_message_id(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CLEAN_MASTER, tmp_path))
    for expected in golden.sound_records(golden.CLEAN_MASTER)[::37]:
        record = reader.record_at(PhysicalOffset(expected.physical_offset))
        assert record is not None
        assert record.size == len(expected.data)
        assert reader.record_by_id(record.message_id) == record
        stored_elsewhere = "0A00000100002A9F" + record.message_id[16:]
        assert reader.record_by_id(stored_elsewhere) is None
    assert reader.record_at(PhysicalOffset(-1)) is None
    assert reader.record_at(reader.end_offset) is None
    with pytest.raises(ValueError, match="hexadecimal"):
        reader.record_by_id("ABCD")


def test_first_and_last_store_times_are_those_of_the_log(store: str, tmp_path: Path) -> None:
    reader = Reader(golden.unpack(store, tmp_path))
    records = list(reader.records())
    assert (reader.first_store_ms, reader.last_store_ms) == (
        records[0].store_ms,
        records[-1].store_ms,
    )


def test_without_queues_the_log_is_read_all_the_same(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED, tmp_path)
    (root / "consumequeue").rename(tmp_path / "moved")
    (root / "index").rename(tmp_path / "moved index")
    reader = Reader(root)
    assert sum(1 for _ in reader.records()) == 2000
    messages = golden.messages_of(golden.CRASHED)
    assert reader.last_store_ms == max(message.store_ms for message in messages)
    assert (reader.topics(), list(reader.queues()), reader.index_files()) == ([], [], [])


def test_the_state_of_a_store_is_read_from_its_small_files(tmp_path: Path) -> None:
    closed = Reader(golden.unpack(golden.CLEAN_MASTER, tmp_path)).state
    crashed = Reader(golden.unpack(golden.CRASHED, tmp_path)).state
    assert (closed.is_live, closed.is_abort_present) == (False, False)
    assert (crashed.is_live, crashed.is_abort_present) == (False, True)
    assert closed.checkpoint == (1794798081336, 1794798081336, 0)
    assert crashed.checkpoint == (0, 1794798151311, 1794798151310)
    assert (closed.recovery_points, closed.recovery_point, closed.live_mark) == ((), None, None)


def test_a_log_in_several_directories_is_one(tmp_path: Path) -> None:
    root = golden.unpack(golden.CRASHED, tmp_path)
    paths = [root / "commitlog", tmp_path / "second", tmp_path / "third"]
    for number, name in enumerate(sorted(path.name for path in paths[0].iterdir())):
        folder = paths[number % 3]
        folder.mkdir(exist_ok=True)
        (paths[0] / name).rename(folder / name)
    assert sum(1 for _ in Reader(root, commit_log_paths=paths).records()) == 2000


def test_an_empty_store_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    reader = Reader(tmp_path)
    assert (reader.min_offset, reader.end_offset, list(reader.records())) == (0, 0, [])
    assert (reader.first_store_ms, reader.last_store_ms) == (None, None)
    assert reader.record_at(PhysicalOffset(0)) is None
    assert list(reader.find("T", "k")) == []


def test_a_segment_that_was_made_ahead_is_not_part_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    reader = Reader(tmp_path)
    assert (reader.min_offset, reader.end_offset, list(reader.records())) == (0, 0, [])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("nothing", "there is no such directory", id="nothing there"),
        pytest.param("file", "it is not a directory", id="a file"),
        pytest.param("folder", "commitlog is not there", id="no store"),
    ],
)
def test_what_is_no_store_is_refused_with_what_to_give(
    name: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=reason) as caught:
        Reader(tmp_path / name)
    assert caught.value.hint is not None
    assert "storePathRootDir" in caught.value.hint


def test_a_reader_pickles_as_its_path_and_opens_again(tmp_path: Path) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    reader = Reader(root, index_slots=golden.INDEX_SLOTS, index_entries=golden.INDEX_ENTRIES)
    expected = [record.physical_offset for record in reader.records()]
    data = pickle.dumps(reader)
    assert len(data) < 1000
    with pickle.loads(data) as copy:
        assert [record.physical_offset for record in copy.records()] == expected
        assert copy.index_files()[0].geometry == (golden.INDEX_SLOTS, golden.INDEX_ENTRIES)


def test_a_reader_brings_neither_trio_nor_the_store_that_writes() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", "import sys, rmq.store.reader; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(listed.stdout.split())
    assert "rmq.store.reader" in modules
    assert not modules & {"trio", "asyncio", "rmq.store.store", "rmq.store.core", "rmq.remoting"}


def test_nothing_is_changed_by_reading(store: str, tmp_path: Path) -> None:
    root = golden.unpack(store, tmp_path)
    before = {path: path.stat() for path in root.rglob("*")}
    with Reader(root) as reader:
        assert sum(1 for _ in reader.records()) > 0
        assert sum(each.entry_count for each in reader.queues()) > 0
        assert list(reader.find("GoldenFill", "k7"))
    after = {path: path.stat() for path in root.rglob("*")}
    assert [path for path in after if path not in before] == []
    assert [
        path
        for path, stat in before.items()
        if (stat.st_mtime_ns, stat.st_size) != (after[path].st_mtime_ns, after[path].st_size)
    ] == []


# --- by store time ----------------------------------------------------------------------------


def test_a_queue_offset_by_time_is_the_nearest_in_its_file(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CRASHED, tmp_path))
    times = [message.store_ms for message in reader.messages("GoldenFill", 2)]
    per_file = golden.QUEUE_SEGMENT_BYTES // 20
    files = [range(first, min(first + per_file, 500)) for first in range(0, 500, per_file)]
    for moment in range(times[0] - 2, times[-1] + 3):
        file = next((each for each in files if times[each[-1]] >= moment), files[-1])
        distance = min(abs(times[place] - moment) for place in file)
        nearest = [place for place in file if abs(times[place] - moment) == distance]
        found = reader.queue_offset_by_time("GoldenFill", 2, moment)
        assert found in nearest
        # Of an earlier and a later one equally near, the earlier is taken.
        assert times[found] == min(times[place] for place in nearest)


@pytest.mark.parametrize(
    ("away", "expected"),
    [
        pytest.param(-100, 0, id="before the first"),
        pytest.param(100, -1, id="after the last"),
    ],
)
def test_a_time_outside_the_queue_gives_its_first_or_last_message(
    away: int, expected: int, tmp_path: Path
) -> None:
    reader = Reader(golden.unpack(golden.CLEAN_MASTER, tmp_path))
    times = [message.store_ms for message in reader.messages("GoldenTopic", 0)]
    moment = times[expected] + away
    found = reader.queue_offset_by_time("GoldenTopic", 0, moment)
    assert found == range(len(times))[expected]
