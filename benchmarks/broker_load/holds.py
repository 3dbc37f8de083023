"""Long polls held in numbers: what they cost while nothing happens, and whom a message wakes."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.answers import AnswerCutter, is_success, max_offset
from benchmarks.broker_load.figures import Outcome, Process, Watch
from benchmarks.broker_load.frames import (
    OPAQUE_FIRST,
    PullFrame,
    SendShape,
    UniqueKeys,
    max_offset_frame,
    send_frame,
)
from benchmarks.broker_load.peer import NoAnswerError, call, connect, read

if TYPE_CHECKING:
    import socket

_SETTLE_S: Final = 3.0
_LISTEN_S: Final = 2.0
"""How long after the last expected answer an unexpected one is waited for."""


class HoldingClient:
    """One connection with a pull held in each of many queues."""

    def __init__(self, port: int) -> None:
        self.sock = connect(port)
        self.cutter = AnswerCutter()

    def hold(self, pulls: list[bytes]) -> None:
        self.sock.sendall(b"".join(pulls))

    def take_answers(self) -> list[int]:
        """Return the queues whose pulls have been answered."""
        queue_ids = []
        for opaque, header, _ in self.cutter.answers(read(self.sock)):
            if not is_success(header):
                raise NoAnswerError(header.decode(errors="replace"))
            queue_ids.append(opaque - OPAQUE_FIRST)
        return queue_ids


def hold(
    port: int,
    broker: Process,
    topic: str,
    *,
    queues: int,
    connections: int,
    seconds: float,
) -> Outcome:
    """Hold a pull per connection and queue; then send one message to one queue."""
    with connect(port) as admin:
        before_mb = broker.memory_mb()[0]
        pulls = _pulls_from_the_end(admin, topic, queues)
        clients = [HoldingClient(port) for _ in range(connections)]
        for client in clients:
            client.hold(pulls)
        by_number = {client.sock.fileno(): client for client in clients}
        with select.epoll() as ready:
            for number in by_number:
                ready.register(number, select.EPOLLIN)
            if early := _answers(ready, by_number, _SETTLE_S):
                raise NoAnswerError(f"{len(early)} pulls were answered with nothing to pull")
            held_mb = broker.memory_mb()[0]
            watch = Watch(broker)
            early = _answers(ready, by_number, seconds)
            figures = watch.read(0)
            queue_id = queues // 2
            started_s = time.perf_counter()
            shape = SendShape(topic, b"x" * 128)
            call(admin, send_frame(shape, queue_id, OPAQUE_FIRST, UniqueKeys()))
            woken = _answers(ready, by_number, _LISTEN_S, expected=connections)
        for client in clients:
            client.sock.close()
    right = {number for number, woken_queue, _ in woken if woken_queue == queue_id}
    times_s = sorted(when_s - started_s for _, _, when_s in woken)
    return Outcome(
        {
            "holds": connections * queues,
            "broker_cpu_share": figures["broker_cpu_share"],
            "resident_mb": held_mb,
            "kb_each": (held_mb - before_mb) * 1024 / (connections * queues),
            "woken": len(woken),
            # Each holder of the queue once, nobody else, and nobody before there was a message.
            "exact": float(len(right) == len(woken) == connections and not early),
            "first_ms": times_s[0] * 1e3 if times_s else 0.0,
            "last_ms": times_s[-1] * 1e3 if times_s else 0.0,
        }
    )


def _pulls_from_the_end(admin: socket.socket, topic: str, queues: int) -> list[bytes]:
    frames = []
    for queue_id in range(queues):
        end = max_offset(call(admin, max_offset_frame(topic, queue_id, OPAQUE_FIRST)))
        frames.append(PullFrame(topic, queue_id, OPAQUE_FIRST + queue_id, hold=True).at(end))
    return frames


def _answers(
    ready: select.epoll,
    by_number: dict[int, HoldingClient],
    seconds: float,
    *,
    expected: int | None = None,
) -> list[tuple[int, int, float]]:
    """Return connection, queue and time of every answer within `seconds`.

    If some are expected, the time begins again with each that was.
    """
    found: list[tuple[int, int, float]] = []
    end = time.perf_counter() + seconds
    while (left_s := end - time.perf_counter()) > 0:
        for number, _ in ready.poll(left_s):
            now = time.perf_counter()
            found += [(number, queue_id, now) for queue_id in by_number[number].take_answers()]
            if expected is not None and len(found) <= expected:
                end = now + seconds
    return found
