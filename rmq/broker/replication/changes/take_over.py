"""What a slave that is promoted has to do with the present master: find it, relieve it, fence it.

The master is asked to step down first. One that answers stops writing and waits until this slave
has everything; one that does not is fenced afterwards, when the new epoch has begun.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.replication.changes.refusal import refuse
from rmq.broker.replication.changes.step_down import HAND_OVER_S, JOIN_S
from rmq.broker.replication.peers import ASK_S
from rmq.errors import ClientError, ResponseError, RmqError
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import HaStepDownBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaFenceRequest, HaStepDownRequest

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.broker.registration.registration import Registration
    from rmq.broker.replication.peers import Member, Peers
    from rmq.broker.replication.role import Replication

logger = logging.getLogger(__name__)

SILENT_S: Final = 0.5
"""How long a master that did not answer a status request may take to step down. Nothing is lost if
it takes longer: then the in-sync record decides. When it resumes, it asks whether it still has to
step down.
"""


@final
class TakeOver:
    """Takes the place of a master, for a slave that is promoted."""

    def __init__(
        self,
        live: LiveConfig,
        replication: Replication,
        registration: Registration,
        peers: Peers,
    ) -> None:
        self._live = live
        self._replication = replication
        self._registration = registration
        self.peers = peers

    async def members(self, *, accept_loss: bool) -> list[Member]:
        """Return the other brokers of the name; refuse if one is master that this one cannot ask.

        Only a slave that follows a master may ask it to step down: another one would not get the
        rest of its log, and there would be no master. A slave may have lost its connection for a
        moment, or have a new master. So it asks nameservers again, and has `JOIN_S` to connect.
        With `accept_loss` it need not follow the master that nameservers list.
        """
        replication = self._replication

        def other_master() -> Member | None:
            own = replication.linked_master
            if own is None and (accept_loss or self._follows_stock()):
                own = replication.master_address
            return _master_but(own, members, replication.identity.epoch)

        members = await self.peers.members()
        if other_master() is not None and not replication.is_master:
            self._registration.register_again()
            with trio.move_on_after(JOIN_S):
                while other_master() is not None:  # noqa: ASYNC110 - rare, and short
                    await trio.sleep(0.02)
            members = await self.peers.members()
        other = other_master()
        if other is not None:
            assert other.status is not None, "only who answers says that it is master"
            refuse(
                f"{other.address} is master already, of epoch {other.status.epoch}"
                f"{self._why_not_joined()}"
            )
        return members

    def _follows_stock(self) -> bool:
        """Return whether the link is in the stock dialect, which has no master address."""
        slave = self._replication.slave
        return slave is not None and slave.status.is_native is False

    def _why_not_joined(self) -> str:
        slave = self._replication.slave
        if slave is None:
            return ""
        status = slave.status
        error = f": {status.last_error}" if status.last_error else ""
        return (
            f", and this slave does not follow it within {JOIN_S:g} s ({status.state.value}{error})"
            "; let it follow that one first, or accept the loss of what only that one has"
        )

    async def have_step_down(
        self, master: str, *, accept_loss: bool, is_silent: bool
    ) -> HaStepDownBody | None:
        """Have the master step down, and get the rest of its log; None if it does not answer."""
        if not master:
            return None
        slave = self._replication.slave
        with nullcontext() if slave is None else slave.expecting_end():
            return await self._have_step_down(master, accept_loss=accept_loss, is_silent=is_silent)

    async def _have_step_down(
        self, master: str, *, accept_loss: bool, is_silent: bool
    ) -> HaStepDownBody | None:
        header = HaStepDownRequest(
            epoch=self._replication.identity.epoch, address=self._live.current.address
        )
        # A master without status hangs or is gone: this request waits less.
        timeout_s = SILENT_S if is_silent else HAND_OVER_S + ASK_S
        try:
            answer = await self.peers.ask(
                master, RequestCode.HA_STEP_DOWN, header, timeout_s=timeout_s
            )
        except ResponseError as exc:
            if accept_loss:
                logger.warning("the master at %s does not step down: %s", master, exc.remark)
                return None
            if exc.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                refuse(
                    f"the master at {master} is alive and cannot be asked to step down: stop it"
                    " first, or accept the loss of what it acknowledges meanwhile"
                )
            refuse(f"the master at {master} does not step down: {exc.remark}")
        except ClientError as exc:
            logger.warning("the master at %s does not answer: %s", master, exc)
            return None
        stepped_down = HaStepDownBody.decode(answer.body)
        slave = self._replication.slave
        if slave is not None:
            with trio.move_on_after(HAND_OVER_S):
                await slave.wait_caught_up(PhysicalOffset(stepped_down.end))
        end = self._replication.log.end
        if end < stepped_down.end and not accept_loss:
            refuse(
                f"the master at {master} stepped down at {stepped_down.end}, but this slave ends at"
                f" {end}; promote the broker at {master} again"
            )
        # Copy what it delivered and checked until then, so that it is not done again.
        self._replication.metadata.point_to(master)
        with trio.move_on_after(ASK_S):
            await self._replication.metadata.sync_last()
        return stepped_down

    async def fence(self, previous: str, epoch: int) -> None:
        """Fence the former master, if it can be reached."""
        header = HaFenceRequest(address=self._live.current.address, epoch=epoch)
        try:
            await self.peers.ask(previous, RequestCode.HA_FENCE, header)
        except RmqError as exc:
            logger.warning(
                "cannot fence the former master at %s: %s; if it still runs, it takes messages,"
                " which are lost, until it learns of epoch %d",
                previous,
                exc,
                epoch,
            )
        else:
            logger.info("the former master at %s takes no more messages", previous)


def _master_but(own: str | None, members: list[Member], epoch: int) -> Member | None:
    """Return a master of this epoch or a later one that is not this slave's own."""
    for member in members:
        status = member.status
        if (
            status is not None
            and status.role == "MASTER"
            and member.address != own
            and status.epoch >= epoch
        ):
            return member
    return None
