"""Pulls from memory: every consumer has one pull under way for each of its queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.answers import AnswerCutter, check_records, is_success, next_offset
from benchmarks.broker_load.figures import Outcome, Process, Watch, percentiles_ms
from benchmarks.broker_load.frames import OPAQUE_FIRST, PULL_MESSAGES_MAX, PullFrame
from benchmarks.broker_load.peer import NoAnswerError, connect, read, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

WARM_UP_S: Final = 0.5
_CHECKED_EVERY: Final = 16
"""One answer of so many is looked through record by record; the others by their offsets."""


class Consumer:
    """One connection that reads its queues from end to end, over and over."""

    def __init__(self, port: int, topic: str, queue_ids: Sequence[int], each: int) -> None:
        self.sock = connect(port)
        self.cutter = AnswerCutter()
        self.messages = 0
        self.body_bytes = 0
        self.latencies_s: list[float] = []
        self._each = each
        self._pulls = {
            OPAQUE_FIRST + queue_id: PullFrame(topic, queue_id, OPAQUE_FIRST + queue_id, hold=False)
            for queue_id in queue_ids
        }
        self._offsets = dict.fromkeys(self._pulls, 0)
        self._sent_s = dict.fromkeys(self._pulls, 0.0)
        self._answers = 0

    def start(self) -> None:
        now = time.perf_counter()
        self._sent_s = dict.fromkeys(self._pulls, now)
        self.sock.sendall(b"".join([pull.at(0) for pull in self._pulls.values()]))

    def restart_count(self) -> None:
        self.messages = self.body_bytes = 0
        self.latencies_s = []

    def take_answers(self) -> None:
        now = time.perf_counter()
        frames: list[bytes] = []
        for opaque, header, body in self.cutter.answers(read(self.sock)):
            if not is_success(header):
                raise NoAnswerError(header.decode(errors="replace"))
            offset = self._offsets[opaque]
            following = next_offset(header)
            count = following - offset
            self._answers += 1
            if self._answers % _CHECKED_EVERY == 0:
                check_records(body, offset, count)
            self.messages += count
            self.body_bytes += len(body)
            self.latencies_s.append(now - self._sent_s[opaque])
            self._sent_s[opaque] = now
            # A short pull at the end would cost as much as a full one and count for less.
            if following > self._each - PULL_MESSAGES_MAX:
                following = 0
            self._offsets[opaque] = following
            frames.append(self._pulls[opaque].at(following))
        if frames:
            self.sock.sendall(b"".join(frames))


def consume(
    port: int,
    broker: Process,
    topic: str,
    *,
    queues: int,
    each: int,
    consumers: int,
    seconds: float,
) -> Outcome:
    """Pull for a while; latencies are those of pulls, rates those of messages."""
    crowd = [
        Consumer(port, topic, range(number, queues, consumers), each) for number in range(consumers)
    ]
    for consumer in crowd:
        consumer.start()
    serve(crowd, WARM_UP_S)
    for consumer in crowd:
        consumer.restart_count()
    watch = Watch(broker)
    serve(crowd, seconds)
    figures = watch.read(sum(consumer.messages for consumer in crowd))
    took_s = time.perf_counter() - watch.started_s
    for consumer in crowd:
        consumer.sock.close()
    latencies_s = [latency for consumer in crowd for latency in consumer.latencies_s]
    return Outcome(
        {
            **figures,
            **percentiles_ms(latencies_s),
            "requests": len(latencies_s),
            "mb_per_s": sum(consumer.body_bytes for consumer in crowd) / took_s / 1e6,
        }
    )
