"""Requests about replication: its status, changes of roles, and digests of the log.

Requests 9001 to 9010, our own. They are sent by `rmq ha`, by a slave that takes over and by a
master that checks whether it still is one. Requests are validated here and carried out by a
`ReplicationControl`, whose refusals are answered as they are.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

from rmq.broker.replication.log_digests import STEP_BYTES_MAX, STEP_BYTES_MIN
from rmq.errors import RefusedError
from rmq.remoting.codes import ResponseCode
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.headers import HaRecordsResponse
from rmq.remoting.protocol import Requests

if TYPE_CHECKING:
    from rmq.remoting.bodies import (
        HaDemoteBody,
        HaDigestsBody,
        HaPromoteBody,
        HaResyncBody,
        HaStatusBody,
        HaStepDownBody,
    )
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import (
        HaDemoteRequest,
        HaDigestsRequest,
        HaFenceRequest,
        HaForgetRequest,
        HaPromoteRequest,
        HaRecordsRequest,
        HaRenounceRequest,
        HaResyncRequest,
        HaStatusRequest,
        HaStepDownRequest,
    )
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

MASTER_MODES: Final = ("ASYNC_MASTER", "SYNC_MASTER")

HA: Final = HandlerGroup(name="ha", concurrency=4, capacity=64, per_connection=16)
"""Changes of roles. Few at a time; the `ReplicationControl` puts them in order."""
HA_DIGESTS: Final = HandlerGroup(name="ha_digests", concurrency=1, capacity=64, per_connection=16)
"""Reads much of the disk: one at a time, and never in the way of a change of roles."""


class ReplicationControl(Protocol):
    """Reports the state of replication and changes it. Raises `RefusedError` to refuse."""

    def status(self) -> HaStatusBody:
        """Return the status of replication, without waiting."""
        ...

    def note_other_master(self, address: str) -> None:
        """Note that a master at `address` checks whether it was replaced."""
        ...

    async def promote(self, accept_loss: bool, mode: str | None) -> HaPromoteBody:
        """Become master; `mode` is one of `MASTER_MODES`, or None for the one of the last master.

        Refused when acknowledged messages may be missing, unless `accept_loss`.
        """
        ...

    async def demote(self, ha_master_address: str | None, force: bool) -> HaDemoteBody:
        """Become a slave, of the master that nameservers list if no address is given.

        Refused while no other master of the name is known, unless `force`.
        """
        ...

    async def resync(self, dry_run: bool, planned: tuple[int, int] | None) -> HaResyncBody:
        """Cut off what the master does not have, or only say what that would be.

        Refused if the ends of the common part and of the log are not those that were `planned`.
        """
        ...

    def forget(self, slave: str) -> HaStatusBody:
        """Remember a slave no longer that has disconnected; return the status without it.

        Refused for one that is connected, and for one on which acknowledgements may rest.
        """
        ...

    async def records(self, start: int, stop: int) -> tuple[bytes, int]:
        """Return whole records of a range of the log, and where the next one begins."""
        ...

    async def digests(self, start: int, stop: int, step: int) -> HaDigestsBody:
        """Digests of the log (`log_digests`); the arguments have been checked."""
        ...

    async def step_down(self, epoch: int, address: str | None) -> HaStepDownBody:
        """Stop writing, for a slave of `epoch`; return when nothing more can be written.

        Refused unless that is the epoch of this master, and the slave at `address`, if it is given,
        still wants that.
        """
        ...

    async def fence(self, address: str, epoch: int) -> None:
        """Stop writing if the broker at `address` is master by now, of a later epoch."""
        ...

    async def renounce(self, address: str) -> HaStatusBody:
        """Take a new incarnation, so that no master counts on this slave; `address` takes over."""
        ...


@final
class HaHandlers:
    """Answers questions about replication."""

    def __init__(self, replication: ReplicationControl) -> None:
        self._replication = replication

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.HA_STATUS, self.status)
        table.add_async(Requests.HA_PROMOTE, self.promote, group=HA)
        table.add_async(Requests.HA_DEMOTE, self.demote, group=HA)
        table.add_async(Requests.HA_RESYNC, self.resync, group=HA)
        table.add_async(Requests.HA_DIGESTS, self.digests, group=HA_DIGESTS)
        table.add_async(Requests.HA_STEP_DOWN, self.step_down, group=HA)
        table.add_async(Requests.HA_FENCE, self.fence, group=HA)
        table.add_async(Requests.HA_RENOUNCE, self.renounce, group=HA)
        table.add(Requests.HA_FORGET, self.forget, group=HA)
        table.add_async(Requests.HA_RECORDS, self.records, group=HA_DIGESTS)

    def status(self, request: Request[HaStatusRequest]) -> None:
        """9001 HA_STATUS."""
        # An empty address is none in the binary serialization; in JSON it may be sent.
        master = request.header.master or None
        if master is not None:
            _check_address(master)
            self._replication.note_other_master(master)
        request.reply(body=self._replication.status().encode())

    async def promote(self, request: Request[HaPromoteRequest]) -> None:
        """9002 HA_PROMOTE."""
        header = request.header
        if header.mode is not None and header.mode not in MASTER_MODES:
            _refuse(f"mode {header.mode} is not one of {', '.join(MASTER_MODES)}")
        logger.info(
            "%s wants this broker to become master%s",
            request.channel.peer,
            ", at the loss of messages if need be" if header.accept_loss else "",
        )
        outcome = await self._replication.promote(header.accept_loss, header.mode)
        request.reply(body=outcome.encode())

    async def demote(self, request: Request[HaDemoteRequest]) -> None:
        """9003 HA_DEMOTE."""
        # An empty address is none in the binary serialization; in JSON it may be sent.
        address = request.header.ha_master_address or None
        if address is not None:
            _check_address(address)
        logger.info("%s wants this broker to become a slave", request.channel.peer)
        outcome = await self._replication.demote(address, request.header.force)
        request.reply(body=outcome.encode())

    async def resync(self, request: Request[HaResyncRequest]) -> None:
        """9004 HA_RESYNC."""
        header = request.header
        if not header.dry_run:
            logger.info("%s wants this broker to cut its log for its master", request.channel.peer)
        planned = None
        if header.common_end is not None and header.local_end is not None:
            planned = header.common_end, header.local_end
        outcome = await self._replication.resync(header.dry_run, planned)
        request.reply(body=outcome.encode())

    async def digests(self, request: Request[HaDigestsRequest]) -> None:
        """9005 HA_DIGESTS."""
        header = request.header
        if not 0 <= header.start <= header.stop:
            _refuse(f"no range: from {header.start} to {header.stop}")
        if not STEP_BYTES_MIN <= header.step <= STEP_BYTES_MAX:
            _refuse(f"step {header.step} is not between {STEP_BYTES_MIN} and {STEP_BYTES_MAX}")
        outcome = await self._replication.digests(header.start, header.stop, header.step)
        request.reply(body=outcome.encode())

    async def step_down(self, request: Request[HaStepDownRequest]) -> None:
        """9006 HA_STEP_DOWN."""
        epoch = request.header.epoch
        logger.info(
            "a slave of epoch %d asks this master to step down (%s)", epoch, request.channel.peer
        )
        # An empty address is none in the binary serialization; in JSON it may be sent.
        address = request.header.address or None
        if address is not None:
            _check_address(address)
        outcome = await self._replication.step_down(epoch, address)
        request.reply(body=outcome.encode())

    async def fence(self, request: Request[HaFenceRequest]) -> None:
        """9007 HA_FENCE."""
        header = request.header
        _check_address(header.address)
        logger.info("%s says that it is master in epoch %d", header.address, header.epoch)
        await self._replication.fence(header.address, header.epoch)
        request.reply()

    async def renounce(self, request: Request[HaRenounceRequest]) -> None:
        """9008 HA_RENOUNCE."""
        address = request.header.address
        _check_address(address)
        logger.info("the slave at %s is to become master", address)
        outcome = await self._replication.renounce(address)
        request.reply(body=outcome.encode())

    def forget(self, request: Request[HaForgetRequest]) -> None:
        """9009 HA_FORGET."""
        slave = request.header.slave
        logger.info("%s wants this broker to forget its slave %s", request.channel.peer, slave)
        request.reply(body=self._replication.forget(slave).encode())

    async def records(self, request: Request[HaRecordsRequest]) -> None:
        """9010 HA_RECORDS."""
        header = request.header
        if not 0 <= header.start < header.stop:
            _refuse(f"no range: from {header.start} to {header.stop}")
        data, next_offset = await self._replication.records(header.start, header.stop)
        request.reply(HaRecordsResponse(next_offset=next_offset), body=data or None)


def _check_address(address: str) -> None:
    host, separator, port = address.rpartition(":")
    if not (host and separator and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        _refuse(f"{address} is not HOST:PORT")


def _refuse(remark: str) -> NoReturn:
    raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
