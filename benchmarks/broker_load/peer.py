"""A connection to a broker, and the few requests that are made one at a time."""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, Protocol

from benchmarks.broker_load.answers import AnswerCutter, is_success, max_offset
from benchmarks.broker_load.frames import OPAQUE_FIRST, create_topic_frame, max_offset_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

READ_BYTES: Final = 1 << 18
PATIENCE_S: Final = 30
"""How long a broker may keep everyone waiting before the run is given up."""


class NoAnswerError(Exception):
    """The broker hung up, or said nothing for too long, or nothing that helps."""


class HungUpError(NoAnswerError):
    """The broker ended the connection."""


def connect(port: int) -> socket.socket:
    """Return a blocking socket that gives up by itself.

    The kernel keeps the time: a Python timeout would cost another system call with every read.
    """
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    patience = struct.pack("ll", PATIENCE_S, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
    return sock


def read(sock: socket.socket) -> bytes:
    """Return what has arrived, at least one byte; wait for it if nothing has."""
    try:
        data = sock.recv(READ_BYTES)
    except BlockingIOError:
        raise NoAnswerError(f"the broker did not answer within {PATIENCE_S} s") from None
    if not data:
        raise HungUpError("the broker closed the connection")
    return data


def call(sock: socket.socket, frame: bytes) -> bytes:
    """Send one request and return the header of its answer, which must be a success."""
    sock.sendall(frame)
    cutter = AnswerCutter()
    while True:
        for _, header, _ in cutter.answers(read(sock)):
            if not is_success(header):
                raise NoAnswerError(header.decode(errors="replace"))
            return header


class Peer(Protocol):
    """A connection that knows what to do with its answers."""

    @property
    def sock(self) -> socket.socket: ...

    def take_answers(self) -> object:
        """Read once, and send what is to be sent for what was read."""


def serve(peers: Sequence[Peer], seconds: float) -> None:
    """Let everyone who has answers take them, for a while."""
    end = time.perf_counter() + seconds
    if len(peers) == 1:
        # Nobody to choose from: waiting in the read saves asking first.
        take_answers = peers[0].take_answers
        while time.perf_counter() < end:
            take_answers()
        return
    by_number = {peer.sock.fileno(): peer.take_answers for peer in peers}
    with select.epoll() as poller:
        for number in by_number:
            poller.register(number, select.EPOLLIN)
        while time.perf_counter() < end:
            ready = poller.poll(PATIENCE_S)
            if not ready:
                raise NoAnswerError(f"the broker did not answer within {PATIENCE_S} s")
            for number, _ in ready:
                by_number[number]()


def create_topic(port: int, topic: str, queues: int) -> None:
    with connect(port) as sock:
        call(sock, create_topic_frame(topic, queues, OPAQUE_FIRST))


def wait_for_messages(port: int, topic: str, queues: int, each: int) -> None:
    """Return when a consumer sees at least so many messages in every queue."""
    deadline = time.perf_counter() + PATIENCE_S
    with connect(port) as sock:
        for queue_id in range(queues):
            while max_offset(call(sock, max_offset_frame(topic, queue_id, OPAQUE_FIRST))) < each:
                if time.perf_counter() > deadline:
                    raise NoAnswerError(f"{topic} is not readable up to {each} in queue {queue_id}")
                time.sleep(0.05)
