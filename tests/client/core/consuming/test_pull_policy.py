"""The rules of pulling."""

from __future__ import annotations

import logging

import pytest

from rmq.client.core.consuming.pull_policy import (
    IDLE_PAUSE_S,
    asks_for_pause,
    check_found,
    check_place,
    check_range_place,
    failure_level,
    idle_pause_s,
    moved_text,
)
from rmq.client.core.consuming.pulls import PullParts, PullResult, PullStatus
from rmq.errors import (
    BadAnswerError,
    ClientError,
    ConnectionLostError,
    OffsetOutOfRangeError,
    ResponseError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import PullMessageResponse

QUEUE = MessageQueue(topic="T", broker_name="a", queue_id=3)


def result(status: PullStatus, next_offset: int) -> PullResult:
    return PullResult(status, next_offset, 10, 99, [], 0)


def refusal(code: ResponseCode) -> ResponseError:
    return ResponseError("peer", "PULL_MESSAGE", code, "no")


def test_only_flow_control_asks_for_a_short_pause() -> None:
    assert asks_for_pause(refusal(ResponseCode.FLOW_CONTROL))
    assert not asks_for_pause(refusal(ResponseCode.SYSTEM_BUSY))
    assert not asks_for_pause(ConnectionLostError("peer", "gone"))


def test_a_failure_is_told_once_while_it_stays_the_same() -> None:
    first, other = refusal(ResponseCode.NO_PERMISSION), refusal(ResponseCode.SYSTEM_ERROR)
    assert failure_level(None, first) == logging.WARNING
    assert failure_level(first, refusal(ResponseCode.NO_PERMISSION)) == logging.DEBUG
    assert failure_level(first, other) == logging.WARNING


@pytest.mark.parametrize("status", [PullStatus.NO_NEW, PullStatus.OFFSET_ILLEGAL])
def test_a_queue_that_stays_where_it_is_is_left_alone_if_the_broker_did_not_wait(
    status: PullStatus,
) -> None:
    assert idle_pause_s(7, result(status, 7), 0.01) == IDLE_PAUSE_S
    assert idle_pause_s(7, result(status, 7), 1.0) == 0
    assert idle_pause_s(7, result(status, 8), 0.01) == 0


@pytest.mark.parametrize("next_offset", [-1, 6, 7])
def test_messages_that_lead_nowhere_are_not_believed(next_offset: int) -> None:
    with pytest.raises(
        BadAnswerError, match=f"pulled from offset 7, goes on at offset {next_offset}"
    ):
        check_found("peer", QUEUE, 7, next_offset)
    check_found("peer", QUEUE, 7, 8)


def test_a_place_below_0_is_not_believed() -> None:
    with pytest.raises(BadAnswerError, match="goes on at offset -1"):
        check_place("peer", QUEUE, 7, result(PullStatus.OFFSET_ILLEGAL, -1), is_slave=False)


def test_a_slave_that_lags_behind_moves_nobody_back() -> None:
    moved = result(PullStatus.OFFSET_ILLEGAL, 5)
    with pytest.raises(BadAnswerError, match="ends at offset 5 at a slave"):
        check_place("peer", QUEUE, 7, moved, is_slave=True)
    check_place("peer", QUEUE, 7, moved, is_slave=False)
    assert moved_text("g", QUEUE, 7, moved).endswith(
        "has no offset 7 but 10 to 99, so it is read from 5 on"
    )


@pytest.mark.parametrize(
    ("status", "next_offset", "master_error"),
    [
        (PullStatus.FOUND, 8, None),
        (PullStatus.FOUND, 7, BadAnswerError),
        (PullStatus.NO_MATCH, 9, None),
        (PullStatus.NO_MATCH, 7, BadAnswerError),
        (PullStatus.NO_NEW, 7, OffsetOutOfRangeError),
        (PullStatus.NO_NEW, 50, None),
        (PullStatus.NO_NEW, 100, OffsetOutOfRangeError),
        (PullStatus.OFFSET_ILLEGAL, 50, OffsetOutOfRangeError),
    ],
)
def test_a_pull_of_a_range_brings_it_on_or_fails(
    status: PullStatus, next_offset: int, master_error: type[ClientError] | None
) -> None:
    header = PullMessageResponse(
        suggest_which_broker_id=0, next_begin_offset=next_offset, min_offset=0, max_offset=99
    )
    parts = PullParts(status, header, b"")
    if master_error is None:
        check_range_place("peer", QUEUE, 7, parts, slave_id=None)
    else:
        with pytest.raises(master_error):
            check_range_place("peer", QUEUE, 7, parts, slave_id=None)
    # Of a slave, the master is asked whenever there is doubt.
    if master_error is None and status is not PullStatus.NO_NEW:
        check_range_place("peer", QUEUE, 7, parts, slave_id=1)
    else:
        with pytest.raises(ConnectionLostError, match="slave 1 does not have offset 7"):
            check_range_place("peer", QUEUE, 7, parts, slave_id=1)
