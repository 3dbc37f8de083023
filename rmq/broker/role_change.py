"""Changes of roles by hand, and the repair of a slave.

Promotion, in order: the old master, if it answers, stops writing and sees to it that this slave has
everything; else it is worked out whether messages that were acknowledged may be missing here, and
then only `accept_loss` goes on. The follower stops, queue offsets are brought up to the log, the
new epoch is on disk, and only then does the broker say that it is master and take messages. The
epoch in its registration makes nameservers turn away the old master, should it come back.

One change at a time; whoever asks for a second one is told so.
"""

from __future__ import annotations

import logging
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.log_comparison import (
    STEPS,
    common_prefix,
    common_records,
    count_records,
    record_ends,
)
from rmq.broker.log_digests import log_digests
from rmq.broker.replication_status import replication_status
from rmq.broker.siblings import ASK_S
from rmq.errors import ClientError, RefusedError, ResponseError, RmqError, StorageError
from rmq.ha.promotion import LastMaster, OtherSlave, decide
from rmq.remoting.bodies import (
    HaDemoteBody,
    HaDigestsBody,
    HaPromoteBody,
    HaResyncBody,
    HaStatusBody,
    HaStepDownBody,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaDigestsRequest, HaStepDownRequest
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.registration import Registration
    from rmq.broker.replication import Replication
    from rmq.broker.siblings import Member, Siblings
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

HAND_OVER_S: Final = 10.0
"""How long slaves may take to get what a master that steps down has."""
DIGESTS_S: Final = 60.0
"""How long a master may take to read what is compared."""


def _refuse(remark: str) -> NoReturn:
    raise RefusedError(ResponseCode.NO_PERMISSION, remark)


@final
class RoleChange:
    """Carries out what operators order."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        replication: Replication,
        registration: Registration,
        siblings: Siblings,
        *,
        request_reopen: Callable[[int | None, str], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._live = live
        self._store = store
        self._replication = replication
        self._registration = registration
        self._siblings = siblings
        self._request_reopen = request_reopen
        self._now_ms = now_ms
        self._under_way: str | None = None
        self._stepped_down_at: int | None = None
        """Where the log of this broker ended when it gave up being master."""

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        if self._under_way is not None:
            _refuse(f"{self._under_way} is under way; try again when it is over")
        self._under_way = what
        try:
            yield
        finally:
            self._under_way = None

    # --- promotion ---------------------------------------------------------------------------

    async def promote(self, accept_loss: bool, mode: str | None) -> HaPromoteBody:
        """Make this slave the master of its broker name."""
        with self._alone("a promotion"):
            replication, config = self._replication, self._live.current
            if replication.is_master and replication.fenced is None:
                _refuse(f"{config.address} is master already")
            role = self._role_of(mode)
            if not replication.is_master:
                self._check_port(config)
            members = await self._siblings.members()
            self._check_no_other_master(members)
            previous = replication.last_master_address or ""
            former = next((m for m in members if m.address == previous), None)
            stepped_down = None
            if former is None or former.status is None or former.status.role == "MASTER":
                stepped_down = await self._take_over(previous, accept_loss=accept_loss)
            missing = 0
            if stepped_down is None and not self._has_all_of(former):
                self._check_loss(members, accept_loss=accept_loss)
                missing = self._known_missing(members)
            epochs = [member.status.epoch for member in members if member.status is not None]
            if stepped_down is not None:
                epochs.append(stepped_down.epoch)
            epoch = max([replication.identity.epoch, *epochs]) + 1
            cut_bytes = 0

            async def prepare() -> None:
                nonlocal cut_bytes
                # Until all is in place nobody may write, whatever the role says.
                self._store.core.set_refused(Refusal.HANDING_OVER, True)
                cut_bytes = await replication.begin_epoch(epoch, role)
                await self._assume(role, 0)

            try:
                await replication.change_role(prepare)
            finally:
                self._store.core.set_refused(Refusal.HANDING_OVER, False)
            replication.set_fenced(None)
            self._stepped_down_at = None
            start = replication.log.end
            logger.warning(
                "this broker is master of %s now: epoch %d, from offset %d on, %s",
                config.broker_name,
                epoch,
                start,
                role.value,
            )
            # One that was turned away has the same id as before.
            self._registration.register_again()
            await self._registration.wait_told()
            return HaPromoteBody(
                mode=role.value,
                epoch=epoch,
                start=start,
                previous_master=previous,
                previous_end=-1 if stepped_down is None else stepped_down.end,
                missing_bytes=missing,
                cut_bytes=cut_bytes,
            )

    def _role_of(self, mode: str | None) -> BrokerRole:
        if mode is None:
            follower = self._replication.follower
            is_sync = follower is not None and follower.status.master.is_sync
            return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER
        try:
            role = BrokerRole(mode)
        except ValueError:
            role = BrokerRole.SLAVE
        if role is BrokerRole.SLAVE:
            _refuse(f"mode is {mode}, not ASYNC_MASTER or SYNC_MASTER")
        return role

    def _check_port(self, config: BrokerConfig) -> None:
        """See that slaves will be able to connect, before anything is changed."""
        try:
            with socket.create_server((config.bind_address, config.ha_port)):
                pass
        except OSError as exc:
            _refuse(
                f"port {config.ha_port}, to which slaves would connect, cannot be opened:"
                f" {exc.strerror}"
            )

    def _check_no_other_master(self, members: list[Member]) -> None:
        own = self._replication.identity.epoch
        for member in members:
            status = member.status
            if (
                status is not None
                and status.role == "MASTER"
                and member.address != self._replication.master_address
                and status.epoch >= own
            ):
                _refuse(f"{member.address} is master already, of epoch {status.epoch}")

    async def _take_over(self, master: str, *, accept_loss: bool) -> HaStepDownBody | None:
        """Have the master step down; None if it does not answer."""
        if not master:
            return None
        header = HaStepDownRequest(epoch=self._replication.identity.epoch)
        try:
            answer = await self._siblings.ask(
                master, RequestCode.HA_STEP_DOWN, header, timeout_s=HAND_OVER_S + ASK_S
            )
        except ResponseError as exc:
            if accept_loss:
                logger.warning("the master at %s does not step down: %s", master, exc.remark)
                return None
            if exc.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                _refuse(
                    f"the master at {master} is alive and cannot be asked to step down: stop it"
                    " first, or accept the loss of what it acknowledges meanwhile"
                )
            _refuse(f"the master at {master} does not step down: {exc.remark}")
        except ClientError as exc:
            logger.warning("the master at %s does not answer: %s", master, exc)
            return None
        stepped_down = HaStepDownBody.decode(answer.body)
        follower = self._replication.follower
        if follower is not None:
            with trio.move_on_after(HAND_OVER_S):
                await follower.caught_up(stepped_down.end)
        end = self._replication.log.end
        if end < stepped_down.end and not accept_loss:
            _refuse(
                f"the master at {master} stepped down at {stepped_down.end}, but this slave ends at"
                f" {end}; promote the broker at {master} again"
            )
        # What it delivered and checked until then, so that it is not done again.
        self._replication.metadata.point_to(master)
        with trio.move_on_after(ASK_S):
            await self._replication.metadata.sync_now()
        return stepped_down

    def _has_all_of(self, former: Member | None) -> bool:
        """Tell whether the last master is a slave by now that has no more than this broker."""
        if former is None or former.status is None or former.status.role == "MASTER":
            return False
        replication, status = self._replication, former.status
        return status.epoch == replication.identity.epoch and status.end <= replication.log.end

    def _check_loss(self, members: list[Member], *, accept_loss: bool) -> None:
        replication = self._replication
        follower = replication.follower
        end = replication.log.end
        if replication.is_master or self._stepped_down_at == end:
            # It was master itself when the log was last written.
            last = None
        else:
            view = None if follower is None else follower.status.master
            last = LastMaster.of(view)
        others = [
            _other_slave(member)
            for member in members
            if member.address != replication.master_address
        ]
        if replication.known_epoch > replication.identity.epoch:
            others.append(OtherSlave("the nameserver's last master", replication.known_epoch, None))
        if last is None:
            verdict = None
        else:
            verdict = decide(last, epoch=replication.identity.epoch, end=end, others=others)
        if verdict is None or verdict.is_safe:
            return
        if not accept_loss:
            _refuse(f"messages that were acknowledged may be lost: {verdict.reason}")
        logger.warning("promoted although messages may be lost: %s", verdict.reason)

    def _known_missing(self, members: list[Member]) -> int:
        """Return how many bytes others are known to have that this broker has not."""
        follower = self._replication.follower
        ends = [member.status.end for member in members if member.status is not None]
        if follower is not None:
            ends.append(follower.status.master.end)
        return max(0, max(ends, default=0) - self._replication.log.end)

    async def _assume(self, role: BrokerRole, broker_id: int) -> None:
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

    # --- demotion ----------------------------------------------------------------------------

    async def demote(self, ha_master_address: str | None) -> HaDemoteBody:
        """Make this master a slave."""
        with self._alone("a demotion"):
            if not self._replication.is_master:
                _refuse(f"{self._live.current.address} is a slave already")
            if ha_master_address is not None and not self._live.current.namesrv_addrs:
                # Nobody else will say it after a restart. Where nameservers do, a fixed address
                # would outlive the next change of roles.
                try:
                    self._live.update({"haMasterAddress": ha_master_address}, now_ms=self._now_ms())
                except RmqError as exc:
                    _refuse(str(exc))
            end = await self._give_up(must_be_held=False)
            replication = self._replication
            if ha_master_address is not None:
                replication.follow(ha_master_address)
            return HaDemoteBody(
                epoch=replication.identity.epoch,
                end=end,
                ha_master_address=ha_master_address or replication.ha_address or "",
            )

    async def step_down(self, epoch: int) -> HaStepDownBody:
        """Give way to a slave: stop writing, let slaves have it all, become a slave."""
        with self._alone("a hand-over"):
            replication = self._replication
            if not replication.is_master:
                _refuse(f"{self._live.current.address} is no master")
            own_epoch = replication.identity.epoch
            if epoch != own_epoch:
                raise RefusedError(
                    ResponseCode.STALE_EPOCH,
                    f"a slave of epoch {epoch} asks, this master is of {own_epoch}",
                )
            end = await self._give_up(must_be_held=True)
            return HaStepDownBody(epoch=own_epoch, end=end)

    async def _give_up(self, *, must_be_held: bool) -> int:
        """Stop writing, wait for slaves in sync, become a slave; return where the log ends."""
        replication, core = self._replication, self._store.core
        master = replication.master
        if core.config.transient_pool_enabled:
            _refuse(
                "a slave writes no transient pool, and it is open here: set brokerRole=SLAVE and a"
                " brokerId above 0, and restart"
            )
        core.set_refused(Refusal.HANDING_OVER, True)
        try:
            end = int(core.log.written)
            if master is not None:
                replication.pump()
                with trio.move_on_after(HAND_OVER_S):
                    while not master.is_held_by_all(end):  # noqa: ASYNC110 - rare, and short
                        await trio.sleep(0.01)
                if must_be_held and not (
                    master.replicas.in_sync_count and master.is_held_by_all(end)
                ):
                    _refuse("no slave in sync has all messages")
            broker_id = self._free_id(await self._siblings.members())

            async def prepare() -> None:
                # Whoever was master before this one: nameservers say who is now.
                replication.forget_master()
                await self._assume(BrokerRole.SLAVE, broker_id)
                await replication.lay_down()

            await replication.change_role(prepare)
        finally:
            core.set_refused(Refusal.HANDING_OVER, False)
        replication.set_fenced(None)
        self._stepped_down_at = end
        logger.warning(
            "this broker is a slave of %s now, with brokerId %d; its log ends at %d",
            self._live.current.broker_name,
            broker_id,
            end,
        )
        return end

    def _free_id(self, members: list[Member]) -> int:
        taken = {member.broker_id for member in members}
        return next(number for number in range(1, len(taken) + 2) if number not in taken)

    # --- repair ------------------------------------------------------------------------------

    async def resync(self, dry_run: bool) -> HaResyncBody:
        """Cut off what the master does not have, and follow it again."""
        with self._alone("a resync"):
            replication = self._replication
            if replication.is_master:
                _refuse("a master is never cut; resync its slave")
            master = replication.master_address
            if master is None:
                _refuse("no nameserver knows a master of this broker")
            common_end, master_end = await self._common_end(master)
            local_end = replication.log.end
            begin = replication.log.begin
            is_reseed = common_end <= begin
            cut_from = begin if is_reseed else common_end
            cut_messages = await trio.to_thread.run_sync(
                count_records, self._store.core.log, cut_from, local_end
            )
            answer = HaResyncBody(
                common_end=common_end,
                local_end=local_end,
                master_end=master_end,
                master_address=master,
                cut_bytes=local_end - cut_from,
                cut_messages=cut_messages,
                is_reseed=is_reseed and local_end > begin,
                dry_run=dry_run,
            )
            if not dry_run and local_end > cut_from:
                reason = f"resync with the master at {master}"
                await self._request_reopen(None if is_reseed else common_end, reason)
            return answer

    async def _common_end(self, master: str) -> tuple[int, int]:
        """Return up to where the master's log and this one are the same, and where its ends.

        The first is where a message ends here.
        """

        async def ask(start: int, stop: int, step: int) -> HaDigestsBody:
            header = HaDigestsRequest(start=start, stop=stop, step=step)
            try:
                answer = await self._siblings.ask(
                    master, RequestCode.HA_DIGESTS, header, timeout_s=DIGESTS_S
                )
            except ResponseError as exc:
                if exc.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    _refuse(
                        f"the master at {master} is of another make and cannot be compared with:"
                        " stop this slave, empty its store and start it again"
                    )
                _refuse(str(exc))
            except ClientError as exc:
                _refuse(str(exc))
            return HaDigestsBody.decode(answer.body)

        log, core = self._replication.log, self._store.core
        same_until, master_end = await common_prefix(log, ask)
        boundary = await trio.to_thread.run_sync(core.record_boundary, same_until)
        # Coarser than a message: some of those that follow may be the same still.
        ends = await trio.to_thread.run_sync(
            record_ends, core.log, boundary, same_until + STEPS[-1]
        )
        return await common_records(log, ask, boundary, ends, master_end), master_end

    async def digests(self, start: int, stop: int, step: int) -> HaDigestsBody:
        """Return digests of the log, as far as it goes and as many as one answer has."""
        return await log_digests(self._replication.log, start, stop, step)

    def status(self) -> HaStatusBody:
        """Return how replication is going."""
        return replication_status(self._replication, self._live.current, self._store)


def _other_slave(member: Member) -> OtherSlave:
    status = member.status
    if status is None:
        return OtherSlave(member.address, None, None)
    heard = status.master
    return OtherSlave(
        member.address,
        status.epoch,
        status.end,
        is_in_sync=heard.in_sync if heard is not None and heard.native else None,
        hears_epochs=heard is not None and heard.native,
    )
