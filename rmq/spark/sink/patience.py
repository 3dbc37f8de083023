"""Which failed sends are offered again, and when. Pure: the time is an argument.

Stock producers give up at once on a broker that is busy (`rmq.client.core.busy`) and within
milliseconds on one that restarts: an application waits for the answer. A sink has time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.client.core.producing.delivery import is_retried
from rmq.errors import (
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
    TooManyRequestsError,
)
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from rmq.errors import RmqError

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 5.0

_AWAY: Final = (
    ConnectFailedError,
    ConnectionLostError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
    TooManyRequestsError,
)


def last_error(error: RmqError) -> RmqError:
    """Return what went wrong at the last attempt of a send."""
    if isinstance(error, SendFailedError) and error.attempts:
        return error.attempts[-1][1]
    return error


def is_away(error: RmqError) -> bool:
    """Tell whether no broker was there to take a send: one restarts or fails over.

    A broker that starts, stops or is a slave by now answers with code 14.
    """
    last = last_error(error)
    if isinstance(last, ResponseError):
        return last.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return isinstance(last, _AWAY)


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
