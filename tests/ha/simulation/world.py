"""A whole simulation from one seed: nodes, network, producers, operators and what goes wrong.

First a time of faults, in which everything is checked after every event; then faults stop, an
operator puts things in order, and within a bounded time all slaves must follow, or say why not.
"""

from __future__ import annotations

import traceback
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import rmq.ha.protocol.throttle
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.ha.protocol.slaves import InSyncRules
from rmq.ha.protocol.wire import CatchUp
from tests.ha.simulation.checks import Acknowledged, BrokenRuleError, Rule, broken
from tests.ha.simulation.clock import Clock
from tests.ha.simulation.disk import SEGMENT_BYTES, common_end
from tests.ha.simulation.faults import Faults
from tests.ha.simulation.nameserver import SimNameserver, is_reachable
from tests.ha.simulation.network import Network
from tests.ha.simulation.node import Node, NodeConfig
from tests.ha.simulation.promotion import Promotion
from tests.ha.simulation.slave import SlaveState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.model.in_sync_record import InSyncRecord
    from tests.ha.simulation.checks import Standing
    from tests.ha.simulation.node import Send

LIVENESS_S: Final = 60.0
"""Within this time without faults all slaves must follow."""
EVENTS_MAX: Final = 30_000
"""Many times what any seed needs."""
_SCALED: Final = (
    (rmq.ha.protocol.log_view, "TAIL_BYTES", 256),
    (rmq.ha.protocol.log_view, "TAIL_BYTES_MIN", 64),
)
"""Constants of the core that stand for sizes, in proportion to the small logs here."""


@contextmanager
def scaled_core() -> Iterator[None]:
    """Run the core with constants that suit small logs."""
    before = [(module, name, getattr(module, name)) for module, name, _ in _SCALED]
    for module, name, value in _SCALED:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class Result(NamedTuple):
    """What became of a seed."""

    seed: int
    virtual_s: float
    events: int
    counts: Counter[str]
    broken: BrokenRuleError | None
    trace: list[str]


class World:
    """One simulation."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.clock = Clock(seed)
        self.network = Network(self.clock)
        self.counts: Counter[str] = Counter()
        self.nodes: list[Node] = []
        self.nameservers: list[SimNameserver] = []
        self.lines: list[str] = []
        self.current: Node
        """The master that nameservers name."""
        self.confirmed_leadership = 0
        """The latest of a master that was entitled to acknowledge messages."""
        self._leaderships = 0
        self.kept: dict[int, Acknowledged] = {}
        """Acknowledged messages that must not be lost."""
        self._forced: dict[int, tuple[InSyncRecord, ...]] = {}
        """Promotions although messages may be lost, and the records that were known."""
        self._is_traced = is_traced
        self._number = 0
        self._is_quiet = False
        self._make_nodes()
        chance = self.clock.chance
        self._send_gap_s = chance.choice((0.15, 0.4, 1.0))
        self.faults = Faults(self)

    # --- setting up ------------------------------------------------------------------------------

    def _make_nodes(self) -> None:
        chance = self.clock.chance
        count = chance.choice((1, 1, 2, 2, 3))
        secret = b"secret" if chance.random() < 0.3 else b""
        needed = 2 if count > 1 and chance.random() < 0.4 else 1
        rules = InSyncRules(
            needed=needed,
            minimum=chance.choice((0, 0, 0, 1)),
            lag_s_max=chance.choice((2.0, 5.0, 15.0)),
            lag_bytes_max=chance.choice((400, 2000, 10**9)),
            counts_flushed=chance.random() < 0.25,
        )
        mode = ReplicationMode.SYNC if chance.random() < 0.75 else ReplicationMode.ASYNC
        share_host = chance.random() < 0.15
        for number in range(chance.choice((0, 1, 1, 1, 2, 3))):
            self.nameservers.append(SimNameserver(f"ns{number}"))
        for number in range(count + 1):
            config = NodeConfig(
                cluster="c",
                secret=secret,
                host="10.0.0.1" if share_host and number else f"10.0.1.{number}",
                broker_id=number,
                mode=mode,
                rules=rules,
                catch_up=CatchUp.OLDEST if chance.random() < 0.6 else CatchUp.LAST_FILE,
                is_stock=not secret and chance.random() < 0.12,
                frame_bytes=chance.choice((80, 200, 600)),
                catch_up_bytes_per_s=chance.choice((0, 0, 2000)),
            )
            self.nodes.append(Node(self, f"n{number}", config))
        self.current = self.nodes[0]
        now = self.clock.now
        for _ in range(chance.choice((0, 0, 5, 30))):
            self.current.log.append_record(self._next_number(), 24 + chance.randrange(100))
        self.current.log.flush()
        if chance.random() < 0.3:
            self.current.log.expire(chance.randrange(3))
        self.current.lead(now)
        for node in self.nodes[1:]:
            node.slave_part.point_to(self.current)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # --- running ---------------------------------------------------------------------------------

    def run(self, faults_s: float) -> None:
        """Live through a time of faults, and then through one without."""
        clock = self.clock
        stop = clock.now + faults_s
        clock.at(clock.now + 0.1, self._produce)
        self.faults.plan()
        self._run_until(stop)
        self._is_quiet = True
        self.trace("--- faults stop ---")
        self.faults.stop()
        deadline = clock.now + LIVENESS_S
        while clock.now < deadline:
            self._run_until(clock.now + 1.0)
            self.faults.tidy_up()
            if self._who_is_late() is None:
                self._check_end()
                return
        broken(Rule.ALL_CATCH_UP, self._who_is_late() or "")

    def _run_until(self, time: float) -> None:
        self.clock.run(time, EVENTS_MAX)
        if self.clock.events > EVENTS_MAX:
            broken(Rule.NO_SPINNING, f"more than {EVENTS_MAX} events")

    def _who_is_late(self) -> str | None:
        if not self.current.is_master:
            return f"{self.current!r} is not master"
        for node in self.nodes:
            if node is self.current:
                continue
            slave = node.slave_part
            if node.is_stranger:
                if slave.state is not SlaveState.REFUSED:
                    return f"{node!r}, a stranger, is {slave.state.value}"
            elif slave.state in (SlaveState.DIVERGED, SlaveState.STALE):
                if slave.target is self.current:
                    return f"{node!r} is {slave.state.value} after repair: {slave.last_reason}"
                return f"{node!r} waits for repair"
            elif not self._is_followed_by(node) or not self._has_all(node):
                return (
                    f"{node!r} is {slave.state.value}, {self.current!r} is its master:"
                    f" {slave.last_reason}"
                )
        master = self.current.master
        assert master is not None
        # Without nameservers only a slave itself can note a record, and one that was a native
        # member and speaks the stock dialect now does not; nor does it tell what is on its disk.
        links = [link for _, link in self.current.links.values()]
        has_stock = any(link.slave and not link.slave.is_native for link in links)
        cannot = has_stock and (not self.nameservers or master.slaves.rules.counts_flushed)
        if master.keeper.is_renewing:
            # Nothing is answered before there are as many slaves as are needed.
            members = {slave.member for slave in master.slaves if slave.in_sync}
            cannot = cannot or len(members) < master.slaves.rules.needed
        if not master.keeper.is_confirmed and not cannot:
            return f"{self.current!r} has not recorded what it relies on: {master.keeper.chain}"
        return None

    def _is_followed_by(self, node: Node) -> bool:
        """Tell whether both ends of a connection take it for one that carries the log."""
        slave = node.slave_part.link
        return (
            slave is not None
            and slave.is_streaming
            and any(
                connection.caller is node and link.is_streaming and not connection.is_broken
                for connection, link in self.current.links.values()
            )
        )

    def _has_all(self, node: Node) -> bool:
        end = self.current.log.end
        if node.log.end:
            return node.log.end == end
        # One that begins where the log ends has all there is for it.
        return any(
            connection.caller is node and link.is_streaming and link.position == end
            for connection, link in self.current.links.values()
        )

    def _check_end(self) -> None:
        """All follow: all logs are the same."""
        for node in self.nodes:
            if (
                node.log.end
                and not node.is_stranger
                and common_end(node.log, self.current.log) != node.log.end
            ):
                broken(Rule.SAME_BYTES, f"{node!r} and {self.current!r} differ at the end")

    def _produce(self) -> None:
        if self._is_quiet:
            return
        chance = self.clock.chance
        masters = [node for node in self.nodes if node.is_master and node.is_up]
        node = self.current if chance.random() < 0.8 else (chance.choice(masters or self.nodes))
        if node.is_master and node.is_up and node.paused_until <= self.clock.now:
            for _ in range(chance.choice((1, 1, 1, 2, 6))):
                self.counts["sends"] += 1
                node.append(
                    self._next_number(),
                    24 + chance.randrange(100),
                    waits=chance.random() < 0.9,
                    now=self.clock.now,
                )
            node.after_event(self.clock.now)
            if chance.random() < 0.2:
                node.log.flush()
        self.clock.at(
            self.clock.now + self._send_gap_s * 2 * chance.random() + 0.001, self._produce
        )

    def acknowledged(self, node: Node, send: Send, standing: Standing) -> None:
        """A producer got SEND_OK."""
        was_fenced = node.leadership < self.confirmed_leadership
        self.counts[f"sends acknowledged, {standing.mode.value}"] += 1
        self.kept[send.number] = Acknowledged(
            send.number,
            send.start,
            send.content,
            node.name,
            node.epoch,
            self.clock.now,
            standing,
            node.leadership,
            was_fenced,
        )

    # --- promotion -------------------------------------------------------------------------------

    def is_reachable(self, one: Node, other: Node) -> bool:
        return (
            other.is_up
            and other.paused_until <= self.clock.now
            and not self.network.is_blocked(one, other)
            and not self.network.is_blocked(other, one)
        )

    def promote(
        self, node: Node, then: Callable[[], None], *, accepts_loss: bool, is_planned: bool
    ) -> None:
        """Begin to make a slave master; `then` is called when it is, if it becomes one."""
        if node.promotion is None:
            Promotion(self, node, then, accepts_loss=accepts_loss, is_planned=is_planned).begin()

    def take_over(
        self,
        node: Node,
        old: Node,
        found: tuple[InSyncRecord, ...],
        *,
        epoch: int,
        is_safe: bool,
    ) -> None:
        """A slave begins an epoch."""
        node.log.cut(node.log.record_boundary())
        self.counts["promotions" if is_safe else "promotions that accept loss"] += 1
        node.epoch_before, node.epoch = node.epoch, epoch
        node.config.mode = old.config.mode
        node.config.rules = old.config.rules
        self.current = node
        self._leaderships += 1
        node.leadership, node.found = self._leaderships, found
        if not is_safe:
            self._forced[node.leadership] = found
        node.lead(self.clock.now, found, is_forced=not is_safe)

    def registered_epochs(self, node: Node) -> list[int]:
        """Return what nameservers that a node can reach know of epochs."""
        return [each.epoch for each in self.nameservers if is_reachable(self, node, each)]

    def confirmed(self, node: Node) -> None:
        """What a master answers by is recorded: from now on it is the only one by right."""
        for nameserver in self.nameservers:
            if is_reachable(self, node, nameserver):
                nameserver.epoch = max(nameserver.epoch, node.epoch)
        if node.leadership > self.confirmed_leadership:
            self.confirmed_leadership = node.leadership
            self._account(node, node.found, is_safe=node.leadership not in self._forced)

    def overtaken(self, node: Node) -> None:
        """A new master finds that the former one has gone on: operators take up what there is."""
        master = node.master
        if master is None or master.keeper.overtaken_by is None:
            return
        self.count("promotions overtaken")
        self.trace(f"{node!r} is overtaken by {master.keeper.overtaken_by}")
        node.withdraw(self.clock.now)
        if node is not self.current:
            return
        masters = [each for each in self.nodes if each.is_master]
        if masters:
            self.current = max(masters, key=lambda each: each.epoch)
            node.slave_part.point_to(self.current)

    def _account(self, node: Node, found: tuple[InSyncRecord, ...], *, is_safe: bool) -> None:
        """See which acknowledged messages a new master lacks, and whether that may be."""
        for message in list(self.kept.values()):
            if node.log.holds(message.start, message.content):
                continue
            if message.start < node.log.begin and is_safe:
                # It has expired here. After an accepted loss nobody can tell whether it ever was.
                continue
            del self.kept[message.number]
            if not is_safe:
                self.counts["acknowledged, lost by an accepted loss"] += 1
            elif message.was_fenced:
                self.counts["acknowledged by a fenced master, lost"] += 1
            elif message.leadership in self._forced and not _is_told_of(message, found):
                # An operator began that leadership, and nobody who is asked now was told.
                self.counts["acknowledged after a forced promotion, lost"] += 1
            else:
                broken(
                    Rule.PROMOTION_LOSES_NOTHING,
                    f"message {message.number} at {message.start}, acknowledged by"
                    f" {message.master} in epoch {message.epoch} at {message.at:.3f} by"
                    f" {message.standing}, is not in {node!r}",
                )

    def forget_lost(self, node: Node) -> None:
        """A master came back without some of its own messages."""
        for message in list(self.kept.values()):
            if message.start >= node.log.begin and not node.log.holds(
                message.start, message.content
            ):
                del self.kept[message.number]
                self.counts["acknowledged, lost by the master itself"] += 1

    # --- notes -----------------------------------------------------------------------------------

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def trace(self, line: str, *values: object) -> None:
        """Note what happens, if that is wanted; `values` are put into the line only then."""
        if self._is_traced:
            text = line % values if values else line
            self.lines.append(f"{self.clock.now - 100.0:9.3f} s  {text}")


def _is_told_of(message: Acknowledged, found: tuple[InSyncRecord, ...]) -> bool:
    """Tell whether records show the leadership by which a message was acknowledged, or a later one.

    Without nameservers operators may force two brokers into one epoch.
    """
    return any(
        record.epoch > message.epoch
        or (record.epoch == message.epoch and record.master == message.master)
        for record in found
    )


def simulate(seed: int, *, faults_s: float = 25.0, is_traced: bool = False) -> Result:
    """Run one seed."""
    failure: BrokenRuleError | None = None
    with scaled_core():
        world = World(seed, is_traced=is_traced)
        try:
            world.run(faults_s)
        except BrokenRuleError as exc:
            failure = exc
        except Exception:  # noqa: BLE001 - whatever it is, the seed is what matters
            failure = BrokenRuleError(Rule.NO_CRASH, traceback.format_exc())
    return Result(
        seed, world.clock.now - 100.0, world.clock.events, world.counts, failure, world.lines
    )


def explain(result: Result, *, lines_max: int = 60) -> str:
    """Return what broke, how it came to it, and how to see it again."""
    assert result.broken is not None
    again = simulate(result.seed, is_traced=True)
    lines = again.trace[-lines_max:]
    return "\n".join(
        (
            f"seed {result.seed} breaks a rule after {result.virtual_s:.3f} virtual seconds",
            f"{result.broken}",
            "trace:",
            *lines,
            f"again: python -m tests.ha.simulation.run --first {result.seed} --seeds 1 --trace",
        )
    )


__all__ = ["SEGMENT_BYTES", "Result", "World", "explain", "scaled_core", "simulate"]
