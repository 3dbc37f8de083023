"""The table of queues: which topics may be one, what is found on disk, what is removed."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Final

import pytest

from rmq.errors import StorageError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.queue_table import QueueTable, is_legal_topic
from rmq.testing.storage import MemoryStorage

FOLDER: Final = Path("consumequeue")
SEGMENT_BYTES: Final = 200


def table_on(storage: MemoryStorage) -> QueueTable:
    return QueueTable(storage, FOLDER, SEGMENT_BYTES)


def table_with(storage: MemoryStorage, *queues: tuple[str, int], entries: int = 3) -> QueueTable:
    table = table_on(storage)
    for topic, queue_id in queues:
        for number in range(entries):
            table.open(topic, queue_id).put(
                PhysicalOffset(number * 100), 100, 0, QueueOffset(number)
            )
    return table


@pytest.mark.parametrize(
    ("topic", "is_legal"),
    [
        pytest.param("TopicA", True, id="plain"),
        pytest.param("%RETRY%group-1", True, id="retry"),
        pytest.param("a|b_c-9", True, id="all kinds"),
        pytest.param("x" * 127, True, id="127"),
        pytest.param("x" * 128, False, id="128"),
        pytest.param("", False, id="empty"),
        pytest.param("a/b", False, id="slash"),
        pytest.param("a\\b", False, id="backslash"),
        pytest.param("..", False, id="dot-dot"),
        pytest.param(".", False, id="dot"),
        pytest.param("a b", False, id="blank"),
        pytest.param("a\n", False, id="newline at the end"),
        pytest.param("a\0b", False, id="NUL"),
        pytest.param("Topicé", False, id="not ASCII"),
        pytest.param("\u0661", False, id="a digit of another script"),
        pytest.param("a#b", False, id="number sign"),
    ],
)
def test_a_topic_is_legal_when_its_name_is_safe_as_a_directory(topic: str, is_legal: bool) -> None:
    assert is_legal_topic(topic) is is_legal


def test_a_queue_is_one_object_under_both_names() -> None:
    table = table_on(MemoryStorage())
    assert table.get("TopicA", 1) is None
    queue = table.open("TopicA", 1)
    assert table.open("TopicA", 1) is queue
    assert table.get("TopicA", 1) is queue
    assert table.by_field[b"TopicA", 1] is queue
    assert list(table) == [queue]


def test_queues_are_found_again_on_disk() -> None:
    storage = MemoryStorage()
    table_with(storage, ("TopicA", 0), ("TopicA", 11), ("%RETRY%g", 2147483647))
    table = table_on(storage)
    assert table.load() == []
    for queue in table:
        queue.recover()
    assert {(queue.topic, queue.queue_id): queue.next_offset for queue in table} == {
        ("TopicA", 0): 3,
        ("TopicA", 11): 3,
        ("%RETRY%g", 2147483647): 3,
    }
    assert table.entry_total == 9
    assert table.max_physical == 300


def test_what_is_no_queue_is_left_alone_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    table_with(storage, ("TopicA", 0))
    storage.write(FOLDER / "notes.txt", b"mine")
    storage.write(FOLDER / "TopicA" / "00", b"mine")
    for foreign in ("not a topic", "TopicA/-1", "TopicA/01", "TopicA/x"):
        storage.make_directory(FOLDER / foreign)
    table = table_on(storage)
    with caplog.at_level(logging.WARNING):
        table.load()
    assert list(table.by_key) == [("TopicA", 0)]
    told = {record.getMessage().split(" is no ")[0] for record in caplog.records}
    assert told == {
        str(FOLDER / name)
        for name in ("notes.txt", "not a topic", "TopicA/00", "TopicA/-1", "TopicA/01", "TopicA/x")
    }
    assert storage.read(FOLDER / "TopicA" / "00") == b"mine"


def test_a_file_in_the_place_of_a_queue_is_an_error() -> None:
    storage = MemoryStorage()
    storage.make_directory(FOLDER / "TopicA")
    storage.write(FOLDER / "TopicA" / "0", b"")
    with pytest.raises(StorageError) as caught:
        table_on(storage).load()
    assert caught.value.path == str(FOLDER / "TopicA" / "0")
    assert "a file stands where a directory belongs" in (caught.value.hint or "")


def test_a_queue_of_another_file_size_is_removed_but_what_is_foreign_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    table_with(storage, ("TopicA", 0), ("TopicB", 0), entries=25)
    folder = FOLDER / "TopicA" / "0"
    storage.write(folder / "notes.txt", b"mine")
    storage.make_directory(folder / "kept" / "deep")
    storage.resize(folder / f"{200:020d}", 100)
    table = table_on(storage)
    with caplog.at_level(logging.ERROR):
        (broken,) = table.load()
    assert (broken.topic, broken.queue_id) == ("TopicA", 0)
    assert f"{200:020d}: the file has 100 bytes" in caplog.text
    assert "built again from the log" in caplog.text
    assert storage.names(folder) == ["kept", "notes.txt"]
    assert len(broken.segments) == 0
    other = table.get("TopicB", 0)
    assert other is not None
    assert len(other.segments) == 3


@pytest.mark.parametrize("hole", ["missing", "empty"])
@pytest.mark.parametrize(("first", "kept"), [(0, 0), (200, 10), (400, 20)])
def test_a_queue_ends_before_a_file_that_a_power_cut_took(
    hole: str, first: int, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    table_with(storage, ("TopicA", 0), entries=25)
    path = FOLDER / "TopicA" / "0" / f"{first:020d}"
    storage.delete(path) if hole == "missing" else storage.resize(path, 0)
    table = table_on(storage)
    with caplog.at_level(logging.WARNING):
        assert table.load() == []
    queue = table.open("TopicA", 0)
    queue.recover()
    if (hole, first) == ("missing", 0):
        # Nothing tells it from a queue whose first messages expired.
        assert (queue.segments.first, queue.next_offset) == (200, 25)
    else:
        assert (queue.segments.first, queue.next_offset) == (0, kept)
        assert storage.names(path.parent) == [f"{n:020d}" for n in range(0, first, 200)]


def test_queues_of_topics_are_forgotten_and_only_those() -> None:
    table = table_with(MemoryStorage(), ("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("TopicC", 0))
    table.mark_all_dirty()
    old = table.of_topics({"TopicA", "TopicC", "unknown"})
    assert [(queue.topic, queue.queue_id) for queue in old] == [
        ("TopicA", 0),
        ("TopicA", 1),
        ("TopicC", 0),
    ]
    table.forget(old)
    assert list(table.by_key) == [("TopicB", 0)]
    assert list(table.by_field) == [(b"TopicB", 0)]
    assert [queue.topic for queue in table.take_dirty()] == ["TopicB"]
    assert table.open("TopicA", 0).next_offset == 0
    assert table.open("TopicA", 0) not in old


def test_a_forgotten_queue_makes_no_file() -> None:
    table = table_on(MemoryStorage())
    queue = table.open("TopicA", 0)
    table.forget([queue])
    queue.make_first_file()
    assert not queue.has_file


def test_all_queues_go_with_their_files_but_what_is_foreign_stays() -> None:
    storage = MemoryStorage()
    table = table_with(storage, ("TopicA", 0), ("TopicB", 0), ("TopicB", 1))
    storage.write(FOLDER / "TopicA" / "notes.txt", b"mine")
    table.delete_all()
    assert storage.names(FOLDER) == ["TopicA"]
    assert storage.names(FOLDER / "TopicA") == ["notes.txt"]
    assert len(table) == 0


def test_dirty_queues_are_handed_out_once() -> None:
    table = table_with(MemoryStorage(), ("TopicA", 0), ("TopicB", 0))
    table.mark_all_dirty()
    table.mark_all_dirty()
    assert [queue.topic for queue in table.take_dirty()] == ["TopicA", "TopicB"]
    assert [queue.is_dirty for queue in table] == [False, False]
    assert table.take_dirty() == []


def test_an_empty_table_has_no_end() -> None:
    table = table_on(MemoryStorage())
    assert (len(table), table.entry_total, table.max_physical) == (0, 0, -1)


def test_a_disk_that_cannot_be_listed_is_an_error() -> None:
    storage = MemoryStorage()
    storage.make_directory(FOLDER)
    storage.faults.fail("names", errno.EACCES)
    with pytest.raises(StorageError) as caught:
        table_on(storage).load()
    assert caught.value.hint == "let the user that runs rmq own the store directory"
