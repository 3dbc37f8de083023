"""A planned promotion under the load of our own producers: no send fails, and none waits long.

The topic is on one broker name only, so that nobody has another place to go.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import trio

from rmq.client import Message, open_producer
from rmq.client.blocking import BlockingProducer
from rmq.errors import RmqError
from tests.ha.processes.load import TOPIC, Consumer
from tests.ha.processes.pair import MASTER, SLAVE, running_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from rmq.client.tasks.producer import Producer

GAP_S_MAX: Final = 2.0
SENDERS: Final = 8
PROMOTIONS: Final = ((SLAVE, MASTER), (MASTER, SLAVE))
"""Who is promoted, and in whose place."""


class Account:
    """What became of the messages of one producer."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self.acknowledged: set[bytes] = set()
        self.failures: list[RmqError] = []
        self.longest_gap_s = 0.0
        self._last_at: float | None = None

    def __str__(self) -> str:
        return (
            f"{self._name}: {len(self.acknowledged)} sent, {len(self.failures)} failed, the longest"
            f" time without a send {self.longest_gap_s:.2f} s"
        )

    def next(self) -> bytes:
        self._count += 1
        return b"%s %d" % (self._name.encode(), self._count)

    def sent(self, body: bytes, now: float) -> None:
        self.acknowledged.add(body)
        if self._last_at is not None:
            self.longest_gap_s = max(self.longest_gap_s, now - self._last_at)
        self._last_at = now


@asynccontextmanager
async def producing(producer: Producer, plain: Account, ordered: Account) -> AsyncIterator[None]:
    """Send all the time: to queues in turn, and in order."""
    is_over = False

    async def send(account: Account, key: int | None) -> None:
        while not is_over:
            body = account.next()
            message = Message(TOPIC, body)
            try:
                if key is None:
                    await producer.send(message)
                else:
                    await producer.send_ordered(message, key)
            except RmqError as exc:
                account.failures.append(exc)
            else:
                account.sent(body, trio.current_time())

    async with trio.open_nursery() as nursery:
        for number in range(SENDERS):
            nursery.start_soon(send, plain, None)
            nursery.start_soon(send, ordered, number)
        yield
        is_over = True


@contextmanager
def producing_in_a_thread(nameserver: str, plain: Account, stream: Account) -> Iterator[None]:
    """Send all the time without a loop: one by one, and many at a time."""
    is_over = threading.Event()
    clock = trio.lowlevel.current_clock().current_time

    def send() -> None:
        with BlockingProducer(nameserver, "blocking") as producer:
            while not is_over.is_set():
                body = plain.next()
                try:
                    producer.send(Message(TOPIC, body))
                except RmqError as exc:
                    plain.failures.append(exc)
                else:
                    plain.sent(body, clock())

    def send_stream() -> None:
        bodies: list[bytes] = []

        def messages() -> Iterator[Message]:
            while not is_over.is_set():
                bodies.append(stream.next())
                yield Message(TOPIC, bodies[-1])

        with BlockingProducer(nameserver, "streaming") as producer:
            for number, outcome in enumerate(producer.send_stream(messages(), in_flight=16)):
                if isinstance(outcome, RmqError):
                    stream.failures.append(outcome)
                else:
                    stream.sent(bodies[number], clock())

    threads = [threading.Thread(target=each) for each in (send, send_stream)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


async def test_a_planned_promotion_fails_no_send_and_stops_none_for_long(tmp_path: Path) -> None:
    accounts = [Account(name) for name in ("plain", "ordered", "blocking", "stream")]
    plain, ordered, blocking, stream = accounts

    async def until_all_have_sent(more: int) -> None:
        targets = [len(each.acknowledged) + more for each in accounts]
        with trio.fail_after(20):
            while any(  # noqa: ASYNC110 - told by other tasks and threads
                len(each.acknowledged) < target
                for each, target in zip(accounts, targets, strict=True)
            ):
                await trio.sleep(0.01)

    async with running_pair(tmp_path) as it:
        nameserver = it.cluster.nameserver_address
        async with open_producer(nameserver, "orders") as producer:
            with producing_in_a_thread(nameserver, blocking, stream):
                async with producing(producer, plain, ordered):
                    for promoted, former in PROMOTIONS:
                        await until_all_have_sent(50)
                        answer = await it.ha.promote(
                            it.address(promoted), accept_loss=False, mode=None
                        )
                        assert answer.previous_master == it.address(former)
                        await until_all_have_sent(50)
                        await it.until_in_sync(promoted)
        for account in accounts:
            print(account)  # noqa: T201 - figures for whoever runs it with -s
            assert not account.failures, account.failures[0]
            assert account.longest_gap_s < GAP_S_MAX, str(account)
        consumer = Consumer(it.client)
        await consumer.read_all(it.address(MASTER))
        for account in accounts:
            assert account.acknowledged <= set(consumer.bodies)
