"""Which failed sends are tried again, and when. Pure: the time is an argument.

Brokers of 4.9.8 say in four ways that they have too much to do: code 2 with the remarks
`[REJECTREQUEST]`, `[OVERLOAD]`, `[PCBUSY_CLEAN_QUEUE]` and `[TIMEOUT_CLEAN_QUEUE]`, and code 1 with
`[PC_SYNCHRONIZED]`. Newer ones also have code 215 for it. In all of these nothing was stored. Stock
producers give up at once on code 2; a sink has time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.client.sends import is_retried
from rmq.errors import ClientError, ResponseError, SendFailedError
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from rmq.errors import RmqError

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 5.0

_BUSY_CODES: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)
_BUSY_REMARK: Final = "[PC_SYNCHRONIZED]"


def last_error(error: RmqError) -> RmqError:
    """Return what went wrong at the last attempt of a send."""
    if isinstance(error, SendFailedError) and error.attempts:
        return error.attempts[-1][1]
    return error


def is_busy(error: RmqError) -> bool:
    """Tell whether a broker refused a send because it has too much to do."""
    last = last_error(error)
    if not isinstance(last, ResponseError):
        return False
    if last.code == ResponseCode.SYSTEM_ERROR:
        return (last.remark or "").startswith(_BUSY_REMARK)
    return last.code in _BUSY_CODES


def may_pass(error: RmqError) -> bool:
    """Tell whether a send that failed may succeed at the same queue later."""
    last = last_error(error)
    return isinstance(last, ClientError) and is_retried(last)


@final
class Pause:
    """How long nothing is sent after a refusal: longer each time, until something is taken."""

    def __init__(self) -> None:
        self._length_s = 0.0
        self.until = 0.0
        """When sending goes on."""

    def refused(self, now: float) -> None:
        """Take in a refusal. Those that come while nothing is sent count as one."""
        if now < self.until:
            return
        self._length_s = min(max(2 * self._length_s, PAUSE_S_MIN), PAUSE_S_MAX)
        self.until = now + self._length_s

    def taken(self) -> None:
        """Take in that something was stored."""
        self._length_s = 0.0
