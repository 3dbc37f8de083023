"""What is wrong with replication, in one sentence each, and what to do about it. Pure.

A finding is a problem when messages are less safe than the settings demand, or soon will be: then
the group is not healthy. All others are notes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.cli.ha.members import FENCED, SYNC_MASTER
from rmq.cli.ha.text import count_text, ms_text, offset_text, size_text
from rmq.ha.slave_status import SlaveState
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmq.cli.ha.members import Group, Member
    from rmq.remoting.bodies import HaSlave, HaStatusBody

WRITABLE: Final = "writable"
"""The state of a master that takes messages; any other says why it does not."""
SYNC: Final = "sync"
"""The mode in force in which sends wait for slaves."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that an operator should know."""

    is_problem: bool
    where: str
    """The address of the broker it is about."""
    what: str
    todo: str | None = None


def in_sync_count(status: HaStatusBody) -> int:
    """Return how many distinct slaves are in sync with a master."""
    return len({slave.identity for slave in status.slaves if slave.in_sync})


def connected_count(status: HaStatusBody) -> int:
    """Return how many distinct slaves are connected to a master."""
    return len({slave.identity for slave in status.slaves if slave.connected})


def has_expected(status: HaStatusBody) -> bool:
    """Tell whether an operator has said how many slaves a name has, and they are connected."""
    return 0 <= status.expected <= connected_count(status)


def is_sync_in_force(status: HaStatusBody) -> bool:
    """Tell whether a master is sync; earlier versions report the configured mode only."""
    return (status.in_force == SYNC) if status.in_force else (status.mode == SYNC_MASTER)


def findings(group: Group) -> list[Finding]:
    """Return all there is to say about the brokers of one name, problems first."""
    about_slaves = [finding for slave in group.slaves for finding in findings_of_slave(slave)]
    told = {finding.where for finding in about_slaves if finding.is_problem}
    found = [
        *_of_group(group),
        *(finding for master in group.masters for finding in _of_master(group, master, told)),
        *about_slaves,
    ]
    return sorted(found, key=lambda finding: not finding.is_problem)


def is_healthy(group: Group) -> bool:
    return not any(finding.is_problem for finding in findings(group))


# --- all of a name --------------------------------------------------------------------------------


def _of_group(group: Group) -> Iterator[Finding]:
    masters = group.masters
    # One that is fenced takes no messages, and is a finding of its own.
    masters = tuple(each for each in masters if not each.is_fenced) or masters
    if len(masters) > 1:
        addresses = ", ".join(master.address for master in masters)
        oldest = min(masters, key=lambda each: each.status.epoch if each.status is not None else 0)
        yield Finding(
            True,
            oldest.address,
            f"there are {len(masters)} masters: {addresses}",
            f"make the one of the lower epoch a slave: rmq ha demote -b {oldest.address}",
        )
    is_followed = any(slave.is_following for slave in group.slaves)
    if not masters and not is_followed:
        yield Finding(
            True,
            group.name,
            "has no master: nothing can be sent",
            _promotion_of_best(group) or "start the master",
        )
    yield from _of_listings(group, has_master=bool(masters) or is_followed)


def _of_listings(group: Group, *, has_master: bool) -> Iterator[Finding]:
    """Report nameservers that do not lead clients to the one master."""
    for silent in (each for each in group.listings if each.problem is not None):
        yield Finding(
            False,
            silent.nameserver,
            f"(nameserver) does not answer: {silent.problem}",
            "start it; clients ask another one meanwhile",
        )
    answers = [each for each in group.listings if each.problem is None]
    listed = {each.master for each in answers if each.master is not None}
    without = ", ".join(each.nameserver for each in answers if each.master is None)
    if answers and not listed:
        if has_master:
            yield _unlisted(group, without)
        # Otherwise the missing master is reported already.
    elif len(listed) > 1:
        told = ", ".join(f"{each.nameserver} lists {each.master or 'none'}" for each in answers)
        yield Finding(
            True,
            group.name,
            f"has another master at each nameserver: {told}",
            "the one of the lower epoch is turned away when it registers next, within"
            " registerNameServerPeriod (30 s); if this lasts, make it a slave:"
            " rmq ha demote -b MASTER",
        )
    elif without and listed:
        (master,) = listed
        yield Finding(
            True,
            group.name,
            f"has a master, {master}, that is not listed by {without}: clients that ask there"
            " cannot send",
            f"see in the log of {master} whether it can register there, and whether its namesrvAddr"
            " names all nameservers",
        )


def _unlisted(group: Group, nameservers: str) -> Finding:
    seen = group.as_seen_by_slaves()
    known = [master.address for master in group.masters]
    known += [] if seen is None else [seen.address, seen.ha_address]
    address = next((each for each in known if each), "")
    return Finding(
        True,
        group.name,
        f"has a master, {address}, that is listed by no nameserver ({nameservers}): clients do not"
        " find it and cannot send",
        f"see why it does not register: rmq ha status -b {address}, and its log; its namesrvAddr"
        " has to name these nameservers",
    )


def _promotion_of_best(group: Group) -> str | None:
    """Return how to promote the slave that has most."""
    ends = {slave.address: slave.status.end for slave in group.slaves if slave.status is not None}
    if not ends:
        return None
    best = max(ends, key=lambda address: ends[address])
    return f"start the master; or, if it is lost: rmq ha promote -b {best}"


def _of_silent(group: Group, member: Member) -> Iterator[Finding]:
    if member.is_stock:
        yield Finding(
            False,
            member.address,
            "is not of rmq: it cannot be asked how its replication is going",
            f"mqadmin brokerStatus -b {member.address}",
        )
    else:
        todo = _promotion_of_best(group) if member.is_master else "start it, or see its log"
        yield Finding(True, member.address, f"does not answer: {member.problem}", todo)


# --- masters --------------------------------------------------------------------------------------


def _of_master(group: Group, member: Member, told: set[str]) -> Iterator[Finding]:
    status = member.status
    if status is None:
        yield from _of_silent(group, member)
        return
    if status.state != WRITABLE and status.state != Refusal.TOO_FEW_SLAVES.value:
        # Too few slaves are reported with their number, below.
        why = f" ({status.last_error})" if status.last_error else ""
        todo = _MASTER_STATES.get(status.state, "see its log")
        yield Finding(
            True,
            member.address,
            f"takes no messages: {status.state}{why}",
            todo.format(master=member.address, name=status.broker_name),
        )
    if status.state != FENCED:
        yield from _of_guarantee(member, status)
        if status.waits_for:
            yield Finding(
                True,
                member.address,
                "has not recorded yet by what rule it answers sends, so they have to satisfy the"
                f" old and the new one: {status.waits_for}",
                "see that its slaves and most of its nameservers run and can be reached from it;"
                " it goes on by itself",
            )
    connected = {slave.address for slave in status.slaves if slave.connected}
    # The slaves of a master that was replaced are those of another one by now.
    for slave in status.slaves if status.state != FENCED else ():
        if slave.address in told or (not slave.connected and slave.address in connected):
            # It reports itself what is wrong, or came back with another store.
            continue
        yield from _of_slave_seen(member, slave)
    yield from _of_counters(member.address, status.counters)
    if status.last_error and status.state == WRITABLE:
        yield Finding(False, member.address, f"last error: {status.last_error}")
    if status.has_secret is False:
        yield Finding(
            False,
            member.address,
            "has no haSecret: any host that can connect to"
            f" {status.ha_address or 'its port for slaves'} gets all messages and can"
            " count as a slave without storing any",
            "set haSecret on all brokers of the name; see docs/ha.md, Securing the link",
        )


def _of_guarantee(member: Member, status: HaStatusBody) -> Iterator[Finding]:
    count, is_sync = in_sync_count(status), is_sync_in_force(status)
    give_up = f"or stop waiting for slaves: rmq ha switch async -b {member.address}"
    if is_sync and count < status.minimum:
        yield Finding(
            True,
            member.address,
            f"refuses messages: {count_text(count, 'slave')} in sync,"
            f" minInSyncReplicas is {status.minimum}",
            f"bring slaves back; {give_up}",
        )
    elif is_sync and count < status.needed:
        yield Finding(
            True,
            member.address,
            f"stores messages, but answers SLAVE_NOT_AVAILABLE: {count_text(count, 'slave')} in"
            f" sync, {status.needed} needed",
            f"bring slaves back; {give_up}",
        )
    elif not connected_count(status) and status.expected:
        yield Finding(
            True,
            member.address,
            "no slave is connected: what it stores is nowhere else",
            "start a slave (brokerRole=SLAVE, same brokerName), or see why it cannot connect:"
            " rmq ha status -b SLAVE; if it is meant to be alone: expectedSlaves=0",
        )
    yield from _of_expected(member, status)


def _of_expected(member: Member, status: HaStatusBody) -> Iterator[Finding]:
    """Compare the slaves there are with those that the operator wants."""
    connected, expected = connected_count(status), status.expected
    if 0 < connected < expected or (not connected and expected > 1):
        yield Finding(
            True,
            member.address,
            f"has {count_text(connected, 'slave')} connected, and is to have {expected}"
            " (expectedSlaves)",
            "start the missing ones, or see why they cannot connect; if that many are meant to be:"
            f" expectedSlaves={connected}",
        )
    elif 0 <= expected < connected:
        yield Finding(
            False,
            member.address,
            f"has {count_text(connected, 'slave')} connected, more than expectedSlaves={expected}",
        )


def _of_slave_seen(master: Member, slave: HaSlave) -> Iterator[Finding]:
    if not slave.connected:
        ago = f" for {ms_text(slave.heard_ms_ago)}" if slave.heard_ms_ago >= 0 else ""
        why = f": {slave.why}" if slave.why else ""
        look = f"rmq ha status -b {slave.address}" if slave.native else "see its log"
        yield Finding(
            not (master.status is not None and has_expected(master.status)),
            slave.address,
            f"(slave {slave.name}) is gone{ago}{why}",
            f"{look}; if it was taken out for good: rmq ha forget -b {master.address} --slave"
            f" {slave.address}",
        )
    elif not slave.in_sync:
        behind = size_text(slave.lag_bytes) if slave.lag_bytes >= 0 else "an unknown size"
        why = f" ({slave.why})" if slave.why else ""
        yield Finding(
            True,
            slave.address,
            f"(slave {slave.name}) is not in sync: {behind} behind{why}",
            f"see whether it catches up: rmq ha status -b {master.address} --watch 2",
        )


_MASTER_STATES: Final[Mapping[str, str]] = {
    FENCED: (
        "let it follow the new master: rmq ha demote -b {master}; to find it:"
        " rmq ha status -n NAMESERVER --name {name}; if there is none, make this one master again:"
        " rmq ha promote -b {master}"
    ),
    Refusal.STARTING.value: "wait: it asks the nameservers whether it is still the master",
    Refusal.HANDING_OVER.value: "wait: a change of roles is under way",
    Refusal.DISK_FULL.value: "make room on its disk",
    Refusal.FAILED.value: "see its log for what failed, repair that, and restart it",
    Refusal.DISPATCH.value: "see its log, and make room on its disk or repair it",
}

_COUNTED: Final = (
    (
        "forged",
        "report",
        "claimed bytes that were never sent, and counted for nothing",
        "something that is no slave talks to the port for slaves: see the log, and close it with"
        " haAllowedAddresses or haSecret",
    ),
    (
        "refused",
        "connection",
        "to the port for slaves refused",
        "see the log for addresses and reasons",
    ),
    ("timeouts", "send", "not confirmed by slaves in time (FLUSH_SLAVE_TIMEOUT)", None),
    ("unavailable", "send", "without enough slaves in sync (SLAVE_NOT_AVAILABLE)", None),
)


def _of_counters(address: str, counters: Mapping[str, int]) -> Iterator[Finding]:
    for key, thing, what, todo in _COUNTED:
        count = counters.get(key, 0)
        if count:
            yield Finding(
                False, address, f"since its start: {count_text(count, thing)} {what}", todo
            )


# --- slaves ---------------------------------------------------------------------------------------


def findings_of_slave(member: Member) -> Iterator[Finding]:
    """Return what a slave says about itself."""
    status = member.status
    if status is None:
        yield Finding(
            not member.is_stock,
            member.address,
            "is not of rmq: only its master knows how far it is"
            if member.is_stock
            else f"does not answer: {member.problem}",
            None if member.is_stock else "start it, or see its log",
        )
        return
    state, master = status.state, status.master
    if member.is_following and master is not None and (master.in_sync or not master.native):
        # Only a master of ours says whether it counts a slave.
        if status.last_error:
            yield Finding(False, member.address, f"last error: {status.last_error}")
        return
    what, todo = _SLAVE_STATES.get(state, (f"is {state or 'in no known state'}", "see its log"))
    lag = ""
    if master is not None and master.lag_bytes > 0:
        lag = f", {size_text(master.lag_bytes)} behind"
    why = f": {status.last_error}" if status.last_error else ""
    master_address = master.address if master is not None else ""
    yield Finding(
        True,
        member.address,
        f"{what}{lag}{why}",
        todo.format(
            slave=member.address, master=master_address or "MASTER", end=offset_text(status.end)
        ),
    )


_SLAVE_STATES: Final[Mapping[str, tuple[str, str]]] = {
    SlaveState.IDLE.value: (
        "knows no master",
        "set haMasterAddress, or see whether the master is registered at the nameservers",
    ),
    SlaveState.CONNECTING.value: (
        "is not connected to its master",
        "see whether the master runs and its port for slaves (listenPort + 1) can be reached",
    ),
    SlaveState.STREAMING.value: (
        "is not in sync yet",
        "wait; watch it: rmq ha status -b {slave} --watch 2",
    ),
    SlaveState.CATCHING_UP.value: (
        "is catching up and not in sync yet",
        "wait; watch it: rmq ha status -b {slave} --watch 2",
    ),
    SlaveState.RESEEDING.value: (
        "copies the log again from the start, because its master no longer has what it lacks",
        "wait; watch it: rmq ha status -b {slave} --watch 2",
    ),
    SlaveState.OUTRUN.value: (
        "has stopped, because its master no longer has what it lacks and cannot prove to be its"
        " master without haSecret",
        "if it is its master, let it copy the log again (the old one is moved aside): rmq ha"
        " resync -b {slave}",
    ),
    SlaveState.DIVERGED.value: (
        "has DIVERGED from its master and follows it no longer",
        "see what would be cut off: rmq ha resync -b {slave} --dry-run",
    ),
    SlaveState.STALE.value: (
        "was asked to follow a master of an older epoch, and does not",
        "make that one a slave: rmq ha demote -b {master}; or promote the one that is to stay",
    ),
    SlaveState.REFUSED.value: (
        "was turned away by its master",
        "compare haSecret, brokerClusterName, brokerName and mappedFileSizeCommitLog of both",
    ),
    SlaveState.FAILED.value: (
        "cannot write its log",
        "make room or repair its disk; it goes on by itself from offset {end}",
    ),
}
