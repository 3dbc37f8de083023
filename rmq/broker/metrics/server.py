"""The HTTP server that Prometheus asks.

    port = await nursery.start(serve_metrics, "0.0.0.0", 5557, BrokerRegistry(HaMetrics(...)))

`GET /metrics` answers with all metrics, `GET /-/healthy` says that the event loop runs. Everything
is bounded: connections, the size of a request, the time for it and for its answer. An idle
connection is closed when another one needs its place, so idle peers cannot keep a Prometheus out.
There is no TLS and no password: bind it to a network where every host may read.
"""

from __future__ import annotations

import errno
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.metrics.exposition import exposition
from rmq.broker.metrics.http import HEAD_BYTES_MAX, Request, answer, parse_head, take_head
from rmq.errors import ListenError
from rmq.remoting.addresses import format_address

if TYPE_CHECKING:
    from rmq.broker.metrics.registry import BrokerRegistry

CONNECTIONS_MAX: Final = 16
READ_S: Final = 5.0
"""Within this time a request must be there, all of it."""
SEND_S: Final = 5.0
LINGER_S: Final = 1.0
"""How long a peer may go on sending after its response."""
LINGER_BYTES: Final = 64 * 1024

_log = logging.getLogger(__name__)


async def serve_metrics(
    host: str,
    port: int,
    registry: BrokerRegistry,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `started` with the port, which the system chooses if it is 0."""
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except (OSError, UnicodeError) as exc:
        raise _listen_error(host, port, exc) from exc
    server = MetricsServer(registry)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        task_status.started(int(listeners[0].socket.getsockname()[1]))


def _listen_error(host: str, port: int, error: OSError | UnicodeError) -> ListenError:
    hint, reason = None, str(error)
    if isinstance(error, OSError):
        reason = error.strerror or reason
        if error.errno == errno.EADDRINUSE:
            hint = "another process listens there: stop it, or choose another metricsPort"
    return ListenError(format_address((host, port)), reason, hint=hint)


@final
class MetricsServer:
    """What the connections share."""

    def __init__(self, registry: BrokerRegistry) -> None:
        self._registry = registry
        self._open = 0
        self._reading: dict[trio.CancelScope, None] = {}
        """Connections without a request yet, the oldest first."""
        self._limiter = trio.CapacityLimiter(1)

    async def serve(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Serve one connection."""
        if self._open >= CONNECTIONS_MAX and not self._make_room():
            await trio.aclose_forcefully(stream)
            return
        self._open += 1
        try:
            async with stream:
                await self._answer(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            _log.debug("a connection for metrics ended early: %s", exc)
        finally:
            self._open -= 1

    def _make_room(self) -> bool:
        for scope in self._reading:
            scope.cancel()
            # It ends at its next step; until then it must not be chosen again.
            del self._reading[scope]
            return True
        return False

    async def _answer(self, stream: trio.abc.HalfCloseableStream) -> None:
        head = await self._receive_head(stream)
        if head is None:
            return
        request = head if isinstance(head, HTTPStatus) else parse_head(head)
        whole = answer(request) if isinstance(request, HTTPStatus) else await self._route(request)
        with trio.move_on_after(SEND_S):
            await stream.send_all(whole)
            await stream.send_eof()
            await _linger(stream)

    async def _receive_head(
        self, stream: trio.abc.HalfCloseableStream
    ) -> bytes | HTTPStatus | None:
        """Return the head of the request or what is wrong with it, None if there will be none."""
        received = bytearray()
        with trio.move_on_after(READ_S) as scope:
            self._reading[scope] = None
            try:
                while True:
                    some = await stream.receive_some(HEAD_BYTES_MAX + 1)
                    if not some:
                        return None
                    received += some
                    head = take_head(received)
                    if head is not None:
                        return head
            finally:
                self._reading.pop(scope, None)
        return None

    async def _route(self, request: Request) -> bytes:
        if request.path not in ("/metrics", "/-/healthy"):
            return answer(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            return answer(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        is_head = request.method == "HEAD"
        if request.path == "/-/healthy":
            return answer(HTTPStatus.OK, b"healthy\n", is_head=is_head)
        scrapes = self._registry.scrapes
        try:
            content_type, text = await self._scrape(request.headers.get("accept", ""))
        except Exception as exc:  # noqa: BLE001 - a scrape that fails must not end the broker
            scrapes.failed += 1
            if scrapes.failed & (scrapes.failed - 1) == 0:
                _log.exception("scrape %d failed: %s", scrapes.failed, exc)
            return answer(HTTPStatus.INTERNAL_SERVER_ERROR, is_head=is_head)
        scrapes.answered += 1
        return answer(HTTPStatus.OK, text, content_type, is_head=is_head)

    async def _scrape(self, accept: str) -> tuple[str, bytes]:
        began = trio.current_time()
        await trio.to_thread.run_sync(self._registry.refresh, limiter=self._limiter)
        found = await exposition(self._registry, accept)
        self._registry.scrapes.duration_s = trio.current_time() - began
        return found


async def _linger(stream: trio.abc.HalfCloseableStream) -> None:
    """Wait for the peer to close: what it still sends would make the kernel drop the answer."""
    left = LINGER_BYTES
    with trio.move_on_after(LINGER_S):
        while left > 0:
            some = await stream.receive_some(4096)
            if not some:
                return
            left -= len(some)
