"""Rounds of checks: which transactions are asked about, put off, given up, or over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq.broker.transactions.check_round import ROUND_MS_MAX, CheckRules, Progress
from rmq.model.offsets import QueueOffset
from rmq.model.record import decode_record, parse_message_id
from tests.broker.transactions.transactions_kit import (
    BORN_HOST,
    GROUP,
    ROUND_MS,
    RULES,
    STORE_HOST,
    TIMEOUT_MS,
    TOPIC,
    Transactions,
    half_message,
)
from tests.store.store_kit import START_MS


def test_a_round_over_nothing_moves_nothing() -> None:
    broker = Transactions()
    assert broker.check() == (0, 0, 0, 0)
    assert broker.progress == (0, 0)


# --- asking ----------------------------------------------------------------------------------


def test_a_transaction_is_asked_about_when_it_is_old_enough() -> None:
    broker = Transactions()
    broker.send(b"a")
    assert broker.check_later(TIMEOUT_MS - 1) == (0, 0, 0, 0)
    assert broker.check_later(1) == (0, 1, 0, 0)
    assert broker.asked() == [(b"a".hex(), 1)]
    assert broker.progress.half_offset == 1


def test_a_transaction_that_is_too_young_ends_the_round() -> None:
    broker = Transactions()
    broker.send(b"old", age_ms=TIMEOUT_MS)
    broker.send(b"young")
    broker.send(b"old behind it", age_ms=TIMEOUT_MS)
    broker.clock.ms += 1
    assert broker.check() == (0, 1, 0, 0)
    assert broker.progress.half_offset == 1


def test_what_was_stored_since_the_round_began_is_left_for_the_next() -> None:
    broker = Transactions()
    broker.send(b"a", age_ms=ROUND_MS)
    # Old by its birth, but stored in the same millisecond as the round begins.
    assert broker.check() == (0, 0, 0, 0)
    assert broker.check_later(1) == (0, 1, 0, 0)


def test_a_transaction_from_the_future_is_asked_about_at_once() -> None:
    broker = Transactions()
    broker.send(b"a", age_ms=-3_600_000)
    assert broker.check_later(1) == (0, 1, 0, 0)


def test_a_copy_at_the_end_of_the_queue_stands_for_what_was_asked_about() -> None:
    broker = Transactions()
    broker.send(b"a", flag=7, sys_flag=0x301, KEYS="k")
    broker.check_later()
    first, copy = broker.halves()
    assert copy.properties == first.properties | {"TRANSACTION_CHECK_TIMES": "1"}
    assert (copy.body, copy.flag, copy.sys_flag) == (b"a", 7, 0x301)
    assert (copy.born_ms, copy.born_host) == (START_MS, BORN_HOST)
    assert (copy.queue_id, copy.prepared_offset) == (0, 0)
    # The next question is about the copy.
    broker.asked()
    broker.check_later()
    assert broker.asked() == [(b"a".hex(), 2)]
    assert broker.halves()[2].properties["TRANSACTION_CHECK_TIMES"] == "2"


def test_a_question_brings_the_message_as_it_was_sent_at_the_place_of_the_copy() -> None:
    broker = Transactions()
    broker.send(b"a", flag=7, KEYS="k")
    broker.check_later()
    (asked,) = broker.questions
    first, copy = broker.halves()
    header = asked.header
    assert asked.producer_group == GROUP
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, copy.physical_offset)
    assert (header.msg_id, header.transaction_id) == (b"a".hex(), b"a".hex())
    assert header.offset_msg_id is not None
    assert parse_message_id(header.offset_msg_id) == (STORE_HOST, copy.physical_offset)
    assert header.broker_name is None
    record = decode_record(asked.body)
    assert (record.topic, record.queue_id) == (TOPIC, 3)
    assert (record.queue_offset, record.physical_offset) == (1, copy.physical_offset)
    assert (record.store_ms, record.store_host) == (first.store_ms, first.store_host)
    assert (record.body, record.flag, record.born_ms) == (b"a", 7, START_MS)
    assert record.properties == copy.properties | {"WAIT": "false"}


def test_a_transaction_asked_about_in_vain_is_given_up() -> None:
    broker = Transactions()
    broker.rules = RULES._replace(times_max=3)
    broker.send(b"a", flag=7)
    rounds = [broker.check_later() for _ in range(5)]
    assert [(counts.asked, counts.given_up) for counts in rounds] == [
        (1, 0),
        (1, 0),
        (1, 0),
        (0, 1),
        (0, 0),
    ]
    (kept,) = broker.records("TRANS_CHECK_MAX_TIME_TOPIC")
    assert kept.properties_bytes == broker.halves()[3].properties_bytes
    assert kept.properties["TRANSACTION_CHECK_TIMES"] == "3"
    assert (kept.body, kept.flag, kept.born_ms) == (b"a", 7, START_MS)
    assert broker.progress.half_offset == 4


def test_the_last_question_may_still_be_answered() -> None:
    broker = Transactions()
    broker.rules = RULES._replace(times_max=1)
    broker.send(b"a")
    broker.check_later()
    ((_, offset),) = broker.asked()
    broker.commit(offset)
    assert broker.check_later() == (1, 0, 0, 0)
    assert (broker.delivered(), broker.given_up()) == ([b"a"], [])


def test_a_transaction_older_than_messages_are_kept_is_given_up_without_a_question() -> None:
    broker = Transactions()
    broker.rules = RULES._replace(reserved_hours=1)
    broker.send(b"old", age_ms=3_600_000)
    broker.send(b"older", age_ms=3_600_001)
    broker.clock.ms += 1
    # By now the first is older by a millisecond than an hour, too.
    assert broker.check() == (0, 0, 0, 2)
    assert broker.given_up() == [b"old", b"older"]
    assert broker.asked() == []


def test_a_half_message_that_does_not_say_where_it_belongs_is_given_up() -> None:
    broker = Transactions()
    message = half_message(b"lost")
    stray = message.properties.replace(b"REAL_QID\x013", b"REAL_QID\x01x")
    assert stray != message.properties
    broker.put(type(message)(message.topic, 0, b"lost", stray, born_ms=START_MS))
    assert broker.check_later() == (0, 0, 0, 1)
    assert broker.given_up() == [b"lost"]


def test_a_message_without_room_for_the_number_of_questions_is_given_up() -> None:
    broker = Transactions()
    room = 32767 - len(half_message().properties) - len("\x02filler\x01")
    broker.send(b"order", filler="x" * (room - 5))
    broker.send(b"small")
    assert broker.check_later() == (0, 1, 0, 1)
    assert broker.given_up() == [b"order"]


def test_there_is_room_in_the_question_if_there_was_in_the_copy() -> None:
    broker = Transactions()
    used = len(half_message().properties) + len("\x02filler\x01")
    count = len("\x02TRANSACTION_CHECK_TIMES\x011")
    broker.send(b"order", filler="x" * (32767 - used - count))
    assert broker.check_later() == (0, 1, 0, 0)
    (asked,) = broker.questions
    assert len(broker.halves()[1].properties_bytes) == 32767
    assert "WAIT" not in decode_record(asked.body).properties


def test_a_round_waits_for_the_topic_of_what_it_gives_up() -> None:
    broker = Transactions()
    broker.rules = RULES._replace(times_max=0)
    broker.can_give_up = False
    broker.send(b"a")
    broker.clock.ms += ROUND_MS
    checking = broker.begin()
    assert not checking.wants_to_give_up
    assert not checking.step(broker.clock.ms)
    assert checking.wants_to_give_up
    assert checking.progress.half_offset == 0
    checking.can_give_up = True
    assert not checking.step(broker.clock.ms)
    assert checking.progress.half_offset == 1
    assert broker.given_up() == [b"a"]


def test_a_message_that_has_become_too_large_is_left_where_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Transactions()
    broker.send(b"x" * 3000)
    broker.send(b"small")
    broker.core.reconfigure(replace(broker.core.config, message_bytes_max=2048))
    assert broker.check_later() == (0, 1, 0, 1)
    assert broker.given_up() == []
    first = broker.halves()[0]
    assert f"half message {first.message_id} for topic Orders is given up and can" in caplog.text


# --- decisions -------------------------------------------------------------------------------


def test_decided_transactions_are_passed_over() -> None:
    broker = Transactions()
    offsets = [broker.send(b"%d" % number) for number in range(100)]
    for offset in offsets:
        (broker.commit if offset % 3 else broker.roll_back)(offset)
    assert broker.check_later() == (100, 0, 0, 0)
    assert broker.progress == Progress(QueueOffset(100), QueueOffset(100))
    assert broker.delivered() == [b"%d" % number for number in range(100) if number % 3]
    assert broker.asked() == []


def test_only_what_is_not_decided_is_asked_about() -> None:
    broker = Transactions()
    for number in range(100):
        broker.send(b"%d" % number)
    for offset in reversed(range(100)):
        if offset not in (10, 40):
            broker.commit(offset)
    assert broker.check_later() == (98, 2, 0, 0)
    assert broker.asked() == [(b"10".hex(), 100), (b"40".hex(), 101)]
    assert broker.progress == Progress(QueueOffset(100), QueueOffset(98))


def test_a_decided_transaction_is_passed_over_however_young_it_is() -> None:
    broker = Transactions()
    broker.send(b"old", age_ms=TIMEOUT_MS)
    broker.commit(broker.send(b"young"))
    broker.clock.ms += 1
    assert broker.check() == (1, 1, 0, 0)


def test_a_decision_that_comes_while_a_round_is_under_way_counts() -> None:
    broker = Transactions()
    offsets = [broker.send(b"%d" % number) for number in range(50)]
    broker.clock.ms += ROUND_MS
    checking = broker.begin()
    assert checking.step(broker.clock.ms)
    before = {offset for _, offset in broker.asked()}
    assert 0 < len(before) < 50
    broker.commit(offsets[-1])
    while checking.step(broker.clock.ms):
        pass
    assert checking.counts == (1, 49, 0, 0)
    assert b"49".hex() not in {key for key, _ in broker.asked()}


def test_a_decision_about_what_was_sent_closes_the_copy_as_well() -> None:
    broker = Transactions()
    first = broker.send(b"a")
    broker.check_later()
    broker.check_later()
    broker.asked()
    # The local transaction took long; it knows nothing of the questions.
    broker.commit(first)
    assert broker.ops() == [b"2"]
    assert broker.check_later() == (1, 0, 0, 0)
    assert broker.asked() == []
    assert broker.delivered() == [b"a"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 1, 1)])
def test_a_transaction_is_committed_once_whichever_copies_are_committed(
    order: tuple[int, ...],
) -> None:
    broker = Transactions()
    broker.send(b"a")
    broker.check_later()
    broker.check_later()
    for offset in order:
        broker.commit(offset)
    broker.check_later()
    broker.commit(order[0])
    assert broker.delivered() == [b"a"]
    assert broker.check_later() == (0, 0, 0, 0)
    assert broker.progress == Progress(QueueOffset(3), QueueOffset(len(broker.ops())))


def test_a_commit_counts_also_after_a_rollback() -> None:
    broker = Transactions()
    first = broker.send(b"a")
    broker.check_later()
    # Whoever was asked did not see the transaction yet, which goes on and is committed.
    broker.roll_back(1)
    broker.commit(first)
    assert broker.delivered() == [b"a"]
    assert broker.check_later().asked == 0


# --- being left alone for longer ---------------------------------------------------------------


def test_a_transaction_can_ask_to_be_left_alone_for_longer() -> None:
    broker = Transactions()
    broker.send(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="150")
    broker.send(b"other")
    assert broker.check_later() == (0, 1, 1, 0)
    assert broker.check_later() == (0, 1, 1, 0)
    assert broker.check_later() == (0, 2, 0, 0)
    keys = [record.properties["UNIQ_KEY"] for record in broker.halves()]
    assert keys == [text.hex() for text in (b"patient", b"other") * 4]


def test_what_is_put_off_names_the_offset_its_producer_knows() -> None:
    broker = Transactions()
    broker.send(b"other", age_ms=TIMEOUT_MS)
    broker.send(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="150", KEYS="k")
    broker.check_later()
    broker.check_later()
    copies = [each for each in broker.halves() if each.properties["UNIQ_KEY"] == b"patient".hex()]
    assert [each.queue_offset for each in copies] == [1, 3, 5]
    assert [each.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for each in copies] == [
        None,
        "1",
        "1",
    ]
    assert copies[2].properties == copies[0].properties | {"TRAN_PREPARED_QUEUE_OFFSET": "1"}


def test_being_put_off_is_no_question() -> None:
    broker = Transactions()
    broker.rules = RULES._replace(times_max=2)
    broker.send(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    for _ in range(59):
        assert broker.check_later() == (0, 0, 1, 0)
    assert [broker.check_later() for _ in range(3)] == [(0, 1, 0, 0), (0, 1, 0, 0), (0, 0, 0, 1)]


def test_what_was_put_off_is_over_when_its_producer_decides() -> None:
    broker = Transactions()
    first = broker.send(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    for _ in range(3):
        broker.check_later()
    broker.commit(first)
    assert broker.check_later() == (1, 0, 0, 0)
    assert broker.delivered() == [b"patient"]
    assert broker.check_later() == (0, 0, 0, 0)


def test_what_another_broker_put_off_is_over_when_an_op_message_names_the_first_offset() -> None:
    broker = Transactions()
    first = broker.send(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    broker.check_later()
    # As after a restart, and as a stock broker has it: the decision names what was sent.
    broker.copies.forget_below(100)
    broker.commit(first)
    assert broker.ops() == [b"0"]
    assert broker.check_later() == (1, 0, 0, 0)
    assert broker.progress == Progress(QueueOffset(2), QueueOffset(1))


@pytest.mark.parametrize(
    ("seconds", "waits"),
    [
        pytest.param("-1", TIMEOUT_MS, id="minus one is not said"),
        pytest.param("soon", TIMEOUT_MS, id="no number"),
        pytest.param("1", 1_000, id="shorter than usual"),
        pytest.param("0", 0, id="none"),
        pytest.param("-5", 0, id="below zero"),
    ],
)
def test_how_long_a_transaction_wants_to_be_left_alone(seconds: str, waits: int) -> None:
    broker = Transactions()
    broker.send(b"a", CHECK_IMMUNITY_TIME_IN_SECONDS=seconds)
    if waits:
        assert broker.check_later(waits - 1) == (0, 0, 1, 0)
    assert broker.check_later(2).asked == 1


# --- what stands in the way ------------------------------------------------------------------


def test_a_round_ends_after_a_minute_and_the_next_goes_on() -> None:
    broker = Transactions()
    for number in range(40):
        broker.send(b"%d" % number)
    broker.clock.ms += ROUND_MS
    checking = broker.begin()
    assert checking.step(broker.clock.ms)
    assert not checking.step(broker.clock.ms + ROUND_MS_MAX + 1)
    asked = checking.counts.asked
    assert 0 < asked < 40
    assert checking.progress.half_offset == asked


def test_what_the_store_refuses_is_tried_again_in_the_next_round() -> None:
    broker = Transactions()
    broker.send(b"a")
    broker.send(b"b")
    broker.clock.ms += ROUND_MS
    broker.core.set_disk_full(True)
    assert broker.check() == (0, 0, 0, 0)
    assert broker.asked() == []
    broker.core.set_disk_full(False)
    assert broker.check_later() == (0, 2, 0, 0)


@pytest.mark.parametrize(
    ("rules", "alone"),
    [
        pytest.param(RULES, "1", id="asked about"),
        pytest.param(RULES, "3600", id="put off"),
        pytest.param(RULES._replace(times_max=0), "1", id="given up"),
    ],
)
def test_what_the_store_refuses_is_not_passed_over(rules: CheckRules, alone: str) -> None:
    broker = Transactions()
    broker.rules = rules
    broker.send(b"a", CHECK_IMMUNITY_TIME_IN_SECONDS=alone)
    broker.core.set_disk_full(True)
    broker.check_later()
    assert broker.progress == Progress(QueueOffset(0), QueueOffset(0))


def test_what_cannot_be_put_off_is_given_up() -> None:
    broker = Transactions()
    properties = half_message().properties + b"\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x013600"
    room = 32767 - len(properties) - len("\x02filler\x01")
    broker.send(b"order", CHECK_IMMUNITY_TIME_IN_SECONDS="3600", filler="x" * room)
    assert broker.check_later() == (0, 0, 0, 1)
    assert broker.given_up() == [b"order"]
