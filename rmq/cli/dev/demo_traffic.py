"""Sample traffic for `rmq pipeline demo`: a small shop with typical problems.

In a dozen seconds it leaves what operators meet in practice: topics of different rates, a burst,
one queue that gets most of its topic, groups that keep up and one that falls behind, and messages
that a consumer gave up. The same seed gives the same messages; only their times differ.
"""

from __future__ import annotations

import json
import math
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import trio

from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.config import PushConsumerConfig
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.consuming.results import DEAD_LETTER_LEVEL, Later
from rmq.client.core.messages import Message
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.tasks.admin import AdminClient
from rmq.client.tasks.producer import producing
from rmq.client.tasks.push_consumer import consuming
from rmq.client.trio.opening import open_client

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.producer import Producer

CLICKS: Final = "Clicks"
ORDERS: Final = "Orders"
PAYMENTS: Final = "Payments"
TOPICS: Final = {CLICKS: 4, ORDERS: 4, PAYMENTS: 2}
"""The topics, and how many queues each has."""
SLOW_GROUP: Final = "analytics"
FAILING_GROUP: Final = "billing"

TRAFFIC_S: Final = 12.0
TICK_S: Final = 0.2
CLICKS_PER_S: Final = 3_000
ORDERS_PER_S: Final = 300
PAYMENTS_PER_S: Final = 150
BURST_S: Final = (6.0, 7.6)
"""When three times as many clicks come."""
HOT_CUSTOMER_SHARE: Final = 0.6
BAD_PAYMENT_SHARE: Final = 0.04
SLOW_PAUSE_S: Final = 0.25
"""How long the slow group takes for a batch of messages."""
_REQUEST_S: Final = 10.0
_SEED: Final = 20_261_118


async def make_traffic(
    nameserver: str, say: Callable[[str], None], duration_s: float = TRAFFIC_S
) -> int:
    """Send and consume for a while; return how many messages were sent."""
    config = ClientConfig(nameservers=nameserver, request_timeout_s=_REQUEST_S)
    async with open_client(config) as client:
        admin = AdminClient(client)
        for topic, queues in TOPICS.items():
            await admin.create_topic(topic, queues=queues, cluster="DefaultCluster")
        async with AsyncExitStack() as stack:
            for group, topic, listener in (
                ("dashboard", CLICKS, _keep_up),
                (SLOW_GROUP, CLICKS, _fall_behind),
                ("shipping", ORDERS, _keep_up),
                (FAILING_GROUP, PAYMENTS, _bill),
            ):
                settings = PushConsumerConfig(
                    group=group,
                    consume_from=ConsumeFrom.FIRST,
                    batch_messages_max=1 if group == FAILING_GROUP else 32,
                    listeners_max=4,
                    close_wait_s=1.0,
                )
                await stack.enter_async_context(consuming(client, settings, topic, listener))
            say(f"  {duration_s:g} s of traffic in {', '.join(TOPICS)}")
            sent = await _send(client, duration_s)
            # Groups that keep up get the last messages, too.
            await trio.sleep(4 * TICK_S)
    return sent


# --- producers --------------------------------------------------------------------------------


async def _send(client: Client, duration_s: float) -> int:
    chance = random.Random(_SEED)
    sent = 0
    async with (
        producing(client, ProducerConfig(group="web-shop")) as producer,
        trio.open_nursery() as nursery,
    ):
        started = trio.current_time()
        for tick in range(round(duration_s / TICK_S)):
            at_s = tick * TICK_S
            clicks = _clicks(chance, round(click_rate(at_s) * TICK_S))
            payments = _payments(chance, tick, round(PAYMENTS_PER_S * TICK_S))
            orders = _orders(chance, tick, round(ORDERS_PER_S * TICK_S))
            await producer.send_batch(clicks)
            await producer.send_batch(payments)
            nursery.start_soon(_send_in_order, producer, orders)
            sent += len(clicks) + len(payments) + len(orders)
            await trio.sleep_until(started + at_s + TICK_S)
    return sent


async def _send_in_order(producer: Producer, orders: Sequence[tuple[str, Message]]) -> None:
    for customer, message in orders:
        await producer.send_ordered(message, customer)


def click_rate(at_s: float) -> float:
    """Return how many clicks per second come at a time: a slow wave, and a burst."""
    rate = CLICKS_PER_S * (1 + 0.4 * math.sin(at_s / 2))
    return rate * 3 if BURST_S[0] <= at_s < BURST_S[1] else rate


def _clicks(chance: random.Random, count: int) -> list[Message]:
    tags = chance.choices(("view", "search", "cart"), (70, 22, 8), k=count)
    return [
        Message(
            CLICKS,
            json.dumps({"visitor": chance.randrange(5000), "page": chance.randrange(200)}).encode(),
            tag=tag,
        )
        for tag in tags
    ]


def _orders(chance: random.Random, tick: int, count: int) -> list[tuple[str, Message]]:
    orders = []
    for number in range(count):
        is_hot = chance.random() < HOT_CUSTOMER_SHARE
        customer = "customer-7" if is_hot else f"customer-{chance.randrange(400)}"
        order = f"order-{tick}-{number}"
        items = [chance.randrange(1, 900) for _ in range(chance.randrange(1, 9))]
        body = json.dumps({"order": order, "customer": customer, "items": items}).encode()
        properties = {"region": chance.choice(("north", "south", "east", "west"))}
        orders.append(
            (customer, Message(ORDERS, body, tag="new", keys=(order,), properties=properties))
        )
    return orders


def _payments(chance: random.Random, tick: int, count: int) -> list[Message]:
    payments = []
    for number in range(count):
        is_bad = chance.random() < BAD_PAYMENT_SHARE
        amount = "NaN" if is_bad else f"{chance.uniform(3, 400):.2f}"
        body = json.dumps({"payment": f"{tick}-{number}", "amount": amount}).encode()
        tag = chance.choice(("card", "transfer", "cash"))
        payments.append(Message(PAYMENTS, body, tag=tag, keys=(f"payment-{tick}-{number}",)))
    return payments


# --- consumers --------------------------------------------------------------------------------


async def _keep_up(messages: Sequence[ReceivedMessage]) -> None:
    await trio.lowlevel.checkpoint()


async def _fall_behind(messages: Sequence[ReceivedMessage]) -> None:
    await trio.sleep(SLOW_PAUSE_S)


async def _bill(messages: Sequence[ReceivedMessage]) -> Later | None:
    """Refuse what has no amount, for good: it becomes a dead letter."""
    await trio.lowlevel.checkpoint()
    is_bad = any(b"NaN" in message.body for message in messages)
    return Later(DEAD_LETTER_LEVEL) if is_bad else None
