"""What the queries of dashboards are made of. Pure.

`$job` and its like are variables of the dashboards. What a process says of itself
(`process_cpu_seconds_total` and its like) has no labels but those of Prometheus.
"""

from __future__ import annotations

from typing import Final

BROKERS: Final = 'job=~"$job", cluster=~"$cluster", node_id=~"$broker", instance=~"$instance"'
PROCESSES: Final = 'job=~"$job", instance=~"$instance"'
NAMESERVERS: Final = 'job=~"$job", instance=~"$nameserver"'
PIPELINES: Final = 'pipeline=~"$pipeline", target=~"$target"'
INTERVAL: Final = "$__rate_interval"
"""Long enough for a rate at every distance between two points."""


def of(name: str, *matchers: str, among: str = BROKERS) -> str:
    """Return the selector of a metric."""
    return f"{name}{{{', '.join((among, *matchers))}}}"


def total(expression: str, by: str = "") -> str:
    """Return the sum, one for each value of the labels."""
    return f"sum by ({by}) ({expression})" if by else f"sum({expression})"


def rate(
    name: str, *matchers: str, by: str = "", among: str = BROKERS, over: str = INTERVAL
) -> str:
    """Return how much a counter grows in a second."""
    return total(f"rate({of(name, *matchers, among=among)}[{over}])", by)


def increase(
    name: str, *matchers: str, by: str = "", among: str = BROKERS, over: str = INTERVAL
) -> str:
    """Return by how much a counter grew in a time."""
    return total(f"increase({of(name, *matchers, among=among)}[{over}])", by)


def quantile(part: float, name: str, *matchers: str, by: str = "", among: str = BROKERS) -> str:
    """Return the value below which a part of all values of a histogram are."""
    labels = f"{by}, le" if by else "le"
    return (
        f"histogram_quantile({part}, {rate(f'{name}_bucket', *matchers, by=labels, among=among)})"
    )


def buckets(name: str, *matchers: str) -> str:
    """Return how often a histogram noted which value, for a heat map."""
    return increase(f"{name}_bucket", *matchers, by="le")


def states(metric: str, numbers: dict[str, int], by: str) -> str:
    """Return one number for each broker: that of the state it is in.

    The keys are matchers, such as `state="idle"`; the metric is 1 for the present state.
    """
    parts = " or ".join(f"{of(metric, matcher)} * {n}" for matcher, n in numbers.items())
    return f"max by ({by}) ({parts})"
