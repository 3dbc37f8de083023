"""Withdrawal of a promotion: the former master has gone on, so the new epoch does not begin.

Nothing was written in that epoch. This broker becomes the slave that it was, and then takes the
first record of the epoch back from nameservers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.replication.peers import free_id
from rmq.broker.replication.record_keeping import kept_record
from rmq.errors import RmqError
from rmq.ha.identity import with_role, withdrawn
from rmq.model.in_sync_record import NAMESPACE, newest, number_of
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import DeleteKvConfigRequest, PutKvConfigRequest

if TYPE_CHECKING:
    from rmq.broker.config import BrokerConfig
    from rmq.broker.replication.peers import Peers
    from rmq.broker.replication.role_parts import RoleParts
    from rmq.model.in_sync_record import InSyncRecord

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Pause before a broker that cannot save its role, or reach a nameserver, tries again."""
TAKE_BACK_S: Final = 5.0
"""How long a record may be in flight to a nameserver after its writer withdrew."""


@final
class Withdrawal:
    """Withdraws epochs of one broker."""

    def __init__(self, parts: RoleParts) -> None:
        self._parts = parts
        self._void: InSyncRecord | None = None
        """The first record of an epoch that did not begin."""

    async def withdraw(self) -> None:
        """Restore the state from before this epoch, in which nothing was written."""
        parts = self._parts
        identity = parts.saved.identity
        own = newest(*identity.records)
        try:
            await parts.store.flush()
            parts.master_tasks.give_up()
            await parts.saved.save(with_role(withdrawn(identity), BrokerRole.SLAVE.value))
        except RmqError as exc:
            logger.critical("this master has to withdraw and cannot: %s", exc)
            await trio.sleep(RETRY_S)
            return
        parts.known.forget()
        await parts.saved.assume(BrokerRole.SLAVE, free_id(await parts.peers.members()))
        if own is not None and own.epoch == identity.epoch:
            self._void = own

    async def take_back(self) -> None:
        """Remove the record of a withdrawn epoch from nameservers, also one that was in flight when
        this broker withdrew.
        """
        parts = self._parts
        own, before = self._void, newest(*parts.saved.identity.records)
        give_up_at = trio.current_time() + TAKE_BACK_S
        have_all = False
        while own is not None and not (have_all and trio.current_time() >= give_up_at):
            have_all = await _put_back(parts.peers, parts.live.current, own, before)
            await trio.sleep(RETRY_S)
        self._void = None


async def _put_back(
    peers: Peers, config: BrokerConfig, own: InSyncRecord, before: InSyncRecord | None
) -> bool:
    """Replace the withdrawn record `own` by `before` on all nameservers that keep it.

    Return whether all of them have answered.
    """
    name, secret = config.broker_name, config.ha_secret.encode()
    unheard: list[str] = []

    async def put_back(nameserver: str) -> None:
        try:
            there = await kept_record(peers, nameserver, name, secret)
            if there is None or there.epoch != own.epoch or there.master != own.master:
                return
            gone = DeleteKvConfigRequest(namespace=NAMESPACE, key=name)
            await peers.ask(nameserver, RequestCode.DELETE_KV_CONFIG, gone)
            if before is not None:
                value = before.encode(secret, name).decode()
                header = PutKvConfigRequest(namespace=NAMESPACE, key=name, value=value)
                await peers.ask(nameserver, RequestCode.PUT_KV_CONFIG, header)
        except RmqError as exc:
            unheard.append(nameserver)
            logger.info(
                "nameserver %s may still keep the withdrawn record %s of %s: %s",
                nameserver,
                number_of(own),
                name,
                exc,
            )

    async with trio.open_nursery() as nursery:
        for nameserver in config.namesrv_addrs:
            nursery.start_soon(put_back, nameserver)
    return not unheard
