"""Dispatch: the same files by both ways, what a record becomes, and what goes on after errors.

That a golden log becomes the golden files is tested elsewhere.
"""

from __future__ import annotations

import errno
import logging
import random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import StorageError
from rmq.model import flags
from rmq.model.java import string_hash
from rmq.model.names import SCHEDULE_TOPIC
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import NewMessage
from rmq.store.append import AppendStatus
from rmq.store.core import Refusal
from rmq.store.dispatcher import BadLogError, Dispatched, QueueGapError
from rmq.testing.storage import MemoryStorage
from tests.store.built_records import build_record
from tests.store.store_kit import (
    QUEUE_ENTRIES,
    ROOT,
    SEGMENT_BYTES,
    START_MS,
    TOPIC,
    Clock,
    content,
    message,
    message_of_size,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    query_bodies,
    read_bodies,
    small_config,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.store.core import StoreCore
    from rmq.testing.faults import Operation

KINDS: Final = (
    flags.TRANSACTION_NONE,
    flags.TRANSACTION_PREPARED,
    flags.TRANSACTION_COMMIT,
    flags.TRANSACTION_ROLLBACK,
)


def derived(storage: MemoryStorage) -> dict[str, bytes]:
    """Return what dispatch built, index files by their order because their names are times."""
    files = content(storage)
    queues = {name: data for name, data in files.items() if name.startswith("consumequeue/")}
    index = sorted(name for name in files if name.startswith("index/"))
    return queues | {f"index {place}": files[name] for place, name in enumerate(index)}


def raw_copy(core: StoreCore, pieces: Sequence[int], step: int) -> tuple[MemoryStorage, StoreCore]:
    """Let a slave take the log in pieces of these sizes, dispatching after each."""
    storage = MemoryStorage()
    slave = open_core(storage)
    data = b"".join(bytes(segment.buffer) for segment in core.log.segments)[: core.log.written]
    sizes = iter(pieces)
    while slave.log.written < len(data):
        start = slave.log.written
        slave.append_raw(start, data[start : start + next(sizes, 1000)])
        while slave.dispatcher.catch_up(step):
            pass
    return storage, slave


# --- both ways ------------------------------------------------------------------------------

texts = st.text("ab ", max_size=6)
messages = st.lists(
    st.builds(
        message,
        st.binary(max_size=900),
        topic=st.sampled_from([TOPIC, "TopicB", SCHEDULE_TOPIC]),
        queue_id=st.integers(0, 2),
        tags=texts,
        keys=texts,
        unique_key=texts,
        delay=st.sampled_from(["", "0", "1", "3", "99", "x", "-1"]),
        sys_flag=st.sampled_from(KINDS),
    ),
    max_size=40,
)


@settings(max_examples=40)
@given(
    messages=messages,
    pieces=st.lists(st.integers(1, 9000), max_size=30),
    step=st.sampled_from([1, 500, 1 << 20]),
    group=st.integers(1, 40),
)
def test_appending_and_reading_the_log_back_give_the_same_files(
    messages: list[NewMessage], pieces: list[int], step: int, group: int
) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    for start in range(0, len(messages), group):
        put(core, messages[start : start + group])
    slave_storage, slave = raw_copy(core, pieces, step)
    assert slave.dispatcher.dispatched == core.dispatcher.dispatched == core.log.written
    assert core.dispatcher.lag_bytes == slave.dispatcher.lag_bytes == 0
    for each in (core, slave):
        assert each.index is not None
        each.index.publish()
    assert derived(slave_storage) == derived(storage)


# --- what a record becomes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        pytest.param(b"", 0, id="none"),
        pytest.param(b"TAGS\x01TagA", 2598919, id="alone"),
        pytest.param(b"KEYS\x01K\x02TAGS\x01TagA", 2598919, id="last"),
        pytest.param(b"TAGS\x01TagA\x02KEYS\x01K", 2598919, id="first"),
        pytest.param(b"A\x011\x02TAGS\x01golden_pull\x02B\x012\x02", -1800785989, id="between"),
        pytest.param(b"TAGS\x01TagA\x02TAGS\x01TagB", 2598920, id="the last of two"),
        pytest.param(b"TAGS\x01TagA\x02TAGS\x01", 2598919, id="an empty one does not count"),
        pytest.param(b"TAGS\x01", 0, id="empty"),
        pytest.param(b"XTAGS\x01TagA", 0, id="another name"),
        pytest.param(b"A\x01TAGS\x01TagA", 0, id="inside a value"),
        pytest.param("TAGS\x01été\U0001f600".encode(), string_hash("été\U0001f600"), id="Unicode"),
        pytest.param(b"TAGS\x01\xff\xed\xa0\xbd", string_hash("\ufffd\ufffd"), id="no UTF-8"),
    ],
)
def test_the_tags_code_is_the_hash_of_the_tags(properties: bytes, code: int) -> None:
    core = open_core(MemoryStorage())
    put(core, [NewMessage(TOPIC, 0, b"", properties), NewMessage(TOPIC, 0, b"", properties)])
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    assert [(queue.entry(QueueOffset(n)) or ())[2:] for n in (0, 1)] == [(code,), (code,)]


@pytest.mark.parametrize(
    ("delay", "code"),
    [
        pytest.param("", 2598919, id="no level"),
        pytest.param("0", 2598919, id="level 0"),
        pytest.param("-3", 2598919, id="negative"),
        pytest.param("soon", 2598919, id="no number"),
        pytest.param("1", START_MS + 1_000, id="first"),
        pytest.param("18", START_MS + 7_200_000, id="last"),
        pytest.param("19", START_MS + 7_200_000, id="above the last"),
        pytest.param("9" * 5000, 2598919, id="no number Java knows"),
    ],
)
def test_a_delayed_message_has_its_time_in_place_of_the_tags_code(delay: str, code: int) -> None:
    core = open_core(MemoryStorage(), small_config(segment_bytes=1 << 20))
    put(core, [message(topic=SCHEDULE_TOPIC, tags="TagA", delay=delay)])
    put(core, [message(topic=TOPIC, tags="TagA", delay=delay)])
    for topic, expected in ((SCHEDULE_TOPIC, code), (TOPIC, 2598919)):
        queue = core.queues.get(topic, 0)
        assert queue is not None
        assert (queue.entry(QueueOffset(0)) or ())[2:] == (expected,)


@pytest.mark.parametrize(
    ("kind", "is_queued", "is_indexed"),
    [
        pytest.param(flags.TRANSACTION_NONE, True, True, id="none"),
        pytest.param(flags.TRANSACTION_PREPARED, False, True, id="prepared"),
        pytest.param(flags.TRANSACTION_COMMIT, True, True, id="commit"),
        pytest.param(flags.TRANSACTION_ROLLBACK, False, False, id="rollback"),
    ],
)
def test_kinds_of_transactions_are_queued_and_indexed_or_not(
    kind: int, is_queued: bool, is_indexed: bool
) -> None:
    core = open_core(MemoryStorage())
    put(core, [message(b"it", unique_key="unique", keys="one two", sys_flag=kind)])
    assert (read_bodies(core) == [b"it"]) is is_queued
    for key in ("unique", "one", "two"):
        assert (query_bodies(core, key) == [b"it"]) is is_indexed


def test_whoever_watches_a_queue_is_told_of_each_message_once() -> None:
    core = open_core(MemoryStorage())
    told: list[Dispatched] = []
    core.dispatcher.on_dispatched = told.append
    for topic, queue_id in ((TOPIC, 0), ("TopicB", 7)):
        core.queues.open(topic, queue_id).is_watched = True
    put(core, [message(1, tags="TagA"), message(2, sys_flag=flags.TRANSACTION_PREPARED)])
    put(core, [message(3, topic="TopicB", queue_id=7), message(4, queue_id=1)])
    # All of it once more, as a recovery does.
    core.dispatcher.dispatched = core.log.min_offset
    core.dispatcher.catch_up()
    assert told == [
        Dispatched(TOPIC, 0, QueueOffset(0), 2598919, START_MS, b"TAGS\x01TagA"),
        Dispatched("TopicB", 7, QueueOffset(0), 0, START_MS, b""),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": b"../../etc"},
        {"topic": b""},
        {"topic": b"a\xff"},
        {"queue_id": -1},
    ],
    ids=str,
)
def test_a_record_of_an_impossible_queue_is_kept_and_passed_over(
    fields: dict[str, bytes | int], caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    slave = open_core(storage)
    bad = build_record(physical_offset=0, queue_offset=0, **fields)  # type: ignore[arg-type]
    good = build_record(physical_offset=len(bad), queue_offset=0, queue_id=0, topic=b"TopicA")
    slave.append_raw(PhysicalOffset(0), bad + good)
    with caplog.at_level(logging.ERROR):
        assert not slave.dispatcher.catch_up()
    assert "the record at physical offset 0 is of topic" in caplog.text
    assert slave.dispatcher.dispatched == len(bad + good)
    assert read_bodies(slave) == [b"hello"]
    assert storage.names(ROOT / "consumequeue") == [TOPIC]
    record = slave.reads.record_at(PhysicalOffset(0))
    assert record is not None
    assert record.body == b"hello"


# --- gaps -----------------------------------------------------------------------------------


def test_a_gap_is_closed_as_a_stock_broker_does(caplog: pytest.LogCaptureFixture) -> None:
    slave = open_core(MemoryStorage())
    data = b""
    for queue_offset in (0, 5):
        data += build_record(
            physical_offset=len(data), queue_offset=queue_offset, queue_id=0, topic=b"TopicA"
        )
    slave.append_raw(PhysicalOffset(0), data)
    with caplog.at_level(logging.ERROR):
        slave.dispatcher.catch_up()
    assert "queue 0 of TopicA goes from 0 to 1" in caplog.text
    assert "has queue offset 5" in caplog.text
    assert len(read_bodies(slave)) == 2


@pytest.mark.parametrize("offsets", [(0, 5), (3,)], ids=["after some", "before the first"])
def test_a_gap_is_an_error_for_who_wants_it(offsets: tuple[int, ...]) -> None:
    slave = open_core(MemoryStorage())
    slave.dispatcher.fail_on_gap = True
    data = b""
    for queue_offset in offsets:
        data += build_record(
            physical_offset=len(data), queue_offset=queue_offset, queue_id=0, topic=b"TopicA"
        )
    slave.append_raw(PhysicalOffset(0), data)
    with pytest.raises(QueueGapError, match=f"has queue offset {offsets[-1]}"):
        slave.dispatcher.catch_up()


# --- a log that is not whole ----------------------------------------------------------------


def test_half_a_record_waits_for_the_rest() -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(3))
    data = bytes(core.log.view(PhysicalOffset(0), core.log.written) or b"")
    slave = open_core(MemoryStorage())
    for end in range(1, len(data) + 1):
        slave.append_raw(PhysicalOffset(end - 1), data[end - 1 : end])
        assert not slave.dispatcher.catch_up()
        queue = slave.queues.get(TOPIC, 0)
        assert (queue.next_offset if queue is not None else 0) == end * 3 // len(data)
    assert read_bodies(slave) == numbered_bodies(range(3))


def test_bytes_that_are_no_record_are_told_of_and_nothing_behind_them_is_dispatched() -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(3))
    size = core.log.written // 3
    data = bytearray(core.log.view(PhysicalOffset(0), core.log.written) or b"")
    data[size + 4] ^= 1
    slave = open_core(MemoryStorage())
    slave.append_raw(PhysicalOffset(0), bytes(data))
    for _ in range(2):
        with pytest.raises(BadLogError, match="is not that of a message") as caught:
            slave.dispatcher.catch_up()
        assert caught.value.offset == size
    assert slave.dispatcher.dispatched == size
    assert slave.dispatcher.lag_bytes == 2 * size
    assert read_bodies(slave) == numbered_bodies([0])


# --- errors ---------------------------------------------------------------------------------


def in_queues(path: Path) -> bool:
    return "consumequeue" in path.parts


def in_index(path: Path) -> bool:
    return "index" in path.parts


@pytest.mark.parametrize("operation", ["create", "reserve"])
@pytest.mark.parametrize("where", [in_queues, in_index])
@pytest.mark.parametrize("call", [1, 2])
def test_what_could_not_be_dispatched_is_dispatched_later(
    operation: Operation, where: object, call: int
) -> None:
    on = in_queues if where is in_queues else in_index
    storage = MemoryStorage()
    core = open_core(storage)
    fault = storage.faults.fail(operation, errno.ENOSPC, call=call, times=2, on=on)
    taken = 0
    while core.refusal is None:
        # Two at a time: the first of them may be dispatched and the second not.
        put(core, [message(taken + n, unique_key=f"key{taken + n}") for n in range(2)])
        taken += 2
    assert fault.fired == 1
    assert core.refusal is Refusal.DISPATCH
    assert core.dispatcher.lag_bytes > 0
    (refused,) = core.append([message(b"refused")])
    assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert refused.reason.startswith("ConsumeQueue or index cannot be written: cannot ")
    assert core.plan_point() is None
    with pytest.raises(StorageError):
        core.dispatcher.catch_up()
    assert core.refusal is Refusal.DISPATCH
    core.dispatcher.catch_up()
    assert core.refusal is None
    assert core.dispatcher.lag_bytes == 0
    put_numbered(core, range(taken, 40))
    assert read_bodies(core) == numbered_bodies(range(40))
    for number in range(40):
        assert query_bodies(core, f"key{number}") == [b"body %d" % number]
    assert storage.writes_without_room() == []

    sound_storage = MemoryStorage()
    sound = open_core(sound_storage)
    for start in range(0, taken, 2):
        put(sound, [message(start + n, unique_key=f"key{start + n}") for n in range(2)])
    put_numbered(sound, range(taken, 40))
    core.close()
    sound.close()
    queues = "consumequeue"
    assert content(storage, ROOT / queues) == content(sound_storage, ROOT / queues)


def test_a_store_that_could_not_dispatch_all_is_not_closed_cleanly() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(QUEUE_ENTRIES))
    with storage.faults.failing("create", errno.ENOSPC, on=in_queues):
        put_numbered(core, [QUEUE_ENTRIES])
        assert core.refusal is Refusal.DISPATCH
        with pytest.raises(StorageError):
            core.close()
    assert storage.exists(ROOT / "abort")
    again = open_core(storage)
    assert not again.recovery.was_clean
    assert read_bodies(again) == numbered_bodies(range(QUEUE_ENTRIES + 1))
    assert query_bodies(again, f"key{QUEUE_ENTRIES}") == [b"body %d" % QUEUE_ENTRIES]


def test_messages_of_one_append_before_and_after_a_roll_are_all_dispatched_later() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    large = [message_of_size(3000) for _ in range(6)]
    with storage.faults.failing("create", errno.ENOSPC, on=in_queues):
        results = core.append(large)
    assert {result.status for result in results} == {AppendStatus.PUT_OK}
    assert core.log.written > 2 * SEGMENT_BYTES
    assert core.dispatcher.dispatched == 0
    core.dispatcher.catch_up()
    assert core.dispatcher.dispatched == core.log.written
    assert len(read_bodies(core)) == 6


def test_catching_up_goes_in_steps() -> None:
    core = open_core(MemoryStorage(), small_config(segment_bytes=1 << 20))
    put(core, [message_of_size(200) for _ in range(2000)])
    data = bytes(core.log.view(PhysicalOffset(0), core.log.written) or b"")
    slave = open_core(MemoryStorage(), small_config(segment_bytes=1 << 20))
    slave.append_raw(PhysicalOffset(0), data)
    steps = 1
    while slave.dispatcher.catch_up(1000):
        steps += 1
        assert slave.dispatcher.dispatched % 200 == 0
    assert 2 < steps < 2000
    assert slave.dispatcher.dispatched == len(data)


def test_the_time_of_the_last_record_dispatched_is_known() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(), clock=clock)
    assert core.dispatcher.store_ms == 0
    for _ in range(3):
        clock.ms += 5
        put_numbered(core, [0])
    assert core.dispatcher.store_ms == START_MS + 15


@pytest.mark.parametrize("seed", range(5))
def test_queue_offsets_stay_dense_whatever_fails(seed: int) -> None:
    """Random faults while many queues are written; in the end nothing is missing or twice."""
    choice = random.Random(seed)
    storage = MemoryStorage()
    core = open_core(storage)
    expected: dict[tuple[str, int], list[bytes]] = {}
    operations: tuple[Operation, ...] = ("create", "reserve", "add_directory", "sync_directory")
    for number in range(150):
        if choice.random() < 0.2:
            storage.faults.fail(choice.choice(operations), errno.ENOSPC)
        new = [
            message(
                number * 10 + n,
                topic=choice.choice([TOPIC, "TopicB"]),
                queue_id=choice.randrange(3),
                unique_key=f"key{number * 10 + n}",
            )
            for n in range(choice.randrange(1, 8))
        ]
        for one, result in zip(new, core.append(new), strict=True):
            if result.status is AppendStatus.PUT_OK:
                bodies = expected.setdefault((one.topic, one.queue_id), [])
                assert result.queue_offset == len(bodies)
                bodies.append(one.body)
        while core.refusal is Refusal.DISPATCH:
            try:
                core.dispatcher.catch_up()
            except StorageError:
                continue
    assert storage.writes_without_room() == []
    for reopened in (False, True):
        if reopened:
            storage.faults.clear()
            core.close()
            core = open_core(storage)
        for (topic, queue_id), bodies in expected.items():
            assert read_bodies(core, topic, queue_id) == bodies
