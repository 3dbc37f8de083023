"""A broker, put together from its parts and run.

    async with trio.open_nursery() as nursery:
        broker = await nursery.start(serve_broker, LiveConfig(...))
        ...
        broker.stop()

This module has no rules of its own: it connects the parts, runs the tasks, and orders start and
stop. Start: files are loaded, the store is opened and recovered if need be, ports open, nameservers
are told. Stop: nameservers are told, held pulls are answered, what is in hand is finished, progress
and tables are saved, the store is flushed and closed.

A slave whose log has to be cut, or copied again, stops and starts like this within its process: the
store is cut when it is opened, by a written order that survives a crash.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.access.control import AccessControl, admin_rights
from rmq.access.files import find_files
from rmq.access.watch import watch
from rmq.broker.clients.calls import ConsumerCalls, MemberNotifier
from rmq.broker.clients.housekeeping import ClientHousekeeping
from rmq.broker.clients.locks import QueueLocks
from rmq.broker.clients.registry import ClientRegistry
from rmq.broker.delays.delivery import DelayDelivery
from rmq.broker.handlers.access import AccessHandlers
from rmq.broker.handlers.clients import ClientHandlers
from rmq.broker.handlers.consumers import ConsumerHandlers
from rmq.broker.handlers.groups import GroupHandlers
from rmq.broker.handlers.ha import HaHandlers
from rmq.broker.handlers.offsets import OffsetHandlers
from rmq.broker.handlers.pull import PullHandlers
from rmq.broker.handlers.queries import QueryHandlers
from rmq.broker.handlers.replies import REPLY, ReplyHandlers
from rmq.broker.handlers.send import SendHandlers
from rmq.broker.handlers.send_back import SendBackHandlers
from rmq.broker.handlers.settings import SettingHandlers
from rmq.broker.handlers.statistics import StatisticsHandlers
from rmq.broker.handlers.topics import TopicHandlers
from rmq.broker.handlers.transactions import END_TRANSACTION, TransactionHandlers
from rmq.broker.metrics.serving import BrokerMetrics
from rmq.broker.origin import Origin
from rmq.broker.own_credentials import OwnCredentials
from rmq.broker.pulling.filters import check_expression
from rmq.broker.pulling.parting import Parting
from rmq.broker.registration.registration import Registration, RegistrationListener, Standing
from rmq.broker.replication.changes.role_change import RoleChange
from rmq.broker.replication.master_tasks import MasterTasks
from rmq.broker.replication.metadata_sync import MetadataSync
from rmq.broker.replication.peers import Peers
from rmq.broker.replication.role import Replication
from rmq.broker.replication.role_parts import RoleParts
from rmq.broker.replication.saved_state import SavedState
from rmq.broker.rounds import Rounds
from rmq.broker.sending.acknowledgement import Acknowledger
from rmq.broker.serving_parts import ServingParts
from rmq.broker.stats.broker import BrokerStats
from rmq.broker.tables.offset_admission import OffsetAdmission
from rmq.broker.tables.saved import Tables
from rmq.broker.tables.writer import TableWriter
from rmq.broker.transactions.checks import TransactionChecks
from rmq.broker.transactions.copies import HalfCopies
from rmq.broker.transactions.decisions import Decisions
from rmq.errors import StorageError
from rmq.ha.identity import load_identity, reborn, renamed, save_identity
from rmq.metrics.port import start_metrics
from rmq.metrics.process import LogEvents
from rmq.model.clock import system_ms
from rmq.model.in_sync_record import newest
from rmq.model.names import SCHEDULE_TOPIC, retry_topic
from rmq.model.record import pack_host
from rmq.model.topic_flags import PERM_READ_WRITE, UNIT_SUB_FLAG
from rmq.remoting.client import RemotingClient
from rmq.remoting.codes import LanguageCode, RequestCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.event_loop.lag import LoopLag
from rmq.remoting.event_loop.watch import watch_loop
from rmq.remoting.groups import CLIENT_MANAGEMENT, HEARTBEAT, PULL, QUERY, SEND
from rmq.remoting.server import RemotingServer
from rmq.remoting.tls import TlsServer
from rmq.remoting.tls_config import client_context
from rmq.settings import metrics_port
from rmq.steps import in_steps
from rmq.store.core import Refusal
from rmq.store.listener import StoreListener
from rmq.store.store import open_store
from rmq.store.truncation import Truncation, request_truncation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator
    from pathlib import Path

    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.registration.registration import Registered
    from rmq.ha.identity import HaIdentity
    from rmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.groups import GroupStatistics, HandlerGroup
    from rmq.store.dispatcher import Dispatched
    from rmq.store.recovery import Progress
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

PROTECT_INTERVAL_S: Final = 180.0
"""How often the broker checks for groups that read too slowly."""
_SAVE_S: Final = 3.0


async def serve_broker(
    live: LiveConfig,
    *,
    now_ms: Callable[[], int] = system_ms,
    on_progress: Callable[[Progress], None] | None = None,
    default_metrics_port: int = 0,
    task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until its `stop` is called; `started` when its ports are open.

    `default_metrics_port` is where metrics are served if the settings do not say it; 0: nowhere.
    """
    config = live.current
    access = await trio.to_thread.run_sync(_open_access, live) if config.acl_enabled else None
    with LogEvents() as log_events:
        metrics = BrokerMetrics(live, log_events)
        if not metrics_port.wanted(config.metrics_port, default_metrics_port):
            await _serve_in_turn(live, access, metrics, now_ms, on_progress, task_status)
            return
        async with trio.open_nursery() as nursery:
            # Outside of what may stop and start again: scrapes are served during a recovery, too.
            await start_metrics(
                nursery,
                config.metrics_address,
                config.metrics_port,
                default_metrics_port,
                metrics.pages,
            )
            await _serve_in_turn(live, access, metrics, now_ms, on_progress, task_status)
            nursery.cancel_scope.cancel()


def _open_access(live: LiveConfig) -> AccessControl:
    config = live.current
    return AccessControl(find_files(config.acl_file, config.rocketmq_home, config.config_path))


async def _serve_in_turn(
    live: LiveConfig,
    access: AccessControl | None,
    metrics: BrokerMetrics,
    now_ms: Callable[[], int],
    on_progress: Callable[[Progress], None] | None,
    task_status: trio.TaskStatus[Broker],
) -> None:
    """Run a broker, and another one in its place when its store is to be opened again."""
    previous: Broker | None = None
    while True:
        config = live.current
        tables = Tables(config, now_ms)
        await trio.to_thread.run_sync(tables.load)
        store_host = pack_host(config.broker_ip1, config.listen_port)
        async with open_store(
            config.store,
            store_host=store_host,
            now_ms=now_ms,
            on_progress=on_progress,
            on_cut=tables.follow_cut,
        ) as store:
            was_saved = store.recovery.was_clean
            identity = await trio.to_thread.run_sync(
                _identify, config.store.root, was_saved, now_ms()
            )
            broker = Broker(live, tables, store, identity, Origin(store_host, now_ms), access)
            metrics.show(broker, now_ms)
            if previous is None:
                await broker.run(task_status)
            else:
                previous.successor = broker
                await broker.run()
            metrics.show(None, now_ms)
        if not broker.reopens:
            return
        previous = broker
        live.forget_subscribers()


def _identify(root: Path, was_saved: bool, now_ms: int) -> HaIdentity:
    """Return store id and incarnation of the store: a new incarnation if it may have lost bytes."""
    identity = load_identity(root)
    identity = renamed(identity, now_ms) if was_saved else reborn(identity, now_ms)
    save_identity(root, identity)
    return identity


@final
class Broker:
    """A running broker; made by `serve_broker`."""

    def __init__(
        self,
        live: LiveConfig,
        tables: Tables,
        store: MessageStore,
        identity: HaIdentity,
        origin: Origin,
        access: AccessControl | None = None,
    ) -> None:
        config, now_ms = live.current, origin.now_ms
        self.successor: Broker | None = None
        """The broker that runs in this one's place since its store was opened again."""
        self.live = live
        self.access = access
        self.store = store
        self.topics, self.groups, self.offsets = tables.topics, tables.groups, tables.offsets
        self.tables = tables
        self._now_ms = now_ms
        self._rounds = Rounds()
        self._stop = trio.Event()
        self._was_told_to_stop = False
        self._truncation: Truncation | None = None
        self._nursery: trio.Nursery | None = None

        self.stats = BrokerStats(
            config.cluster_name, boot_ms=now_ms(), detailed=config.detailed_stats
        )
        parts = ServingParts(live, store, tables, self.stats, origin)
        self.acknowledger = Acknowledger(store, self.stats.sends)
        self.locks = QueueLocks(config.lock_live_ms)
        self.notifier = MemberNotifier(live)
        self.clients = ClientRegistry(
            self.notifier.notify_members, expired_s=config.channel_expired_ms / 1000
        )
        self.delay = DelayDelivery(store, config.store.delay_levels_ms, self.stats, now_ms=now_ms)
        self.delay_writer = TableWriter(
            tables.delays_file,
            self.delay.render,
            "delay offsets",
            changes=lambda: self.delay.changes,
        )
        self.half_copies = HalfCopies()
        self.transaction_checks = TransactionChecks(parts, self.clients, self.half_copies)
        self.calls = ConsumerCalls(live, self.clients, self.topics, self.offsets, store)
        self.registration = Registration(
            live,
            self.topics,
            Standing(
                epoch=lambda: self.replication.identity.epoch,
                record=lambda: newest(*self.replication.identity.records),
                is_pending=lambda: self.replication.is_pending,
            ),
            RegistrationListener(
                registered=self._registered,
                fenced=self._fenced,
                doubted=lambda nameserver: self.replication.nameserver_in_doubt(nameserver),
            ),
        )
        self.housekeeping = ClientHousekeeping(self.clients, self.locks)
        self._parting = Parting(store, lambda: self.replication.partings, now_ms=now_ms)
        self.pulls = PullHandlers(
            parts, self.clients, parting=self._parting, in_round=self._rounds.in_round
        )
        self._client = RemotingClient(
            config.client,
            listeners=[self.registration],
            tls_context=None if config.tls_client is None else client_context(config.tls_client),
            language=LanguageCode.JAVA,
        )
        self._credentials = OwnCredentials(self._client, config.credentials_file)
        self.metadata = MetadataSync(live, store, tables, self.delay, self._client)
        self.master_tasks = MasterTasks(
            store, self.metadata, tables, self.delay, self.transaction_checks, self._parting
        )
        peers = Peers(live, self._client)
        saved = SavedState(live, identity, now_ms=now_ms)
        self.replication = Replication(
            RoleParts(live, store, saved, self.registration, self.master_tasks, peers),
            self.acknowledger,
            self._rounds,
            request_reopen=self._reopen_soon,
        )
        self.role_change = RoleChange(
            live,
            store,
            self.replication,
            self.registration,
            peers,
            request_reopen=self._reopen,
            now_ms=now_ms,
        )
        self.table = self._handlers(parts).with_groups(_bounds(config))
        tls = None if config.tls_server is None else TlsServer(config.tls_server)
        guard = None if access is None else access.guard
        self.server = RemotingServer(
            self.table,
            config.server,
            tls=tls,
            listeners=[self],
            guard=guard,
            on_round=self._end_round,
        )
        self.vip_server = RemotingServer(
            self.table.without(RequestCode.PULL_MESSAGE),
            config.vip_server,
            tls=tls,
            listeners=[self],
            guard=guard,
            on_round=self._end_round,
        )
        self._limit_waits(config)
        self._rounds.begin(self.server, self.vip_server)
        self.loop_lag = LoopLag()
        self._connect()

    def _connect(self) -> None:
        """Register this broker's callbacks at the parts that existed before it."""
        self.topics.on_change = self._topic_changed
        self.groups.on_change = self._group_changed
        self.live.subscribe(self._config_changed)
        self.store.listen(
            StoreListener(
                appended=self.replication.pump.appended,
                dispatched=self._message_arrived,
                copied=self._copied,
                needed_from=self.replication.needed_from,
            )
        )

    def _handlers(self, parts: ServingParts) -> HandlerTable:
        table = HandlerTable()
        live, store, tables, origin = parts.live, parts.store, parts.tables, parts.origin
        sends = SendHandlers(
            parts,
            self.acknowledger,
            master_address=lambda: self.replication.named_master,
        )
        sends.add_to(table)
        self.new_queues = sends.new_queues
        self.large_batches = sends.large_batches
        SendBackHandlers(parts, self.acknowledger).add_to(table)
        ReplyHandlers(parts, self.clients, self.acknowledger).add_to(table)
        decisions = Decisions(live, store, self.half_copies, self.stats, origin)
        TransactionHandlers(live, store, decisions, self.acknowledger, self.stats.store).add_to(
            table
        )
        self.pulls.add_to(table)
        admission = OffsetAdmission(
            self.topics,
            self.groups,
            lambda group: self.clients.consumer_group(group) is not None,
        )
        OffsetHandlers(store, self.offsets, self.clients, self._parting, admission).add_to(table)
        QueryHandlers(live, store).add_to(table)
        ClientHandlers(
            live,
            tables,
            self.clients,
            self.locks,
            self._create_retry_topic,
            compile_filter=check_expression,
            when_told=self._when_told,
        ).add_to(table)
        TopicHandlers(
            parts,
            self.clients,
            on_deleted=self.pulls.topic_changed,
            wait_told=self.registration.wait_told,
        ).add_to(table)
        GroupHandlers(parts, self.clients).add_to(table)
        SettingHandlers(live, now_ms=self._now_ms, is_admin=admin_rights(self.access)).add_to(table)
        AccessHandlers(live, self.access).add_to(table)
        HaHandlers(self.role_change).add_to(table)
        ConsumerHandlers(
            store, self.topics, self.clients, self.offsets, self.delay, self.calls, admission
        ).add_to(table)
        StatisticsHandlers(
            parts, self.clients, loads=self._loads, delay_progress=self.delay.progress
        ).add_to(table)
        return table

    def _recent_codes(self) -> tuple[int, ...]:
        return self.vip_server.recent_codes + self.server.recent_codes

    def _loads(self) -> list[GroupStatistics]:
        return [*self.server.statistics().groups, *self.vip_server.statistics().groups]

    # --- life --------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The address for clients."""
        return self.live.current.address

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, or to open its store again."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Begin to stop; `serve_broker` returns when that is done."""
        self._was_told_to_stop = True
        self._stop.set()
        if self.successor is not None:
            self.successor.stop()

    @property
    def reopens(self) -> bool:
        """Whether the store is to be opened again, now that this broker has stopped."""
        return self._truncation is not None and not self._was_told_to_stop

    async def _reopen(self, end: int | None, reason: str) -> None:
        """Have the log cut at `end`, or emptied if None: the order is on disk when this returns."""
        truncation = Truncation(end, reason, self._now_ms())
        root = self.live.current.store.root
        # A master that counted on this log must not count on what is left of it.
        await self.replication.count_as_another()
        await trio.to_thread.run_sync(request_truncation, root, truncation)
        logger.info("reopening the store to truncate its log: %s", reason)
        self._truncation = truncation
        self._stop.set()

    def _reopen_soon(self, end: int | None, reason: str) -> None:
        if self._nursery is not None and self._truncation is None:
            self._nursery.start_soon(self._reopen, end, reason)

    async def run(self, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`."""
        await trio.to_thread.run_sync(self._credentials.load)
        self.tables.delays_file.load(self.delay.load)
        log_end = self.store.log.written
        self.delay.begin_trail(log_end)
        self.offsets.begin_trail(log_end)
        try:
            async with self._client.running(), trio.open_nursery() as tasks:
                self._nursery = tasks
                tasks.start_soon(watch_loop, self.loop_lag, self._recent_codes)
                for task in (
                    self.tables.creation.run,
                    self.new_queues.run,
                    self.large_batches.run,
                    self.pulls.run,
                    self.notifier.run,
                    self.housekeeping.run,
                ):
                    tasks.start_soon(task)
                for writer in (self.tables.topics_writer, self.tables.groups_writer):
                    tasks.start_soon(writer.run, None)
                async with trio.open_nursery() as servers:
                    if self.replication.is_master:
                        # Clients that know it may be here at once, and it does not know yet what
                        # sends have to wait for, nor whether another one is master by now.
                        self.store.set_refused(Refusal.STARTING, True)
                    await servers.start(self.server.run)
                    await servers.start(self.vip_server.run)
                    await tasks.start(self.replication.run)
                    await self.registration.register_once(self._client)
                    self.store.set_refused(Refusal.STARTING, False)
                    self._start_tasks(tasks)
                    task_status.started(self)
                    await self._stop.wait()
                    await self._stop_serving()
                # Only now: what the servers still answer may need the tasks.
                tasks.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._save()

    def _start_tasks(self, tasks: trio.Nursery) -> None:
        config = self.live.current
        tasks.start_soon(self.registration.run)
        tasks.start_soon(watch, self._credentials.poll)
        if self.access is not None:
            tasks.start_soon(watch, self.access.poll)
        tasks.start_soon(
            self.tables.offsets_writer.run, config.flush_consumer_offset_interval_ms / 1000
        )
        # A slave has its master's progress, for the time when it is master itself.
        tasks.start_soon(self.delay_writer.run, config.flush_delay_offset_interval_ms / 1000)
        tasks.start_soon(self.stats.run)
        tasks.start_soon(self._protect)
        tasks.start_soon(self.stats.store.run)

    async def _protect(self) -> None:
        """Forbid consuming to groups that are so far behind that they read from disk.

        Only if `disableConsumeIfConsumerReadSlowly` says so.
        """
        while True:
            await trio.sleep(PROTECT_INTERVAL_S)
            config = self.live.current
            if config.disable_consume_if_slow:
                behind = self.stats.groups_behind(config.consumer_fallbehind_threshold)
                for group, size in behind.items():
                    logger.warning("group %s is %d bytes behind and may not consume", group, size)
                    self.groups.disable_consume(group)

    async def _stop_serving(self) -> None:
        """Unregister, answer held pulls, and finish the requests in hand."""
        started = trio.current_time()
        await self.registration.unregister_all()
        logger.info("unregistered after %.1f s", trio.current_time() - started)
        self.pulls.stop_holding()
        grace_s = self.live.current.shutdown_drain_ms / 1000
        self.server.stop(grace_s=grace_s)
        self.vip_server.stop(grace_s=grace_s)

    async def _save(self) -> None:
        """Save what changed; the store has to be flushed first, see `DelayDelivery`."""
        with trio.move_on_after(_SAVE_S) as scope:
            try:
                await self.store.flush()
            except StorageError as exc:
                logger.error("the store could not be flushed: %s", exc)
            for writer in (
                self.tables.topics_writer,
                self.tables.groups_writer,
                self.tables.offsets_writer,
                self.delay_writer,
            ):
                try:
                    await writer.save_now()
                except StorageError as exc:
                    logger.error("not saved: %s", exc)
        if scope.cancelled_caught:
            logger.error("saving took more than %g s and was given up", _SAVE_S)

    # --- notices -----------------------------------------------------------------------------

    def connection_opened(self, channel: Channel) -> None:
        self.housekeeping.connection_opened(channel)

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self.pulls.connection_closed(channel)
        self.housekeeping.connection_closed(channel, reason)

    def connection_idle(self, channel: Channel) -> None:
        self.housekeeping.connection_idle(channel)

    def _end_round(self) -> None:
        """Called after a round of requests: replicates and answers pulls that it has woken."""
        self.replication.pump.end_round()
        self.pulls.answer_woken()

    def _message_arrived(self, message: Dispatched) -> None:
        if message.topic == SCHEDULE_TOPIC:
            self.delay.message_arrived(message.tags_code)
        self.pulls.message_arrived(message)

    def _copied(self, count: int, size: int) -> None:
        """Records were read back from the log: a slave's count as stored, as on a stock slave; a
        master's were counted when they were sent.
        """
        if self.replication.slave is not None:
            self.stats.store.put(count, size)

    def _topic_changed(self, topic: TopicConfig | None) -> None:
        self.tables.topics_writer.mark()
        self.registration.topic_changed(topic)

    def _group_changed(self, group: SubscriptionGroupConfig | None) -> None:
        self.tables.groups_writer.mark()

    def _registered(self, answer: Registered) -> None:
        # One nameserver decides: two of them may not agree on which topics are ordered.
        if self.registration.fence is None:
            self.replication.set_fenced(None)
        self.replication.registered(answer)
        first = next(iter(self.registration.registered_at), None)
        if answer.order_topics is not None and answer.nameserver == first:
            self.topics.update_order_topics(answer.order_topics)

    def _fenced(self, epoch: int, remark: str) -> None:
        if self.replication.is_master:
            self.replication.set_fenced(remark)

    def _config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        self.topics.reconfigure(new)
        self.groups.reconfigure(new)
        self.pulls.reconfigure(new)
        self.registration.config_changed(old, new)
        self.replication.config_changed(old, new)
        self._limit_waits(new)
        if old.store != new.store:
            self.store.reconfigure(new.store)

    def _limit_waits(self, config: BrokerConfig) -> None:
        for server in (self.server, self.vip_server):
            server.limit_waits(_waits(config))

    def _when_told(self, steps: Generator[None, None, None]) -> bool:
        """Do the steps when nameservers know of the topics there are.

        False, and nothing is done: no nameserver knows this broker, so there is nothing to wait
        for.
        """
        if self._nursery is None or not self.registration.is_heard:
            return False
        self._nursery.start_soon(self._do_when_told, steps)
        return True

    async def _do_when_told(self, steps: Generator[None, None, None]) -> None:
        await self.registration.wait_told()
        await in_steps(steps)

    def _create_retry_topic(self, group: str, queues: int, is_unit: bool) -> None:
        flag = UNIT_SUB_FLAG if is_unit else 0
        self.topics.create_on_send_back(retry_topic(group), queues, PERM_READ_WRITE, flag)


def _waits(config: BrokerConfig) -> dict[str, float]:
    """Return how long requests may wait, in seconds by the name of their group."""
    if not config.fast_failure:
        return {}
    waits_ms = {
        SEND: config.send_wait_ms,
        PULL: config.pull_wait_ms,
        HEARTBEAT: config.heartbeat_wait_ms,
        END_TRANSACTION: config.transaction_wait_ms,
    }
    return {group.name: wait_ms / 1000 for group, wait_ms in waits_ms.items()}


def _bounds(config: BrokerConfig) -> dict[HandlerGroup, HandlerGroup]:
    """Return the groups of request codes with the bounds that are configured."""
    capacities = {
        SEND: config.send_queue_capacity,
        # Those that wait for messages count, too, which in 4.9.8 wait elsewhere than in the queue.
        PULL: max(PULL.capacity, config.pull_queue_capacity),
        REPLY: config.reply_queue_capacity,
        END_TRANSACTION: config.end_transaction_queue_capacity,
        QUERY: config.query_queue_capacity,
        CLIENT_MANAGEMENT: config.client_manager_queue_capacity,
        HEARTBEAT: config.heartbeat_queue_capacity,
    }
    return {
        group: replace(group, capacity=capacity, per_connection=min(group.per_connection, capacity))
        for group, capacity in capacities.items()
    }


@asynccontextmanager
async def open_broker(
    live: LiveConfig, *, now_ms: Callable[[], int] = system_ms
) -> AsyncIterator[Broker]:
    """Run a broker for the length of an `async with` block, and stop it gracefully."""
    async with trio.open_nursery() as nursery:
        broker: Broker = await nursery.start(lambda **kw: serve_broker(live, now_ms=now_ms, **kw))
        try:
            yield broker
        finally:
            broker.stop()
