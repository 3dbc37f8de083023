"""End to end: messages sent at an even pace, received by a consumer that long-polls.

The time of a message runs from when it was due to be sent, whether or not the sender was late, to
when the pull that brought it had been read.
"""

from __future__ import annotations

import itertools
import select
import time
from typing import Final

from benchmarks.broker_load.answers import (
    SENT_AT,
    AnswerCutter,
    is_success,
    max_offset,
    next_offset,
    sent_times,
)
from benchmarks.broker_load.figures import Outcome, Process, Watch, percentiles_ms
from benchmarks.broker_load.frames import (
    OPAQUE_FIRST,
    PullFrame,
    SendShape,
    UniqueKeys,
    max_offset_frame,
    send_frame,
)
from benchmarks.broker_load.peer import NoAnswerError, call, connect, read

WARM_UP_S: Final = 1.0
_DRAIN_S: Final = 2.0
_HEADS: Final = 4_096


class PacedSender:
    """Sends what is due, each message with its time in its body."""

    def __init__(self, port: int, shape: SendShape, *, queues: int, per_s: float) -> None:
        self.sock = connect(port)
        self.cutter = AnswerCutter()
        self.sent = 0
        keys = UniqueKeys()
        frames = (
            send_frame(shape, number % queues, OPAQUE_FIRST + number, keys)
            for number in range(_HEADS)
        )
        self._heads = itertools.cycle([frame[: -len(shape.body)] for frame in frames])
        self._tail = shape.body[SENT_AT.size :]
        self._interval_ns = 1e9 / per_s
        self._started_ns = time.perf_counter_ns()

    def send_due(self, now_ns: int) -> None:
        interval_ns, started_ns = self._interval_ns, self._started_ns
        parts: list[bytes] = []
        while (due_ns := started_ns + int(self.sent * interval_ns)) <= now_ns:
            parts += (next(self._heads), SENT_AT.pack(due_ns), self._tail)
            self.sent += 1
        if parts:
            self.sock.sendall(b"".join(parts))

    def take_answers(self) -> None:
        self.cutter.opaques(read(self.sock))


class LongPoller:
    """Keeps one pull per queue waiting at the broker, from the end of the queue on."""

    def __init__(self, port: int, topic: str, *, queues: int) -> None:
        self.sock = connect(port)
        self.cutter = AnswerCutter()
        self.arrived: list[tuple[int, int]] = []
        """When each message was due and when it was here, in nanoseconds."""
        self.pulls = 0
        self._pulls = {}
        for queue_id in range(queues):
            opaque = OPAQUE_FIRST + queue_id
            pull = self._pulls[opaque] = PullFrame(topic, queue_id, opaque, hold=True)
            end = max_offset(call(self.sock, max_offset_frame(topic, queue_id, opaque)))
            self.sock.sendall(pull.at(end))

    def take_answers(self) -> None:
        answers = self.cutter.answers(read(self.sock))
        now_ns = time.perf_counter_ns()
        frames: list[bytes] = []
        for opaque, header, body in answers:
            if not is_success(header):
                raise NoAnswerError(header.decode(errors="replace"))
            self.arrived += [(due_ns, now_ns) for due_ns in sent_times(body)]
            frames.append(self._pulls[opaque].at(next_offset(header)))
        self.pulls += len(frames)
        self.sock.sendall(b"".join(frames))


def end_to_end(
    port: int, broker: Process, shape: SendShape, *, queues: int, per_s: float, seconds: float
) -> Outcome:
    """Send at a pace for a while; the rate is that of arrivals."""
    poller = LongPoller(port, shape.topic, queues=queues)
    sender = PacedSender(port, shape, queues=queues, per_s=per_s)
    with select.epoll() as ready:
        ready.register(poller.sock, select.EPOLLIN)
        ready.register(sender.sock, select.EPOLLIN)
        by_number = {
            poller.sock.fileno(): poller.take_answers,
            sender.sock.fileno(): sender.take_answers,
        }

        def serve(seconds: float, *, sending: bool) -> None:
            end_ns = time.perf_counter_ns() + int(seconds * 1e9)
            # Never sleeps: the core is its own, and a timer would be late by up to a millisecond.
            while (now_ns := time.perf_counter_ns()) < end_ns:
                if sending:
                    sender.send_due(now_ns)
                elif len(poller.arrived) == sender.sent:
                    break
                for number, _ in ready.poll(0):
                    by_number[number]()

        serve(WARM_UP_S, sending=True)
        counted_from_ns = time.perf_counter_ns()
        arrived, pulls = len(poller.arrived), poller.pulls
        watch = Watch(broker)
        serve(seconds, sending=True)
        figures = watch.read(len(poller.arrived) - arrived)
        # All of a core by design, and no sign of trouble.
        del figures["load_cpu_share"]
        pulls = poller.pulls - pulls
        serve(_DRAIN_S, sending=False)
    missing = sender.sent - len(poller.arrived)
    poller.sock.close()
    sender.sock.close()
    latencies_s = [
        (here_ns - due_ns) / 1e9 for due_ns, here_ns in poller.arrived if due_ns >= counted_from_ns
    ]
    figures |= {**percentiles_ms(latencies_s), "requests": pulls, "missing": missing}
    return Outcome(figures, dict(sender.cutter.failures))
