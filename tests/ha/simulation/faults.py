"""What goes wrong in a simulation, and what operators do meanwhile. All of it by chance."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from rmq.ha.protocol.pending_acks import ReplicationMode
from tests.ha.simulation.disk import common_end
from tests.ha.simulation.forgery import Forger, draw_forgery
from tests.ha.simulation.node import Node, NodeConfig, with_rules
from tests.ha.simulation.slave import SlaveState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ha.simulation.nameserver import SimNameserver
    from tests.ha.simulation.network import Connection
    from tests.ha.simulation.world import World


class Faults:
    """Draws faults, each kind with a weight of its own in each seed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._chance = world.clock.chance
        self._is_over = False
        self._pending_s = 0
        kinds: list[Callable[[], None]] = [
            self.cut,
            self.half_open,
            self.partition,
            self.kill_slave,
            self.power_cut_slave,
            self.kill_master,
            self.power_cut_master,
            self.pause,
            self.stick,
            self.fill_disk,
            self.switch_mode,
            self.change_rules,
            self.expire,
            self.forge,
            self.invite_stranger,
            self.wipe,
            self.announce,
            self.change_delay,
            self.promote,
            self.fail_over,
            self.hang_and_promote,
            self.demote_by_force,
            self.mispoint,
            self.reconnect,
            self.demote_old,
            self.repair,
            self.cut_off_nameserver,
            self.stop_nameserver,
            self.degrade,
        ]
        # Each seed has favourites, and leaves some out: rare combinations come up that way.
        self._kinds = kinds
        self._weights = [self._chance.choice((0, 0, 1, 1, 4)) for _ in kinds]
        if not any(self._weights):
            self._weights[0] = 1
        self._cumulated = list(accumulate(self._weights))
        self._gap_s = self._chance.choice((0.5, 1.2, 3.0))

    def plan(self) -> None:
        clock = self.world.clock
        clock.at(clock.now + self._gap_s * 2 * self._chance.random(), self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        (kind,) = self._chance.choices(self._kinds, cum_weights=self._cumulated)
        kind()
        self.plan()

    def _note(self, what: str, detail: str = "") -> None:
        self.world.count(f"fault: {what}")
        self.world.trace(f"! {what} {detail}")

    def _later(self, seconds: float, action: Callable[..., None], *arguments: object) -> None:
        clock = self.world.clock
        clock.at(clock.now + seconds, action, arguments)

    def _seconds(self) -> float:
        return self._chance.choice((0.05, 0.4, 2.0, 8.0, 25.0)) * (0.5 + self._chance.random())

    def _slaves(self) -> list[Node]:
        return [n for n in self.world.nodes if not n.is_master and n.is_up and not n.is_stranger]

    def _slave(self) -> Node | None:
        slaves = self._slaves()
        return self._chance.choice(slaves) if slaves else None

    # --- the network -----------------------------------------------------------------------------

    def cut(self) -> None:
        connections = list(self.world.network.connections.values())
        if connections:
            connection = self._chance.choice(connections)
            self._note("cut", f"{connection.caller.name} - {connection.callee.name}")
            self.world.network.cut(connection, told=("caller", "callee"))

    def half_open(self) -> None:
        """A connection breaks and one end, or both, do not hear of it."""
        connections = list(self.world.network.connections.values())
        if connections:
            connection = self._chance.choice(connections)
            told = self._chance.choice(((), ("caller",), ("caller",), ("callee",)))
            self._note("half-open", f"{connection.caller.name}, {told} told")
            self.world.network.cut(connection, told=told)

    def partition(self) -> None:
        one, other = self._chance.sample(self.world.nodes, 2)
        pairs = [(one.name, other.name)]
        if self._chance.random() < 0.6:
            pairs.append((other.name, one.name))
        self._note("partition" if len(pairs) == 2 else "one-way partition", f"{pairs}")
        self._block(pairs, self._seconds())

    def _block(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        blocked = self.world.network.blocked
        for pair in pairs:
            blocked[pair] = blocked.get(pair, 0) + 1
        self._later(seconds, self._heal, pairs)

    def _heal(self, pairs: list[tuple[str, str]]) -> None:
        blocked = self.world.network.blocked
        for pair in pairs:
            if pair in blocked:
                blocked[pair] -= 1
                if not blocked[pair]:
                    del blocked[pair]
        self.world.trace(f"! healed {pairs}")
        self.world.network.resume()

    def change_delay(self) -> None:
        self.world.network.delay_s = self._chance.choice((0.0002, 0.002, 0.05, 0.5))
        self._note("delay", f"{self.world.network.delay_s} s")

    def reconnect(self) -> None:
        """A slave connects anew, perhaps in the other dialect, and its master sees two of it."""
        network = self.world.network
        slaves = self._slaves()
        connections = [c for c in network.connections.values() if c.caller in slaves]
        if not connections:
            return
        connection = self._chance.choice(connections)
        node = connection.caller
        assert isinstance(node, Node)
        others = [other for other in slaves if other is not node]
        self._note("reconnection", node.name)
        if others and self._chance.random() < 0.6:
            # While another one does not get on, so that sends wait.
            other = self._chance.choice(others)
            other.is_stuck = True
            self._later(self._seconds(), self._unstick, other)
        if not node.config.secret and self._chance.random() < 0.2:
            node.config.is_stock = not node.config.is_stock
        self._later(self._chance.random(), self._break, connection)

    def _break(self, connection: Connection) -> None:
        if connection.number in self.world.network.connections:
            self.world.trace(f"! {connection.caller.name} hears that its link is cut")
            self.world.network.cut(connection, told=("caller",))

    # --- machines --------------------------------------------------------------------------------

    def kill_slave(self) -> None:
        node = self._slave()
        if node is not None:
            self._stop(node, is_power_cut=False)

    def power_cut_slave(self) -> None:
        node = self._slave()
        if node is not None:
            self._stop(node, is_power_cut=True)

    def kill_master(self) -> None:
        if self.world.current.is_up:
            self._stop(self.world.current, is_power_cut=False)

    def power_cut_master(self) -> None:
        if self.world.current.is_up:
            self._stop(self.world.current, is_power_cut=True)

    def _stop(self, node: Node, *, is_power_cut: bool, seconds: float | None = None) -> None:
        role = "master" if node.is_master else "slave"
        was_master = node.is_master
        node.stop(
            is_power_cut=is_power_cut, is_told=not is_power_cut or self._chance.random() < 0.3
        )
        self._note(f"{'power cut' if is_power_cut else 'kill'} of a {role}", f"{node!r}")
        if was_master and node is self.world.current:
            self.world.forget_lost(node)
        down_s = self._seconds() / 2 if seconds is None else seconds
        self._later(down_s, self._start, node, node.incarnation)

    def _start(self, node: Node, incarnation: int) -> None:
        if not node.is_up and node.incarnation == incarnation:
            self.world.trace(f"! start of {node!r}")
            node.start(self.world.clock.now)

    def pause(self) -> None:
        node = self._chance.choice(self.world.nodes)
        if node.is_up:
            seconds = self._seconds()
            self._note("pause", f"{node.name} for {seconds:.1f} s")
            node.paused_until = max(node.paused_until, self.world.clock.now + seconds)

    def stick(self) -> None:
        """A slave reads nothing any more, though it goes on sending reports."""
        node = self._slave()
        if node is not None and not node.is_stuck:
            self._note("stuck slave", node.name)
            node.is_stuck = True
            self._later(self._seconds(), self._unstick, node)

    def _unstick(self, node: Node) -> None:
        node.is_stuck = False
        self.world.network.resume()

    def fill_disk(self) -> None:
        node = self._slave()
        if node is not None:
            self._note("disk full", node.name)
            node.slave_part.is_disk_full = True
            self._later(self._seconds(), self._empty_disk, node)

    def _empty_disk(self, node: Node) -> None:
        node.slave_part.is_disk_full = False

    def wipe(self) -> None:
        """A slave comes back with nothing, under its old name."""
        node = self._slave()
        if node is not None:
            self._stop(node, is_power_cut=True)
            self._note("wiped disk", node.name)
            node.note_loss(node.log.begin, node.log.end, was_flushed=True)
            node.log.clear()

    # --- nameservers -----------------------------------------------------------------------------

    def cut_off_nameserver(self) -> None:
        """A nameserver and a broker do not hear each other."""
        world = self.world
        if world.nameservers:
            nameserver = self._chance.choice(world.nameservers)
            node = self._chance.choice(world.nodes)
            pairs = [(node.name, nameserver.name)]
            self._note("nameserver cut off", f"{pairs}")
            self._block(pairs, self._seconds())

    def stop_nameserver(self) -> None:
        """A nameserver is down for a while, and may come back with an empty disk."""
        world = self.world
        if world.nameservers:
            nameserver = self._chance.choice(world.nameservers)
            self._note("nameserver down", nameserver.name)
            nameserver.is_up = False
            # No more than one at a time loses its disk, or nobody could know anything.
            if nameserver is world.nameservers[0] and self._chance.random() < 0.3:
                self._note("nameserver wiped", nameserver.name)
                nameserver.wipe()
            self._later(self._seconds(), self._start_nameserver, nameserver)

    def _start_nameserver(self, nameserver: SimNameserver) -> None:
        nameserver.is_up = True

    # --- operators -------------------------------------------------------------------------------

    def degrade(self) -> None:
        """A slave is cut off, the master goes on without it, dies, and the slave is promoted."""
        world, node, chance = self.world, self._slave(), self._chance
        old = world.current
        if node is None or not old.is_up or old.master is None:
            return
        self._note("degraded master", f"{old!r} without {node!r}")
        pairs = [(node.name, old.name), (old.name, node.name)]
        for nameserver in world.nameservers:
            pairs += [(who.name, nameserver.name) for who in (node, old) if chance.random() < 0.25]
        self._block(pairs, 8.0)
        for connection in list(world.network.connections.values()):
            if connection.caller is node:
                world.network.cut(connection, told=("caller", "callee"))
        if chance.random() < 0.4:
            old.config.mode = ReplicationMode.ASYNC
            old.take_config(world.clock.now)
        elif chance.random() < 0.6:
            # The others come back as slaves that nothing is recorded of, or can be.
            for other in self._slaves():
                if other is not node:
                    self._stop(other, is_power_cut=False, seconds=0.3)
            if chance.random() < 0.5:
                self._block([(old.name, each.name) for each in world.nameservers], 8.0)
        self._later(1.0 + 3 * chance.random(), self._kill_and_promote, old, node)

    def _kill_and_promote(self, old: Node, node: Node) -> None:
        world, chance = self.world, self._chance
        if self._is_over or old is not world.current or node.is_master or not node.is_up:
            return
        if chance.random() < 0.6:
            for other in self._slaves():
                if other is not node:
                    self._stop(other, is_power_cut=False)
        if old.is_up:
            self._stop(old, is_power_cut=False)
        if world.nameservers and chance.random() < 0.2:
            self._note("nameserver wiped", world.nameservers[0].name)
            world.nameservers[0].wipe()
        self._promote(node, "promotion after degradation", accepts_loss=False)

    def _promote(
        self, node: Node, what: str, *, accepts_loss: bool, is_planned: bool = False
    ) -> None:
        """An operator orders a promotion, and others to follow when it has succeeded."""
        old = self.world.current

        def tell() -> None:
            self._note(what, f"of {node!r}")
            # When the old one comes back, it is told.
            if old is not node and (
                not old.is_master if old.is_up else self._chance.random() < 0.7
            ):
                old.slave_part.point_to(node)
            self._point_others(old, node)

        self.world.promote(node, tell, accepts_loss=accepts_loss, is_planned=is_planned)

    def switch_mode(self) -> None:
        node = self.world.current
        config = node.config
        config.mode = (
            ReplicationMode.ASYNC if config.mode is ReplicationMode.SYNC else ReplicationMode.SYNC
        )
        self._note("mode switch", f"{node.name} is {config.mode.value}")
        if node.is_up:
            node.take_config(self.world.clock.now)

    def change_rules(self) -> None:
        node = self.world.current
        with_rules(
            node.config,
            needed=self._chance.choice((1, 1, 2)),
            minimum=self._chance.choice((0, 0, 1)),
            counts_flushed=self._chance.random() < 0.3,
            lag_s_max=self._chance.choice((2.0, 5.0, 15.0)),
            lag_bytes_max=self._chance.choice((400, 2000, 10**9)),
        )
        self._note("other rules", f"{node.config.rules}")
        if node.is_up:
            node.take_config(self.world.clock.now)

    def expire(self) -> None:
        node = self._chance.choice(self.world.nodes)
        # Messages live for hours, sends wait for seconds.
        if node.is_up and node.log.end > node.log.begin and not node.pending:
            node.log.expire(self._chance.choice((1, 1, 3, 50)))
            self._note("retention", f"{node!r}")

    def announce(self) -> None:
        node = self.world.current
        if node.master is not None:
            node.master.announce()

    def promote(self) -> None:
        node = self._slave()
        if node is not None:
            is_planned = self._chance.random() < 0.6
            accepts_loss = not is_planned and self._chance.random() < 0.3
            what = "hand-over" if is_planned else "promotion"
            self._promote(node, what, accepts_loss=accepts_loss, is_planned=is_planned)

    def demote_by_force(self) -> None:
        """The only master stops being one; somebody may be promoted later, or it is again."""
        node = self.world.current
        if node.is_up and node.is_master and node.paused_until <= self.world.clock.now:
            self._note("demotion by force", f"{node!r}")
            node.give_up(self.world.clock.now)
            self._later(self._seconds() / 4, self._end_interregnum, node)

    def _end_interregnum(self, old: Node) -> None:
        world = self.world
        if self._is_over or old is not world.current or old.is_master:
            return
        node = self._slave()
        if node is not None:
            self._promote(node, "promotion after a demotion", accepts_loss=False)
        self._later(2.0, self._end_interregnum, old)

    def fail_over(self) -> None:
        """The master dies, perhaps a slave with it, and another slave is to take its place."""
        world = self.world
        if not world.current.is_up:
            return
        if self._chance.random() < 0.3:
            self.kill_slave()
        self._stop(world.current, is_power_cut=self._chance.random() < 0.5)
        self._later(0.1 + 2 * self._chance.random(), self._take_over, world.current)

    def _take_over(self, old: Node) -> None:
        world, node = self.world, self._slave()
        if self._is_over or old is not world.current or old.is_up or node is None:
            return
        self._promote(node, "fail-over", accepts_loss=False)

    def hang_and_promote(self) -> None:
        """The master hangs, a slave is to take its place, and the master comes back meanwhile."""
        world, node, old = self.world, self._slave(), self.world.current
        if node is None or not old.is_up or not old.is_master:
            return
        clock, chance = world.clock, self._chance
        seconds = chance.choice((0.5, 2.0, 3.0, 6.0)) * (0.5 + chance.random())
        self._note("hang and promotion", f"{old!r} for {seconds:.1f} s")
        old.paused_until = max(old.paused_until, clock.now + seconds)
        if chance.random() < 0.3:
            # It finds the slave gone, and does not wait for any when it is back.
            pairs = [(node.name, old.name), (old.name, node.name)]
            self._block(pairs, seconds + 5.0)
        if chance.random() < 0.3:
            old.config.mode = ReplicationMode.ASYNC
            clock.at(old.paused_until, old.take_config, (old.paused_until,), old)
        self._later(chance.random(), self._promote_beside, old, node)

    def _promote_beside(self, old: Node, node: Node) -> None:
        if not self._is_over and old is self.world.current and node.is_up and not node.is_master:
            self._promote(node, "promotion beside a hung master", accepts_loss=False)

    def mispoint(self) -> None:
        """An operator points a slave at any broker that thinks it is master."""
        node = self._slave()
        masters = [other for other in self.world.nodes if other.is_master]
        if node is not None and masters:
            master = self._chance.choice(masters)
            self._note("slave pointed", f"{node.name} at {master.name}")
            node.slave_part.point_to(master)

    def _point_others(self, old: Node, node: Node) -> None:
        for other in self.world.nodes:
            if (
                other not in (old, node)
                and not other.is_master
                and self._chance.random() < 0.8
                and other.is_up
            ):
                other.slave_part.point_to(node)

    def demote_old(self) -> None:
        """Masters that are not master any longer hear of it."""
        world = self.world
        for node in world.nodes:
            if (
                node is not world.current
                and node.is_up
                and node.is_master
                and node.paused_until <= world.clock.now
            ):
                self._note("demotion", f"{node!r}")
                node.resign(world.clock.now)
                node.slave_part.point_to(world.current)
            elif (
                node is not world.current
                and world.current.is_master
                and not node.is_up
                and not node.slave_part.is_wanted
            ):
                node.slave_part.point_to(world.current)

    def repair(self) -> None:
        """Resync: a slave that has diverged is cut to what it has in common with its master."""
        master = self.world.current
        for node in self._slaves():
            slave = node.slave_part
            if slave.state is SlaveState.DIVERGED and slave.target is master and master.is_up:
                log = node.log
                common = max(log.base, common_end(log, master.log))
                self._note("resync", f"{node!r} to {common}")
                node.note_reborn()
                if common <= max(log.begin, master.log.base):
                    log.clear()
                else:
                    log.cut(common)
                    log.cut(log.record_boundary())
                slave.point_to(master)

    # --- those who do not belong -----------------------------------------------------------------

    def forge(self) -> None:
        """Somebody says something to the replication port."""
        master = self.world.current
        if not master.is_up or master.master is None:
            return
        chance = self._chance
        first, then = draw_forgery(chance, master.log.end, master.epoch)
        forger = Forger(f"forger{chance.randrange(1000)}")
        self._note("forgery", f"{first[:16].hex()} {then.hex()}")
        network, clock = self.world.network, self.world.clock
        connection = network.connect(forger, master)
        clock.at(clock.now, master.accept, (connection,), master)
        network.send(connection, forger, first)
        if then:
            self._later(0.5 + chance.random(), network.send, connection, forger, then)

    def invite_stranger(self) -> None:
        """A slave of another cluster, or one with another secret, calls."""
        world = self.world
        if any(node.is_stranger for node in world.nodes):
            return
        model = world.nodes[-1].config
        is_other_cluster = self._chance.random() < 0.5
        config = NodeConfig(
            cluster="other" if is_other_cluster else model.cluster,
            secret=model.secret if is_other_cluster else b"other" + model.secret,
            host="10.0.9.9",
            broker_id=9,
            mode=model.mode,
            rules=model.rules,
            catch_up=model.catch_up,
            is_stock=False,
            frame_bytes=200,
            catch_up_bytes_per_s=0,
        )
        node = Node(world, "stranger", config)
        node.is_stranger = True
        world.nodes.append(node)
        self._note("stranger", "other cluster" if is_other_cluster else "other secret")
        node.slave_part.point_to(world.current)

    # --- the end of it ---------------------------------------------------------------------------

    def stop(self) -> None:
        """No more faults: the network heals, machines start, disks have room."""
        self._is_over = True
        world = self.world
        world.network.delay_s = 0.005
        world.network.blocked.clear()
        for node in world.nodes:
            node.paused_until = min(node.paused_until, world.clock.now)
            node.is_stuck = node.slave_part.is_disk_full = False
            if not node.is_up:
                node.start(world.clock.now)
        for nameserver in world.nameservers:
            nameserver.is_up = True
        world.network.resume()
        self.tidy_up()

    def tidy_up(self) -> None:
        """What an operator does until all is well: one master, all follow it, divergence cut."""
        world = self.world
        if any(node.promotion is not None for node in world.nodes):
            return
        master = world.current.master
        if master is not None and master.keeper.is_pending:
            # Nameservers were emptied while it was promoted.
            self._pending_s += 1
            if self._pending_s > 5:
                world.current.withdraw(world.clock.now)
                self._promote(world.current, "promotion at the end", accepts_loss=True)
            return
        latest = max(node.epoch for node in world.nodes)
        if world.current.is_master and world.current.epoch < latest:
            # Without nameservers nobody told it which epochs there are: it has to catch up.
            world.current.give_up(world.clock.now)
        elif master is not None and master.keeper.is_fenced:
            # By the record of an epoch that was withdrawn, and whose broker died before it had
            # taken the record back.
            world.current.give_up(world.clock.now)
        if not world.current.is_master:
            self._promote(world.current, "promotion at the end", accepts_loss=True)
            return
        self.demote_old()
        for node in world.nodes:
            if node is not world.current and node.slave_part.target is not world.current:
                node.slave_part.point_to(world.current)
        self.repair()
