"""Scrapes a broker as a Prometheus does, and reads a few numbers of it."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.peer import NoAnswerError, connect, read

if TYPE_CHECKING:
    from collections.abc import Iterator

_REQUEST: Final = (
    b"GET /metrics HTTP/1.1\r\nHost: broker\r\n"
    b"Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n"
)
_LAG: Final = re.compile(
    r'^rocketmq_event_loop_lag_seconds_bucket\{.*le="([^"]+)"\} (\d+)$', re.MULTILINE
)


def scrape(port: int) -> tuple[str, float]:
    """Return the text of a scrape, and how long it took from the connection to the last byte."""
    began_s = time.perf_counter()
    received = bytearray()
    with connect(port) as sock:
        sock.sendall(_REQUEST)
        while b"\r\n\r\n" not in received:
            received += read(sock)
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if not head.startswith(b"HTTP/1.1 200 ") or length is None:
            raise NoAnswerError(f"no metrics: {head[:80]!r}")
        pieces, left = [body], int(length[1]) - len(body)
        while left > 0:
            pieces.append(read(sock))
            left -= len(pieces[-1])
        took_s = time.perf_counter() - began_s
    return b"".join(pieces).decode(), took_s


@contextmanager
def scraping(port: int, interval_s: float) -> Iterator[list[float]]:
    """Scrape again and again for the length of a block; give how long each took."""
    took_s: list[float] = []
    has_ended = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        try:
            while not has_ended.is_set():
                took_s.append(scrape(port)[1])
                has_ended.wait(interval_s)
        except (NoAnswerError, OSError) as exc:
            failures.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield took_s
    finally:
        has_ended.set()
        thread.join()
    if failures:
        raise failures[0]


def samples(text: str) -> int:
    """Return how many samples a scrape has."""
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))


def loop_lags(text: str) -> dict[float, int]:
    """Return how often the event loop was at most so late, by bound."""
    return {float(bound): int(count) for bound, count in _LAG.findall(text)}


def lag_at(share: float, before: dict[float, int], after: dict[float, int]) -> float:
    """Return the bound that at least this share of the lags between two scrapes kept, in s."""
    noted = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    total = noted.get(float("inf"), 0)
    if not total:
        raise NoAnswerError("the event loop noted no lag between two scrapes")
    return min(bound for bound, count in noted.items() if count >= share * total)
