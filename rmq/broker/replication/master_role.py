"""The role of a master: it serves slaves, and tells sends and the store what they wait for.

While `run` runs, slaves can connect, in-sync records are kept, and the master-only tasks run. Which
slaves are in sync and when a send is answered is decided by `rmq.ha`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.replication.ha_settings import master_settings, mode_of
from rmq.broker.replication.leader_check import Fence
from rmq.broker.replication.record_keeping import RecordKeeping, RecordListener
from rmq.errors import StoreError
from rmq.ha.identity import begun, with_former_master, with_role
from rmq.ha.protocol.master import Master
from rmq.ha.protocol.record_keeper import RecordKeeper
from rmq.ha.server import HaServer, HaServerConfig, HaServerListener, ReplicationWait
from rmq.ha.tls_channel import server_context_of
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config import BrokerConfig
    from rmq.broker.replication.pump import Pump
    from rmq.broker.replication.role_parts import RoleParts
    from rmq.broker.rounds import Rounds
    from rmq.broker.sending.acknowledgement import Acknowledger
    from rmq.ha.protocol.pending_acks import ReplicationMode
    from rmq.model.in_sync_record import InSyncRecord
    from rmq.model.offsets import PhysicalOffset

logger = logging.getLogger(__name__)

CONFIRM_S: Final = 3.0
"""How long a new master waits until its in-sync record counts."""
NEWS_S: Final = 0.2
"""How often the tables are checked for changes that slaves should copy."""


@final
class MasterRole:
    """This broker as master: its epoch, its slaves, and what they allow."""

    def __init__(
        self,
        parts: RoleParts,
        acknowledger: Acknowledger,
        pump: Pump,
        rounds: Rounds,
        on_overtaken: Callable[[], None],
    ) -> None:
        """`on_overtaken` is called when this master has to withdraw its epoch."""
        self.master: Master[ReplicationWait] | None = None
        self.records: RecordKeeping | None = None
        """While `run` runs."""
        self.fenced: str | None = None
        """Why this master may not write: another one has taken over."""
        self.overtaken = ""
        """Why the last promotion was withdrawn, if another master had gone on."""
        self._parts = parts
        self._acknowledger = acknowledger
        self._pump = pump
        self._rounds = rounds
        self._on_overtaken = on_overtaken
        self._server: HaServer | None = None
        self._found: tuple[InSyncRecord, ...] | None = None
        """Records that others may decide by when this broker begins an epoch; None: no new epoch.
        """
        self._is_forced = False
        self._was_pending = False
        self._has_lease = True
        self._mode: ReplicationMode | None = None
        """The mode at the last check; None while a master starts."""

    # --- epochs ------------------------------------------------------------------------------

    async def begin_epoch(
        self,
        epoch: int,
        role: BrokerRole,
        found: tuple[InSyncRecord, ...] = (),
        *,
        is_forced: bool = False,
        previous: str = "",
    ) -> int:
        """Begin an epoch at the end of the log, and save it.

        `found` are the in-sync records that others may decide by; with `is_forced` an operator
        accepts that they may. `previous` is the address of the master whose place this broker
        takes. Returns how many bytes of an incomplete message were cut.
        """
        parts = self._parts
        cut_bytes = await parts.store.trim_tail()
        parts.master_tasks.take_over()
        identity = begun(parts.saved.identity, epoch, parts.log.end, () if is_forced else found)
        if previous != parts.live.current.address:
            identity = with_former_master(identity, previous)
        await parts.saved.save(with_role(identity, role.value))
        self.overtaken = ""
        self._found, self._is_forced = found, is_forced
        return cut_bytes

    async def lay_down(self) -> None:
        """Stop master-only tasks, and save that this broker is a slave.

        A disk error does not keep it from stepping down: should this broker start as master again,
        the next master's epoch fences it.
        """
        parts = self._parts
        identity = with_role(parts.saved.identity, BrokerRole.SLAVE.value)
        try:
            await parts.store.flush()
            await parts.saved.save(identity)
        except StoreError as exc:
            parts.saved.identity = identity
            logger.error("cannot save that this broker is a slave now: %s", exc)
        parts.master_tasks.give_up()

    # --- the role ----------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve slaves until cancelled; `started` when they can connect."""
        parts = self._parts
        config = parts.live.current
        master: Master[ReplicationWait] = Master(
            master_settings(config, parts.saved.identity),
            parts.log,
            epoch=parts.saved.identity.epoch,
            mode=mode_of(config.role),
            now=trio.current_time(),
            keeper=self._make_keeper(),
        )
        self.master = master
        self._server = server = HaServer(master, parts.log, _server_config(config))
        self.records = records = RecordKeeping(
            master,
            parts.live,
            parts.peers,
            save=parts.saved.save_records,
            listener=RecordListener(
                changed=self._record_changed,
                brought=parts.registration.retry,
                overtaken=self._overtaken,
                taken=self._taken,
            ),
        )
        hides = config.hide_unreplicated
        server.listen(
            HaServerListener(
                in_sync_changed=self._in_sync_changed,
                recorded=records.told,
                visible_moved=parts.store.visible_bound_moved if hides else None,
                in_one_round=self._rounds.in_one_round,
            )
        )
        parts.visible.begin(master.pending_acks, hides=hides)
        self._pump.begin(server)
        self._mode = None
        self._was_pending = self.is_pending
        self._follow_mode()
        self._update_refusal()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(server.run)
                nursery.start_soon(records.run)
                if not await records.wait_confirmed(CONFIRM_S):
                    logger.warning(
                        "the in-sync record of this master does not count yet: %s; until then sends"
                        " are %s",
                        records.missing,
                        "answered SLAVE_NOT_AVAILABLE" if master.keeper.has_begun else "refused",
                    )
                self._mode = master.pending_acks.mode
                nursery.start_soon(parts.master_tasks.run)
                nursery.start_soon(self._announce_changes, master)
                nursery.start_soon(self._pump.run)
                task_status.started()
        finally:
            self._acknowledger.wait_for_slaves(None)
            self._pump.end()
            parts.visible.end()
            # The store goes on refusing until the next role runs: a message accepted now would wait
            # for no slave and belong to no role.
            self.master = self._server = self.records = None

    def _make_keeper(self) -> RecordKeeper:
        """Return a keeper with the records that others may decide by."""
        identity = self._parts.saved.identity
        found, self._found = self._found, None
        is_known = found is not None or bool(identity.records)
        keeper = RecordKeeper(
            identity.epoch,
            identity.records if found is None else found,
            member=identity.member,
            master=identity.name,
            is_known=is_known or not self._parts.live.current.namesrv_addrs,
            is_forced=self._is_forced and found is not None,
            # Empty if this broker was stopped without saving its log.
            renews=not identity.before,
        )
        keeper.is_fenced = self.fenced is not None
        return keeper

    async def _announce_changes(self, master: Master[ReplicationWait]) -> None:
        """Announce changed tables to slaves."""
        tasks = self._parts.master_tasks
        changes = tasks.changes()
        while True:
            await trio.sleep(NEWS_S)
            if changes != (changes := tasks.changes()) and len(master.slaves):
                master.announce()
                self._pump.now()

    # --- what slaves and records allow -------------------------------------------------------

    @property
    def is_pending(self) -> bool:
        """Whether this master may still have to withdraw: it must not be listed or followed yet."""
        if self.master is not None:
            return self.master.keeper.is_pending
        return self._parts.is_master and bool(self._parts.saved.identity.epoch_before)

    def _overtaken(self) -> None:
        """Withdraw, because the former master has gone on."""
        assert self.records is not None
        self.overtaken = self.records.overtaken
        logger.critical("this broker is a slave again: %s", self.overtaken)
        self._on_overtaken()

    def _taken(self, reason: str) -> None:
        """Be fenced: an operator forced this broker into an epoch that another one has begun."""
        self._parts.registration.fenced_by(Fence(self._parts.saved.identity.epoch, reason))

    def _in_sync_changed(self) -> None:
        self._update_refusal()
        if self.records is not None:
            self.records.check_again()

    def _record_changed(self) -> None:
        """React to a record that changed the members or the mode."""
        if self._was_pending and not self.is_pending:
            self._was_pending = False
            self._parts.registration.register_again()
        self._follow_mode()
        self._update_refusal()
        if self._server is not None:
            self._server.release_sends()

    def _follow_mode(self) -> None:
        """Apply the replication mode in force to sends, and log a change."""
        assert self.master is not None
        switch = self.master.pending_acks.in_force
        if self._mode is not None and switch.mode is not self._mode:
            logger.info("replication is %s from offset %d on", switch.mode.value, switch.offset)
            self._mode = switch.mode
        self._acknowledger.wait_for_slaves(
            self._server if self.master.pending_acks.is_sync else None
        )
        self._pump.now()

    def _update_refusal(self) -> None:
        if self.master is None or self.records is None:
            return
        store, has_lease = self._parts.store, self.records.has_lease
        store.set_refused(Refusal.TOO_FEW_SLAVES, self.master.pending_acks.refuses())
        store.set_refused(Refusal.NOT_BEGUN, not self.master.keeper.has_begun)
        if has_lease is self._has_lease:
            return
        self._has_lease = has_lease
        store.set_refused(Refusal.NO_LEASE, not has_lease)
        if has_lease:
            logger.info("this master has its lease again and takes messages")
        else:
            logger.critical("this master takes no more messages: %s", Refusal.NO_LEASE.value)

    def lift_refusals(self) -> None:
        """Have the store refuse nothing for a master's reasons: this broker is a slave now."""
        for refusal in (
            Refusal.TOO_FEW_SLAVES,
            Refusal.FENCED,
            Refusal.HANDING_OVER,
            Refusal.NOT_BEGUN,
            Refusal.NO_LEASE,
        ):
            self._parts.store.set_refused(refusal, False)
        self._has_lease = True

    def needed_from(self) -> PhysicalOffset:
        """Return the offset from which on slaves in sync still need the log (`StoreListener`)."""
        end = self._parts.store.log.written
        if self.master is None:
            return end
        held = [slave.appended for slave in self.master.slaves if slave.in_sync]
        return min(held, default=end)

    # --- notices -----------------------------------------------------------------------------

    def set_fenced(self, reason: str | None) -> None:
        """Fence this master, because another broker has a later epoch; None: lift the fence."""
        is_master = self._parts.is_master
        if reason is not None and self.fenced != reason:
            logger.critical(
                "this broker is fenced and refuses messages: %s; make it a slave of the new master"
                " with `rmq ha demote`",
                reason,
            )
        elif reason is None and self.fenced is not None and is_master:
            logger.info("the fence is lifted, this broker is master again")
        self.fenced = reason
        if is_master:
            self._parts.store.set_refused(Refusal.FENCED, reason is not None)
        if self.master is not None and self.master.keeper.is_fenced != (reason is not None):
            self._fence_records(reason is not None)

    def _fence_records(self, is_fenced: bool) -> None:
        """Record nothing and count no slave while this master is fenced."""
        assert self.master is not None
        self.master.keeper.is_fenced = is_fenced
        if not is_fenced:
            self.master.apply_record()
            if self.records is not None:
                self.records.check_again()

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Apply settings that were changed while the broker runs."""
        if self.master is not None and new.role is not BrokerRole.SLAVE:
            settings = master_settings(new, self._parts.saved.identity)
            self.master.reconfigure(settings, trio.current_time())
            if self._server is not None:
                self._server.allowed = new.ha_allowed
            if old.role is not new.role:
                self.master.want_mode(mode_of(new.role))
                self._follow_mode()
            self._in_sync_changed()
            self._pump.now()


def _server_config(config: BrokerConfig) -> HaServerConfig:
    return HaServerConfig(
        host=config.bind_address,
        port=config.ha_port,
        allowed=config.ha_allowed,
        tls_context=server_context_of(config.ha_tls_mode, config.tls_server),
        tls_required=config.ha_tls_mode == "enforcing",
    )
