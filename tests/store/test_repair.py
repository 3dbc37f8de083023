"""Giving up a damaged end of the log: what is left opens, what is cut off is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.errors import CorruptStoreError, StoreLockedError, StoreUnavailableError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import NewMessage, decode_record
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.store.repair import cut_log

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.store.append import AppendResult

SEGMENT_BYTES = 4096
COUNT = 100


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root,
        segment_bytes=SEGMENT_BYTES,
        queue_segment_bytes=400,
        index_slots=16,
        index_entries=64,
        message_bytes_max=2000,
    )


@pytest.fixture
def results(tmp_path: Path) -> list[AppendResult]:
    """A store of several segments with one damaged record, closed."""
    core = StoreCore(config(tmp_path))
    results = core.append(
        [NewMessage("T", 0, b"body%d" % number, b"KEYS\x01k%d" % number) for number in range(COUNT)]
    )
    core.close()
    return results


def damage(root: Path, physical_offset: int) -> None:
    """Flip a bit of the body of a record."""
    first = physical_offset - physical_offset % SEGMENT_BYTES
    with (root / "commitlog" / f"{first:020d}").open("r+b") as file:
        position = physical_offset - first + 88
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def forget_point(root: Path) -> None:
    """Make the store one that a stock broker closed, so that opening reads its segments."""
    (root / "recovery-point").unlink()


def test_a_cut_store_opens_with_all_messages_before_the_cut(
    tmp_path: Path, results: list[AppendResult]
) -> None:
    last_three = (results[-1].physical_offset // SEGMENT_BYTES - 2) * SEGMENT_BYTES
    bad = next(
        result.physical_offset for result in results if result.physical_offset > last_three + 500
    )
    before = [result for result in results if result.physical_offset < bad]
    damage(tmp_path, bad)
    forget_point(tmp_path)
    with pytest.raises(CorruptStoreError) as refused:
        StoreCore(config(tmp_path))
    assert refused.value.offset == bad
    assert refused.value.hint is not None
    assert f"--at {bad}" in refused.value.hint
    original = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))

    saved = tmp_path / "saved"
    done = cut_log(tmp_path, bad, saved)

    assert saved.read_bytes() == original[bad:]
    assert done.saved_bytes == len(original) - bad
    core = StoreCore(config(tmp_path))
    assert core.log.written == bad
    for result in before:
        record = core.reads.record_at(result.physical_offset)
        assert record is not None
        (found,) = core.reads.query("T", record.properties["KEYS"], 8, 0, 2**62)
        assert decode_record(found) == record
    queue = core.queues.get("T", 0)
    assert queue is not None
    assert queue.next_offset == len(before)
    (again,) = core.append([NewMessage("T", 0, b"again")])
    assert again.queue_offset == len(before)
    core.close()


def test_an_offset_inside_a_record_is_refused_with_the_ones_around_it(
    tmp_path: Path, results: list[AppendResult]
) -> None:
    with pytest.raises(CorruptStoreError, match="inside a record") as refused:
        cut_log(tmp_path, results[3].physical_offset + 10, tmp_path / "saved")
    assert refused.value.hint == f"a record ends at {results[4].physical_offset}"
    assert not (tmp_path / "saved").exists()
    assert not (tmp_path / "abort").exists()


def test_an_offset_behind_the_damage_is_refused(
    tmp_path: Path, results: list[AppendResult]
) -> None:
    # Only lengths lead from record to record, so damage to a body does not stop the walk.
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[results[2].physical_offset + 4] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptStoreError) as refused:
        cut_log(tmp_path, results[5].physical_offset, tmp_path / "saved")
    assert refused.value.offset == results[2].physical_offset


@pytest.mark.parametrize("offset", [-1, 2**40], ids=["before the log", "behind the log"])
@pytest.mark.usefixtures("results")
def test_an_offset_outside_the_log_is_refused(tmp_path: Path, offset: int) -> None:
    with pytest.raises(StoreUnavailableError, match="the log goes from 0 to"):
        cut_log(tmp_path, PhysicalOffset(offset), tmp_path / "saved")


@pytest.mark.usefixtures("results")
def test_what_was_saved_before_is_not_overwritten(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_bytes(b"earlier")
    with pytest.raises(StoreUnavailableError, match="exists already"):
        cut_log(tmp_path, PhysicalOffset(0), saved)
    assert saved.read_bytes() == b"earlier"


@pytest.mark.usefixtures("results")
def test_a_store_in_use_is_not_cut(tmp_path: Path) -> None:
    core = StoreCore(config(tmp_path))
    with pytest.raises(StoreLockedError):
        cut_log(tmp_path, PhysicalOffset(0), tmp_path / "saved")
    core.close()


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="no segments"):
        cut_log(tmp_path, PhysicalOffset(0), tmp_path / "saved")
