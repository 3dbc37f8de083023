"""A client that keeps book: what it is owed, and what it got.

A `Peer` sends any bytes over a connection of its own. It reads with the decoder servers use what
the server has to make of them, so that each request gets exactly one answer, and nothing else does.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.remoting.codes import FLAG_RESPONSE
from rmq.remoting.frame import FrameDecoder
from tests.fuzz.servers.requests import expected

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from rmq.remoting.command import Command
    from tests.fuzz.servers.requests import Maker
    from tests.fuzz.servers.watch import Note

_RESET: Final = struct.pack("ii", 1, 0)
_CLOSE_S: Final = 3.0
_SILENCE_S: Final = 100.0
"""After a little more without a byte or a heartbeat, servers may close a connection."""
_READ_BYTES: Final = 1 << 18


@dataclass
class Server:
    """One of the servers: where it is and what it is asked."""

    name: str
    port: int
    maker: Maker
    answers_unknown: bool


@final
class Peer:
    """One connection to a server."""

    def __init__(
        self,
        stream: trio.SocketStream,
        server: Server,
        on_answer: Callable[[Server, Command, Command], None],
        note: Note,
    ) -> None:
        self.server = server
        self.stream = stream
        self.sent = 0
        """Frames the server has to read."""
        self.is_sound = True
        """Whether the server has no reason to close the connection."""
        self.answer_call: Callable[[Peer, Command], bytes] = lambda _peer, _call: b""
        """Gives the bytes that follow a request of the server's."""
        self.on_answer = on_answer
        self._note = note
        self._mirror = FrameDecoder()
        self._owed: dict[int, list[Command]] = {}
        self._quiet: dict[int, list[Command]] = {}
        self.is_ended = False
        """Whether nothing more comes."""
        self._is_closing = False
        self._opened_at = trio.current_time()
        self._listens = trio.Event()
        self._listens.set()
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        self._sending = trio.Lock()

    @property
    def is_owed(self) -> bool:
        """Whether an answer has yet to come, or an end."""
        if self.is_ended:
            return False
        return bool(self._owed) if self.is_sound else True

    def unanswered(self) -> list[Command]:
        return [request for requests in self._owed.values() for request in requests]

    def forgive(self) -> None:
        """Wait for nothing more."""
        self._owed.clear()
        if not self.is_sound and not self.is_ended:
            self._note(f"{self.server.name} reads on after damage", f"{self._mirror.error}")
            self.is_sound = True

    def expect_end(self) -> None:
        """Be ready for the server to close the connection."""
        self._is_closing = True
        self.listen()

    def be_deaf(self) -> None:
        """Read nothing until told to `listen`."""
        self._listens = trio.Event()

    def listen(self) -> None:
        self._listens.set()

    async def send(self, stream: bytes) -> None:
        """Send bytes, and expect what follows from them."""
        owed = expected(
            stream,
            self.server.maker.served,
            self._mirror,
            answers_unknown=self.server.answers_unknown,
        )
        self.sent += len(owed.requests) + len(owed.quiet) + owed.silent
        for request in owed.requests:
            self._owed.setdefault(request.opaque, []).append(request)
        for request in owed.quiet:
            self._quiet.setdefault(request.opaque, []).append(request)
        self.is_sound = self.is_sound and owed.is_sound
        try:
            async with self._sending:
                await self.stream.send_all(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # `run` finds out, too.
            pass

    async def run(self) -> None:
        """Read until the connection ends."""
        decoder = FrameDecoder()
        with self._scope:
            while True:
                await self._listens.wait()
                try:
                    data = await self.stream.receive_some(_READ_BYTES)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    data = b""
                if not data:
                    break
                decoder.feed(data)
                while commands := decoder.take(1000):
                    for command in commands:
                        await self._got(command)
                if decoder.error is not None:
                    self._note(f"{self.server.name} writes what is no frame", str(decoder.error))
                    break
        self.is_ended = True
        self._ended.set()
        is_young = trio.current_time() - self._opened_at < _SILENCE_S
        if self.is_sound and not self._is_closing and is_young:
            self._note(
                f"{self.server.name} closed a sound connection",
                f"with {len(self.unanswered())} requests unanswered",
            )
        self._owed.clear()

    async def _got(self, command: Command) -> None:
        if not command.flag & FLAG_RESPONSE:
            answer = self.answer_call(self, command)
            if answer:
                await self.send(answer)
            return
        for table in (self._owed, self._quiet):
            requests = table.get(command.opaque)
            if requests:
                request = requests.pop(0)
                if not requests:
                    del table[command.opaque]
                self.on_answer(self.server, request, command)
                return
        self._note(
            f"{self.server.name} answers what nobody asked",
            f"opaque {command.opaque} code {command.code} remark {command.remark}",
        )

    async def close(self, chance: random.Random) -> None:
        """End the connection, one way or the other."""
        self._is_closing = True
        style = chance.randrange(3)
        if style == 0 and not self.is_ended:
            # The server ends its half when it has seen the end of ours.
            try:
                with trio.move_on_after(_CLOSE_S):
                    async with self._sending:
                        await self.stream.send_eof()
                    self.listen()
                    await self._ended.wait()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        elif style == 1:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._scope.cancel()
        await self.stream.aclose()
