"""Runs the role of a broker and changes it, as long as the broker runs.

`Replication.run` runs the configured role until the role changes, which it can at any time:
`MasterRole` serves slaves, `SlaveRole` follows a master. What only a master does besides (delayed
messages, transactions) is in `MasterTasks`, started and stopped with the role. When roles change is
decided by operators (`rmq.broker.replication.changes`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.replication.master_role import MasterRole
from rmq.broker.replication.pump import Pump
from rmq.broker.replication.slave_role import SlaveRole
from rmq.broker.replication.withdrawal import Withdrawal
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.broker.config import BrokerConfig
    from rmq.broker.registration.registration import Registered
    from rmq.broker.replication.record_keeping import RecordKeeping
    from rmq.broker.replication.role_parts import RoleParts
    from rmq.broker.rounds import Rounds
    from rmq.broker.sending.acknowledgement import Acknowledger
    from rmq.ha.identity import HaIdentity
    from rmq.ha.protocol.master import Master
    from rmq.ha.server import ReplicationWait
    from rmq.ha.slave import SlaveRunner
    from rmq.model.offsets import PhysicalOffset

logger = logging.getLogger(__name__)


@final
class Replication:
    """The role of one broker, as long as it runs."""

    def __init__(
        self,
        parts: RoleParts,
        acknowledger: Acknowledger,
        rounds: Rounds,
        *,
        request_reopen: Callable[[int | None, str], None],
    ) -> None:
        """`request_reopen` opens the store again, cut at an offset, or empty for None."""
        self._parts = parts
        self._live = parts.live
        self._registration = parts.registration
        self.log = parts.log
        self.saved = parts.saved
        self.known = parts.known
        self.metadata = parts.master_tasks.metadata
        self.pump = Pump(acknowledger, rounds.in_round)
        """Decides when slaves are sent what was appended."""
        self._withdrawal = Withdrawal(parts)
        self.master_role = MasterRole(parts, acknowledger, self.pump, rounds, self._overtaken)
        self.slave_role = SlaveRole(parts, self._withdrawal, request_reopen)
        self._stepped_down: tuple[int, PhysicalOffset] | None = None
        """Epoch and end of the log when this broker last stepped down as master."""
        self._role_changed = trio.Event()
        self._role_taken = trio.Event()
        self._prepare: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    # --- the configured role -----------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the configured role until cancelled; `started` when slaves can connect."""
        await self._take_up_role()
        has_started = False
        while True:
            self._role_changed = trio.Event()
            role = self.master_role if self.is_master else self.slave_role
            if role is self.slave_role:
                # The role itself refuses messages now, and the store has to accept the bytes of the
                # master.
                self.master_role.lift_refusals()
            async with trio.open_nursery() as nursery:
                await nursery.start(role.run)
                self._role_taken.set()
                if not has_started:
                    has_started = True
                    task_status.started()
                await self._role_changed.wait()
                nursery.cancel_scope.cancel()
            await self._prepare()

    async def _take_up_role(self) -> None:
        """Begin an epoch if a former slave is configured as master; save the role."""
        role = self._live.current.role
        was_slave = self.identity.role == BrokerRole.SLAVE.value
        if was_slave and role is not BrokerRole.SLAVE:
            # As in RocketMQ 4.9.8: another brokerRole in the file, and a restart.
            await self.master_role.begin_epoch(self.identity.epoch + 1, role)
            logger.warning(
                "this broker was a slave and is started as %s: it begins epoch %d at offset %d;"
                " messages that only the last master had are not here",
                role.value,
                self.identity.epoch,
                self.log.end,
            )
        elif self.identity.role != role.value:
            await self.saved.save_role()

    # --- changes of it -----------------------------------------------------------------------

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

    async def give_up_pending(self) -> None:
        """Withdraw an epoch that has not begun; return when this broker is a slave."""
        await self.change_role(self._withdrawal.withdraw)

    def _overtaken(self) -> None:
        self._prepare = self._withdrawal.withdraw
        self._role_changed.set()

    def note_stepped_down(self, end: PhysicalOffset | None) -> None:
        """Note that this broker stepped down as master, and where its log ended; None: it is master
        again.
        """
        self._stepped_down = None if end is None else (self.identity.epoch, end)

    # --- what it is --------------------------------------------------------------------------

    @property
    def is_master(self) -> bool:
        return self._parts.is_master

    @property
    def was_last(self) -> bool:
        """Whether this slave was the last master of the name, as far as it knows."""
        return (
            not self.is_master
            and self.known.address is None
            and self._stepped_down == (self.identity.epoch, self.log.end)
        )

    @property
    def is_pending(self) -> bool:
        """Whether this master may still have to withdraw: it must not be listed or followed yet."""
        return self.master_role.is_pending

    @property
    def fenced(self) -> str | None:
        """Why this master may not write: another one has taken over."""
        return self.master_role.fenced

    @property
    def identity(self) -> HaIdentity:
        return self.saved.identity

    @property
    def partings(self) -> tuple[PhysicalOffset, ...]:
        """Where the log may differ from that of an earlier master (`SavedState.partings`)."""
        return self.saved.partings

    @property
    def master(self) -> Master[ReplicationWait] | None:
        """What this broker knows as master; None while it is none."""
        return self.master_role.master

    @property
    def records(self) -> RecordKeeping | None:
        """The in-sync records of this master; None while it is none."""
        return self.master_role.records

    @property
    def slave(self) -> SlaveRunner | None:
        """The copying of the log; None while this broker is no slave."""
        return self.slave_role.slave

    # --- the master of a slave ---------------------------------------------------------------

    @property
    def master_address(self) -> str | None:
        """The master that a nameserver lists."""
        return self.known.address

    @property
    def linked_master(self) -> str | None:
        """The master at the other end of the native link; None without such a link."""
        return self.slave_role.linked_master

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

    # --- notices -----------------------------------------------------------------------------

    def registered(self, answer: Registered) -> None:
        """Take the master from a nameserver's response to a registration."""
        self.known.heard_epoch(answer.epoch)
        if not self.is_master:
            self.known.listed(answer)
            self.slave_role.point()

    def nameserver_in_doubt(self, nameserver: str) -> None:
        """Check a nameserver that may lack the in-sync record of this master."""
        if self.records is not None:
            self.records.doubt(nameserver)

    def set_fenced(self, reason: str | None) -> None:
        """Fence this master, because another broker has a later epoch; None: lift the fence."""
        self.master_role.set_fenced(reason)

    def needed_from(self) -> PhysicalOffset:
        """Return the offset from which on slaves in sync still need the log (`StoreListener`)."""
        return self.master_role.needed_from()

    async def count_as_another(self) -> None:
        """Save a new incarnation before the log may lose bytes."""
        await self.saved.count_as_another()

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Apply settings that were changed while the broker runs."""
        self.master_role.config_changed(old, new)
