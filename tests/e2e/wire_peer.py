"""A connection that sends frames as they are and keeps what comes back until it is asked for."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.remoting.codes import FLAG_RESPONSE
from tests.e2e.servers import HOST
from tests.remoting.server_kit import Frame, parse_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ANSWER_S: Final = 15.0
"""How long anything may take; a hold is looked at every 5 s."""
_READ_BYTES: Final = 1 << 16


@final
class Peer:
    """One connection. Use `connected`."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._kept: list[Frame] = []

    async def send(self, frame: bytes) -> None:
        await self._stream.send_all(frame)

    async def answer(self, opaque: int) -> Frame | None:
        """Return the answer to a request; None if it does not come in time."""
        return await self._take(lambda frame: is_answer(frame) and frame.opaque == opaque)

    async def wait_answered(self, opaque: int) -> None:
        """Return when a request is answered; the answer can still be asked for."""
        answer = await self.answer(opaque)
        if answer is not None:
            self._kept.append(answer)

    async def request(self, code: int) -> Frame | None:
        """Return the next request of this kind that the server sends; None if it sends none."""
        return await self._take(lambda frame: not is_answer(frame) and frame.code == code)

    def unclaimed_requests(self) -> list[Frame]:
        """Return the requests of the server that nobody has asked for."""
        return [frame for frame in self._kept if not is_answer(frame)]

    def unclaimed_answers(self) -> list[Frame]:
        """Return the answers that nobody has asked for."""
        return [frame for frame in self._kept if is_answer(frame)]

    async def _take(self, is_wanted: Callable[[Frame], bool]) -> Frame | None:
        with trio.move_on_after(ANSWER_S):
            while True:
                for frame in self._kept:
                    if is_wanted(frame):
                        self._kept.remove(frame)
                        return frame
                if not await self._receive():
                    break
        return None

    async def _receive(self) -> bool:
        """Wait for more frames; False if the server closed the connection."""
        data = await self._stream.receive_some(_READ_BYTES)
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4])
            if len(self._buffer) < end:
                break
            self._kept.append(parse_frame(bytes(self._buffer[:end])))
            del self._buffer[:end]
        return bool(data)


def is_answer(frame: Frame) -> bool:
    return bool(frame.flag & FLAG_RESPONSE)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    """Connect for the length of a block."""
    async with await trio.open_tcp_stream(HOST, port) as stream:
        yield Peer(stream)
