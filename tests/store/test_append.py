"""Appending: the bytes of records, where they go, and which messages are refused and why."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

import pytest

from rmq.files import storage_error
from rmq.model import flags, record_layout
from rmq.model.offsets import QueueOffset
from rmq.model.record import NewMessage, decode_records, pack_host
from rmq.store.append import JOIN_BYTES_MAX, AppendStatus
from rmq.store.core import StoreCore
from rmq.testing.storage import MemoryFile, MemoryStorage
from tests.store.store_kit import (
    INDEX_SLOTS,
    RECORD_BYTES_MIN,
    ROOT,
    SEGMENT_BYTES,
    START_MS,
    TOPIC,
    Clock,
    content,
    log_path,
    message,
    message_of_size,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    read_bodies,
    read_queue,
    small_config,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.store.append import AppendResult

BLANK_MAGIC: Final = bytes.fromhex("CBD43194")
LARGE: Final = small_config(segment_bytes=1 << 20, message_bytes_max=100_000)


def statuses(results: list[AppendResult]) -> list[AppendStatus]:
    return [result.status for result in results]


# --- bytes ----------------------------------------------------------------------------------


def test_a_record_is_what_rocketmq_writes() -> None:
    storage = MemoryStorage()
    core = StoreCore(
        small_config(),
        storage=storage,
        store_host=pack_host("10.0.0.1", 10911),
        now_ms=Clock(1_700_000_000_001),
    )
    new = NewMessage(
        topic="T",
        queue_id=3,
        body=b"hello",
        properties=b"KEYS\x01K1\x02TAGS\x01TagA",
        flag=7,
        born_ms=1_700_000_000_000,
        born_host=pack_host("10.0.0.9", 40000),
    )
    (result,) = core.append([new])
    # A recorded test vector; queue and physical offset differ from it.
    expected = bytes.fromhex(
        "00000072DAA320A73610A686000000030000000700000000000000000000000000000000"
        "000000000000018BCFE568000A00000900009C400000018BCFE568010A00000100002A9F"
        "0000000000000000000000000000000568656C6C6F015400114B455953014B3102544147530154616741"
    )
    assert storage.read(log_path())[: result.size] == expected
    assert (result.status, result.physical_offset, result.queue_offset, result.store_ms) == (
        AppendStatus.PUT_OK,
        0,
        0,
        1_700_000_000_001,
    )
    assert result.end_offset == result.size == len(expected)


@pytest.mark.parametrize("born", ["10.0.0.9", "fd00::9"])
@pytest.mark.parametrize("store", ["10.0.0.1", "fd00::1"])
def test_the_address_bits_follow_the_addresses_whatever_the_caller_says(
    born: str, store: str
) -> None:
    storage = MemoryStorage()
    core = StoreCore(
        small_config(), storage=storage, store_host=pack_host(store, 1), now_ms=Clock()
    )
    for claimed in (0, record_layout.HOST_FLAGS):
        (result,) = put(core, [message(sys_flag=claimed, born_host=pack_host(born, 2))])
        record = record_layout.Record.parse(
            bytes(core.log.view(result.physical_offset, result.size) or b"")
        )
        assert bool(record.sys_flag & flags.BORN_HOST_V6) is (":" in born)
        assert bool(record.sys_flag & flags.STORE_HOST_V6) is (":" in store)
        assert record.born_host == pack_host(born, 2)
        assert record.store_host == pack_host(store, 1)
        assert record.total_size == result.size


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param([0, 1, 100], id="short"),
        pytest.param([JOIN_BYTES_MAX, JOIN_BYTES_MAX + 1], id="at the limit of joining"),
        pytest.param([10, 50_000, 10, 60_000, 70_000, 10], id="mixed"),
        pytest.param([99_999, 100_000], id="long"),
    ],
)
def test_together_and_one_by_one_give_the_same_files(bodies: list[int]) -> None:
    messages = [
        message(bytes([size % 256]) * size, unique_key=f"key{n}", queue_id=n % 2, tags="TagA")
        for n, size in enumerate(bodies)
    ]
    contents = []
    for groups in ([messages], [[one] for one in messages], [messages[:1], messages[1:]]):
        storage = MemoryStorage()
        core = open_core(storage, LARGE)
        results = [result for group in groups for result in put(core, group)]
        assert [result.queue_offset for result in results] == [n // 2 for n in range(len(messages))]
        assert sorted(read_bodies(core) + read_bodies(core, queue_id=1)) == sorted(
            one.body for one in messages
        )
        core.close()
        contents.append(content(storage))
        assert storage.writes_without_room() == []
    assert contents[0] == contents[1] == contents[2]


@pytest.mark.parametrize("length", [0, 1023, 1024, 32767])
def test_properties_of_every_length_are_written(length: int) -> None:
    core = open_core(MemoryStorage(), LARGE)
    new = NewMessage(TOPIC, 0, b"body", b"p" * length)
    put(core, [new, new])
    assert [record.properties_bytes for record in read_queue(core)] == [b"p" * length] * 2


def test_what_is_empty_can_be_stored() -> None:
    core = open_core(MemoryStorage())
    (result,) = put(core, [NewMessage("T", 0, b"")])
    assert result.size == RECORD_BYTES_MIN + 1
    (record,) = read_queue(core, "T")
    assert (record.body, record.properties_bytes, record.body_crc) == (b"", b"", 0)


# --- the end of a segment -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "size", "fits"),
    [
        pytest.param(1000, 992, True, id="just fits"),
        pytest.param(1000, 993, False, id="leaves seven bytes"),
        pytest.param(1000, 1000, False, id="leaves none"),
        pytest.param(1000, 1001, False, id="is too long"),
    ],
)
def test_a_record_needs_eight_bytes_behind_it(left: int, size: int, fits: bool) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message_of_size(SEGMENT_BYTES - left)])
    (result,) = put(core, [message_of_size(size)])
    first = storage.read(log_path())
    if fits:
        assert result.physical_offset == SEGMENT_BYTES - left
        assert first[-8:] == bytes(8)
    else:
        assert result.physical_offset == SEGMENT_BYTES
        assert first[-left:] == (left.to_bytes(4) + BLANK_MAGIC).ljust(left, b"\0")
    # Nothing fits behind the first: the blank comes with the next message.
    put(core, [message(b"next")])
    if fits:
        assert storage.read(log_path())[-8:] == (8).to_bytes(4) + BLANK_MAGIC
    assert core.dispatcher.dispatched == core.log.written
    assert len(read_bodies(core)) == 3


def test_messages_appended_together_may_lie_in_several_segments() -> None:
    core = open_core(MemoryStorage())
    messages = [message(b"%d" % n * 3000) for n in range(8)]
    results = put(core, messages)
    assert [result.physical_offset // SEGMENT_BYTES for result in results] == [
        n // 2 for n in range(8)
    ]
    assert [result.queue_offset for result in results] == list(range(8))
    assert read_bodies(core) == [one.body for one in messages]


# --- batches --------------------------------------------------------------------------------


def test_a_batch_lies_in_one_segment_with_consecutive_offsets() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message_of_size(5000)])
    batch = [message_of_size(1000) for _ in range(4)]
    results = core.append_batch(batch)
    assert [result.physical_offset for result in results] == [
        SEGMENT_BYTES + 1000 * n for n in range(4)
    ]
    assert [result.queue_offset for result in results] == [1, 2, 3, 4]
    # The same messages one by one would have used what was left.
    assert storage.read(log_path())[5000:5008] == (SEGMENT_BYTES - 5000).to_bytes(4) + BLANK_MAGIC
    assert len(read_bodies(core)) == 5


@pytest.mark.parametrize(
    ("left", "segment"), [(3008, 0), (3007, 1)], ids=["just fits", "just does not"]
)
def test_a_batch_needs_eight_bytes_behind_it(left: int, segment: int) -> None:
    core = open_core(MemoryStorage())
    put(core, [message_of_size(SEGMENT_BYTES - left)])
    results = core.append_batch([message_of_size(1000) for _ in range(3)])
    assert {result.physical_offset // SEGMENT_BYTES for result in results} == {segment}


def test_an_empty_batch_is_nothing() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    assert core.append_batch([]) == []
    assert core.append([]) == []
    assert core.log.written == 0


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        pytest.param(
            message(b"x" * 9000), AppendStatus.MESSAGE_ILLEGAL, id="one is larger than a segment"
        ),
        pytest.param(message(flag=1 << 31), AppendStatus.MESSAGE_ILLEGAL, id="a field is too big"),
        pytest.param(
            NewMessage(TOPIC, 0, b"", b"p" * 32768),
            AppendStatus.PROPERTIES_SIZE_EXCEEDED,
            id="properties are too long",
        ),
        pytest.param(message(born_host=b"123"), AppendStatus.MESSAGE_ILLEGAL, id="a broken host"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_batch_with_a_bad_message_is_refused_as_a_whole(
    bad: NewMessage, status: AppendStatus, place: int
) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, [0])
    before = content(storage)
    batch = [message(b"good"), message(b"good")]
    batch.insert(place, bad)
    results = core.append_batch(batch)
    assert statuses(results) == [status] * 3
    assert len({result.reason for result in results}) == 1
    assert content(storage) == before
    (result,) = put_numbered(core, [1])
    assert result.queue_offset == 1


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    core = open_core(MemoryStorage())
    results = core.append_batch([message_of_size(1000)] * 9)
    assert statuses(results) == [AppendStatus.MESSAGE_ILLEGAL] * 9
    assert results[0].reason == f"the batch takes 9000 bytes, the limit is {SEGMENT_BYTES - 8}"
    assert statuses(core.append_batch([message_of_size(1023)] * 8)) == [AppendStatus.PUT_OK] * 8


@pytest.mark.parametrize("other", [message(queue_id=1), message(topic="Other")])
def test_a_batch_for_two_queues_is_a_mistake_of_the_caller(other: NewMessage) -> None:
    core = open_core(MemoryStorage())
    with pytest.raises(ValueError, match="one queue of one topic"):
        core.append_batch([message(), other])
    assert core.log.written == 0


# --- transactions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "is_queued"),
    [
        pytest.param(flags.TRANSACTION_NONE, True, id="none"),
        pytest.param(flags.TRANSACTION_PREPARED, False, id="prepared"),
        pytest.param(flags.TRANSACTION_COMMIT, True, id="commit"),
        pytest.param(flags.TRANSACTION_ROLLBACK, False, id="rollback"),
    ],
)
def test_only_some_kinds_take_a_queue_offset(kind: int, is_queued: bool) -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(3))
    (result,) = put(core, [message(b"kind", sys_flag=kind)])
    assert result.queue_offset == (3 if is_queued else 0)
    (after,) = put_numbered(core, [9])
    assert after.queue_offset == (4 if is_queued else 3)
    assert (b"kind" in read_bodies(core)) is is_queued


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic",
    ["", "a/b", "..", "../x", ".", "a b", "x" * 128, "Topicé", "a\0b", "a\n", "\u0661"],
    ids=["empty", "slash", "dots", "up", "dot", "blank", "128", "é", "NUL", "newline", "digit"],
)
def test_an_illegal_topic_is_refused(topic: str) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    results = core.append([message(b"first"), message(topic=topic), message(b"last")])
    assert statuses(results) == [
        AppendStatus.PUT_OK,
        AppendStatus.MESSAGE_ILLEGAL,
        AppendStatus.PUT_OK,
    ]
    assert results[1].reason.startswith(f"topic {topic!r} is not 1 to 127 of the characters")
    assert (results[1].physical_offset, results[1].queue_offset) == (-1, -1)
    assert read_bodies(core) == [b"first", b"last"]
    assert storage.names(ROOT / "consumequeue") == [TOPIC]
    assert statuses(core.append_batch([message(topic=topic)])) == [AppendStatus.MESSAGE_ILLEGAL]


def test_a_very_long_topic_is_not_repeated_in_full() -> None:
    core = open_core(MemoryStorage())
    (result,) = core.append([message(topic="x" * 1_000_000)])
    assert len(result.reason) < 500


def test_a_topic_of_127_characters_is_fine() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(b"one", topic="x" * 127)])
    assert read_bodies(core, "x" * 127) == [b"one"]


@pytest.mark.parametrize("queue_id", [-1, 1 << 31, -(1 << 40)])
def test_a_queue_id_that_cannot_be_is_refused(queue_id: int) -> None:
    core = open_core(MemoryStorage())
    for results in (
        core.append([message(queue_id=queue_id)]),
        core.append_batch([message(queue_id=queue_id)]),
    ):
        assert statuses(results) == [AppendStatus.MESSAGE_ILLEGAL]
        assert results[0].reason == f"queue id {queue_id} is not between 0 and {2**31 - 1}"
    assert len(core.queues) == 0
    put(core, [message(b"max", queue_id=2**31 - 1)])
    assert read_bodies(core, queue_id=2**31 - 1) == [b"max"]


@pytest.mark.parametrize(
    "field",
    [
        {"flag": 1 << 31},
        {"flag": -(1 << 31) - 1},
        {"sys_flag": 1 << 31},
        {"born_ms": 1 << 63},
        {"reconsume_times": 1 << 31},
        {"prepared_offset": -(1 << 63) - 1},
        {"born_host": b""},
        {"born_host": bytes(9)},
        {"born_host": bytes(16)},
    ],
    ids=lambda field: "-".join(f"{name}={value!r}" for name, value in field.items()),
)
def test_a_field_out_of_range_is_refused_and_nothing_else(field: dict[str, Any]) -> None:
    core = open_core(MemoryStorage())
    bad = message(b"bad", **field)
    results = core.append([message(b"first"), bad, message(b"last")])
    assert results[1].status is AppendStatus.MESSAGE_ILLEGAL
    assert results[1].reason.startswith("a field has a value the record cannot hold: ")
    assert statuses(core.append_batch([message(b"no"), bad])) == [AppendStatus.MESSAGE_ILLEGAL] * 2
    put(core, [message(b"after")])
    assert read_bodies(core) == [b"first", b"last", b"after"]


@pytest.mark.parametrize(
    "field",
    [
        {"flag": (1 << 31) - 1},
        {"flag": -(1 << 31)},
        {"sys_flag": -(1 << 31)},
        {"born_ms": (1 << 63) - 1},
        {"reconsume_times": -(1 << 31)},
        {"prepared_offset": -(1 << 63)},
        {"born_host": bytes(20)},
    ],
    ids=lambda field: "-".join(f"{name}={value!r}" for name, value in field.items()),
)
def test_a_field_at_its_limit_is_stored(field: dict[str, Any]) -> None:
    core = open_core(MemoryStorage())
    put(core, [message(b"one", **field)])
    (record,) = read_queue(core)
    for name, value in field.items():
        assert getattr(record, name) == value


@pytest.mark.parametrize(
    ("body", "properties", "status"),
    [
        pytest.param(100_000, 0, AppendStatus.PUT_OK, id="body at the limit"),
        pytest.param(100_001, 0, AppendStatus.MESSAGE_ILLEGAL, id="body above it"),
        pytest.param(0, 32_767, AppendStatus.PUT_OK, id="properties at the limit"),
        pytest.param(0, 32_768, AppendStatus.PROPERTIES_SIZE_EXCEEDED, id="properties above it"),
        pytest.param(100_001, 32_768, AppendStatus.PROPERTIES_SIZE_EXCEEDED, id="both above"),
    ],
)
def test_the_limits_of_body_and_properties_are_exact(
    body: int, properties: int, status: AppendStatus
) -> None:
    storage = MemoryStorage()
    core = open_core(storage, LARGE)
    new = NewMessage(TOPIC, 0, b"b" * body, b"p" * properties)
    (result,) = core.append([new])
    assert result.status is status
    assert core.append_batch([new])[0].status is status
    if status is AppendStatus.PUT_OK:
        assert [len(record.body) for record in read_queue(core)] == [body, body]
    else:
        assert f"{properties if properties > 32_767 else body} bytes" in result.reason
        assert ("32767" if properties > 32_767 else "100000") in result.reason
        assert core.log.written == 0


@pytest.mark.parametrize("extra", [0, 1])
def test_a_record_must_fit_into_a_segment_with_its_blank(extra: int) -> None:
    core = open_core(MemoryStorage())
    (result,) = core.append([message_of_size(SEGMENT_BYTES - 8 + extra)])
    if extra:
        assert result.status is AppendStatus.MESSAGE_ILLEGAL
        assert f"the record {SEGMENT_BYTES - 7}" in result.reason
        assert str(SEGMENT_BYTES - 8) in result.reason
    else:
        assert result.status is AppendStatus.PUT_OK
        assert len(read_queue(core)) == 1


def test_the_limit_of_a_record_is_64_kib_above_that_of_a_body() -> None:
    config = small_config(segment_bytes=1 << 20, message_bytes_max=1000)
    core = open_core(MemoryStorage(), config)
    results = core.append([NewMessage(TOPIC, 0, b"b" * 1000, b"p" * 32_767)])
    assert statuses(results) == [AppendStatus.PUT_OK]


# --- a full disk ----------------------------------------------------------------------------


def test_messages_that_need_no_new_segment_are_taken_on_a_full_disk() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, [0])
    storage.capacity_bytes = storage.used_bytes
    large, small = message_of_size(SEGMENT_BYTES - 100), message(b"small")
    results = core.append([small, large, small])
    assert statuses(results) == [
        AppendStatus.PUT_OK,
        AppendStatus.CREATE_MAPPED_FILE_FAILED,
        AppendStatus.PUT_OK,
    ]
    assert str(log_path(SEGMENT_BYTES)) in results[1].reason
    assert statuses(core.append_batch([large])) == [AppendStatus.CREATE_MAPPED_FILE_FAILED]
    storage.capacity_bytes = None
    put(core, [large])
    assert read_bodies(core) == [b"body 0", b"small", b"small", large.body]
    assert storage.writes_without_room() == []


def test_a_long_body_that_cannot_be_written_leaves_its_place_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = MemoryStorage()
    core = open_core(storage, LARGE)
    long = message(b"L" * 50_000)
    write_at, calls = MemoryFile.write_at, []

    def fail_once(file: MemoryFile, position: int, parts: Sequence[bytes | memoryview]) -> None:
        calls.append(position)
        if len(calls) == 2:
            raise storage_error("write", file.path, OSError(errno.EIO, "on purpose"))
        write_at(file, position, parts)

    monkeypatch.setattr(MemoryFile, "write_at", fail_once)
    results = core.append([message(b"a"), long, message(b"b"), long, message(b"c")])
    assert statuses(results) == [
        AppendStatus.PUT_OK,
        AppendStatus.PUT_OK,
        AppendStatus.PUT_OK,
        AppendStatus.UNKNOWN_ERROR,
        AppendStatus.PUT_OK,
    ]
    assert f"write {log_path()}" in results[3].reason
    assert read_bodies(core) == [b"a", long.body, b"b", b"c"]
    assert core.dispatcher.dispatched == core.log.written
    core.close()
    assert read_bodies(open_core(storage, LARGE)) == [b"a", long.body, b"b", b"c"]


# --- views ----------------------------------------------------------------------------------


def test_views_of_messages_do_not_change_by_later_appends() -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(5))
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32)
    put_numbered(core, range(5, 200))
    found = [record.body for view in result.records for record in decode_records(view)]
    assert found == numbered_bodies(range(5))


def test_the_store_time_is_the_time_of_the_append() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(), clock=clock)
    for step in range(3):
        clock.ms = START_MS + step
        put_numbered(core, [step])
    assert [record.store_ms for record in read_queue(core)] == [START_MS + n for n in range(3)]


def test_an_index_may_be_turned_off() -> None:
    storage = MemoryStorage()
    core = open_core(storage, small_config(index_enabled=False, index_slots=INDEX_SLOTS))
    put_numbered(core, range(3))
    assert storage.names(ROOT / "index") == []
    assert core.reads.query(TOPIC, "key1", 10, 0, 1 << 62) == []
    assert read_bodies(core) == numbered_bodies(range(3))
