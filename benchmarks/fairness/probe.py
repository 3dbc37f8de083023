"""A client that does one small thing at a time and says how long each took.

    python -m benchmarks.fairness.probe send|route PORT

It goes on until its standard input ends. A line there asks for what was done since the last line;
it is answered with one JSON line: pairs of when a request was made and how long its answer took, in
seconds of the system's monotonic clock; and how many were refused, which are not among them. A
process of its own: what builds large requests beside it
must not be counted as a delay.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.broker_load.answers import AnswerCutter
from benchmarks.broker_load.frames import OPAQUE_FIRST, SendShape, UniqueKeys, send_frame
from benchmarks.broker_load.peer import connect, read
from benchmarks.fairness.scenario import PROBE_TOPIC, frame
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import GetRouteInfoRequest

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_PAUSE_S = 0.000_5
"""Between two requests, so that the probe is no load."""


def probe(sock: socket.socket, request: Callable[[], bytes]) -> None:
    """Make requests, and report when asked to, until the input ends."""
    taken: list[tuple[float, float]] = []
    refused = 0
    cutter = AnswerCutter()
    asked = sys.stdin.buffer
    while True:
        if select.select([asked], [], [], _PAUSE_S)[0]:
            if not asked.readline():
                return
            report = {"taken": taken, "refused": refused, "failures": dict(cutter.failures)}
            print(json.dumps(report), flush=True)
            taken, refused = [], 0
            cutter.failures.clear()
        data = request()
        began_s = time.perf_counter()
        failed = cutter.failures.total()
        sock.sendall(data)
        while not cutter.opaques(read(sock)):
            pass
        if cutter.failures.total() == failed:
            taken.append((began_s, time.perf_counter() - began_s))
        else:
            refused += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["send", "route"])
    parser.add_argument("port", type=int)
    args = parser.parse_args()
    shape, keys = SendShape(PROBE_TOPIC, b"x" * 128), UniqueKeys()

    def send() -> bytes:
        return send_frame(shape, 0, OPAQUE_FIRST, keys)

    def route() -> bytes:
        return frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=PROBE_TOPIC))

    with connect(args.port) as sock:
        probe(sock, send if args.kind == "send" else route)


if __name__ == "__main__":
    main()
