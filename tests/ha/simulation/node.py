"""A broker of the simulation: the real core of replication, driven by virtual time and bytes.

A node is master or slave, and may change that. `MasterPart` and `SlavePart` do what the trio glue
does: they move bytes between connections, the log and the core, and call the core when it wants.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.ha.protocol.master import Master, MasterSettings
from rmq.ha.protocol.master_link import MasterLink
from rmq.ha.protocol.pending_acks import AckOutcome, ReplicationMode
from rmq.ha.protocol.promotion import Candidate, HandOver, OtherSlave
from rmq.ha.protocol.record_keeper import RecordKeeper
from rmq.ha.protocol.slave_link import SlaveSettings
from rmq.model.in_sync_record import member_name, member_names, newest
from rmq.model.offsets import PhysicalOffset
from tests.ha.simulation.checks import (
    Rule,
    Standing,
    broken,
    check_deadlines,
    check_forger,
    check_held,
    check_in_sync,
    check_marks,
    check_report,
)
from tests.ha.simulation.disk import SimLog, common_end
from tests.ha.simulation.nameserver import Recording, is_reachable
from tests.ha.simulation.network import WINDOW_BYTES
from tests.ha.simulation.slave import SlavePart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.ha.protocol.slaves import InSyncRules
    from rmq.ha.protocol.wire import CatchUp
    from rmq.model.in_sync_record import InSyncRecord
    from tests.ha.simulation.network import Connection
    from tests.ha.simulation.promotion import Promotion
    from tests.ha.simulation.world import World

REFRESH_S: Final = 1.0
"""How often a master looks who is still in sync."""
BLOCKED_TICK_S: Final = 0.5
"""How long a master waits for a connection that takes nothing before it looks at it again."""


class Send(NamedTuple):
    """A message whose producer waits for an answer."""

    number: int
    start: int
    content: bytes
    asked_at: float
    deadline: float


@dataclass(slots=True)
class NodeConfig:
    """What an operator has set on a node."""

    cluster: str
    secret: bytes
    host: str
    broker_id: int
    mode: ReplicationMode
    rules: InSyncRules
    catch_up: CatchUp
    is_stock: bool
    """It follows in the stock dialect only."""
    frame_bytes: int
    catch_up_bytes_per_s: int


class Node:
    """One broker."""

    def __init__(self, world: World, name: str, config: NodeConfig) -> None:
        self.world = world
        self.name = name
        self.host = config.host
        self.config = config
        self.incarnation = 0
        self.paused_until = 0.0
        self.is_up = True
        self.is_stuck = False
        """It answers, but reads nothing."""
        self.is_stranger = False
        """It does not belong to the others."""
        self.log = SimLog()
        self.store_id = world.clock.chance.randbytes(16)
        self.epoch = 1
        self.leadership = 0
        """Counts all promotions there were."""
        self.found: tuple[InSyncRecord, ...] = ()
        """By which records its own promotion was decided."""
        self.epoch_before = 1
        """The one it goes back to if its own cannot begin."""
        self.life = 0
        """How it is called as a member changes with it; on disk, like the records."""
        self.lives = [0]
        """By these names it has lost nothing of what it held."""
        self.is_demoted = False
        """It is a slave by its settings, whether or not it has a master."""
        self.gave_up: tuple[int, int] | None = None
        """Of which epoch it was master, and where its log ended, when it stopped being one."""
        self.records: tuple[InSyncRecord, ...] = ()
        self.recording: Recording | None = None
        self.master: Master[int] | None = None
        self.links: dict[int, tuple[Connection, MasterLink]] = {}
        self.pending: dict[int, Send] = {}
        self.visible_seen = 0
        self.slave_part = SlavePart(self)
        self.promotion: Promotion | None = None
        """The one that is under way."""
        self._lost: dict[str, list[tuple[int, int, bool]]] = {}
        self._growth: tuple[list[int], list[float]] = ([], [])
        self._timer_at = 0.0
        self._refresh_at = 0.0

    @property
    def takes_bytes(self) -> bool:
        return not self.is_stuck

    @property
    def is_master(self) -> bool:
        return self.master is not None

    def __repr__(self) -> str:
        return f"{self.name}{'*' if self.is_master else ''}[{self.log.begin}..{self.log.end}]"

    # --- what it tells when somebody is to become master ---------------------------------------

    @property
    def member(self) -> str:
        return member_name(self.store_id, self.life)

    @property
    def members(self) -> frozenset[str]:
        return member_names(self.store_id, self.lives)

    @property
    def was_last(self) -> bool:
        return self.gave_up == (self.epoch, self.log.end)

    def note_reborn(self) -> None:
        """It may lack what it held."""
        self.life += 1
        self.lives = [self.life]

    def renounce(self, candidate: Node) -> OtherSlave:
        """Let no master count on it by its present name; tell what it holds."""
        self.slave_part.break_off()
        said = self.as_other(candidate)
        self.life += 1
        self.lives.append(self.life)
        return said

    @property
    def hears_epochs(self) -> bool:
        heard = self.slave_part.heard
        return heard is not None and heard.is_native

    def candidate(self, hand_over: HandOver | None = None) -> Candidate:
        return Candidate(
            members=self.members,
            store=self.name,
            epoch=self.epoch,
            end=PhysicalOffset(self.log.end),
            record=newest(*self.records),
            follows_stock=not self.hears_epochs,
            was_last=self.was_last,
            hand_over=hand_over,
        )

    def as_other(self, candidate: Node) -> OtherSlave:
        return OtherSlave(
            self.name,
            self.epoch,
            PhysicalOffset(self.log.end),
            members=self.members,
            record=newest(*self.records),
            hears_epochs=self.hears_epochs,
            gave_way=self.was_last and common_end(self.log, candidate.log) == self.log.end,
            store=self.name,
        )

    # --- what is known of it from outside ------------------------------------------------------

    def note_loss(self, start: int, stop: int, *, was_flushed: bool) -> None:
        """It holds these bytes no longer, and nobody has been told."""
        if stop > start:
            for node in self.world.nodes:
                self._lost.setdefault(node.name, []).append((start, stop, was_flushed))

    def has_lost(self, master: Node, start: int, stop: int, *, is_flushed: bool) -> bool:
        """Whether it has held such bytes, and its master cannot know that it does not now."""
        # A stock slave never tells what is on its disk.
        is_stock = is_flushed and self.is_stock_slave_of(master)
        return any(
            low < stop and start < high and (was_flushed or not is_flushed or is_stock)
            for low, high, was_flushed in self._lost.get(master.name, ())
        )

    def refuses(self, stranger: Node) -> bool:
        """Whether this master has to turn away one that does not belong."""
        config, other = self.config, stranger.config
        return config.cluster != other.cluster or (
            bool(config.secret) and config.secret != other.secret
        )

    def is_stock_slave_of(self, master: Node) -> bool:
        return any(
            connection.caller is self and link.slave is not None and not link.slave.is_native
            for connection, link in master.links.values()
        )

    def grew_beyond_at(self, offset: int) -> float:
        """Return when this master's log came to have more than that."""
        ends, times = self._growth
        index = bisect_right(ends, offset)
        return times[index] if index else float("-inf")

    # --- life ----------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """The process starts."""
        self.is_up = True
        if self.is_demoted and not self.slave_part.is_wanted:
            return
        if not self.slave_part.is_wanted:
            self.lead(now, is_reborn=True)
        else:
            self.slave_part.dial_at(now)

    def stop(self, *, is_power_cut: bool, is_told: bool) -> None:
        """The process is killed, or its machine loses power."""
        end = self.log.end
        if is_power_cut:
            self.log.lose_power(self.world.clock.chance)
        else:
            self.log.kill()
        self.note_loss(self.log.end, end, was_flushed=False)
        self.note_reborn()
        self.gave_up = None
        self.is_up = False
        self._drop(is_told=is_told)
        self.promotion = None
        self.incarnation += 1
        self.paused_until = 0.0
        self._timer_at = 0.0

    def _drop(self, *, is_told: bool) -> None:
        self.pending.clear()
        self.master = None
        for connection, _ in list(self.links.values()):
            self.world.network.close(connection, self, is_told=is_told)
        self.links.clear()
        self.slave_part.drop(is_told=is_told)

    def settings(self) -> MasterSettings:
        config = self.config
        return MasterSettings(
            cluster=config.cluster,
            broker_name="a",
            address=f"{self.host}:10911",
            store_id=self.store_id,
            secret=config.secret,
            catch_up=config.catch_up,
            rules=config.rules,
            frame_bytes=config.frame_bytes,
            stock_frame_bytes=config.frame_bytes // 2,
            catch_up_bytes_per_s=config.catch_up_bytes_per_s,
        )

    def slave_settings(self) -> SlaveSettings:
        config = self.config
        return SlaveSettings(
            cluster=config.cluster,
            broker_name="a",
            broker_id=config.broker_id,
            address=f"{self.host}:10911",
            store_id=self.store_id,
            incarnation=self.life,
            secret=config.secret,
            catch_up=config.catch_up,
        )

    def lead(
        self,
        now: float,
        found: Iterable[InSyncRecord] | None = None,
        *,
        is_forced: bool = False,
        is_reborn: bool = False,
    ) -> None:
        """Be master from now on; `found` are the records that others may decide by.

        None: it was master before, and knows what it has recorded.
        """
        self.slave_part.point_to(None)
        self.slave_part.is_suspended = self.is_demoted = False
        if found is None:
            records, is_known = self.records, bool(self.records) or not self.world.nameservers
        else:
            records, is_known = tuple(sorted(found, key=lambda record: record.order)), True
        keeper = RecordKeeper(
            self.epoch,
            records,
            member=self.member,
            master=self.name,
            is_known=is_known,
            is_forced=is_forced,
            renews=is_reborn,
        )
        self.records = keeper.chain
        self.recording = Recording(self, keeper)
        self.master = Master(
            self.settings(),
            self.log,
            epoch=self.epoch,
            mode=self.config.mode,
            now=now,
            keeper=keeper,
        )
        self.visible_seen = 0
        self._growth = ([self.log.end], [now])
        self._refresh_at = now + REFRESH_S
        self.after_event(now)

    @staticmethod
    def _has_begun(master: Master[int]) -> bool:
        """Return whether what a master knows says anything on what was acknowledged before it."""
        return master.keeper.has_begun

    def resign(self, now: float) -> int:
        """Be master no longer; return where the log ends."""
        assert self.master is not None
        has_begun = self._has_begun(self.master)
        self.master.pending_acks.give_up()
        for connection, link in list(self.links.values()):
            link.closed(now, "demoted")
            self.world.network.close(connection, self)
        self.links.clear()
        # Producers are told that it is not known whether their messages are replicated.
        self.pending.clear()
        self.master = None
        self._timer_at = 0.0
        self.gave_up = (self.epoch, self.log.end) if has_begun else None
        return self.log.end

    def step_down(self, now: float) -> None:
        """Be a slave that has no master yet."""
        self.resign(now)
        self.is_demoted = True

    def give_up(self, now: float) -> None:
        """An operator makes it a slave."""
        assert self.master is not None
        if self.master.keeper.is_pending:
            self.withdraw(now)
        else:
            self.step_down(now)

    def withdraw(self, now: float) -> None:
        """Be what it was before it began an epoch, in which nothing was acknowledged."""
        self.step_down(now)
        before = newest(*(record for record in self.records if record.epoch < self.epoch))
        self._take_back(self.epoch, before, now + 5.0)
        self.records = tuple(record for record in self.records if record.epoch < self.epoch)
        self.epoch = self.epoch_before
        self.gave_up = None

    def _take_back(self, epoch: int, before: InSyncRecord | None, until: float) -> None:
        """Have nameservers forget a record that counts for nothing, also one that comes late."""
        world, unheard = self.world, False
        for nameserver in world.nameservers:
            record = nameserver.record
            if not is_reachable(world, self, nameserver):
                unheard = True
            elif record is not None and (record.epoch, record.master) == (epoch, self.name):
                nameserver.record = before
        if (unheard or world.clock.now < until) and not self.is_master:
            arguments = (epoch, before, until)
            world.clock.at(world.clock.now + 1.0, self._take_back, arguments, self)

    def take_config(self, now: float) -> None:
        """Apply what an operator has changed."""
        if self.master is not None:
            self.master.reconfigure(self.settings(), now)
            self.master.want_mode(self.config.mode)
            self.after_event(now)

    # --- producers -----------------------------------------------------------------------------

    def append(self, number: int, size: int, *, waits: bool, now: float) -> None:
        """Take a message, and answer it at once or later."""
        master = self.master
        assert master is not None
        pending_acks = master.pending_acks
        keeper = master.keeper
        if pending_acks.refuses() or keeper.is_fenced or not keeper.has_begun:
            self.world.count("sends refused")
            return
        start, end = self.log.append_record(number, size)
        self._growth[0].append(end)
        self._growth[1].append(now)
        content = self.log.read(start, end)
        if not waits:
            return
        master.grew(now)
        send = Send(number, start, content, now, now + pending_acks.timeout_s)
        outcome = pending_acks.ask(PhysicalOffset(end), now, number)
        if outcome is None:
            self.pending[number] = send
        elif outcome is AckOutcome.REPLICATED:
            self._acknowledge(send)
        else:
            self.world.count("sends not available")

    def _acknowledge(self, send: Send) -> None:
        assert self.master is not None
        switch = self.master.pending_acks.in_force
        end = send.start + len(send.content)
        is_sync = end > switch.offset and switch.mode is ReplicationMode.SYNC
        if is_sync or send.number in self.pending:
            check_held(self, self.world.nodes, send.number, send.start, send.content)
        self.world.acknowledged(self, send, self._standing())

    def _standing(self) -> Standing:
        master = self.master
        assert master is not None
        return Standing(
            master.pending_acks.mode,
            master.slaves.rules.needed,
            tuple(sorted(r.identity for r in master.slaves if r.in_sync)),
        )

    # --- the replication port --------------------------------------------------------------------

    def accept(self, connection: Connection) -> None:
        master = self.master
        if not self.is_up or master is None or master.keeper.is_pending:
            self.world.network.close(connection, self)
            return
        clock = self.world.clock
        link = MasterLink(
            master,
            connection.caller.host,
            f"{connection.caller.host}:{40000 + connection.number}",
            nonce=clock.chance.randbytes(16),
            now=clock.now,
        )
        connection.master_link = link
        connection.ledger = (self.log.base, self.log.data)
        self.links[connection.number] = (connection, link)
        self._plan_timer()

    def bytes_arrived(self, connection: Connection, data: bytes) -> None:
        entry = self.links.get(connection.number)
        if entry is None:
            self.slave_part.bytes_arrived(connection, data)
            return
        now, link, master = self.world.clock.now, entry[1], self.master
        assert master is not None
        told = master.counters.reseeded + master.counters.diverged
        link.receive(data, now)
        self.records = master.keeper.chain or self.records
        caller = connection.caller
        if isinstance(caller, Node):
            if link.slave is not None and link.slave.is_native and connection.is_fresh:
                connection.is_fresh = False
                if connection.is_of_empty:
                    # It has all it is to have, which is nothing yet.
                    connection.peak = link.position
                caller._lost.pop(self.name, None)
            elif told != master.counters.reseeded + master.counters.diverged:
                caller._lost.pop(self.name, None)
            check_report(connection)
            # A master without a secret serves also those that have one; they end it then.
            if caller.is_stranger and link.slave is not None and self.refuses(caller):
                broken(Rule.STRANGERS_GET_NOTHING, f"{caller.name} is served by {self.name}")
        else:
            check_forger(connection)
        self.after_event(now)

    def has_closed(self, connection: Connection) -> None:
        entry = self.links.pop(connection.number, None)
        if entry is None:
            self.slave_part.has_closed(connection)
            return
        entry[1].closed(self.world.clock.now)
        self.after_event(self.world.clock.now)

    def has_room(self, connection: Connection) -> None:
        if connection.number in self.links:
            self.after_event(self.world.clock.now)

    def after_event(self, now: float) -> None:
        """Answer whom that answered, send what there is, and plan what comes next."""
        master = self.master
        assert master is not None
        master.grew(now)
        assert self.recording is not None
        self.recording.go_on(now)
        self._answer(master.pending_acks.release())
        offer = self._offer(master)
        for connection, link in list(self.links.values()):
            if not self._has_offered(connection, link, offer, now):
                self._pump(connection, link, now)
                if connection.down.in_flight >= WINDOW_BYTES:
                    connection.offered = None
                else:
                    connection.offered = offer, link.slave is not None and link.slave.in_sync
        check_marks(self)
        self._plan_timer()

    def _offer(self, master: Master[int]) -> tuple[object, ...]:
        """Return what a link tells its slave, but for what only that link knows."""
        slaves, log = master.slaves, self.log
        return (
            log.begin,
            log.end,
            master.keeper.newest,
            master.pending_acks.mode,
            slaves.in_sync_most,
            slaves.rules,
            master.news,
        )

    def _has_offered(
        self, connection: Connection, link: MasterLink, offer: tuple[object, ...], now: float
    ) -> bool:
        """Return whether a link has nothing to send, because it has sent all of this before."""
        slave = link.slave
        return (
            slave is not None
            and link.position == self.log.end
            and now < link.next_tick
            and link.end_reason is None
            and not slave.is_superseded
            and connection.offered == (offer, slave.in_sync)
        )

    def _answer(self, numbers: list[int]) -> None:
        for number in numbers:
            self._acknowledge(self.pending[number])
            del self.pending[number]

    def _pump(self, connection: Connection, link: MasterLink, now: float) -> None:
        network, pipe = self.world.network, connection.down
        output = link.take_output()
        if output:
            network.send(connection, self, output)
        while link.end_reason is None and pipe.in_flight < WINDOW_BYTES:
            chunk = link.next_chunk(now)
            if chunk is None:
                break
            content = self.log.read(chunk.offset, chunk.offset + chunk.size)
            header = link.sealed(chunk, content) if content else chunk.header
            network.send(connection, self, header + content)
            link.chunk_sent(chunk, now)
        if link.end_reason is not None:
            self.world.trace(f"{self.name} ends a link of {link.peer}: {link.end_reason}")
            del self.links[connection.number]
            link.closed(now)
            network.close(connection, self)

    def _plan_timer(self) -> None:
        master = self.master
        if master is None:
            return
        now = self.world.clock.now
        next_at = self._refresh_at
        for connection, link in self.links.values():
            tick = link.next_tick
            if connection.down.in_flight >= WINDOW_BYTES:
                tick = max(tick, now + BLOCKED_TICK_S)
            if tick < next_at:
                next_at = tick
        deadline = master.pending_acks.next_deadline()
        if deadline is not None and deadline < next_at:
            next_at = deadline
        if next_at < self._timer_at or self._timer_at <= now:
            self._timer_at = next_at
            self.world.clock.at(next_at, self._timer, (next_at,), self)

    def _timer(self, planned_at: float) -> None:
        master = self.master
        if master is None or planned_at != self._timer_at:
            return
        now = self.world.clock.now
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_S
            master.grew(now)
            master.slaves.refresh(now)
            check_in_sync(self, now)
        for _, link in self.links.values():
            if link.next_tick <= now:
                link.tick(now)
        self._answer(master.pending_acks.release())
        for number in master.pending_acks.expire(now):
            del self.pending[number]
            self.world.count("sends timed out")
        check_deadlines(self, now)
        self.after_event(now)
        for connection, link in self.links.values():
            if link.next_tick <= now and not connection.down.is_full:
                broken(
                    Rule.NO_SPINNING,
                    f"{self.name} ticks at {now}, and is to tick {link.peer} at {link.next_tick}",
                )


def with_rules(config: NodeConfig, **changes: object) -> None:
    """Change some of a node's rules."""
    config.rules = replace(config.rules, **changes)  # type: ignore[arg-type]
