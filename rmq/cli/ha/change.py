"""What `rmq ha switch|promote|demote|resync` do: query, show what will happen, send the request.

Each change is two steps, `plan_...` and the request itself, so that a question can be asked in
between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.ha.client import BrokerRefusedError
from rmq.cli.ha.health import WRITABLE, findings_of_slave, in_sync_count
from rmq.cli.ha.members import (
    ASYNC_MASTER,
    FOLLOWING,
    MASTER,
    SLAVE,
    SYNC_MASTER,
    Member,
    ask_member,
    find_one,
)
from rmq.cli.ha.text import count_text, ms_text, offset_text, size_text
from rmq.errors import ClientError, RmqError
from rmq.ha.slave_status import SlaveState

if TYPE_CHECKING:
    from rmq.cli.ha.client import HaClient
    from rmq.cli.ha.members import Target
    from rmq.remoting.bodies import HaDemoteBody, HaPromoteBody, HaResyncBody, HaStatusBody

MODES: Final = {"sync": SYNC_MASTER, "async": ASYNC_MASTER}
"""The modes, and the `brokerRole` of each."""
POLL_S: Final = 0.1
SWITCH_S: Final = 10.0
DEMOTED_S: Final = 3.0
"""How long a new slave may take to find a master, before it is reported to have none."""
FOLLOW_S: Final = 30.0
"""How long a slave may take to follow again after its log was cut."""

_UNDECIDED: Final = (SlaveState.IDLE.value, SlaveState.CONNECTING.value, "changing role")


class NotNowError(RmqError):
    """The change would do harm as things are."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def status_of(member: Member) -> HaStatusBody:
    """Return the status of a member that `find_one` has found."""
    assert member.status is not None, f"{member.address} has no status"
    return member.status


def mode_word(role: str) -> str:
    """Return `sync` or `async` for a `brokerRole`."""
    return {role: word for word, role in MODES.items()}.get(role, role)


def in_force(status: HaStatusBody) -> str:
    """Return the mode by which a master answers sends; earlier versions report only `mode`."""
    return status.in_force or mode_word(status.mode)


# --- switch -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Switched:
    """A master in the mode that was wanted."""

    address: str
    status: HaStatusBody
    was_already: bool
    remark: str | None

    def lines(self) -> list[str]:
        mode, offset = mode_word(self.status.mode), offset_text(self.status.mode_offset)
        if self.was_already:
            return [f"{self.address} is {mode} already, from offset {offset} on"]
        if self.status.mode == SYNC_MASTER:
            slaves = count_text(self.status.needed, "slave")
            rule = f"is answered when the master and {slaves} in sync hold it"
        else:
            rule = "is answered when the master holds it"
        lines = [f"{self.address} is {mode} from offset {offset} on: what is sent now {rule}"]
        return [*lines, f"note: {self.remark}"] if self.remark else lines


async def switch(client: HaClient, target: Target, word: str, *, force: bool) -> Switched:
    """Change what sends wait for, and wait until it is so."""
    member = await find_one(client, target, MASTER)
    status, wanted = status_of(member), MODES[word]
    if status.mode == wanted and in_force(status) == word:
        return Switched(member.address, status, was_already=True, remark=None)
    count = in_sync_count(status)
    if wanted == SYNC_MASTER and count < status.needed and not force:
        raise NotNowError(
            f"{member.address} has {count_text(count, 'slave')} in sync and needs"
            f" {status.needed}: every send would be answered SLAVE_NOT_AVAILABLE",
            hint=f"see what is missing with `rmq ha status -b {member.address}`; --force switches"
            " anyway",
        )
    remark = await client.configure(member.address, {"brokerRole": wanted})
    with trio.move_on_after(SWITCH_S):
        while True:
            status = await client.status(member.address)
            if status.mode == wanted and in_force(status) == word:
                return Switched(member.address, status, was_already=False, remark=remark)
            await trio.sleep(POLL_S)
    why = f": {status.waits_for}" if status.waits_for else ""
    raise NotNowError(
        f"{member.address} took the change, but still answers sends as {in_force(status)} after"
        f" {SWITCH_S:g} s{why}",
        hint="it changes as soon as the change is recorded; the slaves that counted until now, or"
        f" most nameservers, have to be reachable. See `rmq ha status -b {member.address}`",
    )


# --- promote ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promotion:
    """A slave that may become master, and the master it has."""

    slave: Member
    master: Member | None

    def lines(self) -> list[str]:
        status = status_of(self.slave)
        lines = [
            f"{self.slave.address} is to become the master of {status.broker_name};"
            f" its log ends at {offset_text(status.end)}"
        ]
        seen = status.master
        answer = self.master.status if self.master is not None else None
        if answer is not None and answer.role != MASTER:
            lines.append(
                f"{answer.address}, its last master, is a slave now; its log ends at"
                f" {offset_text(answer.end)}"
            )
        elif self.master is not None and answer is not None:
            behind = answer.end - status.end
            lines.append(
                f"its master {self.master.address} answers, {size_text(max(behind, 0))} ahead:"
                " it stops taking messages first, and the slave waits until it has them all"
            )
        elif status.role == MASTER:
            lines.append(
                f"it was master and takes no messages: {status.last_error or status.state}"
            )
        elif seen is None or not (seen.address or seen.ha_address):
            lines.append(
                "it knows no master; what one may have had beyond that may be missing here"
            )
        else:
            where = seen.address or seen.ha_address or "its master"
            heard = (
                f"was heard {ms_text(seen.heard_ms_ago)} ago"
                if seen.heard_ms_ago >= 0
                else "was never heard"
            )
            lines.append(
                f"its master {where} does not answer and {heard}; what it took since may be"
                " missing here"
            )
            if seen.lag_bytes > 0:
                lines.append(f"at least {size_text(seen.lag_bytes)} are known to be missing")
            lines.append("make sure that the old master cannot come back by itself")
        return lines


async def plan_promotion(client: HaClient, target: Target) -> Promotion:
    """Query a slave and its master."""
    slave = await find_one(client, target, SLAVE)
    seen = status_of(slave).master
    master = await ask_member(client, seen.address) if seen is not None and seen.address else None
    return Promotion(slave, master)


async def promote(
    client: HaClient, plan: Promotion, *, accept_loss: bool, mode: str | None
) -> HaPromoteBody:
    """Make the slave master."""
    try:
        return await client.promote(
            plan.slave.address,
            accept_loss=accept_loss,
            mode=MODES[mode] if mode is not None else None,
        )
    except BrokerRefusedError as exc:
        if not accept_loss:
            exc.hint = (
                exc.hint
                or "--accept-loss makes it master although acknowledged messages may be lost"
            )
        raise


def promoted_lines(plan: Promotion, done: HaPromoteBody) -> list[str]:
    """Return lines that describe the result of a promotion."""
    address = plan.slave.address
    lines = [
        f"{address} is master now: {mode_word(done.mode)}, epoch {done.epoch}, from offset"
        f" {offset_text(done.start)} on"
    ]
    whose = done.previous_master or "the old master"
    if done.missing_bytes > 0:
        stop = done.start + done.missing_bytes
        lines.append(
            f"LOST: {size_text(done.missing_bytes)} that {whose} had, from"
            f" {offset_text(done.start)} to {offset_text(stop)}"
        )
    elif done.previous_end >= 0:
        lines.append(f"nothing is lost: {whose} ended at {offset_text(done.previous_end)}")
    elif done.is_safe:
        lines.append(f"nothing is lost: {done.reason or 'it has all that was acknowledged'}")
    else:
        lines.append(f"whether something is lost is not known: {done.reason}")
    if done.waits_for:
        lines.append(
            f"NOT READY: it answers no send with SEND_OK yet, because {done.waits_for}; see"
            f" rmq ha status -b {address}"
        )
    if done.cut_bytes:
        lines.append(
            f"{size_text(done.cut_bytes)} of a message that had not arrived as a whole were cut off"
        )
    if done.previous_master and done.previous_end < 0:
        lines.append(
            f"next: when {done.previous_master} comes back, it is turned away as master; let it"
            f" follow with: rmq ha demote -b {done.previous_master}"
        )
    elif done.previous_master:
        lines.append(f"{done.previous_master} is a slave now and will follow it")
    return lines


# --- demote -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Demotion:
    """A master that may become a slave."""

    master: Member

    def lines(self) -> list[str]:
        status = status_of(self.master)
        lines = [
            f"master  {self.master.address}  {status.broker_name}, epoch {status.epoch}, its log"
            f" ends at {offset_text(status.end)}"
        ]
        if status.state == WRITABLE:
            lines.append(
                "it takes messages now, and will take none then; to let a slave take its place"
                " without a gap, promote that one instead (rmq ha promote)"
            )
        return lines


async def plan_demotion(client: HaClient, target: Target) -> Demotion:
    """Find the master."""
    return Demotion(await find_one(client, target, MASTER))


async def demote(
    client: HaClient, plan: Demotion, follow: str | None, *, force: bool
) -> tuple[HaDemoteBody, Member]:
    """Make a master a slave; return its response, and its status a moment later."""
    member = plan.master
    try:
        done = await client.demote(member.address, follow, force=force)
    except BrokerRefusedError as exc:
        if not force:
            exc.hint = (
                exc.hint
                or "--force makes it a slave anyway; then no broker of the name takes messages"
            )
        raise
    with trio.move_on_after(DEMOTED_S):
        while True:
            member = await ask_member(client, member.address)
            if member.status is not None and member.status.state not in _UNDECIDED:
                break
            await trio.sleep(POLL_S)
    return done, member


def demoted_lines(done: HaDemoteBody, slave: Member) -> list[str]:
    """Return lines that describe the result of a demotion."""
    lines = [f"{slave.address} is a slave now; its log ends at {offset_text(done.end)}"]
    if slave.is_following:
        return [*lines, f"it follows {done.ha_master_address or 'its master'}"]
    for finding in findings_of_slave(slave):
        lines.append(f"it {finding.what}")
        lines += [f"  -> {finding.todo}"] if finding.todo else []
    return lines


# --- resync -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resync:
    """A slave, and what would be cut off its log."""

    slave: Member
    found: HaResyncBody

    @property
    def is_needed(self) -> bool:
        return self.found.is_reseed or self.found.cut_bytes > 0

    def lines(self) -> list[str]:
        found = self.found
        lines = [
            f"slave   {self.slave.address}  its log ends at {offset_text(found.local_end)}",
            f"master  {found.master_address or 'not known'}  its log ends at"
            f" {offset_text(found.master_end)}",
        ]
        if found.is_reseed:
            return [
                *lines,
                f"nothing is common: all {size_text(found.cut_bytes)} of the slave's log go,"
                " and it copies its master's log again",
            ]
        if not self.is_needed:
            return [*lines, "the slave has nothing that its master has not: nothing is to be cut"]
        return [
            *lines,
            f"common up to {offset_text(found.common_end)}",
            f"to be cut off the slave: {count_text(found.cut_messages, 'message')},"
            f" {size_text(found.cut_bytes)}, from {offset_text(found.common_end)} to"
            f" {offset_text(found.local_end)}",
        ]


async def plan_resync(client: HaClient, target: Target) -> Resync:
    """Ask a slave what would be cut."""
    slave = await find_one(client, target, SLAVE)
    return Resync(slave, await client.resync(slave.address, dry_run=True))


async def resync(client: HaClient, plan: Resync) -> tuple[HaResyncBody, HaStatusBody | None]:
    """Cut the log of the slave, and wait until it follows again; None if it does not in time."""
    done = await client.resync(plan.slave.address, dry_run=False, planned=plan.found)
    with trio.move_on_after(FOLLOW_S):
        while True:
            try:
                status = await client.status(plan.slave.address)
            except ClientError:
                # It opens its store again.
                status = None
            if status is not None and status.state in FOLLOWING:
                return done, status
            await trio.sleep(POLL_S)
    return done, None


def resynced_lines(plan: Resync, done: HaResyncBody, status: HaStatusBody | None) -> list[str]:
    """Return lines that describe the result."""
    lines = [
        f"cut: {count_text(done.cut_messages, 'message')}, {size_text(done.cut_bytes)};"
        f" {plan.slave.address} goes on from {offset_text(done.common_end)}"
    ]
    if status is None:
        return [
            *lines,
            f"it does not follow its master yet, after {FOLLOW_S:g} s: rmq ha status -b"
            f" {plan.slave.address}",
        ]
    return [*lines, f"it follows its master again ({status.state})"]
