"""The master's part in a change of roles: it stops writing, hands over and becomes a slave.

A master steps down for a slave that is being promoted and asks for that (a hand-over), or because
an operator demotes it. In a hand-over it waits until a slave in sync has everything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.replication.changes.refusal import refuse
from rmq.broker.replication.peers import free_id
from rmq.errors import RefusedError, RmqError
from rmq.remoting.bodies import HaDemoteBody, HaStatusBody, HaStepDownBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config import LiveConfig
    from rmq.broker.replication.peers import Peers
    from rmq.broker.replication.role import Replication
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

HAND_OVER_S: Final = 10.0
"""How long slaves may take to receive the rest of the log of a master that steps down."""
JOIN_S: Final = 3.0
"""How long a slave may take to connect to its master before roles change."""


@final
class StepDown:
    """Makes this master a slave."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        replication: Replication,
        peers: Peers,
        now_ms: Callable[[], int],
    ) -> None:
        self._live = live
        self._store = store
        self._replication = replication
        self._peers = peers
        self._now_ms = now_ms

    # --- ordered by an operator --------------------------------------------------------------

    async def demote(self, ha_master_address: str | None, *, force: bool) -> HaDemoteBody:
        """Become a slave; of the master that nameservers list if no address is given."""
        replication = self._replication
        if not replication.is_master:
            refuse(f"{self._live.current.address} is a slave already")
        if replication.is_pending:
            return await self._give_up_pending()
        if not force and not await self._has_another_master():
            refuse(
                f"no other master of {self._live.current.broker_name} is known, and no"
                " broker would take messages: promote a slave instead, which makes this broker"
                " one (rmq ha promote)"
            )
        if ha_master_address is not None and not self._live.current.namesrv_addrs:
            # Without nameservers the address has to be saved for a restart. With nameservers, a
            # fixed address would be wrong after the next role change.
            try:
                self._live.update({"haMasterAddress": ha_master_address}, now_ms=self._now_ms())
            except RmqError as exc:
                refuse(str(exc))
        end = await self._give_up(must_be_held=False)
        if ha_master_address is not None:
            replication.slave_role.follow(ha_master_address)
        return HaDemoteBody(
            epoch=replication.identity.epoch,
            end=end,
            ha_master_address=ha_master_address or replication.known.ha_address or "",
        )

    async def _give_up_pending(self) -> HaDemoteBody:
        """Withdraw a promotion whose epoch has not begun."""
        replication = self._replication
        await replication.give_up_pending()
        if replication.is_master:
            refuse("this broker could not go back to what it was; its log says why")
        return HaDemoteBody(
            epoch=replication.identity.epoch,
            end=replication.log.end,
            ha_master_address=replication.known.ha_address or "",
        )

    async def _has_another_master(self) -> bool:
        """Return whether another broker is, or was the last, master of this name."""
        own = self._replication.identity.epoch
        if self._replication.fenced is not None:
            return True
        return any(
            member.status is not None
            and member.status.role == "MASTER"
            and not member.status.pending
            and member.status.epoch >= own
            for member in await self._peers.members()
        )

    # --- asked for by a slave ----------------------------------------------------------------

    async def hand_over(self, epoch: int, address: str | None) -> HaStepDownBody:
        """Hand over to the slave at `address`: stop writing, wait for slaves, become a slave.

        If this broker hung when the slave asked, the promotion may have been refused by now.
        """
        replication = self._replication
        if not replication.is_master:
            refuse(f"{self._live.current.address} is no master")
        own_epoch = replication.identity.epoch
        if epoch != own_epoch:
            raise RefusedError(
                ResponseCode.STALE_EPOCH,
                f"a slave of epoch {epoch} asks, this master is of {own_epoch}",
            )
        if address is not None:
            await self._check_wanted(address)
        master = replication.master
        if master is None or not master.keeper.has_begun:
            refuse(
                f"epoch {own_epoch} of the master has not begun, because its first record does not"
                " count yet; try again in a moment"
            )
        await self._wait_for_slave()
        mode = self._live.current.role.value
        end = await self._give_up(must_be_held=True)
        return HaStepDownBody(epoch=own_epoch, end=end, mode=mode, master=replication.identity.name)

    async def _check_wanted(self, address: str) -> None:
        """Refuse unless the slave at `address` says that it is being promoted."""
        try:
            answer = await self._peers.ask(address, RequestCode.HA_STATUS)
            is_promoting = HaStatusBody.decode(answer.body).promoting
        except RmqError as exc:
            refuse(f"whether {address} still wants that is not known: {exc}")
        if not is_promoting:
            refuse(f"{address} does not want that any longer")

    async def _wait_for_slave(self) -> None:
        """Wait until a slave that has just connected is in sync, while messages are still taken."""
        master = self._replication.master
        with trio.move_on_after(JOIN_S):
            while (  # noqa: ASYNC110 - rare, and short
                master is not None and len(master.slaves) and not master.slaves.in_sync_count
            ):
                await trio.sleep(0.01)

    # --- both --------------------------------------------------------------------------------

    async def _give_up(self, *, must_be_held: bool) -> int:
        """Stop writing, wait for slaves in sync, become a slave; return where the log ends."""
        replication, store = self._replication, self._store
        master = replication.master
        has_begun = master is not None and master.keeper.has_begun
        if store.config.transient_pool_enabled:
            refuse(
                "a slave writes no transient pool, and it is open here: set brokerRole=SLAVE and a"
                " brokerId above 0, and restart"
            )
        store.set_refused(Refusal.HANDING_OVER, True)
        try:
            end = store.log.written
            if master is not None:
                replication.pump.now()
                with trio.move_on_after(HAND_OVER_S):
                    while not master.is_held_by_all(end):  # noqa: ASYNC110 - rare, and short
                        await trio.sleep(0.01)
                if must_be_held and not (
                    master.slaves.in_sync_count and master.is_held_by_all(end)
                ):
                    refuse("no slave in sync has all messages")
            broker_id = free_id(await self._peers.members())

            async def prepare() -> None:
                await replication.master_role.lay_down()
                # Forget the master before this one: nameservers list the new one.
                replication.known.forget()
                await replication.saved.assume(BrokerRole.SLAVE, broker_id)

            await replication.change_role(prepare)
        finally:
            store.set_refused(Refusal.HANDING_OVER, False)
        replication.set_fenced(None)
        # An epoch that has not begun is no word on what was acknowledged before it.
        replication.note_stepped_down(end if has_begun else None)
        logger.info(
            "this broker is a slave of %s now, with brokerId %d; its log ends at %d",
            self._live.current.broker_name,
            broker_id,
            end,
        )
        return end
