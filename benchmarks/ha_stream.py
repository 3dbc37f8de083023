"""The log of a master, streamed to somebody who does nothing with it; and the same bytes copied.

    python -m benchmarks.ha_stream follow PORT --pid PID --stop BYTES --dialect stock|native
    python -m benchmarks.ha_stream copy FILE --stop BYTES [--into FILE]

`follow` is a slave without a store: it greets, reads, checks that every frame continues the one
before, reports, and forgets. `copy` is what can be had at best: one process that does nothing but
`sendfile`, and another that does nothing but read, or read and write. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import hashlib
import json
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.broker_load.figures import Outcome, Process
from benchmarks.broker_load.peer import NoAnswerError, connect
from rmq.ha.protocol.slave_link import SlaveLink, SlaveSettings
from rmq.model.offsets import PhysicalOffset

READ_BYTES: Final = 1 << 20
SEND_BYTES: Final = 1 << 19
"""At a time; with more or less a plain copy is slower."""
REPORT_BYTES: Final = 1 << 20
"""So much is taken between two reports: what a slave of rmq does when it is behind."""
SEGMENT_BYTES: Final = 1 << 30
CLUSTER: Final = "BenchCluster"
GIB: Final = 1 << 30


class CountedLog:
    """A log of which only the length is kept."""

    begin = PhysicalOffset(0)
    segment_bytes = SEGMENT_BYTES

    def __init__(self) -> None:
        self.end = PhysicalOffset(0)

    @property
    def flushed(self) -> PhysicalOffset:
        return self.end

    def digest(self, start: int, stop: int) -> bytes:
        assert start == stop, "it is compared while it is empty only"
        return hashlib.sha256().digest()


def follow(port: int, master: Process, *, stop: int, is_native: bool, broker_name: str) -> Outcome:
    """Take the log of a master up to `stop`."""
    log = CountedLog()
    settings = SlaveSettings(
        cluster=CLUSTER,
        broker_name=broker_name,
        broker_id=9,
        address="127.0.0.1:1",
        store_id=os.urandom(16),
    )
    buffer = memoryview(bytearray(READ_BYTES))
    cpu_s = master.cpu_s()
    started_s = time.perf_counter()
    with connect(port) as sock:
        now = time.monotonic()
        link = SlaveLink(settings, log, is_native=is_native, epoch=0, nonce=os.urandom(16), now=now)
        sock.sendall(link.take_output())
        reported = 0
        while log.end < stop:
            size = sock.recv_into(buffer)
            if not size:
                raise NoAnswerError("the master closed the connection")
            now = time.monotonic()
            _take(link, log, buffer[:size], now)
            if log.end - reported >= REPORT_BYTES:
                reported = log.end
                link.report(now)
            if output := link.take_output():
                sock.sendall(output)
        took_s = time.perf_counter() - started_s
    return Outcome(_figures(log.end, took_s, master.cpu_s() - cpu_s))


def _take(link: SlaveLink, log: CountedLog, data: memoryview, now: float) -> None:
    taken, size = 0, len(data)
    while taken < size:
        if link.body_left:
            piece = min(link.body_left, size - taken)
            log.end += piece
            link.body_received(data[taken : taken + piece], now)
            taken += piece
        else:
            taken += link.receive(data[taken:], now)
            if link.record is not None:
                link.record_saved(now)
        if link.ending is not None:
            raise NoAnswerError(f"{link.ending.kind.value}: {link.ending.reason}")


def copy(source: Path, *, stop: int, into: Path | None) -> Outcome:
    """Send a file through a socket, to a reader that forgets it or writes it down."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started_s = time.perf_counter()
        sender = os.fork()
        if not sender:
            _send(source, listener.getsockname()[1], stop)
            os._exit(0)
        received = _receive(listener, into)
        took_s = time.perf_counter() - started_s
        _, status, usage = os.wait4(sender, 0)
    if status or received != stop:
        raise NoAnswerError(f"a plain copy brought {received} of {stop} bytes")
    return Outcome(_figures(stop, took_s, usage.ru_utime + usage.ru_stime))


def _send(source: Path, port: int, stop: int) -> None:
    # A sender that sleeps in `sendfile` is woken for every bit of room: the reader then gets the
    # file in four times as many pieces, at half the rate. That would be no ceiling.
    with (
        socket.create_connection(("127.0.0.1", port)) as sock,
        source.open("rb") as file,
        select.epoll() as room,
    ):
        sock.setblocking(False)
        room.register(sock, select.EPOLLOUT)
        position = 0
        while position < stop:
            left = min(SEND_BYTES, stop - position)
            try:
                position += os.sendfile(sock.fileno(), file.fileno(), position, left)
            except BlockingIOError:
                room.poll()


def _receive(listener: socket.socket, into: Path | None) -> int:
    buffer = memoryview(bytearray(READ_BYTES))
    received = 0
    target = None if into is None else into.open("wb", buffering=0)
    sock, _ = listener.accept()
    with sock:
        while size := sock.recv_into(buffer):
            received += size
            if target is not None:
                target.write(buffer[:size])
    if target is not None:
        target.close()
    return received


def _figures(size: int, took_s: float, cpu_s: float) -> dict[str, float]:
    return {
        "gb_per_s": size / took_s / 1e9,
        "cpu_s_per_gib": cpu_s / size * GIB,
        "took_s": took_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ha_stream",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("follow", "copy"))
    parser.add_argument("source", help="port of the master, or the file")
    parser.add_argument("--pid", type=int, help="process id of the master")
    parser.add_argument("--stop", type=int, required=True, help="so many bytes")
    parser.add_argument("--dialect", choices=("stock", "native"), default="native")
    parser.add_argument("--broker-name", default="bench")
    parser.add_argument("--into", type=Path)
    args = parser.parse_args()
    gc.disable()
    try:
        if args.command == "copy":
            outcome = copy(Path(args.source), stop=args.stop, into=args.into)
        else:
            outcome = follow(
                int(args.source),
                Process(args.pid),
                stop=args.stop,
                is_native=args.dialect == "native",
                broker_name=args.broker_name,
            )
    except (NoAnswerError, OSError) as exc:
        print(f"stream: error: {exc}", file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
