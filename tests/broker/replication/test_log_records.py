"""Whole records of a range of the log, over segments, blanks and damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.replication import log_records as module
from rmq.broker.replication.log_records import log_records
from rmq.errors import RefusedError
from rmq.model.record import decode_records
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import fill_segments, numbered_bodies, open_core, put_numbered

if TYPE_CHECKING:
    from rmq.store.core import StoreCore


async def bodies(core: StoreCore, start: int, stop: int) -> tuple[list[bytes], int]:
    """Return the bodies of all records of a range, and how many answers it took."""
    found: list[bytes] = []
    answers = 0
    while start < stop:
        data, start = await log_records(core.log, start, stop)
        found += [record.body for record in decode_records(data)]
        answers += 1
    return found, answers


@pytest.fixture
def core() -> StoreCore:
    return open_core(MemoryStorage())


@pytest.mark.parametrize("answer_bytes", [1, 1000, 10**6])
async def test_all_records_of_all_segments_are_given(
    core: StoreCore, monkeypatch: pytest.MonkeyPatch, answer_bytes: int
) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", answer_bytes)
    count = fill_segments(core, 3)
    found, answers = await bodies(core, 0, core.log.written)
    assert found == numbered_bodies(range(count))
    assert answers >= count if answer_bytes == 1 else answers < count


async def test_a_record_that_never_came_whole_is_left_out(core: StoreCore) -> None:
    results = put_numbered(core, range(3))
    stop = results[2].physical_offset
    assert (await bodies(core, 0, stop + 50))[0] == numbered_bodies(range(2))


@pytest.mark.parametrize(("start", "stop"), [(0, 10**9), (10**9, 2 * 10**9)])
async def test_what_is_not_in_the_log_is_refused(core: StoreCore, start: int, stop: int) -> None:
    put_numbered(core, range(3))
    with pytest.raises(RefusedError, match="the log goes from 0 to"):
        await log_records(core.log, start, stop)


async def test_where_no_record_begins_nothing_is_given(core: StoreCore) -> None:
    put_numbered(core, range(3))
    with pytest.raises(RefusedError, match="no sound record at physical offset 7: "):
        await log_records(core.log, 7, core.log.written)
