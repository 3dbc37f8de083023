"""The running nameserver: its tables, handlers and tasks.

Nameservers know nothing of each other. Brokers register with each of them and clients ask one, so
any number of them may run side by side.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import trio

from rmq.access.control import AccessControl, admin_rights
from rmq.access.files import find_files
from rmq.access.watch import watch
from rmq.errors import ListenError
from rmq.model.in_sync_record import NAMESPACE
from rmq.nameserver.config import LiveConfig
from rmq.nameserver.handlers import ConfigHandlers, KvHandlers, RouteHandlers
from rmq.nameserver.kv_keeper import KvKeeper
from rmq.nameserver.record_guard import RecordGuard, recorded_epoch
from rmq.nameserver.route_answers import RouteAnswers
from rmq.nameserver.routes import RouteTable
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.event_loop.lag import LoopLag
from rmq.remoting.event_loop.watch import watch_loop
from rmq.remoting.server import RemotingServer
from rmq.remoting.tls import TlsServer

if TYPE_CHECKING:
    from rmq.nameserver.config import NameserverConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.server import ServerStatistics

logger = logging.getLogger(__name__)


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

    def __init__(self, config: NameserverConfig, access: AccessControl | None = None) -> None:
        self.config = LiveConfig(config)
        self.access = access
        self._kv = KvKeeper(config.kv_path)
        self._routes: RouteTable[Channel] = RouteTable(
            recorded=lambda name: recorded_epoch(self._kv.table.get(NAMESPACE, name))
        )
        guard: RecordGuard[Channel] = RecordGuard(self._routes.epoch_of)
        self.table = HandlerTable()
        answers = RouteAnswers(self._routes)
        RouteHandlers(self._routes, answers, self._kv, self.config).add_to(self.table)
        KvHandlers(self._kv, guard).add_to(self.table)
        ConfigHandlers(self.config, is_admin=admin_rights(self.access)).add_to(self.table)
        self.server = RemotingServer(
            self.table,
            config.server,
            tls=TlsServer(config.tls),
            listeners=[_Housekeeper(self._routes, guard)],
            guard=None if self.access is None else self.access.guard,
            # As the original: a request with an unknown code is not answered.
            answer_unknown=False,
        )

    @property
    def port(self) -> int:
        """The port in use; only while the nameserver runs."""
        return self.server.port

    def statistics(self) -> NameserverStatistics:
        return NameserverStatistics(
            brokers=self._routes.address_count,
            topics=self._routes.topic_count,
            kv_values=len(self._kv.table),
            server=self.server.statistics(),
        )

    def stop(self, grace_s: float = 5.0) -> None:
        """Accept nothing more, answer open requests within `grace_s`, and return from `run`."""
        self.server.stop(grace_s=grace_s)

    async def run(
        self, *, task_status: trio.TaskStatus[Nameserver] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `stop` or until cancelled. `started` means that the port is open.

        Raise `ConfigError` for a KV config that cannot be read, `ListenError` for a port that
        cannot be opened.
        """
        await self._kv.load()
        error: ListenError | None = None
        async with trio.open_nursery() as nursery:

            async def serve(*, task_status: trio.TaskStatus[RemotingServer]) -> None:
                await self.server.run(task_status=task_status)
                # The other tasks outlive the server, so that queued changes are written.
                nursery.cancel_scope.cancel()

            nursery.start_soon(self._kv.run)
            nursery.start_soon(self._scan)
            if self.access is not None:
                nursery.start_soon(watch, self.access.poll)
            nursery.start_soon(watch_loop, LoopLag(), lambda: self.server.recent_codes)
            try:
                await nursery.start(serve)
            except ListenError as exc:
                # Raised again outside of the nursery, as itself instead of in a group.
                error = exc
                nursery.cancel_scope.cancel()
            else:
                task_status.started(self)
        if error is not None:
            raise error

    async def _scan(self) -> None:
        while True:
            await trio.sleep(self.config.current.scan_interval_s)
            expiry_s = self.config.current.broker_expiry_s
            for expired in self._routes.expire(trio.current_time(), expiry_s):
                logger.warning(
                    "broker removed: it did not register for %.0f s",
                    expired.silent_s,
                    extra={"address": expired.address},
                )
                if expired.connection is not None:
                    expired.connection.close(f"no registration for {expired.silent_s:.0f} s")


async def serve_nameserver(
    config: NameserverConfig,
    *,
    task_status: trio.TaskStatus[Nameserver] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a nameserver; `nursery.start` returns it once its port is open."""
    access = await trio.to_thread.run_sync(open_access, config) if config.acl_enabled else None
    await Nameserver(config, access).run(task_status=task_status)


def open_access(config: NameserverConfig) -> AccessControl:
    """Read the files of access control; raise `ConfigError`. Blocks."""
    return AccessControl(find_files(config.acl_file, config.rocketmq_home, config.file_path))


@final
class _Housekeeper:
    """Removes the brokers of a connection when it ends, also when it was idle for too long."""

    def __init__(self, routes: RouteTable[Channel], guard: RecordGuard[Channel]) -> None:
        self._routes = routes
        self._guard = guard

    def connection_opened(self, channel: Channel) -> None:
        pass

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self._guard.connection_lost(channel)
        for address in self._routes.connection_lost(channel):
            logger.warning(
                "broker removed: its connection ended",
                extra={"address": address, "peer": channel.peer, "reason": reason},
            )

    def connection_idle(self, channel: Channel) -> None:
        pass
