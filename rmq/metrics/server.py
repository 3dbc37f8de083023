"""The HTTP server that Prometheus asks, and the probes of systemd, Docker and Kubernetes.

    port = await nursery.start(serve_metrics, "127.0.0.1", 5557, Pages(registry, unready, "broker"))

`GET /metrics` answers with all metrics, `GET /healthz` (also `/-/healthy`) says that the event loop
runs, `GET /readyz` (also `/-/ready`) whether the server does what it is there for, and why not; `/`
has links to them. Everything is bounded: connections, the size of a request, the time for it and
for its answer, and one scrape is put together at a time. An idle connection is closed when another
one needs its place, so idle peers cannot keep a Prometheus out. There is no TLS and no password:
bind it to a network where every host may read.
"""

from __future__ import annotations

import errno
import html
import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import ListenError
from rmq.metrics.http import HEAD_BYTES_MAX, HTML, Exchange, Request
from rmq.remoting.addresses import format_address
from rmq.steps import in_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmq.metrics.registry import Registry, Scrape

CONNECTIONS_MAX: Final = 16
READ_S: Final = 5.0
"""Within this time a request must be there, all of it."""
SCRAPE_S: Final = 10.0
"""Within this time a scrape must be put together; Prometheus waits no longer."""
REFRESH_S: Final = 2.0
"""Within this time files must be read for a scrape."""
SEND_S: Final = 5.0
LINGER_S: Final = 1.0
"""How long a peer may go on sending after its response."""
LINGER_BYTES: Final = 64 * 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What a server shows."""

    registry: Registry
    unready: Callable[[], Sequence[str]]
    """Why it is not ready, a word or sentence each; none if it is."""
    title: str
    """What the process is, for the page of links."""
    describe: Callable[[], Mapping[str, str]] = field(default=dict)
    """A few facts about it, by their names."""


async def serve_metrics(
    host: str,
    port: int,
    pages: Pages,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `started` with the port, which the system chooses if it is 0."""
    listeners = await listen(host, port)
    await serve_listeners(listeners, pages, task_status=task_status)


async def serve_listeners(
    listeners: list[trio.SocketListener],
    pages: Pages,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on ports that are open, until cancelled; `started` with the first one."""
    server = MetricsServer(pages)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        task_status.started(int(listeners[0].socket.getsockname()[1]))


async def listen(host: str, port: int) -> list[trio.SocketListener]:
    """Open a port; raise `ListenError`."""
    try:
        return await trio.open_tcp_listeners(port, host=host)
    except (OSError, UnicodeError) as exc:
        raise _listen_error(host, port, exc) from exc


def _listen_error(host: str, port: int, error: OSError | UnicodeError) -> ListenError:
    hint, reason = None, str(error)
    if isinstance(error, OSError):
        reason = error.strerror or reason
        if error.errno == errno.EADDRINUSE:
            hint = "another process listens there: stop it, or choose another metricsPort"
        elif error.errno == errno.EADDRNOTAVAIL:
            hint = "this machine has no such address: choose another metricsAddress"
    return ListenError(format_address((host, port)), reason, hint=hint)


@final
class MetricsServer:
    """What the connections share."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._registry = pages.registry
        self._open = 0
        self._reading: dict[trio.CancelScope, None] = {}
        """Connections without a request yet, the oldest first."""
        self._limiter = trio.CapacityLimiter(1)
        self._one_scrape = trio.Lock()

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
        exchange = Exchange()
        request = await self._receive(stream, exchange)
        if request is None:
            return
        if isinstance(request, HTTPStatus):
            pieces = [exchange.answer(request)]
        else:
            pieces = await self._route(exchange, request)
        with trio.move_on_after(SEND_S):
            for piece in pieces:
                await stream.send_all(piece)
            await stream.send_eof()
            await _linger(stream)

    async def _receive(
        self, stream: trio.abc.HalfCloseableStream, exchange: Exchange
    ) -> Request | HTTPStatus | None:
        """Return the request or what is wrong with it, None if there will be none."""
        with trio.move_on_after(READ_S) as scope:
            self._reading[scope] = None
            try:
                while True:
                    some = await stream.receive_some(HEAD_BYTES_MAX)
                    if not some:
                        return None
                    request = exchange.receive(bytes(some))
                    if request is not None:
                        return request
            finally:
                self._reading.pop(scope, None)
        return None

    async def _route(self, exchange: Exchange, request: Request) -> list[bytes]:
        """Return the answer in pieces."""
        pages = {
            "/": self._index,
            "/metrics": self._metrics,
            "/healthz": self._healthy,
            "/-/healthy": self._healthy,
            "/readyz": self._ready,
            "/-/ready": self._ready,
        }
        page = pages.get(request.path)
        if page is None:
            return [exchange.answer(HTTPStatus.NOT_FOUND)]
        if request.method not in ("GET", "HEAD"):
            headers = {"Allow": "GET, HEAD"}
            return [exchange.answer(HTTPStatus.METHOD_NOT_ALLOWED, headers=headers)]
        return await page(exchange, request)

    async def _healthy(self, exchange: Exchange, request: Request) -> list[bytes]:
        return [exchange.answer(HTTPStatus.OK, b"healthy\n")]

    async def _ready(self, exchange: Exchange, request: Request) -> list[bytes]:
        reasons = self._pages.unready()
        if not reasons:
            return [exchange.answer(HTTPStatus.OK, b"ready\n")]
        text = "not ready\n" + "".join(f"{reason}\n" for reason in reasons)
        body = text.encode("utf-8", "replace")
        return [exchange.answer(HTTPStatus.SERVICE_UNAVAILABLE, body)]

    async def _index(self, exchange: Exchange, request: Request) -> list[bytes]:
        facts = {
            **self._pages.describe(),
            "ready": ", ".join(self._pages.unready()) or "yes",
        }
        return [exchange.answer(HTTPStatus.OK, _page_of_links(self._pages.title, facts), HTML)]

    async def _metrics(self, exchange: Exchange, request: Request) -> list[bytes]:
        scrapes = self._registry.scrapes
        try:
            with trio.fail_after(SCRAPE_S):
                async with self._one_scrape:
                    content_type, text = await self._scrape(request)
        except trio.TooSlowError:
            scrapes.failed += 1
            return [exchange.answer(HTTPStatus.SERVICE_UNAVAILABLE)]
        except Exception as exc:  # noqa: BLE001 - a scrape that fails must not end the server
            scrapes.failed += 1
            if scrapes.failed & (scrapes.failed - 1) == 0:
                _log.exception("scrape %d failed: %s", scrapes.failed, exc)
            return [exchange.answer(HTTPStatus.INTERNAL_SERVER_ERROR)]
        scrapes.answered += 1
        return exchange.answer_pieces(HTTPStatus.OK, text, content_type)

    async def _scrape(self, request: Request) -> tuple[str, list[bytes]]:
        began = trio.current_time()
        scrape = self._registry.begin(request.query)
        await in_steps(scrape.preparing())
        await self._refresh(scrape)
        await in_steps(scrape.writing(request.headers.get("accept", "")))
        self._registry.scrapes.duration_s = trio.current_time() - began
        return scrape.content_type, scrape.pieces

    async def _refresh(self, scrape: Scrape) -> None:
        """Read what takes a while, but not for long: what is not read in time is not shown."""
        if self._limiter.available_tokens < 1:
            # The last one has not come back: a disk that hangs must not stop all scrapes.
            return
        with trio.move_on_after(REFRESH_S):
            await trio.to_thread.run_sync(
                scrape.refresh, limiter=self._limiter, abandon_on_cancel=True
            )


_PATHS: Final = {
    "/metrics": "for Prometheus, as text or as OpenMetrics",
    "/healthz": "200 while the process does its work",
    "/readyz": "200 while it does what it is there for, else 503 and why not",
}


def _page_of_links(title: str, facts: Mapping[str, str]) -> bytes:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>\n"
        for name, text in facts.items()
    )
    links = "".join(
        f'<li><a href="{path}">{path}</a>: {text}</li>\n' for path, text in _PATHS.items()
    )
    shown = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{shown}</title></head><body>\n<h1>{shown}</h1>\n<table>\n{rows}</table>\n"
        f"<ul>\n{links}</ul>\n</body></html>\n"
    ).encode("utf-8", "replace")


async def _linger(stream: trio.abc.HalfCloseableStream) -> None:
    """Wait for the peer to close: what it still sends would make the kernel drop the answer."""
    left = LINGER_BYTES
    with trio.move_on_after(LINGER_S):
        while left > 0:
            some = await stream.receive_some(4096)
            if not some:
                return
            left -= len(some)
