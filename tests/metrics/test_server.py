"""The HTTP server for metrics, over sockets and, where time matters, over memory."""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import pytest
import trio
import trio.testing

from rmq.broker.metrics.replication import HaMetrics
from rmq.errors import ListenError
from rmq.metrics import server as metrics_server
from rmq.metrics.families import Catalogue
from rmq.metrics.http import HEAD_BYTES_MAX
from rmq.metrics.server import (
    CONNECTIONS_MAX,
    READ_S,
    SEND_S,
    MetricsServer,
    serve_metrics,
)
from tests.broker.metrics.metrics_kit import (
    master_status,
    metrics_of,
    pages_of,
    scraped,
    statistics,
    value,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from rmq.metrics.families import Sheet
    from rmq.metrics.server import Pages
    from rmq.remoting.bodies import HaStatusBody


HEALTHY = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def exchange(port: int, request: bytes) -> bytes:
    """Send some bytes and return all that comes back."""
    received = b""
    with trio.fail_after(10):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(request)
            async for some in stream:
                received += some
    return received


async def ask(port: int, request: bytes) -> Answer:
    """Send a request and return its answer."""
    head, _, body = (await exchange(port, request)).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), headers, body)


async def get(port: int, path: str, *, method: str = "GET", accept: str = "*/*") -> Answer:
    request = f"{method} {path} HTTP/1.1\r\nHost: broker\r\nAccept: {accept}\r\n\r\n"
    return await ask(port, request.encode("latin-1"))


@asynccontextmanager
async def serving(pages: Pages | None = None) -> AsyncIterator[int]:
    """Serve metrics of a master for the length of the block, on the port it yields."""
    if pages is None:
        pages = pages_of(metrics_of(master_status()))
    async with trio.open_nursery() as nursery:
        yield await nursery.start(serve_metrics, "127.0.0.1", 0, pages)
        nursery.cancel_scope.cancel()


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;version=1.0.0,*/*;q=0.1", "application/openmetrics-text;"),
        ("application/openmetrics-text;version=none", "text/plain; version=0.0.4; charset=utf-8"),
    ],
    ids=["plain", "OpenMetrics", "nonsense"],
)
async def test_metrics_come_in_the_format_that_is_asked_for(accept: str, content_type: str) -> None:
    async with serving() as port:
        answer = await get(port, "/metrics", accept=accept)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith(content_type)
    assert answer.headers["content-length"] == str(len(answer.body))
    found = scraped(answer.headers["content-type"], answer.body)
    assert value(found, "rocketmq_broker_epoch") == 7
    assert found["process_resident_memory_bytes", frozenset()] > 0


async def test_scrapes_are_counted_from_the_second_on() -> None:
    async with serving() as port:
        first = await get(port, "/metrics")
        second = await get(port, "/metrics")
    one, two = (scraped(each.headers["content-type"], each.body) for each in (first, second))
    assert value(one, "rocketmq_scrapes_total") == 0
    assert value(two, "rocketmq_scrapes_total") == 1
    assert value(one, "rocketmq_scrape_duration_seconds") is None
    assert value(two, "rocketmq_scrape_duration_seconds") is not None


@pytest.mark.parametrize("path", ["/healthz", "/-/healthy"])
async def test_a_process_whose_loop_runs_is_healthy_ready_or_not(path: str) -> None:
    async with serving(pages_of(unready=("recovering: the store is being opened",))) as port:
        answer = await get(port, path)
    assert (answer.status, answer.body) == (200, b"healthy\n")


@pytest.mark.parametrize("path", ["/readyz", "/-/ready"])
async def test_one_that_is_not_ready_says_why(path: str) -> None:
    async with serving() as port:
        answer = await get(port, path)
    assert (answer.status, answer.body) == (200, b"ready\n")
    reasons = ("disk_full: the disk is full", "not_registered: no nameserver lists this broker")
    async with serving(pages_of(unready=reasons)) as port:
        answer = await get(port, path)
    assert answer.status == 503
    assert answer.body.decode().splitlines() == ["not ready", *reasons]


async def test_the_first_page_has_links_to_all_others() -> None:
    pages = dataclasses.replace(
        pages_of(unready=("a <b>",)), describe=lambda: {"name": "<script>", "id": "0"}
    )
    async with serving(pages) as port:
        answer = await get(port, "/")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        text = answer.body.decode()
        links = re.findall(r'href="([^"]+)"', text)
        assert links == ["/metrics", "/healthz", "/readyz"]
        for link in links:
            assert (await get(port, link)).status in (200, 503)
    assert "&lt;script&gt;" in text
    assert "a &lt;b&gt;" in text
    assert "<script>" not in text


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/-/healthy"])
async def test_head_is_answered_without_a_body(path: str) -> None:
    async with serving() as port:
        answer = await get(port, path, method="HEAD")
    assert answer.status == 200
    assert int(answer.headers["content-length"]) > 0
    assert answer.body == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
async def test_other_methods_are_not_allowed(method: str) -> None:
    async with serving() as port:
        answer = await get(port, "/metrics", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/metrics/", "/favicon.ico", "/-/healthy/x", "/../metrics"])
async def test_other_paths_are_not_found(path: str) -> None:
    async with serving() as port:
        assert (await get(port, path)).status == 404


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"GARBAGE\r\n\r\n", 400, id="no request"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400, id="TLS, at once"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 3_000, 431, id="endless headers"),
        pytest.param(b"GET /" + b"a" * 2 * HEAD_BYTES_MAX, 431, id="endless path"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9_000, 431, id="more than is read"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_next_one_served(
    request_bytes: bytes, status: int
) -> None:
    async with serving() as port:
        assert (await ask(port, request_bytes)).status == status
        assert (await get(port, "/metrics")).status == 200


async def test_a_request_with_a_body_gets_its_answer() -> None:
    request = b"POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 30000\r\n\r\n" + b"x" * 30_000
    async with serving() as port:
        assert (await ask(port, request)).status == 405


async def test_a_peer_that_ends_without_asking_gets_nothing() -> None:
    async with serving() as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET /metrics HTT")
            await stream.send_eof()
            assert await stream.receive_some() == b""
        assert (await get(port, "/metrics")).status == 200


async def test_a_peer_that_breaks_off_does_no_harm() -> None:
    async with connected(MetricsServer(pages_of())) as [peer]:
        await peer.send_all(HEALTHY)
        await peer.aclose()
        await trio.testing.wait_all_tasks_blocked()


async def test_a_scrape_that_fails_is_an_answer_and_not_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_broken = True

    def status() -> HaStatusBody:
        if is_broken:
            raise RuntimeError("no status today")
        return master_status()

    async with serving(pages_of(HaMetrics(status, statistics))) as port:
        with caplog.at_level(logging.ERROR):
            for _ in range(5):
                assert (await get(port, "/metrics")).status == 500
        assert (await get(port, "/-/healthy")).status == 200
        is_broken = False
        answer = await get(port, "/metrics")
    found = scraped(answer.headers["content-type"], answer.body)
    assert value(found, "rocketmq_scrape_errors_total") == 5
    # The first, the second and the fourth: a Prometheus does not give up.
    assert [record.getMessage() for record in caplog.records] == [
        f"scrape {number} failed: no status today" for number in (1, 2, 4)
    ]


async def test_a_port_that_is_taken_is_named() -> None:
    async with serving() as port:
        with pytest.raises(
            ListenError, match=f"127.0.0.1:{port}: Address already in use"
        ) as caught:
            await serve_metrics("127.0.0.1", port, pages_of())
    assert caught.value.hint is not None
    assert "metricsPort" in caught.value.hint


# --- limits -------------------------------------------------------------------------------------


async def test_those_who_connect_and_ask_nothing_make_room_for_those_who_ask() -> None:
    async with serving() as port:
        idle = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        with trio.fail_after(READ_S / 2):
            for _ in range(3):
                assert (await get(port, "/metrics")).status == 200
        for stream in idle:
            await stream.aclose()


async def drip(peer: trio.abc.SendStream, piece: bytes, pause_s: float) -> None:
    """Send a little, and again, until the other end is closed."""
    while True:
        await peer.send_all(piece)
        await trio.sleep(pause_s)


@asynccontextmanager
async def connected(
    server: MetricsServer, count: int = 1, *, lockstep: bool = False
) -> AsyncIterator[list[trio.abc.Stream]]:
    """Peers of a server, over memory."""
    peers: list[trio.abc.Stream] = []
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            # One after the other.
            await trio.testing.wait_all_tasks_blocked()
            ours: trio.abc.Stream
            theirs: trio.abc.HalfCloseableStream
            if lockstep:
                ours, theirs = trio.testing.lockstep_stream_pair()
            else:
                ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(server.serve, theirs)
            peers.append(ours)
        await trio.testing.wait_all_tasks_blocked()
        yield peers
        nursery.cancel_scope.cancel()


async def test_the_one_that_has_waited_longest_makes_room() -> None:
    server = MetricsServer(pages_of())
    async with connected(server, CONNECTIONS_MAX) as idle, connected(server, 2) as late:
        for peer in idle[:2]:
            assert await peer.receive_some() == b""
        for peer in (*idle[2:], *late):
            await peer.send_all(HEALTHY)
            assert (await peer.receive_some()).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_request_has_five_seconds_however_it_drips(
    autojump_clock: trio.testing.MockClock,
) -> None:
    started = trio.current_time()
    async with connected(MetricsServer(pages_of())) as [peer]:
        with pytest.raises(trio.BrokenResourceError):
            await drip(peer, b"G", 0.4)
        assert await peer.receive_some() == b""
    assert trio.current_time() - started <= READ_S + 0.4


async def test_a_peer_that_does_not_take_its_answer_is_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = MetricsServer(pages_of())
    async with connected(server, lockstep=True) as [peer]:
        await peer.send_all(HEALTHY)
        await trio.sleep(SEND_S + READ_S + 0.1)
        with pytest.raises(trio.BrokenResourceError):
            await peer.send_all(b"x")


async def test_who_goes_on_sending_after_the_answer_is_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connected(MetricsServer(pages_of())) as [peer]:
        await peer.send_all(HEALTHY)
        assert (await peer.receive_some()).startswith(b"HTTP/1.1 200 OK\r\n")
        started = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            await drip(peer, b"x" * 1000, 0.3)
        assert trio.current_time() - started <= 2


async def test_while_all_are_being_answered_one_more_is_closed_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = MetricsServer(pages_of())
    async with connected(server, CONNECTIONS_MAX, lockstep=True) as busy:
        for peer in busy:
            await peer.send_all(HEALTHY)
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        async with connected(server) as [late]:
            assert await late.receive_some() == b""
        assert trio.current_time() == started
        # Those that were there first get their answers.
        for peer in busy:
            assert (await peer.receive_some()).startswith(b"HTTP/1.1 200 OK\r\n")


@final
class HungDisk:
    """Something to read that does not come until it is let."""

    catalogue: Final = Catalogue()

    def __init__(self) -> None:
        self.comes = threading.Event()
        self.reads = 0

    def refresh(self) -> None:
        self.reads += 1
        self.comes.wait(10)

    def collect(self, sheet: Sheet) -> Iterator[None]:
        return iter(())


async def test_a_disk_that_hangs_costs_a_scrape_what_is_read_from_it_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "REFRESH_S", 0.01)
    disk = HungDisk()
    async with serving(pages_of(metrics_of(master_status()), disk)) as port:
        try:
            for _ in range(3):
                answer = await get(port, "/metrics")
                assert answer.status == 200
                assert b"rocketmq_broker_epoch{" in answer.body
        finally:
            disk.comes.set()
    # It was not asked again while the first answer was awaited.
    assert disk.reads == 1


async def test_scrapes_that_come_together_are_put_together_one_after_the_other() -> None:
    busy = most = 0

    @final
    class Counting:
        catalogue: Final = Catalogue()

        def collect(self, sheet: Sheet) -> Iterator[None]:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            for _ in range(5):
                yield
            busy -= 1

    async with serving(pages_of(Counting())) as port, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(get, port, "/metrics")
    assert most == 1
