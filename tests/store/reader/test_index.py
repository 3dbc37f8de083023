"""Finding records by key, and finding out how index files are divided."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.errors import ConfigError, CorruptStoreError
from rmq.store.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
)
from rmq.store.reader import Reader
from rmq.store.reader.index import DEFAULT_ENTRIES, DEFAULT_SLOTS, Geometry
from tests.patching import patch
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES_AT = INDEX_HEADER_BYTES + golden.INDEX_SLOTS * INDEX_SLOT_BYTES


@pytest.mark.parametrize("store", golden.STORES)
def test_every_message_is_found_by_each_of_its_keys_once(store: str, tmp_path: Path) -> None:
    reader = Reader(golden.unpack(store, tmp_path))
    for message in golden.messages_of(store)[::41]:
        properties = message.properties
        keys = [properties["UNIQ_KEY"], *properties.get("KEYS", "").split()]
        for key in filter(None, keys):
            found = [int(record.physical_offset) for record in reader.find(message.topic, key)]
            assert found.count(message.physical_offset) == 1, (key, found)
            assert found == sorted(found, reverse=True)


def test_every_record_with_a_key_is_found_whatever_its_topic(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CLEAN_MASTER, tmp_path))
    checked = 0
    for record in reader.records():
        for key in record.properties.get("KEYS", "").split():
            found = reader.find(record.topic, key)
            assert record.physical_offset in [each.physical_offset for each in found]
            checked += 1
    assert checked > 600


def test_a_key_that_only_collides_is_not_found(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CRASHED, tmp_path))
    # Java gives both texts the same hash, because 31 * "k" + "4" = 31 * "l" + 21.
    collision = f"l{chr(ord('4') - 31)}"
    assert [record.properties["KEYS"] for record in reader.find("GoldenFill", "k4")] == ["k4"]
    assert list(reader.find("GoldenFill", collision)) == []
    assert list(reader.find("GoldenFil", "k4")) == []


def test_the_time_range_includes_both_ends(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.CRASHED, tmp_path))
    (record,) = reader.find("GoldenFill", "k1234")
    stored = record.store_ms

    def count(begin_ms: int | None, end_ms: int | None) -> int:
        found = reader.find("GoldenFill", "k1234", begin_ms=begin_ms, end_ms=end_ms)
        return sum(1 for _ in found)

    assert count(stored, stored) == count(stored, None) == count(None, stored) == 1
    assert count(stored + 1, None) == count(None, stored - 1) == 0


def test_entries_of_records_that_are_gone_are_passed_over(tmp_path: Path) -> None:
    reader = Reader(golden.unpack(golden.TORN_RECOVERED, tmp_path))
    lost = [
        message
        for message in golden.messages_of(golden.CRASHED)
        if message.physical_offset >= reader.end_offset
    ]
    assert len(lost) == 12
    for message in lost:
        assert list(reader.find("GoldenFill", message.message_id)) == []


# --- how a file is divided --------------------------------------------------------------------


def index_file(root: Path) -> Path:
    (path,) = (root / "index").iterdir()
    return path


@pytest.mark.parametrize(
    ("slots", "entries"),
    [
        pytest.param(None, None, id="found out"),
        pytest.param(500, None, id="slots given"),
        pytest.param(None, 2000, id="entries given"),
        pytest.param(500, 2000, id="both given"),
    ],
)
def test_the_division_is_found_or_taken_as_given(
    slots: int | None, entries: int | None, tmp_path: Path
) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    reader = Reader(root, index_slots=slots, index_entries=entries)
    assert [view.geometry for view in reader.index_files()] == [Geometry(500, 2000)]
    assert len(list(reader.find("GoldenFill", "k7"))) == 1


def test_files_of_the_default_size_have_the_default_division(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "index").mkdir()
    with (tmp_path / "index" / "20250101000000000").open("wb") as file:
        file.truncate(Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES).file_bytes)
    (view,) = Reader(tmp_path).index_files()
    assert view.geometry == Geometry(5_000_000, 20_000_000)
    assert list(view.find(17)) == []


@pytest.mark.parametrize(
    ("slots", "entries"),
    [
        pytest.param(DEFAULT_SLOTS, 7, id="default slots"),
        pytest.param(11, DEFAULT_ENTRIES, id="default entries"),
    ],
)
def test_one_default_number_is_enough_to_find_the_other(
    slots: int, entries: int, tmp_path: Path
) -> None:
    geometry = Geometry(slots, entries)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "index").mkdir()
    with (tmp_path / "index" / "20250101000000000").open("wb") as file:
        file.truncate(geometry.file_bytes)
        file.write(INDEX_HEADER.pack(5, 5, 0, 0, 1, 2))
        file.seek(INDEX_HEADER_BYTES + 3 * INDEX_SLOT_BYTES)
        file.write(INDEX_SLOT.pack(1))
        file.seek(INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES + INDEX_ENTRY_BYTES)
        file.write(INDEX_ENTRY.pack(3, 77, 0, 0))
    (view,) = Reader(tmp_path).index_files()
    assert view.geometry == geometry
    assert list(view.find(3)) == [77]


def test_a_division_that_cannot_be_told_must_be_given(tmp_path: Path) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    path = index_file(root)
    old, other = path.read_bytes(), Geometry(500, 2345)
    path.write_bytes(old + bytes(other.file_bytes - len(old)))
    with pytest.raises(ConfigError, match=r"maxHashSlotNum.*cannot be told") as caught:
        list(Reader(root).find("GoldenFill", "k7"))
    assert "--index-slots" in str(caught.value.hint)
    given = Reader(root, index_slots=500)
    assert given.index_files()[0].geometry == other
    assert len(list(given.find("GoldenFill", "k7"))) == 1


def test_a_division_that_does_not_fit_the_file_is_refused(tmp_path: Path) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    with pytest.raises(ConfigError, match="501 slots and 2000 entries take 42044 bytes, not 42040"):
        list(Reader(root, index_slots=501, index_entries=2000).find("GoldenFill", "k7"))


def test_one_damaged_entry_does_not_hide_the_division(tmp_path: Path) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    patch(index_file(root), ENTRIES_AT + INDEX_ENTRY_BYTES, b"\xff\xff\xff\xff")
    assert Reader(root).index_files()[0].geometry == Geometry(500, 2000)


# --- damage -----------------------------------------------------------------------------------


def newest_entry_of(root: Path, key_hash: int) -> int:
    (number,) = INDEX_SLOT.unpack_from(
        index_file(root).read_bytes(), INDEX_HEADER_BYTES + key_hash % 500 * INDEX_SLOT_BYTES
    )
    assert isinstance(number, int)
    return number


KEY_HASH = 1064868495  # GoldenTopic#key1


@pytest.mark.parametrize(
    ("field_at", "value", "is_seen"),
    [
        pytest.param(16, 1999, True, id="link forward"),
        pytest.param(0, KEY_HASH + 1, True, id="hash of another slot"),
        pytest.param(16, 0, False, id="chain cut short"),
    ],
)
def test_a_broken_chain_is_an_error_where_it_can_be_seen(
    field_at: int, value: int, is_seen: bool, tmp_path: Path
) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    number = newest_entry_of(root, KEY_HASH)
    at = ENTRIES_AT + number * INDEX_ENTRY_BYTES + field_at
    patch(index_file(root), at, value.to_bytes(4))
    reader = Reader(root, index_slots=500, index_entries=2000)
    if is_seen:
        with pytest.raises(CorruptStoreError, match=f"index entry {number} is not one of slot"):
            list(reader.find("GoldenTopic", "key1"))
    else:
        assert len(list(reader.find("GoldenTopic", "key1"))) == 1


def test_an_entry_linked_to_itself_ends_its_chain(tmp_path: Path) -> None:
    """RocketMQ 4.9.8 IndexFile links so where a slot reached the disk and the header did not."""
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    number = newest_entry_of(root, KEY_HASH)
    at = ENTRIES_AT + number * INDEX_ENTRY_BYTES + 16
    assert len(list(Reader(root).find("GoldenTopic", "key1"))) == 3
    patch(index_file(root), at, number.to_bytes(4))
    assert len(list(Reader(root).find("GoldenTopic", "key1"))) == 1


def test_a_file_without_a_whole_header_is_an_error(tmp_path: Path) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    index_file(root).write_bytes(b"short")
    with pytest.raises(CorruptStoreError, match="5 bytes, no header"):
        list(Reader(root).find("GoldenTopic", "key1"))


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    (root / "index" / "notes.txt").write_text("not an index")
    (root / "index" / "20250101000000001").mkdir()
    reader = Reader(root)
    assert len(reader.index_files()) == 1
    assert len(list(reader.find("GoldenTopic", "key1"))) == 3
