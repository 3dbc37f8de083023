"""Delayed messages: when they are delivered, and as what."""

from __future__ import annotations

import errno
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rmq.broker.delays.delivery import RETRY_MS
from rmq.errors import StorageError
from rmq.model import flags
from rmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import NewMessage, decode_record, pack_host, tags_code
from tests.broker.delays.delay_kit import QUEUE_ENTRIES, TOPIC, Delays
from tests.broker.send_kit import START_MS
from tests.remoting.server_kit import Logs
from tests.store.golden import stores as golden
from tests.store.running import is_of_log

if TYPE_CHECKING:
    from rmq.model.record import StoredRecord

# --- when ------------------------------------------------------------------------------------


def test_a_message_is_delivered_when_it_is_due_and_not_before() -> None:
    delays = Delays()
    delays.park(b"a", 2)
    assert delays.at(0) == 5_000
    assert delays.at(4_999) == 5_000
    assert delays.delivered() == []
    assert delays.at(5_000) is None
    assert delays.delivered() == [b"a"]
    assert delays.at(10_000) is None
    assert delays.delivered() == [b"a"]


def test_messages_of_a_level_are_delivered_each_at_its_time_and_in_order() -> None:
    delays = Delays()
    for number in range(5):
        delays.clock.ms = START_MS + 100 * number
        delays.park(b"%d" % number, 1)
    for number in range(5):
        next_due = 1_000 + 100 * (number + 1) if number < 4 else None
        assert delays.at(1_000 + 100 * number) == next_due
        assert delays.delivered() == [b"%d" % each for each in range(number + 1)]


def test_levels_do_not_wait_for_each_other() -> None:
    delays = Delays()
    delays.park(b"long", 3)
    delays.park(b"middle", 2)
    delays.park(b"short", 1)
    assert delays.at(0) == 1_000
    assert delays.at(1_000) == 5_000
    assert delays.at(5_000) == 10_000
    assert delays.at(10_000) is None
    assert delays.delivered() == [b"short", b"middle", b"long"]


def test_messages_go_where_they_belong() -> None:
    delays = Delays()
    delays.park(b"a", topic="A", queue_id=3)
    delays.park(b"b", topic="%RETRY%g", queue_id=1)
    delays.at(1_000)
    assert delays.delivered("A", 3) == [b"a"]
    assert delays.delivered("%RETRY%g", 1) == [b"b"]


def test_a_broker_that_was_away_delivers_at_once_what_it_missed() -> None:
    delays = Delays()
    delays.park(b"a", 1)
    delays.park(b"b", 3)
    delays.at(3_600_000)
    assert delays.delivered() == [b"a", b"b"]


def test_a_clock_that_was_set_forward_delivers_what_is_due_by_it() -> None:
    delays = Delays()
    delays.park(b"a", 3)
    assert delays.at(9_000) == 10_000
    assert delays.at(10_000_000) is None
    assert delays.delivered() == [b"a"]


def test_a_clock_that_was_set_back_does_not_delay_more_than_the_level_does() -> None:
    delays = Delays()
    delays.park(b"a", 3)
    # It is due further ahead than any message of the level can be: another clock said so.
    assert delays.at(-1) is None
    assert delays.delivered() == [b"a"]


def test_a_clock_that_was_set_back_a_little_delays_by_that_much() -> None:
    delays = Delays()
    delays.clock.ms = START_MS + 1_000
    delays.park(b"a", 3)
    assert delays.at(1_000) == 11_000
    # Set back by a second, 10 s are still within the level.
    assert delays.at(1_000) == 11_000
    delays.clock.ms = START_MS + 5_000
    assert delays.at(4_000) == 11_000
    assert delays.delivered() == []
    assert delays.at(11_000) is None


def test_messages_stored_after_the_clock_was_set_back_are_due_by_the_new_time() -> None:
    delays = Delays()
    delays.park(b"before", 2)
    delays.clock.ms = START_MS - 3_600_000
    delays.park(b"after", 2)
    assert delays.at(-3_600_000) == -3_595_000
    assert delays.delivered() == [b"before"]
    delays.at(-3_595_000)
    assert delays.delivered() == [b"before", b"after"]


# --- as what ---------------------------------------------------------------------------------


def test_a_delivered_message_is_the_parked_one_in_its_own_queue() -> None:
    delays = Delays()
    delays.park(
        b"body",
        2,
        queue_id=2,
        pairs={"TAGS": "TagA", "KEYS": "k", "UNIQ_KEY": "u", "WAIT": "true"},
        flag=7,
        sys_flag=flags.TRANSACTION_COMMIT | 0x301,
        born_ms=99,
        born_host=pack_host("fd00::7", 3),
        reconsume_times=4,
    )
    (parked,) = delays.records(SCHEDULE_TOPIC, 1)
    delays.at(5_000)
    (record,) = delays.records(TOPIC, 2)
    assert record.properties_bytes == parked.properties_bytes
    assert record.properties["DELAY"] == "2"
    assert (record.body, record.flag, record.sys_flag) == (b"body", 7, parked.sys_flag)
    assert (record.born_ms, record.born_host, record.reconsume_times) == (99, parked.born_host, 4)
    assert record.store_ms == START_MS + 5_000
    queue = delays.core.queues.get(TOPIC, 2)
    assert queue is not None
    entry = queue.entry(QueueOffset(0))
    assert entry is not None
    assert entry[2] == tags_code(b"TagA")


def test_what_a_stock_broker_delivered_is_delivered_alike() -> None:
    records = [decode_record(record.data) for record in golden.records(golden.CLEAN_MASTER)]
    parked = [record for record in records if record.topic == SCHEDULE_TOPIC]
    assert len(parked) == 8

    def delivered_copy(record: StoredRecord) -> StoredRecord:
        """Find what the stock broker made of a parked record."""
        (found,) = (
            each
            for each in records
            if each.topic == record.properties["REAL_TOPIC"]
            and each.properties_bytes == record.properties_bytes
            and each.physical_offset > record.physical_offset
        )
        return found

    delays = Delays(levels="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    for record in parked:
        delays.park_as(
            NewMessage(
                record.topic,
                record.queue_id,
                record.body,
                record.properties_bytes,
                record.flag,
                record.sys_flag,
                record.born_ms,
                record.born_host,
                record.reconsume_times,
            )
        )
    delays.at(7_200_000)
    for record in parked:
        expected = delivered_copy(record)
        (made,) = (
            each
            for each in delays.records(expected.topic, expected.queue_id)
            if each.properties_bytes == expected.properties_bytes
        )
        assert (made.body, made.flag, made.sys_flag, made.born_ms, made.born_host) == (
            expected.body,
            expected.flag,
            expected.sys_flag,
            expected.born_ms,
            expected.born_host,
        )
        assert (made.reconsume_times, made.size) == (expected.reconsume_times, expected.size)


# --- what cannot be delivered ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        pytest.param({}, "does not say where it belongs", id="no topic"),
        pytest.param({"REAL_TOPIC": TOPIC}, "does not say where it belongs", id="no queue"),
        pytest.param(
            {"REAL_TOPIC": TOPIC, "REAL_QID": "-1"}, "does not say where it belongs", id="below 0"
        ),
        pytest.param(
            {"REAL_TOPIC": TOPIC, "REAL_QID": "one"}, "does not say where it belongs", id="text"
        ),
        pytest.param(
            {"REAL_TOPIC": TOPIC, "REAL_QID": "\u0661"}, "does not say where", id="other digits"
        ),
        pytest.param(
            {"REAL_TOPIC": TOPIC, "REAL_QID": "9999999999"}, "cannot be delivered", id="too large"
        ),
        pytest.param({"REAL_TOPIC": "../etc", "REAL_QID": "0"}, "cannot be delivered", id="a path"),
        pytest.param(
            {"REAL_TOPIC": "T" * 128, "REAL_QID": "0"}, "cannot be delivered", id="a long topic"
        ),
        pytest.param({"REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"}, "half a transaction", id="half"),
    ],
)
def test_what_cannot_be_delivered_does_not_hold_up_the_rest(
    pairs: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    delays = Delays()
    delays.park(b"first")
    delays.park_raw(b"bad", 1, **pairs)
    delays.park(b"last")
    assert delays.at(1_000) is None
    assert delays.delivered() == [b"first", b"last"]
    (line,) = Logs(caplog).lines
    assert reason in line
    assert f"physical offset {delays.records(SCHEDULE_TOPIC)[1].physical_offset}" in line
    assert delays.delivery.progress()[1] == (3, 3)


def test_a_message_that_became_too_large_is_left_where_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delays = Delays()
    delays.park(b"x" * 2000)
    delays.park(b"small")

    delays.core.appender.reconfigure(replace(delays.core.config, message_bytes_max=1000))
    delays.at(1_000)
    assert delays.delivered() == [b"small"]
    assert "the body has 2000 bytes" in Logs(caplog).lines[0]


def test_messages_whose_log_is_gone_are_passed_over() -> None:
    delays = Delays(segment_bytes=8 * 1024)
    for number in range(60):
        delays.park(b"%02d" % number + b"x" * 400)
    delays.core.log.segments.detach_first()
    delays.at(1_000)
    delivered = delays.delivered()
    assert 0 < len(delivered) < 60
    assert [int(body[:2]) for body in delivered] == list(range(60 - len(delivered), 60))


def test_a_gap_in_the_queue_is_stepped_over(caplog: pytest.LogCaptureFixture) -> None:
    delays = Delays()
    for number in range(3 * QUEUE_ENTRIES + 1):
        delays.park(b"%d" % number)
    delays.queue().segments.drop_first()
    delays.queue().segments.drop_first()
    delays.at(1_000)
    assert delays.delivered() == [
        b"%d" % number for number in range(2 * QUEUE_ENTRIES, 3 * QUEUE_ENTRIES + 1)
    ]
    assert Logs(caplog).lines == [
        "delay level 1 has no entry at offset 0; it is skipped",
        "delay level 1 has no entry at offset 10; it is skipped",
    ]


def test_messages_that_expired_are_passed_over() -> None:
    delays = Delays()
    for number in range(2 * QUEUE_ENTRIES):
        delays.park(b"%d" % number)
    queue = delays.queue()
    queue.segments.drop_first()
    queue.correct_min_offset(PhysicalOffset(0))
    assert queue.min_offset == QUEUE_ENTRIES
    delays.at(1_000)
    assert delays.delivered() == [b"%d" % n for n in range(QUEUE_ENTRIES, 2 * QUEUE_ENTRIES)]


def test_a_queue_that_begins_again_is_delivered_from_its_beginning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delays = Delays()
    for number in range(5):
        delays.park(b"old %d" % number)
    delays.at(1_000)
    delays.core.plan_deletion([SCHEDULE_TOPIC]).run()
    delays.park(b"new 0")
    delays.park(b"new 1")
    delays.at(2_000)
    assert delays.delivered()[5:] == [b"new 0", b"new 1"]
    assert Logs(caplog).lines == ["delay level 1 was at 5, but its queue has 0 to 2; going on at 0"]


# --- a store that refuses --------------------------------------------------------------------


def test_what_the_store_refuses_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    delays = Delays()
    for number in range(3):
        delays.park(b"%d" % number)
    delays.core.set_disk_full(True)
    caplog.clear()
    for attempt in range(50):
        assert delays.at(1_000 + attempt) == 1_000 + attempt + RETRY_MS
    assert delays.delivered() == []
    assert delays.delivery.progress() == {}
    # An operator reads it once, not ten times a second.
    assert Logs(caplog).lines == ["delivery of delay level 1 is tried again: the disk is full"]
    delays.core.set_disk_full(False)
    assert delays.at(2_000) is None
    assert delays.delivered() == [b"0", b"1", b"2"]
    caplog.clear()
    delays.park(b"3")
    delays.core.set_disk_full(True)
    delays.at(3_000)
    assert "delivery of delay level 1 is tried again: the disk is full" in Logs(caplog).lines


def test_a_message_that_finds_no_room_is_not_overtaken() -> None:
    delays = Delays(segment_bytes=16 * 1024)
    delays.park(b"a" * 10)
    delays.park(b"b" * 6_000)
    delays.park(b"c" * 10)
    # So much is left in the segment that only the large one does not fit.
    assert 1_000 < delays.core.log.room() - 6_000 < 5_000
    delays.clock.ms += 500
    delays.park(b"d" * 4_000)
    assert 1_000 < delays.core.log.room() < 6_000
    delays.core.log.discard_spare()
    with delays.storage.faults.failing("create", errno.ENOSPC, on=is_of_log):
        for attempt in range(5):
            delays.at(1_000 + 100 * attempt)
    assert [body[:1] for body in delays.delivered()] == [b"a"]
    # As a task of the store does after a while.
    delays.core.appender.room_error = None
    delays.at(2_000)
    assert [body[:1] for body in delays.delivered()] == [b"a", b"b", b"c", b"d"]


def test_a_store_that_failed_is_tried_for_ever() -> None:

    delays = Delays()
    delays.park(b"a")
    delays.core.fail(StorageError("sync", "log", "gone"))
    assert delays.at(1_000) == 1_100
    assert delays.at(100_000) == 100_100
    assert delays.delivered() == []


# --- steps and counts ------------------------------------------------------------------------


def test_many_messages_are_delivered_in_steps() -> None:
    delays = Delays(segment_bytes=1 << 20, queue_segment_bytes=20 * 1000)
    for number in range(600):
        delays.park(b"%d" % number, 1 + number % 2)
    delays.clock.ms = START_MS + 60_000
    steps = [0]
    while delays.delivery.deliver() is not None:
        steps.append(len(delays.delivered()))
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 2 * 256
    assert len(delays.delivered()) == 600


def test_large_messages_take_more_steps() -> None:
    delays = Delays(segment_bytes=32 << 20, message_bytes_max=4 << 20)
    for _ in range(6):
        delays.park(b"x" * (2 << 20))
    delays.clock.ms = START_MS + 60_000
    assert delays.delivery.deliver() == delays.clock.ms
    assert len(delays.delivered()) == 2


def test_deliveries_are_counted() -> None:
    delays = Delays()
    for number in range(4):
        delays.park(b"%d" % number, 2)
    written = delays.core.log.written
    delays.at(5_000)
    size = delays.core.log.written - written
    assert (delays.stats.store.put_count, delays.stats.store.put_size) == (4, size)
    delays.stats.sample(START_MS)

    def total(name: str, key: str) -> int:
        view = delays.stats.view(name, key)
        assert view is not None
        assert view.stats_minute is not None
        return view.stats_minute.sum

    assert total("TOPIC_PUT_NUMS", TOPIC) == 4
    assert total("TOPIC_PUT_SIZE", TOPIC) == size
    assert total("BROKER_PUT_NUMS", "c") == 4
    assert total("GROUP_GET_NUMS", f"{SCHEDULE_TOPIC}@SCHEDULE_CONSUMER") == 4
    assert total("QUEUE_GET_NUMS", f"{SCHEDULE_TOPIC}@1@SCHEDULE_CONSUMER") == 4
