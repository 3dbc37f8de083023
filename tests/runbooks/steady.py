"""A producer that sends all the time while a page is followed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self

import trio

from rmq.client import Message, open_producer
from rmq.errors import RmqError

if TYPE_CHECKING:
    from types import TracebackType

    from rmq.client import Producer

TOPIC: Final = "broker-a"
"""It is there from the start."""
_SENDERS: Final = 4
_BETWEEN_S: Final = 0.01
_POLL_S: Final = 0.02
_WAIT_S: Final = 30.0
_SEND_S: Final = 15.0
"""So long that no send fails because this machine is busy."""


class Steady:
    """Sends from a thread of its own, from the beginning to the end of a block."""

    def __init__(self, nameservers: str) -> None:
        self.sent: set[str] = set()
        """What was answered SEND_OK."""
        self.failures: list[str] = []
        self._nameservers = nameservers
        self._number = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._send,))

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive(), "the producer does not end"

    def wait_for(self, count: int) -> None:
        """Wait until that many more messages were answered SEND_OK."""
        wanted = len(self.sent) + count
        deadline = time.monotonic() + _WAIT_S
        while len(self.sent) < wanted:
            assert self._thread.is_alive(), "the producer has ended"
            assert time.monotonic() < deadline, f"nothing is sent: {self.failures[-3:]}"
            time.sleep(_POLL_S)

    async def _send(self) -> None:
        async with (
            open_producer(self._nameservers, "steady", send_timeout_s=_SEND_S) as producer,
            trio.open_nursery() as nursery,
        ):
            for _ in range(_SENDERS):
                nursery.start_soon(self._send_on, producer)

    async def _send_on(self, producer: Producer) -> None:
        while not self._is_over.is_set():
            number, self._number = self._number, self._number + 1
            body = f"steady {number}"
            try:
                result = await producer.send(Message(TOPIC, body.encode()))
            except RmqError as exc:
                self.failures.append(str(exc))
                continue
            finally:
                await trio.sleep(_BETWEEN_S)
            if result.is_ok:
                self.sent.add(body)
