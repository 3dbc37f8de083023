"""How brokers say that they have too much to do at the moment. Pure.

Brokers of 4.9.8 refuse requests in this way with code 2 and the remarks `[REJECTREQUEST]`,
`[OVERLOAD]`, `[PCBUSY_CLEAN_QUEUE]` and `[TIMEOUT_CLEAN_QUEUE]`, and with code 1 and
`[PC_SYNCHRONIZED]`. Newer brokers also have code 215 for it. Nothing was done in any of these
cases, so the same request may be sent again after a pause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.errors import ResponseError, SendFailedError
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from rmq.errors import ClientError

_BUSY_CODES: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)
_BUSY_REMARK: Final = "[PC_SYNCHRONIZED]"


def is_busy(error: ClientError) -> bool:
    """Tell whether a broker refused a request because it has too much to do.

    Of a send that was tried several times, the last attempt counts.
    """
    last = error
    if isinstance(error, SendFailedError) and error.attempts:
        last = error.attempts[-1][1]
    if not isinstance(last, ResponseError):
        return False
    if last.code == ResponseCode.SYSTEM_ERROR:
        return (last.remark or "").startswith(_BUSY_REMARK)
    return last.code in _BUSY_CODES
