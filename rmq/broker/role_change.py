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
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, final

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
from rmq.broker.record_keeping import kept_records
from rmq.broker.replication_status import replication_status
from rmq.broker.siblings import ASK_S
from rmq.errors import (
    ClientError,
    RefusedError,
    RemoteProtocolError,
    ResponseError,
    RmqError,
    StorageError,
)
from rmq.ha.follower_status import FollowerState
from rmq.ha.identity import EPOCH_MAX
from rmq.ha.promotion import Candidate, Kept, OtherSlave, Verdict, decide
from rmq.model.in_sync_record import newest, read_record, store_of
from rmq.remoting.bodies import (
    HaDemoteBody,
    HaDigestsBody,
    HaPromoteBody,
    HaResyncBody,
    HaStatusBody,
    HaStepDownBody,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaDigestsRequest, HaFenceRequest, HaStepDownRequest
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.registration import Registration
    from rmq.broker.replication import Replication
    from rmq.broker.siblings import Member, Siblings
    from rmq.model.in_sync_record import InSyncRecord
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
        self._gave_up: tuple[int, int] | None = None
        """Of which epoch this broker was master, and where its log ended, when it gave that up."""

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
            if not replication.is_master:
                self._check_port(config)
            members = await self._siblings.members()
            self._check_no_other_master(members)
            knowledge = await self._ask_around(members)
            role = self._role_of(mode, knowledge)
            previous = replication.last_master_address or ""
            former = next((m for m in members if m.address == previous), None)
            stepped_down = None
            if former is None or former.status is None or former.status.role == "MASTER":
                is_silent = former is not None and former.status is None
                stepped_down = await self._take_over(
                    previous, accept_loss=accept_loss, is_silent=is_silent
                )
            missing, is_safe = 0, True
            reason = "everything that was answered SEND_OK is here"
            if stepped_down is None and not self._has_all_of(former):
                verdict = self._check_loss(knowledge, accept_loss=accept_loss)
                missing, is_safe = self._known_missing(members), verdict.is_safe
                reason = verdict.reason
            epoch = knowledge.latest_epoch + 1
            if epoch > EPOCH_MAX:
                _refuse(f"somebody knows of a master of epoch {knowledge.latest_epoch}, the last")
            cut_bytes = 0

            async def prepare() -> None:
                nonlocal cut_bytes
                # Until all is in place nobody may write, whatever the role says.
                self._store.core.set_refused(Refusal.HANDING_OVER, True)
                cut_bytes = await replication.begin_epoch(
                    epoch, role, knowledge.records, is_forced=not is_safe
                )
                # Whoever fences it from here on knows of an epoch that is later still.
                replication.set_fenced(None)
                await self._assume(role, 0)

            try:
                await replication.change_role(prepare)
            finally:
                self._store.core.set_refused(Refusal.HANDING_OVER, False)
            self._gave_up = None
            start = replication.log.end
            logger.warning(
                "this broker is master of %s now: epoch %d, from offset %d on, %s",
                config.broker_name,
                epoch,
                start,
                role.value,
            )
            if stepped_down is None and previous:
                await self._fence_former(previous, epoch)
            # One that was turned away has the same id as before.
            self._registration.register_again()
            await self._registration.wait_told()
            if replication.fenced is not None:
                _refuse(
                    f"it has begun epoch {epoch}, but is no master: {replication.fenced}; make it a"
                    " slave with `rmq ha demote`, or promote it again"
                )
            return HaPromoteBody(
                mode=role.value,
                epoch=epoch,
                start=start,
                previous_master=previous,
                previous_end=-1 if stepped_down is None else stepped_down.end,
                missing_bytes=missing,
                cut_bytes=cut_bytes,
                is_safe=is_safe,
                reason=reason,
                waits_for=self._not_ready(),
            )

    def _not_ready(self) -> str:
        """Return why a new master cannot be found, or answers no send with SEND_OK."""
        records = self._replication.records
        missing = "" if records is None else records.missing
        if not missing and self._live.current.namesrv_addrs and not self._registration.is_heard:
            return "no nameserver lists it yet"
        return missing

    async def _ask_around(self, members: list[Member]) -> _Knowledge:
        """Find out what is recorded of acknowledged messages, and which epochs are known."""
        replication, config = self._replication, self._live.current
        secret = config.ha_secret.encode()
        own = newest(*replication.identity.records)
        names = {*config.namesrv_addrs, *(() if own is None else own.nameservers)}
        kept = Kept(
            await kept_records(self._siblings, tuple(sorted(names)), config.broker_name, secret)
        )
        others = [_other_slave(member, config) for member in members]
        found = [*replication.identity.records, *kept.answers.values()]
        found += [other.record for other in others]
        records = {record.order: record for record in found if record is not None}
        epochs = [replication.identity.epoch, replication.known_epoch]
        epochs += [other.epoch for other in others if other.epoch is not None]
        epochs += [record.epoch for record in records.values()]
        return _Knowledge(kept, others, tuple(records[key] for key in sorted(records)), max(epochs))

    async def _fence_former(self, previous: str, epoch: int) -> None:
        """Tell the former master that it is none any longer, if it can be reached."""
        header = HaFenceRequest(address=self._live.current.address, epoch=epoch)
        try:
            await self._siblings.ask(previous, RequestCode.HA_FENCE, header)
        except RmqError as exc:
            logger.warning(
                "the former master at %s could not be told that it is none any longer: %s; if it"
                " still runs, it takes messages, which are lost, until it hears of epoch %d",
                previous,
                exc,
                epoch,
            )
        else:
            logger.warning("the former master at %s takes no more messages", previous)

    async def fence(self, address: str, epoch: int) -> None:
        """Stop writing if the broker at `address` is master of the same name by a later epoch."""
        config, replication = self._live.current, self._replication
        if not replication.is_master or epoch <= replication.identity.epoch:
            return
        if not await self._registration.ask_whether_deposed(address):
            _refuse(f"{address} does not say that it is master of {config.broker_name}")

    def _role_of(self, mode: str | None, knowledge: _Knowledge) -> BrokerRole:
        if mode is None:
            return self._last_role(knowledge)
        try:
            role = BrokerRole(mode)
        except ValueError:
            role = BrokerRole.SLAVE
        if role is BrokerRole.SLAVE:
            _refuse(f"mode is {mode}, not ASYNC_MASTER or SYNC_MASTER")
        return role

    def _last_role(self, knowledge: _Knowledge) -> BrokerRole:
        """Return the mode that the name last had, as far as anybody knows."""
        replication = self._replication
        if replication.is_master:
            return self._live.current.role
        is_sync: bool | None = None
        follower = replication.follower
        view = None if follower is None else follower.status.master
        if knowledge.records:
            is_sync = knowledge.records[-1].is_sync
        elif view is not None and view.is_native and view.needed:
            is_sync = view.is_sync
        if is_sync is None:
            _refuse(
                "nobody knows whether its master was sync or async: say which it is to be"
                " (--mode sync or --mode async)"
            )
        return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER

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

    async def _take_over(
        self, master: str, *, accept_loss: bool, is_silent: bool
    ) -> HaStepDownBody | None:
        """Have the master step down; None if it does not answer."""
        if not master:
            return None
        header = HaStepDownRequest(epoch=self._replication.identity.epoch)
        # One that did not say how it is hangs, or is gone: it is not waited for that long again.
        timeout_s = ASK_S if is_silent else HAND_OVER_S + ASK_S
        try:
            answer = await self._siblings.ask(
                master, RequestCode.HA_STEP_DOWN, header, timeout_s=timeout_s
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
            await self._replication.metadata.sync_last()
        return stepped_down

    def _has_all_of(self, former: Member | None) -> bool:
        """Tell whether the last master is a slave by now that has no more than this broker."""
        if former is None or former.status is None or former.status.role == "MASTER":
            return False
        replication, status = self._replication, former.status
        return status.epoch == replication.identity.epoch and status.end <= replication.log.end

    def _check_loss(self, knowledge: _Knowledge, *, accept_loss: bool) -> Verdict:
        """Raise if messages that were acknowledged may be missing here, and nobody accepts that."""
        replication = self._replication
        end = replication.log.end
        was_last = replication.is_master or self._gave_up == (
            replication.identity.epoch,
            end,
        )
        if was_last and self._is_certainly_last(knowledge):
            return Verdict(True, "everything that was answered SEND_OK is here: it was master last")
        follower = replication.follower
        view = None if follower is None else follower.status.master
        others = [
            other for other in knowledge.others if other.address != replication.master_address
        ]
        if replication.known_epoch > replication.identity.epoch:
            others.append(OtherSlave("the nameserver's last master", replication.known_epoch, None))
        candidate = Candidate(
            member=replication.identity.member,
            epoch=replication.identity.epoch,
            end=end,
            record=newest(*replication.identity.records),
            follows_stock=view is not None and not view.is_native and view.end > 0,
        )
        verdict = decide(candidate, knowledge.kept, others)
        if not verdict.is_safe:
            if not accept_loss:
                _refuse(f"messages that were acknowledged may be lost: {verdict.reason}")
            logger.warning("promoted although messages may be lost: %s", verdict.reason)
        return verdict

    def _is_certainly_last(self, knowledge: _Knowledge) -> bool:
        """Tell whether no other broker can have been master since this one was."""
        identity = self._replication.identity
        if knowledge.latest_epoch > identity.epoch:
            return False
        own = newest(*identity.records)
        if own is None:
            return True
        if own.nameservers:
            # The first record of a later epoch would be with most of them.
            return knowledge.kept.knowing(own.nameservers, own.order) > len(own.nameservers) // 2
        seen = {store_of(other.member) for other in knowledge.others if other.epoch is not None}
        return all(store_of(member) in seen for member in own.native_members)

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

    async def demote(self, ha_master_address: str | None, force: bool) -> HaDemoteBody:
        """Make this master a slave."""
        with self._alone("a demotion"):
            if not self._replication.is_master:
                _refuse(f"{self._live.current.address} is a slave already")
            if not force and not await self._has_another_master():
                _refuse(
                    f"no other master of {self._live.current.broker_name} is known, and nobody"
                    " would take messages: promote a slave instead, which makes this broker one"
                    " (rmq ha promote)"
                )
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

    async def _has_another_master(self) -> bool:
        """Tell whether somebody else is master of this name, or was the last one to be."""
        own = self._replication.identity.epoch
        if self._replication.fenced is not None:
            return True
        return any(
            member.status is not None
            and member.status.role == "MASTER"
            and member.status.epoch >= own
            for member in await self._siblings.members()
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
        self._gave_up = (replication.identity.epoch, end)
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
            if self._is_outrun():
                # Its master has nothing of what it holds, or cannot be compared with.
                common_end, master_end = -1, replication.master_end
            else:
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

    def _is_outrun(self) -> bool:
        follower = self._replication.follower
        return follower is not None and follower.status.state is FollowerState.OUTRUN

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


class _Knowledge(NamedTuple):
    """What others know when a slave is to become master."""

    kept: Kept
    others: list[OtherSlave]
    records: tuple[InSyncRecord, ...]
    """All in-sync records that anybody has, the latest last."""
    latest_epoch: int


def _other_slave(member: Member, config: BrokerConfig) -> OtherSlave:
    status = member.status
    if status is None:
        return OtherSlave(member.address, None, None)
    heard = status.master
    return OtherSlave(
        member.address,
        status.epoch,
        status.end,
        member=status.member,
        record=_record_of(status, config),
        hears_epochs=heard is not None and heard.native,
    )


def _record_of(status: HaStatusBody, config: BrokerConfig) -> InSyncRecord | None:
    try:
        record = read_record(status.record) if status.record else None
    except RemoteProtocolError as exc:
        logger.warning("%s has an in-sync record that is none: %s", status.address, exc)
        return None
    if record is None or not record.is_genuine(config.ha_secret.encode(), config.broker_name):
        return None
    return record
