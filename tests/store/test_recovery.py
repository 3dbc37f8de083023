"""What opening a store makes of its files after every kind of stop, and of files that were damaged.

Each test ends as an operator would want it: all messages are there with their keys and the store
takes more of them, or it is refused with the place and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from rmq.model.offsets import PhysicalOffset
from rmq.store import recovery
from rmq.store.checkpoint import CheckpointTimes, decode_point, encode_point
from rmq.store.core import StoreCore
from rmq.store.layout import QUEUE_ENTRY, RECOVERY_POINT_SLOT_BYTES, RecoveryPoint
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import (
    ROOT,
    SEGMENT_BYTES,
    START_MS,
    TOPIC,
    Clock,
    content,
    fill_segments,
    flip,
    forget_point,
    four_segments,
    index_paths,
    kill,
    log_path,
    message,
    message_of_size,
    numbered_bodies,
    open_core,
    overwrite,
    put,
    put_numbered,
    query_bodies,
    queue_path,
    read_bodies,
    remove_tree,
    save_point,
    small_config,
    stock_stop,
    three_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.store.recovery import Progress

POINT: Final = ROOT / "recovery-point"
QUEUES: Final = ROOT / "consumequeue"
MESSAGES: Final = 150
"""So many that log, queues and index have several files each."""


@dataclass
class Filled:
    """A store with messages in four queues, and what a reader must find in it."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    clock: Clock = field(default_factory=Clock)
    expected: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)

    def fill(self, core: StoreCore) -> None:
        for number in range(MESSAGES):
            self.clock.ms += 1000
            self.put_one(core, number)

    def put_one(self, core: StoreCore, number: int) -> None:
        topic, queue_id = (TOPIC, "TopicB")[number % 2], number // 2 % 2
        new = message(
            number, topic=topic, queue_id=queue_id, unique_key=f"key{number}", tags="TagA"
        )
        (result,) = put(core, [new])
        bodies = self.expected.setdefault((topic, queue_id), [])
        assert result.queue_offset == len(bodies)
        bodies.append(new.body)

    def check(self, core: StoreCore) -> None:
        """See that everything is there, in order, once, and found by its keys."""
        for (topic, queue_id), bodies in self.expected.items():
            assert read_bodies(core, topic, queue_id) == bodies
        for number in range(sum(map(len, self.expected.values()))):
            found = query_bodies(core, f"key{number}", (TOPIC, "TopicB")[number % 2])
            assert found == [b"body %d" % number]

    def open(self) -> StoreCore:
        return open_core(self.storage, clock=self.clock)


def empty_queues(storage: MemoryStorage) -> None:
    """Remove the files of all queues and leave their directories."""
    for name in content(storage, QUEUES):
        storage.delete(QUEUES / name)


# --- ways to stop ---------------------------------------------------------------------------


def clean(filled: Filled, core: StoreCore) -> None:
    core.close()


def stock(filled: Filled, core: StoreCore) -> None:
    stock_stop(core)


def killed(filled: Filled, core: StoreCore) -> None:
    filled.storage = filled.storage.kill()


def killed_after_point(filled: Filled, core: StoreCore) -> None:
    save_point(core)
    filled.storage = filled.storage.kill()


def stock_killed(filled: Filled, core: StoreCore) -> None:
    filled.storage = filled.storage.kill()
    forget_point(filled.storage)


STOPS: Final = [clean, stock, killed, killed_after_point, stock_killed]

DAMAGES: Final[dict[str, Callable[[MemoryStorage], None]]] = {
    "nothing": lambda storage: None,
    "all queues are gone": lambda storage: remove_tree(storage, QUEUES),
    "a topic is gone": lambda storage: remove_tree(storage, QUEUES / TOPIC),
    "a queue is gone": lambda storage: remove_tree(storage, QUEUES / "TopicB" / "1"),
    "queue files are gone": empty_queues,
    "a queue file is gone": lambda storage: storage.delete(queue_path(200)),
    "the last queue file is gone": lambda storage: storage.delete(queue_path(600)),
    "a queue file is short": lambda storage: storage.resize(queue_path(200), 100),
    "a queue file is long": lambda storage: storage.resize(queue_path(200), 400),
    "the last queue file is short": lambda storage: storage.resize(queue_path(600), 30),
    "the index is gone": lambda storage: remove_tree(storage, ROOT / "index"),
    "the last index file is empty": lambda s: s.resize(index_paths(s)[-1], 0),
    "an index count is wrong": lambda s: overwrite(s, index_paths(s)[-1], 36, b"\x7f" * 4),
    "an index slot count is wrong": lambda s: overwrite(s, index_paths(s)[2], 32, b"\x7f" * 4),
    "an index end is wrong": lambda s: overwrite(s, index_paths(s)[-1], 24, b"\x7f"),
    "the checkpoint is gone": lambda storage: storage.delete(ROOT / "checkpoint"),
    "the checkpoint is short": lambda storage: storage.resize(ROOT / "checkpoint", 10),
    "the checkpoint is garbage": lambda s: overwrite(s, ROOT / "checkpoint", 0, b"\xde\xad" * 12),
    "the checkpoint is from the future": lambda s: overwrite(
        s, ROOT / "checkpoint", 0, (2 * START_MS).to_bytes(8) * 3
    ),
    "the checkpoint is zero": lambda s: overwrite(s, ROOT / "checkpoint", 0, bytes(24)),
    "the recovery point is gone": forget_point,
    "the recovery point is garbage": lambda storage: storage.write(POINT, b"\xde\xad" * 2048),
    "the recovery point is short": lambda storage: storage.write(POINT, b"rmqpoint"),
    "abort is there": lambda storage: storage.write(ROOT / "abort", b""),
    "abort is not there": lambda storage: storage.delete(ROOT / "abort"),
}


CASES: Final = [
    pytest.param(stop, damage, id=f"{stop.__name__}: {damage}")
    for stop in STOPS
    for damage in DAMAGES
    # What nobody can tell: a stock broker's store that was stopped cleanly does not say which index
    # files it has, and without its abort file one that was not looks as if it was.
    if (stop, damage)
    not in ((stock, "the last index file is empty"), (stock_killed, "abort is not there"))
]


@pytest.mark.parametrize(("stop", "damage"), CASES)
def test_all_that_can_be_built_again_is(
    stop: Callable[[Filled, StoreCore], None], damage: str
) -> None:
    filled = Filled()
    core = filled.open()
    filled.fill(core)
    stop(filled, core)
    DAMAGES[damage](filled.storage)
    for attempt in range(2):
        core = filled.open()
        filled.check(core)
        filled.put_one(core, MESSAGES + attempt)
        filled.check(core)
        core.close()
        assert filled.storage.writes_without_room() == []
        assert not filled.storage.exists(ROOT / "abort")
    # What was repaired is like what was never damaged.
    final = filled.open()
    assert final.recovery.was_clean
    assert final.recovery.used_point
    assert final.recovery.records_read == 0


# --- power cuts -----------------------------------------------------------------------------


def test_what_a_killed_process_had_not_flushed_is_flushed_by_the_next() -> None:
    """A restart takes over what is in the page cache; a power cut after it must not take that."""
    filled = Filled()
    core = filled.open()
    filled.fill(core)
    assert core.log.flushed == 0
    filled.storage = filled.storage.kill()
    core = filled.open()
    assert core.log.flushed == core.log.written
    filled.storage = filled.storage.crash(lambda _: 0)
    core = filled.open()
    filled.check(core)
    assert core.recovery.used_point
    assert not core.recovery.rebuilt_queues


def test_the_same_holds_for_a_store_that_a_stock_broker_left_behind() -> None:
    filled = Filled()
    core = filled.open()
    filled.fill(core)
    stock_killed(filled, core)
    filled.open()
    filled.storage = filled.storage.crash(lambda _: 0)
    core = filled.open()
    filled.check(core)
    assert not core.recovery.rebuilt_queues


def test_a_point_needs_no_rebuilding_after_a_power_cut() -> None:
    filled = Filled()
    core = filled.open()
    filled.fill(core)
    killed_after_point(filled, core)
    filled.storage = filled.storage.crash(lambda _: 0)
    core = filled.open()
    filled.check(core)
    assert (core.recovery.used_point, core.recovery.rebuilt_queues) == (True, False)
    assert core.recovery.records_read == 0


# --- the end of the log ---------------------------------------------------------------------


@pytest.mark.parametrize("stop", [stock_stop, kill], ids=["stopped", "killed"])
@pytest.mark.parametrize("start", [0, 1, 4, 8, 9, 88, 500, 991, 998, 999])
def test_a_torn_last_record_is_cut_off(start: int, stop: Callable[[StoreCore], None]) -> None:
    storage = three_records(stop)
    # From there on nothing reached the disk. The last two bytes of the record are a length of 0.
    overwrite(storage, log_path(), 2000 + start, bytes(1000 - start))
    core = open_core(storage)
    is_whole = start >= 998
    assert core.log.written == (3000 if is_whole else 2000)
    assert len(read_bodies(core)) == (3 if is_whole else 2)
    assert core.recovery.reason_of_end
    assert storage.read(log_path())[core.log.written :].count(0) == SEGMENT_BYTES - core.log.written
    (result,) = put_numbered(core, [7])
    assert result.queue_offset == len(read_bodies(core)) - 1
    assert query_bodies(core, "key7") == numbered_bodies([7])
    core.close()
    assert read_bodies(open_core(storage))[-1] == b"body 7"


@pytest.mark.parametrize("place", [0, 5, 9, 32, 87, 500, 992], ids=str)
def test_a_bit_flip_in_the_very_last_record_is_taken_for_a_torn_one(place: int) -> None:
    storage = three_records(stock_stop)
    flip(storage, log_path(), 2000 + place, 0x40)
    core = open_core(storage)
    if place == 992:
        # Nothing vouches for the topic: it is a record of another one now.
        assert core.log.written == 3000
    else:
        assert core.log.written == 2000
        assert len(read_bodies(core)) == 2


def test_keys_of_records_that_were_cut_off_do_not_hide_those_in_their_place() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(5))
    stock_stop(core)
    size = core.log.written // 5
    overwrite(storage, log_path(), 2 * size + 20, bytes(3 * size - 20))
    core = open_core(storage)
    assert core.log.written == 2 * size
    put_numbered(core, [2, 30, 40])
    for number in (0, 1, 2, 30, 40):
        assert query_bodies(core, f"key{number}") == [b"body %d" % number]
    for number in (3, 4):
        assert query_bodies(core, f"key{number}") == []


@pytest.mark.parametrize("stop", [stock_stop, StoreCore.close, kill])
def test_bytes_behind_the_end_never_come_to_life(stop: Callable[[StoreCore], None]) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message_of_size(1000) for _ in range(4)])
    stock_stop(core)
    # The second one is torn, and so are its followers: what is left of them looks like records.
    for start in (1000, 2000, 3000):
        flip(storage, log_path(), start + 500)
    core = open_core(storage)
    assert core.log.written == 1000
    put(core, [message_of_size(1000)])
    stop(core)
    flip(storage, log_path(), 2500)
    flip(storage, log_path(), 3500)
    core = open_core(storage)
    assert core.log.written == 2000
    assert len(read_bodies(core)) == 2


def test_a_segment_made_ahead_is_gone_after_a_kill() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(3))
    core.log.create_spare()
    storage = storage.kill()
    assert len(storage.names(ROOT / "commitlog")) == 2
    core = open_core(storage)
    assert storage.names(ROOT / "commitlog") == [log_path().name]
    assert read_bodies(core) == numbered_bodies(range(3))


def test_a_segment_made_ahead_is_used_if_the_one_before_it_is_full() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message_of_size(SEGMENT_BYTES - 8)])
    core.log.roll()
    storage = storage.kill()
    core = open_core(storage)
    assert (core.log.written, len(core.log.segments)) == (SEGMENT_BYTES, 2)
    (result,) = put_numbered(core, [1])
    assert (result.physical_offset, result.queue_offset) == (SEGMENT_BYTES, 1)


@pytest.mark.parametrize("stop", [stock_stop, kill])
def test_a_last_segment_that_is_missing_after_a_blank_is_made_again(
    stop: Callable[[StoreCore], None],
) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    count = fill_segments(core, 2)
    stop(core)
    forget_point(storage)
    storage.delete(log_path(SEGMENT_BYTES))
    core = open_core(storage)
    assert core.log.written == SEGMENT_BYTES
    assert read_bodies(core) == numbered_bodies(range(count - 1))
    (result,) = put_numbered(core, [count])
    assert (result.physical_offset, result.queue_offset) == (SEGMENT_BYTES, count - 1)


# --- recovery points ------------------------------------------------------------------------


def test_a_point_saved_without_its_times_does_not_make_the_one_before_useless() -> None:
    """The power goes between the two writes: either of the points may be used, and holds."""
    filled = Filled()
    core = filled.open()
    filled.fill(core)
    save_point(core)
    at = core.log.written
    filled.clock.ms += 1000
    filled.put_one(core, MESSAGES)
    core.flush()
    plan = core.plan_point()
    assert plan is not None
    plan.points.save(plan.point)
    filled.storage = filled.storage.kill()
    core = filled.open()
    assert core.recovery.used_point
    assert core.recovery.started_at in (at, plan.point.physical_offset)
    filled.check(core)


def test_what_is_left_of_an_entry_after_the_point_is_not_taken_for_one_before_it() -> None:
    storage, count = four_segments(kill)
    position = count * 20 % 200
    # The high bytes of its physical offset did not reach the disk.
    torn = QUEUE_ENTRY.pack(5, 120, 0)
    overwrite(storage, queue_path(count * 20 - position), position, torn)
    core = open_core(storage)
    assert (core.recovery.used_point, core.recovery.rebuilt_queues) == (True, False)
    assert read_bodies(core) == numbered_bodies(range(count))
    (result,) = put_numbered(core, [count])
    assert result.queue_offset == count


@pytest.mark.parametrize("stop", [StoreCore.close, stock_stop], ids=["clean", "stock"])
def test_after_a_clean_stop_only_what_is_new_is_synced(stop: Callable[[StoreCore], None]) -> None:
    storage, count = four_segments(stop)
    core = open_core(storage)
    put_numbered(core, [count])
    plan = core.plan_point()
    assert plan is not None
    ((queue, next_offset, segments),) = plan.queues
    assert (queue.topic, next_offset) == (TOPIC, count + 1)
    assert [segment.end for segment in segments] == [queue.segments.end]
    assert [segment.first for segment in plan.flush.segments] == [3 * SEGMENT_BYTES]


# --- as a stock broker does -----------------------------------------------------------------


def test_after_a_stock_crash_the_checkpoint_says_where_to_begin() -> None:
    storage, clock = MemoryStorage(), Clock()
    core = open_core(storage, small_config(index_enabled=False), clock=clock)
    firsts = []
    count = 0
    while len(core.log.segments) < 6:
        clock.ms += 1000
        (result,) = put_numbered(core, [count])
        count += 1
        if result.physical_offset % SEGMENT_BYTES == 0:
            firsts.append(clock.ms)
    core.release()
    forget_point(storage)
    # 3 s before the older of the two times: the fourth segment began before that.
    times = CheckpointTimes(firsts[3] + 3000, clock.ms, 0)
    overwrite(storage, ROOT / "checkpoint", 0, b"".join(ms.to_bytes(8) for ms in times))
    core = open_core(storage.kill(), small_config(index_enabled=False), clock=clock)
    assert core.recovery.started_at == 3 * SEGMENT_BYTES
    assert read_bodies(core) == numbered_bodies(range(count))
    overwrite(storage, ROOT / "checkpoint", 0, (firsts[3] + 2999).to_bytes(8))
    core = open_core(storage, small_config(index_enabled=False), clock=clock)
    assert core.recovery.started_at == 2 * SEGMENT_BYTES


@pytest.mark.parametrize("whole", [True, False], ids=["a queue is gone", "its end is gone"])
def test_a_hole_found_on_the_way_makes_all_queues_be_built_again(whole: bool) -> None:
    filled = Filled()
    core = filled.open()
    filled.fill(core)
    core.flush()
    plan = core.plan_point()
    assert plan is not None
    plan.run()
    # Without index the recovery begins late, behind the hole.
    stock_killed(filled, core)
    if whole:
        remove_tree(filled.storage, QUEUES / TOPIC / "1")
    else:
        storage = filled.storage
        folder = QUEUES / TOPIC / "1"
        for name in storage.names(folder)[1:]:
            storage.delete(folder / name)
    config = small_config(index_enabled=False)
    core = open_core(filled.storage, config, clock=filled.clock)
    assert core.recovery.rebuilt_queues
    for (topic, queue_id), bodies in filled.expected.items():
        assert read_bodies(core, topic, queue_id) == bodies


@pytest.mark.parametrize("size", [3000, 1 << 30])
def test_a_last_entry_that_goes_beyond_the_log_makes_all_queues_be_built_again(size: int) -> None:
    storage = three_records(stock_stop)
    before = read_bodies(open_core(storage.kill()))
    assert len(before) == 3
    overwrite(storage, queue_path(), 2 * 20 + 8, size.to_bytes(4))
    core = open_core(storage)
    assert core.recovery.rebuilt_queues
    assert read_bodies(core) == before
    put(core, [message(b"next")])
    assert read_bodies(core) == [*before, b"next"]


def test_a_point_that_tells_of_more_index_entries_than_fit_makes_the_index_be_built_again() -> None:
    storage, _ = four_segments(kill)
    for start in (0, RECOVERY_POINT_SLOT_BYTES):
        slot = storage.read(POINT)[start : start + RecoveryPoint.sizeof()]
        decoded = decode_point(slot)
        if decoded is not None:
            sequence, point = decoded
            state = point.index_state._replace(entry_count=1 << 20)
            forged = encode_point(sequence, point._replace(index_state=state))
            overwrite(storage, POINT, start, forged)
    core = open_core(storage)
    assert query_bodies(core, "key3") == [b"body 3"]
    assert core.index is not None
    assert all(file.count <= file.capacity for file in core.index.files)


def test_a_last_index_file_with_an_impossible_header_is_built_again_after_a_clean_stop() -> None:
    storage, _ = four_segments(lambda core: core.close())
    overwrite(storage, index_paths(storage)[-1], 36, (1 << 20).to_bytes(4))
    core = open_core(storage)
    assert query_bodies(core, "key3") == [b"body 3"]
    assert core.index is not None
    assert all(file.is_sound for file in core.index.files)


def test_queues_and_index_of_a_log_that_never_was_are_removed() -> None:
    storage, _ = four_segments(stock_stop)
    remove_tree(storage, ROOT / "commitlog")
    core = open_core(storage)
    assert len(core.queues) == 0
    assert storage.names(QUEUES) == []
    assert index_paths(storage) == []
    (result,) = put_numbered(core, [0])
    assert (result.physical_offset, result.queue_offset) == (0, 0)


# --- others ---------------------------------------------------------------------------------


def test_an_empty_store_stays_empty() -> None:
    storage = MemoryStorage()
    for _ in range(3):
        core = open_core(storage)
        assert (core.log.written, len(core.queues)) == (0, 0)
        core.close()
    assert content(storage, ROOT / "commitlog") == {}


def test_progress_is_shown_while_much_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, count = four_segments(StoreCore.close)
    remove_tree(storage, QUEUES)
    monkeypatch.setattr(recovery, "_PROGRESS_INTERVAL_S", 0.0)
    shown: list[Progress] = []
    StoreCore(small_config(), storage=storage, now_ms=Clock(), on_progress=shown.append)
    assert shown[-1].records == count
    assert shown[-1].total_bytes == 4 * SEGMENT_BYTES
    assert 0 < shown[-1].done_bytes <= shown[-1].total_bytes


def test_the_min_offset_follows_a_log_that_lost_its_beginning_while_closed() -> None:
    storage, count = four_segments(StoreCore.close)
    for first in (0, SEGMENT_BYTES):
        storage.delete(log_path(first))
    core = open_core(storage)
    core.follow_log()
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    first_record = core.reads.record_at(PhysicalOffset(2 * SEGMENT_BYTES))
    assert first_record is not None
    assert queue.min_offset == first_record.queue_offset
    assert read_bodies(core) == numbered_bodies(range(queue.min_offset, count))
