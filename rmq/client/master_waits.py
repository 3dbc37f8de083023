"""Sends that wait for a master: when a broker is none at the moment, and how often it is asked.

While a slave is promoted, its broker name has no master for a moment: the old one answers
SERVICE_NOT_AVAILABLE (14), nameservers list slaves only, or nobody listens at the address. Nothing
is stored in any of these cases, so the same message may be sent again as soon as there is a master.
Pure; the time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.errors import ConnectFailedError, NoRouteError, ResponseError
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from rmq.client.routes import TopicRoute
    from rmq.errors import ClientError

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 0.5
_FORGOTTEN_S: Final = 2.0
"""Who was not waited for so long is waited for in short pauses again."""


class NoMasterError(NoRouteError):
    """Brokers have the topic, and none of them is a master now."""


def may_get_master(error: ClientError, broker_name: str, route: TopicRoute | None) -> bool:
    """Tell whether a message was refused only because its broker is no master at the moment.

    A broker that cannot be reached counts if it has a slave, which may be promoted.
    """
    if isinstance(error, ResponseError):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return (
        isinstance(error, ConnectFailedError | NoRouteError)
        and route is not None
        and route.has_slave(broker_name)
    )


@final
class Pauses:
    """How long to wait before a master is looked for again: not at all, then longer each time."""

    __slots__ = ("_length_s", "_until")

    def __init__(self) -> None:
        self._length_s = 0.0
        self._until = float("-inf")

    def next_s(self, now: float) -> float:
        """Return how long to wait; it starts anew when nobody has waited for a while."""
        if now - self._until > _FORGOTTEN_S:
            length_s = self._length_s = 0.0
        else:
            length_s = self._length_s = min(max(2 * self._length_s, PAUSE_S_MIN), PAUSE_S_MAX)
        self._until = now + length_s
        return length_s
