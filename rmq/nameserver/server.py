"""The running nameserver: its tables, handlers and tasks.

Nameservers know nothing of each other. Brokers register with each of them and clients ask one, so
any number of them may run side by side.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

import rmq
from rmq.access.control import AccessControl, admin_rights
from rmq.access.files import find_files
from rmq.access.watch import watch
from rmq.errors import ListenError
from rmq.metrics.port import start_metrics
from rmq.metrics.process import LogEvents
from rmq.model.in_sync_record import NAMESPACE
from rmq.nameserver.address_rules import AddressRules
from rmq.nameserver.broker_handlers import BrokerHandlers
from rmq.nameserver.config import LiveConfig
from rmq.nameserver.handlers import ConfigHandlers, KvHandlers, RouteHandlers
from rmq.nameserver.kv_keeper import KvKeeper
from rmq.nameserver.metrics import NameserverMetrics, nameserver_pages
from rmq.nameserver.record_guard import RecordGuard, recorded_epoch
from rmq.nameserver.route_answers import RouteAnswers
from rmq.nameserver.routes import RouteTable
from rmq.nameserver.serving import Serving
from rmq.nameserver.slices import JobQueue, Slices
from rmq.remoting.addresses import format_address
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.event_loop.lag import LoopLag
from rmq.remoting.event_loop.watch import watch_loop
from rmq.remoting.server import STOPS, RemotingServer
from rmq.remoting.tls import TlsServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.metrics.server import Pages
    from rmq.nameserver.config import NameserverConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.remoting.server import ServerStatistics

logger = logging.getLogger(__name__)

_LINES_MAX: Final = 20
"""How many brokers that are removed together are logged one by one."""
_CLOSINGS_PER_STEP: Final = 64
NOT_SERVING: Final = "not_serving: the port is not open"


@dataclass(frozen=True, slots=True)
class NameserverStatistics:
    """A snapshot for metrics."""

    brokers: int
    """Addresses alive, masters and slaves."""
    topics: int
    kv_values: int
    server: ServerStatistics


@final
class Nameserver:
    """One nameserver. `run` serves until `stop`."""

    def __init__(
        self,
        config: NameserverConfig,
        access: AccessControl | None = None,
        *,
        default_metrics_port: int = 0,
    ) -> None:
        """`default_metrics_port` is where metrics are served if the settings do not say it; 0:
        nowhere.
        """
        self.config = LiveConfig(config)
        self.access = access
        self._default_metrics_port = default_metrics_port
        self._is_serving = False
        self._loop_lag = LoopLag()
        self._kv = KvKeeper(config.kv_path)
        self.routes: RouteTable[Channel] = RouteTable(
            recorded=lambda name: recorded_epoch(self._kv.table.get(NAMESPACE, name))
        )
        records: RecordGuard[Channel] = RecordGuard(self.routes.epoch_of)
        self.slices = Slices()
        """What is done in slices."""
        self._waiting = trio.lowlevel.ParkingLot()
        self.slices.on_work = self._waiting.unpark
        self._serving = Serving(self.slices, trio.current_time)
        self._address_rules = AddressRules(config, trio.current_time)
        self.table = HandlerTable()
        answers = RouteAnswers(self.routes)
        now = trio.current_time
        BrokerHandlers(self.routes, self._kv, self._serving, clean=self._clean, now=now).add_to(
            self.table
        )
        RouteHandlers(self.routes, answers, self._kv, self.config, self._serving).add_to(self.table)
        KvHandlers(self._kv, records, self._serving, now).add_to(self.table)
        ConfigHandlers(self.config, is_admin=admin_rights(self.access)).add_to(self.table)
        self.server = RemotingServer(
            self.table,
            config.server,
            tls=TlsServer(config.tls),
            listeners=[_Housekeeper(self.routes, records, self._clean, self._serving)],
            guard=self._check,
            # As the original: a request with an unknown code is not answered.
            answer_unknown=False,
        )

    @property
    def port(self) -> int:
        """The port in use; only while the nameserver runs."""
        return self.server.port

    def statistics(self) -> NameserverStatistics:
        return NameserverStatistics(
            brokers=self.routes.address_count,
            topics=self.routes.topic_count,
            kv_values=len(self._kv.table),
            server=self.server.statistics(),
        )

    def _check(self, channel: Channel, command: Command) -> None:
        """Raise `RefusedError` for a request that is not taken from this peer or account."""
        self._address_rules.check(channel, command)
        if self.access is not None:
            self.access.guard(channel, command)

    def stop(self, grace_s: float = 5.0) -> None:
        """Accept nothing more, answer open requests within `grace_s`, and return from `run`."""
        self._is_serving = False
        self.server.stop(grace_s=grace_s)

    async def run(
        self, *, task_status: trio.TaskStatus[Nameserver] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `stop` or until cancelled. `started` means that the port is open.

        Raise `ConfigError` for a KV config that cannot be read, `ListenError` for a port that
        cannot be opened.
        """
        with LogEvents() as events:
            await self._run(self._pages(events), task_status)

    def _pages(self, events: LogEvents) -> Pages:
        config = self.config.current
        address = format_address((config.bind_address, config.listen_port))
        limiter = trio.to_thread.current_default_thread_limiter()
        metrics = NameserverMetrics(
            self.routes,
            lambda: len(self._kv.table),
            self.server.statistics,
            lambda: address,
            is_ready=lambda: self._is_serving,
        )
        return nameserver_pages(
            metrics,
            self.server.statistics,
            self._loop_lag,
            events,
            threads=lambda: {"default": (limiter.borrowed_tokens, limiter.total_tokens)},
            describe=lambda: {"address": address, "version": rmq.__version__},
            unready=lambda: [] if self._is_serving else [NOT_SERVING],
        )

    async def _run(self, pages: Pages, task_status: trio.TaskStatus[Nameserver]) -> None:
        await self._kv.load()
        error: ListenError | None = None
        async with trio.open_nursery() as nursery:

            async def serve(*, task_status: trio.TaskStatus[RemotingServer]) -> None:
                await self.server.run(task_status=task_status)
                # The other tasks outlive the server, so that queued changes are written.
                nursery.cancel_scope.cancel()

            nursery.start_soon(self._kv.run)
            nursery.start_soon(self._work)
            nursery.start_soon(self._scan)
            if self.access is not None:
                nursery.start_soon(watch, self.access.poll)
            nursery.start_soon(watch_loop, self._loop_lag, lambda: self.server.recent_codes)
            config = self.config.current
            try:
                await start_metrics(
                    nursery,
                    config.metrics_address,
                    config.metrics_port,
                    self._default_metrics_port,
                    pages,
                )
                await nursery.start(serve)
            except ListenError as exc:
                # Raised again outside of the nursery, as itself instead of in a group.
                error = exc
                nursery.cancel_scope.cancel()
            else:
                self._is_serving = True
                task_status.started(self)
        if error is not None:
            raise error

    async def _work(self) -> None:
        """Do what is done in slices, one in each pass of the loop."""
        while True:
            self.slices.work()
            if self.slices.is_waiting:
                await trio.lowlevel.checkpoint()
            else:
                await self._waiting.park()

    def _clean(self) -> None:
        """Have removed what brokers that are gone have left behind."""
        if self.routes.needs_cleaning and not self.slices.waiting(JobQueue.CLEANING):
            self.slices.submit(JobQueue.CLEANING, self.routes.clean())

    async def _scan(self) -> None:
        while True:
            await trio.sleep(self.config.current.scan_interval_s)
            self._serving.summarize()
            self._address_rules.summarize()
            expiry_s = self.config.current.broker_expiry_s
            expired = self.routes.expire(trio.current_time(), expiry_s)
            self._clean()
            for number, each in enumerate(expired, start=1):
                if number <= _LINES_MAX:
                    logger.warning(
                        "broker removed: it did not register for %.0f s",
                        each.silent_s,
                        extra={"address": each.address},
                    )
                if each.connection is not None:
                    each.connection.close(f"no registration for {each.silent_s:.0f} s")
                if number % _CLOSINGS_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()
            if len(expired) > _LINES_MAX:
                logger.warning("%d more brokers removed for that", len(expired) - _LINES_MAX)


async def serve_nameserver(
    config: NameserverConfig,
    *,
    default_metrics_port: int = 0,
    task_status: trio.TaskStatus[Nameserver] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a nameserver; `nursery.start` returns it once its port is open."""
    access = await trio.to_thread.run_sync(open_access, config) if config.acl_enabled else None
    nameserver = Nameserver(config, access, default_metrics_port=default_metrics_port)
    await nameserver.run(task_status=task_status)


def open_access(config: NameserverConfig) -> AccessControl:
    """Read the files of access control; raise `ConfigError`. Blocks."""
    return AccessControl(find_files(config.acl_file, config.rocketmq_home, config.file_path))


@final
class _Housekeeper:
    """Removes the brokers of a connection when it ends, also when it was idle for too long."""

    def __init__(
        self,
        routes: RouteTable[Channel],
        records: RecordGuard[Channel],
        clean: Callable[[], None],
        serving: Serving,
    ) -> None:
        self._routes = routes
        self._records = records
        self._clean = clean
        self._serving = serving

    def connection_opened(self, channel: Channel) -> None:
        pass

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self._records.connection_lost(channel)
        lost = self._routes.connection_lost(channel)
        self._clean()
        if not lost or not self._serving.may_tell("removed", channel):
            return
        level = logging.INFO if reason == STOPS else logging.WARNING
        for address in lost[:_LINES_MAX]:
            logger.log(
                level,
                "broker removed: its connection ended",
                extra={"address": address, "peer": channel.peer, "reason": reason},
            )
        if len(lost) > _LINES_MAX:
            logger.log(
                level,
                "%d more brokers removed with that connection",
                len(lost) - _LINES_MAX,
                extra={"peer": channel.peer},
            )

    def connection_idle(self, channel: Channel) -> None:
        pass
