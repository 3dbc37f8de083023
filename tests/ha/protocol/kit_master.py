"""A master with a real store and a real port, and slaves played by the test.

`serving` runs them. A `Peer` is a socket in the test's hand: it says what it likes, whenever it
likes. `StockPeer` and `NativePeer` speak the two dialects; the native one is `SlaveLink` over a log
in memory.

Time is `mock_clock` where it matters. Slaves are connected by pairs of sockets, where bytes arrive
in the step that sends them: `settled` is enough to see what came of something. On a port
(`dialled`) they take as long as they take, and a test waits for what is to happen.
"""

from __future__ import annotations

import hashlib
import socket
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.testing import wait_all_tasks_blocked

from rmq.ha.protocol.master import Master, MasterSettings
from rmq.ha.protocol.pending_acks import AckOutcome, ReplicationMode
from rmq.ha.protocol.slave_link import SlaveLink, SlaveSettings
from rmq.ha.protocol.slaves import InSyncRules
from rmq.ha.protocol.wire import REPORT, TRANSFER
from rmq.ha.server import HaServer, HaServerConfig, ReplicationWait
from rmq.ha.store_log import StoreLog
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import NewMessage
from rmq.store.config import StoreConfig
from rmq.store.segments import is_segment_name
from rmq.store.store import MessageStore, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from rmq.ha.link_status import LinkStatus

KIB: Final = 1024
MIB: Final = 1024 * KIB
HOST: Final = "127.0.0.1"


def store_config(root: Path, **settings: Any) -> StoreConfig:  # noqa: ANN401 - any setting
    """Return the settings of a store with small files; how full the disk is does not matter."""
    defaults: dict[str, Any] = {
        "segment_bytes": 64 * KIB,
        "queue_segment_bytes": 1000 * 20,
        "index_slots": 50,
        "index_entries": 1000,
        "disk_clean_ratio": 1.0,
        "disk_full_ratio": 1.0,
    }
    return StoreConfig(root=root, **(defaults | settings))


@dataclass(slots=True)
class Serving:
    """A master at work."""

    store: MessageStore
    log: StoreLog
    master: Master[ReplicationWait]
    server: HaServer
    port: int
    names: int = 0

    def append(self, count: int = 1, *, size: int = 100) -> int:
        """Append messages without telling anybody; return where the log ends."""
        body = bytes(range(256)) * (size // 256 + 1)
        for _ in range(count):
            (result,) = self.store.append([NewMessage("T", 0, body[:size], b"")])
            assert result.status.name == "PUT_OK", result
        return self.log.end

    def put(self, count: int = 1, *, size: int = 100) -> int:
        """Append messages and pump."""
        end = self.append(count, size=size)
        self.server.pump()
        return end

    def ask(self, end: int) -> list[AckOutcome]:
        """Ask when a message is replicated; return the list that gets the answer."""
        answers: list[AckOutcome] = []
        self.server.when_replicated(PhysicalOffset(end), answers.append)
        return answers

    def bytes_of_log(self, start: int = 0, stop: int | None = None) -> bytes:
        stop = self.log.end if stop is None else stop
        data = bytearray()
        while start < stop:
            size = min(stop - start, self.log.segment_bytes - start % self.log.segment_bytes)
            view = self.log.view(PhysicalOffset(start), size)
            assert view is not None, (start, size)
            data += view
            start += size
        return bytes(data)

    @property
    def only_link(self) -> LinkStatus:
        (status,) = self.server.statistics()
        return status


def master_settings(**settings: Any) -> MasterSettings:  # noqa: ANN401 - any setting
    defaults: dict[str, Any] = {
        "cluster": "C",
        "broker_name": "broker-a",
        "address": "127.0.0.1:10911",
        "store_id": b"m" * 16,
    }
    return MasterSettings(**(defaults | settings))


@asynccontextmanager
async def serving(
    root: Path,
    *,
    mode: ReplicationMode = ReplicationMode.SYNC,
    rules: InSyncRules | None = None,
    settings: dict[str, Any] | None = None,
    store: dict[str, Any] | None = None,
    messages: int = 0,
    **config: Any,  # noqa: ANN401 - any setting of the server
) -> AsyncIterator[Serving]:
    """Run a master."""
    async with open_store(store_config(root, **(store or {}))) as opened:
        log = StoreLog(opened)
        master: Master[ReplicationWait] = Master(
            master_settings(rules=rules or InSyncRules(), **(settings or {})),
            log,
            epoch=1,
            mode=mode,
            now=trio.current_time(),
        )
        server = HaServer(master, log, HaServerConfig(host=HOST, **config))
        async with trio.open_nursery() as nursery:
            port = await nursery.start(server.run)
            run = Serving(opened, log, master, server, port)
            if messages:
                run.append(messages)
            yield run
            nursery.cancel_scope.cancel()


async def settled() -> None:
    """Wait until nothing happens any more."""
    await wait_all_tasks_blocked()
    await wait_all_tasks_blocked()


def open_files() -> list[str]:
    """Return the sockets this process has open, and the segments it has opened by name.

    The store's own are opened before they have a name, and come and go in a thread.
    """
    names: list[str] = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(str(fd.readlink()))
    return sorted(
        name
        for name in names
        if is_segment_name(name.rpartition("/")[2].removesuffix(" (deleted)"))
        or name.startswith("socket:")
    )


class Peer:
    """A connection to a master."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.is_closed = False
        """The master has closed it."""
        self.was_reset = False

    async def say(self, data: bytes) -> None:
        """Send bytes and wait for what comes of them."""
        self.sock.send(data)
        await settled()

    def take(self, most: int = 1 << 24) -> bytes:
        """Return what has come."""
        data = bytearray()
        while len(data) < most and not self.is_closed:
            try:
                piece = self.sock.recv(min(most - len(data), MIB))
            except BlockingIOError:
                break
            except ConnectionResetError:
                self.was_reset = self.is_closed = True
                break
            if not piece:
                self.is_closed = True
            data += piece
        return bytes(data)

    async def read(self, size: int) -> bytes:
        """Wait for so many bytes."""
        data = self.take(size)
        while len(data) < size:
            assert not self.is_closed, f"closed after {len(data)} of {size} bytes"
            await trio.lowlevel.wait_readable(self.sock)
            data += self.take(size - len(data))
        return data

    async def read_to_the_end(self) -> None:
        """Read until the master closes; an error if it does so with a reset."""
        while True:
            await trio.lowlevel.wait_readable(self.sock)
            if not self.sock.recv(MIB):
                return

    async def wait_closed(self) -> bytes:
        """Read until the master closes; return what came before."""
        data = self.take()
        while not self.is_closed:
            await trio.lowlevel.wait_readable(self.sock)
            data += self.take()
        return data


class StockPeer(Peer):
    """A slave that speaks as RocketMQ 4.9.8 does."""

    async def report(self, offset: int) -> None:
        await self.say(REPORT.pack(offset))

    async def frame(self) -> tuple[int, bytes]:
        """Wait for the next frame; return its offset and its bytes."""
        offset, size = TRANSFER.unpack(await self.read(TRANSFER.size))
        return offset, await self.read(size)

    async def follow(self, start: int, stop: int) -> bytes:
        """Read the log up to `stop`, reporting after each frame."""
        data = bytearray()
        while start + len(data) < stop:
            offset, body = await self.frame()
            assert offset == start + len(data)
            data += body
            if body:
                self.sock.send(REPORT.pack(start + len(data)))
        await settled()
        return bytes(data)


class MemoryLog:
    """A slave's log."""

    def __init__(self, segment_bytes: int, data: bytes = b"", begin: int = 0) -> None:
        self.begin = PhysicalOffset(begin)
        self.data = bytearray(data)
        self.segment_bytes = segment_bytes

    @property
    def end(self) -> PhysicalOffset:
        return self.begin + len(self.data)

    @property
    def flushed(self) -> PhysicalOffset:
        return self.end

    def digest(self, start: int, stop: int) -> bytes:
        return hashlib.sha256(self.data[start - self.begin : stop - self.begin]).digest()


class NativePeer:
    """A slave of rmq's own kind, over any connection that is told to it byte by byte."""

    def __init__(
        self,
        log: MemoryLog,
        *,
        secret: bytes = b"",
        epoch: int = 1,
        store_id: bytes = b"s" * 16,
        broker_name: str = "broker-a",
    ) -> None:
        self.log = log
        self.link = SlaveLink(
            SlaveSettings(
                cluster="C",
                broker_name=broker_name,
                broker_id=1 if store_id == b"s" * 16 else store_id[0],
                address="127.0.0.1:20911",
                store_id=store_id,
                secret=secret,
            ),
            log,
            is_native=True,
            epoch=epoch,
            nonce=b"n" * 16,
            now=trio.current_time(),
        )
        self.frames: list[int] = []
        """The sizes of what came, heartbeats as 0."""

    def hear(self, data: bytes) -> bytes:
        """Take in what the master sent; return what to answer."""
        now = trio.current_time()
        while data:
            taken = self.link.receive(data, now)
            data = data[taken:]
            if self.link.ending is not None:
                break
            if left := self.link.body_left:
                if not self.log.data:
                    self.log.begin = self.link.frame_offset
                piece = data[:left]
                self.log.data += piece
                self.link.body_received(piece, now)
                data = data[len(piece) :]
        self.link.report(now)
        return self.link.take_output()

    async def talk(self, peer: Peer) -> None:
        """Say and hear until there is nothing more to hear."""
        if output := self.link.take_output():
            await peer.say(output)
        while data := peer.take():
            if output := self.hear(data):
                if peer.is_closed:
                    return
                peer.sock.send(output)
            await settled()

    async def follow(self, peer: Peer, stop: int) -> None:
        """Talk until the log has come to `stop`."""
        await self.talk(peer)
        while self.log.end < stop:
            await trio.lowlevel.wait_readable(peer.sock)
            await self.talk(peer)


@contextmanager
def stock_slave(serving: Serving, host: str = HOST) -> Iterator[StockPeer]:
    with attached(serving, host) as sock:
        yield StockPeer(sock)


@contextmanager
def stranger(serving: Serving, host: str = HOST) -> Iterator[Peer]:
    with attached(serving, host) as sock:
        yield Peer(sock)


@contextmanager
def attached(serving: Serving, host: str) -> Iterator[socket.socket]:
    """Connect to a master by a pair of sockets, as if from `host`."""
    ours, theirs = socket.socketpair()
    serving.names += 1
    serving.server.attach(theirs, host, f"{host}:{serving.names}")
    with ours:
        yield ours


@contextmanager
def dialled(serving: Serving) -> Iterator[Peer]:
    """Connect to a master's port."""
    with socket.create_connection((HOST, serving.port)) as sock:
        yield Peer(sock)
