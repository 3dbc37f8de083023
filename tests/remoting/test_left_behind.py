"""What a refused frame, a lost connection and a failed call leave behind: nothing.

Python frees what has no reference left at once; what refers to itself waits for the garbage
collector, which in a server comes late. So these tests switch it off, and measure or look at what
is there without it.
"""

from __future__ import annotations

import errno
import gc
import tracemalloc
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.errors import ConnectFailedError, ConnectionLostError, RequestTimeoutError
from rmq.remoting.client import ClientConfig, open_client
from rmq.remoting.codes import RequestCode
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.layout import FRAME_BYTES_MAX
from tests.remoting.frames import raw_frame
from tests.remoting.server_kit import serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trio.testing import MockClock

    from rmq.remoting.transport import Transport

MIB: Final = 1024 * 1024
BAD_HEADER: Final = raw_frame(b"no JSON", bytes(MIB))
UNKNOWN_SERIALIZATION: Final = raw_frame(b"{}", bytes(MIB), serialization=7)
BAD_LENGTH: Final = raw_frame(b'{"code":105,"opaque":1}', bytes(MIB)) + b"\xff" * 8
BAD_BINARY: Final = raw_frame(b"\x00", bytes(MIB), serialization=1)

bad_frames = pytest.mark.parametrize(
    "frame",
    [
        pytest.param(BAD_HEADER, id="header"),
        pytest.param(UNKNOWN_SERIALIZATION, id="serialization"),
        pytest.param(BAD_LENGTH, id="length of the next"),
        pytest.param(BAD_BINARY, id="binary header"),
    ],
)


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@bad_frames
def test_a_decoder_that_refused_a_frame_holds_nothing_of_it(frame: bytes) -> None:
    with without_collector():
        decoders = []
        tracemalloc.start()
        try:
            for _ in range(20):
                decoder = FrameDecoder(frame_bytes_max=FRAME_BYTES_MAX)
                # In two pieces, so that the frame is put together in memory of the decoder.
                decoder.feed(frame[:100])
                decoder.take(32)
                decoder.feed(frame[100:])
                decoder.take(32)
                assert decoder.error is not None
                assert decoder.held_bytes == 0
                decoders.append(decoder)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < MIB, f"{held} bytes are left of {len(decoders)} frames"


@bad_frames
async def test_a_connection_that_sent_a_bad_frame_leaves_nothing_behind(frame: bytes) -> None:
    async with serving() as served:
        # What a first connection brings into being once is not counted.
        await served.attach("first").ping()
        with without_collector():
            ended = []
            tracemalloc.start()
            try:
                for number in range(10):
                    peer = served.attach(f"bad {number}")
                    ended.append(weakref.ref(peer.channel))
                    await peer.send(frame)
                    await peer.read_to_end()
                    served.forget(peer)
                    del peer
                    await trio.testing.wait_all_tasks_blocked()
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < MIB, f"{held} bytes are left"
            assert [each() for each in ended] == [None] * 10


async def test_a_connection_lost_in_the_middle_of_a_frame_leaves_nothing_behind() -> None:
    async with serving() as served:
        await served.attach("first").ping()
        with without_collector():
            tracemalloc.start()
            try:
                for number in range(10):
                    peer = served.attach(f"half {number}")
                    await peer.send(BAD_HEADER[: MIB // 2])
                    await trio.testing.wait_all_tasks_blocked()
                    await peer.aclose()
                    served.forget(peer)
                    del peer
                    await trio.testing.wait_all_tasks_blocked()
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < MIB, f"{held} bytes are left"


class Silent:
    """A connection to a peer that takes everything and says nothing."""

    local = "here"
    secure = False

    def __init__(self, peer: str, *, hangs_up: bool) -> None:
        self.peer = peer
        self._hangs_up = hangs_up
        self._sent = trio.Event()

    async def receive(self) -> bytes:
        await self._sent.wait()
        if not self._hangs_up:
            await trio.sleep_forever()
        return b""

    def send_nowait(self, buffers: Sequence[bytes | memoryview]) -> int:
        self._sent.set()
        return sum(map(len, buffers))

    async def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        await trio.lowlevel.checkpoint()
        return self.send_nowait(buffers)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("fate", ["timeout", "hang-up", "no connection"])
async def test_a_failed_call_does_not_keep_its_body(fate: str, autojump_clock: MockClock) -> None:
    async def dial(address: str) -> Transport:
        await trio.lowlevel.checkpoint()
        if fate == "no connection":
            raise OSError(errno.ECONNREFUSED, "refused")
        return Silent(address, hangs_up=fate == "hang-up")

    expected = {
        "timeout": RequestTimeoutError,
        "hang-up": ConnectionLostError,
        "no connection": ConnectFailedError,
    }[fate]

    async def call() -> None:
        with suppress(expected):
            await client.request(
                "10.0.0.1:9876", RequestCode.REGISTER_BROKER, body=bytes(MIB), timeout_s=1
            )
            raise AssertionError("the call succeeded")

    async with open_client(ClientConfig(), connector=dial) as client:
        await call()
        with without_collector():
            tracemalloc.start()
            try:
                for _ in range(10):
                    await call()
                await trio.testing.wait_all_tasks_blocked()
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < MIB, f"{held} bytes are left"
