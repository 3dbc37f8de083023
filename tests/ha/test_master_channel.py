"""A channel by itself: what it sends at once, where it stops, and that it goes on there.

The socket takes as little as a test wants: its buffers are small, or the kernel's answers are
played.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.ha import master_channel as sending
from rmq.ha.master_channel import JOIN_BYTES, PUSH_BYTES, PlainChannel
from rmq.ha.protocol.master import Master
from rmq.ha.protocol.master_link import MasterLink
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.ha.protocol.wire import REPORT, TRANSFER
from rmq.ha.store_log import LogReader, StoreLog
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import NewMessage
from rmq.store.store import MessageStore, open_store
from tests.ha.protocol.kit_master import HOST, KIB, MIB, master_settings, settled, store_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.ha.protocol.master_link import Chunk


SIOCOUTQNSD: Final = 0x894B
"""How many bytes a socket holds that were not sent yet."""


@dataclass
class Wire:
    """A channel, and what comes out of it."""

    store: MessageStore
    link: MasterLink
    channel: PlainChannel
    far: socket.socket
    idle: list[float] = field(default_factory=list)
    got: bytearray = field(default_factory=bytearray)

    def append(self, size: int) -> None:
        self.store.append([NewMessage("T", 0, b"x" * size, b"")])

    def push(self) -> None:
        self.channel.push(trio.current_time())

    def take(self) -> int:
        """Read what has come; return how many bytes that was."""
        before = len(self.got)
        while True:
            try:
                piece = self.far.recv(MIB)
            except BlockingIOError:
                break
            if not piece:
                break
            self.got += piece
        return len(self.got) - before

    def log_bytes(self) -> bytes:
        """Put the frames that came together; they must follow each other."""
        data = bytearray()
        position = 0
        while position < len(self.got):
            offset, size = TRANSFER.unpack_from(self.got, position)
            position += TRANSFER.size
            assert offset == len(data)
            body = self.got[position : position + size]
            assert len(body) == size
            data += body
            position += size
        return bytes(data)

    @property
    def stored(self) -> bytes:
        log = self.store.log
        views = [
            log.view_from(PhysicalOffset(offset))
            for offset in range(0, log.readable, log.segments.segment_bytes)
        ]
        return b"".join(view for view in views if view is not None)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection."""
    with socket.create_server((HOST, 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


@asynccontextmanager
async def wired(
    root: Path,
    *,
    segment_bytes: int = 4 * MIB,
    frame_bytes: int = 32 * KIB,
    is_tcp: bool = False,
    **sizes: int,
) -> AsyncIterator[Wire]:
    """Open a store and a channel to a stock slave that has nothing."""
    async with open_store(store_config(root, segment_bytes=segment_bytes)) as store:
        log = StoreLog(store)
        now = trio.current_time()
        master: Master[object] = Master(
            master_settings(stock_frame_bytes=frame_bytes),
            log,
            epoch=1,
            mode=ReplicationMode.ASYNC,
            now=now,
        )
        near, far = tcp_pair() if is_tcp else socket.socketpair()
        if sizes:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sizes["buffer"])
        near.setblocking(False)
        far.setblocking(False)
        link = MasterLink(master, HOST, "peer", nonce=bytes(16), now=now)
        link.receive(REPORT.pack(0), now)
        idle: list[float] = []
        channel = PlainChannel(
            near,
            link,
            LogReader(log),
            trio.CapacityLimiter(1),
            lambda: idle.append(link.next_tick),
        )
        with far:
            yield Wire(store, link, channel, far, idle)
            channel.close()


async def test_a_push_sends_in_the_same_step(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire, trio.open_nursery() as nursery:
        nursery.start_soon(wire.channel.write)
        await settled()
        assert wire.channel.is_idle
        for size in (10, JOIN_BYTES, 3 * JOIN_BYTES):
            wire.append(size)
            wire.push()
            wire.take()
            assert wire.log_bytes() == wire.stored
            assert wire.channel.is_idle
        nursery.cancel_scope.cancel()


async def test_a_push_does_nothing_while_the_task_is_at_work(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire:
        wire.append(10)
        wire.push()
        assert wire.take() == 0
        assert not wire.channel.is_idle


async def test_what_the_socket_does_not_take_is_sent_when_it_does(tmp_path: Path) -> None:
    async with wired(tmp_path, buffer=4096) as wire, trio.open_nursery() as nursery:
        nursery.start_soon(wire.channel.write)
        await settled()
        wire.append(MIB)
        wire.push()
        assert not wire.channel.is_idle
        while not wire.channel.is_idle:
            assert wire.take()
            await settled()
        wire.take()
        assert wire.log_bytes() == wire.stored
        assert wire.channel.sent_bytes == len(wire.stored)
        nursery.cancel_scope.cancel()


async def test_what_the_socket_has_of_a_chunk_leaves_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would keep it for 200 ms, as it was told that more would follow."""
    takes = [8 * KIB]

    def send_some(out: int, file: int, position: int, size: int) -> int:
        # What `sendfile` does when it runs out of memory for a socket that is not full.
        if not takes:
            raise BlockingIOError
        data = os.pread(file, takes.pop(), position)
        with socket.socket(fileno=os.dup(out)) as near:
            return near.send(data, socket.MSG_MORE)

    async with wired(tmp_path, is_tcp=True) as wire, trio.open_nursery() as nursery:
        nursery.start_soon(wire.channel.write)
        await settled()
        wire.append(JOIN_BYTES + 10 * KIB)
        monkeypatch.setattr(os, "sendfile", send_some)
        wire.push()
        assert not wire.channel.is_idle
        unsent = fcntl.ioctl(wire.channel._sock, SIOCOUTQNSD, bytes(4))
        assert int.from_bytes(unsent, sys.byteorder) == 0
        nursery.cancel_scope.cancel()


async def test_one_push_sends_only_so_much(tmp_path: Path) -> None:
    # The socket never fills: what limits a step is its own share.
    async with wired(tmp_path, segment_bytes=16 * MIB) as wire, trio.open_nursery() as nursery:
        nursery.start_soon(wire.channel.write)
        await settled()
        for _ in range(4):
            wire.append(PUSH_BYTES)
        send = wire.channel._send_file

        def send_into_an_empty_socket(chunk: Chunk) -> bool:
            wire.take()
            return send(chunk)

        wire.channel._send_file = send_into_an_empty_socket  # type: ignore[method-assign]
        wire.push()
        assert wire.channel.sent_bytes <= PUSH_BYTES + 32 * KIB
        while not wire.channel.is_idle:
            await settled()
            wire.take()
        wire.take()
        assert wire.log_bytes() == wire.stored
        nursery.cancel_scope.cancel()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_interruption_leaves_the_stream_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 60_000), min_size=1, max_size=6))
    frame_bytes = data.draw(st.sampled_from([1000, JOIN_BYTES, JOIN_BYTES + 1, 40_000]))
    answers = data.draw(st.lists(st.integers(0, 20_000), max_size=40))

    def allowed() -> int:
        """Return how much the kernel takes; as much as it likes when the list is used up."""
        return answers.pop(0) if answers else 1 << 30

    async def main() -> None:
        async with wired(
            tmp_path_factory.mktemp("log"), segment_bytes=128 * KIB, frame_bytes=frame_bytes
        ) as wire:
            channel = wire.channel
            channel._sock = Stingy(channel._sock, allowed)  # type: ignore[assignment]
            with pytest.MonkeyPatch.context() as patch:
                sendfile = os.sendfile

                def stingy(out: int, file: int, position: int, size: int) -> int:
                    if not (most := allowed()):
                        raise BlockingIOError
                    return sendfile(out, file, position, min(size, most))

                patch.setattr(os, "sendfile", stingy)
                for size in sizes:
                    wire.append(size)
                    channel._advance(trio.current_time(), 1 << 30)
                    wire.take()
                while channel._advance(trio.current_time(), 1 << 30) is not sending.Turn.DONE:
                    wire.take()
            wire.take()
            assert wire.log_bytes() == wire.stored

    trio.run(main)


class Stingy:
    """A socket that takes only as much as it is told to."""

    def __init__(self, sock: socket.socket, allowed: object) -> None:
        self.family = sock.family
        self._sock = sock
        self._allowed = allowed

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        if not (most := self._allowed()):  # type: ignore[operator]
            raise BlockingIOError
        return self._sock.send(data[:most], flags)

    def close(self) -> None:
        self._sock.close()


async def test_the_end_of_a_segment_is_crossed(tmp_path: Path) -> None:
    async with (
        wired(tmp_path, segment_bytes=64 * KIB, frame_bytes=MIB) as wire,
        trio.open_nursery() as nursery,
    ):
        for _ in range(100):
            wire.append(5000)
        nursery.start_soon(wire.channel.write)
        while wire.channel.sent_bytes < len(wire.stored):
            await settled()
            wire.take()
        wire.take()
        assert wire.log_bytes() == wire.stored
        assert len(wire.stored) > 4 * 64 * KIB
        nursery.cancel_scope.cancel()


async def test_a_task_that_has_nothing_to_do_says_so_and_until_when(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire, trio.open_nursery() as nursery:
        nursery.start_soon(wire.channel.write)
        await settled()
        assert wire.idle == [wire.link.next_tick]
        nursery.cancel_scope.cancel()


async def test_writing_ends_with_the_reason_when_the_connection_fails(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire:
        wire.far.close()
        wire.append(10)
        with trio.fail_after(5):
            assert await wire.channel.write() == "the connection failed: Broken pipe"


async def test_a_push_into_a_broken_connection_does_not_raise(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire, trio.open_nursery() as nursery:
        ended: list[str | None] = []

        async def write() -> None:
            ended.append(await wire.channel.write())

        nursery.start_soon(write)
        await settled()
        wire.far.close()
        wire.append(10)
        wire.push()
        wire.push()
        await settled()
        assert ended == ["the connection failed: Broken pipe"]


async def test_writing_ends_when_the_bytes_have_expired(tmp_path: Path) -> None:
    async with (
        wired(tmp_path, segment_bytes=MIB, frame_bytes=MIB, buffer=4096) as wire,
        trio.open_nursery() as nursery,
    ):
        ended: list[str | None] = []

        async def write() -> None:
            ended.append(await wire.channel.write())

        for _ in range(5):
            wire.append(512 * KIB)
        nursery.start_soon(write)
        await settled()
        assert ended == []
        wire.store.log.segments.drop_first()
        while not ended:
            wire.take()
            await settled()
        assert ended[0] is not None
        assert "have expired, the log begins at 1048576" in ended[0]


async def test_a_closed_channel_sends_nothing_into_what_has_its_number_now(tmp_path: Path) -> None:
    async with wired(tmp_path, buffer=4096) as wire:
        wire.append(MIB)
        channel = wire.channel
        assert channel._advance(trio.current_time(), 1 << 30) is sending.Turn.BLOCKED
        number = channel._sock.fileno()
        channel.close()
        innocent, other = socket.socketpair()
        with innocent, other:
            assert number in (innocent.fileno(), other.fileno())
            assert channel._advance(trio.current_time(), 1 << 30) is sending.Turn.ENDED


async def test_closing_twice_is_fine(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire:
        wire.channel.close()
        wire.channel.close()
