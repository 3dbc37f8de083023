"""Sends: a fixed number of requests under way, the next one sent for every answer."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.answers import AnswerCutter
from benchmarks.broker_load.figures import Outcome, Process, Watch, percentiles_ms
from benchmarks.broker_load.frames import (
    OPAQUE_FIRST,
    SendShape,
    UniqueKeys,
    send_frame,
    send_rings,
)
from benchmarks.broker_load.peer import (
    NoAnswerError,
    connect,
    read,
    serve,
    wait_for_messages,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# How many messages have keys of their own before they come round again.
KEYS: Final = 8_192
WARM_UP_S: Final = 0.5
_FILL_INFLIGHT: Final = 64


class Producer:
    """One connection with its share of the requests under way."""

    def __init__(self, port: int, rings: dict[int, Iterator[bytes]]) -> None:
        self.sock = connect(port)
        self.cutter = AnswerCutter()
        self.latencies_s: list[float] = []
        self.answers = 0
        self._rings = rings
        self._sent_s: dict[int, float] = {}

    def start(self) -> None:
        self._send(list(self._rings))

    def restart_count(self) -> None:
        self.latencies_s = []
        self.answers = 0
        self.cutter.failures.clear()

    def take_answers(self) -> None:
        opaques = self.cutter.opaques(read(self.sock))
        if not opaques:
            return
        now = time.perf_counter()
        sent_s = self._sent_s
        self.latencies_s += [now - sent_s[opaque] for opaque in opaques]
        self.answers += len(opaques)
        self._send(opaques)

    def _send(self, opaques: list[int]) -> None:
        rings = self._rings
        frames = b"".join([next(rings[opaque]) for opaque in opaques])
        self._sent_s.update(dict.fromkeys(opaques, time.perf_counter()))
        self.sock.sendall(frames)


def produce(
    port: int,
    broker: Process,
    shape: SendShape,
    *,
    queues: int,
    inflight: int,
    connections: int,
    seconds: float,
) -> Outcome:
    """Send for a while; latencies are those of requests, rates those of messages."""
    keys = UniqueKeys()
    producers = []
    for number in range(connections):
        share = inflight // connections + (number < inflight % connections)
        opaques = range(OPAQUE_FIRST, OPAQUE_FIRST + share)
        keys_min = KEYS // connections
        rings = send_rings(shape, opaques, queues=queues, keys=keys, keys_min=keys_min)
        producers.append(Producer(port, rings))
    for producer in producers:
        producer.start()
    serve(producers, WARM_UP_S)
    for producer in producers:
        producer.restart_count()
    watch = Watch(broker)
    serve(producers, seconds)
    answers = sum(producer.answers for producer in producers)
    failures = sum((producer.cutter.failures for producer in producers), Counter[str]())
    figures = watch.read((answers - failures.total()) * shape.batch)
    for producer in producers:
        producer.sock.close()
    latencies_s = [latency for producer in producers for latency in producer.latencies_s]
    figures |= {**percentiles_ms(latencies_s), "requests": answers}
    return Outcome(figures, dict(failures))


def fill(port: int, shape: SendShape, *, queues: int, each: int) -> None:
    """Put at least `each` messages into every queue, and wait until they can be consumed.

    The queues take turns with every request: without batches no message lies beside another one of
    its queue, as in a log that many producers write to.
    """
    keys = UniqueKeys()
    frames = [
        send_frame(shape, number % queues, OPAQUE_FIRST, keys)
        for number in range(-(-KEYS // (shape.batch * queues)) * queues)
    ]
    left = -(-each // shape.batch) * queues
    supply = itertools.cycle(frames)
    cutter = AnswerCutter()
    with connect(port) as sock:
        while left:
            waiting = min(left, _FILL_INFLIGHT)
            left -= waiting
            sock.sendall(b"".join(itertools.islice(supply, waiting)))
            while waiting:
                waiting -= len(cutter.opaques(read(sock)))
    if cutter.failures:
        raise NoAnswerError(f"while filling {shape.topic}: {dict(cutter.failures)}")
    wait_for_messages(port, shape.topic, queues, each)
