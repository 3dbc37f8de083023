"""The changes that operators and other brokers order: promotion, demotion, hand-over, resync.

One change runs at a time; a second one is refused. Each is a module of its own here: `promotion`
with `inquiry` and `take_over` is the part of the slave that becomes master, `step_down` the part of
the master that becomes a slave, `resync` repairs a slave's log.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.replication.changes.forget import forget_slave
from rmq.broker.replication.changes.promotion import Promotion
from rmq.broker.replication.changes.refusal import refuse
from rmq.broker.replication.changes.resync import Resync
from rmq.broker.replication.changes.step_down import StepDown
from rmq.broker.replication.log_digests import log_digests
from rmq.broker.replication.log_records import log_records
from rmq.broker.replication.peers import ASK_S
from rmq.broker.replication.replaced_masters import ReplacedMasters
from rmq.broker.replication.status import replication_status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rmq.broker.config import LiveConfig
    from rmq.broker.registration.registration import Registration
    from rmq.broker.replication.peers import Peers
    from rmq.broker.replication.role import Replication
    from rmq.remoting.bodies import (
        HaDemoteBody,
        HaDigestsBody,
        HaPromoteBody,
        HaResyncBody,
        HaStatusBody,
        HaStepDownBody,
    )
    from rmq.store.store import MessageStore

PROMOTION: Final = "a promotion"


@final
class RoleChange:
    """Runs what is ordered, one change at a time."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        replication: Replication,
        registration: Registration,
        peers: Peers,
        *,
        request_reopen: Callable[[int | None, str], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._live = live
        self._store = store
        self._replication = replication
        self._registration = registration
        self.promotion = Promotion(live, store, replication, registration, peers)
        self._step_down = StepDown(live, store, replication, peers, now_ms)
        self._resync = Resync(store, replication, peers, request_reopen)
        self._replaced = ReplacedMasters()
        self._under_way: str | None = None

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        if self._under_way is not None:
            refuse(f"{self._under_way} is under way; try again when it is over")
        self._under_way = what
        try:
            yield
        finally:
            self._under_way = None

    # --- changes -----------------------------------------------------------------------------

    async def promote(self, accept_loss: bool, mode: str | None) -> HaPromoteBody:
        """Make this slave the master of its broker name."""
        with self._alone(PROMOTION):
            return await self.promotion.run(mode, accept_loss=accept_loss)

    async def demote(self, ha_master_address: str | None, force: bool) -> HaDemoteBody:
        """Make this master a slave."""
        with self._alone("a demotion"):
            return await self._step_down.demote(ha_master_address, force=force)

    async def step_down(self, epoch: int, address: str | None) -> HaStepDownBody:
        """Hand over to the slave at `address`."""
        with self._alone("a hand-over"):
            return await self._step_down.hand_over(epoch, address)

    async def resync(self, dry_run: bool, planned: tuple[int, int] | None) -> HaResyncBody:
        """Cut what differs from the master's log, and follow it again."""
        with self._alone("a resync"):
            return await self._resync.run(dry_run, planned)

    def forget(self, slave: str) -> HaStatusBody:
        """Forget a slave that was taken out for good."""
        master = self._replication.master
        if master is None:
            refuse(f"{self._live.current.address} is no master")
        forget_slave(master.slaves, slave)
        return self.status()

    async def renounce(self, address: str) -> HaStatusBody:
        """Take a new incarnation, because the slave at `address` is being promoted."""
        with self._alone(f"the promotion of {address}"):
            if self._replication.is_master or self._replication.slave is None:
                refuse(f"{self._live.current.address} is no slave")
            with trio.move_on_after(ASK_S) as scope:
                await self._replication.slave_role.renounce()
            if scope.cancelled_caught:
                refuse(f"this slave did not stop following its master within {ASK_S:g} s")
            return self.status()

    # --- at any time -------------------------------------------------------------------------

    async def fence(self, address: str, epoch: int) -> None:
        """Stop writing if the broker at `address` is master of the same name by a later epoch."""
        replication = self._replication
        if not replication.is_master or epoch <= replication.identity.epoch:
            return
        if not await self._registration.ask_whether_deposed(address):
            name = self._live.current.broker_name
            refuse(f"{address} does not say that it is master of {name}")

    async def digests(self, start: int, stop: int, step: int) -> HaDigestsBody:
        """Return digests of the log, as many as one response may have."""
        return await log_digests(self._replication.log, start, stop, step)

    async def records(self, start: int, stop: int) -> tuple[bytes, int]:
        """Return whole records of the log, as many as one response may have."""
        return await log_records(self._store.log, start, stop)

    def note_other_master(self, address: str) -> None:
        """Note that a master at `address` checks whether this broker has replaced it."""
        if address != self._live.current.address:
            self._replaced.heard(address, trio.current_time())

    def status(self) -> HaStatusBody:
        """Return the status of replication."""
        return replication_status(
            self._replication,
            self._live.current,
            self._store,
            is_promoting=self._under_way == PROMOTION,
            other_masters=self._replaced.addresses(trio.current_time()),
        )
