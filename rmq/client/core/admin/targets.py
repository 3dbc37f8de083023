"""Which brokers an admin call goes to, and how their results are merged. Pure.

A call for a cluster or a topic goes to one broker of every name: changes to the master, reads to a
slave if the master does not answer. Brokers that fail are named in the result of reads, and in the
error of changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

from rmq.client.core.routes import Address, note_reader, read_first
from rmq.errors import BrokersFailedError, ClientError, ConfigError, NoBrokerError, ResponseError
from rmq.model.names import MASTER_ID
from rmq.remoting.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.slave_reads import SlaveReads
    from rmq.remoting.bodies import ClusterInfo

T = TypeVar("T")

TIMEOUT_S: Final = 5.0
"""How long a broker may take for an admin call, as in 4.9.8."""
SLOW_S: Final = 15.0
"""Likewise, for calls that go through much, or are handed on to consumers."""

Group: TypeAlias = Sequence[Address]
"""The brokers of one name, the master first."""


class Failure(NamedTuple):
    """A broker that did not do its part, and why."""

    broker: Address
    error: ClientError

    def __str__(self) -> str:
        return f"{who(self.broker)}: {self.error}"


class Tried(NamedTuple, Generic[T]):
    """What several brokers answered."""

    answers: tuple[tuple[Address, T], ...]
    failures: tuple[Failure, ...]


def who(broker: Address) -> str:
    """Return a broker as texts name it."""
    if not broker.address:
        return broker.broker_name
    return f"{broker.broker_name} at {broker.address}" if broker.broker_name else broker.address


# --- who is asked -----------------------------------------------------------------------------


def groups_of(brokers: Iterable[Address]) -> list[Group]:
    """Return brokers by name, each name's in the order of their ids."""
    groups: dict[str, list[Address]] = {}
    for broker in sorted(brokers):
        groups.setdefault(broker.broker_name, []).append(broker)
    return list(groups.values())


def cluster_groups(info: ClusterInfo, cluster: str | None) -> list[Group]:
    """Return the brokers of a cluster, or of all clusters; raise `NoBrokerError`."""
    if cluster is None:
        names = set(info.broker_addr_table)
    elif cluster in info.cluster_addr_table:
        names = set(info.cluster_addr_table[cluster])
    else:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise NoBrokerError(f"cluster {cluster}", f"nameservers know {known}")
    return groups_of(
        Address(name, number, address)
        for name in names
        if name in info.broker_addr_table
        for number, address in info.broker_addr_table[name].broker_addrs.items()
    )


def only_cluster(info: ClusterInfo) -> str:
    """Return the one cluster there is; raise `NoBrokerError` if there are several or none."""
    names = sorted(info.cluster_addr_table)
    if len(names) == 1:
        return names[0]
    reason = f"there are {', '.join(names)}" if names else "nameservers know no broker"
    raise NoBrokerError("the cluster", reason, hint="say which cluster, or which broker")


def groups_for(
    nameservers: Nameservers, *, cluster: str | None, broker: str | None
) -> Flow[list[Group]]:
    """Return whom a call is for: a broker, a cluster, or the only cluster if neither is given."""
    if cluster is not None and broker is not None:
        raise ConfigError("cluster", f"{cluster} is given, and broker {broker}, too: which one?")
    if broker is not None:
        return [[(yield from find_broker(nameservers, broker))]]
    info = yield from nameservers.cluster()
    return cluster_groups(info, only_cluster(info) if cluster is None else cluster)


def find_broker(nameservers: Nameservers, broker: str) -> Flow[Address]:
    """Return a broker by its address, or the master by its name; raise `NoBrokerError`."""
    first, *_ = yield from find_brokers(nameservers, broker)
    if first.broker_id != MASTER_ID:
        raise NoBrokerError(f"broker {broker}", "it has no master now")
    return first


def find_brokers(nameservers: Nameservers, broker: str) -> Flow[Group]:
    """Return a broker by its address, or all brokers of a name; raise `NoBrokerError`."""
    if ":" in broker:
        parse_address(broker)
        # Whether it is a master it says itself, should that matter.
        return [Address("", MASTER_ID, broker)]
    info = yield from nameservers.cluster()
    data = info.broker_addr_table.get(broker)
    if data is None or not data.broker_addrs:
        known = ", ".join(sorted(info.broker_addr_table)) or "none"
        raise NoBrokerError(f"broker {broker}", f"nameservers know {known}")
    return [Address(broker, number, at) for number, at in sorted(data.broker_addrs.items())]


def read_broker(
    nameservers: Nameservers, broker: str, call: Callable[[Address], Flow[T]]
) -> Flow[T]:
    """Call a broker by its address, or one of a name: a slave if its master cannot be reached."""
    brokers = yield from find_brokers(nameservers, broker)
    return (yield from read_first(brokers, call, nameservers.slave_reads))


# --- asking all of them -----------------------------------------------------------------------


def read_each(
    what: str,
    groups: Iterable[Group],
    call: Callable[[Address], Flow[T]],
    reads: SlaveReads | None = None,
) -> Flow[Tried[T]]:
    """Call one broker of each name, a slave if its master does not answer.

    `reads` is told of that. Raises `BrokersFailedError` if none of them answers.
    """
    answers: list[tuple[Address, T]] = []
    failures: list[Failure] = []
    for group in groups:
        failure: Failure | None = None
        for broker in group:
            try:
                answers.append((broker, (yield from call(broker))))
            except ResponseError as exc:
                # It answered, and its slaves know no better.
                failure = failure or Failure(broker, exc)
                break
            except ClientError as exc:
                failure = failure or Failure(broker, exc)
            else:
                failure = None
                if reads is not None:
                    note_reader(group, broker, reads)
                break
        if failure is not None:
            failures.append(failure)
    if failures and not answers:
        raise failed(what, failures, ())
    return Tried(tuple(answers), tuple(failures))


def change_each(
    what: str, groups: Iterable[Group], call: Callable[[Address], Flow[T]]
) -> Flow[tuple[tuple[Address, T], ...]]:
    """Call the master of each name; raise `BrokersFailedError` when all were called."""

    def call_master(broker: Address) -> Flow[T]:
        if broker.broker_id != MASTER_ID:
            raise NoBrokerError(f"broker {broker.broker_name}", "it has no master now")
        return (yield from call(broker))

    return change_all(what, [group[0] for group in groups], call_master)


def change_all(
    what: str, brokers: Iterable[Address], call: Callable[[Address], Flow[T]]
) -> Flow[tuple[tuple[Address, T], ...]]:
    """Call all of these; raise `BrokersFailedError` when all were called."""
    answers: list[tuple[Address, T]] = []
    failures: list[Failure] = []
    for broker in brokers:
        try:
            answers.append((broker, (yield from call(broker))))
        except ClientError as exc:
            failures.append(Failure(broker, exc))
    if failures:
        raise failed(what, failures, [broker for broker, _ in answers])
    return tuple(answers)


def failed(
    what: str, failures: Iterable[Failure], done: Iterable[Address] = ()
) -> BrokersFailedError:
    """Return what several brokers failed with as one error."""
    return BrokersFailedError(
        what, [(who(broker), error) for broker, error in failures], [who(one) for one in done]
    )
