"""A gate in front of a port: cuts connections, delays them, holds them, and sees who says what.

A broker listens on 127.0.0.1 and says that it is at 127.0.0.2, where its gates are: other brokers
come through them, the trial itself does not.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from rmq.remoting.frame import FrameDecoder
from tests.ha.processes.trials.ports import GATE_HOST, HOST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_CHUNK_BYTES: Final = 65_536
_CHUNKS_MAX: Final = 4_096
_BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class Gate:
    """One port at `GATE_HOST`, passed on to the same port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.delay_s = 0.0
        """How long bytes are on their way, in each direction."""
        self.firsts: list[bytes] = []
        """The first bytes that came on each connection, as far as they came at once."""
        self.watch: Callable[[int, bool], Awaitable[None]] | None = None
        """Told the code of each request and of what each answer answers, before it is passed on."""
        self._is_open = trio.Event()
        self._scope = trio.CancelScope()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        has_started = False
        self._is_open.set()
        while True:
            await self._is_open.wait()
            with trio.CancelScope() as self._scope:
                listeners = await trio.open_tcp_listeners(self.port, host=GATE_HOST)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.serve_listeners, self._pass, listeners)
                    if not has_started:
                        has_started = True
                        task_status.started()
                    await trio.sleep_forever()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._is_open = trio.Event()
        self._scope.cancel()

    def heal(self) -> None:
        self._is_open.set()

    async def _pass(self, near: trio.SocketStream) -> None:
        async with near:
            try:
                far = await trio.open_tcp_stream(HOST, self.port)
            except OSError:
                return
            asked: dict[int, int] = {}
            async with far, trio.open_nursery() as nursery:
                for source, target, is_request in ((near, far, True), (far, near, False)):
                    send, receive = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS_MAX)
                    nursery.start_soon(self._take, source, send, is_request, asked)
                    nursery.start_soon(self._give, target, receive, nursery.cancel_scope)

    async def _take(
        self,
        source: trio.SocketStream,
        out: trio.MemorySendChannel[tuple[float, bytes]],
        is_request: bool,
        asked: dict[int, int],
    ) -> None:
        decoder, is_first = FrameDecoder(), is_request
        async with out:
            with suppress(*_BROKEN):
                while data := bytes(await source.receive_some(_CHUNK_BYTES)):
                    if is_first:
                        self.firsts.append(data[:8])
                        is_first = False
                    if self.watch is not None:
                        decoder.feed(data)
                        for command in decoder.take(1_000):
                            if is_request:
                                asked[command.opaque] = command.code
                            code = asked.get(command.opaque, -1)
                            await self.watch(code, is_request)
                    await out.send((trio.current_time() + self.delay_s, data))

    async def _give(
        self,
        target: trio.SocketStream,
        chunks: trio.MemoryReceiveChannel[tuple[float, bytes]],
        scope: trio.CancelScope,
    ) -> None:
        with suppress(*_BROKEN):
            async for due, data in chunks:
                await trio.sleep_until(due)
                await target.send_all(data)
        scope.cancel()
