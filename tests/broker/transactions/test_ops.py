"""Op messages as a round reads them, and where the next round begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.transactions.check_round import Progress
from rmq.broker.transactions.half import op_message
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.model.offsets import QueueOffset
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage
from tests.broker.transactions.transactions_kit import ROUND_MS, STORE_HOST, Transactions
from tests.store.store_kit import START_MS, small_config

if TYPE_CHECKING:
    from rmq.model.record import StoredRecord


def record_of_op(broker: Transactions) -> StoredRecord:
    broker.roll_back(broker.send())
    (record,) = broker.records(OP_HALF_TOPIC)
    return record


def drop_first_segment(broker: Transactions) -> None:
    """Let the oldest messages expire."""
    broker.core.log.segments.drop_first()
    broker.core.follow_log()


def fill_segment(broker: Transactions) -> None:
    """Append messages of no interest until the log has another segment."""
    segments = len(broker.core.log.segments)
    while len(broker.core.log.segments) == segments:
        broker.put(NewMessage("filler", 0, b"x" * 500))


def test_an_op_message_is_one_of_the_broker_itself() -> None:
    record = record_of_op(Transactions())
    assert (record.topic, record.queue_id) == (OP_HALF_TOPIC, 0)
    assert record.body == b"0"
    assert record.properties == {"WAIT": "true", "TAGS": "d"}
    assert (record.born_ms, record.born_host) == (START_MS, STORE_HOST)
    assert (record.flag, record.sys_flag, record.reconsume_times) == (0, 0, 0)


def test_op_messages_are_kept_from_the_first_one_that_is_needed() -> None:
    broker = Transactions()
    for number in range(4):
        broker.send(b"%d" % number)
    broker.roll_back(3)
    broker.roll_back(0)
    broker.clock.ms += 1
    # The second half message is too young: the op message of the fourth stays.
    broker.check()
    assert broker.progress == Progress(QueueOffset(1), QueueOffset(0))
    broker.roll_back(1)
    broker.roll_back(2)
    broker.check()
    assert broker.progress == Progress(QueueOffset(4), QueueOffset(4))


def test_two_decisions_about_one_message_are_both_done_with_at_once() -> None:
    broker = Transactions()
    for decide in (broker.roll_back, broker.roll_back, broker.commit):
        decide(0) if broker.halves() else decide(broker.send())
    assert broker.ops() == [b"0", b"0", b"0"]
    assert broker.check_later() == (1, 0, 0, 0)
    assert broker.progress == Progress(QueueOffset(1), QueueOffset(3))


@pytest.mark.parametrize(
    ("body", "tags"),
    [
        pytest.param(b"0", "e", id="another tag"),
        pytest.param(b"zero", "d", id="no number"),
        pytest.param(b"-1", "d", id="below zero"),
        pytest.param(b"", "d", id="nothing"),
    ],
)
def test_an_op_message_that_says_nothing_is_passed_over(
    body: bytes, tags: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Transactions()
    broker.put(NewMessage(OP_HALF_TOPIC, 0, body, encode_properties({"TAGS": tags})))
    broker.send(b"a")
    broker.roll_back(broker.send(b"b"))
    assert broker.check_later() == (1, 1, 0, 0)
    assert broker.progress == Progress(QueueOffset(2), QueueOffset(2))
    assert "op message at offset 0 says nothing" in caplog.text


def test_all_op_messages_are_read_before_a_producer_is_asked() -> None:
    broker = Transactions()
    for number in range(200):
        broker.send(b"%d" % number)
    for offset in range(199, -1, -1):
        broker.roll_back(offset)
    assert broker.check_later() == (200, 0, 0, 0)
    assert broker.progress == Progress(QueueOffset(200), QueueOffset(200))
    assert sum(count for topic, count in broker.reads if topic == OP_HALF_TOPIC) == 200


def test_half_messages_that_are_decided_are_hardly_read() -> None:
    broker = Transactions(config=small_config(queue_segment_bytes=100 * 20))
    for number in range(96):
        broker.roll_back(broker.send(b"%d" % number))
    broker.check_later()
    assert sum(count for topic, count in broker.reads if topic == HALF_TOPIC) == 2


# --- progress that does not fit the queues --------------------------------------------------------


def test_a_round_goes_on_where_the_queues_go_on_after_messages_expired(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Transactions(config=small_config())
    for number in range(12):
        broker.send(b"early %d" % number)
        broker.put(op_message(number, START_MS, STORE_HOST))
    fill_segment(broker)
    broker.send(b"late a")
    broker.roll_back(broker.send(b"late b"))
    drop_first_segment(broker)
    broker.clock.ms += ROUND_MS
    broker.check()
    assert [key for key, _ in broker.asked()] == [b"late a".hex()]
    assert broker.progress == Progress(QueueOffset(14), QueueOffset(13))
    assert "there is no half message at offset 0 (OFFSET_TOO_SMALL)" in caplog.text
    assert "there is no op message at offset 0 (OFFSET_TOO_SMALL)" in caplog.text


def test_records_that_are_gone_before_their_entries_are_passed_over() -> None:
    broker = Transactions(config=small_config())
    broker.send(b"early")
    broker.put(op_message(700, START_MS, STORE_HOST))
    fill_segment(broker)
    broker.roll_back(broker.send(b"late"))
    broker.core.log.segments.drop_first()
    assert broker.check_later() == (1, 0, 0, 0)
    assert broker.progress == Progress(QueueOffset(2), QueueOffset(2))


def test_op_messages_that_are_still_needed_are_kept_though_later_ones_are_gone() -> None:
    broker = Transactions(config=small_config())
    broker.send(b"open")
    for number in range(20):
        broker.put(op_message(100 + number, START_MS, STORE_HOST))
    fill_segment(broker)
    broker.clock.ms += 1
    checking = broker.begin()
    # A file of the op queue has ten entries; the half message is too young for more.
    assert not checking.step(broker.clock.ms)
    broker.core.log.segments.drop_first()
    assert not checking.step(broker.clock.ms + ROUND_MS)
    assert checking.counts.asked == 1
    assert checking.progress == Progress(QueueOffset(1), QueueOffset(0))


@pytest.mark.parametrize("queues", ["shorter", "empty", "missing"])
def test_progress_beyond_the_ends_of_the_queues_is_taken_back(queues: str) -> None:
    broker = Transactions()
    if queues == "shorter":
        broker.roll_back(broker.send(b"a"))
    elif queues == "empty":
        broker.core.queues.open(HALF_TOPIC, 0)
        broker.core.queues.open(OP_HALF_TOPIC, 0)
    broker.progress = Progress(QueueOffset(50), QueueOffset(60))
    assert broker.check_later() == (0, 0, 0, 0)
    end = 1 if queues == "shorter" else 0
    assert broker.progress == Progress(QueueOffset(end), QueueOffset(end))
    # From there on nothing is missed.
    broker.send(b"b")
    broker.roll_back(broker.send(b"c"))
    assert broker.check_later() == (1, 1, 0, 0)


def test_a_damaged_half_message_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    broker = Transactions()
    broker.send(b"damaged")
    broker.send(b"sound")
    damage(broker, b"damaged")
    assert broker.check_later() == (0, 1, 0, 0)
    assert broker.asked() == [(b"sound".hex(), 2)]
    assert "half message at offset 0 cannot be read and is skipped: CRC" in caplog.text


def test_a_damaged_op_message_costs_a_question_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Transactions()
    for number in range(12):
        broker.send(b"%d" % number)
    for number in range(12):
        broker.roll_back(number)
    record = broker.records(OP_HALF_TOPIC)[11]
    flip(broker, record.physical_offset + record.size - len("WAIT\x01true\x02TAGS\x01d") - 32)
    assert broker.check_later() == (11, 1, 0, 0)
    assert broker.progress == Progress(QueueOffset(12), QueueOffset(12))
    assert "op messages from offset 10 on cannot be read" in caplog.text


def damage(broker: Transactions, body: bytes) -> None:
    """Change one byte of a body in the log."""
    record = next(each for each in broker.halves() if each.body == body)
    view = broker.core.log.view(record.physical_offset, record.size)
    assert view is not None
    flip(broker, record.physical_offset + bytes(view).index(body))


def flip(broker: Transactions, physical_offset: int) -> None:
    segment = broker.core.log.segments.find(physical_offset)
    assert segment is not None
    segment.buffer[physical_offset - segment.first] ^= 1
