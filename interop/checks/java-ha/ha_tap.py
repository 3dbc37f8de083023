"""A place between a slave and its master where everything that the slave says is seen."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CHUNK_BYTES: Final = 65_536


@dataclass
class Tap:
    """What was said, connection by connection."""

    port: int = 0
    said: list[bytearray] = field(default_factory=list)
    """What the slave said to the master."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def open_tap(target_port: int) -> AsyncIterator[Tap]:
    """Listen for a slave for the length of a block, and connect it with a port."""
    tap = Tap()

    async def serve(slave: trio.SocketStream) -> None:
        said = bytearray()
        tap.said.append(said)
        try:
            master = await trio.open_tcp_stream("127.0.0.1", target_port)
        except OSError:
            return
        async with master, trio.open_nursery() as nursery:
            nursery.start_soon(_copy, slave, master, nursery.cancel_scope, said)
            nursery.start_soon(_copy, master, slave, nursery.cancel_scope, None)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        tap.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield tap
        nursery.cancel_scope.cancel()


async def _copy(
    source: trio.SocketStream,
    target: trio.SocketStream,
    scope: trio.CancelScope,
    kept: bytearray | None,
) -> None:
    """Pass on what comes until either side is gone; then the connection is over."""
    try:
        while data := await source.receive_some(_CHUNK_BYTES):
            if kept is not None:
                kept += data
            await target.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    scope.cancel()
