"""Nameservers of the simulation, as far as they keep in-sync records, and the master's side of it.

A nameserver can be cut off, down for a while, or come back with an empty disk. What brokers ask and
tell takes its time and gets lost like everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.ha.protocol.promotion import KeptRecords

if TYPE_CHECKING:
    from rmq.ha.protocol.record_keeper import RecordKeeper
    from rmq.model.in_sync_record import InSyncRecord
    from tests.ha.simulation.node import Node
    from tests.ha.simulation.world import World

RETRY_S: Final = 1.0
SAVE_S: Final = 0.01
"""What it takes a master to have a record on its disk, about."""


class SimNameserver:
    """One nameserver."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.record: InSyncRecord | None = None
        self.epoch = 0
        """The latest of a master that was listed."""

    def put(self, record: InSyncRecord) -> bool:
        """Keep a record, unless there is a later one; tell whether it is the one that is kept."""
        if self.record is None or record.order >= self.record.order:
            self.record = record
            return True
        return False

    def wipe(self) -> None:
        self.record = None
        self.epoch = 0


def is_reachable(world: World, node: Node, nameserver: SimNameserver) -> bool:
    blocked = world.network.blocked
    pairs = ((node.name, nameserver.name), (nameserver.name, node.name))
    return nameserver.is_up and not any(pair in blocked for pair in pairs)


def ask_all(world: World, node: Node) -> KeptRecords:
    """Return what the nameservers say that a node can reach."""
    return KeptRecords(
        {
            nameserver.name: nameserver.record
            for nameserver in world.nameservers
            if is_reachable(world, node, nameserver)
        }
    )


class Recording:
    """What a master does to have its records saved and kept elsewhere."""

    def __init__(self, node: Node, keeper: RecordKeeper) -> None:
        self._node = node
        self._keeper = keeper
        self._names = tuple(nameserver.name for nameserver in node.world.nameservers)
        self._is_saving = False
        self._asked_at = -RETRY_S
        self._told: dict[str, tuple[tuple[int, int], float]] = {}
        """What nameservers were sent last, and when."""

    def go_on(self, now: float) -> None:
        """Do what is to be done next, if anything is."""
        node, keeper = self._node, self._keeper
        world, master = node.world, node.master
        assert master is not None
        if keeper.overtaken_by is not None or keeper.is_fenced:
            return
        if not keeper.is_known and now >= self._asked_at + RETRY_S:
            self._asked_at = now
            world.clock.at(now + 2 * world.network.draw_delay(), self._learn, (), node)
        master.want_record(self._names, now)
        if keeper.to_save is not None and not self._is_saving:
            self._is_saving = True
            delay_s = SAVE_S * world.clock.chance.random()
            world.clock.at(now + delay_s, self._saved, (keeper.to_save,), node)
        record = keeper.newest
        if record is None:
            return
        lacking = keeper.places_without(self._names)
        if not lacking:
            return
        for nameserver in world.nameservers:
            if nameserver.name not in lacking:
                continue
            order, told_at = self._told.get(nameserver.name, ((0, 0), -RETRY_S))
            if order == record.order and now < told_at + RETRY_S:
                continue
            self._told[nameserver.name] = (record.order, now)
            delay_s = world.network.draw_delay()
            world.clock.at(now + delay_s, self._put, (nameserver, record))

    def _is_over(self) -> bool:
        master = self._node.master
        return master is None or master.keeper is not self._keeper

    def _learn(self) -> None:
        """Take in what a majority of nameservers know, if so many answer."""
        node, world = self._node, self._node.world
        if self._is_over() or self._keeper.is_known:
            return
        kept = ask_all(world, node)
        if len(kept.answers) > len(world.nameservers) // 2:
            self._keeper.learned(record for record in kept.answers.values() if record is not None)
            self._apply()

    def _saved(self, record: InSyncRecord) -> None:
        self._is_saving = False
        if self._is_over():
            return
        self._node.records = (*self._keeper.chain, record)
        self._keeper.saved(record)
        self._apply()

    def _put(self, nameserver: SimNameserver, record: InSyncRecord) -> None:
        """A record arrives at a nameserver, if it does."""
        node, world = self._node, self._node.world
        if is_reachable(world, node, nameserver):
            self._bring(nameserver, record)
        if self._keeper.asked(nameserver.name) and not self._is_over():
            world.clock.at(world.clock.now, self._begin, (), node)

    def _begin(self) -> None:
        """An epoch that was forced begins: all nameservers were asked."""
        if not self._is_over():
            node = self._node
            node.records = self._keeper.chain
            self._apply()

    def _bring(self, nameserver: SimNameserver, record: InSyncRecord) -> None:
        node, world = self._node, self._node.world
        # It is asked what it has, and told to keep this instead of that: it compares itself, also
        # when the writer is gone by then.
        if not self._keeper.met(nameserver.record):
            if self._keeper.overtaken_by is not None and not self._is_over():
                world.clock.at(world.clock.now, world.overtaken, (node,), node)
            return
        if nameserver.record is not None and nameserver.record.epoch > self._keeper.epoch:
            self._keeper.is_fenced = True
        if self._keeper.is_fenced:
            return
        if nameserver.put(record):
            delay_s = world.network.draw_delay()
            world.clock.at(
                world.clock.now + delay_s, self._stored, (nameserver, record.order), node
            )

    def _stored(self, nameserver: SimNameserver, order: tuple[int, int]) -> None:
        node = self._node
        if self._is_over() or not is_reachable(node.world, node, nameserver):
            return
        if self._keeper.stored(nameserver.name, order):
            node.records = self._keeper.chain
            self._apply()

    def _apply(self) -> None:
        master = self._node.master
        assert master is not None
        master.apply_record()
        if self._keeper.confirmed is not None:
            self._node.world.confirmed(self._node)
        self._node.after_event(self._node.world.clock.now)
