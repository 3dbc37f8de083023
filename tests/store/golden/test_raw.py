"""The golden CommitLog as a slave gets it: bytes cut anywhere, from which queues and index come."""

from __future__ import annotations

import bisect
import random
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import LogGapError
from rmq.model.offsets import PhysicalOffset
from tests.store.golden import stores as golden
from tests.store.golden.compare import (
    assert_finds_keys,
    assert_reads_back,
    below,
    checkpoint_times,
    choose_place,
    end_of_log,
    index_contents,
    index_entries,
    log_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmq.store.core import StoreCore
    from tests.store.golden.compare import Place

place = pytest.fixture(choose_place)

LOG: Final = log_bytes(golden.CLEAN_MASTER)
RECORD_ENDS: Final = [
    record.physical_offset + len(record.data) for record in golden.records(golden.CLEAN_MASTER)
]
STOPS: Final = [0, *sorted({*RECORD_ENDS, golden.SEGMENT_BYTES})]
"""Where a record, or the blank that fills the first segment, ends."""

BLANK_AT: Final = STOPS[STOPS.index(golden.SEGMENT_BYTES) - 1]


def evenly(size: int) -> Iterator[int]:
    while True:
        yield size


def byte_by_byte_where_it_matters() -> Iterator[int]:
    """Yield single bytes at the beginning, around the change of segments and at the end."""
    written = 0
    for start, stop in (
        (0, 1500),
        (BLANK_AT - 500, golden.SEGMENT_BYTES + 1500),
        (len(LOG) - 600, len(LOG)),
    ):
        yield start - written or 1
        written = max(start, written + 1)
        while written < stop:
            yield 1
            written += 1


def at_random(seed: int) -> Iterator[int]:
    choose = random.Random(seed)
    while True:
        yield choose.choice([1, 7, 19, 20, 300, choose.randint(1, 5000)])


CUTS: Final[dict[str, Callable[[], Iterator[int]]]] = {
    "1": byte_by_byte_where_it_matters,
    "7": partial(evenly, 7),
    "4096": partial(evenly, 4096),
    "all at once": partial(evenly, len(LOG)),
    **{f"random {seed}": partial(at_random, seed) for seed in range(3)},
}


def chunks(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        size = next(sizes)
        yield data[position : position + size]
        position += size


def last_stop(offset: int) -> int:
    """Return the end of the last record that is whole in the log up to `offset`."""
    return STOPS[bisect.bisect_right(STOPS, offset) - 1]


def catch_up(core: StoreCore) -> None:
    while core.dispatcher.catch_up():
        pass


def assert_is_golden_slave(files: dict[str, bytes]) -> None:
    expected = golden.files(golden.CLEAN_SLAVE)
    for folder in ("commitlog", "consumequeue"):
        assert below(files, folder) == below(expected, folder)
    assert index_contents(files) == index_contents(expected)
    assert checkpoint_times(files) == checkpoint_times(expected)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_log_in_pieces_becomes_the_golden_slave(
    cut: Callable[[], Iterator[int]], place: Place
) -> None:
    with place.opened() as core:
        for chunk in chunks(LOG, cut()):
            core.append_raw(core.log.written, chunk)
            catch_up(core)
            # A record waits until it is whole, and then waits no longer.
            assert core.dispatcher.dispatched == last_stop(core.log.written)
        assert core.log.written == end_of_log(golden.CLEAN_SLAVE)
        assert_reads_back(core, golden.CLEAN_SLAVE)
    assert_is_golden_slave(place.files())


def test_the_slave_of_the_stock_broker_has_the_log_of_its_master() -> None:
    assert log_bytes(golden.CLEAN_SLAVE) == LOG
    assert BLANK_AT < golden.SEGMENT_BYTES - 8


@pytest.mark.parametrize("step", [1, 1000, 100_000], ids="{} bytes".format)
def test_catching_up_in_steps_gives_the_same_files(step: int, place: Place) -> None:
    with place.opened() as core:
        core.append_raw(PhysicalOffset(0), LOG)
        assert core.dispatcher.lag_bytes == len(LOG)
        steps = 1
        while core.dispatcher.catch_up(step):
            steps += 1
        assert core.dispatcher.lag_bytes == 0
        assert steps > 1
    assert_is_golden_slave(place.files())


def test_bytes_that_do_not_follow_the_last_ones_are_refused(place: Place) -> None:
    with place.opened() as core:
        core.append_raw(PhysicalOffset(0), LOG[:1000])
        for offset in (0, 999, 1001, golden.SEGMENT_BYTES):
            with pytest.raises(LogGapError):
                core.append_raw(PhysicalOffset(offset), LOG[offset : offset + 10])
        core.append_raw(PhysicalOffset(1000), LOG[1000:])
        catch_up(core)
    assert_is_golden_slave(place.files())


STOPPED_AT: Final = {
    "in the first record": 100,
    "after the first record": RECORD_ENDS[0],
    "in the middle of a record": RECORD_ENDS[300] + 150,
    "in the head of a record": RECORD_ENDS[300] + 5,
    "in the properties of a record": RECORD_ENDS[301] - 1,
    "before the blank": BLANK_AT,
    "in the size of the blank": BLANK_AT + 3,
    "in the magic of the blank": BLANK_AT + 6,
    "in the zeros of the blank": BLANK_AT + 20,
    "between two segments": golden.SEGMENT_BYTES,
    "in the first record of the second segment": golden.SEGMENT_BYTES + 50,
}


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("stopped_at", STOPPED_AT.values(), ids=STOPPED_AT)
def test_a_slave_that_stopped_anywhere_goes_on_behind_its_last_whole_record(
    stopped_at: int, is_killed: bool, place: Place
) -> None:
    core = place.open()
    core.append_raw(PhysicalOffset(0), LOG[:stopped_at])
    catch_up(core)
    core.release() if is_killed else core.close()
    with place.opened() as core:
        written = core.log.written
        # A blank is nothing but zeros from its magic on, so it may count as whole before it is.
        is_blank_known = stopped_at >= BLANK_AT + 8
        assert written == last_stop(stopped_at) or (
            is_blank_known and written == golden.SEGMENT_BYTES
        )
        core.append_raw(written, LOG[written:])
        catch_up(core)
    assert_is_golden_slave(place.files())


# --- the same, from a log that is there -----------------------------------------------------


ONE_QUEUE: Final = "one queue"
LOST: Final = {
    "all queues": ["consumequeue"],
    "the index": ["index"],
    "all queues and the index": ["consumequeue", "index"],
    ONE_QUEUE: ["consumequeue/GoldenFill/1"],
    "one file of a queue": ["consumequeue/GoldenFill/1/00000000000000001200"],
}


@pytest.mark.parametrize(
    ("lost", "is_killed", "has_point"),
    [
        pytest.param(
            LOST[what],
            is_killed,
            has_point,
            id=f"{what}, {'killed' if is_killed else 'closed'}, {'ours' if has_point else 'stock'}",
        )
        for what in LOST
        for is_killed in (False, True)
        for has_point in (False, True)
    ],
)
def test_lost_queues_and_index_are_built_again_as_they_were(
    lost: Sequence[str], is_killed: bool, has_point: bool, place: Place
) -> None:
    place.unpack(golden.CLEAN_SLAVE)
    if has_point:
        place.reopen()
    if is_killed:
        place.put("abort")
    for name in lost:
        place.remove(name)
    with place.opened() as core:
        assert_reads_back(core, golden.CLEAN_SLAVE)
        assert_finds_keys(core, golden.CLEAN_SLAVE, step=7)
    files, expected = place.files(), golden.files(golden.CLEAN_SLAVE)
    for folder in ("commitlog", "consumequeue"):
        assert below(files, folder) == below(expected, folder)
    ((data,), (golden_data,)) = index_contents(files), index_contents(expected)
    if data != golden_data:
        # An index that was not lost sees all records again, and takes the keys of its last again.
        assert "index" not in lost
        assert not is_killed
        assert entered(data) == entered(golden_data) + entered(golden_data)[-2:]


def entered(data: bytes) -> list[tuple[int, int]]:
    return [(key_hash, physical) for key_hash, physical, _, _ in index_entries(data)]
