"""What a node does as a slave: dial, greet, receive into the log, flush, report, try again."""

from __future__ import annotations

import enum
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from rmq.ha.protocol.slave_link import EndKind, SlaveLink
from rmq.ha.slave import ROUND_TRIPS
from tests.ha.simulation.checks import (
    Rule,
    broken,
    check_append,
    check_divergence,
)
from tests.ha.simulation.disk import common_end

if TYPE_CHECKING:
    from rmq.ha.protocol.slave_link import LinkEnd, MasterView
    from tests.ha.simulation.network import Connection
    from tests.ha.simulation.node import Node


class SlaveState(enum.Enum):
    """How a slave fares."""

    CONNECTING = "connecting"
    FOLLOWING = "following"
    DIVERGED = "diverged"
    STALE = "stale"
    REFUSED = "refused"
    FAILED = "failed"


_STATES = {
    EndKind.DIVERGED: SlaveState.DIVERGED,
    EndKind.STALE: SlaveState.STALE,
    EndKind.REFUSED: SlaveState.REFUSED,
}


class SlavePart:
    """The slave in a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.target: Node | None = None
        self.state = SlaveState.CONNECTING
        self.view: MasterView | None = None
        """What it knows of its master."""
        self.link: SlaveLink | None = None
        self.connection: Connection | None = None
        self.is_suspended = False
        self.is_disk_full = False
        self.last_reason = ""
        self._tries_stock = False
        self._was_native = False
        """Masters are native: silence does not make one a stock one."""
        self._backoff_s = 0.2
        self._dial_number = 0
        self._timer_at = 0.0
        self._has_appended = False
        self._flush_planned = False

    @property
    def is_wanted(self) -> bool:
        """Whether this node is to be a slave."""
        return self.target is not None

    @property
    def heard(self) -> MasterView | None:
        """What it was last told by its master; None if it has heard of none."""
        if self.link is not None and self.link.is_streaming:
            return self.link.master
        return self.view

    def point_to(self, target: Node | None) -> None:
        """Follow another master, or none."""
        self.target = target
        if target is not None:
            self.node.gave_up = None
        self._close("the master has changed")
        self.state = SlaveState.CONNECTING
        self.view = None
        self._backoff_s = 0.2
        if target is not None:
            self.dial_at(self.node.world.clock.now)

    def break_off(self) -> None:
        """End the connection, and dial again."""
        self._close("it is another member from now on")
        if self.target is not None:
            self._retry()

    def suspend(self) -> None:
        """Follow nobody, until `resume`."""
        self.is_suspended = True
        self._close("it is to become master")

    def resume(self) -> None:
        self.is_suspended = False
        if self.target is not None:
            self.dial_at(self.node.world.clock.now)

    def drop(self, *, is_told: bool) -> None:
        """The process is gone: nothing is remembered."""
        if self.connection is not None:
            self.node.world.network.close(self.connection, self.node, is_told=is_told)
        self.connection = self.link = self.view = None
        self.is_suspended = False
        self.state = SlaveState.CONNECTING
        self._tries_stock = self._flush_planned = False
        self._was_native = bool(self.node.records)
        self._backoff_s = 0.2
        self._dial_number += 1

    def dial_at(self, time: float) -> None:
        self._dial_number += 1
        self.node.world.clock.at(time, self._dial, (self._dial_number,), self.node)

    def _dial(self, number: int) -> None:
        node, target = self.node, self.target
        if number != self._dial_number or target is None or self.link is not None:
            return
        if self.is_suspended:
            return
        world = node.world
        now, network = world.clock.now, world.network
        if (
            not target.is_up
            or not target.is_master
            or network.is_blocked(node, target)
            or network.is_blocked(target, node)
        ):
            self._retry()
            return
        is_native = not node.config.is_stock and not (
            # In the stock dialect nobody can tell who belongs to whom.
            self._tries_stock and not node.config.secret and not node.is_stranger
        )
        self._tries_stock = False
        if not is_native and not self._may_follow_stock(target):
            return
        connection = network.connect(node, target)
        connection.peak, connection.is_of_empty = node.log.end, not node.log.end
        self.connection = connection
        world.clock.at(now + network.draw_delay(), target.accept, (connection,), target)
        settings = node.slave_settings()
        if self._was_native:
            settings = replace(settings, native_wait_s=math.inf)
        else:
            wait_s = max(settings.native_wait_s, ROUND_TRIPS * 2 * network.delay_s)
            settings = replace(settings, native_wait_s=wait_s)
        self.link = SlaveLink(
            settings,
            node.log,
            is_native=is_native,
            epoch=node.epoch,
            nonce=world.clock.chance.randbytes(16),
            now=now,
        )
        self._has_appended = False
        world.trace("%r dials %s, %s", node, target.name, "native" if is_native else "stock")
        # Bytes go out behind the connection itself.
        connection.up.last_at = now + 2 * network.delay_s
        self._after_event(now)

    def _may_follow_stock(self, target: Node) -> bool:
        """Compare logs first, as a slave of a stock master does by other means."""
        log = self.node.log
        if log.end and log.end < target.log.begin:
            self._reseed("its master's log begins later")
            return False
        if log.end > target.log.end or (
            log.end > max(log.base, target.log.base) and common_end(log, target.log) < log.end
        ):
            self.state = SlaveState.DIVERGED
            self.dial_at(self.node.world.clock.now + 5.0)
            return False
        return True

    def _retry(self) -> None:
        self.state = SlaveState.CONNECTING
        self.dial_at(self.node.world.clock.now + self._backoff_s)
        self._backoff_s = min(5.0, 2 * self._backoff_s)

    # --- what happens on the connection ----------------------------------------------------------

    def bytes_arrived(self, connection: Connection, data: bytes) -> None:
        link, node = self.link, self.node
        if link is None or connection is not self.connection:
            return
        now, log = node.world.clock.now, node.log
        position = 0
        while position < len(data) and link.ending is None:
            if link.body_left:
                if self.is_disk_full:
                    self.state = SlaveState.FAILED
                    link.closed("the disk is full")
                    break
                piece = data[position : position + link.body_left]
                if not log.end and link.frame_offset:
                    log.begin_at(link.frame_offset)
                self._append(connection, link, piece, now)
                position += len(piece)
            else:
                position += link.receive(data[position:], now)
                if link.record is not None:
                    node.records = (link.record,)
                    link.record_saved(now)
                self._was_native |= link.is_native
                if link.is_streaming and link.is_native and link.epoch != node.epoch:
                    self._adopt(link.epoch)
        self._after_event(now)

    def _append(self, connection: Connection, link: SlaveLink, piece: bytes, now: float) -> None:
        node, log = self.node, self.node.log
        if node.is_stranger:
            broken(Rule.STRANGERS_GET_NOTHING, f"{node.name} got {len(piece)} bytes")
        if link.is_native and link.epoch < node.epoch:
            broken(Rule.EPOCHS_RISE, f"{node.name} of epoch {node.epoch} follows {link.epoch}")
        log.append(piece)
        link.body_received(piece, now)
        connection.peak = max(connection.peak, log.end)
        check_append(node, connection, len(piece), is_first=not self._has_appended)
        self._has_appended = True
        self.state = SlaveState.FOLLOWING
        self._backoff_s = 0.2
        self._plan_flush()

    def _adopt(self, epoch: int) -> None:
        node = self.node
        if epoch < node.epoch:
            broken(Rule.EPOCHS_RISE, f"{node.name} goes from epoch {node.epoch} back to {epoch}")
        node.epoch = epoch

    def has_closed(self, connection: Connection) -> None:
        if connection is self.connection and self.link is not None:
            self.link.closed("the connection was closed")
            self._after_event(self.node.world.clock.now)

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            clock, link = self.node.world.clock, self.link
            is_asked = link is not None and link.master.wants_flush
            delay_s = 0.01 if is_asked else 0.5
            clock.at(
                clock.now + delay_s * (0.5 + clock.chance.random()), self._flush, (), self.node
            )

    def _flush(self) -> None:
        self._flush_planned = False
        self.node.log.flush()
        self._after_event(self.node.world.clock.now)

    def _timer(self, planned_at: float) -> None:
        link = self.link
        if link is None or planned_at != self._timer_at:
            return
        now = self.node.world.clock.now
        link.tick(now)
        self._after_event(now)
        if self.link is link and link.next_tick <= now:
            broken(
                Rule.NO_SPINNING,
                f"{self.node.name} ticks at {now}, and is to tick again at {link.next_tick}",
            )

    def _after_event(self, now: float) -> None:
        link, connection, world = self.link, self.connection, self.node.world
        if link is None or connection is None:
            return
        if link.ending is None:
            link.report(now)
            if link.master.wants_flush and self.node.log.flushed < self.node.log.end:
                self._plan_flush()
        output = link.take_output()
        if output:
            world.network.send(connection, self.node, output)
        if link.ending is not None:
            self._ended(link.ending, connection, now)
        elif link.next_tick != self._timer_at:
            self._timer_at = link.next_tick
            world.clock.at(self._timer_at, self._timer, (self._timer_at,), self.node)

    # --- the end of it ---------------------------------------------------------------------------

    def _close(self, reason: str) -> None:
        if self.link is not None and self.connection is not None:
            self.link.closed(reason)
            if self.link.is_streaming:
                self.view = self.link.master
            self.node.world.network.close(self.connection, self.node)
        self.link = self.connection = None

    def _ended(self, ending: LinkEnd, connection: Connection, now: float) -> None:
        node = self.node
        node.world.trace("%r ends its link: %s, %s", node, ending.kind.value, ending.reason)
        self.last_reason = ending.reason
        self._close(ending.reason)
        if ending.kind is EndKind.RESEED:
            self._reseed(ending.reason)
        elif ending.kind in _STATES:
            if ending.kind is EndKind.DIVERGED:
                check_divergence(node, connection, ending.reason)
            self.state = _STATES[ending.kind]
            self.dial_at(now + 5.0)
        else:
            if ending.kind is EndKind.NOT_NATIVE:
                self._tries_stock = True
            if self.state is SlaveState.FAILED:
                self.dial_at(now + 1.0)
            else:
                self._retry()

    def _reseed(self, reason: str) -> None:
        node, log = self.node, self.node.log
        node.world.count("re-seeds")
        node.world.trace(f"{node!r} begins anew: {reason}")
        node.note_loss(log.begin, log.end, was_flushed=True)
        node.note_reborn()
        log.clear()
        self.state = SlaveState.CONNECTING
        self.dial_at(node.world.clock.now + 0.1)
