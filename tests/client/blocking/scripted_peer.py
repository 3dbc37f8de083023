"""A peer on a real socket that does what a test tells it to: answers, garbage, silence.

def play(link: Link, request: Command) -> None:
    link.answer(request, header=...)

with scripted_peer(play) as peer:
    connections.request(peer.address, ...)
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE
from rmq.remoting.command import encode_frame
from rmq.remoting.frame import FrameDecoder

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from rmq.remoting.codes import RequestCode
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

WAIT_S: Final = 20.0


class Link:
    """One connection, on the peer's side."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def answer(
        self,
        request: Command,
        *,
        code: int = 0,
        header: Header | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        self.send(answer_frame(request, code=code, header=header, body=body, remark=remark))

    def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        opaque: int = 7,
        is_oneway: bool = False,
    ) -> None:
        """Send a request of the peer's own."""
        frame = encode_frame(
            code=code,
            flag=FLAG_ONEWAY if is_oneway else 0,
            opaque=opaque,
            header=header,
            body_length=len(body),
        )
        self.send(frame + body)

    def close(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def answer_frame(
    request: Command,
    *,
    code: int = 0,
    header: Header | None = None,
    body: bytes = b"",
    remark: str | None = None,
) -> bytes:
    frame = encode_frame(
        code=code,
        flag=FLAG_RESPONSE,
        opaque=request.opaque,
        header=header,
        body_length=len(body),
        remark=remark,
    )
    return frame + body


class ScriptedPeer:
    """Listens, and plays its part on every connection."""

    def __init__(
        self, play: Callable[[Link, Command], None], context: ssl.SSLContext | None = None
    ) -> None:
        self._play = play
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.accepted = 0
        self.requests: list[Command] = []
        self.errors: list[Exception] = []
        self._seen = threading.Condition()
        self._links: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def wait_requests(self, count: int) -> list[Command]:
        """Wait until so many requests have come, and return them."""
        with self._seen:
            assert self._seen.wait_for(lambda: len(self.requests) >= count, WAIT_S), (
                f"{len(self.requests)} requests instead of {count}"
            )
            return list(self.requests)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is the case, without serving anybody on this side."""
        with self._seen:
            deadline = time.monotonic() + WAIT_S
            while not condition():
                assert time.monotonic() < deadline
                self._seen.wait(0.01)

    def cut(self) -> None:
        """End all connections."""
        for sock in list(self._links):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        for thread in list(self._threads):
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        decoder = FrameDecoder()
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
            self._links.append(sock)
            link = Link(sock)
            while data := sock.recv(65536):
                decoder.feed(data)
                for command in decoder.take(1000):
                    with self._seen:
                        self.requests.append(command)
                        self._seen.notify_all()
                    self._play(link, command)
                if decoder.error is not None:
                    return
        except OSError:
            pass
        except Exception as exc:  # noqa: BLE001 - the test looks at it
            self.errors.append(exc)
        finally:
            sock.close()


@contextmanager
def scripted_peer(
    play: Callable[[Link, Command], None], context: ssl.SSLContext | None = None
) -> Iterator[ScriptedPeer]:
    """Run a peer for the length of a block."""
    peer = ScriptedPeer(play, context)
    try:
        yield peer
    finally:
        peer.close()
    assert not peer.errors, peer.errors
