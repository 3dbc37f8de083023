"""Keys that a stock broker loses in its recovery and we keep, on its own stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.model.record import NewMessage, decode_record
from rmq.store import layout
from tests.store.golden import stores as golden
from tests.store.golden.compare import FOREVER_MS, assert_finds_keys, choose_place

if TYPE_CHECKING:
    from tests.store.golden.compare import Place

place = pytest.fixture(choose_place)


def test_keys_of_new_messages_are_found_after_a_torn_tail_was_cut(place: Place) -> None:
    # The stock index keeps 22 entries of records that are gone, and its end lies behind the log's.
    place.unpack(golden.TORN)
    with place.opened() as core:
        assert core.index is not None
        assert core.index.current is not None
        assert core.index.current.end_offset > core.log.written
        for number in range(40):
            core.append([NewMessage("New", 0, b"body", f"KEYS\x01key{number}".encode())])
        for number in range(40):
            (view,) = core.reads.query("New", f"key{number}", 8, 0, FOREVER_MS)
            assert decode_record(view).queue_offset == number


def test_keys_of_segments_before_the_one_recovery_begins_with_are_found(place: Place) -> None:
    place.unpack(golden.CLEAN_MASTER)
    place.put("abort")
    times = layout.CHECKPOINT_TIMES.unpack_from(golden.files(golden.CLEAN_MASTER)["checkpoint"])
    later = (times[1] + 3000, times[1] + 3000, 0)
    place.put(
        "checkpoint", layout.CHECKPOINT_TIMES.pack(*later).ljust(layout.CHECKPOINT_BYTES, b"\0")
    )
    with place.opened() as core:
        assert core.recovery.started_at == 0
        assert_finds_keys(core, golden.CLEAN_MASTER, step=5)
