"""Waiting for a master: when a send has to, and how often nameservers are asked meanwhile.

While a slave is promoted, its broker name has no master for a moment: the old one answers
SERVICE_NOT_AVAILABLE (14), nameservers list slaves only, or no process listens at the address.
Nothing is stored in any of these cases, so the same message may be sent again as soon as there is a
master.

A broker that refuses a message may name the master (`rmq.model.named_master`). Nameservers are
asked first, as ever. If they still list no other master, the one that was named is tried, once for
each refusal, and only if the route lists its address under the same broker name, as a slave:
clients talk to it anyway. An address that no nameserver has told is not dialled, for then a peer
that answers for one broker could lead producers, and what they send, anywhere.

Pure; the time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.errors import ConnectFailedError, NoRouteError, ResponseError
from rmq.model.named_master import MASTER_FIELD
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from rmq.client.core.routes import TopicRoute
    from rmq.errors import ClientError
    from rmq.remoting.command import Command

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 0.5
_FORGOTTEN_S: Final = 2.0
"""A topic that no send has waited for in this time gets short pauses again."""


class NoMasterError(NoRouteError):
    """Brokers have the topic, and none of them is a master now."""


class NotMasterError(ResponseError):
    """A broker refused a message because it is no master, and named the master."""

    def __init__(self, peer: str, what: str, code: int, remark: str | None, master: str) -> None:
        super().__init__(peer, what, code, remark)
        self.master_address = master


def refusal(address: str, what: str, answer: Command) -> ResponseError:
    """Return the error for a response that refuses a message."""
    if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
        master = answer.ext_fields.get(MASTER_FIELD)
        if master:
            return NotMasterError(address, what, answer.code, answer.remark, master)
    return ResponseError(address, what, answer.code, answer.remark)


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
class NamedMasters:
    """The masters of a topic that brokers have named when they refused messages."""

    __slots__ = ("_refusals",)

    def __init__(self) -> None:
        self._refusals: dict[str, NotMasterError] = {}

    def note(self, broker_name: str, error: ClientError) -> None:
        """Note a failed attempt; the master counts if the error names one."""
        if isinstance(error, NotMasterError):
            self._refusals[broker_name] = error

    def applied_to(self, route: TopicRoute) -> TopicRoute:
        """Return the route with the masters that were named, as far as they are to be tried.

        It is the same route if there are none. Those that were named until now are forgotten.
        """
        refusals, self._refusals = self._refusals, {}
        for broker_name, error in refusals.items():
            named = error.master_address
            listed = {broker.address for broker in route.brokers_of(broker_name)}
            if named in listed and route.master_of(broker_name) in (None, error.peer):
                route = route.with_master(broker_name, named)
        return route


@final
class Pauses:
    """How long to wait before nameservers are asked for a master again: not at all, then longer
    each time.
    """

    __slots__ = ("_length_s", "_until")

    def __init__(self) -> None:
        self._length_s = 0.0
        self._until = float("-inf")

    def next_s(self, now: float) -> float:
        """Return how long to wait; it starts again from 0 when no send has waited for a while."""
        if now - self._until > _FORGOTTEN_S:
            length_s = self._length_s = 0.0
        else:
            length_s = self._length_s = min(max(2 * self._length_s, PAUSE_S_MIN), PAUSE_S_MAX)
        self._until = now + length_s
        return length_s


@final
class MasterWaits:
    """The topics of a producer whose sends wait for a master.

    All sends of a topic share one wait: nameservers are asked for its route once, when the wait
    ends. A send that finds no master then either begins the next wait, which takes longer.
    """

    __slots__ = ("_pauses", "_topics_max", "_waits")

    def __init__(self, topics_max: int) -> None:
        """The length of the last wait is kept for at most `topics_max` topics."""
        self._topics_max = topics_max
        self._pauses: dict[str, Pauses] = {}
        self._waits: dict[str, tuple[float, NamedMasters]] = {}
        """When each wait ends, and the masters that were named meanwhile."""

    def join(self, topic: str, now: float) -> float:
        """Begin to wait for a master of a topic, or join a wait; return how long it takes."""
        wait = self._waits.get(topic)
        if wait is not None:
            return max(0.0, wait[0] - now)
        pause_s = self._pauses_of(topic).next_s(now)
        self._waits[topic] = now + pause_s, NamedMasters()
        return pause_s

    def note(self, topic: str, broker_name: str, error: ClientError) -> None:
        """Take in how an attempt has failed of a send that waits."""
        self._waits[topic][1].note(broker_name, error)

    def end(self, topic: str, route: TopicRoute | None) -> TopicRoute | None:
        """End a wait; return the route with the masters that were named, if they are to be tried.

        `route` is what nameservers told last, None if nothing is known.
        """
        wait = self._waits.pop(topic, None)
        return route if wait is None or route is None else wait[1].applied_to(route)

    def _pauses_of(self, topic: str) -> Pauses:
        pauses = self._pauses.get(topic)
        if pauses is None:
            if len(self._pauses) >= self._topics_max:
                del self._pauses[next(iter(self._pauses))]
            pauses = self._pauses[topic] = Pauses()
        return pauses
