"""The self-check of `rmq dev` for metrics: both brokers report their role."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import trio

from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.cli.dev.pair import DevBroker

SCRAPE_S: Final = 5.0
_BYTES_MAX: Final = 4 * 1024**2
ROLE: Final = b"rocketmq_broker_role{"


class MetricsFailedError(RmqError):
    """A broker does not serve its metrics, or serves wrong ones."""


async def check_metrics(pair: Sequence[DevBroker]) -> str:
    """Scrape both brokers once; return a line with the result."""
    samples = 0
    for broker in pair:
        lines = (await _scrape(broker.metrics)).splitlines()
        roles = [
            line
            for line in lines
            if line.startswith(ROLE)
            and broker.role.encode() in line
            and float(line.rpartition(b" ")[2]) == 1
        ]
        if not roles:
            raise MetricsFailedError(f"{broker.metrics} does not say that it is the {broker.role}")
        samples += sum(not line.startswith(b"#") for line in lines)
    return f"{samples} metrics read from both brokers"


async def _scrape(url: str) -> bytes:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    answer = bytearray()
    try:
        with trio.fail_after(SCRAPE_S):
            stream = await trio.open_tcp_stream(parts.hostname, parts.port)
            async with stream:
                await stream.send_all(
                    f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
                )
                async for data in stream:
                    answer += data
                    if len(answer) > _BYTES_MAX:
                        raise MetricsFailedError(f"{url} does not end")
    except (OSError, trio.TooSlowError, trio.BrokenResourceError) as exc:
        raise MetricsFailedError(f"{url} cannot be read: {exc}") from exc
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise MetricsFailedError(f"{url} answers {head[:100]!r}")
    return body
