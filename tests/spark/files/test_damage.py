"""Damage to a log: an error with file and offset, or skipped as the store's reader does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.errors import CorruptStoreError
from rmq.model.record_layout import BLANK_MAGIC, MESSAGE_MAGIC, RECORD_PREFIX
from rmq.spark.files.scan import LOGGED_MAX
from rmq.store.reader import Reader
from tests.spark.files.store_files import (
    build_store,
    mixed_messages,
    offsets,
    parts_of,
    read_rows,
    reader_rows,
)
from tests.store.built_records import build_record
from tests.store.store_kit import SEGMENT_BYTES, message

if TYPE_CHECKING:
    from pathlib import Path

ALL = {"includeSystemTopics": True, "decompress": False}


def damage(root: Path, offset: int, data: bytes) -> str:
    """Overwrite bytes of the log; return the path of the segment."""
    path = root / "commitlog" / f"{offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    content = bytearray(path.read_bytes())
    at = offset % SEGMENT_BYTES
    content[at : at + len(data)] = data
    path.write_bytes(content)
    return str(path)


def sound_offsets(root: Path) -> tuple[list[int], list[int]]:
    """Return where the reader of the store finds records, and where it finds damage."""
    bad: list[int] = []
    with Reader(root) as reader:
        records = reader.records(on_bad=lambda error: bad.append(error.offset or 0))
        return [record.physical_offset for record in records], bad


FLIPS = {
    "size": (0, RECORD_PREFIX.pack(99, MESSAGE_MAGIC)[:4]),
    "larger size": (0, (3_000).to_bytes(4)),
    "size of nothing": (0, bytes(4)),
    "magic": (4, b"\xda\xa3\x20\xa6"),
    "crc": (8, bytes(4)),
    "physical offset": (28, (77).to_bytes(8)),
    "body length": (84, (1).to_bytes(4)),
    "prefix of zeros": (0, bytes(8)),
    "all of it": (0, b"\xff" * 90),
    "blank": (0, RECORD_PREFIX.pack(500, BLANK_MAGIC)),
}


@pytest.mark.parametrize("kind", FLIPS)
@pytest.mark.parametrize("split_bytes", [0, 700])
def test_damage_is_named_or_passed_over(
    kind: str, split_bytes: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [message(b"a body of some length, number %d" % number) for number in range(150)]
    root = build_store(tmp_path / "store", messages)
    places = offsets(reader_rows(root))
    at, data = FLIPS[kind]
    path, _ = (damage(root, place + at, data) for place in (places[70], places[100]))
    expected, bad = sound_offsets(root)
    assert bad == [places[70], places[100]]
    assert expected == [place for place in places if place not in bad]
    with pytest.raises(CorruptStoreError) as caught:
        read_rows(root, splitBytes=split_bytes, **ALL)
    assert (caught.value.path, caught.value.offset) == (path, places[70])
    assert "skipCorrupt=true" in str(caught.value.hint)
    with Reader(root) as reader, pytest.raises(CorruptStoreError) as as_read:
        list(reader.records())
    assert str(caught.value) == str(as_read.value)
    rows = read_rows(root, splitBytes=split_bytes, skipCorrupt=True, **ALL)
    assert offsets(rows) == expected
    assert [f"physical offset {place}" in caplog.text for place in bad] == [True, True]


def test_damage_to_a_body_matters_only_if_bodies_are_read(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", [message(b"body"), message(b"body")])
    damage(root, 8, b"\1\2\3\4")
    with pytest.raises(CorruptStoreError, match="CRC of the body"):
        read_rows(root)
    assert len(read_rows(root, verifyCrc=False)) == 2
    assert len(read_rows(root, columns="topic")) == 2
    assert len(read_rows(root, skipCorrupt=True)) == 1


def test_many_damaged_bodies_are_not_logged_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [message(b"%d" % number) for number in range(300)]
    root = build_store(tmp_path / "store", messages, segment_bytes=128 * 1024)
    rows = reader_rows(root)
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    for row in rows[20:250]:
        content[row["commitLogOffset"] + 8] ^= 1
    path.write_bytes(content)
    kept = read_rows(root, skipCorrupt=True)
    assert offsets(kept) == offsets(rows[:20] + rows[250:])
    assert caplog.text.count("CRC of the body") == LOGGED_MAX
    assert "further damage in this part of the log is not logged" in caplog.text


def test_a_body_that_cannot_be_decompressed_is_passed_over_with_its_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [message(number, sys_flag=0x301 if number == 40 else 0) for number in range(60)]
    root = build_store(tmp_path / "store", messages)
    with pytest.raises(CorruptStoreError, match="decompress=false"):
        read_rows(root)
    bodies = [row["body"] for row in read_rows(root, skipCorrupt=True)]
    assert bodies == [b"body %d" % number for number in range(60) if number != 40]
    assert "the compressed body cannot be read" in caplog.text
    assert len(read_rows(root, decompress=False)) == 60


def test_a_truncated_segment_is_named(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(200))
    rows = reader_rows(root)
    second = root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    second.write_bytes(second.read_bytes()[:5_000])
    with pytest.raises(CorruptStoreError) as caught:
        read_rows(root, **ALL)
    assert caught.value.path == str(second)
    assert "the file ends after 5000 bytes, a segment has 8192" in str(caught.value)
    kept = offsets(read_rows(root, skipCorrupt=True, **ALL))
    expected, _ = sound_offsets(root)
    assert kept == expected
    assert len(kept) < len(rows)


def test_missing_segments_are_named(tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(200))
    places = offsets(reader_rows(root))
    (root / "commitlog" / f"{2 * SEGMENT_BYTES:020d}").unlink()
    with pytest.raises(CorruptStoreError, match=f"from {2 * SEGMENT_BYTES} on, are missing"):
        read_rows(root)
    kept = offsets(read_rows(root, skipCorrupt=True, **ALL))
    assert kept == [place for place in places if place // SEGMENT_BYTES != 2]
    before = read_rows(root, toOffset=2 * SEGMENT_BYTES, **ALL)
    assert offsets(before) == [place for place in places if place < 2 * SEGMENT_BYTES]


# --- splits that are none -------------------------------------------------------------------


def test_a_record_forged_inside_a_body_never_becomes_a_row(tmp_path: Path) -> None:
    # A producer that knows where its body will lie can put records there with offsets that fit.
    head = 88
    inner = build_record(physical_offset=3_000, topic=b"Forged", body=b"")
    before = 3_000 - head - 200
    forged = bytes(200) + inner + bytes(900)
    plain = [message(b"x" * (before - 2 * (91 + len("TopicA"))))]
    messages = [*plain, message(b""), message(forged), message(bytes(2_000))]
    root = build_store(tmp_path / "store", messages)
    rows = reader_rows(root)
    assert [row["topic"] for row in rows] == ["TopicA"] * 4
    at = rows[2]["commitLogOffset"] + head + 200
    assert at == 3_000
    # Here a split would be made, and the record there is sound by all that can be seen of it.
    assert [part.start for part in parts_of(root, splitBytes=2_900)][:2] == [0, 3_000]
    with pytest.raises(CorruptStoreError, match="go beyond 3000, where a record seemed to begin"):
        read_rows(root, splitBytes=2_900)
    with pytest.raises(CorruptStoreError) as caught:
        read_rows(root, splitBytes=2_900, skipCorrupt=True)
    assert "splitBytes=0" in str(caught.value.hint)
    assert read_rows(root, splitBytes=0) == rows


def test_records_behind_a_blank_never_become_rows(tmp_path: Path) -> None:
    # A recovery cuts the log, and what lay there stays in the file until it is written over. A
    # blank that ends the segment covers it, and does not write over it.
    root = build_store(tmp_path / "store", [message(number) for number in range(150)])
    rows = reader_rows(root)
    cut = next(row for row in rows if row["commitLogOffset"] > 5_000)["commitLogOffset"]
    damage(root, cut, RECORD_PREFIX.pack(SEGMENT_BYTES - cut, BLANK_MAGIC))
    kept = [row for row in rows if not cut <= row["commitLogOffset"] < SEGMENT_BYTES]
    assert reader_rows(root) == kept
    assert read_rows(root) == kept
    # Segments are not split near their end, so that this is how it goes.
    assert read_rows(root, splitBytes=4_900) == kept
    with pytest.raises(CorruptStoreError, match="where a record seemed to begin"):
        read_rows(root, splitBytes=1_000)


# --- any damage -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "store"
    return build_store(root, mixed_messages(80))


@given(st.data())
@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_any_damage_is_found_where_the_reader_finds_it(
    sound_store: Path, data: st.DataObject
) -> None:
    path = sound_store / "commitlog" / f"{0:020d}"
    original = path.read_bytes()
    at = data.draw(st.integers(0, 8_191))
    damaged = bytearray(original)
    patch = data.draw(st.binary(min_size=1, max_size=12) | st.just(bytes(400)))
    damaged[at : at + len(patch)] = patch
    split_bytes = data.draw(st.sampled_from([0, 600]))
    try:
        path.write_bytes(damaged[:8_192])
        expected, bad = sound_offsets(sound_store)
        rows = read_rows(sound_store, skipCorrupt=True, splitBytes=split_bytes, **ALL)
        assert offsets(rows) == expected
        if bad:
            with pytest.raises(CorruptStoreError) as caught:
                read_rows(sound_store, splitBytes=split_bytes, **ALL)
            assert caught.value.offset == bad[0]
    finally:
        path.write_bytes(original)
