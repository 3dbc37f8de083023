"""Finds the brokers that `rmq ha` is to ask, and asks them.

A broker is named by its address, or all brokers of a name are found through a nameserver. The
status of a broker, or why there is none, is a `Member`; the members of one name are a `Group`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.cli.common.usage import UsageError
from rmq.cli.ha.client import NotAllowedError, StockBrokerError
from rmq.errors import ClientError, RmqError
from rmq.ha.slave_status import SlaveState
from rmq.model.names import NAMESERVERS_VARIABLE
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from rmq.cli.ha.client import HaClient
    from rmq.remoting.bodies import ClusterInfo, HaMaster, HaSlave, HaStatusBody

MASTER: Final = "MASTER"
SLAVE: Final = "SLAVE"
SYNC_MASTER: Final = "SYNC_MASTER"
ASYNC_MASTER: Final = "ASYNC_MASTER"
FOLLOWING: Final = (SlaveState.STREAMING.value, SlaveState.CATCHING_UP.value)
"""The states of a slave that is connected to its master."""
REMEMBERED_S: Final = 2.0
"""How long a broker that is listed nowhere, but remembered, may take to answer."""
FENCED: Final = Refusal.FENCED.value
"""The state of a master that was deposed."""


class NotFoundError(RmqError):
    """There is no such broker."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which brokers are meant."""

    broker: str | None = None
    """The address of one."""
    nameservers: tuple[str, ...] = ()
    name: str | None = None
    """All of this name; None means all of all names."""

    @classmethod
    def of(cls, args: Namespace, environ: Mapping[str, str] = os.environ) -> Target:
        """Read the options `-b`, `-n` and `--name`; raise `UsageError`."""
        if args.broker is not None:
            if args.nameservers is not None or args.name is not None:
                raise UsageError("-b names one broker; leave out -n and --name")
            return cls(broker=args.broker)
        text = (
            args.nameservers
            if args.nameservers is not None
            else environ.get(NAMESERVERS_VARIABLE, "")
        )
        nameservers = tuple(part.strip() for part in text.split(";") if part.strip())
        if not nameservers:
            raise UsageError("which broker? give -b HOST:PORT, or -n NAMESERVER --name BROKER")
        return cls(nameservers=nameservers, name=args.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One broker, and its status."""

    address: str
    broker_id: int | None = None
    """As a nameserver knows it; 0 is the master."""
    status: HaStatusBody | None = None
    is_stock: bool = False
    """It answers, but is not of rmq."""
    stock_end: int | None = None
    """Where its log ends, if it is not of rmq and answers that."""
    problem: str | None = None
    """Why there is no answer."""

    @property
    def is_master(self) -> bool:
        """Whether it reports to be; of a silent or stock broker, what a nameserver says."""
        if self.status is not None:
            return self.status.role == MASTER
        return self.broker_id == 0

    @property
    def is_fenced(self) -> bool:
        """Whether it is a master that was deposed, and takes no messages."""
        return self.status is not None and self.is_master and self.status.state == FENCED

    @property
    def is_following(self) -> bool:
        """Whether it is a slave that is connected to its master."""
        return self.status is not None and self.status.state in FOLLOWING


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which broker one nameserver lists as master of a name."""

    nameserver: str
    master: str | None = None
    """None: it lists none, or does not answer."""
    problem: str | None = None
    """Why there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The brokers of one name, the master first."""

    name: str
    cluster: str
    members: tuple[Member, ...]
    listings: tuple[Listing, ...] = ()
    """The answers of all nameservers that were asked; none if a broker was given by address."""

    @property
    def masters(self) -> tuple[Member, ...]:
        """The members that report to be master."""
        return tuple(member for member in self.members if member.is_master)

    @property
    def slaves(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if not member.is_master)

    def as_seen_by_master(self, slave: HaStatusBody) -> HaSlave | None:
        """Return what a master of the group says about one of its slaves."""
        for master in self.masters:
            for seen in master.status.slaves if master.status is not None else ():
                if seen.identity == slave.replica or (
                    seen.native and seen.address == slave.address
                ):
                    return seen
        return None

    def as_seen_by_slaves(self) -> HaMaster | None:
        """Return what a slave says about its master; one that follows it knows best."""
        for slave in sorted(self.slaves, key=lambda slave: not slave.is_following):
            seen = slave.status.master if slave.status is not None else None
            if seen is not None and (seen.address or seen.ha_address):
                return seen
        return None

    def label(self, member: Member) -> str:
        """Return a readable name of a member: `broker-a:1`."""
        broker_id = member.status.broker_id if member.status is not None else member.broker_id
        return self.name if broker_id is None else f"{self.name}:{broker_id}"


async def ask_member(client: HaClient, address: str, broker_id: int | None = None) -> Member:
    """Ask a broker for its status; one that does not answer is a member with a problem.

    Raises `NotAllowedError`: a broker that refuses this account is well, as far as is known.
    """
    try:
        return Member(address=address, broker_id=broker_id, status=await client.status(address))
    except StockBrokerError:
        try:
            end = await client.log_end_of_stock(address)
        except RmqError as exc:
            return Member(address=address, broker_id=broker_id, is_stock=True, problem=exc.text)
        return Member(address=address, broker_id=broker_id, is_stock=True, stock_end=end)
    except NotAllowedError:
        raise
    except RmqError as exc:
        return Member(address=address, broker_id=broker_id, problem=exc.text)


async def _ask_members(client: HaClient, addresses: Mapping[str, int | None]) -> list[Member]:
    """Do what `ask_member` does for all of these at once; they are given by address."""
    found: dict[str, Member] = {}
    refusals: list[NotAllowedError] = []

    async def ask(address: str, broker_id: int | None) -> None:
        try:
            found[address] = await ask_member(client, address, broker_id)
        except NotAllowedError as exc:
            refusals.append(exc)

    async with trio.open_nursery() as nursery:
        for address, broker_id in addresses.items():
            nursery.start_soon(ask, address, broker_id)
    if refusals:
        raise refusals[0]
    return [found[address] for address in addresses]


async def ask_group(
    client: HaClient,
    name: str,
    cluster: str,
    addresses: Mapping[str, int],
    listings: tuple[Listing, ...] = (),
) -> Group:
    """Ask all brokers of a name at once; they are given by address, with their ids."""
    found = await _ask_members(client, addresses)
    found.sort(key=lambda member: (not member.is_master, addresses[member.address], member.address))
    return Group(name=name, cluster=cluster, members=tuple(found), listings=listings)


async def find_groups(
    client: HaClient, target: Target, *, with_neighbours: bool = False
) -> list[Group]:
    """Ask all brokers that are meant.

    A broker named by its address must answer: raises `ClientError`. Others may be down. With
    neighbours, the master that a slave follows and the slaves of a named master are asked, too, if
    they can be reached from here.
    """
    if target.broker is not None:
        status = await client.status(target.broker)
        named = Member(address=target.broker, status=status)
        members = [named]
        if with_neighbours:
            members += await _ask_neighbours(client, named)
        members.sort(key=lambda member: not member.is_master)
        group = Group(name=status.broker_name, cluster=status.cluster_name, members=tuple(members))
        return [await _with_fenced(client, group) if with_neighbours else group]
    told = await _ask_nameservers(client, target.nameservers)
    known = sorted(
        {name for info in told.answers.values() if info for name in info.broker_addr_table}
    )
    if target.name is not None and target.name not in known:
        raise NotFoundError(
            f"nameserver {';'.join(target.nameservers)} knows no broker {target.name}",
            hint=f"it knows: {', '.join(known) or 'none'}",
        )
    groups: list[Group] = []
    for name in known if target.name is None else (target.name,):
        group = await _ask_listed(client, name, told)
        if with_neighbours and not group.masters:
            group = await _with_master(client, group)
        if with_neighbours:
            group = await _with_fenced(client, group)
        groups.append(group)
    if not groups:
        raise NotFoundError(
            f"nameserver {';'.join(target.nameservers)} knows no broker",
            hint="is a broker up, and is this nameserver in its namesrvAddr?",
        )
    return groups


class _Told(NamedTuple):
    """The answers of nameservers."""

    answers: Mapping[str, ClusterInfo | None]
    """By address, in the order in which they are named; None: nothing."""
    problems: Mapping[str, str]


async def _ask_nameservers(client: HaClient, nameservers: Sequence[str]) -> _Told:
    """Ask all nameservers at once; raise the first one's `ClientError` if none answers."""
    told: dict[str, ClusterInfo | None] = dict.fromkeys(nameservers)
    problems: dict[str, ClientError] = {}

    async def ask(nameserver: str) -> None:
        try:
            told[nameserver] = await client.cluster([nameserver])
        except ClientError as exc:
            problems[nameserver] = exc

    async with trio.open_nursery() as nursery:
        for nameserver in told:
            nursery.start_soon(ask, nameserver)
    if len(problems) == len(told):
        raise problems[nameservers[0]]
    return _Told(told, {address: exc.text for address, exc in problems.items()})


async def _ask_listed(client: HaClient, name: str, told: _Told) -> Group:
    """Ask all brokers of a name that any nameserver lists."""
    cluster = ""
    addresses: dict[str, int] = {}
    listings: list[Listing] = []
    for nameserver, info in told.answers.items():
        data = None if info is None else info.broker_addr_table.get(name)
        listed = {} if data is None else data.broker_addrs
        if data is not None:
            cluster = cluster or data.cluster or ""
        for broker_id, address in listed.items():
            addresses[address] = min(broker_id, addresses.get(address, broker_id))
        listings.append(
            Listing(
                nameserver=nameserver,
                master=listed.get(0),
                problem=told.problems.get(nameserver),
            )
        )
    return await ask_group(client, name, cluster, addresses, tuple(listings))


async def _with_master(client: HaClient, group: Group) -> Group:
    """Ask the master that slaves follow and no nameserver lists, if it can be reached."""
    seen = group.as_seen_by_slaves()
    if seen is None or not seen.address or any(m.address == seen.address for m in group.members):
        return group
    master = await ask_member(client, seen.address, 0)
    if master.status is None or master.status.broker_name != group.name or not master.is_master:
        return group
    return replace(group, members=(master, *group.members))


async def _with_fenced(client: HaClient, group: Group) -> Group:
    """Ask the brokers that members remember: a fenced master is listed by no nameserver.

    Those that are gone for good keep the answer waiting for no longer than `REMEMBERED_S`.
    """
    asked = {member.address for member in group.members}
    asked.update(member.status.address for member in group.members if member.status is not None)
    remembered: dict[str, int | None] = {}
    for member in group.members:
        status = member.status
        if status is None:
            continue
        addresses = [*status.former_masters]
        addresses += (slave.address for slave in status.slaves if slave.native)
        if status.master is not None and status.master.native:
            addresses.append(status.master.address)
        remembered.update(dict.fromkeys(each for each in addresses if each))
    found: list[Member] = []

    async def ask(address: str) -> None:
        # One that refuses this account is none of those that are asked for.
        with trio.move_on_after(REMEMBERED_S), suppress(NotAllowedError):
            found.append(await ask_member(client, address))

    async with trio.open_nursery() as nursery:
        for address in remembered:
            if address not in asked:
                nursery.start_soon(ask, address)
    fenced = [
        each
        for each in found
        if each.is_fenced and each.status is not None and each.status.broker_name == group.name
    ]
    fenced.sort(key=lambda each: each.address)
    return replace(group, members=(*group.members, *fenced)) if fenced else group


async def _ask_neighbours(client: HaClient, named: Member) -> list[Member]:
    """Ask the brokers that a broker names; one that does not answer is known by that name only."""
    status = named.status
    assert status is not None, "only a broker that answers has neighbours"
    addresses: dict[str, int | None]
    addresses = {slave.address: None for slave in status.slaves if slave.native}
    if status.master is not None and status.master.address:
        addresses = {status.master.address: 0}
    addresses.pop(named.address, None)
    addresses.pop(status.address, None)
    return [
        member
        for member in await _ask_members(client, addresses)
        if member.is_stock
        or (member.status is not None and member.status.broker_name == status.broker_name)
    ]


async def find_one(client: HaClient, target: Target, role: str) -> Member:
    """Return the broker that an order is for: the one named, or the only one of its role.

    A master that is named and was deposed passes for a slave: it may be promoted again.
    """
    groups = await find_groups(client, target)
    word = "master" if role == MASTER else "slave"
    found = [
        member
        for group in groups
        for member in group.members
        if member.is_master == (role == MASTER) or (target.broker is not None and member.is_fenced)
    ]
    if target.broker is not None and not found:
        other = "slave" if role == MASTER else "master"
        raise NotFoundError(
            f"the broker at {target.broker} is a {other}; this is for a {word}",
            hint=_where_else(groups[0].members[0], role),
        )
    if len(found) != 1:
        raise NotFoundError(
            f"there is {'more than one' if found else 'no'} {word}"
            + (f": {', '.join(each.address for each in found)}" if found else ""),
            hint="name one with -b HOST:PORT",
        )
    if found[0].status is None:
        raise NotFoundError(
            f"the {word} {found[0].address} gives no status:"
            f" {found[0].problem or 'it is not of rmq'}"
        )
    return found[0]


def _where_else(member: Member, role: str) -> str | None:
    status = member.status
    if status is None:
        return None
    addresses: Sequence[str]
    if role == MASTER:
        addresses = [status.master.address] if status.master is not None else []
    else:
        addresses = [slave.address for slave in status.slaves if slave.native]
    known = [address for address in addresses if address]
    return f"its {'master' if role == MASTER else 'slaves'}: {', '.join(known)}" if known else None
