"""How a change of roles is refused. Pure."""

from __future__ import annotations

from typing import NoReturn

from rmq.errors import RefusedError
from rmq.remoting.codes import ResponseCode


def refuse(remark: str) -> NoReturn:
    """Refuse what an operator or another broker has ordered; `remark` tells why."""
    raise RefusedError(ResponseCode.NO_PERMISSION, remark)
