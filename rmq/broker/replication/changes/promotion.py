"""Promotion of a slave to master, step by step.

The old master, if it answers, stops writing and waits until this slave has everything. Else this
slave stops following, the other slaves renounce (`rmq.ha.protocol.promotion` explains why), and it
is decided whether acknowledged messages may be missing here; if so, only `accept_loss` continues.
The log is dispatched completely, the new epoch is saved, its first record is stored on the
nameservers, and only then does the broker register as master and take messages. If that record
finds that the old master has gone on meanwhile, the promotion is withdrawn and nothing has changed.
The epoch in its registration makes nameservers refuse the old master, should it come back.
"""

from __future__ import annotations

import logging
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.replication.changes.inquiry import Inquiry
from rmq.broker.replication.changes.refusal import refuse
from rmq.broker.replication.changes.step_down import HAND_OVER_S
from rmq.broker.replication.changes.take_over import TakeOver
from rmq.broker.replication.peers import ASK_S
from rmq.errors import StorageError
from rmq.ha.protocol.promotion import (
    Candidate,
    HandOver,
    OtherSlave,
    decide,
    masters_of,
    two_masters,
)
from rmq.model.in_sync_record import newest
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import HaPromoteBody
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.registration.registration import Registration
    from rmq.broker.replication.changes.inquiry import Knowledge
    from rmq.broker.replication.peers import Member, Peers
    from rmq.broker.replication.role import Replication
    from rmq.ha.protocol.promotion import PromotionVerdict
    from rmq.remoting.bodies import HaStepDownBody
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)


@final
class Promotion:
    """Makes this slave the master of its broker name."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        replication: Replication,
        registration: Registration,
        peers: Peers,
    ) -> None:
        self._live = live
        self._store = store
        self._replication = replication
        self._registration = registration
        self.take_over = TakeOver(live, replication, registration, peers)
        self._inquiry = Inquiry(live, replication, peers)

    async def run(self, mode: str | None, *, accept_loss: bool) -> HaPromoteBody:
        """Promote this broker, to `mode` or that of the last master; refuse if that is not safe."""
        replication, config = self._replication, self._live.current
        if replication.is_pending:
            refuse(
                f"{config.address} is being made master already: {self._not_ready()}; give that"
                " up with `rmq ha demote`"
            )
        if replication.is_master and replication.fenced is None:
            refuse(f"{config.address} is master already")
        if not replication.is_master:
            _check_port(config)
        members = await self.take_over.members(accept_loss=accept_loss)
        previous = replication.slave_role.last_master_address or ""
        former = next((m for m in members if m.address == previous), None)
        stepped_down = None
        if former is None or former.status is None or former.status.role == "MASTER":
            await self._check_epochs(members, accept_loss=accept_loss)
            is_silent = former is not None and former.status is None
            stepped_down = await self.take_over.have_step_down(
                previous, accept_loss=accept_loss, is_silent=is_silent
            )
        async with self._suspended():
            return await self._begin(
                members, previous, stepped_down, accept_loss=accept_loss, mode=mode
            )

    # --- the decision ------------------------------------------------------------------------

    async def _check_epochs(self, members: list[Member], *, accept_loss: bool) -> None:
        """Make the checks before the master steps down that would refuse the promotion after it."""
        knowledge, own = await self._inquiry.ask(members), self._replication.identity.epoch
        knowledge.check_last_epoch()
        if accept_loss:
            return
        if knowledge.latest_epoch > own:
            refuse(
                f"messages that were acknowledged may be lost: there was a master of epoch"
                f" {knowledge.latest_epoch}, this slave has followed only one of {own}"
            )
        if len(masters_of(own, self._candidate(None), knowledge.kept, knowledge.others)) > 1:
            refuse(f"messages that were acknowledged may be lost: {two_masters(own)}")

    @asynccontextmanager
    async def _suspended(self) -> AsyncIterator[None]:
        """Receive nothing from a master inside this context, while a decision rests on the log."""
        slave = self._replication.slave
        if slave is None:
            yield
            return
        async with AsyncExitStack() as stack:
            with trio.move_on_after(ASK_S) as scope:
                await stack.enter_async_context(slave.suspended())
            if scope.cancelled_caught:
                refuse(f"this slave did not stop following its master within {ASK_S:g} s")
            yield

    def _candidate(self, hand_over: HandOver | None) -> Candidate:
        """Return what the decision about a promotion has to know of this broker."""
        replication = self._replication
        slave = replication.slave
        view = None if slave is None else slave.status.master
        return Candidate(
            members=replication.identity.members,
            store=replication.identity.name,
            epoch=replication.identity.epoch,
            end=replication.log.end,
            record=newest(*replication.identity.records),
            follows_stock=view is not None and not view.is_native and view.end > 0,
            was_last=replication.is_master or replication.was_last,
            hand_over=hand_over,
        )

    def _check_loss(
        self, knowledge: Knowledge, hand_over: HandOver | None, *, accept_loss: bool
    ) -> PromotionVerdict:
        """Refuse if acknowledged messages may be missing here and loss is not accepted."""
        replication = self._replication
        others = list(knowledge.others)
        if replication.known.epoch > replication.identity.epoch:
            others.append(OtherSlave("the nameserver's last master", replication.known.epoch, None))
        verdict = decide(self._candidate(hand_over), knowledge.kept, others)
        if not verdict.is_safe:
            if not accept_loss:
                refuse(f"messages that were acknowledged may be lost: {verdict.reason}")
            logger.warning("promoted although messages may be lost: %s", verdict.reason)
        return verdict

    def _known_missing(self, members: list[Member], hand_over: HandOver | None) -> int:
        """Return how many bytes other brokers are known to have beyond this log."""
        slave = self._replication.slave
        ends = [member.status.end for member in members if member.status is not None]
        if hand_over is not None:
            ends.append(hand_over.end)
        if slave is not None:
            ends.append(slave.status.master.end)
        return max(0, max(ends, default=0) - self._replication.log.end)

    def _role_of(self, mode: str | None, knowledge: Knowledge) -> BrokerRole:
        if mode is None:
            return self._last_role(knowledge)
        try:
            role = BrokerRole(mode)
        except ValueError:
            role = BrokerRole.SLAVE
        if role is BrokerRole.SLAVE:
            refuse(f"mode is {mode}, not ASYNC_MASTER or SYNC_MASTER")
        return role

    def _last_role(self, knowledge: Knowledge) -> BrokerRole:
        """Return the last known mode of this broker name."""
        replication = self._replication
        if replication.is_master:
            return self._live.current.role
        is_sync: bool | None = None
        slave = replication.slave
        view = None if slave is None else slave.status.master
        if knowledge.records:
            is_sync = knowledge.records[-1].is_sync
        elif view is not None and view.is_native and view.needed:
            is_sync = view.is_sync
        if is_sync is None:
            refuse(
                "it is not known whether its master was sync or async: say which it is to be"
                " (--mode sync or --mode async)"
            )
        return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER

    # --- the new epoch -----------------------------------------------------------------------

    async def _begin(
        self,
        members: list[Member],
        previous: str,
        stepped_down: HaStepDownBody | None,
        *,
        accept_loss: bool,
        mode: str | None,
    ) -> HaPromoteBody:
        """Decide whether this broker has everything, and begin an epoch, while it is suspended."""
        replication = self._replication
        hand_over = None
        if stepped_down is not None:
            end = PhysicalOffset(stepped_down.end)
            hand_over = HandOver(stepped_down.epoch, end, stepped_down.master)
            # The old master knows the mode that was ordered last, recorded or not.
            mode = mode or stepped_down.mode or None
        if not self._candidate(hand_over).is_handed_over:
            # The old master may be promoted again by now, and this slave have followed it.
            stepped_down = None
            members = await self._inquiry.have_renounce(members)
        knowledge = await self._inquiry.ask(members)
        is_safe, reason = self._check_loss(knowledge, hand_over, accept_loss=accept_loss)
        missing = 0 if is_safe else self._known_missing(members, hand_over)
        role = self._role_of(mode, knowledge)
        knowledge.check_last_epoch()
        epoch = knowledge.latest_epoch + 1
        try:
            cut_bytes = await self._become_master(
                role, epoch, knowledge, previous, is_forced=not is_safe
            )
        except StorageError as exc:
            if stepped_down is None:
                raise
            refuse(
                f"the master at {previous} has stepped down, and this slave cannot take its place:"
                f" {exc}; no broker takes messages now: promote the broker at {previous}, or this"
                " one when that is repaired"
            )
        start = replication.log.end
        logger.info(
            "this broker is %s of %s now: epoch %d, from offset %d on, %s",
            "to be master" if replication.is_pending else "master",
            self._live.current.broker_name,
            epoch,
            start,
            role.value,
        )
        if replication.is_pending:
            is_safe = False
            reason = "until most nameservers keep its first record, the former master may go on"
        elif stepped_down is None and previous:
            await self.take_over.fence(previous, epoch)
        await self._register(epoch)
        return HaPromoteBody(
            mode=role.value,
            epoch=epoch,
            start=start,
            previous_master=previous,
            previous_end=-1 if stepped_down is None else stepped_down.end,
            missing_bytes=missing,
            cut_bytes=cut_bytes,
            is_safe=is_safe,
            reason=reason,
            waits_for=self._not_ready(),
        )

    async def _become_master(
        self,
        role: BrokerRole,
        epoch: int,
        knowledge: Knowledge,
        previous: str,
        *,
        is_forced: bool,
    ) -> int:
        """Run as master of a new epoch, in the place of the one at the address `previous`.

        Return how many bytes of an incomplete message were cut.

        Refuse if the former master has gone on meanwhile. Then this broker is a slave again.
        """
        replication = self._replication
        cut_bytes = 0

        async def prepare() -> None:
            nonlocal cut_bytes
            # The store refuses messages until everything is in place, whatever the role is.
            self._store.set_refused(Refusal.HANDING_OVER, True)
            cut_bytes = await replication.master_role.begin_epoch(
                epoch, role, knowledge.records, is_forced=is_forced, previous=previous
            )
            # From here on only an even later epoch fences this broker.
            replication.set_fenced(None)
            await replication.saved.assume(role, 0)

        try:
            await replication.change_role(prepare)
        finally:
            self._store.set_refused(Refusal.HANDING_OVER, False)
        overtaken = replication.master_role.overtaken
        if overtaken:
            with trio.move_on_after(HAND_OVER_S):
                while replication.is_master:  # noqa: ASYNC110 - rare, and short
                    await trio.sleep(0.01)
            refuse(f"nothing was changed: {overtaken}")
        replication.note_stepped_down(None)
        return cut_bytes

    async def _register(self, epoch: int) -> None:
        """Register as master; refuse if a nameserver knows of a later one."""
        # A master that was refused before has the same id still.
        self._registration.register_again()
        await self._registration.wait_told()
        fenced = self._replication.fenced
        if fenced is not None:
            refuse(
                f"it has begun epoch {epoch}, but is no master: {fenced}; make it a"
                " slave with `rmq ha demote`, or promote it again"
            )

    def _not_ready(self) -> str:
        """Return why a new master is not listed, or answers no send with SEND_OK."""
        records = self._replication.records
        missing = "" if records is None else records.missing
        if not missing and self._live.current.namesrv_addrs and not self._registration.is_heard:
            return "no nameserver lists it yet"
        return missing


def _check_port(config: BrokerConfig) -> None:
    """Check that the port for slaves is free, before anything is changed."""
    try:
        with socket.create_server((config.bind_address, config.ha_port)):
            pass
    except OSError as exc:
        refuse(
            f"port {config.ha_port}, to which slaves would connect, cannot be opened:"
            f" {exc.strerror}"
        )
