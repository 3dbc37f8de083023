"""A promotion, step by step: anything may happen between two steps, as between two requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.ha.protocol.promotion import HandOver, KeptRecords, OtherSlave, decide
from tests.ha.simulation.disk import common_end
from tests.ha.simulation.nameserver import ask_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.model.in_sync_record import InSyncRecord
    from tests.ha.simulation.node import Node
    from tests.ha.simulation.world import World

ASK_S: Final = (0.001, 0.001, 0.3, 3.0)
"""What it takes to ask somebody, the last one if he hangs."""
TAKE_OVER_S: Final = (0.01, 0.01, 0.5, 2.0)
"""What it takes to bring queues up to the log and to have an epoch on disk."""


class Promotion:
    """One promotion of one node. It ends when that is master, refuses, or its process is gone."""

    def __init__(
        self,
        world: World,
        node: Node,
        then: Callable[[], None],
        *,
        accepts_loss: bool,
        is_planned: bool,
    ) -> None:
        self._world = world
        self._node = node
        self._then = then
        self._accepts_loss = accepts_loss
        self._old = world.current
        self._others: list[OtherSlave] = []
        self._kept = KeptRecords()
        self._found: tuple[InSyncRecord, ...] = ()
        self._registered: list[int] = []
        self._is_safe = False
        self._is_planned = is_planned
        self._hand_over: HandOver | None = None

    def begin(self) -> None:
        """The master steps down, if it answers; else the slave goes on without it."""
        self._node.promotion = self
        if self._is_planned:
            self._in(ASK_S, self._ask_master)
        else:
            self._in(ASK_S, self._suspend)

    def _ask_master(self) -> None:
        world, node, old = self._world, self._node, self._old
        if old.is_master and world.is_reachable(node, old):
            known = max([node.epoch, *world.registered_epochs(node)])
            if not self._may_step_down() or known > old.epoch:
                world.count("hand-overs refused")
                node.promotion = None
                return
            epoch = old.epoch
            old.step_down(world.clock.now)
            self._hand_over = HandOver(epoch, old.log.end, old.name)
        self._in(ASK_S, self._suspend)

    def _may_step_down(self) -> bool:
        """Tell whether the slave has everything, as the master sees to before it gives way."""
        node, old = self._node, self._old
        return (
            not node.is_master
            and old.master is not None
            and old.master.keeper.has_begun
            and node.epoch == old.epoch
            and node.log.end == old.log.end
            and common_end(node.log, old.log) == old.log.end
            and node.log.begin <= old.log.begin
        )

    def _suspend(self) -> None:
        """The slave follows nobody from now on."""
        self._node.slave_part.suspend()
        self._in(ASK_S, self._ask_others)

    def _in(self, seconds: tuple[float, ...], step: Callable[[], None]) -> None:
        clock = self._world.clock
        clock.at(clock.now + clock.chance.choice(seconds), step, (), self._node)

    def _ask_others(self) -> None:
        world, node = self._world, self._node
        is_handed_over = node.candidate(self._hand_over).is_handed_over

        def ask(other: Node) -> OtherSlave:
            return other.as_other(node) if is_handed_over else other.renounce(node)

        for other in world.nodes:
            # Where there are no nameservers, nobody knows the others.
            if other in (node, self._old) or other.is_stranger or not world.nameservers:
                continue
            if not world.is_reachable(node, other) or other.is_master:
                self._others.append(OtherSlave(other.name, None, None))
            else:
                self._others.append(ask(other))
        old = self._old
        if (
            old is not node
            and not old.is_master
            and world.nameservers
            and world.is_reachable(node, old)
        ):
            self._others.append(ask(old))
        self._in(ASK_S, self._ask_nameservers)

    def _ask_nameservers(self) -> None:
        world, node = self._world, self._node
        self._kept = ask_all(world, node)
        self._registered = world.registered_epochs(node)
        found = [*node.records, *self._kept.answers.values()]
        found += [other.record for other in self._others]
        records = {(record.order, record.master): record for record in found if record is not None}
        self._found = tuple(records[key] for key in sorted(records))
        self._in(ASK_S, self._decide)

    def _decide(self) -> None:
        world, node = self._world, self._node
        if node.is_master:
            # Another operator made it one meanwhile.
            node.promotion = None
            return
        is_last = max(self._known_epochs()) == node.epoch
        candidate = node.candidate(self._hand_over if is_last else None)
        verdict = decide(candidate, self._kept, self._others)
        is_safe, reason = verdict
        world.trace("promote %r: %s, %s; %s %s", node, is_safe, reason, candidate, self._kept)
        if not verdict.is_safe and not self._accepts_loss:
            world.count("promotions refused")
            node.promotion = None
            node.slave_part.resume()
            return
        self._is_safe = verdict.is_safe
        self._in(TAKE_OVER_S, self._take_over)

    def _take_over(self) -> None:
        world, node = self._world, self._node
        node.promotion = None
        if node.is_master:
            return
        epoch = max(self._known_epochs()) + 1
        world.take_over(node, self._old, self._found, epoch=epoch, is_safe=self._is_safe)
        self._then()

    def _known_epochs(self) -> list[int]:
        epochs = [self._node.epoch, *(record.epoch for record in self._found)]
        epochs += [other.epoch for other in self._others if other.epoch is not None]
        return epochs + self._registered
