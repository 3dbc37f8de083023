"""Consumer offsets of a broker whose log was cut: what is behind the cut goes back with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.broker.tables.offsets_body import SharedOffsets
from rmq.broker.transactions.half import GROUP as CHECKER
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.model.offsets import ConsumerOffset, PhysicalOffset, QueueOffset
from tests.broker.tables.table_kit import Clock
from tests.remoting.server_kit import Logs

if TYPE_CHECKING:
    from collections.abc import Callable

HOST: Final = "192.0.2.1:50000"


def end_at(end: int) -> Callable[[str, int], QueueOffset]:
    return lambda _topic, _queue: QueueOffset(end)


def check(offsets: ConsumerOffsets, half: int, op: int, log_end: int) -> None:
    """Note that a round of transaction checks has come so far."""
    offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(half))
    offsets.commit(HOST, CHECKER, OP_HALF_TOPIC, 0, ConsumerOffset(op))
    offsets.progress_rests_on(PhysicalOffset(log_end))


def checked(offsets: ConsumerOffsets) -> tuple[int, int]:
    return offsets.query(CHECKER, HALF_TOPIC, 0), offsets.query(CHECKER, OP_HALF_TOPIC, 0)


def saved(offsets: ConsumerOffsets) -> ConsumerOffsets:
    """Return what the next process reads."""
    again = ConsumerOffsets(Clock())
    again.load(offsets.render())
    return again


def test_offsets_go_back_to_the_ends_of_the_queues() -> None:
    offsets = ConsumerOffsets(Clock())
    for queue_id, offset in ((0, 9), (1, 3), (2, 5)):
        offsets.commit(HOST, "g", "T", queue_id, ConsumerOffset(offset))
    changes = offsets.changes
    offsets.set_back(PhysicalOffset(1_000), end_at(5))
    assert offsets.offsets("g", "T") == {0: 5, 1: 3, 2: 5}
    assert offsets.changes != changes
    # It is no reset: what the master says next counts, whatever number a reset of it has.
    assert SharedOffsets.decode(offsets.encode()).resets == {}


def test_a_reset_of_the_master_is_followed_after_a_cut() -> None:
    master, slave = ConsumerOffsets(Clock()), ConsumerOffsets(Clock())
    master.commit(HOST, "g", "T", 0, ConsumerOffset(4))
    master.reset(HOST, "g", "T", 0, ConsumerOffset(2))
    slave.commit(HOST, "g", "T", 0, ConsumerOffset(9))
    slave.set_back(PhysicalOffset(1_000), end_at(5))
    slave.merge(SharedOffsets.decode(master.encode()))
    assert slave.query("g", "T", 0) == 2


@pytest.mark.parametrize("is_restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize(
    ("log_end", "left"),
    [
        pytest.param(3_000, (7, 3), id="all is left"),
        pytest.param(2_999, (5, 1), id="the last round is gone"),
        pytest.param(2_000, (5, 1), id="at its end"),
        pytest.param(1_000, (2, 0), id="two rounds are gone"),
        pytest.param(999, (-1, -1), id="nothing is left"),
    ],
)
def test_checks_whose_outcome_is_gone_are_made_again(
    is_restarted: bool, log_end: int, left: tuple[int, int]
) -> None:
    """Though the queues go as far as before: copies are behind them."""
    offsets = ConsumerOffsets(Clock())
    for half, op, end in ((2, 0, 1_000), (5, 1, 2_000), (7, 3, 3_000)):
        check(offsets, half, op, end)
    if is_restarted:
        offsets = saved(offsets)
    offsets.set_back(PhysicalOffset(log_end), end_at(100))
    assert checked(offsets) == left
    assert checked(saved(offsets)) == left
    # It goes on from there.
    check(offsets, 6, 2, 5_000)
    offsets.set_back(PhysicalOffset(4_000), end_at(100))
    assert checked(offsets) == left


def test_without_a_word_of_what_they_rest_on_no_checks_are_left() -> None:
    offsets = ConsumerOffsets(Clock())
    offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(5))
    offsets.set_back(PhysicalOffset(1_000), end_at(100))
    assert checked(offsets) == (-1, -1)


def test_checks_in_a_stock_file_rest_on_the_log_it_was_found_with() -> None:
    offsets = ConsumerOffsets(Clock())
    offsets.load(f'{{"offsetTable":{{"{HALF_TOPIC}@{CHECKER}":{{0:5}}}}}}')
    offsets.begin_trail(PhysicalOffset(1_000))
    offsets.begin_trail(PhysicalOffset(9_000))
    check(offsets, 7, 0, 2_000)
    offsets.set_back(PhysicalOffset(1_500), end_at(100))
    assert checked(offsets) == (5, -1)


def test_what_checks_rest_on_is_in_the_file_and_told_to_nobody() -> None:
    offsets = ConsumerOffsets(Clock())
    offsets.begin_trail(PhysicalOffset(1_000))
    assert "trail" not in offsets.render(), "without transactions it is that of a stock broker"
    check(offsets, 2, 1, 1_000)
    assert offsets.render().endswith('\n\t},\n\t"trail":{\n\t\t1000:{0:2,1:1}\n\t}\n}')
    assert b"trail" not in offsets.encode()


def test_it_is_said_that_transactions_are_checked_again(caplog: pytest.LogCaptureFixture) -> None:
    offsets = ConsumerOffsets(Clock())
    check(offsets, 2, 0, 1_000)
    check(offsets, 7, 0, 2_000)
    offsets.set_back(PhysicalOffset(1_000), end_at(100))
    assert Logs(caplog).lines == [
        "transactions are checked again from half message 2 on, not from 7: the log was cut"
    ]
