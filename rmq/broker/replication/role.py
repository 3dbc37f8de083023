"""Runs the role of a broker: a master serves slaves, a slave follows its master.

`Replication.run` runs the configured role until the role changes, which it can at any time. What
only a master does besides (delayed messages, transactions) is in `MasterTasks`, started and stopped
with the role. Nothing is decided here: `rmq.ha` decides which slaves are in sync and when a send is
answered, `role_change` when roles change.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.replication.peers import free_id
from rmq.broker.replication.pump import Pump
from rmq.broker.replication.record_keeping import RecordKeeping, take_back
from rmq.errors import RmqError, StorageError, StoreError
from rmq.ha.identity import (
    FIRST_EPOCH,
    begun,
    reborn,
    renamed,
    save_identity,
    with_epoch,
    with_records,
    with_role,
    withdrawn,
)
from rmq.ha.protocol.master import Master, MasterSettings
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.ha.protocol.record_keeper import RecordKeeper
from rmq.ha.protocol.slave_link import SlaveSettings
from rmq.ha.protocol.slaves import InSyncRules
from rmq.ha.protocol.wire import CatchUp
from rmq.ha.server import HaServer, HaServerConfig, HaServerListener, ReplicationWait
from rmq.ha.slave import SlaveRunner
from rmq.ha.slave_status import SlaveState
from rmq.ha.store_log import StoreLog
from rmq.ha.tls_channel import client_context_of, server_context_of
from rmq.model.in_sync_record import newest
from rmq.model.offsets import PhysicalOffset
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.registration.registration import Registered, Registration
    from rmq.broker.replication.master_tasks import MasterTasks
    from rmq.broker.replication.peers import Peers
    from rmq.broker.rounds import Rounds
    from rmq.broker.sending.acknowledgement import Acknowledger
    from rmq.ha.identity import HaIdentity
    from rmq.model.in_sync_record import InSyncRecord
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

CONFIRM_S: Final = 3.0
"""How long a new master waits until its in-sync record counts."""
WITHDRAW_RETRY_S: Final = 1.0
"""Pause before a broker that cannot save its role tries to withdraw again."""
TAKE_BACK_S: Final = 5.0
"""How long a record may be in flight to a nameserver after its writer withdrew."""
SEARCH_S: Final = 1.0
"""How often a slave that knows no master asks the nameservers for one."""
SEARCH_S_MAX: Final = 10.0
HA_PORT_DISTANCE: Final = 1
"""The port for slaves is this far above a broker's own, here and in RocketMQ 4.9.8."""
NEWS_S: Final = 0.2
"""How often the tables are checked for changes that slaves should copy."""
_CONNECTED: Final = (SlaveState.CATCHING_UP, SlaveState.STREAMING)
_CATCH_UP: Final = {"oldest": CatchUp.OLDEST, "last": CatchUp.LAST_FILE}


def mode_of(role: BrokerRole) -> ReplicationMode:
    """Return the replication mode of a master role."""
    return ReplicationMode.SYNC if role is BrokerRole.SYNC_MASTER else ReplicationMode.ASYNC


@final
class Replication:
    """The role of one broker, as long as it runs."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        acknowledger: Acknowledger,
        registration: Registration,
        master_tasks: MasterTasks,
        identity: HaIdentity,
        peers: Peers,
        rounds: Rounds,
        *,
        request_reopen: Callable[[int | None, str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.log = StoreLog(store)
        self.pump = Pump(acknowledger, rounds.in_round)
        """Decides when slaves are sent what was appended."""
        self.identity = identity
        self.master: Master[ReplicationWait] | None = None
        self.server: HaServer | None = None
        self.slave: SlaveRunner | None = None
        self.records: RecordKeeping | None = None
        """As a master."""
        self.metadata = master_tasks.metadata
        self.fenced: str | None = None
        """Why this master may not write: another one has taken over."""
        self.ha_address: str | None = None
        """The master's port for slaves, as a nameserver lists it."""
        self.master_address: str | None = None
        self.known_epoch = 0
        """The latest epoch of this name that a nameserver has reported."""
        self._last_known: tuple[str, str] | None = None
        """The last listed master: its port for slaves, and its address."""
        self._live = live
        self._store = store
        self._acknowledger = acknowledger
        self._registration = registration
        self._master_tasks = master_tasks
        self._peers = peers
        self._hidden_from: PhysicalOffset | None = None
        """A former master hides messages from this offset on (hideUnreplicated)."""
        self._found: tuple[InSyncRecord, ...] | None = None
        """Records that others may decide by when this broker begins an epoch; None: no new epoch.
        """
        self._is_forced = False
        self.overtaken = ""
        """Why the last promotion was withdrawn, if another master had gone on."""
        self._was_pending = False
        self._void: InSyncRecord | None = None
        """The first record of an epoch that did not begin."""
        self._has_lease = True
        self._mode: ReplicationMode | None = None
        """The mode at the last check; None while a master starts."""
        self._request_reopen = request_reopen
        self._now_ms = now_ms
        self._rounds = rounds
        self._role_changed = trio.Event()
        self._role_taken = trio.Event()
        self._prepare: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    # --- roles -------------------------------------------------------------------------------

    @property
    def is_master(self) -> bool:
        return self._live.current.role is not BrokerRole.SLAVE

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the configured role until cancelled; `started` when slaves can connect."""
        await self._take_up_role()
        has_started = False
        while True:
            self._role_changed = trio.Event()
            be = self._be_master if self.is_master else self._be_slave
            async with trio.open_nursery() as nursery:
                await nursery.start(be)
                self._role_taken.set()
                if not has_started:
                    has_started = True
                    task_status.started()
                await self._role_changed.wait()
                nursery.cancel_scope.cancel()
            await self._prepare()

    async def change_role(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Stop the present role, run `prepare`, and start the role that is configured then.

        Returns when it is running. If `prepare` raises, its error is raised here after the
        configured role was started.
        """
        failures: list[BaseException] = []

        async def attempt() -> None:
            try:
                await prepare()
            except RmqError as exc:
                failures.append(exc)

        self._prepare = attempt
        self._role_taken = trio.Event()
        self._role_changed.set()
        await self._role_taken.wait()
        if failures:
            raise failures[0]

    async def _take_up_role(self) -> None:
        """Begin an epoch if a former slave is configured as master; save the role."""
        role = self._live.current.role
        was_slave = self.identity.role == BrokerRole.SLAVE.value
        if was_slave and role is not BrokerRole.SLAVE:
            # As in RocketMQ 4.9.8: another brokerRole in the file, and a restart.
            await self.begin_epoch(self.identity.epoch + 1, role)
            logger.warning(
                "this broker was a slave and is started as %s: it begins epoch %d at offset %d;"
                " messages that only the last master had are not here",
                role.value,
                self.identity.epoch,
                self.log.end,
            )
        elif self.identity.role != role.value:
            await self.note_role()

    async def begin_epoch(
        self,
        epoch: int,
        role: BrokerRole,
        found: tuple[InSyncRecord, ...] = (),
        *,
        is_forced: bool = False,
    ) -> int:
        """Begin an epoch at the end of the log, and save it.

        `found` are the in-sync records that others may decide by; with `is_forced` an operator
        accepts that they may. Returns how many bytes of an incomplete message were cut.
        """
        cut_bytes = await self._store.trim_tail()
        self._master_tasks.take_over()
        identity = begun(self.identity, epoch, self.log.end, () if is_forced else found)
        await self._save(with_role(identity, role.value))
        self.overtaken = ""
        self._found, self._is_forced = found, is_forced
        return cut_bytes

    async def lay_down(self) -> None:
        """Stop master-only tasks, and save that this broker is a slave.

        A disk error does not keep it from stepping down: should this broker start as master again,
        the next master's epoch fences it.
        """
        identity = with_role(self.identity, BrokerRole.SLAVE.value)
        try:
            await self._store.flush()
            await self._save(identity)
        except StoreError as exc:
            self.identity = identity
            logger.error("cannot save that this broker is a slave now: %s", exc)
        self._master_tasks.give_up()

    async def note_role(self) -> None:
        """Save the configured role."""
        await self._save(with_role(self.identity, self._live.current.role.value))

    async def renounce(self) -> None:
        """Take a new incarnation, so that no master counts on this slave by the recorded one."""
        assert self.slave is not None, "only a slave renounces"
        async with self.slave.suspended():
            await self._save(renamed(self.identity, self._now_ms()))
            self.slave.rename(self.identity.incarnation)

    async def count_as_another(self) -> None:
        """Save a new incarnation before the log may lose bytes."""
        await self._save(reborn(self.identity, self._now_ms()))

    async def adopt_epoch(self, epoch: int, start: PhysicalOffset) -> None:
        """Save the epoch of the master."""
        self.metadata.epoch_began()
        await self._save(with_epoch(self.identity, epoch, start))

    @property
    def partings(self) -> tuple[PhysicalOffset, ...]:
        """Where epochs began, but for the first: behind each of these physical offsets the log may
        differ from that of the master before.
        """
        identity = self.identity
        if identity.epoch == FIRST_EPOCH:
            return ()
        starts = tuple(start for epoch, start in identity.history if epoch > FIRST_EPOCH)
        return starts or (PhysicalOffset(0),)

    async def _save_records(self, records: tuple[InSyncRecord, ...]) -> None:
        """Save the in-sync records."""
        await self._save(with_records(self.identity, records))

    async def _save(self, identity: HaIdentity) -> None:
        if identity is self.identity:
            return
        root = self._live.current.store.root
        await trio.to_thread.run_sync(save_identity, root, identity)
        self.identity = identity

    # --- as a master -------------------------------------------------------------------------

    async def _be_master(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        config = self._live.current
        master: Master[ReplicationWait] = Master(
            self._master_settings(config),
            self.log,
            epoch=self.identity.epoch,
            mode=mode_of(config.role),
            now=trio.current_time(),
            keeper=self._make_keeper(),
        )
        self.master = master
        self.server = server = HaServer(master, self.log, self._server_config(config))
        self.records = records = RecordKeeping(
            master,
            self._live,
            self._peers,
            save=self._save_records,
            on_change=self._record_changed,
            on_brought=self._registration.retry,
            on_overtaken=self._overtaken,
        )
        hides = config.hide_unreplicated
        server.listen(
            HaServerListener(
                in_sync_changed=self._in_sync_changed,
                recorded=records.told,
                visible_moved=self._store.visible_bound_moved if hides else None,
                in_one_round=self._rounds.in_one_round,
            )
        )
        if hides:
            self._hidden_from = None
            self._store.set_visible_bound(self._visible_end)
        self.pump.begin(server)
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
                        " are answered SLAVE_NOT_AVAILABLE",
                        records.missing,
                    )
                self._mode = master.pending_acks.mode
                nursery.start_soon(self._master_tasks.run)
                nursery.start_soon(self._announce_changes, master)
                nursery.start_soon(self.pump.run)
                task_status.started()
        finally:
            self._acknowledger.wait_for_slaves(None)
            self.pump.end()
            if self._store.has_visible_bound:
                self._hidden_from = self._visible_end()
            # The store goes on refusing until the next role runs: a message accepted now would wait
            # for no slave and belong to no role.
            self.master = self.server = self.records = None

    def _make_keeper(self) -> RecordKeeper:
        """Return a keeper with the records that others may decide by."""
        identity = self.identity
        found, self._found = self._found, None
        is_known = found is not None or bool(identity.records)
        keeper = RecordKeeper(
            identity.epoch,
            identity.records if found is None else found,
            member=identity.member,
            master=identity.name,
            is_known=is_known or not self._live.current.namesrv_addrs,
            is_forced=self._is_forced and found is not None,
            # Empty if this broker was stopped without saving its log.
            renews=not identity.before,
        )
        keeper.is_fenced = self.fenced is not None
        return keeper

    def _in_sync_changed(self) -> None:
        self._update_refusal()
        if self.records is not None:
            self.records.check_again()

    @property
    def is_pending(self) -> bool:
        """Whether this master may still have to withdraw: it must not be listed or followed yet."""
        if self.master is not None:
            return self.master.keeper.is_pending
        return self.is_master and bool(self.identity.epoch_before)

    def _overtaken(self) -> None:
        """Withdraw, because the former master has gone on."""
        assert self.records is not None
        self.overtaken = self.records.overtaken
        logger.critical("this broker is a slave again: %s", self.overtaken)
        self._prepare = self._withdraw
        self._role_changed.set()

    async def _withdraw(self) -> None:
        """Restore the state from before this epoch, in which nothing was written."""
        identity, own = self.identity, newest(*self.identity.records)
        try:
            await self._store.flush()
            self._master_tasks.give_up()
            await self._save(with_role(withdrawn(identity), BrokerRole.SLAVE.value))
        except RmqError as exc:
            logger.critical("this master has to withdraw and cannot: %s", exc)
            await trio.sleep(WITHDRAW_RETRY_S)
            return
        self.forget_master()
        await self.assume(BrokerRole.SLAVE, free_id(await self._peers.members()))
        if own is not None and own.epoch == identity.epoch:
            self._void = own

    async def _take_back(self) -> None:
        """Remove the record of a withdrawn epoch from nameservers, also one that was in flight when
        this broker withdrew.
        """
        own, before = self._void, newest(*self.identity.records)
        give_up_at = trio.current_time() + TAKE_BACK_S
        have_all = False
        while own is not None and not (have_all and trio.current_time() >= give_up_at):
            have_all = await take_back(self._peers, self._live.current, own, before)
            await trio.sleep(WITHDRAW_RETRY_S)
        self._void = None

    async def give_up_pending(self) -> None:
        """Withdraw an epoch that has not begun; return when this broker is a slave."""
        await self.change_role(self._withdraw)

    async def assume(self, role: BrokerRole, broker_id: int) -> None:
        """Change the role in the settings, and in their file if that can be written."""
        self._live.assume_role(role, broker_id, now_ms=self._now_ms())
        try:
            await trio.to_thread.run_sync(self._live.persist)
        except StorageError as exc:
            logger.error(
                "this broker is %s now, but its settings could not be saved: %s; set brokerRole=%s"
                " and brokerId=%d yourself before it is restarted",
                role.value,
                exc,
                role.value,
                broker_id,
            )

    def _record_changed(self) -> None:
        """React to a record that changed the members or the mode."""
        if self._was_pending and not self.is_pending:
            self._was_pending = False
            self._registration.register_again()
        self._follow_mode()
        self._update_refusal()
        if self.server is not None:
            self.server.release_sends()

    def _follow_mode(self) -> None:
        """Apply the replication mode in force to sends, and log a change."""
        assert self.master is not None
        switch = self.master.pending_acks.in_force
        if self._mode is not None and switch.mode is not self._mode:
            logger.warning("replication is %s from offset %d on", switch.mode.value, switch.offset)
            self._mode = switch.mode
        self._acknowledger.wait_for_slaves(
            self.server if self.master.pending_acks.is_sync else None
        )
        self.pump.now()

    def _update_refusal(self) -> None:
        if self.master is None or self.records is None:
            return
        store, has_lease = self._store, self.records.has_lease
        store.set_refused(Refusal.TOO_FEW_SLAVES, self.master.pending_acks.refuses())
        if has_lease is self._has_lease:
            return
        self._has_lease = has_lease
        store.set_refused(Refusal.NO_LEASE, not has_lease)
        if has_lease:
            logger.warning("this master has its lease again and takes messages")
        else:
            logger.critical("this master takes no more messages: %s", Refusal.NO_LEASE.value)

    def _visible_end(self) -> PhysicalOffset:
        """Return the offset up to which consumers may read: the rest may be lost in a failover.

        A former master goes on hiding the rest until its next master has it, too
        (`_show_hidden`), or it was cut off.
        """
        log = self._store.log
        if self.master is not None:
            return self.master.pending_acks.advance_visible(log.written)
        return log.readable if self._hidden_from is None else self._hidden_from

    def _show_hidden(self) -> None:
        """Let consumers read everything: the log is equal to the master's."""
        if self._hidden_from is not None:
            self._hidden_from = None
            self._store.set_visible_bound(None)

    def needed_from(self) -> PhysicalOffset:
        """Return the offset from which on slaves in sync still need the log (`StoreListener`)."""
        end = self._store.log.written
        if self.master is None:
            return end
        held = [slave.appended for slave in self.master.slaves if slave.in_sync]
        return min(held, default=end)

    async def _announce_changes(self, master: Master[ReplicationWait]) -> None:
        """Announce changed tables to slaves."""
        changes = self._master_tasks.changes()
        while True:
            await trio.sleep(NEWS_S)
            if changes != (changes := self._master_tasks.changes()) and len(master.slaves):
                master.announce()
                self.pump.now()

    def _master_settings(self, config: BrokerConfig) -> MasterSettings:
        return MasterSettings(
            cluster=config.cluster_name,
            broker_name=config.broker_name,
            address=config.address,
            store_id=self.identity.store_id,
            secret=config.ha_secret.encode(),
            catch_up=_CATCH_UP[config.ha_catch_up_from],
            rules=InSyncRules(
                needed=config.in_sync_replicas,
                minimum=config.min_in_sync_replicas,
                lag_s_max=config.ha_lag_ms_max / 1000,
                lag_bytes_max=config.ha_slave_lag_bytes_max,
                counts_flushed=config.ack_after_slave_flush,
            ),
            timeout_s=config.slave_timeout_ms / 1000,
            heartbeat_s=config.ha_heartbeat_interval_ms / 1000,
            silence_s=config.ha_idle_timeout_ms / 1000,
            stock_frame_bytes=config.ha_batch_bytes,
            catch_up_bytes_per_s=config.ha_catch_up_rate,
        )

    def _server_config(self, config: BrokerConfig) -> HaServerConfig:
        return HaServerConfig(
            host=config.bind_address,
            port=config.ha_port,
            allowed=config.ha_allowed,
            tls_context=server_context_of(config.ha_tls_mode, config.tls_server),
            tls_required=config.ha_tls_mode == "enforcing",
        )

    # --- as a slave --------------------------------------------------------------------------

    async def _be_slave(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        config = self._live.current
        # The role itself refuses messages now, and the store has to accept the master's bytes.
        for refusal in (
            Refusal.TOO_FEW_SLAVES,
            Refusal.FENCED,
            Refusal.HANDING_OVER,
            Refusal.NO_LEASE,
        ):
            self._store.set_refused(refusal, False)
        self._has_lease = True
        self.slave = SlaveRunner(
            self._store,
            self.log,
            self._slave_settings(config),
            epoch=lambda: self.identity.epoch,
            adopt_epoch=self.adopt_epoch,
            save_record=self._save_record,
            dialect="native" if config.ha_secret else config.ha_dialect,
            was_native=bool(self.identity.records),
            tls_context=client_context_of(config.ha_tls_mode, config.tls_replication),
            tls_master_name=config.ha_tls_master_name,
            on_news=self._heard_news,
            is_current=lambda: self.metadata.is_current(trio.current_time()),
            reseed=self._reseed if config.ha_secret else None,
            cut=self._cut,
        )
        self._point()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.slave.run)
                nursery.start_soon(self.metadata.run)
                nursery.start_soon(self._look_for_master)
                nursery.start_soon(self._take_back)
                task_status.started()
        finally:
            self.slave = None

    def _slave_settings(self, config: BrokerConfig) -> SlaveSettings:
        return SlaveSettings(
            cluster=config.cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            address=config.address,
            store_id=self.identity.store_id,
            incarnation=self.identity.incarnation,
            secret=config.ha_secret.encode(),
            catch_up=_CATCH_UP[config.ha_catch_up_from],
            heartbeat_s=config.ha_heartbeat_interval_ms / 1000,
            silence_s=config.ha_idle_timeout_ms / 1000,
        )

    async def _save_record(self, record: InSyncRecord) -> None:
        """Save the in-sync record of the master."""
        await self._save_records((record,))

    async def _look_for_master(self) -> None:
        """Ask nameservers more often while there is no connection: the master may have changed."""
        pause_s = SEARCH_S
        while True:
            await trio.sleep(pause_s)
            self._trust()
            if self.slave is None or self.slave.status.state not in _CONNECTED:
                pause_s = min(pause_s * 1.5, SEARCH_S_MAX)
                self._registration.register_again()
            else:
                pause_s = SEARCH_S

    def _point(self) -> None:
        if self.slave is not None:
            ha_address = self._live.current.ha_master_address or self.ha_address
            self.slave.point_to(ha_address, self._asked_at(ha_address))
        self._trust()
        self.metadata.point_to(None if self.is_master else self.master_address)

    def _trust(self) -> None:
        """Tell `MetadataSync` which master the link proves, whose tables may be copied."""
        was_native = bool(self.identity.records) and self._live.current.ha_dialect != "stock"
        self.metadata.trust(self.linked_master, was_native=was_native)
        if self.slave is not None and self.slave.status.state in _CONNECTED:
            self._show_hidden()

    def _heard_news(self) -> None:
        """Copy tables that the master announced as changed; also once when a link begins."""
        self._trust()
        self.metadata.news()

    def _asked_at(self, ha_address: str | None) -> str | None:
        """Return the address at which a stock master at `ha_address` is asked about its log.

        It has to be asked always: it believes a report that it cannot check, and would confirm
        sends that no slave has copied. Nameservers forget a master that stopped, and it may be
        back with another log before they list it again.
        """
        if ha_address is None or self.master_address is not None:
            return self.master_address
        if self._last_known is not None and self._last_known[0] == ha_address:
            return self._last_known[1]
        host, _, port = ha_address.rpartition(":")
        return f"{host}:{int(port) - HA_PORT_DISTANCE}"

    def follow(self, ha_address: str) -> None:
        """Follow the master at an address, until a nameserver lists another one."""
        self.ha_address = ha_address
        self._point()

    def forget_master(self) -> None:
        """Follow no master until a nameserver lists one."""
        self.ha_address = self.master_address = None

    @property
    def master_end(self) -> int:
        """The last reported end of the master's log."""
        return self.slave.status.master.end if self.slave is not None else 0

    @property
    def linked_master(self) -> str | None:
        """The master at the other end of the native link; None without such a link.

        A nameserver may not list it yet: for example while the master was being started.
        """
        status = None if self.slave is None else self.slave.status
        if status is None or not status.is_native or status.state not in _CONNECTED:
            return None
        return status.master.address or None

    @property
    def named_master(self) -> str | None:
        """The master to name to clients that sent to this broker; None if it may be this one.

        On a slave, the master that it follows or that a nameserver lists; on a fenced master, the
        broker that took its place, if it confirmed that itself.
        """
        if not self.is_master:
            return self.linked_master or self.master_address
        fence = self._registration.fence
        return None if self.fenced is None or fence is None else fence.address or None

    @property
    def last_master_address(self) -> str | None:
        """The master of this slave, or the last one it knew."""
        told = self.slave.status.master.address if self.slave is not None else ""
        return self.linked_master or self.master_address or told or None

    def _reseed(self, offset: PhysicalOffset, reason: str) -> None:
        """Empty the log and copy it from the start."""
        self._request_reopen(None, reason)

    def _cut(self, offset: PhysicalOffset, reason: str) -> None:
        """Cut the log behind the last message that ends at `offset` or before."""
        boundary = self._store.record_boundary(offset)
        self._request_reopen(boundary, reason)

    # --- notices -----------------------------------------------------------------------------

    def registered(self, answer: Registered) -> None:
        """Take the master from a nameserver's response to a registration."""
        self.known_epoch = max(self.known_epoch, answer.epoch or 0)
        if self.is_master:
            return
        address = answer.master_address
        if address == self._live.current.address:
            # It still lists this broker's former role.
            address = None
        self.master_address = address
        if address is not None and answer.ha_address is not None:
            # A master that is gone may come back at its address, so the slave keeps connecting.
            self.ha_address = answer.ha_address
            dialled = self._live.current.ha_master_address or self.ha_address
            self._last_known = (dialled, address)
        self._point()

    def nameserver_in_doubt(self, nameserver: str) -> None:
        """Check a nameserver that may lack the in-sync record of this master."""
        if self.records is not None:
            self.records.doubt(nameserver)

    def set_fenced(self, reason: str | None) -> None:
        """Fence this master, because another broker has a later epoch; None: lift the fence."""
        if reason is not None and self.fenced != reason:
            logger.critical(
                "this broker is fenced and refuses messages: %s; make it a slave of the new master"
                " with `rmq ha demote`",
                reason,
            )
        elif reason is None and self.fenced is not None and self.is_master:
            logger.warning("the fence is lifted, this broker is master again")
        self.fenced = reason
        if self.is_master:
            self._store.set_refused(Refusal.FENCED, reason is not None)
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
            self.master.reconfigure(self._master_settings(new), trio.current_time())
            if self.server is not None:
                self.server.allowed = new.ha_allowed
            if old.role is not new.role:
                self.master.want_mode(mode_of(new.role))
                self._follow_mode()
            self._in_sync_changed()
            self.pump.now()
