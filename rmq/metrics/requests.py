"""Metrics of the ports of a server: connections, and requests by their code.

Codes are words, and only those that the server serves: what a peer makes up counts as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.metrics.families import Catalogue
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rmq.counting.requests import CodeCounts
    from rmq.metrics.families import Sheet
    from rmq.remoting.server import ServerStatistics

CATALOGUE: Final = Catalogue()

REQUESTS: Final = CATALOGUE.counter(
    "rocketmq_requests_total",
    "Requests by what they were answered; one-way ones by what they would have been.",
    "request_code",
    "response_code",
)
LATENCY: Final = CATALOGUE.histogram(
    "rocketmq_rpc_latency_seconds",
    "From the arrival of a request to its answer.",
    "request_code",
    "is_long_polling",
)
CONNECTIONS: Final = CATALOGUE.gauge(
    "rocketmq_remoting_connections", "Connections that are open.", "listener"
)
OPENED: Final = CATALOGUE.counter(
    "rocketmq_remoting_connections_opened_total", "Connections that were accepted.", "listener"
)
CLOSED: Final = CATALOGUE.counter(
    "rocketmq_remoting_connections_closed_total", "Connections that have ended.", "listener"
)
REFUSED: Final = CATALOGUE.counter(
    "rocketmq_remoting_connections_refused_total",
    "Connections that were closed at once, because there were too many.",
    "listener",
)
WATERMARK: Final = CATALOGUE.gauge(
    "rocketmq_processor_watermark", "Requests that are not answered yet.", "processor"
)
CAPACITY: Final = CATALOGUE.gauge(
    "rocketmq_processor_capacity", "How many of them there may be; more are refused.", "processor"
)

OTHER: Final = "other"
NONE: Final = "none"
"""What a request was answered whose connection had ended, or that wants no answer."""
_REQUESTS: Final = {int(code): code.name.lower() for code in RequestCode}
_RESPONSES: Final = {int(code): code.name.lower() for code in ResponseCode}


@final
class RequestMetrics:
    """Shows what the ports of a server have counted, by what they are called."""

    catalogue: Final = CATALOGUE

    def __init__(self, servers: Callable[[], Mapping[str, ServerStatistics]]) -> None:
        self._servers = servers

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        servers = self._servers()
        for listener, server in servers.items():
            _put_connections(sheet, listener, server)
        _put_groups(sheet, servers)
        yield
        codes = sorted({code for server in servers.values() for code in server.counts})
        for code in codes:
            counts = [server.counts[code] for server in servers.values() if code in server.counts]
            _put_code(sheet, _REQUESTS.get(code, OTHER), counts)
        unknown = sum(server.unknown_codes for server in servers.values())
        if unknown:
            sheet.put(REQUESTS, unknown, OTHER, _RESPONSES[ResponseCode.REQUEST_CODE_NOT_SUPPORTED])
        yield


def _put_connections(sheet: Sheet, listener: str, server: ServerStatistics) -> None:
    sheet.put(CONNECTIONS, server.endpoint.connections, listener)
    sheet.put(OPENED, server.accepted, listener)
    sheet.put(CLOSED, max(0, server.accepted - server.endpoint.connections), listener)
    sheet.put(REFUSED, server.refused_connections, listener)


def _put_groups(sheet: Sheet, servers: Mapping[str, ServerStatistics]) -> None:
    unanswered: dict[str, int] = {}
    capacity: dict[str, int] = {}
    for server in servers.values():
        for group in server.groups:
            unanswered[group.name] = unanswered.get(group.name, 0) + group.unanswered
            own = server.capacities[group.name]
            capacity[group.name] = capacity.get(group.name, 0) + own
    for name, count in unanswered.items():
        sheet.put(WATERMARK, count, name)
        sheet.put(CAPACITY, capacity[name], name)


def _put_code(sheet: Sheet, request_code: str, counts: list[CodeCounts]) -> None:
    """Put what was counted of one code; nothing of one that was never asked for."""
    answers: dict[str, int] = {}
    for each in counts:
        for code, count in each.by_code().items():
            word = _RESPONSES.get(code, OTHER)
            answers[word] = answers.get(word, 0) + count
        if each.dropped:
            answers[NONE] = answers.get(NONE, 0) + each.dropped
    for word, count in answers.items():
        sheet.put(REQUESTS, count, request_code, word)
    for is_held, histograms in (
        ("false", [each.latency for each in counts]),
        ("true", [each.held for each in counts]),
    ):
        noted = [histogram for histogram in histograms if histogram.count]
        if noted:
            sheet.put_histogram(LATENCY, noted[0].plus(*noted[1:]), request_code, is_held)
