"""A load generator that does as little as it can: frames are made once, answers only counted.

    python -m benchmarks.load PORT --inflight 64 --connections 1 --body 128 --seconds 2 [--flood]

Keeps `inflight` SEND_MESSAGE_V2 requests under way, spread over the connections, and prints one
JSON line: answers per second, failures, latency percentiles. With `--flood` it adds one connection
that keeps 1,000 requests of its own under way; figures are those of the others.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import time
from collections import deque
from typing import Final

from rmq.remoting.codes import LanguageCode, RequestCode
from rmq.remoting.command import FrameEncoder
from rmq.remoting.headers import SendMessageRequestV2

QUEUES: Final = 4
FLOOD_INFLIGHT: Final = 1_000
WARM_UP_S: Final = 0.5


def make_frames(body_bytes: int) -> list[bytes]:
    """One request per queue, as a stock client writes it."""
    body = b"x" * body_bytes
    encoder = FrameEncoder(language=LanguageCode.JAVA)
    frames = []
    for queue_id in range(QUEUES):
        header = SendMessageRequestV2(
            producer_group="bench_group",
            topic="BenchTopic",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties="UNIQ_KEY\x01FD0000000000000000000000000000022ADD5FFD2B274DD978D40000\x02WAIT\x01true",
            reconsume_times=0,
        )
        head = encoder.frame(
            code=RequestCode.SEND_MESSAGE_V2,
            opaque=1000 + queue_id,
            header=header,
            body_length=len(body),
        )
        frames.append(head + body)
    return frames


class Connection:
    """One connection with a fixed number of requests under way."""

    def __init__(self, port: int, frames: list[bytes], inflight: int, *, counted: bool) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.counted = counted
        self.latencies: list[float] = []
        self.answers = 0
        self.failures = 0
        self._frames = frames
        self._next = 0
        self._rest = b""
        self._sent: deque[tuple[float, int]] = deque()
        self._push(inflight)

    def reset(self) -> None:
        self.latencies = []
        self.answers = self.failures = 0

    def take_answers(self) -> None:
        data = self.sock.recv(1 << 18)
        if not data:
            raise SystemExit("the server closed the connection")
        data = self._rest + data
        position = count = 0
        size = len(data)
        while size - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > size:
                break
            if data.find(b'"code":0,', position, end) < 0:
                self.failures += 1
            position = end
            count += 1
        self._rest = data[position:]
        if not count:
            return
        self.answers += count
        now = time.perf_counter()
        left = count
        while left:
            sent_at, sent = self._sent.popleft()
            self.latencies.append(now - sent_at)
            if sent > left:
                self._sent.appendleft((sent_at, sent - left))
                left = 0
            else:
                left -= sent
        self._push(count)

    def _push(self, count: int) -> None:
        frames = self._frames
        start = self._next
        self._next = start + count
        self._sent.append((time.perf_counter(), count))
        self.sock.sendall(b"".join([frames[(start + i) % QUEUES] for i in range(count)]))


def run(
    port: int, *, inflight: int, connections: int, body_bytes: int, seconds: float, flood: bool
) -> dict[str, float]:
    frames = make_frames(body_bytes)
    each = max(1, inflight // connections)
    peers = [Connection(port, frames, each, counted=True) for _ in range(connections)]
    if flood:
        peers.append(Connection(port, frames, FLOOD_INFLIGHT, counted=False))
    selector = selectors.DefaultSelector()
    for peer in peers:
        selector.register(peer.sock, selectors.EVENT_READ, peer)
    started = time.perf_counter() + WARM_UP_S
    end = started + seconds
    warm = False
    while (now := time.perf_counter()) < end:
        if not warm and now >= started:
            warm = True
            started = now
            for peer in peers:
                peer.reset()
        for key, _ in selector.select(1):
            key.data.take_answers()
    took = time.perf_counter() - started
    counted = [peer for peer in peers if peer.counted]
    latencies = sorted(latency for peer in counted for latency in peer.latencies)

    def percentile_ms(share: float) -> float:
        return round(latencies[min(len(latencies) - 1, int(len(latencies) * share))] * 1000, 3)

    return {
        "answers_per_s": round(sum(peer.answers for peer in counted) / took),
        "all_answers_per_s": round(sum(peer.answers for peer in peers) / took),
        "failures": sum(peer.failures for peer in peers),
        "p50_ms": percentile_ms(0.5),
        "p99_ms": percentile_ms(0.99),
        "max_ms": round(latencies[-1] * 1000, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--inflight", type=int, default=64)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--flood", action="store_true")
    args = parser.parse_args()
    result = run(
        args.port,
        inflight=args.inflight,
        connections=args.connections,
        body_bytes=args.body,
        seconds=args.seconds,
        flood=args.flood,
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
