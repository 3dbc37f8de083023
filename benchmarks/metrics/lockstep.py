"""A broker and its client in one process, in lockstep: the same work in every run.

    python -m benchmarks.metrics.lockstep FOLDER --runs 100 --connections 16 --sends 4

The client writes so many sends at once to each connection, and the next ones when all are answered,
so that every read of the broker brings the same. The clock of the event loop stands still: nothing
is done from time to time. What is left can be counted, instruction by instruction (`instructions`).
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import trio

from benchmarks.broker_load.answers import AnswerCutter
from benchmarks.broker_load.frames import (
    OPAQUE_FIRST,
    SendShape,
    UniqueKeys,
    create_topic_frame,
    send_frame,
)
from benchmarks.broker_load.peer import READ_BYTES, NoAnswerError, connect
from interop.support.stock import HA_DISTANCE, VIP_DISTANCE, free_port, write_properties
from rmq.broker.broker import serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.cli.broker import tune_garbage_collector

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from rmq.broker.broker import Broker

_TOPIC: Final = "BenchLockstep"
_QUEUES: Final = 4
_VARIANTS: Final = 64
"""Different keys for each place in a batch, so that the index is written as in use."""
_NOW_MS: Final = 1_700_000_000_000


@final
class StandingClock(trio.abc.Clock):
    """Shows the same time always; asking for it takes what it takes of the usual one."""

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return time.perf_counter() * 0.0

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return math.inf if deadline > 0.0 else 0.0


async def main(folder: Path, runs: int, connections: int, sends: int) -> None:
    config = write_properties(
        folder / "broker.conf",
        {
            "brokerName": "bench",
            "listenPort": str(free_port(VIP_DISTANCE, HA_DISTANCE)),
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": str(folder / "store"),
            "storePathCommitLog": str(folder / "store" / "commitlog"),
            "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
        },
    )
    live = LiveConfig(load_broker_config(config, {}, {}), now_ms=_NOW_MS)
    async with trio.open_nursery() as nursery:
        broker: Broker = await nursery.start(serve_broker, live)
        tune_garbage_collector()
        clients = [_connect(broker.server.port) for _ in range(connections)]
        await _ask(clients[:1], create_topic_frame(_TOPIC, _QUEUES, OPAQUE_FIRST), 1)
        shape, keys = SendShape(_TOPIC, b"x" * 128), UniqueKeys()
        batches = [
            b"".join(
                send_frame(shape, number % _QUEUES, OPAQUE_FIRST + number, keys)
                for number in range(sends)
            )
            for _ in range(_VARIANTS)
        ]
        for run in range(runs):
            await _ask(clients, batches[run % _VARIANTS], sends)
        # An orderly stop waits, and time stands still.
        os._exit(0)


def _connect(port: int) -> socket.socket:
    sock = connect(port)
    sock.setblocking(False)
    return sock


async def _ask(clients: Sequence[socket.socket], frames: bytes, answers: int) -> None:
    """Write to all connections in one step, and wait for the answers to all."""
    for client in clients:
        assert client.send(frames) == len(frames), "the kernel has no room for that"
    for client in clients:
        cutter, left = AnswerCutter(), answers
        while left:
            await trio.lowlevel.wait_readable(client)
            left -= len(cutter.opaques(client.recv(READ_BYTES)))
        if cutter.failures:
            raise NoAnswerError(str(dict(cutter.failures)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--sends", type=int, default=32, help="written at once to each connection")
    args = parser.parse_args()
    trio.run(main, args.folder, args.runs, args.connections, args.sends, clock=StandingClock())
