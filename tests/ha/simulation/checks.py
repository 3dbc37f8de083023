"""What must hold after every event, seen with the eyes of someone who sees all machines at once."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rmq.ha.protocol.slaves import NOTHING

if TYPE_CHECKING:
    from rmq.ha.protocol.pending_acks import ReplicationMode
    from tests.ha.simulation.network import Connection
    from tests.ha.simulation.node import Node


class Rule(enum.Enum):
    """The invariants, by name."""

    ACKNOWLEDGED_IS_HELD = "a send that was answered as replicated is held by enough slaves"
    REPORT_IS_TRUE = "a slave reports no more than it holds"
    FORGERY_COUNTS_NOTHING = "who is no slave never counts"
    SAME_BYTES = "a slave appends only what continues its master's log, and has the same before it"
    DIVERGENCE_IS_TRUE = "a slave that is called diverged is"
    EPOCHS_RISE = "epochs of a slave never fall, and it follows no older one"
    OWN_DEADLINE = "a send is answered by its own deadline"
    IN_SYNC_IS_TRUE = "who is in sync was caught up not long ago, and lacks little"
    MARKS_ARE_SANE = "marks never lie behind the log's end, and what is visible stays visible"
    PROMOTION_LOSES_NOTHING = "a promotion that was allowed loses nothing that was acknowledged"
    STRANGERS_GET_NOTHING = "a slave of another cluster or secret gets no byte"
    NO_SPINNING = "after a tick the next one lies in the future"
    NO_CRASH = "nothing that arrives or goes wrong raises an error"
    ALL_CATCH_UP = "without faults all slaves catch up, or say why they do not"


class BrokenRuleError(Exception):
    """An invariant does not hold."""

    def __init__(self, rule: Rule, detail: str) -> None:
        # All arguments as they are: it comes out of another process (`run`).
        super().__init__(rule, detail)
        self.rule = rule
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.rule.value}\n  {self.detail}"


def broken(rule: Rule, detail: str) -> NoReturn:
    raise BrokenRuleError(rule, detail)


class Standing(NamedTuple):
    """By what rule a master answered."""

    mode: ReplicationMode
    needed: int
    in_sync: tuple[str, ...]


class Acknowledged(NamedTuple):
    """A message whose send was answered with SEND_OK."""

    number: int
    start: int
    content: bytes
    master: str
    epoch: int
    at: float
    standing: Standing
    leadership: int
    was_fenced: bool
    """Another master had taken over by then."""


def check_held(master: Node, nodes: list[Node], number: int, start: int, content: bytes) -> None:
    """A send is about to be answered as replicated in sync mode."""
    assert master.master is not None
    rules = master.master.slaves.rules
    holders: list[str] = []
    for node in nodes:
        if node is master:
            continue
        stop = start + len(content)
        if node.log.holds(start, content) and (
            not rules.counts_flushed or node.log.flushed >= stop or node.is_stock_slave_of(master)
        ):
            holders.append(node.name)
        elif node.has_lost(master, start, stop, is_flushed=rules.counts_flushed):
            # It held it, and its master has no way to know that it does not any longer.
            holders.append(node.name)
    if len(holders) < rules.needed:
        broken(
            Rule.ACKNOWLEDGED_IS_HELD,
            f"message {number} at {start}..{start + len(content)} of {master.name} is held by"
            f" {holders or 'nobody'}, {rules.needed} are needed"
            + (" on disk" if rules.counts_flushed else ""),
        )


def check_report(connection: Connection) -> None:
    """A master has taken in what came on a connection."""
    link = connection.master_link
    if link is None or link.slave is None:
        return
    slave = link.slave
    if slave.appended > connection.peak:
        broken(
            Rule.REPORT_IS_TRUE,
            f"{slave.name} is said to hold {slave.appended}, it never held more than"
            f" {connection.peak}",
        )


def check_forger(connection: Connection) -> None:
    link = connection.master_link
    if link is not None and link.slave is not None and link.slave.appended != NOTHING:
        broken(
            Rule.FORGERY_COUNTS_NOTHING,
            f"{connection.caller.name} is said to hold {link.slave.appended}",
        )


def check_marks(node: Node) -> None:
    """Marks of a master."""
    master = node.master
    assert master is not None
    end, slaves, visible = node.log.end, master.slaves, master.pending_acks.visible
    if visible < node.visible_seen or visible > end or slaves.replicated > end:
        broken(
            Rule.MARKS_ARE_SANE,
            f"{node.name} ends at {end}, replicated {slaves.replicated}, visible {visible}"
            f" after {node.visible_seen}",
        )
    node.visible_seen = visible
    for slave in slaves:
        if slave.appended > end or slave.flushed > end:
            broken(
                Rule.MARKS_ARE_SANE,
                f"{node.name} ends at {end}, {slave.name} has {slave.appended}",
            )


def check_deadlines(node: Node, now: float) -> None:
    """A master has just answered those who have waited long enough."""
    for send in node.pending.values():
        if now >= send.deadline:
            broken(
                Rule.OWN_DEADLINE,
                f"message {send.number} of {node.name} has waited since {send.asked_at:.3f}, its"
                f" deadline was {send.deadline:.3f}, now it is {now:.3f}",
            )
        # They all wait equally long: the first is the one that has waited longest.
        return


def check_in_sync(node: Node, now: float) -> None:
    """A master has just decided who is in sync."""
    master = node.master
    assert master is not None
    rules, end = master.slaves.rules, node.log.end
    for slave in master.slaves:
        if not slave.in_sync or slave.appended >= end:
            continue
        behind_s = now - node.grew_beyond_at(slave.appended)
        lacks = end - slave.appended
        if behind_s > rules.lag_s_max + 1e-6 or lacks >= rules.lag_bytes_max:
            broken(
                Rule.IN_SYNC_IS_TRUE,
                f"{slave.name} counts for {node.name}, though it lacks {lacks} bytes and has"
                f" been behind for {behind_s:.1f} s",
            )


def check_append(slave: Node, connection: Connection, size: int, *, is_first: bool) -> None:
    """A slave has appended `size` bytes it got on a connection."""
    base, ledger = connection.ledger
    log = slave.log
    start = max(base, log.begin if is_first else log.end - size)
    mine = log.read(start, log.end)
    theirs = ledger[start - base : log.end - base]
    if mine != theirs:
        broken(
            Rule.SAME_BYTES,
            f"{slave.name} and {connection.callee.name} differ between {start} and {log.end}",
        )


def check_divergence(slave: Node, connection: Connection, reason: str) -> None:
    """A slave was told that its log is not the beginning of its master's."""
    base, ledger = connection.ledger
    log = slave.log
    start = max(base, log.begin)
    if log.end <= base + len(ledger) and (
        log.end <= start or log.read(start, log.end) == ledger[start - base : log.end - base]
    ):
        broken(
            Rule.DIVERGENCE_IS_TRUE,
            f"{slave.name} ends at {log.end} and is the beginning of {connection.callee.name}: "
            + reason,
        )
