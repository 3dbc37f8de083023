"""A store checked in parts: it finds what the check in one process finds, on any damage."""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import StorageError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.spark.jobs.verify.queues import ENTRY, is_gone, is_written, read_entries
from rmq.spark.jobs.verify.sums import index_hashes, index_keys, row_hashes, sums_by_queue
from rmq.store.key_hash import TopicKeys
from rmq.store.layout import FILLER_SIZE, QUEUE_ENTRY
from rmq.store.reader import Reader
from rmq.store.reader import queue as reader_queue
from rmq.store.verify import Verifier
from tests.patching import patch
from tests.spark.pipelines.verify_kit import (
    QUEUE_SEGMENT_BYTES,
    SEGMENT_BYTES,
    START_MS,
    files_below,
    in_parts,
    one_by_one,
    open_store,
    reader_of,
    sample_messages,
    texts,
    write_store,
)
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTS: Final = 3000
"""Segments have 8192 bytes."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("sound") / "store")


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(sound, tmp_path / "store")


# --- agreement with the check in one process --------------------------------------------------


@pytest.mark.parametrize("store", golden.STORES)
def test_both_checks_say_the_same_of_what_a_stock_broker_wrote(store: str, tmp_path: Path) -> None:
    root = golden.unpack(store, tmp_path)
    with Reader(root) as reader:
        verifier = Verifier(reader)
        expected = sorted(map(str, verifier.run()))
    for part_bytes in (golden.SEGMENT_BYTES, 60_000):
        check = in_parts(Reader(root), part_bytes)
        assert texts(check) == expected
        assert (check.records, check.log_end) == (verifier.records, verifier.log_end)
        assert (check.queues, check.queue_entries) == (verifier.queue_count, verifier.queue_entries)
        assert check.index_entries == verifier.index_entries
        if store in (golden.CLEAN_MASTER, golden.CLEAN_SLAVE, golden.CRASHED):
            assert check.queues_checked_one_by_one == 0
            assert not check.is_index_checked_one_by_one


def test_nothing_in_a_sound_store_is_looked_at_one_by_one(sound: Path) -> None:
    for part_bytes in (SEGMENT_BYTES, PARTS, 700):
        check = in_parts(reader_of(sound), part_bytes)
        assert (texts(check), check.records, check.queues) == ([], 250, 9)
        assert check.queue_entries == 250 - 9  # those of transactions that were not committed
        assert check.queues_checked_one_by_one == 0
        assert not check.is_index_checked_one_by_one
        assert check.index_entries > 300


def _first_segments_expired(root: Path) -> None:
    for path in files_below(root, "commitlog")[:2]:
        path.unlink()


def _middle_segment_missing(root: Path) -> None:
    files_below(root, "commitlog")[2].unlink()


def _segment_cut(root: Path) -> None:
    os.truncate(files_below(root, "commitlog")[1], 5000)


def _zeroed_page(root: Path) -> None:
    patch(files_below(root, "commitlog")[1], 2000, bytes(4096))


def _bit_of_a_body(root: Path) -> None:
    path = files_below(root, "commitlog")[1]
    patch(path, path.read_bytes().index(b"body of"), b"B")


def _first_record_of_a_segment(root: Path) -> None:
    patch(files_below(root, "commitlog")[2], 0, bytes(100))


def _zeroed_entries(root: Path) -> None:
    patch(files_below(root, "consumequeue/Orders/1")[1], 100, bytes(80))


def _queue_file_missing(root: Path) -> None:
    files_below(root, "consumequeue/Orders/1")[1].unlink()


def _queue_missing(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Payments")


def _entry_for_nothing(root: Path) -> None:
    folder = root / "consumequeue" / "Stray" / "0"
    folder.mkdir(parents=True)
    entry = QUEUE_ENTRY.pack(4711, 300, 5).ljust(QUEUE_SEGMENT_BYTES, b"\0")
    (folder / f"{0:020d}").write_bytes(entry)


def _codes_elsewhere(root: Path) -> None:
    (root / "consumequeue_ext" / "Orders" / "1").mkdir(parents=True)
    patch(files_below(root, "consumequeue/Orders/1")[0], 12, (-(2**62)).to_bytes(8, signed=True))


def _foreign_files(root: Path) -> None:
    (root / "commitlog" / "core.4711").write_bytes(b"")
    (root / "consumequeue" / "Orders" / "1" / "core").write_bytes(b"")


def _index_file_missing(root: Path) -> None:
    files_below(root, "index")[1].unlink()


def _index_entry_of_another_key(root: Path) -> None:
    patch(files_below(root, "index")[0], 40 + 4 * 50 + 20 * 30, b"\1\2\3\4")


def _crashed(root: Path) -> None:
    (root / "abort").write_bytes(b"")
    patch(files_below(root, "commitlog")[-1], 300, bytes(40))


DAMAGES: Final = (
    _first_segments_expired,
    _middle_segment_missing,
    _segment_cut,
    _zeroed_page,
    _bit_of_a_body,
    _first_record_of_a_segment,
    _zeroed_entries,
    _queue_file_missing,
    _queue_missing,
    _entry_for_nothing,
    _codes_elsewhere,
    _foreign_files,
    _index_file_missing,
    _index_entry_of_another_key,
    _crashed,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=[each.__name__.strip("_") for each in DAMAGES])
def test_both_checks_say_the_same_of_a_damaged_store(
    damage: Callable[[Path], None], root: Path
) -> None:
    damage(root)
    expected = one_by_one(reader_of(root))
    assert expected or damage is _first_segments_expired
    for part_bytes in (SEGMENT_BYTES, PARTS):
        assert texts(in_parts(reader_of(root), part_bytes)) == expected


@settings(max_examples=25)
@given(data=st.data())
def test_both_checks_say_the_same_after_any_change(
    sound: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = shutil.copytree(sound, tmp_path_factory.mktemp("changed") / "store")
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.sampled_from((1, 1, 3)))):
        folder = chance.choice(("commitlog", "consumequeue", "index"))
        path = chance.choice(files_below(root, folder))
        content = bytearray(path.read_bytes())
        at = chance.randrange(len(content))
        size = chance.choice((1, 1, 1, 8, 20, 300))
        content[at : at + size] = chance.choice((bytes(size), chance.randbytes(size)))
        path.write_bytes(content[: chance.choice((len(content),) * 9 + (at + 1,))])
    expected = one_by_one(reader_of(root))
    assert texts(in_parts(reader_of(root), PARTS)) == expected
    shutil.rmtree(root.parent)


def test_entries_in_further_queues_are_checked(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    names = b"INNER_MULTI_DISPATCH\x01%%LMQ%%one\x02INNER_MULTI_QUEUE_OFFSET\x01%d\x02TAGS\x01a"
    for number, message in enumerate(sample_messages(30)):
        store.append([type(message)("T", 0, message.body, names % number)])
    store.close()
    (path,) = files_below(tmp_path, "consumequeue/T/0")[:1]
    light = tmp_path / "consumequeue" / "%LMQ%one" / "0" / path.name
    light.parent.mkdir(parents=True)
    light.write_bytes(path.read_bytes())
    for position in (None, 12 * 20 + 19):
        if position is not None:
            patch(light, position, b"\0")
        expected = one_by_one(reader_of(tmp_path))
        assert texts(in_parts(reader_of(tmp_path), PARTS)) == expected
    assert any("queue offset 12" in text for text in expected)


def test_a_store_that_is_being_written_is_checked_up_to_what_is_flushed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    try:
        messages = sample_messages(200)
        for message in messages[:150]:
            store.append([message])
        store.flush()
        for message in messages[150:]:
            store.append([message])
        check = in_parts(reader_of(tmp_path), PARTS)
        assert check.found.errors == 0
        assert 150 <= check.records <= 200
        assert check.queues_checked_one_by_one == 0
    finally:
        store.close()


def test_bytes_that_change_while_they_are_read_are_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files_below(root, "commitlog")[1]
    content = path.read_bytes()
    patch(path, content.index(b"body of"), b"B")
    reader = reader_of(root)
    heads = reader.log.heads

    def repaired(*args: object, **options: object) -> object:
        path.write_bytes(content)
        return heads(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reader.log, "heads", repaired)
    with pytest.raises(StorageError, match="changed while they were read"):
        in_parts(reader)


# --- the parts of it --------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from("ab%"), st.text(min_size=1, max_size=40)), max_size=20),
    st.sampled_from(("T", "Überschuss", "%RETRY%g")),
)
def test_keys_are_hashed_as_the_index_hashes_them(pairs: list[tuple[str, str]], topic: str) -> None:
    names = ["a", "b", topic]
    places = {"a": 0, "b": 1, "%": 2}
    keys = pa.array([key for _, key in pairs], pa.string())
    topics = np.array([places[name] for name, _ in pairs], np.int64)
    expected = [TopicKeys(names[places[name]]).index_hash(key.encode()) for name, key in pairs]
    assert index_hashes(keys, topics, names).tolist() == expected


def test_keys_are_the_unique_key_and_the_words_of_keys() -> None:
    unique = pa.array(["u0", None, "u2", None])
    keys = pa.array(["a b", " c  d ", None, None])
    owners, words = index_keys(unique, keys)
    found = sorted(zip(owners.tolist(), words.to_pylist(), strict=True))
    assert found == [(0, "a"), (0, "b"), (0, "u0"), (1, "c"), (1, "d"), (2, "u2")]


def test_sums_tell_queues_apart_and_notice_gaps() -> None:
    topics = np.array([0, 1, 0, 0, 1])
    queue_ids = np.array([0, 0, 0, 1, 0])
    offsets = np.array([5, 1, 6, 9, 3])
    hashes = row_hashes(offsets)
    rows = sums_by_queue(topics, queue_ids, offsets, hashes)
    mask = 2**64 - 1
    assert [(*row[:5], row[6]) for row in rows.tolist()] == [
        (0, 0, 5, 6, 2, True),
        (0, 1, 9, 9, 1, True),
        (1, 0, 1, 3, 2, False),
    ]
    assert rows["fingerprint"].tolist() == [
        (int(hashes[0]) + int(hashes[2])) & mask,
        int(hashes[3]),
        (int(hashes[1]) + int(hashes[4])) & mask,
    ]
    assert len(sums_by_queue(*(np.empty(0, np.int64),) * 3, np.empty(0, np.uint64))) == 0


def test_entries_read_at_once_are_those_read_one_by_one(sound: Path) -> None:
    with Reader(sound) as reader:
        files = reader.queue_files("Orders", 1)
        expected = [tuple(entry) for entry in files.entries(QueueOffset(3), QueueOffset(60))]
        found = [
            (offset + number, *row)
            for offset, rows in read_entries(files, 3, 60)
            for number, row in enumerate(rows.tolist())
        ]
        assert found == expected
        log_min = expected[30][1]
        fillers = [(0, FILLER_SIZE, 0), (-1, 5, 0), (7, 0, 0), (0, 0, 0)]
        rows = np.array([*(row[1:] for row in expected), *fillers], ENTRY)
        entries = [reader_queue.QueueEntry(0, *row) for row in rows.tolist()]  # type: ignore[arg-type]
        assert is_written(rows).tolist() == [reader_queue.is_written(each) for each in entries]
        assert is_gone(rows, log_min).tolist() == [
            reader_queue.is_gone(each, PhysicalOffset(log_min)) for each in entries
        ]


def test_times_of_the_sample_go_on(sound: Path) -> None:
    """The seconds of index entries are worth checking only if they differ."""
    with reader_of(sound) as reader:
        assert len({view.header.begin_ms for view in reader.index_files()}) >= 3
        assert reader.first_store_ms is not None
        assert reader.first_store_ms - START_MS < 1000
