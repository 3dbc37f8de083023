"""How long a scrape of many topics and groups takes, and how late everything else is meanwhile.

A broker is given topics, messages in all queues, and groups with an offset in each queue of the
topics they read, behind the end: every pair of topic and group has a lag. Then it is scraped
without a pause, much oftener than a Prometheus does, so that what the event loop notes of its own
lag falls into scrapes; a probe sends one message after the other meanwhile.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.broker_load.figures import percentile
from benchmarks.broker_load.frames import (
    OPAQUE_FIRST,
    SendShape,
    UniqueKeys,
    create_topic_frame,
    send_frame,
)
from benchmarks.broker_load.peer import connect
from benchmarks.broker_servers import BrokerFolder, OurBroker
from benchmarks.fairness.firing import Probe, probing_port
from benchmarks.fairness.scenario import PROBE_TOPIC, Target, frame
from benchmarks.fairness.site import PROBE_QUEUES, ask_all
from benchmarks.metrics.scraping import lag_at, loop_lags, samples, scrape
from interop.support.stock import free_port
from rmq.remoting.bodies import SubscriptionGroupConfig
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import UpdateConsumerOffsetRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.broker_servers import RunningBroker

GOAL_SCRAPE_S: Final = 0.2
GOAL_LAG_S: Final = 0.01
"""At most so late in 99 of 100 cases."""
_AT_ONCE: Final = 20_000
"""Requests that are built and sent before the next ones are."""
_WARM_UP: Final = 5
"""Scrapes before the first that counts: ages of messages are looked up by the first ones."""


@dataclass(frozen=True, slots=True)
class Size:
    """Topics and groups; each group reads a number of topics."""

    topics: int
    groups: int
    topics_each: int
    queues: int = 4
    has_goal: bool = True

    @property
    def name(self) -> str:
        return f"{self.topics:,} topics, {self.groups:,} groups"

    @property
    def pairs(self) -> int:
        return self.groups * self.topics_each


SIZES: Final = (
    Size(500, 500, 1),
    Size(500, 500, 10),
    Size(500, 500, 500, has_goal=False),
    Size(10_000, 1_000, 10, queues=1, has_goal=False),
)
"""500 and 500 with one pair for each group, as many pairs as are shown at most, and all there can
be; and a crowd that only has to stay within bounds.
"""


class Scraped(NamedTuple):
    """What was found out about one size."""

    size: Size
    samples: int
    text_bytes: int
    first_s: float
    took_s: list[float]
    cpu_s: float
    """CPU time of the broker by scrape, the sends of the probe included."""
    lag_s: float
    """99 of 100 times the event loop was not later than this."""
    sends_s: list[float]
    """How long the sends of the probe took."""
    idle_sends_s: list[float]
    """The same without scrapes."""

    @property
    def is_met(self) -> bool:
        return percentile(sorted(self.took_s), 0.99) <= GOAL_SCRAPE_S and self.lag_s <= GOAL_LAG_S


def measure_crowd(folder: Path, size: Size, seconds: float) -> Scraped:
    """Build the state, and scrape for a while."""
    with ExitStack() as stack:
        metrics_port = free_port()
        settings = {
            "metricsPort": str(metrics_port),
            "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
            # Thousands of queues have a file each.
            "mappedFileSizeConsumeQueue": str(20 * 1_000),
            "waitTimeMillsInSendQueue": "10000",
        }
        place = BrokerFolder(OurBroker(), folder / f"crowd-{size.pairs}-{size.topics}", settings)
        stack.callback(place.remove)
        broker = stack.enter_context(place.running())
        _build(broker, size)
        first_s = scrape(metrics_port)[1]
        for _ in range(_WARM_UP):
            text, _took_s = scrape(metrics_port)
        probe = stack.enter_context(probing_port(broker.port, Target.BROKER))
        idle_sends_s = _watch(probe, seconds / 2)
        return _scrape_for(
            seconds, broker, metrics_port, probe, (size, text, first_s, idle_sends_s)
        )


def _watch(probe: Probe, seconds: float) -> list[float]:
    probe.taken()
    time.sleep(seconds)
    return sorted(took_s for _, took_s in probe.taken())


def _scrape_for(
    seconds: float,
    broker: RunningBroker,
    metrics_port: int,
    probe: Probe,
    known: tuple[Size, str, float, list[float]],
) -> Scraped:
    size, text, first_s, idle_sends_s = known
    before, took_s = loop_lags(text), list[float]()
    probe.taken()
    cpu_s, end_s = broker.usage.cpu_s(), time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        text, took = scrape(metrics_port)
        took_s.append(took)
    cpu_s = broker.usage.cpu_s() - cpu_s
    sends_s = sorted(took for _, took in probe.taken())
    return Scraped(
        size,
        samples(text),
        len(text.encode()),
        first_s,
        took_s,
        cpu_s / len(took_s),
        lag_at(0.99, before, loop_lags(text)),
        sends_s,
        idle_sends_s,
    )


# --- the state -----------------------------------------------------------------------------------


def _build(broker: RunningBroker, size: Size) -> None:
    with connect(broker.port) as sock:
        frames = [create_topic_frame(PROBE_TOPIC, PROBE_QUEUES, OPAQUE_FIRST)]
        frames += [
            create_topic_frame(_topic(number), size.queues, OPAQUE_FIRST + number)
            for number in range(size.topics)
        ]
        ask_all(sock, frames)
        ask_all(sock, [_group_frame(_group(number)) for number in range(size.groups)])
        for some in (*_in_parts(_sends(size)), *_in_parts(_commits(size))):
            ask_all(sock, some)


def _in_parts(frames: Iterator[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    for each in frames:
        some.append(each)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    yield some


def _sends(size: Size) -> Iterator[bytes]:
    """Two messages for each queue."""
    keys = UniqueKeys()
    for _ in range(2):
        for number in range(size.topics):
            shape = SendShape(_topic(number), b"x" * 128)
            for queue_id in range(size.queues):
                yield send_frame(shape, queue_id, OPAQUE_FIRST + queue_id, keys)


def _commits(size: Size) -> Iterator[bytes]:
    """An offset behind the end for one queue of each topic that a group reads.

    The other queues count from their first message: a group that has read nothing of a queue has
    no offset there.
    """
    for group in range(size.groups):
        for number in range(size.topics_each):
            header = UpdateConsumerOffsetRequest(
                consumer_group=_group(group),
                topic=_topic(group * size.topics_each + number, size.topics),
                queue_id=0,
                commit_offset=1,
            )
            yield frame(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def _topic(number: int, count: int = 1 << 30) -> str:
    return f"CrowdTopic{number % count:05d}"


def _group(number: int) -> str:
    return f"CrowdGroup{number:05d}"


def _group_frame(name: str) -> bytes:
    body = SubscriptionGroupConfig(group_name=name).encode()
    return frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


# --- the table -----------------------------------------------------------------------------------


def crowd_table(found: Sequence[Scraped]) -> str:
    """Return what was found out as a table in Markdown."""
    lines = [
        "| state | pairs with a lag | samples | KB | first scrape ms"
        " | scrape ms: median, p99, worst | CPU ms | loop lag p99 ms | send ms p50, p99, worst"
        " | the same without scrapes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in found:
        cells = (
            each.size.name,
            f"{each.size.pairs:,}",
            f"{each.samples:,}",
            f"{each.text_bytes / 1e3:,.0f}",
            f"{each.first_s * 1e3:.0f}",
            f"{statistics.median(each.took_s) * 1e3:.0f}, {_high_ms(each.took_s)}",
            f"{each.cpu_s * 1e3:.0f}",
            f"at most {each.lag_s * 1e3:g}",
            f"{statistics.median(each.sends_s) * 1e3:.1f}, {_high_ms(each.sends_s, '.1f')}",
            f"{statistics.median(each.idle_sends_s) * 1e3:.1f},"
            f" {_high_ms(each.idle_sends_s, '.1f')}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _high_ms(values_s: Sequence[float], form: str = ".0f") -> str:
    ordered = sorted(values_s)
    return f"{percentile(ordered, 0.99) * 1e3:{form}}, {ordered[-1] * 1e3:{form}}"
