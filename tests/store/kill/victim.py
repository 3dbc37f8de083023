"""A process that writes into a store until it is killed, or told to stop.

    python -m tests.store.kill.victim ORDER

`ORDER` is JSON, see `Order`. It says on standard output how far it is, and every message for which
`put` said PUT_OK, or for which the flush it waited for came: one line each, handed to the pipe at
once, so that whoever holds the other end knows more than this process can take back. It stops when
its standard input ends.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec
import trio

from rmq.store.append import AppendResult, AppendStatus
from rmq.store.flusher import FlushOutcome
from rmq.store.store import open_store
from tests.store.kill.workload import Ack, Geometry, MessageName, Workload

if TYPE_CHECKING:
    from rmq.model.record import NewMessage
    from rmq.store.store import MessageStore

OPENING: Final = "opening"
READY: Final = "ready"
CLOSING: Final = "closing"
CLOSED: Final = "closed"
ACK: Final = "ack"
TROUBLE: Final = "trouble"

# Steps between which the file system looks different to who comes after.
_FATAL_EVENTS: Final = frozenset(
    {"open", "mmap.__new__", "os.truncate", "os.remove", "os.mkdir", "os.scandir", "fcntl.lockf"}
)
_ASYNC_PAUSE_S: Final = 0.001
_STDOUT: Final = 1
_STDIN: Final = 0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a victim is to do."""

    root: str
    geometry: Geometry
    run: int
    """How many victims this store had before; part of the names of its messages."""
    producers: int
    die_after: str = ""
    """The stage from which on calls of the system are counted."""
    die_at: int = 0
    """Before which of these calls the process ends itself by SIGKILL; 0 is never."""


class Victim:
    """One run."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._workload = Workload(order.geometry)
        self._calls_left: int | None = None

    async def live(self) -> None:
        order = self._order
        self._enter(OPENING)
        async with (
            open_store(order.geometry.config(Path(order.root))) as store,
            trio.open_nursery() as nursery,
        ):
            self._enter(READY)
            for producer in range(order.producers):
                nursery.start_soon(self._produce, store, producer)
            await trio.lowlevel.wait_readable(_STDIN)
            nursery.cancel_scope.cancel()
            self._enter(CLOSING)
        self._enter(CLOSED)

    def _enter(self, stage: str) -> None:
        say(stage)
        if stage == self._order.die_after:
            self._calls_left = self._order.die_at
            sys.addaudithook(self._die_in_time)

    def _die_in_time(self, event: str, _: tuple[object, ...]) -> None:
        if self._calls_left and event in _FATAL_EVENTS:
            self._calls_left -= 1
            if not self._calls_left:
                os.kill(os.getpid(), signal.SIGKILL)

    async def _produce(self, store: MessageStore, producer: int) -> None:
        """Write step after step, some producers waiting for each and some having many under way."""
        is_eager = producer % 3 == 2
        for step in count():
            messages, is_batch = self._workload.step(self._order.run, producer, step)
            acknowledge = partial(self._acknowledge, producer, step, messages)
            if not is_eager:
                acknowledge(await store.put(messages, batch=is_batch))
            else:
                results = (store.append_batch if is_batch else store.append)(messages)
                end = max(result.end_offset for result in results)
                if self._order.geometry.is_async:
                    acknowledge(results)
                else:
                    store.when_flushed(end, partial(self._flushed, acknowledge, results))
                # What comes now is appended while those before it are being synced.
                await trio.lowlevel.checkpoint()
                if step % 8 == 7:
                    await store.wait_flushed(end)
            if self._order.geometry.is_async:
                # Nothing else holds them up, and all they write is read several times afterwards.
                await trio.sleep(_ASYNC_PAUSE_S)

    def _flushed(
        self, acknowledge: partial[None], results: list[AppendResult], outcome: FlushOutcome
    ) -> None:
        if outcome is FlushOutcome.FLUSHED:
            acknowledge(results)
        else:
            say(f"{TROUBLE} a flush {outcome.value}")

    def _acknowledge(
        self,
        producer: int,
        step: int,
        messages: tuple[NewMessage, ...],
        results: list[AppendResult],
    ) -> None:
        lines: list[str] = []
        for member, (message, result) in enumerate(zip(messages, results, strict=True)):
            name = MessageName(self._order.run, producer, step, member)
            if result.status is not AppendStatus.PUT_OK:
                lines.append(f"{TROUBLE} {name} {result.status.value} {result.reason}")
                continue
            ack = Ack(
                str(name),
                message.topic,
                message.queue_id,
                result.queue_offset,
                result.physical_offset,
                result.size,
                crc32(message.body),
            )
            lines.append(f"{ACK} {ack}")
        say("\n".join(lines))


def say(line: str) -> None:
    """Hand a line to the pipe; one write of so few bytes gets there whole or not at all."""
    os.write(_STDOUT, f"{line}\n".encode())


def main() -> None:
    faulthandler.enable()
    logging.basicConfig(level=logging.WARNING)
    trio.run(Victim(msgspec.json.decode(sys.argv[1], type=Order)).live)


if __name__ == "__main__":
    main()
