"""What counting and scraping cost by send: brokers that take turns on one core.

One counts nothing (`uncounted`), one counts and serves no metrics, one is scraped every second,
fifteen times as often as usual. All are loaded with the same bytes in turns, in another order every
round; what counts is the median of the ratios within a round, because the speed of a machine moves
from one minute to the next by more than all of this.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.bench_broker import run_load
from benchmarks.broker_servers import ROOT, BrokerFolder, OurBroker
from benchmarks.metrics.scraping import scraping
from benchmarks.metrics.uncounted import copy_uncounted
from interop.support.stock import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.broker_servers import RunningBroker

UNCOUNTED: Final = "not counted"
COUNTED: Final = "counted"
SCRAPED: Final = "counted, scraped every second"
GOAL: Final = 0.03
"""The share of a send that all of it may cost."""
_SCRAPE_S: Final = 1.0
_TOPIC: Final = "BenchProduce"
_QUEUES: Final = 4
_PATIENT: Final = {"waitTimeMillsInSendQueue": "10000"}
"""A broker that is short of CPU time for a moment refuses nothing."""
LOADS: Final = {
    "64 in flight on one connection": (64, 1),
    "64 in flight on 16 connections": (64, 16),
    "1 in flight": (1, 1),
}
"""Requests under way, and connections."""


class Cost(NamedTuple):
    """What was measured of one load: figures by broker, round by round."""

    rates: dict[str, list[float]]
    cpu_us: dict[str, list[float]]

    def by_rate(self, who: str) -> list[float]:
        """Return by what share sends of a broker were fewer, in each round."""
        pairs = zip(self.rates[who], self.rates[UNCOUNTED], strict=True)
        return [1 - ours / without for ours, without in pairs]

    def by_cpu(self, who: str) -> list[float]:
        """Return by what share they took more CPU time, in each round."""
        pairs = zip(self.cpu_us[who], self.cpu_us[UNCOUNTED], strict=True)
        return [ours / without - 1 for ours, without in pairs]


class _Broker(NamedTuple):
    running: RunningBroker
    metrics_port: int


def measure_overhead(folder: Path, *, rounds: int, seconds: float) -> dict[str, Cost]:
    """Return the cost of each load."""
    bare = folder / "uncounted"
    copy_uncounted(ROOT, bare)
    with ExitStack() as stack:
        brokers = {
            UNCOUNTED: _start(stack, folder / "bare", bare, 0),
            COUNTED: _start(stack, folder / "counted", ROOT, 0),
            SCRAPED: _start(stack, folder / "scraped", ROOT, free_port()),
        }
        for each in brokers.values():
            run_load("topics", each.running.port, f"{_TOPIC}={_QUEUES}")
            for inflight, connections in LOADS.values():
                _load(each, inflight, connections, OurBroker().run_in_s / len(LOADS))
        return {
            name: _measure(brokers, inflight, connections, rounds, seconds)
            for name, (inflight, connections) in LOADS.items()
        }


def _start(stack: ExitStack, folder: Path, root: Path, metrics_port: int) -> _Broker:
    settings = {**_PATIENT, "metricsPort": str(metrics_port)}
    place = BrokerFolder(OurBroker(root=root), folder, settings)
    stack.callback(place.remove)
    return _Broker(stack.enter_context(place.running()), metrics_port)


def _measure(
    brokers: Mapping[str, _Broker], inflight: int, connections: int, rounds: int, seconds: float
) -> Cost:
    cost = Cost({who: [] for who in brokers}, {who: [] for who in brokers})
    order = list(brokers)
    for _ in range(rounds):
        for who in order:
            figures = _load(brokers[who], inflight, connections, seconds)
            cost.rates[who].append(figures["messages_per_s"])
            cost.cpu_us[who].append(figures["cpu_us"])
        order.append(order.pop(0))
    return cost


def _load(broker: _Broker, inflight: int, connections: int, seconds: float) -> dict[str, float]:
    options = {
        "--pid": broker.running.process.pid,
        "--topic": _TOPIC,
        "--queues": _QUEUES,
        "--inflight": inflight,
        "--connections": connections,
        "--seconds": seconds,
    }
    flat = [str(text) for option in options.items() for text in option]
    port = broker.metrics_port
    with scraping(port, _SCRAPE_S) if port else nullcontext():
        outcome = run_load("produce", broker.running.port, *flat)
    if outcome.failures:
        raise RuntimeError(f"sends were refused: {outcome.failures}")
    return outcome.figures


def overhead_table(costs: Mapping[str, Cost]) -> str:
    """Return the costs as a table in Markdown."""
    lines = [
        "| sends | broker | messages/s | CPU µs by send | fewer by rate | more CPU |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, cost in costs.items():
        for who in cost.rates:
            rate, cpu_us = statistics.median(cost.rates[who]), statistics.median(cost.cpu_us[who])
            shares = ["-", "-"] if who == UNCOUNTED else [_share(cost.by_rate(who))]
            if who != UNCOUNTED:
                shares.append(_share(cost.by_cpu(who)))
            cells = (name, who, f"{rate:,.0f}", f"{cpu_us:.2f}", *shares)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _share(values: Sequence[float]) -> str:
    """Return the median, and between what half of the rounds lie."""
    if len(values) < 2:
        return f"{values[0]:.1%}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.1%} ({low:.1%} to {high:.1%})"


def dear(costs: Mapping[str, Cost]) -> list[str]:
    """Return the loads of which metrics cost more than the goal, by their medians."""
    return [
        name
        for name, cost in costs.items()
        if statistics.median(cost.by_rate(SCRAPED)) > GOAL
        or statistics.median(cost.by_cpu(SCRAPED)) > GOAL
    ]
