"""All connections of an asyncio client: one per address, made when needed, and again when lost."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from rmq.client.aio.callbacks import in_callback
from rmq.client.aio.connection import Connection
from rmq.client.aio.waiting import Awaited
from rmq.client.core.broker_requests import Reply
from rmq.errors import (
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    ProtocolError,
    RefusedError,
    RequestTimeoutError,
    RmqError,
    to_keep,
)
from rmq.remoting.addresses import parse_address
from rmq.remoting.busy_wait import BusyWait, Wakings, give_way
from rmq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq.remoting.command import FrameEncoder
from rmq.remoting.headers import ConsumeMessageDirectlyRequest
from rmq.remoting.layout import FRAME_BYTES_MAX
from rmq.remoting.session import Deadlines
from rmq.remoting.tls_config import client_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from rmq.client.aio.calls import Call
    from rmq.client.core.broker_requests import BrokerRequests
    from rmq.client.core.config import ClientConfig
    from rmq.client.tasks.loop import ConnectionOwner
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

logger = logging.getLogger(__name__)

T = TypeVar("T")

SERVED_MAX: Final = 64
"""Requests of brokers that wait for a listener; further ones are refused."""
_CLOSE_S: Final = 1.0
"""How long asyncio may take to let go of sockets."""


@final
class Connections:
    """See `rmq.client.tasks.loop.Connections`."""

    def __init__(
        self, config: ClientConfig, requests: BrokerRequests, owner: ConnectionOwner
    ) -> None:
        self.wakings = Wakings()
        self.credentials = config.credentials
        self.encoder = FrameEncoder(language=LanguageCode.PYTHON, frame_bytes_max=FRAME_BYTES_MAX)
        self.now: Callable[[], float] = time.monotonic
        """The clock of the loop, once it runs."""
        self.in_callback = in_callback()
        self._serialization = config.serialization
        self._connect_timeout_s = config.connect_timeout_s
        self._tls = None if config.tls is None else client_context(config.tls)
        self._requests = requests
        self._owner = owner
        self._busy_wait = BusyWait(config.busy_wait_s)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[str, Connection] = {}
        self._dialling: dict[str, asyncio.Task[Connection | RmqError]] = {}
        self._closing: set[Connection] = set()
        """Connections that have ended, whose sockets asyncio still has."""
        self._serving: set[asyncio.Task[None]] = set()
        self._deadlines: Deadlines[Call] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run for the length of a block. What was sent just before its end still leaves."""
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        try:
            yield
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    for connection in list(self._open.values()):
                        await connection.wait_written()
            except TimeoutError:
                logger.debug("not all that was sent has left")
        finally:
            self._loop = None
            await self._close()

    async def _close(self) -> None:
        tasks: list[asyncio.Future[Any]] = [*self._dialling.values(), *self._serving]
        for task in tasks:
            task.cancel()
        for connection in list(self._open.values()):
            connection.close("the client is closing")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks += [connection.lost for connection in self._closing]
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)

    # --- connections -------------------------------------------------------------------------

    def open_channel_to(self, address: str) -> Connection | None:
        """Return the open connection to an address if there is one."""
        return self._open.get(address)

    async def channel(self, address: str) -> Connection:
        """Return the connection to an address, made now if there is none; raise `ClientError`."""
        connection = self._open.get(address)
        if connection is not None:
            return connection
        # All callers wait for one attempt, which is a task of its own: a caller that is cancelled
        # does not cancel it for the others.
        attempt = self._dialling.get(address)
        if attempt is None:
            if self._loop is None:
                raise ClientClosedError("the client")
            attempt = self._dialling[address] = self._loop.create_task(
                self._dial(address, self._loop), name=f"rmq connects to {address}"
            )
        outcome = await asyncio.shield(attempt)
        if isinstance(outcome, RmqError):
            raise to_keep(outcome)
        return outcome

    async def _dial(self, address: str, loop: asyncio.AbstractEventLoop) -> Connection | RmqError:
        timeout_s = self._connect_timeout_s
        try:
            host, port = parse_address(address)
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(address, self, loop),
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=None if self._tls is None else host,
                )
        except RmqError as exc:
            return exc
        except TimeoutError:
            return ConnectFailedError(address, f"no connection within {timeout_s:g} s")
        except OSError as exc:
            return ConnectFailedError(address, _reason(exc))
        except UnicodeError as exc:
            return ConnectFailedError(address, f"{host!r} is no host name: {exc}")
        finally:
            del self._dialling[address]
        if connection.close_reason is not None:
            return ConnectFailedError(address, connection.close_reason)
        self._open[address] = connection
        self._owner.channel_opened(connection)
        return connection

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]
        if not connection.lost.done():
            self._closing.add(connection)
            connection.lost.add_done_callback(lambda _: self._closing.discard(connection))

    # --- requests ----------------------------------------------------------------------------

    async def request(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
    ) -> Command:
        """Send a request and wait for its answer; connecting counts against `timeout_s`."""
        started = self.now()
        connection = await self._connected(address, code, timeout_s)
        awaited: Awaited[Command | ClientError] = Awaited(self.wakings)
        # No other call is in flight: none would share the write, and a busy-wait is allowed.
        is_first = not connection.calls_under_way and not self.wakings.count
        call = connection.submit(
            code,
            header,
            on_outcome=awaited,
            body=body,
            timeout_s=timeout_s - (self.now() - started),
            extra=extra,
            serialization=self._serialization,
            is_urgent=is_first,
        )
        if is_first:
            try:
                await self.busy_wait_for(awaited, lambda: connection.calls_under_way == 1)
            except BaseException:
                connection.abandon(call)
                raise
        if awaited.outcome is None:
            await awaited.sleep(lambda: connection.abandon(call))
            awaited.woke()
        outcome = awaited.outcome
        assert outcome is not None, "woken without an outcome"
        if isinstance(outcome, RequestTimeoutError):
            # Connecting took a part of the time; the caller knows the whole.
            raise RequestTimeoutError(address, code.name, timeout_s)
        if isinstance(outcome, ClientError):
            try:
                raise outcome
            finally:
                # Its traceback holds this frame, which holds it and the body.
                del outcome, awaited
        return outcome

    async def oneway(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
    ) -> None:
        """Send a request that gets no answer. Returns when it is queued for writing."""
        connection = await self._connected(address, code, timeout_s)
        connection.oneway(
            code,
            header,
            body=body,
            extra=extra,
            remark=remark,
            serialization=self._serialization,
        )

    async def _connected(self, address: str, code: RequestCode, timeout_s: float) -> Connection:
        connection = self._open.get(address)
        if connection is not None:
            return connection
        try:
            async with asyncio.timeout(timeout_s):
                return await self.channel(address)
        except TimeoutError:
            raise RequestTimeoutError(address, code.name, timeout_s) from None

    async def busy_wait_for(self, awaited: Awaited[T], is_alone: Callable[[], bool]) -> None:
        """Busy-wait for an outcome while `is_alone()`, up to the limit.

        The loop goes round meanwhile, so all other tasks and callbacks run.
        """
        busy_wait = self._busy_wait
        if not busy_wait.is_worth_it():
            return
        until = time.perf_counter() + busy_wait.limit_s
        while is_alone():
            await asyncio.sleep(0)
            if awaited.outcome is not None:
                busy_wait.found()
                return
            if time.perf_counter() >= until:
                busy_wait.missed()
                return
            give_way()

    # --- deadlines ---------------------------------------------------------------------------

    def watch(self, deadline: float, call: Call) -> None:
        """Complete a call with a timeout if it is not complete by then."""
        if self._deadlines.add(deadline, call):
            self._set_timer(deadline)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loop is not None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        with self.in_callback:
            for call in self._deadlines.expire(self.now()):
                if not call.is_complete:
                    call.connection.expire(call)
        deadline = self._deadlines.next_at()
        if deadline is not None and self._timer is None:
            self._set_timer(deadline)

    # --- what brokers ask --------------------------------------------------------------------

    def serve(self, connection: Connection, command: Command) -> Reply | None:
        """Serve a request of a broker; None: it is answered later, or not at all."""
        if command.code != RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return self._requests.answer(connection.peer, command)
        if self._loop is None or len(self._serving) >= SERVED_MAX:
            return Reply(ResponseCode.SYSTEM_BUSY, f"{len(self._serving)} messages are consumed")
        task = self._loop.create_task(self._consume_directly(connection, command))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return None

    async def _consume_directly(self, connection: Connection, command: Command) -> None:
        try:
            header = command.header(ConsumeMessageDirectlyRequest)
            consumer, record = self._requests.listener_for(header, command.body)
            result = await consumer.consume_directly(record, header.broker_name or "")
            reply = Reply(ResponseCode.SUCCESS, body=result.encode())
        except RefusedError as exc:
            reply = Reply(exc.code, exc.remark)
        except ProtocolError as exc:
            reply = Reply(ResponseCode.SYSTEM_ERROR, str(exc))
        except Exception:
            logger.exception("a message could not be consumed for %s", connection.peer)
            reply = Reply(ResponseCode.SYSTEM_ERROR, "internal error")
        connection.answer(command, reply)


def _reason(exc: OSError) -> str:
    if exc.errno is not None and exc.errno > 0 and exc.strerror:
        # asyncio adds the address, which is known.
        return os.strerror(exc.errno)
    return exc.strerror or str(exc) or type(exc).__name__
