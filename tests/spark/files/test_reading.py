"""The log of a store as rows: the same records, byte by byte, as the reader of the store finds."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from pathlib import Path

import pytest

from rmq.errors import ConfigError, StorageError
from rmq.spark.files import scan
from rmq.spark.files.reading import read_part
from rmq.spark.files.settings import store_options
from rmq.store.core import StoreCore
from rmq.store.reader import Reader
from tests.spark.decoding.oracle import time_of
from tests.spark.files.store_files import (
    build_store,
    mixed_messages,
    offsets,
    parts_of,
    read_rows,
    reader_rows,
)
from tests.store.golden import stores as golden
from tests.store.store_kit import (
    START_MS,
    Clock,
    kill,
    message,
    message_of_size,
    put,
    small_config,
    stock_stop,
)

RAW = {"includeSystemTopics": True, "decompress": False}


# --- the same as the reader -----------------------------------------------------------------


@pytest.mark.parametrize("store", golden.STORES)
@pytest.mark.parametrize("split_bytes", [0, 40_000])
def test_golden_stores_have_the_rows_the_reader_finds(
    store: str, split_bytes: int, tmp_path: Path
) -> None:
    root = golden.unpack(store, tmp_path)
    rows = read_rows(root, splitBytes=split_bytes, **RAW)
    assert offsets(rows) == [record.physical_offset for record in golden.sound_records(store)]
    assert rows == reader_rows(root)


@pytest.mark.parametrize("store", golden.STORES)
def test_golden_messages_are_what_the_java_client_read(store: str, tmp_path: Path) -> None:
    root = golden.unpack(store, tmp_path)
    with Reader(root) as reader:
        topics = sorted({"GoldenTopic", "GoldenFill"}.intersection(reader.topics()))
    rows = read_rows(root, topics=",".join(topics))
    places = {
        (row["topic"], row["queueId"], row["queueOffset"]): (
            row["commitLogOffset"],
            row["storeSize"],
            row["msgId"],
            row["bornTimestamp"],
            row["storeTimestamp"],
            row["sysFlag"],
            row["flag"],
            row["bodyCrc"],
            row["reconsumeTimes"],
            row["preparedTransactionOffset"],
            len(row["body"]),
            hashlib.sha256(row["body"]).hexdigest(),
            row["tags"],
            row["keys"],
            row["properties"],
        )
        for row in rows
    }
    assert places == {
        (each.topic, each.queue_id, each.queue_offset): (
            each.physical_offset,
            each.size,
            each.message_id,
            time_of(each.born_ms),
            time_of(each.store_ms),
            each.sys_flag,
            each.flag,
            each.body_crc,
            each.reconsume_times,
            each.prepared_offset,
            each.body_length,
            each.body_sha256,
            each.tags,
            each.keys,
            each.properties,
        )
        for each in golden.messages_of(store)
    }


@pytest.mark.parametrize("split_bytes", [0, 1, 4_000])
def test_a_mixed_store_over_many_segments(split_bytes: int, tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(300))
    rows = read_rows(root, splitBytes=split_bytes, **RAW)
    assert len(rows) == 300
    assert rows == reader_rows(root)
    assert len(parts_of(root, splitBytes=split_bytes)) >= (10 if split_bytes else 9)


def test_pieces_smaller_than_records_and_batches_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = build_store(tmp_path / "store", mixed_messages(100))
    monkeypatch.setattr(scan, "CHUNK_BYTES_MIN", 1)
    expected = reader_rows(root)
    for rows in (1, 2, 7, 1_000):
        assert read_rows(root, batchRows=rows, **RAW) == expected
    chosen = store_options({"path": str(root), "batchRows": "7"})
    sizes = [
        batch.num_rows for part in parts_of(root, splitBytes=0) for batch in read_part(chosen, part)
    ]
    assert max(sizes) <= 7


def test_records_longer_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK_BYTES_MIN", 4_000)
    monkeypatch.setattr(scan, "CHUNK_BYTES_MAX", 4_000)
    bodies = [bytes([number]) * size for number, size in enumerate((10, 50_000, 4_000, 1, 90_000))]
    root = build_store(
        tmp_path / "store", [message(body) for body in bodies], segment_bytes=200 * 1024
    )
    assert [row["body"] for row in read_rows(root)] == bodies


def test_compressed_bodies(tmp_path: Path) -> None:
    plain = b"much the same " * 100
    root = build_store(
        tmp_path / "store", [message(zlib.compress(plain), sys_flag=0x301), message(b"x")]
    )
    assert [row["body"] for row in read_rows(root)] == [plain, b"x"]
    stored = [row["body"] for row in read_rows(root, decompress=False)]
    assert stored == [zlib.compress(plain), b"x"]


# --- where the log ends ---------------------------------------------------------------------


def test_stores_with_nothing_to_read(tmp_path: Path) -> None:
    empty = build_store(tmp_path / "empty", [])
    assert read_rows(empty) == []
    bare = tmp_path / "bare"
    (bare / "commitlog").mkdir(parents=True)
    assert read_rows(bare) == []


@pytest.mark.parametrize("ending", [stock_stop, kill, StoreCore.close])
def test_stores_without_queues_left_in_any_way(ending: object, tmp_path: Path) -> None:
    root = tmp_path / "store"
    core = StoreCore(small_config(root), now_ms=Clock())
    put(core, [message(number) for number in range(200)])
    core.flush()
    assert callable(ending)
    ending(core)
    for path in sorted((root / "consumequeue").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (root / "consumequeue").rmdir()
    rows = read_rows(root, splitBytes=900)
    assert [row["body"] for row in rows] == [b"body %d" % number for number in range(200)]


def test_of_a_running_store_what_is_flushed_is_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    core = StoreCore(small_config(root), now_ms=Clock())
    put(core, [message(0), message(1)])
    core.flush()
    put(core, [message(2)])
    with Reader(root) as reader:
        assert reader.state.is_live
    assert [row["body"] for row in read_rows(root)] == [b"body 0", b"body 1"]
    core.close()
    assert len(read_rows(root)) == 3


def test_a_segment_that_is_full_to_the_last_byte(tmp_path: Path) -> None:
    # What is left of a segment of 8192 bytes: exactly nothing, then a blank of eight bytes.
    messages = [message_of_size(size) for size in (4096, 4096 - 8, 4096, 4096 - 9, 100)]
    root = build_store(tmp_path / "store", messages)
    assert [row["storeSize"] for row in read_rows(root, splitBytes=1)] == [
        4096,
        4088,
        4096,
        4087,
        100,
    ]


# --- choosing rows --------------------------------------------------------------------------


def test_topics_of_the_system_are_read_when_asked_for(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(100))
    everything = reader_rows(root)

    def of(*topics: str) -> list[int]:
        return offsets([row for row in everything if row["topic"] in topics])

    assert offsets(read_rows(root)) == of("Orders", "Payments")
    assert offsets(read_rows(root, topics="Payments")) == of("Payments")
    named = read_rows(root, topics="%RETRY%group , SCHEDULE_TOPIC_XXXX")
    assert offsets(named) == of("%RETRY%group", "SCHEDULE_TOPIC_XXXX")
    assert offsets(read_rows(root, includeSystemTopics=True)) == offsets(everything)


def test_store_times_include_their_start_and_not_their_end(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", [message(number) for number in range(100)])

    def bodies(**options: int) -> list[bytes]:
        return [row["body"] for row in read_rows(root, **options)]

    expected = [b"body %d" % number for number in range(100)]
    assert bodies(startingTimestamp=START_MS + 500) == expected[50:]
    assert bodies(startingTimestamp=START_MS + 501) == expected[51:]
    assert bodies(endingTimestamp=START_MS + 500) == expected[:50]
    both = bodies(startingTimestamp=START_MS + 20, endingTimestamp=START_MS + 41)
    assert both == expected[2:5]
    assert bodies(startingTimestamp=START_MS + 20, endingTimestamp=START_MS + 20) == []


def test_physical_offsets_choose_records_from_one_to_another(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(200))
    everything = reader_rows(root)
    places = offsets(everything)
    for first, last in ((0, 199), (3, 150), (60, 60), (199, 199)):
        found = read_rows(root, fromOffset=places[first], toOffset=places[last], **RAW)
        assert offsets(found) == places[first:last]
    # One byte less leaves the last record out, because it does not end before it.
    cut = read_rows(root, toOffset=places[100] - 1, splitBytes=300, **RAW)
    assert offsets(cut) == places[:99]
    end = places[-1] + everything[-1]["storeSize"]
    assert read_rows(root, fromOffset=end) == []
    assert offsets(read_rows(root, toOffset=2**62, **RAW)) == places


def test_an_offset_inside_a_record_is_refused_with_both_ends_of_it(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(200))
    everything = reader_rows(root)
    row = next(each for each in everything if 0 < each["commitLogOffset"] % 8192 < 4_000)
    begin, end = row["commitLogOffset"], row["commitLogOffset"] + row["storeSize"]
    for offset in (begin + 1, begin + 88, end - 1):
        with pytest.raises(ConfigError) as caught:
            read_rows(root, fromOffset=offset)
        assert f"{offset} is inside the record that goes from {begin} to {end}" in str(caught.value)
    last_end = max(
        each["commitLogOffset"] + each["storeSize"]
        for each in everything
        if each["commitLogOffset"] < 8192
    )
    # Where a segment ends with a blank, both its begin and the next segment will do.
    rest = offsets(read_rows(root, fromOffset=8192, **RAW))
    assert offsets(read_rows(root, fromOffset=last_end, **RAW)) == rest
    with pytest.raises(ConfigError, match=f"that ends at {last_end}, and the next segment begins"):
        read_rows(root, fromOffset=last_end + 1)
    with pytest.raises(ConfigError, match="is behind the end of the log"):
        read_rows(root, fromOffset=10**9)


# --- what retention deletes -----------------------------------------------------------------


def test_a_start_before_the_log_is_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = build_store(tmp_path / "store", mixed_messages(200))
    first = sorted((root / "commitlog").iterdir())[0]
    first.unlink()
    assert min(offsets(read_rows(root))) >= 8192
    with pytest.raises(ConfigError, match="0 lies 8192 bytes before the log, which begins at 8192"):
        read_rows(root, fromOffset=0)
    rows = read_rows(root, fromOffset=0, failOnDataLoss=False)
    assert offsets(rows) == offsets(read_rows(root))
    assert "retention deleted what was there" in caplog.text


def test_a_segment_that_is_deleted_before_its_turn_is_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = build_store(tmp_path / "store", mixed_messages(200))
    options = {"path": str(root), "includeSystemTopics": "true"}
    first, *others = parts_of(root, includeSystemTopics=True)
    first.path.unlink()
    with pytest.raises(StorageError, match="deleted before offsets 0 to 8192 were read") as caught:
        list(read_part(store_options(options), first))
    assert "failOnDataLoss=false" in str(caught.value.hint)
    lenient = store_options(options | {"failOnDataLoss": "false"})
    assert list(read_part(lenient, first)) == []
    assert "was deleted before offsets 0 to 8192 were read" in caplog.text
    assert all(list(read_part(lenient, part)) for part in others)


def test_files_are_closed_when_a_part_was_read_or_given_up(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(20))
    (part,) = parts_of(root)
    batches = read_part(store_options({"path": str(root), "batchRows": "1"}), part)
    next(batches)
    assert open_files(root)
    batches.close()  # type: ignore[attr-defined]
    assert not open_files(root)
    assert read_rows(root)
    assert not open_files(root)


def open_files(root: Path) -> list[Path]:
    """Return the files of a store that this process has open."""
    descriptors = Path("/proc/self/fd").iterdir()
    return [link for link in descriptors if root in Path(os.path.realpath(link)).parents]


# --- topics that are named ----------------------------------------------------------------------


def write_topics(root: Path, *topics: str) -> None:
    """Do what a broker does when topics are created."""
    table = {topic: {"topicName": topic} for topic in topics}
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def test_a_topic_that_the_store_does_not_know_is_refused(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(10))
    with pytest.raises(ConfigError, match=r"^topics: .* knows no topic Order \(") as caught:
        read_rows(root, topics="Order,Payments")
    assert str(caught.value.hint).startswith("did you mean Orders? ")
    with pytest.raises(ConfigError, match=r"knows no topic Nobody, paiments \(") as caught:
        read_rows(root, topics="paiments,Nobody")
    assert str(caught.value.hint).startswith("did you mean Payments? ")
    with pytest.raises(ConfigError, match=r"knows no topic Nobody \(") as caught:
        read_rows(root, topics="Nobody")
    # Records of a topic that was deleted stay in the log, and can be read.
    assert str(caught.value.hint).startswith("records of a deleted topic are read without `topics`")
    shutil.rmtree(root / "consumequeue" / "Payments")
    with pytest.raises(ConfigError, match="knows no topic Payments"):
        read_rows(root, topics="Payments")
    assert "Payments" in {row["topic"] for row in read_rows(root)}


def test_a_topic_without_messages_is_an_empty_table(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(10))
    write_topics(root, "Empty")
    assert read_rows(root, topics="Empty") == []
    assert read_rows(root, topics="Empty,Orders") == read_rows(root, topics="Orders")
    # Every broker has the topics of the system, be they in use or not.
    assert read_rows(root, topics="RMQ_SYS_TRANS_HALF_TOPIC") == []
    with pytest.raises(ConfigError, match=r"knows no topic Empti \(") as caught:
        read_rows(root, topics="Empti")
    assert "did you mean Empty?" in str(caught.value.hint)


def test_where_nothing_but_the_log_was_copied_any_topic_may_be_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = build_store(tmp_path / "store", mixed_messages(10))
    copy = tmp_path / "copy"
    shutil.copytree(root / "commitlog", copy / "commitlog")
    assert read_rows(copy, topics="Orders") == read_rows(root, topics="Orders")
    assert read_rows(copy, topics="Nobody") == []
    assert caplog.text == ""
