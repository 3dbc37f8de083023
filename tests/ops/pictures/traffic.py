"""What producers and consumers do while the pictures are taken: a small shop with typical problems.

Of its groups, `shipping` keeps up, `analytics` is too slow, `billing` fails at some payments for
good and at others for a while, and `nightly` was there once.
"""

from __future__ import annotations

import math
import random
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from rmq.client import (
    ConsumeFrom,
    Message,
    TransactionState,
    open_admin,
    open_producer,
    open_push_consumer,
    open_transaction_producer,
)
from rmq.client.core.consuming.results import DEAD_LETTER_LEVEL, Later
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from rmq.client import Producer
    from rmq.client.core.received import ReceivedMessage

ORDERS: Final = "Orders"
PAYMENTS: Final = "Payments"
CLICKS: Final = "Clicks"
BOOKINGS: Final = "Bookings"
TOPICS: Final = {ORDERS: 4, PAYMENTS: 2, CLICKS: 4, BOOKINGS: 2}
TICK_S: Final = 0.25
_SEED: Final = 4
_TRANSACTION_TICKS: Final = 4


async def trade(nameserver: str) -> None:
    """Send and consume until that is cancelled."""
    async with open_admin(nameserver) as admin:
        for topic, queues in TOPICS.items():
            await admin.create_topic(topic, queues=queues, cluster="DefaultCluster")
    async with open_push_consumer(nameserver, "nightly", ORDERS, _ship):
        await trio.sleep(TICK_S)
    async with AsyncExitStack() as stack:
        for group, topic, listener, batch in (
            ("shipping", ORDERS, _ship, 32),
            ("analytics", CLICKS, _analyse, 32),
            ("billing", PAYMENTS, _bill, 1),
        ):
            consumer = open_push_consumer(
                nameserver,
                group,
                topic,
                listener,
                consume_from=ConsumeFrom.FIRST,
                batch_messages_max=batch,
                listeners_max=4,
            )
            await stack.enter_async_context(consumer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_sell, nameserver)
            nursery.start_soon(_book, nameserver)


async def _sell(nameserver: str) -> None:
    chance = random.Random(_SEED)
    async with open_producer(nameserver, "shop") as producer, trio.open_nursery() as nursery:
        started = trio.current_time()
        for tick in count():
            nursery.start_soon(_send, producer, _messages(chance, tick))
            await trio.sleep_until(started + tick * TICK_S)


def _messages(chance: random.Random, tick: int) -> list[Message]:
    wave = 1 + 0.5 * math.sin(tick / 60)
    sizes = [round(chance.lognormvariate(5.5, 0.9)) + 1 for _ in range(round(40 * wave))]
    messages = [Message(CLICKS, bytes(size)) for size in sizes]
    messages += [
        Message(ORDERS, bytes(chance.randrange(100, 4000)), delay_level=chance.choice((0, 0, 0, 3)))
        for _ in range(round(8 * wave))
    ]
    words = chance.choices((b"good", b"bad", b"later"), (96, 2, 2), k=3)
    return [*messages, *(Message(PAYMENTS, word) for word in words)]


async def _send(producer: Producer, messages: Sequence[Message]) -> None:
    for message in messages:
        await _unless_it_fails(producer.send_soon(message))


async def _book(nameserver: str) -> None:
    """Commit most transactions and roll some back."""
    chance = random.Random(_SEED)

    async def decide(message: Message, result: object) -> TransactionState:
        await trio.sleep(chance.uniform(0.001, 0.2))
        return TransactionState.ROLLBACK if chance.random() < 0.2 else TransactionState.COMMIT

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with open_transaction_producer(nameserver, "bookings", check) as producer:
        while True:
            await _unless_it_fails(producer.send(Message(BOOKINGS, b"seat"), decide))
            await trio.sleep(TICK_S * _TRANSACTION_TICKS)


async def _unless_it_fails(sending: Awaitable[object]) -> None:
    """While a name has no master, some sends fail: that is part of the picture."""
    with suppress(RmqError):
        await sending


# --- consumers ----------------------------------------------------------------------------------


async def _ship(messages: Sequence[ReceivedMessage]) -> None:
    await trio.lowlevel.checkpoint()


async def _analyse(messages: Sequence[ReceivedMessage]) -> None:
    await trio.sleep(1)


async def _bill(messages: Sequence[ReceivedMessage]) -> Later | None:
    await trio.lowlevel.checkpoint()
    (message,) = messages
    if message.body == b"bad":
        return Later(DEAD_LETTER_LEVEL)
    return Later(3) if message.body == b"later" and message.reconsume_times < 2 else None
