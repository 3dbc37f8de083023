"""Which failures are worth another attempt, and when."""

from __future__ import annotations

import pytest

from rmq.errors import (
    ClientClosedError,
    ConnectionLostError,
    IllegalMessageError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    RmqError,
    SendFailedError,
)
from rmq.spark.sink.patience import PAUSE_S_MAX, Pause, is_busy, may_pass


def answered(code: int, remark: str | None = None) -> ResponseError:
    return ResponseError("host:1", "SEND_BATCH_MESSAGE", code, remark)


def failed(*errors: RmqError) -> SendFailedError:
    attempts = [("a", error) for error in errors]
    return SendFailedError("T", attempts, may_be_stored=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "busy", "passes"),
    [
        (answered(2, "[OVERLOAD]system busy"), True, False),
        (answered(215), True, False),
        (answered(1, "[PC_SYNCHRONIZED]broker busy"), True, True),
        (answered(1, "UNKNOWN_ERROR"), False, True),
        (answered(1), False, True),
        (answered(14, "disk full"), False, True),
        (answered(13, "too large"), False, False),
        (ConnectionLostError("host:1", "gone"), False, True),
        (RequestTimeoutError("host:1", "SEND", 3), False, True),
        (NoRouteError("host:1", "T", "no master"), False, True),
        (ClientClosedError("the client"), False, False),
        (IllegalMessageError("no"), False, False),
    ],
)
def test_failures(error: RmqError, busy: bool, passes: bool) -> None:
    assert (is_busy(error), may_pass(error)) == (busy, passes)
    if not isinstance(error, IllegalMessageError):
        # What counts is the last attempt.
        assert is_busy(failed(answered(13), error)) == busy
        assert may_pass(failed(answered(2), error)) == passes


def test_pauses_grow_until_something_is_taken() -> None:
    pause = Pause()
    now = 10.0
    lengths = []
    for _ in range(10):
        pause.refused(now)
        # Refusals of what was under way already are part of the same.
        pause.refused(now + 0.01)
        lengths.append(round(pause.until - now, 3))
        now = pause.until
    assert lengths == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, PAUSE_S_MAX, PAUSE_S_MAX, PAUSE_S_MAX]
    pause.taken()
    pause.refused(now)
    assert pause.until - now == pytest.approx(0.05)
