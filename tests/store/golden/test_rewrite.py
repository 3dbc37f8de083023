"""Golden stores written again: for the same input our files are those of the stock broker.

The input is taken from the golden CommitLogs: what a broker must have handed to its store, and
when. Not to be had from there are messages of the kinds prepared and rollback, which get no queue
entry: a 4.9 broker stores half messages as ordinary ones of a topic of their own.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import pytest

from rmq.model import record_layout
from rmq.model.record import NewMessage
from rmq.store.append import AppendStatus
from tests.store.golden import stores as golden
from tests.store.golden.compare import (
    POINT_FILE,
    Clock,
    assert_finds_keys,
    assert_reads_back,
    below,
    checkpoint_times,
    choose_place,
    differing,
    index_contents,
    new_message,
    on_disk_too,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.model.record import StoredRecord
    from rmq.store.append import AppendResult
    from rmq.store.core import StoreCore
    from tests.store.golden.compare import Place

    Write = Callable[[StoreCore, Sequence[StoredRecord]], list[AppendResult]]

SPARE: Final = "commitlog/00000000000001048576"


def write_one_by_one(core: StoreCore, records: Sequence[StoredRecord]) -> list[AppendResult]:
    return [result for record in records for result in core.append([new_message(record)])]


def write_together(core: StoreCore, records: Sequence[StoredRecord]) -> list[AppendResult]:
    return core.append([new_message(record) for record in records])


def write_batches(core: StoreCore, records: Sequence[StoredRecord]) -> list[AppendResult]:
    """Append what came as a batch as a batch, and the rest one by one."""
    results: list[AppendResult] = []
    for is_batch, run in groupby(records, is_of_batch):
        write = core.append_batch if is_batch else core.append
        for _, part in groupby(run, lambda record: (record.topic, record.queue_id)):
            results += write([new_message(record) for record in part])
    return results


def is_of_batch(record: StoredRecord) -> bool:
    # Only the entries of a batch have this property twice: their own and that of the whole.
    return record.properties_bytes.count(b"WAIT\x01") == 2


WAYS: Final = {
    "one by one": write_one_by_one,
    "together": write_together,
    "batches": write_batches,
}

place = pytest.fixture(choose_place)
sources = pytest.mark.parametrize("store", [golden.CLEAN_MASTER, golden.CRASHED])
ways = pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)


def rewrite(store: str, place: Place, write: Write) -> StoreCore:
    """Write the records of a golden store into an empty one, at the times they were stored."""
    clock = Clock(stored(store)[0].store_ms)
    core = place.open(clock)
    for store_ms, run in groupby(stored(store), lambda record: record.store_ms):
        clock.now_ms = store_ms
        records = list(run)
        assert [
            (result.status, result.physical_offset, result.queue_offset, result.size)
            for result in write(core, records)
        ] == [
            (AppendStatus.PUT_OK, record.physical_offset, record.queue_offset, record.size)
            for record in records
        ]
        assert core.dispatcher.lag_bytes == 0
    return core


@sources
@on_disk_too
@ways
def test_the_same_input_gives_the_same_files(store: str, write: Write, place: Place) -> None:
    rewrite(store, place, write).close()
    ours, expected = place.files(), golden.files(store)
    assert below(ours, "commitlog") == {
        name: data for name, data in below(expected, "commitlog").items() if name != SPARE
    }
    assert below(ours, "consumequeue") == below(expected, "consumequeue")
    assert index_contents(ours) == index_contents(expected)
    assert ours["lock"] == expected["lock"]
    assert {name for name in ours if "/" not in name} == {"checkpoint", "lock", POINT_FILE}


def test_batches_were_found_among_the_golden_records() -> None:
    runs = [
        (is_batch, len(list(run)))
        for is_batch, run in groupby(stored(golden.CLEAN_MASTER), is_of_batch)
    ]
    assert [count for is_batch, count in runs if is_batch] == [5, 5, 5]


@sources
def test_after_a_flush_all_files_are_complete(store: str, place: Place) -> None:
    """A process that is killed then leaves what the stock broker left when it was killed."""
    core = rewrite(store, place, write_together)
    core.flush()
    core.release()
    ours, expected = place.files(), golden.files(store)
    for folder in ("commitlog", "consumequeue"):
        assert differing(below(expected, folder), below(ours, folder)) <= {SPARE}
    assert index_contents(ours) == index_contents(expected)
    assert ours["abort"] == b""


def test_the_checkpoint_of_a_closed_store_is_that_of_the_stock_broker(place: Place) -> None:
    # This master ran on until a thorough flush had covered its last record, so all are comparable.
    rewrite(golden.CLEAN_MASTER, place, write_together).close()
    assert place.files()["checkpoint"] == golden.files(golden.CLEAN_MASTER)["checkpoint"]


def test_times_of_queues_and_index_in_the_checkpoint_are_those_of_the_stock_broker(
    place: Place,
) -> None:
    # The one of the flush is not comparable: the stock broker was killed before the first.
    rewrite(golden.CRASHED, place, write_together).close()
    expected = checkpoint_times(golden.files(golden.CRASHED))
    assert checkpoint_times(place.files())[1:] == expected[1:]
    assert expected.index_ms > 0


@sources
@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_what_was_written_reads_back_in_the_next_process(
    store: str, is_killed: bool, place: Place
) -> None:
    core = rewrite(store, place, write_together)
    core.release() if is_killed else core.close()
    with place.opened() as core:
        assert core.recovery.used_point
        assert_reads_back(core, store)
        assert_finds_keys(core, store, step=7)
    # Our own recovery knows which index entries are on disk and repeats none.
    ours, expected = place.files(), golden.files(store)
    assert below(ours, "consumequeue") == below(expected, "consumequeue")
    assert index_contents(ours) == index_contents(expected)


@pytest.mark.parametrize(
    ("spared", "is_rolled"),
    [pytest.param(8, False, id="room for a blank"), pytest.param(7, True, id="one byte less")],
)
def test_a_record_goes_to_the_next_segment_unless_a_blank_fits_behind_it(
    spared: int, is_rolled: bool, place: Place
) -> None:
    """The golden segments end with more room than this, by chance."""
    records = stored(golden.CLEAN_MASTER)
    written = [record for record in records if record.physical_offset < golden.SEGMENT_BYTES]
    end = written[-1].physical_offset + written[-1].size
    room = golden.SEGMENT_BYTES - end
    empty = record_layout.RECORD_BYTES_MIN + len("GoldenFill")
    with place.opened() as core:
        write_one_by_one(core, written)
        (result,) = core.append([NewMessage("GoldenFill", 0, bytes(room - spared - empty))])
        assert result.size == room - spared
        assert result.physical_offset == (golden.SEGMENT_BYTES if is_rolled else end)
    first = next(iter(below(place.files(), "commitlog").values()))
    if is_rolled:
        assert first[end:] == record_layout.Blank.build({"length": room}).ljust(room, b"\0")
    else:
        assert not any(first[-spared:])


def test_the_comparison_covers_rolls_of_all_three_kinds_of_files() -> None:
    files = golden.files(golden.CRASHED)
    assert sum(any(data) for data in below(files, "commitlog").values()) == 4
    assert len(below(files, "consumequeue")) == 4 * 9
    assert len(below(files, "index")) == 3
