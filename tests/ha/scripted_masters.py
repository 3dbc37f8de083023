"""Masters for a slave under test, each on a port of its own, that do what the test says.

`CoreMaster` is a master of the core (`MasterLink`). `StockMaster` does what a RocketMQ 4.9.8 master
does, written from its wire format and not from ours; `stock_questions` answers what a slave asks it
as a client. Either can be spoilt: it cuts connections after so many bytes, or says nothing.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING, Any, Final

import trio

from rmq.errors import RefusedError
from rmq.ha.protocol.master import Master, MasterSettings
from rmq.ha.protocol.master_link import MasterLink
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import KVTable
from rmq.remoting.codes import ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.protocol import Requests
from tests.ha.following import CLUSTER, MASTER_ID, NAME

if TYPE_CHECKING:
    import ssl

    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.headers import ViewMessageRequest
    from rmq.remoting.request import Request
    from tests.ha.following import Node

OFFSET: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")


class _CutError(Exception):
    """The connection is to end here."""


class Listener:
    """A port of loopback, and what comes of each connection to it."""

    def __init__(self) -> None:
        self.accepted = 0
        self.port = 0
        self.cut_after: int | None = None
        """Every connection ends, as if reset, once so many bytes were sent on it."""
        self.tls_context: ssl.SSLContext | None = None
        self.is_mute = False
        """Nothing is sent while it is so, and nothing read."""
        self.buffer_bytes: int | None = None
        """So much the system takes in before it is read."""
        self.sent: list[bytes] = []
        """What was sent on each connection."""
        self.received: list[bytes] = []
        self._scope = trio.CancelScope()
        self._streams: list[trio.abc.Stream] = []
        self._unmuted = trio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self._scope:
            (listener,) = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
            self.port = listener.socket.getsockname()[1]
            if self.buffer_bytes is not None:
                listener.socket.setsockopt(
                    trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, self.buffer_bytes
                )
            async with listener, trio.open_nursery() as nursery:
                task_status.started()
                while True:
                    nursery.start_soon(self._handle, await listener.accept())

    def stop(self) -> None:
        """Be gone, with all connections."""
        self._scope.cancel()

    def unmute(self) -> None:
        self.is_mute = False
        self._unmuted.set()

    async def _handle(self, socket_stream: trio.SocketStream) -> None:
        number = self.accepted
        self.accepted += 1
        self.sent.append(b"")
        self.received.append(b"")
        stream: trio.abc.Stream = socket_stream
        if self.tls_context is not None:
            stream = trio.SSLStream(
                socket_stream, self.tls_context, server_side=True, https_compatible=True
            )
        self._streams.append(stream)
        broken = (trio.BrokenResourceError, trio.ClosedResourceError, _CutError)
        with contextlib.suppress(BaseExceptionGroup, *broken):
            await self.serve(number, stream)
        # As a killed process: nothing more is sent, and what is unread resets the connection.
        await trio.aclose_forcefully(stream)

    async def serve(self, number: int, stream: trio.abc.Stream) -> None:
        """Play the master on a connection; each kind of master does it its own way."""
        raise NotImplementedError(type(self).__name__)

    async def interject(self, data: bytes) -> None:
        """Send something on the newest connection."""
        await self._streams[-1].send_all(data)

    async def send(self, number: int, stream: trio.abc.Stream, data: bytes) -> None:
        while self.is_mute:
            self._unmuted = trio.Event()
            await self._unmuted.wait()
        if self.cut_after is not None:
            data = data[: self.cut_after - len(self.sent[number])]
        self.sent[number] += data
        await stream.send_all(data)
        if self.cut_after is not None and len(self.sent[number]) >= self.cut_after:
            raise _CutError

    async def receive(self, number: int, stream: trio.abc.Stream) -> bytes:
        while self.is_mute:
            self._unmuted = trio.Event()
            await self._unmuted.wait()
        data = bytes(await stream.receive_some(65536))
        self.received[number] += data
        return data


class CoreMaster(Listener):
    """A master of the core."""

    def __init__(self, node: Node, *, epoch: int = 1, **settings: Any) -> None:  # noqa: ANN401 - any setting
        super().__init__()
        defaults: dict[str, Any] = {
            "cluster": CLUSTER,
            "broker_name": NAME,
            "address": "127.0.0.1:10911",
            "store_id": MASTER_ID,
        }
        self.node = node
        self.master: Master[str] = Master(
            MasterSettings(**defaults | settings),
            node.log,
            epoch=epoch,
            mode=ReplicationMode.SYNC,
            now=trio.current_time(),
        )
        self.links: list[MasterLink] = []
        self._woken = trio.Event()

    @property
    def appended(self) -> int:
        """What the slave says it holds."""
        return max((slave.appended for slave in self.master.slaves), default=-1)

    @property
    def flushed(self) -> int:
        return max((slave.flushed for slave in self.master.slaves), default=-1)

    def put(self, count: int, *, size: int = 20) -> None:
        self.node.put(count, size=size)
        self.grew()

    def grew(self) -> None:
        self.master.grew(trio.current_time())
        self._woken.set()

    async def serve(self, number: int, stream: trio.abc.Stream) -> None:
        link = MasterLink(
            self.master,
            "127.0.0.1",
            f"slave {number}",
            nonce=os.urandom(16),
            now=trio.current_time(),
        )
        self.links.append(link)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_in, number, link, stream, nursery.cancel_scope)
                await self._send_all(number, link, stream)
                nursery.cancel_scope.cancel()
        finally:
            link.closed(trio.current_time())

    async def _take_in(
        self, number: int, link: MasterLink, stream: trio.abc.Stream, scope: trio.CancelScope
    ) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self.receive(number, stream):
                link.receive(data, trio.current_time())
                self._woken.set()
        scope.cancel()

    async def _send_all(self, number: int, link: MasterLink, stream: trio.abc.Stream) -> None:
        while True:
            now = trio.current_time()
            if output := link.take_output():
                await self.send(number, stream, output)
                continue
            if link.end_reason is not None:
                return
            if data := self._next_bytes(link, now):
                await self.send(number, stream, data)
                continue
            self._woken = trio.Event()
            with trio.move_on_at(max(link.next_tick, now + 0.01)):
                await self._woken.wait()
            link.tick(trio.current_time())

    def _next_bytes(self, link: MasterLink, now: float) -> bytes:
        """Return all that is to be sent, frame by frame, as a master does that is quick."""
        data = bytearray()
        while len(data) < 1024**2 and (chunk := link.next_chunk(now)) is not None:
            if chunk.size:
                view = self.node.log.view(chunk.offset, chunk.size)
                assert view is not None
                data += link.sealed(chunk, view)
                data += view
            else:
                data += chunk.header
            link.chunk_sent(chunk, now)
        return bytes(data)


class StockMaster(Listener):
    """What a RocketMQ 4.9.8 master does with a slave's connection (HAConnection)."""

    FRAME_BYTES: Final = 32 * 1024
    HEARTBEAT_S: Final = 5.0

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.reports: list[list[int]] = []
        """What each connection said."""
        self.frames: list[bytes] | None = None
        """Sent after the first report in place of the log, then nothing but silence."""
        self.sends_pieces = False
        """They are sent one by one, not all at once."""
        self._woken = trio.Event()

    def put(self, count: int, *, size: int = 20) -> None:
        self.node.put(count, size=size)
        self._woken.set()

    async def serve(self, number: int, stream: trio.abc.Stream) -> None:
        reports: list[int] = []
        self.reports.append(reports)
        accepted_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_in, number, reports, stream, nursery.cancel_scope)
            while not reports:
                self._woken = trio.Event()
                await self._woken.wait()
            if self.frames is None:
                await self._send_log(number, reports[0], stream, accepted_at)
            else:
                pieces = self.frames if self.sends_pieces else [b"".join(self.frames)]
                for piece in pieces:
                    await self.send(number, stream, piece)
                    # The slave has its turn.
                    await trio.lowlevel.checkpoint()
                await trio.sleep_forever()

    async def _take_in(
        self, number: int, reports: list[int], stream: trio.abc.Stream, scope: trio.CancelScope
    ) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while await self.receive(number, stream):
                data = self.received[number]
                reports[:] = [value for (value,) in OFFSET.iter_unpack(data[: len(data) // 8 * 8])]
                self._woken.set()
        scope.cancel()

    async def _send_log(
        self, number: int, position: int, stream: trio.abc.Stream, sent_at: float
    ) -> None:
        log = self.node.core.log
        if position == 0:
            position = log.readable - log.readable % self.node.log.segment_bytes
        while True:
            view = log.view_from(PhysicalOffset(position)) if position >= 0 else None
            if view is not None:
                body = bytes(view[: self.FRAME_BYTES])
                await self.send(number, stream, HEADER.pack(position, len(body)) + body)
                position += len(body)
                sent_at = trio.current_time()
                continue
            self._woken = trio.Event()
            with trio.move_on_at(sent_at + self.HEARTBEAT_S):
                await self._woken.wait()
            if trio.current_time() >= sent_at + self.HEARTBEAT_S:
                await self.send(number, stream, HEADER.pack(position, 0))
                sent_at = trio.current_time()


def stock_questions(node: Node, *, shows_only_records: bool = False) -> HandlerTable:
    """Answer what a slave asks a stock master: 28 and 33, as RocketMQ 4.9.8 does.

    A broker of our own shows only sound records; that of Java whatever is there.
    """
    core = node.core

    def runtime_info(request: Request[EmptyHeader]) -> None:
        extent = {
            "commitLogMinOffset": str(core.log.min_offset if len(core.log.segments) else -1),
            "commitLogMaxOffset": str(core.log.readable),
        }
        request.reply(body=KVTable(table=extent).encode())

    def view_message(request: Request[ViewMessageRequest]) -> None:
        offset = request.header.offset
        size = core.log.view(PhysicalOffset(offset), 4)
        record = (
            None
            if size is None
            else core.log.view(PhysicalOffset(offset), int.from_bytes(size, "big"))
        )
        is_sound = offset >= 0 and core.reads.record_at(PhysicalOffset(offset)) is not None
        if record is None or (shows_only_records and not is_sound):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        request.reply(body=record)

    table = HandlerTable()
    table.add(Requests.GET_BROKER_RUNTIME_INFO, runtime_info)
    table.add(Requests.VIEW_MESSAGE_BY_ID, view_message)
    return table
