"""Writes the in-sync records of a master to its disk and to the nameservers.

`rmq.ha.protocol.record_keeper` decides what is recorded and which record counts. This module runs
it whenever a slave connects, disconnects or falls behind, writes records to disk, and stores them
in the KV config of nameservers (`rmq.model.in_sync_record`). Slaves get them over the link. A
nameserver that is unreachable gets them later; one that has lost data gets them again as soon as
registration suspects that (`doubt`).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import ClientError, RemoteProtocolError, ResponseError, RmqError, StorageError
from rmq.ha.protocol.lease import Lease
from rmq.model.in_sync_record import NAMESPACE, number_of, read_record
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    GetKvConfigResponse,
    PutKvConfigRequest,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.broker.config import LiveConfig
    from rmq.broker.replication.peers import Peers
    from rmq.ha.protocol.master import Master
    from rmq.ha.server import ReplicationWait
    from rmq.model.in_sync_record import InSyncRecord

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""How often the record is checked if no event triggers that earlier."""
RETRY_S: Final = 1.0
"""Pause after a nameserver did not take a record."""
CHECK_S: Final = 30.0
"""How often a nameserver is asked whether it still has the record."""


async def kept_record(
    peers: Peers, nameserver: str, broker_name: str, secret: bytes
) -> InSyncRecord | None:
    """Ask a nameserver for the record of a broker name; None if it has none that is genuine.

    Raise `ClientError` or `ResponseError` if there is no answer.
    """
    header = GetKvConfigRequest(namespace=NAMESPACE, key=broker_name)
    try:
        answer = await peers.ask(nameserver, RequestCode.GET_KV_CONFIG, header)
    except ResponseError as exc:
        if exc.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    value = answer.header(GetKvConfigResponse).value
    if value is None:
        return None
    try:
        record = read_record(value)
    except RemoteProtocolError as exc:
        logger.warning("nameserver %s has an unreadable in-sync record: %s", nameserver, exc)
        return None
    if not record.is_genuine(secret, broker_name):
        logger.warning(
            "nameserver %s has an in-sync record of %s that was not made with haSecret; it is"
            " ignored",
            nameserver,
            broker_name,
        )
        return None
    return record


async def kept_records(
    peers: Peers, nameservers: tuple[str, ...], broker_name: str, secret: bytes
) -> dict[str, InSyncRecord | None]:
    """Ask all nameservers at once; the result lacks those that do not answer."""
    answers: dict[str, InSyncRecord | None] = {}

    async def ask(nameserver: str) -> None:
        try:
            answers[nameserver] = await kept_record(peers, nameserver, broker_name, secret)
        except RmqError as exc:
            logger.info("cannot get the in-sync record from nameserver %s: %s", nameserver, exc)

    async with trio.open_nursery() as nursery:
        for nameserver in nameservers:
            nursery.start_soon(ask, nameserver)
    return answers


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordListener:
    """Whom the keeping of records tells what they led to."""

    changed: Callable[[], None]
    """Another record counts."""
    brought: Callable[[str], None]
    """Gets a nameserver that has taken a new record."""
    overtaken: Callable[[], None]
    """This master has to withdraw its epoch."""
    taken: Callable[[str], None]
    """Gets the reason when this master was forced into an epoch that another one has begun."""


@final
class RecordKeeping:
    """Keeps the in-sync records of one master while `run` runs."""

    def __init__(
        self,
        master: Master[ReplicationWait],
        live: LiveConfig,
        peers: Peers,
        *,
        save: Callable[[tuple[InSyncRecord, ...]], Awaitable[None]],
        listener: RecordListener,
    ) -> None:
        """`save` writes records to disk."""
        self._master = master
        self._keeper = master.keeper
        self._live = live
        self._peers = peers
        self._save = save
        self._listener = listener
        self._woken = trio.Event()
        self._changed = trio.Event()
        self._told: dict[str, tuple[tuple[int, int], float]] = {}
        """The record last sent to each nameserver, and when."""
        self._busy: set[str] = set()
        """Nameservers with a request in flight."""
        self._doubtful: set[str] = set()
        """Nameservers that may have lost the record."""
        self._lease = Lease(trio.current_time())
        self._saved_chain = self._keeper.chain
        self._problem: str | None = None

    # --- notices -----------------------------------------------------------------------------

    def check_again(self) -> None:
        """Check the record now: a slave connected or disconnected, or a setting changed."""
        self._woken.set()

    def told(self) -> None:
        """Note that a slave has a record on its disk."""
        if self._keeper.chain != self._saved_chain:
            self._apply()
        self._woken.set()

    def doubt(self, nameserver: str) -> None:
        """Ask a nameserver soon, because it may have lost the record."""
        self._doubtful.add(nameserver)
        self._woken.set()

    async def wait_confirmed(self, timeout_s: float) -> bool:
        """Wait until the wanted record counts or cannot count without slaves; return if it does."""
        with trio.move_on_after(timeout_s):
            while not (
                self._keeper.is_confirmed
                or self._keeper.is_renewing
                or self._keeper.overtaken_by is not None
                or self._keeper.is_fenced
            ):
                await self._changed.wait()
        return self._keeper.is_confirmed

    @property
    def missing(self) -> str:
        """What the wanted record waits for; empty if it counts."""
        keeper = self._keeper
        is_in_force = self._master.pending_acks.mode is self._master.mode
        if keeper.is_confirmed and is_in_force:
            return ""
        if keeper.is_fenced:
            return "this broker is fenced: another one has this epoch or a later one"
        if not keeper.is_known:
            return "the nameservers do not say what was recorded before"
        if keeper.overtaken_by is not None:
            return self.overtaken
        if keeper.is_renewing:
            return (
                "this master was stopped without saving its log, and too few slaves have compared"
                " theirs with it since"
            )
        if keeper.is_confirmed:
            return self._problem or "the new replication mode has not been recorded yet"
        return self._problem or "neither the slaves concerned nor enough nameservers have noted it"

    @property
    def overtaken(self) -> str:
        """Why this master has to withdraw its epoch; empty if it need not."""
        record = self._keeper.overtaken_by
        if record is None:
            return ""
        return (
            "another master went on, or came back, while this broker was being promoted: record"
            f" {number_of(record)} says {_text(record)}"
        )

    @property
    def has_lease(self) -> bool:
        """Whether the lease has not expired (`haMasterLease`)."""
        return trio.current_time() < self._held_until()

    def _held_until(self) -> float:
        config = self._live.current
        if not config.ha_master_lease_ms:
            return math.inf
        allows = self._keeper.allows
        return self._lease.held_until(
            config.namesrv_addrs,
            (
                slave.heard_at
                for slave in self._master.slaves
                if slave.in_sync and slave.is_native and allows(slave.member)
            ),
            config.ha_master_lease_ms / 1000,
        )

    # --- the task ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep records until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._woken = trio.Event()
                await self._go_on(nursery)
                with trio.move_on_after(self._pause_s()):
                    await self._woken.wait()
                self._listener.changed()

    def _pause_s(self) -> float:
        """Return how long to sleep unless an event wakes the task."""
        lease_s = self._live.current.ha_master_lease_ms / 1000
        if not lease_s:
            return LOOK_S
        left_s = self._held_until() - trio.current_time()
        # Just behind the end of the lease, and often enough before to keep it.
        return max(0.01, min(LOOK_S, lease_s / 4, left_s if left_s > 0 else LOOK_S))

    async def _go_on(self, nursery: trio.Nursery) -> None:
        """Save what is to be saved, and start a task per nameserver that lacks the record."""
        keeper, nameservers = self._keeper, self._live.current.namesrv_addrs
        if keeper.is_fenced:
            return
        if not keeper.is_known:
            await self._learn(nameservers)
        self._master.want_record(nameservers, trio.current_time())
        while (record := keeper.to_save) is not None:
            try:
                await self._save((*keeper.chain, record))
            except StorageError as exc:
                self._note(f"the in-sync record cannot be saved: {exc}")
                return
            keeper.saved(record)
            logger.info("in-sync record %s: %s", number_of(record), _text(record))
            self._apply()
            self._master.want_record(nameservers, trio.current_time())
        now = trio.current_time()
        newest = keeper.newest
        for nameserver in nameservers if newest is not None else ():
            assert newest is not None
            is_in_doubt = nameserver in self._doubtful or nameserver in self._lacking()
            pause_s = min(RETRY_S, self._check_s()) if is_in_doubt else self._check_s()
            order, told_at = self._told.get(nameserver, ((0, 0), -CHECK_S))
            is_due = newest.order != order or now >= told_at + pause_s
            if nameserver not in self._busy and is_due:
                self._told[nameserver] = (newest.order, now)
                self._busy.add(nameserver)
                self._doubtful.discard(nameserver)
                nursery.start_soon(self._bring, nameserver, newest)
        if keeper.chain != self._saved_chain:
            try:
                await self._save(keeper.chain)
            except StorageError as exc:
                # The file has more records than needed, which does no harm.
                logger.info("in-sync records were not saved again: %s", exc)
            self._saved_chain = keeper.chain

    def _check_s(self) -> float:
        """Return how often a nameserver is asked that has the record."""
        lease_s = self._live.current.ha_master_lease_ms / 1000
        return min(CHECK_S, lease_s / 3) if lease_s else CHECK_S

    def _lacking(self) -> list[str]:
        return self._keeper.places_without(self._live.current.namesrv_addrs)

    async def _learn(self, nameservers: tuple[str, ...]) -> None:
        """Get the earlier records from a majority of nameservers."""
        config = self._live.current
        answers = await kept_records(
            self._peers, nameservers, config.broker_name, config.ha_secret.encode()
        )
        if len(answers) <= len(nameservers) // 2:
            self._note(f"only {len(answers)} of {len(nameservers)} nameservers answer")
            return
        self._keeper.learned(record for record in answers.values() if record is not None)
        self._apply()

    async def _bring(self, nameserver: str, record: InSyncRecord) -> None:
        """Store a record on a nameserver, if it has no later one."""
        config, keeper = self._live.current, self._keeper
        secret = config.ha_secret.encode()
        had_it = True
        try:
            there = await kept_record(self._peers, nameserver, config.broker_name, secret)
            self._lease.heard(nameserver, trio.current_time())
            was_fenced = keeper.is_fenced
            if not keeper.met(there):
                if keeper.is_fenced and not was_fenced:
                    self._listener.taken(f"nameserver {nameserver}: {self._why_not_instead(there)}")
                    self._apply()
                raise ClientError(nameserver, self._why_not_instead(there))
            if keeper.is_fenced:
                raise ClientError(nameserver, "this master was fenced meanwhile")
            if there is None or there.order < record.order:
                if there is None and secret:
                    # What is kept there, if anything, is not genuine, and may claim to be later.
                    gone = DeleteKvConfigRequest(namespace=NAMESPACE, key=config.broker_name)
                    await self._peers.ask(nameserver, RequestCode.DELETE_KV_CONFIG, gone)
                value = record.encode(secret, config.broker_name).decode()
                header = PutKvConfigRequest(
                    namespace=NAMESPACE,
                    key=config.broker_name,
                    value=value,
                    instead_of=number_of(there),
                )
                await self._peers.ask(nameserver, RequestCode.PUT_KV_CONFIG, header)
                had_it = False
            elif there.order > record.order or not there.says_same(record):
                raise ClientError(
                    nameserver,
                    f"it has another record, {number_of(there)} of {there.master}: {_text(there)}",
                )
        except RmqError as exc:
            keeper.forgot(nameserver)
            self._note(f"nameserver {nameserver} did not take the in-sync record: {exc}")
            if keeper.overtaken_by is not None:
                self._apply()
                self._listener.overtaken()
            elif keeper.asked(nameserver):
                self._apply()
            return
        finally:
            self._busy.discard(nameserver)
        if keeper.asked(nameserver):
            self._apply()
        if keeper.stored(nameserver, record.order):
            self._apply()
        if not self._lacking():
            self._problem = None
        if not had_it:
            self._listener.brought(nameserver)
        self._woken.set()

    def _why_not_instead(self, there: InSyncRecord | None) -> str:
        if self._keeper.overtaken_by is not None:
            return self.overtaken
        kept = f"it keeps record {number_of(there)}"
        if there is not None and there.epoch == self._keeper.epoch:
            return (
                f"{kept} of {there.master}: two brokers must not be master of a name in one epoch;"
                " promote the one that is to stay again"
            )
        return (
            f"{kept}, which is earlier than what this promotion was decided by: it was emptied"
            " meanwhile, and may have known more"
        )

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            logger.warning("%s; trying again", problem)

    def _apply(self) -> None:
        """Apply the record that counts now."""
        self._master.apply_record()
        self._listener.changed()
        self._changed.set()
        self._changed = trio.Event()


def _text(record: InSyncRecord) -> str:
    if not record.is_sync:
        return "async, the master answers by itself"
    return f"sync, {record.needed} of {len(record.members)} slaves: {', '.join(record.members)}"
