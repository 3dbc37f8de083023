"""What nameservers and other brokers know of epochs and records when a slave is promoted.

A promotion is decided by it (`rmq.ha.protocol.promotion`). The other slaves also renounce: they
take new incarnations, so that a master that hung and resumes cannot count on them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec
import trio

from rmq.broker.replication.changes.refusal import refuse
from rmq.broker.replication.log_digests import log_digests
from rmq.broker.replication.record_keeping import kept_records
from rmq.errors import RemoteProtocolError, RmqError
from rmq.ha.identity import EPOCH_MAX
from rmq.ha.protocol.log_view import TAIL_BYTES, tail_start
from rmq.ha.protocol.promotion import KeptRecords, OtherSlave
from rmq.model.in_sync_record import newest, read_record, store_of
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import HaDigestsBody, HaStatusBody
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import HaDigestsRequest, HaRenounceRequest

if TYPE_CHECKING:
    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.replication.peers import Member, Peers
    from rmq.broker.replication.role import Replication
    from rmq.model.in_sync_record import InSyncRecord

logger = logging.getLogger(__name__)


class Knowledge(NamedTuple):
    """What nameservers, other brokers and this one know."""

    kept: KeptRecords
    others: list[OtherSlave]
    records: tuple[InSyncRecord, ...]
    """All in-sync records found, the latest last."""
    latest_epoch: int

    def check_last_epoch(self) -> None:
        """Refuse a promotion if there can be no later epoch."""
        if self.latest_epoch >= EPOCH_MAX:
            refuse(f"there was a master of epoch {self.latest_epoch}, the last one possible")


@final
class Inquiry:
    """Asks nameservers and other brokers before a promotion."""

    def __init__(self, live: LiveConfig, replication: Replication, peers: Peers) -> None:
        self._live = live
        self._replication = replication
        self._peers = peers

    async def ask(self, members: list[Member]) -> Knowledge:
        """Collect the in-sync records and epochs that nameservers and other brokers know."""
        replication, config = self._replication, self._live.current
        secret = config.ha_secret.encode()
        own = newest(*replication.identity.records)
        names = {*config.namesrv_addrs, *(() if own is None else own.nameservers)}
        kept = KeptRecords(
            await kept_records(self._peers, tuple(sorted(names)), config.broker_name, secret)
        )
        others = [_other_slave(member, config) for member in members]
        found = [*replication.identity.records, *kept.answers.values()]
        found += [other.record for other in others]
        # Two masters of one epoch may have written records of one order.
        records = {(record.order, record.master): record for record in found if record is not None}
        epochs = [replication.identity.epoch, replication.known.epoch]
        epochs += [other.epoch for other in others if other.epoch is not None]
        epochs += [record.epoch for record in records.values()]
        return Knowledge(kept, others, tuple(records[key] for key in sorted(records)), max(epochs))

    async def have_renounce(self, members: list[Member]) -> list[Member]:
        """Have the other slaves renounce, and return their status.

        So a master that hung and resumes now cannot count on them.
        """
        config = self._live.current
        header = HaRenounceRequest(address=config.address)
        found: list[Member] = []

        async def ask(member: Member) -> None:
            status = member.status
            if status is not None and status.role != "MASTER":
                try:
                    answer = await self._peers.ask(member.address, RequestCode.HA_RENOUNCE, header)
                    status = HaStatusBody.decode(answer.body)
                    if status.gave_up and not await self._continues(member.address, status.end):
                        status = msgspec.structs.replace(status, gave_up=False)
                except RmqError as exc:
                    logger.warning("the slave at %s did not renounce: %s", member.address, exc)
                    status = None
            found.append(member._replace(status=status))

        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(ask, member)
        return sorted(found, key=lambda member: member.address)

    async def _continues(self, address: str, end: int) -> bool:
        """Return whether this log contains another one that ends at `end`, by its tail."""
        log = self._replication.log
        if not end <= log.end:
            return False
        start = tail_start(log.begin, PhysicalOffset(end), log.begin)
        header = HaDigestsRequest(start=start, stop=end, step=TAIL_BYTES)
        answer = await self._peers.ask(address, RequestCode.HA_DIGESTS, header)
        theirs = HaDigestsBody.decode(answer.body)
        own = await log_digests(log, start, end, TAIL_BYTES)
        return theirs.digests == own.digests and bool(own.digests or not end)


def _other_slave(member: Member, config: BrokerConfig) -> OtherSlave:
    status = member.status
    if status is None:
        return OtherSlave(member.address, None, None)
    heard = status.master
    if status.role == "MASTER":
        return OtherSlave(member.address, status.epoch, None, record=_record_of(status, config))
    return OtherSlave(
        member.address,
        status.epoch,
        PhysicalOffset(status.end),
        members=frozenset(status.members or (status.member,)),
        record=_record_of(status, config),
        hears_epochs=heard is not None and heard.native,
        gave_way=status.gave_up,
        store=store_of(status.member),
    )


def _record_of(status: HaStatusBody, config: BrokerConfig) -> InSyncRecord | None:
    try:
        record = read_record(status.record) if status.record else None
    except RemoteProtocolError as exc:
        logger.warning("%s has an unreadable in-sync record: %s", status.address, exc)
        return None
    if record is None or not record.is_genuine(config.ha_secret.encode(), config.broker_name):
        return None
    return record
