"""Registrations of brokers: their values, limits, results and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, NoReturn, TypeVar

from rmq.errors import RefusedError
from rmq.nameserver.names import problem_of_name, shown
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Sequence

    from rmq.remoting.bodies.topics import TopicConfig

C = TypeVar("C", bound="Hashable")
"""A connection, of which only the identity matters."""

_NAMES_PER_STEP: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLimits:
    """Limits of the route table; a registration that would exceed one is refused as a whole.

    Generous: they keep one broken or hostile peer from using all memory.
    """

    addresses_max: int = 10_000
    """Broker addresses alive at a time, and broker names."""
    queue_entries_max: int = 2_000_000
    """Topics counted once for each broker name that has them."""
    filter_servers_max: int = 1_000
    """Filter servers of one broker."""
    name_chars_max: int = 1_024
    """Length of a topic, broker name, cluster or address."""
    ids_max: int = 256
    """Addresses of one broker name."""
    names_max: int = 16
    """Broker names of one address; more than one only while a broker is renamed."""
    clusters_max: int = 16
    """Clusters of one broker name, the same."""

    def admit(self, said: Registration) -> Generator[None, None, tuple[Registration, int]]:
        """Return a registration, and how many topics were left out of it because of their names.

        Raise `RefusedError` for other names that are missing, too long or contain control
        characters, and for too many of them. It is no reason to refuse a broker that one of its
        clients made it create a topic with an odd name.
        """
        for what, name in (
            ("brokerName", said.broker_name),
            ("brokerAddr", said.address),
            ("clusterName", said.cluster),
        ):
            if not name:
                refuse(f"{what} is empty")
        if said.epoch < 0:
            refuse(f"epoch {said.epoch}")
        filter_servers = said.filter_servers or ()
        if len(filter_servers) > self.filter_servers_max:
            refuse(f"{len(filter_servers)} filter servers; the limit is {self.filter_servers_max}")
        for name in (
            said.broker_name,
            said.address,
            said.cluster,
            said.ha_address,
            *filter_servers,
        ):
            problem = problem_of_name(name, self.name_chars_max)
            if problem is not None:
                refuse(f"{shown(name)!r} {problem}")
        good: list[TopicConfig] = []
        for number, topic in enumerate(said.topics, start=1):
            name = topic.topic_name
            if name and problem_of_name(name, self.name_chars_max) is None:
                good.append(topic)
            if number % _NAMES_PER_STEP == 0:
                yield
        left_out = len(said.topics) - len(good)
        return (replace(said, topics=good) if left_out else said), left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One registration, as the broker sent it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Sequence[TopicConfig] = ()
    filter_servers: tuple[str, ...] | None = None
    """None (from old brokers) leaves the known ones unchanged."""
    epoch: int = 0
    """The epoch of the broker; 0 for a stock broker."""


class Master(NamedTuple):
    """Where the master of a broker name is, for its slaves."""

    address: str
    ha_address: str


class Registered(NamedTuple):
    """Result of a registration."""

    is_new: bool
    """The address was not known before."""
    topics_changed: int
    master: Master | None
    """Set for slaves only."""
    epoch: int = 0
    """The latest confirmed epoch of a master of this name; 0 if only stock ones were seen."""
    deposed: str | None = None
    """The address of the master that was replaced by one of a later epoch."""
    left_out: int = 0
    """How many topics were not listed because of their names."""


class Expired(NamedTuple, Generic[C]):
    """A broker that was silent for too long."""

    address: str
    silent_s: float
    connection: C | None
    """Its connection, unless another broker uses it, too."""


class StaleEpochError(RefusedError):
    """The registering master was replaced by one of a later epoch."""

    def __init__(self, said: Registration, epoch: int, present: str) -> None:
        """`present` is the part of the remark that names the later epoch."""
        super().__init__(
            ResponseCode.STALE_EPOCH,
            f"registration refused: {said.address} was master of {said.broker_name} in epoch"
            f" {said.epoch}, {present}",
        )
        self.epoch = epoch


class LeapError(RefusedError):
    """The epoch of a registering master is too far ahead of the known one to be believed yet.

    It has no code of its own: the broker tries again, and no broker is fenced by it.
    """

    def __init__(self, said: Registration, known: int) -> None:
        super().__init__(
            ResponseCode.SYSTEM_ERROR,
            f"registration refused: {said.address} says that it is master of {said.broker_name} in"
            f" epoch {said.epoch}, and the last one that this nameserver knows was of epoch"
            f" {known}; it is taken when the in-sync record of that epoch is kept here, which a"
            " master brings by itself",
        )


def refuse(remark: str) -> NoReturn:
    """Refuse a registration as a whole."""
    raise RefusedError(ResponseCode.SYSTEM_ERROR, f"registration refused: {remark}")
