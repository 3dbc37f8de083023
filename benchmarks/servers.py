"""The two servers that are compared, each a process of its own.

    python -m benchmarks.servers rmq|bare|stalling

`rmq` decodes, dispatches and answers SEND_MESSAGE_V2 through `RemotingServer`, typed headers on
both sides. `bare` only finds frame boundaries and writes a canned answer: the least any server in
Python can do. `stalling` is `rmq` with a short stall timeout. The port is printed as the first
line.
"""

from __future__ import annotations

import gc
import resource
import selectors
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import LanguageCode
from rmq.remoting.command import FrameEncoder
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.groups import SEND
from rmq.remoting.headers import SendMessageRequestV2, SendMessageResponse
from rmq.remoting.protocol import Requests
from rmq.remoting.server import RemotingServer, ServerConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.remoting.request import Request

MESSAGE_ID: Final = "0A00000100002A9F0000000000000400"
STALL_TIMEOUT_S: Final = 2.0


def _answer(queue_id: int, queue_offset: int) -> SendMessageResponse:
    return SendMessageResponse(
        msg_id=MESSAGE_ID,
        queue_id=queue_id,
        queue_offset=queue_offset,
        msg_region="DefaultRegion",
        trace_on=True,
    )


class Acceptor:
    """Answers every send as a broker would, storing nothing."""

    def __init__(self) -> None:
        self._sends = 0

    def handle(
        self, requests: Sequence[Request[SendMessageRequestV2]]
    ) -> list[SendMessageResponse]:
        offset = self._sends
        self._sends += len(requests)
        return [
            _answer(request.header.queue_id, number)
            for number, request in enumerate(requests, start=offset)
        ]


async def serve_rmq(config: ChannelConfig) -> None:
    table = HandlerTable()
    table.add_batch(Requests.SEND_MESSAGE_V2, Acceptor().handle, group=SEND)
    server = RemotingServer(table, ServerConfig(host="127.0.0.1", channel=config))
    # What a broker does after start-up: objects that stay are not looked at again.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        print(server.port, flush=True)


def serve_bare() -> None:
    encoder = FrameEncoder(language=LanguageCode.JAVA)
    canned = encoder.response(1000, 0, _answer(1, 1), 0)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    rests: dict[socket.socket, bytes] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                accepted, _ = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                rests[accepted] = b""
                selector.register(accepted, selectors.EVENT_READ)
                continue
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            try:
                data = sock.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                selector.unregister(sock)
                sock.close()
                del rests[sock]
                continue
            data = rests[sock] + data
            position = count = 0
            size = len(data)
            while size - position >= 4:
                end = position + 4 + int.from_bytes(data[position : position + 4], "big")
                if end > size:
                    break
                position = end
                count += 1
            rests[sock] = data[position:]
            # A load generator that has seen enough hangs up in the middle of things.
            with suppress(OSError):
                sock.sendall(canned * count)


def main() -> None:
    kind = sys.argv[1]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if kind == "bare":
        serve_bare()
    elif kind == "rmq":
        trio.run(serve_rmq, ChannelConfig())
    elif kind == "stalling":
        trio.run(serve_rmq, ChannelConfig(stall_timeout_s=STALL_TIMEOUT_S))
    else:
        raise SystemExit(f"unknown server {kind!r}")


if __name__ == "__main__":
    main()
