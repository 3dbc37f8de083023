"""Which failures are worth another attempt, and when."""

from __future__ import annotations

import pytest

from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    IllegalMessageError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    RmqError,
    SendFailedError,
    TooManyRequestsError,
)
from rmq.spark.sink.patience import PAUSE_S_MAX, Pause, is_away, may_pass


def answered(code: int, remark: str | None = None) -> ResponseError:
    return ResponseError("host:1", "SEND_BATCH_MESSAGE", code, remark)


def failed(*errors: ClientError) -> SendFailedError:
    return SendFailedError("T", [("a", error) for error in errors], may_be_stored=False)


@pytest.mark.parametrize(
    ("error", "away", "passes"),
    [
        (answered(2, "[OVERLOAD]system busy"), False, False),
        (answered(1, "UNKNOWN_ERROR"), False, True),
        (answered(1), False, True),
        (answered(14, "the broker is a slave"), True, True),
        (answered(13, "too large"), False, False),
        (answered(16, "no permission"), False, True),
        (answered(17, "no such topic"), False, True),
        (ConnectFailedError("host:1", "refused"), True, True),
        (ConnectionLostError("host:1", "gone"), True, True),
        (RequestTimeoutError("host:1", "SEND", 3), True, True),
        (TooManyRequestsError("host:1", "SEND", 3), True, True),
        (NoRouteError("host:1", "T", "no master"), True, True),
        (NoNameserverError("SEND", {"host:2": "refused"}), True, True),
        (BadAnswerError("host:1", "SEND", "no header"), False, True),
        (ClientClosedError("the client"), False, False),
        (IllegalMessageError("no"), False, False),
    ],
)
def test_failures(error: RmqError, away: bool, passes: bool) -> None:
    assert (is_away(error), may_pass(error)) == (away, passes)
    if isinstance(error, ClientError):
        # What counts is the last attempt.
        assert is_away(failed(answered(13), error)) == away
        assert may_pass(failed(answered(2), error)) == passes
        assert not is_away(failed(error, answered(13)))


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
