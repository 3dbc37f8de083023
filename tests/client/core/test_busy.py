"""Answers that mean that a broker has too much to do, and answers that do not."""

from __future__ import annotations

import pytest

from rmq.client.core.busy import is_busy
from rmq.errors import (
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
)


def answered(code: int, remark: str | None = None) -> ResponseError:
    return ResponseError("host:1", "PULL_MESSAGE", code, remark)


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (answered(2, "[REJECTREQUEST]system busy, start flow control for a while"), True),
        (answered(2, "[OVERLOAD]system busy, start flow control for a while"), True),
        (answered(2, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"), True),
        (answered(2), True),
        (answered(215, "too many requests"), True),
        (answered(1, "[PC_SYNCHRONIZED]broker busy"), True),
        (answered(1, "UNKNOWN_ERROR"), False),
        (answered(1), False),
        (answered(14, "the disk is full"), False),
        (answered(16, "no permission"), False),
        (answered(17, "no such topic"), False),
        (ConnectionLostError("host:1", "gone"), False),
        (RequestTimeoutError("host:1", "PULL_MESSAGE", 3), False),
    ],
)
def test_what_counts_as_busy(error: ClientError, busy: bool) -> None:
    assert is_busy(error) == busy
    sent = SendFailedError("T", [("a", answered(13)), ("a", error)], may_be_stored=False)
    assert is_busy(sent) == busy
    sent = SendFailedError("T", [("a", error), ("a", answered(13))], may_be_stored=False)
    assert not is_busy(sent), "the last attempt counts"
