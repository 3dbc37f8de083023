"""Two ways lead to queue entries and index entries, and both give the same files.

The golden stores hold what one broker happened to write. Here messages are drawn, with everything
that makes a difference to dispatch, into files so small that each roll happens again and again.
One store gets them by `append`, which dispatches what it has in hand; others get the log that came
of it as bytes, read it back from behind a transient pool, or find it without queues and index. A
plain reading of the records says what must be in the files.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from rmq.model import flags, record_layout
from rmq.model.java import string_hash
from rmq.model.record import NewMessage, decode_record, pack_host
from rmq.store import layout
from rmq.store.append import JOIN_BYTES_MAX, AppendStatus
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.testing.storage import MemoryStorage
from tests.store.golden.compare import Clock, Place, below, index_contents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmq.model.record import StoredRecord

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
SEGMENT_BYTES: Final = 40_000
ENTRIES_PER_QUEUE_SEGMENT: Final = 3
INDEX_SLOTS: Final = 5
INDEX_CAPACITY: Final = 6
"""Of which one is never used."""

DELAYS_MS: Final = (1000, 5000, 10_000)
START_MS: Final = 1_700_000_000_000

KINDS: Final = (
    flags.TRANSACTION_NONE,
    flags.TRANSACTION_PREPARED,
    flags.TRANSACTION_COMMIT,
    flags.TRANSACTION_ROLLBACK,
)


class SmallPlace(Place):
    """A store in memory whose files hold next to nothing."""

    def __init__(self, *, has_pool: bool = False) -> None:
        super().__init__(MemoryStorage(), Path("/store"))
        self.config = StoreConfig(
            root=self.root,
            segment_bytes=SEGMENT_BYTES,
            queue_segment_bytes=ENTRIES_PER_QUEUE_SEGMENT * layout.QUEUE_ENTRY_BYTES,
            index_slots=INDEX_SLOTS,
            index_entries=INDEX_CAPACITY,
            delay_levels="1s 5s 10s",
            transient_pool_enabled=has_pool,
            transient_pool_size=2,
        )

    def open(self, clock: Clock | None = None) -> StoreCore:
        return StoreCore(self.config, storage=self.storage, now_ms=clock or Clock(START_MS))


# --- messages -------------------------------------------------------------------------------

words = st.one_of(
    st.sampled_from([b"", b"a", b"key", b"TagA", "schlüssel".encode(), "日本".encode()]),
    st.text(max_size=6).map(lambda text: text.encode("utf-8", "replace")),
    # Half a surrogate pair, an overlong form, half a character: Java has its own way with them.
    st.sampled_from([b"\xed\xa0\x80", b"\xc0\xaf", b"\xe6\x97", b"\xff"]),
    st.binary(max_size=4),
)
key_lists = st.lists(words, max_size=12).map(b" ".join)
pairs = st.one_of(
    st.tuples(st.just(b"UNIQ_KEY"), words),
    st.tuples(st.just(b"KEYS"), key_lists),
    st.tuples(st.just(b"TAGS"), words),
    st.tuples(st.just(b"DELAY"), st.sampled_from([b"1", b"2", b"3", b"4", b"0", b"-1", b""])),
    st.tuples(words, words),
)
properties = st.one_of(
    st.lists(pairs.map(b"\x01".join), max_size=6).map(b"\x02".join),
    st.lists(pairs.map(b"\x01".join), max_size=3).map(lambda parts: b"\x02".join([*parts, b""])),
    st.binary(max_size=12),
)
bodies = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"x" * 9000, b"y" * (JOIN_BYTES_MAX + 1)])
)
messages = st.builds(
    NewMessage,
    topic=st.sampled_from(["T", "%RETRY%g", SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC"]),
    queue_id=st.sampled_from([0, 1]),
    body=bodies,
    properties=properties,
    sys_flag=st.sampled_from([*KINDS, flags.TRANSACTION_NONE, flags.TRANSACTION_NONE]),
    born_host=st.sampled_from([pack_host("192.0.2.1", 7), pack_host("2001:db8::1", 7)]),
)
groups = st.tuples(st.sampled_from([0, 1, 999, 1000, 70_000]), st.lists(messages, max_size=5))
histories = st.lists(groups, min_size=1, max_size=10)

History = list[tuple[int, list[NewMessage]]]


def write(core: StoreCore, clock: Clock, history: History) -> Iterator[list[NewMessage]]:
    """Append the messages, each group some time after the one before it, yielding in between."""
    for pause_ms, group in history:
        clock.now_ms += pause_ms
        for result in core.append(group):
            assert result.status is AppendStatus.PUT_OK, result
        yield group


# --- what must be there ---------------------------------------------------------------------


def records_in(files: dict[str, bytes]) -> list[StoredRecord]:
    """Return all records of the log, found by their sizes alone."""
    found: list[StoredRecord] = []
    for segment in below(files, "commitlog").values():
        position = 0
        while size := int.from_bytes(segment[position : position + 4]):
            data = segment[position : position + size]
            if record_layout.RECORD_PREFIX.unpack_from(data)[1] == record_layout.BLANK_MAGIC:
                break
            found.append(decode_record(data))
            position += size
    return found


def expected_entries(records: Sequence[StoredRecord]) -> dict[tuple[str, int], list[bytes]]:
    """Return the entries of each queue by a plain reading of the records."""
    queues: dict[tuple[str, int], list[bytes]] = {}
    for record in records:
        if record.sys_flag & flags.TRANSACTION_MASK in (
            flags.TRANSACTION_PREPARED,
            flags.TRANSACTION_ROLLBACK,
        ):
            assert record.queue_offset == 0
            continue
        entries = queues.setdefault((record.topic, record.queue_id), [])
        assert record.queue_offset == len(entries)
        tags_code = string_hash(record.properties.get("TAGS", ""))
        delay = int(record.properties.get("DELAY", "0"))
        if record.topic == SCHEDULE_TOPIC and delay > 0:
            tags_code = record.store_ms + DELAYS_MS[min(delay, len(DELAYS_MS)) - 1]
        entries.append(layout.QUEUE_ENTRY.pack(record.physical_offset, record.size, tags_code))
    return queues


def expected_keys(records: Sequence[StoredRecord]) -> list[tuple[int, int]]:
    """Return hash and physical offset of all keys in order."""
    keys: list[tuple[int, int]] = []
    for record in records:
        if record.sys_flag & flags.TRANSACTION_MASK == flags.TRANSACTION_ROLLBACK:
            continue
        found = record.properties
        for key in [found.get("UNIQ_KEY", ""), *found.get("KEYS", "").split(" ")]:
            if key:
                code = abs(string_hash(f"{record.topic}#{key}"))
                keys.append((code if code < 1 << 31 else 0, record.physical_offset))
    return keys


def assert_queues_are(
    files: dict[str, bytes], expected: dict[tuple[str, int], list[bytes]]
) -> None:
    found: dict[tuple[str, int], bytes] = {}
    for name, data in below(files, "consumequeue").items():
        _, topic, queue_id, first = name.split("/")
        earlier = found.get((topic, int(queue_id)), b"")
        assert int(first) == len(earlier)
        found[topic, int(queue_id)] = earlier + data
    per_segment = ENTRIES_PER_QUEUE_SEGMENT * layout.QUEUE_ENTRY_BYTES
    assert found == {
        queue: b"".join(entries).ljust(
            -(-len(entries) // ENTRIES_PER_QUEUE_SEGMENT) * per_segment, b"\0"
        )
        for queue, entries in expected.items()
    }


def assert_index_is(files: dict[str, bytes], expected: list[tuple[int, int]]) -> None:
    """Check that the files hold the keys in order, each but the last full, and lead to them."""
    entries_at = layout.INDEX_HEADER_BYTES + INDEX_SLOTS * layout.INDEX_SLOT_BYTES
    contents = index_contents(files)
    found: list[tuple[int, int]] = []
    for number, data in enumerate(contents, 1):
        used = max(layout.IndexHeader.parse(data).entry_count, 1)
        assert used == INDEX_CAPACITY or number == len(contents)
        entries = list(layout.INDEX_ENTRY.iter_unpack(data[entries_at:]))
        found += [(key_hash, physical) for key_hash, physical, _, _ in entries[1:used]]
        slots = layout.INDEX_SLOT.iter_unpack(data[layout.INDEX_HEADER_BYTES : entries_at])
        for slot, (entry,) in enumerate(slots):
            of_slot = [n for n in range(1, used) if entries[n][0] % INDEX_SLOTS == slot]
            chain: list[int] = []
            while entry:
                chain.append(entry)
                entry = entries[entry][3]
            assert chain == of_slot[::-1]
    assert found == expected


# --- the ways -------------------------------------------------------------------------------


def derived(files: dict[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes], list[bytes]]:
    """Return what the ways are compared by; IndexFiles are named by the clock."""
    return below(files, "commitlog"), below(files, "consumequeue"), index_contents(files)


EVERY_KIND: Final[History] = [
    (
        1000,
        [
            NewMessage(
                topic, 0, b"x" * 3000, b"UNIQ_KEY\x01u\x02KEYS\x01a b c\x02DELAY\x012", 0, kind
            )
            for topic in ("T", SCHEDULE_TOPIC)
            for kind in KINDS
        ],
    ),
    (0, [NewMessage("T", 1, b"", b"KEYS\x01" + b" ".join([b"k%d" % n for n in range(20)]))]),
    # "T#jllgvmc" has the one hash that Java's Math.abs leaves negative; the index takes 0 for it.
    (0, [NewMessage("T", 1, b"", b"KEYS\x01jllgvmc")]),
    (0, [NewMessage("T", 1, b"z" * (JOIN_BYTES_MAX + 1), b"TAGS\x01TagA")] * 5),
]
"""All that must be covered whatever is drawn: every kind of message, every roll."""


@settings(max_examples=40)
@example(history=EVERY_KIND, choose=random.Random(1))
@given(history=histories, choose=st.randoms(use_true_random=False))
def test_appending_and_reading_back_give_the_same_files(
    history: History, choose: random.Random
) -> None:
    appended = SmallPlace()
    clock = Clock(START_MS)
    with appended.opened(clock) as core:
        for _ in write(core, clock, history):
            assert core.dispatcher.lag_bytes == 0
        end = int(core.log.written)
    files = appended.files()
    records = records_in(files)
    keys = expected_keys(records)
    assert_queues_are(files, expected_entries(records))
    assert_index_is(files, keys)
    event(f"index files: {min(len(below(files, 'index')), 5)}")
    event(f"segments: {len(below(files, 'commitlog'))}")

    log = b"".join(below(files, "commitlog").values())[:end]
    received = SmallPlace()
    with received.opened() as core:
        while core.log.written < end:
            chunk = log[core.log.written :][: choose.choice([1, 50, 500, 30_000])]
            core.append_raw(core.log.written, chunk)
            while core.dispatcher.catch_up():
                pass
    assert derived(received.files()) == derived(files)

    pooled = SmallPlace(has_pool=True)
    clock = Clock(START_MS)
    with pooled.opened(clock) as core:
        for _ in write(core, clock, history):
            if choose.random() < 0.3:
                core.log.commit()
                core.dispatcher.catch_up()
    assert derived(pooled.files()) == derived(files)

    for name in ("consumequeue", "index"):
        appended.remove(name)
    appended.reopen()
    assert derived(appended.files()) == derived(files)


@pytest.mark.parametrize(
    ("kind", "without_effect"),
    [
        pytest.param(flags.TRANSACTION_NONE, b"TAGS\x01TagA", id="no keys"),
        pytest.param(flags.TRANSACTION_ROLLBACK, b"KEYS\x01a", id="rolled back"),
    ],
)
def test_a_full_index_file_gives_way_to_the_next_record_whatever_it_is(
    kind: int, without_effect: bytes
) -> None:
    place = SmallPlace()
    with place.opened() as core:
        core.append([NewMessage("T", 0, b"", b"KEYS\x01a b c d e")])
        assert len(place.files("index")) == 1
        core.append([NewMessage("T", 0, b"", without_effect, 0, kind)])
    full, bare = index_contents(place.files())
    header = layout.IndexHeader.parse(full)
    assert header.entry_count == INDEX_CAPACITY
    # Nothing is in it but where the one before it ends.
    assert bare == layout.INDEX_HEADER.pack(
        header.end_ms, header.end_ms, header.end_offset, header.end_offset, 0, 0
    ).ljust(len(full), b"\0")
