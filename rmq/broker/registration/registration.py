"""Registers the broker and its topics at the nameservers.

Each nameserver has a task of its own, so one that is down does not hold up the others. A broker
registers at start, every `registerNameServerPeriod` and at once when topics change; what changed is
then enough, as long as the nameserver is known to hold the rest (RocketMQ 4.9.8 BrokerOuterAPI
assumes that always). A connection that was lost is made again at once, because a nameserver forgets
a broker with its connection.

Role and id are read again for each registration: an address that comes with another id gives up the
one it had, at stock nameservers, too. A master first makes sure that no other broker is master of
its name, and that no in-sync record of a later epoch is kept (`leader_check`). If so it is fenced:
it takes itself out of the lists of all nameservers and stays out, checking again each time, until
it is of a later epoch or a slave. That the other one is gone meanwhile is no reason: it may have
messages that this one lacks, and its record keeps this one out. Only if nothing confirms the later
epoch any longer, for a period and with most nameservers answering, was it never true, and the fence
is lifted.

A nameserver that turns this broker away as deposed is believed if it is confirmed in the same way.
Otherwise a registration there was forged, and this broker goes on trying.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, final

import trio

from rmq.broker.registration.state import NameserverState, RegistrationBodies
from rmq.broker.replication.leader_check import (
    PROBE_S,
    Fence,
    ask_listed,
    delete_forged,
    is_confirmed,
    later_record,
    listed_master,
)
from rmq.broker.replication.peers import Peers
from rmq.errors import ClientError, ConnectionLostError, ResponseError, RmqError
from rmq.model.names import MASTER_ID
from rmq.remoting.bodies import KVTable, body_crc32
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.tables.topics import TopicTable
    from rmq.model.in_sync_record import InSyncRecord
    from rmq.remoting.bodies import TopicConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

RETRY_MIN_S: Final = 1.0
"""The first pause after a failure; it doubles, up to the period of registrations."""
CHANGED_MAX: Final = 100
"""Topics that are registered by themselves; when more have changed, all are."""
TOLD_S: Final = 1.0
"""How long the creation of a topic waits for its registration."""
UNREGISTER_TIMEOUT_S: Final = 3.0


class Registered(NamedTuple):
    """What a nameserver answered."""

    nameserver: str
    ha_address: str | None
    """Of the master, for a slave that asked."""
    master_address: str | None
    order_topics: dict[str, str] | None
    """Queues of ordered topics; None if the nameserver has no such table."""
    epoch: int | None = None
    """The latest of a master of this name; None if the nameserver knows of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a broker is among those of its name; asked for each registration."""

    epoch: Callable[[], int] = lambda: 0
    """0 stands for a broker that knows of none."""
    record: Callable[[], InSyncRecord | None] = lambda: None
    """Returns the last in-sync record of this broker."""
    is_pending: Callable[[], bool] = lambda: False
    """While it is not certain that this broker will be master, nothing is registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationListener:
    """Whom a registration tells what nameservers answer."""

    registered: Callable[[Registered], None]
    fenced: Callable[[int, str], None]
    """Gets the epoch of the master there is, and the reason, when this broker finds that it must
    not be master; again only for a later epoch.
    """
    doubted: Callable[[str], None]
    """Gets a nameserver that may not have the in-sync record of this master: the connection is new,
    so it may have been restarted with an old file, or it did not take the last registration.
    """


@final
class Registration:
    """Keeps the nameservers informed. Use as listener of the client it is given."""

    def __init__(
        self,
        live: LiveConfig,
        topics: TopicTable,
        standing: Standing,
        listener: RegistrationListener,
    ) -> None:
        self._live = live
        self._topics = topics
        self._epoch = standing.epoch
        self._record = standing.record
        self._is_pending = standing.is_pending
        self._listener = listener
        self._fence: Fence | None = None
        self._looked_at = -math.inf
        """When it was last asked whether the fence is still confirmed."""
        self._doubted: tuple[Fence, float] | None = None
        """A fence that nothing confirms, and since when."""
        self._client: RemotingClient | None = None
        self._has_left = False
        self._nameservers: dict[str, NameserverState] = {}
        self._addresses_changed = trio.Event()
        self._bodies = RegistrationBodies(topics)

    # --- notices -----------------------------------------------------------------------------

    def topic_changed(self, topic: TopicConfig | None) -> None:
        """A topic is new or different; None: many are, or one is gone."""
        for nameserver in self._nameservers.values():
            if topic is None:
                nameserver.needs_all = True
            else:
                nameserver.changed.add(topic.topic_name)
                # Many together cost more than all, whose encoding is kept and done in steps.
                if len(nameserver.changed) > CHANGED_MAX:
                    nameserver.needs_all = True
            nameserver.wanted += 1
            nameserver.wake()

    def register_again(self) -> None:
        """Register everything now, for instance because permissions changed."""
        self.topic_changed(None)

    def retry(self, nameserver: str) -> None:
        """Register at a nameserver now if that failed last: the reason may be gone."""
        state = self._nameservers.get(nameserver)
        if state is not None and (state.failures or state.is_being_told):
            state.retry.set()

    def connection_opened(self, channel: Channel) -> None:
        """Do nothing: the task that opened the connection goes on."""

    def connection_closed(self, channel: Channel, reason: str) -> None:
        for nameserver in self._nameservers.values():
            if nameserver.registered_over is channel:
                nameserver.registered_over = None
                if trio.current_time() - channel.opened_at < RETRY_MIN_S:
                    # It may be closed again and again: a pause keeps that slow.
                    nameserver.failures += 1
                nameserver.wake()

    def connection_idle(self, channel: Channel) -> None:
        """Do nothing: the endpoint closes idle connections."""

    # --- tasks -------------------------------------------------------------------------------

    @property
    def nameservers(self) -> tuple[NameserverState, ...]:
        """What is known of each nameserver of the settings."""
        return tuple(self._nameservers.values())

    @property
    def registered_at(self) -> tuple[str, ...]:
        """The nameservers that most likely list this broker."""
        return tuple(
            nameserver.address
            for nameserver in self._nameservers.values()
            if nameserver.registered_over is not None
        )

    @property
    def is_heard(self) -> bool:
        """Whether a nameserver lists this broker, or a registration is under way."""
        return any(
            nameserver.registered_over is not None or nameserver.is_being_told
            for nameserver in self._nameservers.values()
        )

    @property
    def fence(self) -> Fence | None:
        """Why this broker is not registered as master; None if it may be."""
        if self._fence is not None and (
            self._live.current.broker_id != MASTER_ID or self._epoch() > self._fence.epoch
        ):
            self._fence = None
        return self._fence

    async def wait_told(self, timeout_s: float = TOLD_S) -> None:
        """Wait until all nameservers that can be reached know of what changed so far.

        Returns when time is up, too: a topic is there, whether they know of it or not.
        """
        marks = [(nameserver, nameserver.wanted) for nameserver in self._nameservers.values()]
        with trio.move_on_after(timeout_s):
            for nameserver, wanted in marks:
                while nameserver.told < wanted and not nameserver.failures:
                    await nameserver.tried.wait()

    async def register_once(self, client: RemotingClient) -> int:
        """Register with all nameservers at once; return how many took it."""
        self._client = client
        self._adopt(self._live.current.namesrv_addrs)
        async with trio.open_nursery() as nursery:
            for nameserver in self._nameservers.values():
                nursery.start_soon(self._register, nameserver)
        return len(self.registered_at)

    async def run(self) -> None:
        """Register again and again, until cancelled; `register_once` comes first."""
        while True:
            self._addresses_changed = trio.Event()
            self._adopt(self._live.current.namesrv_addrs)
            async with trio.open_nursery() as nursery:
                for nameserver in self._nameservers.values():
                    if nameserver.registered_over is None:
                        # It is new, or a registration was under way when the others changed.
                        nameserver.wake()
                    nursery.start_soon(self._look_after, nameserver)
                await self._addresses_changed.wait()
                nursery.cancel_scope.cancel()

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Follow settings that were changed while the broker runs."""
        if old.namesrv_addrs != new.namesrv_addrs:
            self._addresses_changed.set()
        becomes_master = new.broker_id == MASTER_ID != old.broker_id
        if old.permission != new.permission or becomes_master:
            # Nameservers take the topics of a version that they have not seen, and no others; they
            # may have seen this one when the broker was a slave.
            self._topics.put(next(iter(self._topics.items()))[1])
            self.register_again()
        elif old.broker_id != new.broker_id:
            self.register_again()

    async def unregister_all(self) -> None:
        """Unregister at all nameservers, each within a few seconds.

        Nothing is registered after that.
        """
        self._has_left = True
        async with trio.open_nursery() as nursery:
            for nameserver in self._nameservers.values():
                nursery.start_soon(self._unregister, nameserver)

    def _adopt(self, addresses: tuple[str, ...]) -> None:
        self._nameservers = {
            address: self._nameservers.get(address) or NameserverState(address)
            for address in addresses
        }

    async def _look_after(self, nameserver: NameserverState) -> None:
        while not self._has_left:
            period_s = self._live.current.register_period_ms / 1000
            if not nameserver.failures:
                with trio.move_on_after(period_s):
                    await nameserver.woken.wait()
            if nameserver.failures:
                # Sooner than 4.9.8 does: a nameserver that was restarted knows no broker. Changes
                # do not make an unreachable one reachable, so they wake no task here.
                pause_s = min(period_s, RETRY_MIN_S * 2 ** min(nameserver.failures - 1, 6))
                with trio.move_on_after(pause_s):
                    await nameserver.retry.wait()
            await self._register(nameserver)

    async def _register(self, nameserver: NameserverState) -> None:
        nameserver.woken = trio.Event()
        nameserver.retry = trio.Event()
        if self._has_left:
            return
        nameserver.is_being_told = True
        try:
            await self._try_to_register(nameserver)
        finally:
            nameserver.is_being_told = False
            nameserver.tried.set()
            nameserver.tried = trio.Event()

    async def _try_to_register(self, nameserver: NameserverState) -> None:
        wanted = nameserver.wanted
        try:
            answer = await self._send(nameserver)
        except _FencedError:
            # There is nothing to register, and it was not the nameserver's fault.
            nameserver.registered_over = None
            nameserver.failures = 0
            nameserver.problem = None
            nameserver.told = wanted
            return
        except RmqError as exc:
            if self._has_left:
                return
            nameserver.registered_over = None
            nameserver.failures += 1
            nameserver.failed += 1
            if nameserver.problem != str(exc):
                nameserver.problem = str(exc)
                logger.warning(
                    "cannot register at nameserver %s: %s; trying again",
                    nameserver.address,
                    exc.with_hint,
                )
            return
        if nameserver.problem is not None:
            logger.info("registered at nameserver %s again", nameserver.address)
            nameserver.problem = None
        nameserver.failures = 0
        nameserver.succeeded += 1
        nameserver.told = wanted
        if answer is not None:
            self._listener.registered(answer)

    async def _send(self, nameserver: NameserverState) -> Registered | None:
        """Send what the nameserver has to know; None if it knows everything."""
        address = nameserver.address
        timeout_s = self._live.current.register_timeout_ms / 1000
        deadline = trio.current_time() + timeout_s
        channel = await self._connect(address, timeout_s)
        if self._is_in_doubt(nameserver, channel):
            if nameserver.registered_over is not channel:
                self._listener.doubted(address)
            await self._make_sure(nameserver, channel, deadline)
        if self._is_pending():
            raise _FencedError
        # The role may have changed meanwhile.
        config, epoch = self._live.current, self._epoch()
        # What changes from here on is not in what is sent now, and will be sent next.
        changed, nameserver.changed = nameserver.changed, set()
        needs_all = nameserver.needs_all or nameserver.registered_over is not channel
        nameserver.needs_all = False
        # A slave learns where its master is by registering.
        is_forced = config.force_register or config.broker_id != MASTER_ID
        if not (is_forced or needs_all or changed) and await self._is_known(
            channel, config, deadline
        ):
            return None
        # Until it answers it is not known what it has received.
        nameserver.registered_over = None
        if changed and not needs_all:
            body = self._bodies.of(config, changed)
        else:
            body = await self._bodies.of_all(config)
        header = RegisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=config.address,
            cluster_name=config.cluster_name,
            ha_server_addr=config.ha_address,
            broker_id=config.broker_id,
            compressed=config.compressed_register,
            body_crc32=body_crc32(body),
            epoch=epoch or None,
        )
        nameserver.said_id = config.broker_id
        answer = await channel.request(
            RequestCode.REGISTER_BROKER, header, body=body, timeout_s=_left(deadline)
        )
        if answer.code == ResponseCode.STALE_EPOCH:
            nameserver.said_id = None
            await self._check_refusal(nameserver, channel, answer.remark or "", deadline)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(address, "REGISTER_BROKER", answer.code, answer.remark)
        told = answer.header(RegisterBrokerResponse)
        table = KVTable.decode(answer.body).table if answer.body else None
        if channel.close_reason is not None:
            raise ConnectionLostError(address, channel.close_reason)
        nameserver.registered_over = channel
        nameserver.knows_epochs = told.epoch is not None
        return Registered(address, told.ha_server_addr, told.master_addr, table, told.epoch)

    def _is_in_doubt(self, nameserver: NameserverState, channel: Channel) -> bool:
        """Whether to make sure that this broker is master.

        Not for each topic that is new, if the nameserver would turn a deposed master away itself.
        """
        config = self._live.current
        if config.broker_id != MASTER_ID or not self._epoch():
            return False
        half_a_period_s = config.register_period_ms / 2000
        return (
            nameserver.registered_over is not channel
            or not nameserver.knows_epochs
            or self.fence is not None
            or trio.current_time() - nameserver.made_sure_at > half_a_period_s
        )

    async def _make_sure(
        self, nameserver: NameserverState, channel: Channel, deadline: float
    ) -> None:
        """Raise `_FencedError`, out of the list, if another broker is master."""
        assert self._client is not None, "register_once comes first"
        config = self._live.current
        listed = await listed_master(channel, config.broker_name, timeout_s=_left(deadline))
        if listed is not None and listed != config.address:
            # It may list this broker, but not as master.
            nameserver.needs_all = True
        if self.fence is not None:
            await self._doubt_fence(nameserver)
        else:
            await self._ask_for_later(nameserver, listed, deadline)
        if self.fence is not None:
            if listed == config.address:
                await self._say_goodbye(channel, config, MASTER_ID, deadline)
            nameserver.said_id = None
            raise _FencedError
        nameserver.made_sure_at = trio.current_time()

    async def _ask_for_later(
        self, nameserver: NameserverState, listed: str | None, deadline: float
    ) -> None:
        """Ask brokers and nameservers for a later epoch; be fenced if one confirms it."""
        assert self._client is not None, "register_once comes first"
        config, address = self._live.current, nameserver.address
        found: Fence | None = None
        if listed is not None and listed != config.address:
            timeout_s = min(PROBE_S, _left(deadline) / 2)
            found = await ask_listed(
                self._client, listed, config, self._epoch(), timeout_s=timeout_s
            )
        if found is None:
            peers = Peers(self._live, self._client)
            with trio.move_on_after(_left(deadline) / 2):
                try:
                    found = await later_record(peers, address, config, self._epoch, listed)
                except RmqError as exc:
                    logger.info("nameserver %s does not say what is recorded: %s", address, exc)
        if found is not None:
            self.fenced_by(found)

    async def _check_refusal(
        self, nameserver: NameserverState, channel: Channel, remark: str, deadline: float
    ) -> NoReturn:
        """A nameserver says that this master was deposed: raise `_FencedError` if that is so.

        Raise `ResponseError` if that is not confirmed.
        """
        assert self._client is not None, "register_once comes first"
        config, address = self._live.current, nameserver.address
        listed = await listed_master(channel, config.broker_name, timeout_s=_left(deadline))
        await self._ask_for_later(nameserver, listed, deadline)
        if self.fence is not None:
            raise _FencedError
        with trio.move_on_after(_left(deadline)):
            try:
                await delete_forged(Peers(self._live, self._client), address, config)
            except RmqError as exc:
                logger.debug("nameserver %s: %s", address, exc)
        raise ResponseError(
            address,
            "REGISTER_BROKER",
            ResponseCode.STALE_EPOCH,
            f"{remark}; but neither the broker that it lists nor an in-sync record confirms that"
            " there is a later epoch, so this broker stays master",
        )

    async def _doubt_fence(self, nameserver: NameserverState) -> None:
        """Lift the fence if nothing has confirmed the later epoch for a period.

        The caller registers at `nameserver` next; the tasks of the others are woken.
        """
        assert self._client is not None, "register_once comes first"
        config, fence, now = self._live.current, self._fence, trio.current_time()
        period_s = config.register_period_ms / 1000
        if fence is None or fence.epoch <= self._epoch() or now < self._looked_at + period_s / 2:
            # Between two masters of one epoch an operator has to decide.
            return
        self._looked_at = now
        peers = Peers(self._live, self._client)
        answer = await is_confirmed(peers, self._client, fence, config, self._epoch, self._record())
        if self.fence is not fence:
            return
        if answer is not False:
            self._doubted = None
        elif self._doubted is None or self._doubted[0] is not fence:
            self._doubted = fence, now
        elif now >= self._doubted[1] + 0.9 * period_s:
            logger.warning(
                "nothing confirms any longer that another broker is master of %s by epoch %d, so"
                " this one registers as master again; it was kept from that by: %s",
                config.broker_name,
                fence.epoch,
                fence.reason,
            )
            self._fence = self._doubted = None
            for other in self._nameservers.values():
                if other is not nameserver:
                    other.wake()

    async def ask_whether_deposed(self, address: str) -> bool:
        """Ask the broker at `address` whether it is master by now; stop being one if it is."""
        assert self._client is not None, "register_once comes first"
        config = self._live.current
        found = await ask_listed(self._client, address, config, self._epoch(), timeout_s=PROBE_S)
        if found is not None:
            self.fenced_by(found)
        return self.fence is not None

    def fenced_by(self, fence: Fence) -> None:
        """Another broker is master, unless this one was promoted or made a slave meanwhile."""
        before, self._fence = self.fence, fence
        if self.fence is None or (before is not None and before.epoch >= fence.epoch):
            self._fence = before
            return
        logger.error(
            "this broker must not be master and is taken out of the nameservers' lists: %s;"
            " make it a slave with `rmq ha demote`, or master again with `rmq ha promote`",
            fence.reason,
        )
        # It was just confirmed.
        self._looked_at, self._doubted = trio.current_time(), None
        for nameserver in self._nameservers.values():
            # Those that list it are to forget it now.
            nameserver.wake()
        self._listener.fenced(fence.epoch, fence.reason)

    async def _connect(self, address: str, timeout_s: float) -> Channel:
        assert self._client is not None, "register_once comes first"
        with trio.move_on_after(timeout_s):
            return await self._client.channel(address)
        raise ClientError(address, f"no connection to {address} within {timeout_s:g} s")

    async def _is_known(self, channel: Channel, config: BrokerConfig, deadline: float) -> bool:
        """Ask whether a nameserver has the present version of the topics."""
        answer = await channel.request(
            RequestCode.QUERY_DATA_VERSION,
            QueryDataVersionRequest(
                broker_name=config.broker_name,
                broker_addr=config.address,
                cluster_name=config.cluster_name,
                broker_id=config.broker_id,
            ),
            body=self._topics.version.encode(),
            timeout_s=_left(deadline),
        )
        if answer.code != ResponseCode.SUCCESS:
            return False
        return not answer.header(QueryDataVersionResponse).changed

    async def _unregister(self, nameserver: NameserverState) -> None:
        assert self._client is not None, "register_once comes first"
        config = self._live.current
        channel = self._client.open_channel_to(nameserver.address)
        if channel is None or nameserver.said_id is None:
            # It forgot the broker with the connection, or never listed it.
            return
        deadline = trio.current_time() + UNREGISTER_TIMEOUT_S
        try:
            if nameserver.said_id == MASTER_ID and self._epoch():
                name, address = config.broker_name, config.address
                listed = await listed_master(channel, name, timeout_s=_left(deadline))
                if listed not in (None, address):
                    # A stock nameserver would remove the broker that is listed.
                    return
            await self._say_goodbye(channel, config, nameserver.said_id, deadline)
        except RmqError as exc:
            logger.info("not unregistered at nameserver %s: %s", nameserver.address, exc)

    async def _say_goodbye(
        self, channel: Channel, config: BrokerConfig, broker_id: int, deadline: float
    ) -> None:
        header = UnregisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=config.address,
            cluster_name=config.cluster_name,
            broker_id=broker_id,
        )
        await channel.request(RequestCode.UNREGISTER_BROKER, header, timeout_s=_left(deadline))


class _FencedError(Exception):
    """Nothing was registered, because another broker is master."""


def _left(deadline: float) -> float:
    return max(0.0, deadline - trio.current_time())
