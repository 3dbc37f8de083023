"""Role changes ordered by operators (promote, demote, step down), and resync of a slave.

Promotion, in order: the old master, if it answers, stops writing and waits until this slave has
everything. Else this slave stops following, the other slaves renounce
(`rmq.ha.protocol.promotion` explains why), and it is decided whether acknowledged messages may be
missing here; if so, only `accept_loss` continues. The log is dispatched completely, the new epoch
is saved, its first record is stored on the nameservers, and only then does the broker register as
master and take messages. If that record finds that the old master has gone on meanwhile, the
promotion is withdrawn and nothing has changed. The epoch in its registration makes nameservers
refuse the old master, should it come back.

One change runs at a time; a second one is refused.
"""

from __future__ import annotations

import logging
import socket
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, final

import msgspec
import trio

from rmq.broker.config import BrokerRole
from rmq.broker.replication.log_comparison import (
    STEPS,
    common_prefix,
    common_records,
    count_records,
    record_ends,
)
from rmq.broker.replication.log_digests import log_digests
from rmq.broker.replication.peers import ASK_S, free_id
from rmq.broker.replication.record_keeping import kept_records
from rmq.broker.replication.status import replication_status
from rmq.errors import (
    ClientError,
    RefusedError,
    RemoteProtocolError,
    ResponseError,
    RmqError,
    StorageError,
)
from rmq.ha.identity import EPOCH_MAX
from rmq.ha.protocol.log_view import TAIL_BYTES, tail_start
from rmq.ha.protocol.promotion import Candidate, HandOver, KeptRecords, OtherSlave, decide
from rmq.ha.slave_status import SlaveState
from rmq.model.in_sync_record import newest, read_record
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import (
    HaDemoteBody,
    HaDigestsBody,
    HaPromoteBody,
    HaResyncBody,
    HaStatusBody,
    HaStepDownBody,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    HaDigestsRequest,
    HaFenceRequest,
    HaRenounceRequest,
    HaStepDownRequest,
)
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.registration.registration import Registration
    from rmq.broker.replication.peers import Member, Peers
    from rmq.broker.replication.role import Replication
    from rmq.ha.protocol.promotion import PromotionVerdict
    from rmq.model.in_sync_record import InSyncRecord
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

PROMOTION: Final = "a promotion"
HAND_OVER_S: Final = 10.0
"""How long slaves may take to receive the rest of the log of a master that steps down."""
SILENT_S: Final = 0.5
"""How long a master that did not answer a status request may take to step down. Nothing is lost if
it takes longer: then the in-sync record decides. When it resumes, it asks whether it still has to
step down.
"""
JOIN_S: Final = 3.0
"""How long a slave that is to be promoted may take to connect to the present master."""
DIGESTS_S: Final = 60.0
"""How long a master may take to read what is compared."""


def _refuse(remark: str) -> NoReturn:
    raise RefusedError(ResponseCode.NO_PERMISSION, remark)


@final
class RoleChange:
    """Runs the role changes that operators order."""

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
        self._peers = peers
        self._request_reopen = request_reopen
        self._now_ms = now_ms
        self._under_way: str | None = None
        self._gave_up: tuple[int, int] | None = None
        """Epoch and end of the log when this broker last stepped down as master."""

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
        with self._alone(PROMOTION):
            replication, config = self._replication, self._live.current
            if replication.is_pending:
                _refuse(
                    f"{config.address} is being made master already: {self._not_ready()}; give that"
                    " up with `rmq ha demote`"
                )
            if replication.is_master and replication.fenced is None:
                _refuse(f"{config.address} is master already")
            if not replication.is_master:
                self._check_port(config)
            members = await self._members_with_own_master(accept_loss=accept_loss)
            previous = replication.last_master_address or ""
            former = next((m for m in members if m.address == previous), None)
            stepped_down = None
            if former is None or former.status is None or former.status.role == "MASTER":
                await self._check_epochs(members, accept_loss=accept_loss)
                is_silent = former is not None and former.status is None
                stepped_down = await self._take_over(
                    previous, accept_loss=accept_loss, is_silent=is_silent
                )
            async with self._suspended():
                return await self._begin(
                    members, previous, stepped_down, accept_loss=accept_loss, mode=mode
                )

    async def _begin(
        self,
        members: list[Member],
        previous: str,
        stepped_down: HaStepDownBody | None,
        *,
        accept_loss: bool,
        mode: str | None,
    ) -> HaPromoteBody:
        """Decide whether this broker has everything, and begin an epoch, while it is suspended."""
        replication, config = self._replication, self._live.current
        hand_over = None
        if stepped_down is not None:
            hand_over = HandOver(stepped_down.epoch, PhysicalOffset(stepped_down.end))
            # The old master knows the mode that was ordered last, recorded or not.
            mode = mode or stepped_down.mode or None
        if not self._candidate(hand_over).is_handed_over:
            # The old master may be promoted again by now, and this slave have followed it.
            stepped_down = None
            members = await self._have_renounce(members)
        knowledge = await self._ask_around(members)
        is_safe, reason = self._check_loss(knowledge, hand_over, accept_loss=accept_loss)
        missing = 0 if is_safe else self._known_missing(members, hand_over)
        role = self._role_of(mode, knowledge)
        _check_last_epoch(knowledge)
        epoch = knowledge.latest_epoch + 1
        cut_bytes = 0

        async def prepare() -> None:
            nonlocal cut_bytes
            # The store refuses messages until everything is in place, whatever the role is.
            self._store.set_refused(Refusal.HANDING_OVER, True)
            cut_bytes = await replication.begin_epoch(
                epoch, role, knowledge.records, is_forced=not is_safe
            )
            # From here on only an even later epoch fences this broker.
            replication.set_fenced(None)
            await replication.assume(role, 0)

        try:
            await replication.change_role(prepare)
        except StorageError as exc:
            if stepped_down is None:
                raise
            _refuse(
                f"the master at {previous} has stepped down, and this slave cannot take its place:"
                f" {exc}; no broker takes messages now: promote the broker at {previous}, or this"
                " one when that is repaired"
            )
        finally:
            self._store.set_refused(Refusal.HANDING_OVER, False)
        if replication.overtaken:
            with trio.move_on_after(HAND_OVER_S):
                while replication.is_master:  # noqa: ASYNC110 - rare, and short
                    await trio.sleep(0.01)
            _refuse(f"nothing was changed: {replication.overtaken}")
        self._gave_up = None
        start = replication.log.end
        logger.warning(
            "this broker is %s of %s now: epoch %d, from offset %d on, %s",
            "to be master" if replication.is_pending else "master",
            config.broker_name,
            epoch,
            start,
            role.value,
        )
        if replication.is_pending:
            is_safe = False
            reason = "until most nameservers keep its first record, the former master may go on"
        elif stepped_down is None and previous:
            await self._fence_former(previous, epoch)
        # A master that was refused before has the same id still.
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

    @asynccontextmanager
    async def _suspended(self) -> AsyncIterator[None]:
        """Receive nothing from a master inside this context, while a decision rests on the log."""
        slave = self._replication.slave
        if slave is None:
            yield
            return
        async with AsyncExitStack() as stack:
            with trio.move_on_after(ASK_S) as scope:
                await stack.enter_async_context(slave.suspended())
            if scope.cancelled_caught:
                _refuse(f"this slave did not stop following its master within {ASK_S:g} s")
            yield

    async def _check_epochs(self, members: list[Member], *, accept_loss: bool) -> None:
        """Make the checks before the master steps down that would refuse the promotion after it."""
        knowledge, own = await self._ask_around(members), self._replication.identity.epoch
        _check_last_epoch(knowledge)
        if knowledge.latest_epoch > own and not accept_loss:
            _refuse(
                f"messages that were acknowledged may be lost: there was a master of epoch"
                f" {knowledge.latest_epoch}, this slave has followed only one of {own}"
            )

    async def _have_renounce(self, members: list[Member]) -> list[Member]:
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

    async def renounce(self, address: str) -> HaStatusBody:
        """Take a new incarnation, because the slave at `address` is being promoted."""
        with self._alone(f"the promotion of {address}"):
            if self._replication.is_master or self._replication.slave is None:
                _refuse(f"{self._live.current.address} is no slave")
            with trio.move_on_after(ASK_S) as scope:
                await self._replication.renounce()
            if scope.cancelled_caught:
                _refuse(f"this slave did not stop following its master within {ASK_S:g} s")
            return self.status()

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

    def _not_ready(self) -> str:
        """Return why a new master is not listed, or answers no send with SEND_OK."""
        records = self._replication.records
        missing = "" if records is None else records.missing
        if not missing and self._live.current.namesrv_addrs and not self._registration.is_heard:
            return "no nameserver lists it yet"
        return missing

    async def _ask_around(self, members: list[Member]) -> _Knowledge:
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
        records = {record.order: record for record in found if record is not None}
        epochs = [replication.identity.epoch, replication.known_epoch]
        epochs += [other.epoch for other in others if other.epoch is not None]
        epochs += [record.epoch for record in records.values()]
        return _Knowledge(kept, others, tuple(records[key] for key in sorted(records)), max(epochs))

    async def _fence_former(self, previous: str, epoch: int) -> None:
        """Fence the former master, if it can be reached."""
        header = HaFenceRequest(address=self._live.current.address, epoch=epoch)
        try:
            await self._peers.ask(previous, RequestCode.HA_FENCE, header)
        except RmqError as exc:
            logger.warning(
                "cannot fence the former master at %s: %s; if it still runs, it takes messages,"
                " which are lost, until it learns of epoch %d",
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
        """Return the last known mode of this broker name."""
        replication = self._replication
        if replication.is_master:
            return self._live.current.role
        is_sync: bool | None = None
        slave = replication.slave
        view = None if slave is None else slave.status.master
        if knowledge.records:
            is_sync = knowledge.records[-1].is_sync
        elif view is not None and view.is_native and view.needed:
            is_sync = view.is_sync
        if is_sync is None:
            _refuse(
                "it is not known whether its master was sync or async: say which it is to be"
                " (--mode sync or --mode async)"
            )
        return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER

    def _check_port(self, config: BrokerConfig) -> None:
        """Check that the port for slaves is free, before anything is changed."""
        try:
            with socket.create_server((config.bind_address, config.ha_port)):
                pass
        except OSError as exc:
            _refuse(
                f"port {config.ha_port}, to which slaves would connect, cannot be opened:"
                f" {exc.strerror}"
            )

    async def _members_with_own_master(self, *, accept_loss: bool) -> list[Member]:
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

        members = await self._peers.members()
        if other_master() is not None and not replication.is_master:
            self._registration.register_again()
            with trio.move_on_after(JOIN_S):
                while other_master() is not None:  # noqa: ASYNC110 - rare, and short
                    await trio.sleep(0.02)
            members = await self._peers.members()
        other = other_master()
        if other is not None:
            assert other.status is not None, "only who answers says that it is master"
            _refuse(
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

    async def _take_over(
        self, master: str, *, accept_loss: bool, is_silent: bool
    ) -> HaStepDownBody | None:
        """Have the master step down; None if it does not answer."""
        if not master:
            return None
        header = HaStepDownRequest(
            epoch=self._replication.identity.epoch, address=self._live.current.address
        )
        # A master without status hangs or is gone: this request waits less.
        timeout_s = SILENT_S if is_silent else HAND_OVER_S + ASK_S
        try:
            answer = await self._peers.ask(
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
        slave = self._replication.slave
        if slave is not None:
            with trio.move_on_after(HAND_OVER_S):
                await slave.wait_caught_up(PhysicalOffset(stepped_down.end))
        end = self._replication.log.end
        if end < stepped_down.end and not accept_loss:
            _refuse(
                f"the master at {master} stepped down at {stepped_down.end}, but this slave ends at"
                f" {end}; promote the broker at {master} again"
            )
        # Copy what it delivered and checked until then, so that it is not done again.
        self._replication.metadata.point_to(master)
        with trio.move_on_after(ASK_S):
            await self._replication.metadata.sync_last()
        return stepped_down

    def _candidate(self, hand_over: HandOver | None) -> Candidate:
        """Return what the decision about a promotion has to know of this broker."""
        replication = self._replication
        slave = replication.slave
        view = None if slave is None else slave.status.master
        return Candidate(
            members=replication.identity.members,
            epoch=replication.identity.epoch,
            end=replication.log.end,
            record=newest(*replication.identity.records),
            follows_stock=view is not None and not view.is_native and view.end > 0,
            was_last=replication.is_master or self._was_last,
            hand_over=hand_over,
        )

    def _check_loss(
        self, knowledge: _Knowledge, hand_over: HandOver | None, *, accept_loss: bool
    ) -> PromotionVerdict:
        """Raise if acknowledged messages may be missing here and loss is not accepted."""
        replication = self._replication
        others = list(knowledge.others)
        if replication.known_epoch > replication.identity.epoch:
            others.append(OtherSlave("the nameserver's last master", replication.known_epoch, None))
        verdict = decide(self._candidate(hand_over), knowledge.kept, others)
        if not verdict.is_safe:
            if not accept_loss:
                _refuse(f"messages that were acknowledged may be lost: {verdict.reason}")
            logger.warning("promoted although messages may be lost: %s", verdict.reason)
        return verdict

    @property
    def _was_last(self) -> bool:
        """Whether this slave was the last master of the name, as far as it knows."""
        replication = self._replication
        return (
            not replication.is_master
            and replication.master_address is None
            and self._gave_up == (replication.identity.epoch, replication.log.end)
        )

    def _known_missing(self, members: list[Member], hand_over: HandOver | None) -> int:
        """Return how many bytes other brokers are known to have beyond this log."""
        slave = self._replication.slave
        ends = [member.status.end for member in members if member.status is not None]
        if hand_over is not None:
            ends.append(hand_over.end)
        if slave is not None:
            ends.append(slave.status.master.end)
        return max(0, max(ends, default=0) - self._replication.log.end)

    # --- demotion ----------------------------------------------------------------------------

    async def demote(self, ha_master_address: str | None, force: bool) -> HaDemoteBody:
        """Make this master a slave."""
        with self._alone("a demotion"):
            if not self._replication.is_master:
                _refuse(f"{self._live.current.address} is a slave already")
            if self._replication.is_pending:
                return await self._give_up_pending()
            if not force and not await self._has_another_master():
                _refuse(
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

    async def _give_up_pending(self) -> HaDemoteBody:
        """Withdraw a promotion whose epoch has not begun."""
        replication = self._replication
        await replication.give_up_pending()
        if replication.is_master:
            _refuse("this broker could not go back to what it was; its log says why")
        return HaDemoteBody(
            epoch=replication.identity.epoch,
            end=replication.log.end,
            ha_master_address=replication.ha_address or "",
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

    async def step_down(self, epoch: int, address: str | None) -> HaStepDownBody:
        """Hand over to the slave at `address`: stop writing, wait for slaves, become a slave.

        If this broker hung when the slave asked, the promotion may have been refused by now.
        """
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
            if address is not None:
                await self._check_wanted(address)
            await self._wait_for_slave()
            mode = self._live.current.role.value
            end = await self._give_up(must_be_held=True)
            return HaStepDownBody(epoch=own_epoch, end=end, mode=mode)

    async def _check_wanted(self, address: str) -> None:
        """Refuse unless the slave at `address` says that it is being promoted."""
        try:
            answer = await self._peers.ask(address, RequestCode.HA_STATUS)
            is_promoting = HaStatusBody.decode(answer.body).promoting
        except RmqError as exc:
            _refuse(f"whether {address} still wants that is not known: {exc}")
        if not is_promoting:
            _refuse(f"{address} does not want that any longer")

    async def _wait_for_slave(self) -> None:
        """Wait until a slave that has just connected is in sync, while messages are still taken."""
        master = self._replication.master
        with trio.move_on_after(JOIN_S):
            while (  # noqa: ASYNC110 - rare, and short
                master is not None and len(master.slaves) and not master.slaves.in_sync_count
            ):
                await trio.sleep(0.01)

    async def _give_up(self, *, must_be_held: bool) -> int:
        """Stop writing, wait for slaves in sync, become a slave; return where the log ends."""
        replication, store = self._replication, self._store
        master = replication.master
        if store.config.transient_pool_enabled:
            _refuse(
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
                    _refuse("no slave in sync has all messages")
            broker_id = free_id(await self._peers.members())

            async def prepare() -> None:
                await replication.lay_down()
                # Forget the master before this one: nameservers list the new one.
                replication.forget_master()
                await replication.assume(BrokerRole.SLAVE, broker_id)

            await replication.change_role(prepare)
        finally:
            store.set_refused(Refusal.HANDING_OVER, False)
        replication.set_fenced(None)
        self._gave_up = (replication.identity.epoch, end)
        logger.warning(
            "this broker is a slave of %s now, with brokerId %d; its log ends at %d",
            self._live.current.broker_name,
            broker_id,
            end,
        )
        return end

    # --- repair ------------------------------------------------------------------------------

    async def resync(self, dry_run: bool) -> HaResyncBody:
        """Cut what differs from the master's log, and follow it again."""
        with self._alone("a resync"):
            replication = self._replication
            if replication.is_master:
                _refuse("a master is never cut; resync its slave")
            master = replication.master_address
            if master is None:
                _refuse("no nameserver knows a master of this broker")
            if self._is_outrun():
                # The two logs overlap nowhere, or cannot be compared.
                common_end, master_end = -1, replication.master_end
            else:
                common_end, master_end = await self._common_end(master)
            local_end = replication.log.end
            begin = replication.log.begin
            is_reseed = common_end <= begin
            cut_from = begin if is_reseed else PhysicalOffset(common_end)
            cut_messages = await trio.to_thread.run_sync(
                count_records, self._store.log, cut_from, local_end
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
        slave = self._replication.slave
        return slave is not None and slave.status.state is SlaveState.OUTRUN

    async def _common_end(self, master: str) -> tuple[int, int]:
        """Return the end of the common prefix of both logs, and the end of the master's.

        The first is the end of a message here.
        """

        async def ask(start: int, stop: int, step: int) -> HaDigestsBody:
            header = HaDigestsRequest(start=start, stop=stop, step=step)
            try:
                answer = await self._peers.ask(
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

        log, store = self._replication.log, self._store
        same_until, master_end = await common_prefix(log, ask)
        boundary = await trio.to_thread.run_sync(store.record_boundary, same_until)
        # The ranges are coarser than messages: some of the next messages may be equal still.
        ends = await trio.to_thread.run_sync(
            record_ends, store.log, boundary, same_until + STEPS[-1]
        )
        return await common_records(log, ask, boundary, ends, master_end), master_end

    async def digests(self, start: int, stop: int, step: int) -> HaDigestsBody:
        """Return digests of the log, as many as one response may have."""
        return await log_digests(self._replication.log, start, stop, step)

    def status(self) -> HaStatusBody:
        """Return the status of replication."""
        return replication_status(
            self._replication,
            self._live.current,
            self._store,
            gave_up=self._was_last,
            is_promoting=self._under_way == PROMOTION,
        )


def _check_last_epoch(knowledge: _Knowledge) -> None:
    if knowledge.latest_epoch >= EPOCH_MAX:
        _refuse(f"there was a master of epoch {knowledge.latest_epoch}, the last one possible")


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


class _Knowledge(NamedTuple):
    """What nameservers and other brokers know when a slave is promoted."""

    kept: KeptRecords
    others: list[OtherSlave]
    records: tuple[InSyncRecord, ...]
    """All in-sync records found, the latest last."""
    latest_epoch: int


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
