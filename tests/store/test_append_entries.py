"""Batches as clients send them are stored as `append_batch` stores the same messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.model import flags
from rmq.model.properties import PAIR
from rmq.store.append import DISPATCHED_AT_ONCE, AppendStatus
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import (
    ROOT,
    SEGMENT_BYTES,
    TOPIC,
    message,
    open_core,
    put,
    query_bodies,
    read_bodies,
    small_config,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.model.record import NewMessage

Entry = tuple[int, bytes, bytes]

SHARED = message(b"", queue_id=2, tags="shared", born_ms=12, reconsume_times=1)

properties_of_entries = st.sampled_from(
    [b"", b"KEYS\x01one two", b"UNIQ_KEY\x01unique\x02", b"TAGS\x01own\x02KEYS\x01k"]
)
entries_of_batches = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=300), properties_of_entries),
    min_size=1,
    max_size=8,
)


def as_messages(shared: NewMessage, entries: list[Entry]) -> list[NewMessage]:
    return [
        msgspec.structs.replace(
            shared,
            flag=flag,
            body=body,
            properties=PAIR.join(part for part in (own.rstrip(PAIR), shared.properties) if part),
        )
        for flag, body, own in entries
    ]


def files_of(storage: MemoryStorage, path: Path = ROOT) -> dict[str, bytes]:
    """Return all files below a directory with their content."""
    found: dict[str, bytes] = {}
    for name in storage.names(path):
        if storage.is_directory(path / name):
            found |= files_of(storage, path / name)
        else:
            found[str(path / name)] = storage.read(path / name)
    return found


@given(
    batches=st.lists(entries_of_batches, min_size=1, max_size=12),
    kind=st.sampled_from([0, flags.TRANSACTION_PREPARED, flags.TRANSACTION_COMMIT]),
)
def test_the_bytes_are_those_of_the_same_messages(batches: list[list[Entry]], kind: int) -> None:
    shared = msgspec.structs.replace(SHARED, sys_flag=kind)
    one, other = MemoryStorage(), MemoryStorage()
    core, reference = open_core(one), open_core(other)
    for entries in batches:
        result = core.append_entries(shared, entries)
        expected = reference.append_batch(as_messages(shared, entries))
        assert result.status is expected[0].status is AppendStatus.PUT_OK
        assert result.physical_offsets == [each.physical_offset for each in expected]
        assert result.queue_offset == expected[0].queue_offset
        assert result.size == sum(each.size for each in expected)
        assert result.end_offset == expected[-1].end_offset
    core.close()
    reference.close()
    assert files_of(one) == files_of(other)


def test_a_batch_that_does_not_fit_begins_the_next_segment() -> None:
    core = open_core(MemoryStorage())
    room = core.log.room() if core.log.written else SEGMENT_BYTES
    put(core, [message(b"x" * (room - 1500))])
    result = core.append_entries(SHARED, [(0, b"y" * 1000, b""), (0, b"z" * 1000, b"")])
    assert result.status is AppendStatus.PUT_OK
    assert result.physical_offsets[0] == SEGMENT_BYTES
    assert read_bodies(core, TOPIC, 2) == [b"y" * 1000, b"z" * 1000]


@pytest.mark.parametrize(
    ("shared", "entries", "status"),
    [
        pytest.param(SHARED, [], AppendStatus.MESSAGE_ILLEGAL, id="empty"),
        pytest.param(
            msgspec.structs.replace(SHARED, topic="no/topic"),
            [(0, b"", b"")],
            AppendStatus.MESSAGE_ILLEGAL,
            id="topic",
        ),
        pytest.param(
            SHARED, [(0, b"good", b""), (2**31, b"", b"")], AppendStatus.MESSAGE_ILLEGAL, id="flag"
        ),
        pytest.param(
            SHARED,
            [(0, b"good", b""), (0, b"", b"a\x01" + b"b" * 32767)],
            AppendStatus.PROPERTIES_SIZE_EXCEEDED,
            id="properties",
        ),
        pytest.param(
            SHARED, [(0, b"x" * 2000, b"")] * 9, AppendStatus.MESSAGE_ILLEGAL, id="too large"
        ),
    ],
)
def test_a_batch_with_a_bad_message_is_refused_as_a_whole(
    shared: NewMessage, entries: list[Entry], status: AppendStatus
) -> None:
    core = open_core(MemoryStorage())
    before = core.log.written
    result = core.append_entries(shared, entries)
    assert result.status is status
    assert result.reason
    assert core.log.written == before
    good = core.append_entries(SHARED, [(0, b"after", b"KEYS\x01k")])
    assert good.queue_offset == 0
    assert query_bodies(core, "k") == [b"after"]


def test_a_store_that_takes_nothing_says_why() -> None:
    core = open_core(MemoryStorage())
    core.set_disk_full(True)
    result = core.append_entries(SHARED, [(0, b"", b"")])
    assert result.status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "disk is full" in result.reason


def test_a_batch_of_many_messages_is_left_to_the_dispatcher() -> None:
    """Until then no consumer sees it; what is appended behind it waits with it."""
    core = open_core(MemoryStorage(), small_config(segment_bytes=1 << 20))
    put(core, [message(b"first", queue_id=2)])
    count = DISPATCHED_AT_ONCE + 1
    result = core.append_entries(SHARED, [(0, b"%d" % number, b"") for number in range(count)])
    put(core, [message(b"last", queue_id=2)])
    assert (result.status, result.queue_offset) == (AppendStatus.PUT_OK, 1)
    assert read_bodies(core, queue_id=2) == [b"first"]
    steps = 1
    while core.dispatcher.catch_up():
        steps += 1
    assert steps > 1
    expected = [b"first", *(b"%d" % number for number in range(count)), b"last"]
    assert read_bodies(core, queue_id=2) == expected
